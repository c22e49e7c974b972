#include "common/cli/prefix_trace.h"

#include "common/base/assert.h"
#include "common/base/json/json.h"
#include "common/base/str.h"
#include "common/cli/input_lines.h"
#include "common/engine/sched/kv_blocks.h"
#include "common/engine/sched/prefix_cache.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void prefix_trace_init(struct prefix_trace *trace)
{
    *trace = (struct prefix_trace){0};
}

void prefix_trace_deinit(struct prefix_trace *trace)
{
    free(trace->prompts);
    free(trace->ids);
}

/* Makes room for `need` items of `size` bytes in all. Grows by doubling. */
static enum status make_room(void **items, size_t size, uint32_t *capacity, uint32_t need,
                             struct error *err)
{
    if (need <= *capacity)
        return STATUS_OK;
    uint32_t wanted = *capacity ? *capacity : 1024;
    while (wanted < need)
        wanted *= 2;
    void *grown = realloc(*items, wanted * size);
    if (!grown)
        return error_set(err, STATUS_LIMIT, "out of memory for a trace of %u items", wanted);
    *items = grown;
    *capacity = wanted;
    return STATUS_OK;
}

static enum status read_ids(struct prefix_trace *trace, const struct json_value *array,
                            struct error *err)
{
    size_t count = json_count(array);
    if (trace->prompt_count == PREFIX_TRACE_MAX_PROMPTS ||
        trace->id_count + count > PREFIX_TRACE_MAX_IDS)
        return error_set(err, STATUS_LIMIT, "the trace has more than %u prompts or %u ids",
                         PREFIX_TRACE_MAX_PROMPTS, PREFIX_TRACE_MAX_IDS);
    TRY(make_room((void **)&trace->ids, sizeof *trace->ids, &trace->id_capacity,
                  trace->id_count + (uint32_t)count, err));
    TRY(make_room((void **)&trace->prompts, sizeof *trace->prompts, &trace->prompt_capacity,
                  trace->prompt_count + 1, err));
    for (size_t i = 0; i < count; i++) {
        int64_t id;
        TRY(json_as_i64(json_at(array, i), 0, PREFIX_TRACE_MAX_ID - 1, &id, err));
        trace->ids[trace->id_count + i] = (uint32_t)id;
    }
    return STATUS_OK;
}

static enum status add_prompt(struct prefix_trace *trace, const struct json_value *line,
                              struct error *err)
{
    int64_t tokens, answer = 0;
    double time = 0;
    const struct json_value *array;
    TRY(json_get_i64(line, "input_length", 1, PREFIX_TRACE_MAX_TOKENS, &tokens, err));
    if (json_find(line, "output_length"))
        TRY(json_get_i64(line, "output_length", 0, PREFIX_TRACE_MAX_TOKENS, &answer, err));
    if (json_find(line, "timestamp"))
        TRY(json_get_double(line, "timestamp", 0, PREFIX_TRACE_MAX_TIME, &time, err));
    TRY(json_get_array(line, "hash_ids", &array, err));
    int64_t blocks = (tokens + PREFIX_TRACE_BLOCK_TOKENS - 1) / PREFIX_TRACE_BLOCK_TOKENS;
    if (json_count(array) != (size_t)blocks)
        return error_set(err, STATUS_INVALID,
                         "%lld tokens are %lld started blocks of %d, but there are %zu hash_ids",
                         (long long)tokens, (long long)blocks, PREFIX_TRACE_BLOCK_TOKENS,
                         json_count(array));
    TRY(read_ids(trace, array, err));
    trace->prompts[trace->prompt_count++] =
        (struct prefix_trace_prompt){.time = time,
                                     .token_count = (uint32_t)tokens,
                                     .answer_tokens = (uint32_t)answer,
                                     .id_count = (uint32_t)blocks,
                                     .first_id = trace->id_count};
    trace->id_count += (uint32_t)blocks;
    trace->token_count += (uint64_t)tokens;
    if (trace->longest_tokens < tokens)
        trace->longest_tokens = (uint32_t)tokens;
    return STATUS_OK;
}

