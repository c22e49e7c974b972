#include "common/worker/step_loop.h"

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/failpoint.h"
#include "common/base/log.h"
#include "common/base/rng.h"
#include "common/worker/step_moves.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#define MODULE       "step_loop"
#define JOB_CAPACITY 8192
#define JOB_ADD_LIMIT                                                                              \
    1024 /* above, nothing new is taken: room is left for what belongs to sequences that exist */
#define EVENT_POOL 256

enum job_kind { JOB_ADD, JOB_ADMIT, JOB_REMOVE, JOB_STOP };

struct job {
    enum job_kind kind;
    struct sequence_key key;
    struct sequence_spec spec;
    uint32_t first_token;
    uint64_t logits_hash;
};

struct step_loop {
    struct step_loop_config config;
    struct scheduler *scheduler;
    struct ring *jobs, *events, *spare_events;
    struct engine_sequence *inputs; /* [max_sequences] */
    pthread_t thread;
    bool stopping; /* step thread's own */
    /* Transfer thread's own: what was refused last. Its removal must cost no place, or refusals could fill the ring. */
    struct sequence_key refused;
    bool has_refused;
    struct step_load load;
};

/* ---------------------------------------------------------------- events, on the step thread */

static struct step_event *event_take(struct step_loop *loop, enum step_event_kind kind,
                                     struct sequence_key key)
{
    struct step_event *event =
        ring_wait(loop->spare_events, UINT64_MAX); /* the receiver is behind: wait for it */
    *event = (struct step_event){.kind = kind, .key = key};
    return event;
}

static void event_post(struct step_loop *loop, struct step_event *event)
{
    enum status status = ring_push(loop->events, event);
    ASSERT(status == STATUS_OK); /* the ring holds the whole pool */
}

static void event_post_simple(struct step_loop *loop, enum step_event_kind kind,
                              struct sequence_key key)
{
    event_post(loop, event_take(loop, kind, key));
}

static void event_post_error(struct step_loop *loop, enum step_event_kind kind,
                             struct sequence_key key, enum status status, const struct error *err)
{
    struct step_event *event = event_take(loop, kind, key);
    event->status = status;
    event->err = *err;
    event_post(loop, event);
}

static struct step_token *event_add_token(struct step_event *event, const struct sequence *sequence)
{
    struct step_token *token = &event->tokens[event->token_count++];
    *token = (struct step_token){.key = sequence->key,
                                 .index = sequence_answer_count(sequence),
                                 .token = sequence->tokens[sequence->token_count - 1],
                                 .hand_off = sequence->plan == PLAN_HAND_OFF};
    return token;
}

/* Before tokens leave: who has the last one of an answer finds its blocks free and its rows counted. */
static void publish_load(struct step_loop *loop)
{
    struct engine_counters counters = engine_counters(loop->config.engine);
    atomic_store(&loop->load.prompt_rows, counters.prompt_rows);
    atomic_store(&loop->load.decode_rows, counters.decode_rows);
    atomic_store(&loop->load.steps, counters.steps);
    struct scheduler_load now = scheduler_load(loop->scheduler);
    atomic_store(&loop->load.waiting, now.waiting);
    atomic_store(&loop->load.running, now.running);
    atomic_store(&loop->load.queued_tokens, now.queued_tokens);
    for (int i = 0; i < KV_BLOCK_STATES; i++)
        atomic_store(&loop->load.blocks[i], now.blocks[i]);
    atomic_store(&loop->load.preempted, now.preempted);
    atomic_store(&loop->load.swapped_blocks, now.host_slots);
    atomic_store(&loop->load.preemptions[STEP_SWAPPED], now.swapped_out);
    atomic_store(&loop->load.preemptions[STEP_DROPPED], now.dropped);
    atomic_store(&loop->load.dropped_rows, now.dropped_rows);
    struct prefix_cache *cache = scheduler_prefix_cache(loop->scheduler);
    if (!cache)
        return;
    struct prefix_cache_counters counts = prefix_cache_counters(cache);
    uint64_t block_tokens = engine_layout(loop->config.engine)->block_tokens;
    atomic_store(&loop->load.prefix_asked_tokens, counts.asked * block_tokens);
    atomic_store(&loop->load.prefix_hit_tokens, counts.hits * block_tokens);
    atomic_store(&loop->load.prefix_evicted_blocks, counts.evicted);
}

/* ---------------------------------------------------------------- jobs, on the step thread */

static void job_add(struct step_loop *loop, struct job *job)
{
    struct error err;
    enum status status = scheduler_add(loop->scheduler, &job->spec, &err);
    if (status == STATUS_OK)
        return;
    free(job->spec.tokens);
    event_post_error(loop, STEP_REFUSED, job->spec.key, status, &err);
}

