#include "common/kv/handoff/sink_state.h"

#include "common/base/assert.h"

#include <stdlib.h>

const char *sink_reason_name(enum sink_reason reason)
{
    static const char *const names[] = {
        "none",     "gone",    "peer_down", "silent",          "read",
        "checksum", "pairing", "protocol",  "layout_mismatch", "numerics_mismatch",
        "limit",    "invalid"};
    return (size_t)reason < sizeof names / sizeof *names ? names[reason] : "unknown";
}

static enum status check_config(const struct sink_config *config, struct error *err)
{
    if (!config->vocab || !config->block_tokens || !config->block_bytes || !config->max_sinks ||
        !config->max_blocks || !config->max_peers || !config->max_read_blocks)
        return error_set(err, STATUS_INVALID, "sink table: a size is 0");
    if (!config->heartbeat_us || !config->silence_limit_us || !config->peer_down_limit_us ||
        !config->reconnect_us)
        return error_set(err, STATUS_INVALID, "sink table: a time is 0");
    return STATUS_OK;
}

enum status sink_table_create(const struct sink_config *config, struct sink_table **out,
                              struct error *err)
{
    TRY(check_config(config, err));
    size_t per_slot = config->max_blocks;
    struct sink_table *table = calloc(1, sizeof *table);
    if (!table)
        goto fail_memory;
    table->config = *config;
    table->slots = calloc(config->max_sinks, sizeof *table->slots);
    table->free_slots = calloc(config->max_sinks, sizeof *table->free_slots);
    table->peers = calloc(config->max_peers, sizeof *table->peers);
    table->block_ids = calloc(config->max_sinks, 3 * per_slot * sizeof *table->block_ids);
    if (!table->slots || !table->free_slots || !table->peers || !table->block_ids ||
        map_create(config->max_sinks, &table->by_request) != STATUS_OK)
        goto fail_table;
    for (uint32_t i = 0; i < config->max_sinks; i++) {
        table->slots[i].remote = table->block_ids + 3 * i * per_slot;
        table->slots[i].local = table->slots[i].remote + per_slot;
        table->slots[i].checksums = table->slots[i].local + per_slot;
        table->free_slots[table->free_count++] = config->max_sinks - 1 - i;
    }
    *out = table;
    return STATUS_OK;

fail_table:
    sink_table_destroy(table);
fail_memory:
    return error_set(err, STATUS_LIMIT, "sink table: no memory for %u sinks of %u blocks",
                     config->max_sinks, config->max_blocks);
}

void sink_table_destroy(struct sink_table *table)
{
    if (!table)
        return;
    map_destroy(table->by_request);
    free(table->block_ids);
    free(table->peers);
    free(table->free_slots);
    free(table->slots);
    free(table);
}

enum status sink_actions_init(struct sink_actions *list, const struct sink_table *table)
{
    /* The most that one event causes: every sink gives up (Release, Lost, Unreserve) and every peer
     * is connected. */
    *list = (struct sink_actions){.capacity =
                                      3 * table->config.max_sinks + table->config.max_peers + 4};
    list->items = calloc(list->capacity, sizeof *list->items);
    return list->items ? STATUS_OK : STATUS_LIMIT;
}

void sink_actions_deinit(struct sink_actions *list)
{
    free(list->items);
    *list = (struct sink_actions){0};
}

struct sink_action *sink_append(struct sink_actions *out, enum sink_action_kind kind,
                                uint64_t request, uint32_t attempt)
{
    ASSERT(out->count < out->capacity);
    struct sink_action *action = &out->items[out->count++];
    *action = (struct sink_action){.kind = kind, .request = request, .attempt = attempt};
    return action;
}

struct sink_action *sink_append_for(struct sink_actions *out, enum sink_action_kind kind,
                                    const struct sink *sink)
{
    struct sink_action *action = sink_append(out, kind, sink->request, sink->attempt);
    action->peer = sink->peer ? sink->peer->key : 0;
    return action;
}

static uint64_t earlier(uint64_t a_us, uint64_t b_us)
{
    return a_us < b_us ? a_us : b_us;
}

uint64_t sink_table_next_us(const struct sink_table *table)
{
    const struct sink_config *config = &table->config;
    uint64_t next_us = UINT64_MAX;
    for (uint32_t i = 0; i < config->max_sinks; i++) {
        const struct sink *sink = &table->slots[i];
        if (!sink_pulls(sink))
            continue;
        next_us = earlier(next_us, sink_later_us(sink->down_since_us, config->peer_down_limit_us));
        next_us = earlier(next_us, sink_later_us(sink->heard_us, config->silence_limit_us));
        if (sink->peer->stream == STREAM_UP)
            next_us = earlier(next_us, sink->beat_us);
        else if (sink->peer->stream == STREAM_DOWN)
            next_us = earlier(next_us, sink->peer->retry_us);
    }
    return next_us;
}

uint32_t sink_table_count(const struct sink_table *table)
{
    return table->config.max_sinks - table->free_count;
}

bool sink_table_uses_peer(const struct sink_table *table, uint64_t peer)
{
    for (uint32_t i = 0; i < table->config.max_sinks; i++)
        if (table->slots[i].peer && table->slots[i].peer->key == peer)
            return true;
    return false;
}

uint32_t sink_table_queued(const struct sink_table *table)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < table->config.max_sinks; i++)
        count += table->slots[i].state == SINK_QUEUED;
    return count;
}

uint32_t sink_table_landing_blocks(const struct sink_table *table)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < table->config.max_sinks; i++)
        if (table->slots[i].state != SINK_UNUSED)
            count += table->slots[i].reading;
    return count;
}

struct sink_counters sink_table_counters(const struct sink_table *table)
{
    return table->counters;
}
