#include "common/cli/prefix_replay.h"

#include "common/base/assert.h"
#include "common/engine/sched/kv_blocks.h"
#include "common/engine/sched/prefix_cache.h"

#include <stdlib.h>

struct replay {
    const struct prefix_trace *trace;
    const struct prefix_replay_config *config;
    struct kv_blocks *blocks;
    struct prefix_cache *cache;
    struct prefix_hash root;
    uint32_t *tokens;    /* [longest_tokens] the prompt's */
    uint32_t *block_ids; /* [longest_tokens / block_tokens + 1] its blocks */
};

/* Rows [0, tokens): each costs 1 and, for attention, its position / even_tokens. */
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

/* The tokens of a block are its id: where in a prompt it stands is in the names of the blocks
 * before it. */
static void make_tokens(struct replay *replay, const struct prefix_trace_prompt *prompt)
{
    const uint32_t *ids = replay->trace->ids + prompt->first_id;
    for (uint32_t i = 0; i < prompt->token_count; i++)
        replay->tokens[i] = ids[i / PREFIX_TRACE_BLOCK_TOKENS];
}

/* Returns how many of its tokens were cached. The pool has enough blocks for it. */
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
    ASSERT(taken == STATUS_OK); /* nobody else holds anything, so all that is cached can go */
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
            make_tokens(replay, prompt);
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
        uint32_t known = 0, last_row = prompt->token_count - 1; /* somebody computes it */
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