static void job_admit(struct step_loop *loop, const struct job *job)
{
    struct sequence *sequence = scheduler_find(loop->scheduler, job->key);
    ASSERT(sequence); /* only its owner removes it, and its owner admits it */
    struct step_event *event = event_take(loop, STEP_TOKENS, (struct sequence_key){0});
    enum finish_reason finish = scheduler_admit(loop->scheduler, sequence, job->first_token);
    struct step_token *token = event_add_token(event, sequence);
    token->logits_hash = job->logits_hash;
    token->finish = finish;
    if (finish != FINISH_NONE)
        scheduler_remove(loop->scheduler, sequence);
    publish_load(loop);
    event_post(loop, event);
}

static void job_run(struct step_loop *loop, struct job *job)
{
    struct sequence *sequence;
    switch (job->kind) {
    case JOB_ADD: job_add(loop, job); break;
    case JOB_ADMIT: job_admit(loop, job); break;
    case JOB_REMOVE:
        sequence = scheduler_find(loop->scheduler, job->key);
        if (sequence)
            scheduler_remove(loop->scheduler, sequence);
        event_post_simple(loop, STEP_REMOVED, job->key);
        break;
    case JOB_STOP: loop->stopping = true; break;
    }
    free(job);
}

/* ---------------------------------------------------------------- one step */

static struct engine_sequence engine_input(const struct planned_rows *part)
{
    const struct sequence *sequence = part->sequence;
    uint32_t answer = sequence_answer_count(sequence);
    uint32_t prompt_left = sequence->computed < sequence->prompt_count
                               ? sequence->prompt_count - sequence->computed
                               : 0;
    return (struct engine_sequence){
        .tokens = sequence->tokens + sequence->computed,
        .token_count = part->row_count,
        .position = sequence->computed,
        .blocks = sequence->blocks,
        .block_count = sequence->block_count,
        .prompt_rows = prompt_left < part->row_count ? prompt_left : part->row_count,
        .sample = part->samples,
        .sampling = &sequence->sampling,
        .index = answer,
        .ban_end = answer < sequence->sampling.min_tokens,
    };
}

/* The sequence can't go on: it is held until whoever added it removes it. */
static void sequence_failed(struct step_loop *loop, struct sequence *sequence, enum status status,
                            const struct error *err)
{
    sequence->state = SEQUENCE_HELD;
    event_post_error(loop, STEP_FAILED, sequence->key, status, err);
}

/* No token was drawn for this one alone; the others of the step have theirs. */
static void draw_failed(struct step_loop *loop, struct sequence *sequence, enum status status)
{
    struct error err;
    error_set(&err, status,
              status == STATUS_INVALID
                  ? "every token is banned at position %u"
                  : "the model gave a logit that is not a number at position %u",
              sequence->computed);
    sequence_failed(loop, sequence, status, &err);
}

static void step_results(struct step_loop *loop, const struct step_plan *plan)
{
    struct step_event *drawn = NULL;
    for (uint32_t i = 0; i < plan->part_count; i++) {
        const struct planned_rows *part = &plan->parts[i];
        struct sequence *sequence = part->sequence;
        bool prefill = sequence->state == SEQUENCE_PREFILL;
        if (part->samples && loop->inputs[i].status != STATUS_OK) {
            draw_failed(loop, sequence, loop->inputs[i].status);
            continue;
        }
        enum finish_reason finish =
            scheduler_rows_done(loop->scheduler, part, loop->inputs[i].token);
        if (prefill && sequence->plan == PLAN_HAND_OFF) {
            struct step_event *ready = event_take(loop, STEP_READY, sequence->key);
            ready->ready_tokens = sequence->computed;
            event_post(loop, ready);
        }
        if (!part->samples)
            continue;
        if (!drawn)
            drawn = event_take(loop, STEP_TOKENS, (struct sequence_key){0});
        struct step_token *token = event_add_token(drawn, sequence);
        token->logits_hash = loop->inputs[i].logits_hash;
        token->finish = finish;
        if (finish != FINISH_NONE && sequence->plan != PLAN_HAND_OFF)
            scheduler_remove(loop->scheduler, sequence);
    }
    publish_load(loop);
    if (drawn)
        event_post(loop, drawn);
}

static void parts_failed(struct step_loop *loop, const struct step_plan *plan, enum status status,
                         const struct error *err)
{
    for (uint32_t i = 0; i < plan->part_count; i++)
        sequence_failed(loop, plan->parts[i].sequence, status, err);
}

static void moves_failed(struct step_loop *loop, const struct block_move *moves, uint32_t count,
                         enum status status, const struct error *err)
{
    for (uint32_t i = 0; i < count; i++)
        if (moves[i].sequence->state != SEQUENCE_HELD) /* not yet: it may have several moves */
            sequence_failed(loop, moves[i].sequence, status, err);
}