enum status prefix_trace_add(struct prefix_trace *trace, const char *line, size_t length,
                             struct error *err)
{
    const struct json_limits limits = {.max_bytes = PREFIX_TRACE_MAX_LINE_BYTES, .max_depth = 4};
    struct json *json;
    TRY(json_parse(line, length, limits, &json, err));
    enum status status = add_prompt(trace, json_root(json), err);
    json_destroy(json);
    return status;
}

/* Refuses lines that can't belong to a trace, before their JSON is parsed. */
static enum status check_line(const struct str *line, const char *path, uint32_t number,
                              struct error *err)
{
    if (number == 1 && strncmp(line->data, "\x1f\x8b", 2) == 0)
        return error_set(err, STATUS_INVALID, "%s is compressed by gzip: unpack it first", path);
    if (memchr(line->data, 0, line->length))
        return error_set(err, STATUS_INVALID,
                         "%s:%u: has a NUL byte: it is not a trace, which has a JSON object on "
                         "each line",
                         path, number);
    if (line->truncated)
        return error_set(err, STATUS_LIMIT, "%s:%u: longer than %u bytes", path, number,
                         PREFIX_TRACE_MAX_LINE_BYTES);
    return STATUS_OK;
}

static enum status read_lines(struct prefix_trace *trace, FILE *file, struct str *line,
                              const char *path, struct error *err)
{
    for (uint32_t number = 1; input_lines_read(file, '\n', line); number++) {
        TRY(check_line(line, path, number, err));
        enum status status = prefix_trace_add(trace, line->data, line->length, err);
        if (status != STATUS_OK)
            return error_prefix(err, status, "%s:%u", path, number);
    }
    if (ferror(file))
        return error_set(err, STATUS_IO, "cannot read %s: %s", path, strerror(errno));
    if (trace->prompt_count == 0)
        return error_set(err, STATUS_INVALID, "%s has no lines", path);
    return STATUS_OK;
}

enum status prefix_trace_read(struct prefix_trace *trace, const char *path, struct error *err)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return error_set(err, STATUS_IO, "cannot open %s: %s", path, strerror(errno));
    struct str line;
    str_init(&line, PREFIX_TRACE_MAX_LINE_BYTES);
    enum status status = read_lines(trace, file, &line, path, err);
    str_deinit(&line);
    fclose(file);
    return status;
}

/* --- the replay --- */

struct replay {
    const struct prefix_trace *trace;
    const struct prefix_replay_config *config;
    struct kv_blocks *blocks;
    struct prefix_cache *cache;
    struct prefix_hash root;
    uint32_t *tokens;    /* [longest_tokens] of a prompt */
    uint32_t *block_ids; /* [longest_tokens / block_tokens + 1] of a prompt */
};

/* Returns the cost of rows [0, tokens). Each costs 1 and, for attention, its position /
 * even_tokens. */
static double cost_of(const struct prefix_replay_config *config, double tokens)
{
    return config->even_tokens ? tokens + tokens * tokens / (2.0 * config->even_tokens) : tokens;
}

static void count_prompt(const struct prefix_replay_config *config, uint32_t tokens,
                         uint32_t hit_tokens, struct prefix_replay_result *result)
{
    result->hit_tokens += hit_tokens;
    result->cost += cost_of(config, tokens);
    result->saved_cost += cost_of(config, hit_tokens);
}

/* Plays a prompt for which the pool has enough blocks, and returns how many of its tokens were
 * cached. */
static uint32_t play(struct replay *replay, const struct prefix_trace_prompt *prompt)
{
    uint32_t per = replay->config->block_tokens, known;
    uint32_t whole = prompt->token_count / per, all = whole + (prompt->token_count % per != 0);
    struct prefix_chain chain = prefix_chain_start(replay->root);
    uint32_t hits = prefix_cache_lookup(replay->cache, &chain, replay->tokens, prompt->token_count,
                                        KV_HOLD_USED, replay->block_ids);
    uint32_t need = all - hits, left = kv_blocks_count(replay->blocks, KV_BLOCK_FREE);
    if (need > left)
        prefix_cache_evict(replay->cache, need - left);
    enum status taken =
        kv_blocks_take(replay->blocks, need, KV_HOLD_USED, replay->block_ids + hits);
    ASSERT(taken == STATUS_OK); /* no other prompt holds blocks: all cached ones can go */
    while (chain.length < whole)
        prefix_cache_insert(replay->cache, &chain, replay->tokens + (size_t)chain.length * per,
                            replay->block_ids[chain.length], &known);
    kv_blocks_give(replay->blocks, replay->block_ids, all, KV_HOLD_USED);
    return hits * per;
}

