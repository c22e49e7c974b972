/* One life: what happens, and the played engine. */
#include "tests/schedule/schedule_sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct life *running; /* for an assertion of the code under test */

const char *life_invariant_name(enum life_invariant invariant)
{
    static const char *const names[] = {"all",    "blocks", "content", "write", "budget", "decodes",
                                        "oldest", "order",  "starve",  "ends",  "assert"};
    return names[invariant];
}

const char *life_event_name(enum life_event event)
{
    static const char *const names[] = {
        "added",   "refused",    "reserved",   "overtaken",  "admitted", "swapped",
        "dropped", "swapped in", "recomputed", "forked",     "copied",   "cancelled",
        "failed",  "hit",        "evicted",    "full batch", "promoted", "finished"};
    return names[event];
}

void life_fail(struct life *life, enum life_invariant invariant, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(life->failure, sizeof life->failure, format, args);
    va_end(args);
    life->broken = invariant;
    siglongjmp(life->bail, 1);
}

static void on_abort(int signal_number)
{
    (void)signal_number;
    life_fail(running, HOLDS_ASSERT, "an assertion failed: see above");
}

static void __attribute__((format(printf, 2, 3))) trace(struct life *life, const char *format, ...)
{
    if (!life->trace)
        return;
    va_list args;
    va_start(args, format);
    printf("%6llu %9llu us  ", (unsigned long long)life->step_count,
           (unsigned long long)life->now_us);
    vprintf(format, args);
    putchar('\n');
    va_end(args);
}

static uint32_t below(struct life *life, uint64_t bound)
{
    return (uint32_t)rng_below(&life->rng, bound);
}

static bool chance(struct life *life, uint32_t one_in)
{
    return below(life, one_in) == 0;
}

uint64_t life_content(uint64_t before, uint32_t token)
{
    return rng_at(before, 1, token);
}

uint32_t life_draw(uint64_t content, uint64_t seed)
{
    return (uint32_t)(rng_at(content, 2, seed) % 24);
}

struct shadow *life_shadow(struct life *life, struct sequence_key key)
{
    for (uint32_t i = 0; i < LIFE_SEQUENCES; i++) {
        struct shadow *shadow = &life->shadows[i];
        if (shadow->live && shadow->key.request == key.request &&
            shadow->key.attempt == key.attempt)
            return shadow;
    }
    abort();
}

static void remember(struct life *life, const struct sequence *sequence)
{
    struct shadow *shadow = life->shadows;
    while (shadow->live)
        shadow++;
    *shadow =
        (struct shadow){.live = true, .key = sequence->key, .token_count = sequence->token_count};
    memcpy(shadow->tokens, sequence->tokens, sequence->token_count * sizeof *shadow->tokens);
}

static void life_remove(struct life *life, struct sequence *sequence)
{
    life_shadow(life, sequence->key)->live = false;
    scheduler_remove(life->scheduler, sequence);
}

static struct sequence *any(struct life *life)
{
    size_t cursor = 0;
    uint32_t count = 0;
    while (scheduler_next(life->scheduler, &cursor))
        count++;
    if (count == 0)
        return NULL;
    cursor = below(life, count);
    return scheduler_next(life->scheduler, &cursor);
}

/* ------------------------------------------------------------------------- what happens */

static void arrive(struct life *life)
{
    static const enum priority priorities[] = {PRIORITY_NORMAL, PRIORITY_NORMAL, PRIORITY_HIGH,
                                               PRIORITY_OFFLINE};
    struct sequence_spec spec = {.key = {life->next_request, 1},
                                 .plan = (enum sequence_plan)below(life, 3),
                                 .priority = priorities[below(life, 4)],
                                 .arrived_us = life->now_us,
                                 .token_count = 1 + below(life, chance(life, 3) ? 50 : 12),
                                 .sampling = sampling_default()};
    spec.emitted_count = chance(life, 4) ? below(life, spec.token_count) : 0;
    spec.sampling.max_tokens = spec.emitted_count + 1 + below(life, 30);
    spec.sampling.seed = below(life, 1000);
    spec.tokens = calloc(spec.token_count, sizeof *spec.tokens);
    uint32_t family = below(life, 3), common = below(life, spec.token_count + 1);
    for (uint32_t i = 0; i < spec.token_count; i++)
        spec.tokens[i] = 3 + (i < common ? i * family % 5 : below(life, 5));
    spec.root.low = chance(life, 8);
    struct error err;
    if (scheduler_add(life->scheduler, &spec, &err) != STATUS_OK) {
        free(spec.tokens);
        life->happened[DID_REFUSE]++;
        return;
    }
    life->next_request++;
    life->happened[DID_ADD]++;
    remember(life, scheduler_find(life->scheduler, spec.key));
    trace(life, "%llu comes: plan %d class %u, %u tokens, max %u",
          (unsigned long long)spec.key.request, spec.plan, priority_class(spec.priority),
          spec.token_count, spec.sampling.max_tokens);
}

