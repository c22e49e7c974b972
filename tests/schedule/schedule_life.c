/* One life: its events, step after step. */
#include "tests/schedule/schedule_sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct life *running; /* for an assertion of the code under test */

const char *life_invariant_name(enum life_invariant invariant)
{
    static const char *const names[] = {
        "all",     "blocks",   "content", "write",  "told",  "budget",  "time",
        "decodes", "oldest",   "victim",  "order",  "room",  "sibling", "turn",
        "share",   "deadline", "starve",  "flight", "token", "ends",    "assert"};
    return names[invariant];
}

const char *life_event_name(enum life_event event)
{
    static const char *const names[] = {
        "added",     "refused",    "reserved",   "overtaken",  "admitted", "swapped",
        "dropped",   "swapped in", "recomputed", "cancelled",  "failed",   "hit",
        "evicted",   "full batch", "promoted",   "bound",      "finished", "missed",
        "held back", "awaited",    "took turns", "fed",        "late",     "deferred",
        "drained",   "broke",      "drafted",    "drafted on", "accepted", "rejected"};
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

void life_trace(struct life *life, const char *format, ...)
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

uint32_t life_below(struct life *life, uint64_t bound)
{
    return (uint32_t)rng_below(&life->rng, bound);
}

bool life_chance(struct life *life, uint32_t one_in)
{
    return life_below(life, one_in) == 0;
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

/* --- a step of the engine --- */

static void count_moves(struct life *life, const struct step_plan *plan)
{
    struct scheduler_load load = scheduler_load(life->scheduler);
    for (uint32_t i = 0; i < life->before_count; i++) {
        const struct glimpse *glimpse = &life->before[i];
        if (glimpse->state == glimpse->sequence->state)
            continue;
        life_trace(life, "%llu.%u preempted: %s",
                   (unsigned long long)glimpse->sequence->key.request,
                   glimpse->sequence->key.attempt,
                   glimpse->sequence->state == SEQUENCE_SWAPPED ? "swapped out" : "dropped");
    }
    life->happened[DID_SWAP] += plan->swap_out_count;
    life->happened[DID_SWAP_IN] += plan->swap_in_count;
    life_trace(life, "step: %u parts, %u out, %u in; %u blocks free, %u wait", plan->part_count,
               plan->swap_out_count, plan->swap_in_count, load.blocks[KV_BLOCK_FREE], load.waiting);
}

static void fail(struct life *life, struct sequence *sequence)
{
    life->happened[DID_FAIL]++;
    flight_lost(life, sequence, false);
    scheduler_fail(life->scheduler, sequence);
}

void life_tell(struct life *life, const struct planned_rows *part, const uint32_t *drawn)
{
    struct sequence *sequence = part->sequence;
    if (part->samples && life_chance(life, 200)) {
        fail(life, sequence);
        return;
    }
    enum finish_reason finish = scheduler_rows_done(life->scheduler, part, drawn[0]);
    uint32_t taken = 1;
    for (; finish == FINISH_NONE && scheduler_draft_holds(part); taken++) {
        if (taken > part->draft_count)
            life_fail(life, HOLDS_TOKEN, "a token of a row that there isn't");
        life->happened[DID_ACCEPT]++;
        if (rng_at(life->seed, 13, life->now_us + sequence->key.request) % 100 == 0) {
            fail(life, sequence);
            return;
        }
        finish = scheduler_draft_done(life->scheduler, part, drawn[taken]);
    }
    life->happened[DID_REJECT] += finish == FINISH_NONE && taken <= part->draft_count;
    life->happened[DID_RECOMPUTE] +=
        !part->decodes && part->samples &&
        sequence->emitted_count > life_shadow(life, sequence->key)->token_count;
    if (finish != FINISH_NONE)
        requests_finished(life, sequence);
}

static void run_plan(struct life *life, const struct step_plan *plan)
{
    uint32_t drawn[LIFE_SEQUENCES][1 + LIFE_DRAFTS];
    played_moves(life, plan);
    for (uint32_t i = 0; i < plan->part_count; i++)
        played_rows(life, &plan->parts[i], drawn[i]);
    uint64_t took_us = 1 + life_below(life, 30000);
    life->now_us += took_us;
    check_learns(life, plan, took_us);
    scheduler_step_done(life->scheduler, plan, took_us, 100);
    for (uint32_t i = 0; i < plan->part_count; i++)
        life_tell(life, &plan->parts[i], drawn[i]);
}

static void reserve(struct life *life)
{
    check_before(life);
    for (struct sequence *sequence;
         (sequence = scheduler_reserve(life->scheduler, life->now_us));) {
        life->happened[DID_RESERVE]++;
        life_trace(life, "%llu has %u blocks", (unsigned long long)sequence->key.request,
                   sequence->block_count);
        check_reserved(life, sequence);
        struct shadow *shadow = life_shadow(life, sequence->key);
        shadow->told_count = sequence->block_count;
        memcpy(shadow->told, sequence->blocks, sequence->block_count * sizeof *shadow->told);
    }
    check_waiting(life);
}

static bool is_idle(const struct step_plan *plan)
{
    return !plan->part_count && !plan->swap_out_count && !plan->swap_in_count && !plan->freed &&
           !plan->drain;
}

/* Ends those that miss their deadlines, as the step loop does. */
static void end_missed(struct life *life)
{
    for (struct sequence *sequence;
         (sequence = scheduler_next_missed(life->scheduler, life->now_us));) {
        life->happened[DID_MISS]++;
        if (sequence->deadline_us == UINT64_MAX)
            life_fail(life, HOLDS_DEADLINE, "one without a deadline misses it");
        if (sequence->pending && life_needs_no_row(life, sequence))
            life_fail(life, HOLDS_DEADLINE, "%llu is ended, and its last token is in flight",
                      (unsigned long long)sequence->key.request);
        life_trace(life, "%llu.%u misses its deadline", (unsigned long long)sequence->key.request,
                   sequence->key.attempt);
        if (life_waits(sequence) || life_chance(life, 2))
            requests_remove(life, sequence);
        else {
            flight_lost(life, sequence, false);
            scheduler_fail(life->scheduler, sequence);
        }
    }
}

static void step(struct life *life)
{
    requests_happen(life);
    end_missed(life);
    reserve(life);
    requests_land(life);
    check_before(life);
    const struct step_plan *plan = scheduler_plan(life->scheduler, life->now_us);
    count_moves(life, plan);
    check_plan(life, plan);
    bool idle = is_idle(plan) && !life->flights[0].plan;
    uint64_t planned_us = life->now_us;
    if (life->config.runs_ahead)
        flight_step(life, plan);
    else
        run_plan(life, plan);
    check_blocks(life);
    if (!idle)
        return;
    /* A thread that sleeps now must not miss anything. */
    if (scheduler_reserve(life->scheduler, planned_us))
        life_fail(life, HOLDS_ENDS, "blocks were free while the worker slept");
    if (!is_idle(scheduler_plan(life->scheduler, planned_us)))
        life_fail(life, HOLDS_ENDS, "there was a step to do while the worker slept");
}

/* --- a life --- */

static void begin(struct life *life, bool runs_ahead)
{
    static const uint32_t end_ids[] = {LIFE_END_ID};
    struct cost_model cost = cost_model_default();
    cost.swap_bytes_per_us = life_chance(life, 2) ? 10 : 1000; /* recompute or swap, mostly */
    cost.prefill_row_us = 10 + life_below(life, 5000);
    uint32_t sequences = 2 + life_below(life, LIFE_SEQUENCES - 1);
    uint32_t places = 1 + life_below(life, sequences);
    uint32_t chunk = 1 + life_below(life, life_chance(life, 3) ? 48 : 16);
    uint64_t seed = rng_next(&life->rng);
    life->config = (struct scheduler_config){
        .block_tokens = 2u << life_below(life, 3),
        .block_count = 6 + life_below(life, LIFE_BLOCKS - 5),
        .max_sequences = sequences,
        .chunk_tokens = chunk,
        .chunk_us = life_chance(life, 3) ? 0 : 1 + life_below(life, 60000),
        .context = 8 + life_below(life, LIFE_CONTEXT - 7),
        .end_ids = end_ids,
        .end_id_count = 1,
        .max_batch_sequences = life_chance(life, 2) ? sequences : places,
        .policy = (enum policy_kind)life_below(life, POLICIES),
        .starve_us = 1 + life_below(life, 400000),
        .overtake_us = life_chance(life, 3) ? 0 : life_below(life, 500000),
        .grow = !life_chance(life, 5),
        .host_slots = life_chance(life, 3) ? 0 : life_below(life, LIFE_SLOTS + 1),
        .cost = cost,
        .prefix_cache = life_chance(life, 2),
        .eviction = (enum eviction_policy)life_below(life, EVICTION_POLICIES),
        .turn_tokens = 1 + (uint32_t)(rng_at(life->seed, 4, 0) % 64),
        .table_seed = seed,
        .draft_tokens = (uint32_t)(rng_at(life->seed, 10, 0) % (2 * LIFE_DRAFTS)),
        .drafter = played_drafts,
        .drafter_context = life,
        .runs_ahead = runs_ahead};
    if (life->config.draft_tokens > LIFE_DRAFTS) /* in almost half of the lives there are none */
        life->config.draft_tokens = 0;
    life->config.max_batch_tokens =
        life->config.max_batch_sequences + (life_chance(life, 2) ? chunk : life_below(life, 4));
    life->config.prompts_first = rng_at(life->seed, 9, 0) % 6 == 0;
    life->cost = cost;
    /* Not from life->rng: a life without them goes on as it did before there were any. */
    uint64_t kind = rng_at(life->seed, 7, 0);
    life->tenants = kind % 2 ? 1 : 2 + (uint32_t)(kind / 2 % 4);
    life->deadlines = kind % 2 == 0 && kind / 8 % 2;
    if (scheduler_create(&life->config, &life->scheduler) != STATUS_OK)
        abort();
}

static void live(struct life *life, uint32_t steps)
{
    uint32_t drain = 0;
    for (size_t cursor = 0;
         steps || life->flights[0].plan || scheduler_next(life->scheduler, &cursor); cursor = 0) {
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

void life_run(struct life *life, uint64_t seed, bool runs_ahead, uint32_t steps, bool trace_it)
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
    life->now_us = 1000000;
    running = life;
    sigaction(SIGABRT, &ours, &old);
    if (!sigsetjmp(life->bail, 1)) {
        begin(life, runs_ahead);
        live(life, steps);
    }
    sigaction(SIGABRT, &old, NULL);
    scheduler_destroy(life->scheduler);
    life->scheduler = NULL;
}