/* False: no rows may be computed, and nobody of the plan goes on. */
static bool run_moves(struct step_loop *loop, const struct step_plan *plan, uint64_t *swap_us)
{
    struct error err;
    enum status status = step_moves_run(loop->config.engine, plan, swap_us, &err);
    if (status == STATUS_OK)
        return true;
    parts_failed(loop, plan, status, &err);
    moves_failed(loop, plan->copies, plan->copy_count, status, &err);
    moves_failed(loop, plan->swap_outs, plan->swap_out_count, status, &err);
    moves_failed(loop, plan->swap_ins, plan->swap_in_count, status, &err);
    return false;
}

static bool run_rows(struct step_loop *loop, const struct step_plan *plan)
{
    FAILPOINT("step.computing");
    struct error err;
    enum status status =
        FAILPOINT_FAILS("step.fails")
            ? error_set(&err, STATUS_INTERNAL, "the failpoint step.fails")
            : engine_step(loop->config.engine, loop->inputs, plan->part_count, &err);
    if (status != STATUS_OK)
        parts_failed(loop, plan, status, &err);
    return status == STATUS_OK;
}

static void run_step(struct step_loop *loop, const struct step_plan *plan)
{
    uint64_t swap_us;
    if (!run_moves(loop, plan, &swap_us))
        return;
    bool prompt_rows = false;
    for (uint32_t i = 0; i < plan->part_count; i++) {
        loop->inputs[i] = engine_input(&plan->parts[i]);
        prompt_rows |= loop->inputs[i].prompt_rows > 0;
    }
    uint64_t begun_us = clock_now_us();
    if (plan->part_count && !run_rows(loop, plan))
        return;
    scheduler_step_done(loop->scheduler, clock_now_us() - begun_us, swap_us);
    step_results(loop, plan);
    if (plan->part_count == 0)
        return;
    if (prompt_rows)
        FAILPOINT("step.after_chunk");
    else
        FAILPOINT("step.after_decode");
}

static void pin_to(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (pthread_setaffinity_np(pthread_self(), sizeof set, &set))
        log_warn(MODULE, "cpu=%d msg=\"the step thread could not be pinned\"", cpu);
}

static void *step_main(void *argument)
{
    struct step_loop *loop = argument;
    pthread_setname_np(pthread_self(), "baton-step");
    if (loop->config.cpu >= 0)
        pin_to(loop->config.cpu);
    bool busy = false; /* something is to be done without any word from outside */
    while (!loop->stopping) {
        struct job *job = busy ? ring_pop(loop->jobs) : ring_wait(loop->jobs, UINT64_MAX);
        for (; job; job = ring_pop(loop->jobs))
            job_run(loop, job);
        for (struct sequence *sequence;
             (sequence = scheduler_reserve(loop->scheduler, clock_now_us()));) {
            struct step_event *event = event_take(loop, STEP_RESERVED, sequence->key);
            event->plan = sequence->plan;
            event->cached_tokens = sequence->computed;
            if (sequence->plan != PLAN_LOCAL) {
                event->blocks = sequence->blocks;
                event->block_count = sequence->block_count;
            }
            event_post(loop, event);
        }
        publish_load(loop);
        const struct step_plan *plan = scheduler_plan(loop->scheduler, clock_now_us());
        bool works =
            plan->part_count + plan->copy_count + plan->swap_out_count + plan->swap_in_count > 0;
        if (works && !loop->stopping)
            run_step(loop, plan);
        busy = works || plan->freed;
    }
    return NULL;
}

/* ---------------------------------------------------------------- life */

static void loop_free(struct step_loop *loop)
{
    for (struct job *job; loop->jobs && (job = ring_pop(loop->jobs));) {
        if (job->kind == JOB_ADD)
            free(job->spec.tokens);
        free(job);
    }
    for (void *event; loop->events && (event = ring_pop(loop->events));)
        free(event);
    for (void *event; loop->spare_events && (event = ring_pop(loop->spare_events));)
        free(event);
    ring_destroy(loop->jobs);
    ring_destroy(loop->events);
    ring_destroy(loop->spare_events);
    scheduler_destroy(loop->scheduler);
    free(loop->inputs);
    free(loop);
}