static void write_row(struct life *life, const struct sequence *sequence, uint32_t position,
                      uint64_t content)
{
    uint32_t per = life->config.block_tokens;
    check_write(life, sequence, position);
    life->blocks[sequence->blocks[position / per]][position % per] = content;
}

/* A sender writes a prompt into landing blocks as far as `rows`, each row once. */
static void land(struct life *life, const struct sequence *sequence, uint32_t rows)
{
    uint32_t *landed = &life_shadow(life, sequence->key)->landed;
    uint64_t content = 0;
    for (uint32_t i = 0; i < rows; i++) {
        content = life_content(content, sequence->tokens[i]);
        if (i >= sequence->computed && i >= *landed) /* what is before is cached here, or came */
            write_row(life, sequence, i, content);
    }
    if (rows > *landed)
        *landed = rows;
}

static void land_some(struct life *life)
{
    size_t cursor = 0;
    for (struct sequence *sequence; (sequence = scheduler_next(life->scheduler, &cursor));)
        if (sequence->state == SEQUENCE_RESERVED && chance(life, 2))
            land(life, sequence, below(life, sequence->prompt_count + 1));
}

static void finished(struct life *life, struct sequence *sequence)
{
    check_answer(life, sequence);
    life->happened[DID_FINISH]++;
    trace(life, "%llu.%u ends", (unsigned long long)sequence->key.request, sequence->key.attempt);
    if (sequence->plan != PLAN_HAND_OFF)
        life_remove(life, sequence);
}

static void admit(struct life *life, struct sequence *sequence)
{
    land(life, sequence, sequence->prompt_count);
    uint64_t content = 0;
    for (uint32_t i = 0; i < sequence->prompt_count; i++)
        content = life_content(content, sequence->tokens[i]);
    life->happened[DID_ADMIT]++;
    trace(life, "%llu is admitted", (unsigned long long)sequence->key.request);
    uint32_t first = life_draw(content, sequence->sampling.seed);
    if (scheduler_admit(life->scheduler, sequence, first) != FINISH_NONE)
        finished(life, sequence);
}

static void fork_one(struct life *life, struct sequence *parent)
{
    bool can = (parent->state == SEQUENCE_DECODE || parent->state == SEQUENCE_SWAPPED) &&
               parent->plan != PLAN_HAND_OFF;
    if (!can)
        return;
    struct sampling sampling = sampling_default();
    sampling.max_tokens = 1 + below(life, 20);
    sampling.seed = below(life, 1000);
    struct sequence *child;
    struct sequence_key key = {parent->key.request, ++life->next_attempt};
    if (scheduler_fork(life->scheduler, parent, key, &sampling, &child, NULL) != STATUS_OK)
        return;
    life->happened[DID_FORK]++;
    remember(life, child);
    trace(life, "%llu.%u is forked: .%u", (unsigned long long)key.request, parent->key.attempt,
          key.attempt);
    if (chance(life, 8))
        life_remove(life, child);
}

static void happen_to(struct life *life, struct sequence *sequence)
{
    if (sequence->state == SEQUENCE_RESERVED && chance(life, 2)) {
        admit(life, sequence);
    } else if (sequence->state == SEQUENCE_HELD && chance(life, 2)) {
        check_reads(life, sequence, sequence->computed); /* a reader's last look */
        life_remove(life, sequence);
    } else if (!life->draining && chance(life, 20)) {
        life->happened[DID_CANCEL]++;
        trace(life, "%llu.%u is cancelled", (unsigned long long)sequence->key.request,
              sequence->key.attempt);
        life_remove(life, sequence);
    } else if (!life->draining && chance(life, 4)) {
        fork_one(life, sequence);
    }
}

static void happen(struct life *life)
{
    life->now_us += below(life, 2) ? below(life, 3000) : below(life, 60000);
    for (uint32_t i = below(life, 3); i > 0 && !life->draining; i--)
        arrive(life);
    uint32_t tries = life->draining ? LIFE_SEQUENCES : 4;
    for (uint32_t i = 0; i < tries; i++) {
        struct sequence *sequence = any(life);
        if (sequence)
            happen_to(life, sequence);
    }
    land_some(life);
}

/* -------------------------------------------------------------------- a step of the engine */

