#include "common/worker/step_loop.h"

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/rng.h"
#include "common/worker/step_jobs.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#define MODULE       "step_loop"
#define JOB_CAPACITY 8192
#define JOB_ADD_LIMIT                                                                              \
    1024 /* above, nothing new is taken: room is left for what belongs to sequences that exist */

static void publish(struct step_loop *loop)
{
    step_load_publish(&loop->load, loop->config.engine, loop->scheduler);
}

/* ---------------------------------------------------------------- the thread */

static void pin_to(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (pthread_setaffinity_np(pthread_self(), sizeof set, &set))
        log_warn(MODULE, "cpu=%d msg=\"the step thread could not be pinned\"", cpu);
}

static void reserve(struct step_loop *loop)
{
    for (struct sequence *sequence;
         (sequence = scheduler_reserve(loop->scheduler, clock_now_us()));) {
        struct step_event *event = step_events_take(&loop->events, STEP_RESERVED, sequence->key);
        event->plan = sequence->plan;
        event->cached_tokens = sequence->computed;
        if (sequence->plan != PLAN_LOCAL) {
            event->blocks = sequence->blocks;
            event->block_count = sequence->block_count;
        }
        step_events_post(&loop->events, event);
    }
}

/* Once around, from the first job on if there is one. True: there is something to do without any
 * word from outside. */
static bool go_around(struct step_loop *loop, struct job *job)
{
    for (; job; job = ring_pop(loop->jobs))
        step_job_run(loop, job);
    reserve(loop);
    publish(loop);
    bool behind = step_run_prepare(&loop->run);
    const struct step_plan *plan = scheduler_plan(loop->scheduler, clock_now_us());
    bool works = step_plan_works(plan);
    if (works && !loop->stopping)
        step_run_plan(&loop->run, plan);
    return works || plan->freed || behind;
}

static void *step_main(void *argument)
{
    struct step_loop *loop = argument;
    _Atomic uint64_t *time_ns = loop->load.time_ns;
    pthread_setname_np(pthread_self(), "baton-step");
    if (loop->config.cpu >= 0)
        pin_to(loop->config.cpu);
    for (bool busy = false; !loop->stopping;) {
        struct job *job = busy ? ring_pop(loop->jobs) : ring_wait(loop->jobs, UINT64_MAX);
        uint64_t begun_ns = clock_now_ns(), engine_ns = time_ns[STEP_IN_ENGINE];
        busy = go_around(loop, job);
        uint64_t all_ns = clock_now_ns() - begun_ns;
        time_ns[STEP_AROUND_IT] += all_ns - (time_ns[STEP_IN_ENGINE] - engine_ns);
    }
    return NULL;
}

/* ---------------------------------------------------------------- jobs, from other threads */

static void job_post(struct step_loop *loop, const struct job *job)
{
    struct job *copy = malloc(sizeof *copy);
    ASSERT(copy);
    *copy = *job;
    enum status status = ring_push(loop->jobs, copy);
    ASSERT(status == STATUS_OK); /* see JOB_ADD_LIMIT */
}

/* On the thread of the constraints. */
static void on_settled(void *context)
{
    struct step_loop *loop = context;
    if (!atomic_exchange(&loop->settled, true))
        job_post(loop, &(struct job){.kind = JOB_SETTLED});
}

/* On the walker's. */
static void on_walked(void *context)
{
    struct step_loop *loop = context;
    if (!atomic_exchange(&loop->walked, true))
        job_post(loop, &(struct job){.kind = JOB_WALKED});
}

/* ---------------------------------------------------------------- life */