static void play_all(struct replay *replay, struct prefix_replay_result *result)
{
    const struct prefix_trace *trace = replay->trace;
    uint64_t room = (uint64_t)kv_blocks_total(replay->blocks) * replay->config->block_tokens;
    for (uint32_t i = 0; i < trace->prompt_count; i++) {
        const struct prefix_trace_prompt *prompt = &trace->prompts[i];
        uint32_t hit_tokens = 0;
        if (prompt->token_count <= room) {
            /* A block's tokens are its id. Its place in the prompt is in the names before it. */
            for (uint32_t t = 0; t < prompt->token_count; t++)
                replay->tokens[t] = trace->ids[prompt->first_id + t / PREFIX_TRACE_BLOCK_TOKENS];
            hit_tokens = play(replay, prompt);
        } else {
            result->too_long++;
        }
        count_prompt(replay->config, prompt->token_count, hit_tokens, result);
    }
    result->evicted_blocks = prefix_cache_counters(replay->cache).evicted;
}

static enum status prepare(struct replay *replay)
{
    const struct prefix_replay_config *config = replay->config;
    TRY(kv_blocks_create(config->capacity_tokens / config->block_tokens, &replay->blocks));
    const struct prefix_cache_config cache = {
        .blocks = replay->blocks,
        .block_tokens = config->block_tokens,
        .policy = config->policy,
        .cost = {.even_blocks = (double)config->even_tokens / config->block_tokens},
        .event_capacity = 1};
    TRY(prefix_cache_create(&cache, &replay->cache));
    uint32_t longest = replay->trace->longest_tokens;
    replay->tokens = calloc(longest, sizeof *replay->tokens);
    replay->block_ids = calloc(longest / config->block_tokens + 1, sizeof *replay->block_ids);
    return replay->tokens && replay->block_ids ? STATUS_OK : STATUS_LIMIT;
}

enum status prefix_replay(const struct prefix_trace *trace,
                          const struct prefix_replay_config *config,
                          struct prefix_replay_result *result, struct error *err)
{
    struct replay replay = {
        .trace = trace, .config = config, .root = prefix_hash_root(0, 0, NULL, 0)};
    enum status status = prepare(&replay);
    if (status == STATUS_OK) {
        *result = (struct prefix_replay_result){0};
        play_all(&replay, result);
    } else {
        error_set(err, status, "out of memory for a cache of %u tokens", config->capacity_tokens);
    }
    prefix_cache_destroy(replay.cache);
    kv_blocks_destroy(replay.blocks);
    free(replay.tokens);
    free(replay.block_ids);
    return status;
}

enum status prefix_replay_unlimited(const struct prefix_trace *trace,
                                    const struct prefix_replay_config *config,
                                    struct prefix_replay_result *result, struct error *err)
{
    unsigned char *seen = calloc(PREFIX_TRACE_MAX_ID, 1);
    if (!seen)
        return error_set(err, STATUS_LIMIT, "out of memory for the ids that were seen");
    *result = (struct prefix_replay_result){0};
    for (uint32_t i = 0; i < trace->prompt_count; i++) {
        const struct prefix_trace_prompt *prompt = &trace->prompts[i];
        const uint32_t *ids = trace->ids + prompt->first_id;
        uint32_t known = 0, last_row = prompt->token_count - 1; /* it is always computed */
        while (known < prompt->id_count && seen[ids[known]])
            known++;
        for (uint32_t j = known; j < prompt->id_count; j++)
            seen[ids[j]] = 1;
        uint32_t tokens = known * PREFIX_TRACE_BLOCK_TOKENS;
        tokens = tokens < last_row ? tokens : last_row;
        count_prompt(config, prompt->token_count, tokens - tokens % config->block_tokens, result);
    }
    free(seen);
    return STATUS_OK;
}
