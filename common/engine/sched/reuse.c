#include "common/engine/sched/reuse.h"

uint32_t reuse_available(const struct scheduler *s)
{
    uint32_t stuck = s->cache ? prefix_cache_stuck(s->cache) : 0;
    return kv_blocks_count(s->blocks, KV_BLOCK_FREE) + kv_blocks_count(s->blocks, KV_BLOCK_CACHED) -
           stuck;
}

bool reuse_make_free(struct scheduler *s, uint32_t count)
{
    uint32_t free_count = kv_blocks_count(s->blocks, KV_BLOCK_FREE);
    if (free_count < count && s->cache)
        free_count += prefix_cache_evict(s->cache, count - free_count);
    return free_count >= count;
}

/* Tokens whose rows may come from the cache, all but the last: where logprobs of a prompt are asked
 * for, those before the rows that tell them. */
static uint32_t reusable_tokens(const struct sequence *sequence)
{
    return sequence_scores(sequence) ? sequence->score_next : sequence->token_count;
}

struct prefix_match reuse_match(const struct scheduler *s, const struct sequence *sequence)
{
    if (!s->cache || sequence->state == SEQUENCE_SWAPPED)
        return (struct prefix_match){0};
    return prefix_cache_match(s->cache, sequence->root, sequence->tokens,
                              reusable_tokens(sequence));
}

void reuse_take(struct scheduler *s, struct sequence *sequence)
{
    sequence->chain = prefix_chain_start(sequence->root);
    sequence->remembers = s->cache != NULL;
    if (!s->cache)
        return;
    sequence->block_count =
        prefix_cache_lookup(s->cache, &sequence->chain, sequence->tokens, reusable_tokens(sequence),
                            sequence->hold, sequence->blocks);
    sequence->computed = sequence->block_count * s->config.block_tokens;
}

void reuse_remember(struct scheduler *s, struct sequence *sequence)
{
    uint32_t per = s->config.block_tokens;
    while (sequence->remembers && (sequence->chain.length + 1) * per <= sequence->computed) {
        uint32_t index = sequence->chain.length, known;
        uint32_t *block = &sequence->blocks[index];
        if (prefix_cache_insert(s->cache, &sequence->chain, sequence->tokens + (size_t)index * per,
                                *block, &known) != PREFIX_KNOWN)
            continue;
        if (known == *block || sequence->plan == PLAN_HAND_OFF)
            continue;
        kv_blocks_share(s->blocks, &known, 1, sequence->hold);
        kv_blocks_give(s->blocks, block, 1, sequence->hold);
        *block = known;
    }
}

void reuse_stop(struct sequence *sequence)
{
    sequence->remembers = false;
}