static enum status loop_allocate(struct step_loop *loop)
{
    const struct step_loop_config *config = &loop->config;
    uint32_t end_id_count;
    const uint32_t *end_ids = engine_end_ids(config->engine, &end_id_count);
    const struct kv_layout *layout = engine_layout(config->engine);
    struct scheduler_config schedule = {
        .block_tokens = layout->block_tokens,
        .block_count = config->block_count,
        .max_sequences = config->max_sequences,
        .chunk_tokens = config->chunk_tokens,
        .context = engine_context(config->engine),
        .end_ids = end_ids,
        .end_id_count = end_id_count,
        .max_batch_sequences = config->max_batch_sequences,
        .max_batch_tokens = config->max_batch_tokens,
        .policy = config->policy,
        .starve_us = config->starve_us,
        .overtake_us = config->overtake_us,
        .grow = config->grow,
        .host_slots = config->swap_blocks,
        .cost = config->cost,
        .prefix_cache = config->prefix_cache,
        .eviction = config->eviction,
        .eviction_cost = eviction_cost_of(engine_shape(config->engine), layout->block_tokens),
        .table_seed = rng_entropy(),
    };
    TRY(scheduler_create(&schedule, &loop->scheduler));
    TRY(ring_create(JOB_CAPACITY, &loop->jobs));
    TRY(ring_create(EVENT_POOL, &loop->events));
    TRY(ring_create(EVENT_POOL, &loop->spare_events));
    loop->inputs = calloc(config->max_sequences, sizeof *loop->inputs);
    if (!loop->inputs)
        return STATUS_LIMIT;
    for (int i = 0; i < EVENT_POOL; i++) {
        struct step_event *event =
            calloc(1, sizeof *event + config->max_sequences * sizeof *event->tokens);
        if (!event)
            return STATUS_LIMIT;
        step_loop_recycle(loop, event);
    }
    return STATUS_OK;
}

enum status step_loop_start(const struct step_loop_config *config, struct step_loop **out,
                            struct error *err)
{
    struct step_loop *loop = calloc(1, sizeof *loop);
    if (!loop)
        return error_set(err, STATUS_LIMIT, "out of memory for the step loop");
    loop->config = *config;
    if (loop_allocate(loop) != STATUS_OK) {
        loop_free(loop);
        return error_set(err, STATUS_LIMIT, "out of memory for %u sequences",
                         config->max_sequences);
    }
    publish_load(loop);
    if (pthread_create(&loop->thread, NULL, step_main, loop)) {
        loop_free(loop);
        return error_set(err, STATUS_IO, "the step thread could not be started");
    }
    *out = loop;
    return STATUS_OK;
}

static void job_post(struct step_loop *loop, const struct job *job)
{
    struct job *copy = malloc(sizeof *copy);
    ASSERT(copy);
    *copy = *job;
    enum status status = ring_push(loop->jobs, copy);
    ASSERT(status == STATUS_OK); /* see JOB_ADD_LIMIT */
}

void step_loop_stop(struct step_loop *loop)
{
    if (!loop)
        return;
    job_post(loop, &(struct job){.kind = JOB_STOP});
    /* The step thread may wait for a spare event: hand back what nobody reads any more. */
    for (struct timespec soon;;) {
        for (struct step_event *event; (event = ring_pop(loop->events));)
            step_loop_recycle(loop, event);
        clock_gettime(CLOCK_REALTIME, &soon);
        soon.tv_nsec += 5 * 1000 * 1000;
        soon.tv_sec += soon.tv_nsec / 1000000000;
        soon.tv_nsec %= 1000000000;
        if (!pthread_timedjoin_np(loop->thread, NULL, &soon))
            break;
    }
    loop_free(loop);
}

enum status step_loop_add(struct step_loop *loop, const struct sequence_spec *spec)
{
    if (ring_count(loop->jobs) >= JOB_ADD_LIMIT) {
        free(spec->tokens);
        loop->refused = spec->key;
        loop->has_refused = true;
        return STATUS_LIMIT;
    }
    loop->has_refused = false;
    struct job job = {.kind = JOB_ADD, .key = spec->key, .spec = *spec};
    job.spec.arrived_us = clock_now_us();
    job_post(loop, &job);
    return STATUS_OK;
}

void step_loop_admit(struct step_loop *loop, struct sequence_key key, uint32_t first_token,
                     uint64_t logits_hash)
{
    job_post(loop, &(struct job){.kind = JOB_ADMIT,
                                 .key = key,
                                 .first_token = first_token,
                                 .logits_hash = logits_hash});
}

void step_loop_remove(struct step_loop *loop, struct sequence_key key)
{
    if (loop->has_refused && loop->refused.request == key.request &&
        loop->refused.attempt == key.attempt)
        loop->has_refused = false;
    else
        job_post(loop, &(struct job){.kind = JOB_REMOVE, .key = key});
}

struct ring *step_loop_events(struct step_loop *loop)
{
    return loop->events;
}

void step_loop_recycle(struct step_loop *loop, struct step_event *event)
{
    enum status status = ring_push(loop->spare_events, event);
    ASSERT(status == STATUS_OK); /* the ring holds the whole pool */
}

const struct step_load *step_loop_load(const struct step_loop *loop)
{
    return &loop->load;
}