static void count_moves(struct life *life, const struct step_plan *plan)
{
    struct scheduler_load load = scheduler_load(life->scheduler);
    for (uint32_t i = 0; i < life->before_count; i++) {
        const struct glimpse *glimpse = &life->before[i];
        if (glimpse->state == glimpse->sequence->state)
            continue;
        trace(life, "%llu.%u preempted: %s", (unsigned long long)glimpse->sequence->key.request,
              glimpse->sequence->key.attempt,
              glimpse->sequence->state == SEQUENCE_SWAPPED ? "swapped out" : "dropped");
    }
    life->happened[DID_SWAP] += plan->swap_out_count;
    life->happened[DID_SWAP_IN] += plan->swap_in_count;
    life->happened[DID_COPY] += plan->copy_count;
    trace(life, "step: %u parts, %u copies, %u out, %u in; %u blocks free, %u wait",
          plan->part_count, plan->copy_count, plan->swap_out_count, plan->swap_in_count,
          load.blocks[KV_BLOCK_FREE], load.waiting);
}

static void carry_out_moves(struct life *life, const struct step_plan *plan)
{
    size_t bytes = sizeof life->blocks[0];
    for (uint32_t i = 0; i < plan->copy_count; i++)
        memcpy(life->blocks[plan->copies[i].to], life->blocks[plan->copies[i].from], bytes);
    for (uint32_t i = 0; i < plan->swap_out_count; i++)
        memcpy(life->slots[plan->swap_outs[i].to], life->blocks[plan->swap_outs[i].from], bytes);
    for (uint32_t i = 0; i < plan->swap_in_count; i++)
        memcpy(life->blocks[plan->swap_ins[i].to], life->slots[plan->swap_ins[i].from], bytes);
}

static uint32_t compute(struct life *life, const struct planned_rows *part)
{
    const struct sequence *sequence = part->sequence;
    check_reads(life, sequence, sequence->computed);
    uint64_t content = 0;
    for (uint32_t i = 0; i < sequence->computed + part->row_count; i++) {
        content = life_content(content, sequence->tokens[i]);
        if (i >= sequence->computed)
            write_row(life, sequence, i, content);
    }
    return life_draw(content, sequence->sampling.seed);
}

static void tell(struct life *life, const struct planned_rows *part, uint32_t token)
{
    struct sequence *sequence = part->sequence;
    if (part->samples && chance(life, 200)) {
        life->happened[DID_FAIL]++;
        sequence->state = SEQUENCE_HELD; /* as the step loop does */
        return;
    }
    bool prefill = sequence->state == SEQUENCE_PREFILL;
    enum finish_reason finish = scheduler_rows_done(life->scheduler, part, token);
    life->happened[DID_RECOMPUTE] +=
        prefill && part->samples &&
        sequence->emitted_count > life_shadow(life, sequence->key)->token_count;
    if (finish != FINISH_NONE)
        finished(life, sequence);
}

static void run_plan(struct life *life, const struct step_plan *plan)
{
    uint32_t drawn[LIFE_SEQUENCES];
    carry_out_moves(life, plan);
    for (uint32_t i = 0; i < plan->part_count; i++)
        drawn[i] = compute(life, &plan->parts[i]);
    uint64_t took_us = 1 + below(life, 30000);
    life->now_us += took_us;
    scheduler_step_done(life->scheduler, took_us, 100);
    for (uint32_t i = 0; i < plan->part_count; i++)
        tell(life, &plan->parts[i], drawn[i]);
}

static void reserve(struct life *life)
{
    for (struct sequence *sequence;
         (sequence = scheduler_reserve(life->scheduler, life->now_us));) {
        life->happened[DID_RESERVE]++;
        trace(life, "%llu has %u blocks", (unsigned long long)sequence->key.request,
              sequence->block_count);
        check_reserved(life, sequence);
    }
}

static bool is_idle(const struct step_plan *plan)
{
    return !plan->part_count && !plan->copy_count && !plan->swap_out_count &&
           !plan->swap_in_count && !plan->freed;
}

static void step(struct life *life)
{
    happen(life);
    reserve(life);
    land_some(life);
    check_before_plan(life);
    const struct step_plan *plan = scheduler_plan(life->scheduler, life->now_us);
    count_moves(life, plan);
    check_plan(life, plan);
    bool idle = is_idle(plan);
    uint64_t planned_us = life->now_us;
    run_plan(life, plan);
    check_blocks(life);
    if (!idle)
        return;
    /* Who sleeps now must not miss anything. */
    if (scheduler_reserve(life->scheduler, planned_us))
        life_fail(life, HOLDS_ENDS, "blocks were free while the worker slept");
    if (!is_idle(scheduler_plan(life->scheduler, planned_us)))
        life_fail(life, HOLDS_ENDS, "there was a step to do while the worker slept");
}

