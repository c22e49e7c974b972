#include "common/worker/step_load.h"

static void publish_cache(struct step_load *load, const struct engine *engine,
                          const struct prefix_cache *cache)
{
    struct prefix_cache_counters counts = prefix_cache_counters(cache);
    uint64_t block_tokens = engine_layout(engine)->block_tokens;
    atomic_store(&load->prefix_asked_tokens, counts.asked * block_tokens);
    atomic_store(&load->prefix_hit_tokens, counts.hits * block_tokens);
    atomic_store(&load->prefix_evicted_blocks, counts.evicted);
    atomic_store(&load->prefix_changes, counts.changes);
}

void step_load_publish(struct step_load *load, const struct engine *engine,
                       struct scheduler *scheduler)
{
    struct engine_counters counters = engine_counters(engine);
    atomic_store(&load->prompt_rows, counters.prompt_rows);
    atomic_store(&load->decode_rows, counters.decode_rows);
    atomic_store(&load->steps, counters.steps);
    struct scheduler_load now = scheduler_load(scheduler);
    atomic_store(&load->waiting, now.waiting);
    atomic_store(&load->running, now.running);
    atomic_store(&load->queued_tokens, now.queued_tokens);
    for (int i = 0; i < KV_BLOCK_STATES; i++)
        atomic_store(&load->blocks[i], now.blocks[i]);
    atomic_store(&load->preempted, now.preempted);
    atomic_store(&load->swapped_blocks, now.host_slots);
    atomic_store(&load->preemptions[STEP_SWAPPED], now.swapped_out);
    atomic_store(&load->preemptions[STEP_DROPPED], now.dropped);
    atomic_store(&load->dropped_rows, now.dropped_rows);
    struct prefix_cache *cache = scheduler_prefix_cache(scheduler);
    if (cache)
        publish_cache(load, engine, cache);
}