static void loop_free(struct step_loop *loop)
{
    constraint_walker_stop(loop->walker); /* it posts jobs */
    step_jobs_drop(loop);
    ring_destroy(loop->jobs);
    step_events_deinit(&loop->events);
    scheduler_destroy(loop->scheduler);
    step_constraints_destroy(loop->run.constraints);
    constraint_walker_destroy(loop->walker);
    free(loop->run.inputs);
    free(loop->run.scores);
    free(loop->run.constrained);
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
        .chunk_us = config->chunk_us,
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
    TRY(step_events_init(&loop->events, config->max_sequences));
    loop->run = (struct step_run){
        .engine = config->engine,
        .scheduler = loop->scheduler,
        .events = &loop->events,
        .load = &loop->load,
        .inputs = calloc(config->max_sequences, sizeof *loop->run.inputs),
        .constrained = calloc(config->max_sequences, sizeof(struct sequence *)),
        .scores = calloc(config->chunk_tokens, sizeof *loop->run.scores),
    };
    if (!loop->run.inputs || !loop->run.scores || !loop->run.constrained)
        return STATUS_LIMIT;
    if (config->constraints)
        TRY(constraint_walker_create(on_walked, loop, &loop->walker));
    return step_constraints_create(config->constraints, loop->walker, config->max_sequences,
                                   &loop->run.constraints);
}

enum status step_loop_start(const struct step_loop_config *config, struct step_loop **out,
                            struct error *err)
{
    struct step_loop *loop = calloc(1, sizeof *loop);
    if (!loop)
        return error_set(err, STATUS_LIMIT, "out of memory for the step loop");
    loop->config = *config;
    TAILQ_INIT(&loop->parked);
    if (loop_allocate(loop) != STATUS_OK) {
        loop_free(loop);
        return error_set(err, STATUS_LIMIT, "out of memory for %u sequences",
                         config->max_sequences);
    }
    publish(loop);
    if (pthread_create(&loop->thread, NULL, step_main, loop)) {
        loop_free(loop);
        return error_set(err, STATUS_IO, "the step thread could not be started");
    }
    *out = loop;
    return STATUS_OK;
}

void step_loop_stop(struct step_loop *loop)
{
    if (!loop)
        return;
    job_post(loop, &(struct job){.kind = JOB_STOP});
    /* The step thread may wait for a spare event: hand back what nobody reads any more. */
    for (struct timespec soon;;) {
        for (struct step_event *event; (event = ring_pop(loop->events.posted));)
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

/* False: there is a constraint, and no lease of it to be had. */
static bool take_lease(struct step_loop *loop, struct job *job)
{
    struct constraint_source *source = job->spec.constraint_source;
    job->spec.constraint_source = NULL;
    if (!source)
        return true;
    if (loop->config.constraints)
        job->lease = constraint_host_take(loop->config.constraints, source, job->spec.tenant,
                                          on_settled, loop);
    else
        free(source);
    return job->lease != NULL;
}

enum status step_loop_add(struct step_loop *loop, const struct sequence_spec *spec)
{
    struct job job = {.kind = JOB_ADD, .key = spec->key, .spec = *spec};
    if (ring_count(loop->jobs) >= JOB_ADD_LIMIT || !take_lease(loop, &job)) {
        sequence_spec_free(&job.spec);
        loop->refused = spec->key;
        loop->has_refused = true;
        return STATUS_LIMIT;
    }
    loop->has_refused = false;
    job.spec.arrived_us = clock_now_us();
    job_post(loop, &job);
    return STATUS_OK;
}

void step_loop_admit(struct step_loop *loop, struct sequence_key key, uint32_t first_token,
                     uint64_t logits_hash, const struct token_logprobs *logprobs)
{
    job_post(loop, &(struct job){.kind = JOB_ADMIT,
                                 .key = key,
                                 .first_token = first_token,
                                 .logits_hash = logits_hash,
                                 .logprobs = *logprobs});
}

void step_loop_remove(struct step_loop *loop, struct sequence_key key)
{
    if (loop->has_refused && loop->refused.request == key.request &&
        loop->refused.attempt == key.attempt)
        loop->has_refused = false;
    else
        job_post(loop, &(struct job){.kind = JOB_REMOVE, .key = key});
}

void step_loop_read_cache(struct step_loop *loop, bool restart)
{
    job_post(loop, &(struct job){.kind = JOB_READ_CACHE, .restart = restart});
}

struct ring *step_loop_events(struct step_loop *loop)
{
    return loop->events.posted;
}

void step_loop_recycle(struct step_loop *loop, struct step_event *event)
{
    step_events_recycle(&loop->events, event);
}

const struct step_load *step_loop_load(const struct step_loop *loop)
{
    return &loop->load;
}
