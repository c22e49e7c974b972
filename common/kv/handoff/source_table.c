#include "common/kv/handoff/source_state.h"

#include <stdlib.h>

const char *source_end_name(enum source_end end)
{
    static const char *const names[] = {"confirmed", "released", "superseded",
                                        "expired",   "session",  "failed"};
    return (size_t)end < sizeof names / sizeof *names ? names[end] : "unknown";
}

static enum status check_config(const struct source_config *config, struct error *err)
{
    if (!config->block_tokens || !config->max_sources || !config->max_blocks ||
        !config->memo_count || !config->lease_us)
        return error_set(err, STATUS_INVALID, "source table: a size or the lease is 0");
    return STATUS_OK;
}

enum status source_table_create(const struct source_config *config, struct source_table **out,
                                struct error *err)
{
    TRY(check_config(config, err));
    size_t per_slot = config->max_blocks;
    struct source_table *table = calloc(1, sizeof *table);
    if (!table)
        goto fail_memory;
    table->config = *config;
    table->slots = calloc(config->max_sources, sizeof *table->slots);
    table->free_slots = calloc(config->max_sources, sizeof *table->free_slots);
    table->block_ids = calloc(config->max_sources, per_slot * sizeof *table->block_ids);
    table->checksums = calloc(config->max_sources, per_slot * sizeof *table->checksums);
    table->memos = calloc(config->memo_count, sizeof *table->memos);
    if (!table->slots || !table->free_slots || !table->block_ids || !table->checksums ||
        !table->memos || map_create(config->max_sources, &table->by_request) != STATUS_OK)
        goto fail_table;
    for (uint32_t i = 0; i < config->max_sources; i++) {
        table->slots[i].blocks = table->block_ids + i * per_slot;
        table->slots[i].checksums = table->checksums + i * per_slot;
        table->free_slots[table->free_count++] = config->max_sources - 1 - i;
    }
    *out = table;
    return STATUS_OK;

fail_table:
    source_table_destroy(table);
fail_memory:
    return error_set(err, STATUS_LIMIT, "source table: no memory for %u sources of %u blocks",
                     config->max_sources, config->max_blocks);
}

void source_table_destroy(struct source_table *table)
{
    if (!table)
        return;
    map_destroy(table->by_request);
    free(table->memos);
    free(table->checksums);
    free(table->block_ids);
    free(table->free_slots);
    free(table->slots);
    free(table);
}

enum status source_actions_init(struct source_actions *list, const struct source_table *table)
{
    /* The most that one event causes: every source ends. A Prefill ends one and starts one, a
     * message is answered twice. */
    *list = (struct source_actions){.capacity = table->config.max_sources + 2};
    list->items = calloc(list->capacity, sizeof *list->items);
    return list->items ? STATUS_OK : STATUS_LIMIT;
}

void source_actions_deinit(struct source_actions *list)
{
    free(list->items);
    *list = (struct source_actions){0};
}

uint64_t source_table_next_us(const struct source_table *table)
{
    uint64_t next_us = UINT64_MAX;
    for (uint32_t i = 0; i < table->config.max_sources; i++) {
        const struct source *source = &table->slots[i];
        if (source->state >= SOURCE_OPENED && source->lease_end_us < next_us)
            next_us = source->lease_end_us;
    }
    return next_us;
}

uint32_t source_table_count(const struct source_table *table)
{
    return table->config.max_sources - table->free_count;
}

uint32_t source_table_queued(const struct source_table *table)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < table->config.max_sources; i++)
        count += table->slots[i].state == SOURCE_QUEUED;
    return count;
}

uint32_t source_table_pinned_blocks(const struct source_table *table)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < table->config.max_sources; i++)
        if (table->slots[i].state >= SOURCE_OPENED)
            count += table->slots[i].block_count;
    return count;
}

struct source_counters source_table_counters(const struct source_table *table)
{
    return table->counters;
}