/* -------------------------------------------------------------------------------- a life */

static void begin(struct life *life)
{
    static const uint32_t end_ids[] = {LIFE_END_ID};
    struct cost_model cost = cost_model_default();
    cost.swap_bytes_per_us = chance(life, 2) ? 10 : 1000; /* recompute or swap, mostly */
    cost.prefill_row_us = 10 + below(life, 5000);
    uint32_t sequences = 2 + below(life, LIFE_SEQUENCES - 1);
    uint32_t places = 1 + below(life, sequences);
    uint32_t chunk = 1 + below(life, 16);
    uint64_t seed = rng_next(&life->rng);
    life->config =
        (struct scheduler_config){.block_tokens = 2u << below(life, 3),
                                  .block_count = 6 + below(life, LIFE_BLOCKS - 5),
                                  .max_sequences = sequences,
                                  .chunk_tokens = chunk,
                                  .context = 8 + below(life, LIFE_CONTEXT - 7),
                                  .end_ids = end_ids,
                                  .end_id_count = 1,
                                  .max_batch_sequences = chance(life, 2) ? sequences : places,
                                  .policy = (enum policy_kind)below(life, POLICIES),
                                  .starve_us = 1 + below(life, 400000),
                                  .overtake_us = chance(life, 3) ? 0 : below(life, 500000),
                                  .grow = !chance(life, 5),
                                  .host_slots = chance(life, 3) ? 0 : below(life, LIFE_SLOTS + 1),
                                  .cost = cost,
                                  .prefix_cache = chance(life, 2),
                                  .eviction = (enum eviction_policy)below(life, EVICTION_POLICIES),
                                  .table_seed = seed};
    life->config.max_batch_tokens =
        life->config.max_batch_sequences + (chance(life, 2) ? chunk : below(life, 4));
    if (scheduler_create(&life->config, &life->scheduler) != STATUS_OK)
        abort();
}

static void live(struct life *life, uint32_t steps)
{
    uint32_t drain = 0;
    for (size_t cursor = 0; steps || scheduler_next(life->scheduler, &cursor); cursor = 0) {
        life->draining = steps == 0;
        if (life->draining && ++drain > LIFE_DRAIN_STEPS)
            life_fail(life, HOLDS_ENDS, "some never end");
        step(life);
        life->step_count++;
        steps -= steps > 0;
    }
    scheduler_plan(life->scheduler, life->now_us); /* frees the slots of the last swaps */
    struct scheduler_load load = scheduler_load(life->scheduler);
    life->happened[DID_DROP] += load.dropped;
    uint32_t not_held = load.blocks[KV_BLOCK_FREE] + load.blocks[KV_BLOCK_CACHED];
    if (not_held != life->config.block_count || load.host_slots)
        life_fail(life, HOLDS_BLOCKS, "at the end %u of %u blocks are free, %u host slots in use",
                  not_held, life->config.block_count, load.host_slots);
    if (!life->config.prefix_cache)
        return;
    struct prefix_cache *cache = scheduler_prefix_cache(life->scheduler);
    struct prefix_cache_counters counters = prefix_cache_counters(cache);
    life->happened[DID_HIT] += counters.hits;
    life->happened[DID_EVICT] += counters.evicted;
    if (prefix_cache_evict(cache, not_held) != load.blocks[KV_BLOCK_CACHED])
        life_fail(life, HOLDS_BLOCKS, "cached blocks that nobody holds can't be evicted");
}

void life_run(struct life *life, uint64_t seed, uint32_t steps, bool trace_it)
{
    struct sigaction ours = {.sa_handler = on_abort, .sa_flags = SA_NODEFER}, old;
    uint64_t happened[DID_COUNT], done = life->step_count;
    memcpy(happened, life->happened, sizeof happened);
    memset(life, 0, sizeof *life);
    memcpy(life->happened, happened, sizeof happened);
    life->step_count = done;
    life->seed = seed;
    life->trace = trace_it;
    life->rng = rng_seeded(seed);
    life->next_request = 1;
    life->next_attempt = 1;
    life->now_us = 1000000;
    running = life;
    sigaction(SIGABRT, &ours, &old);
    if (!sigsetjmp(life->bail, 1)) {
        begin(life);
        live(life, steps);
    }
    sigaction(SIGABRT, &old, NULL);
    scheduler_destroy(life->scheduler);
    life->scheduler = NULL;
}
