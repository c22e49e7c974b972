#include "common/worker/step_loop.h"

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/rng.h"
#include "common/worker/step_run.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/queue.h>

#define MODULE       "step_loop"
#define JOB_CAPACITY 8192
/* With so many jobs queued step_loop_add refuses: the rest is for jobs of sequences that exist. */
#define JOB_ADD_LIMIT 1024

enum job_kind { JOB_ADD, JOB_ADMIT, JOB_REMOVE, JOB_READ_CACHE, JOB_SETTLED, JOB_WALKED, JOB_STOP };

struct job {
    enum job_kind kind;
    struct sequence_key key;
    struct sequence_spec spec;
    struct constraint_lease *lease; /* ADD: its constraint's lease; NULL: none */
    TAILQ_ENTRY(job) link;          /* while it is parked */
    uint32_t first_token;
    uint64_t logits_hash;
    struct token_logprobs logprobs;
    bool restart;
};

/* The step thread's, except for the ring, what is _Atomic, and the fields that say so. */
struct step_loop {
    struct step_loop_config config;
    struct scheduler *scheduler;
    struct ring *jobs;
    struct step_events events;
    struct step_run run;
    struct prefix_event cache_events[STEP_CACHE_EVENTS]; /* events of the STEP_CACHE that is out */
    pthread_t thread;
    bool stopping;
    uint64_t wake_us; /* go round by then; UINT64_MAX: when a job comes */
    /* ADDs that wait for their constraints, beside the schedule; at most max_sequences */
    TAILQ_HEAD(, job) parked;
    uint32_t parked_count;
    _Atomic bool settled;             /* a JOB_SETTLED is under way */
    struct constraint_walker *walker; /* NULL without constraints */
    _Atomic bool walked;              /* a JOB_WALKED is under way */
    /* Transfer thread: the key that step_loop_add refused last. Its removal queues no job, or
     * refusals could fill the ring. */
    struct sequence_key refused;
    bool has_refused;
    struct step_load load;
};

static void publish(struct step_loop *loop)
{
    step_load_publish(&loop->load, loop->config.engine, loop->scheduler);
}

/* ---------------------------------------------------------------- jobs, on the step thread */

static enum status take_constraint(struct step_loop *loop, struct job *job, struct error *err)
{
    if (!job->lease)
        return STATUS_OK;
    if (job->lease->status != STATUS_OK) {
        *err = job->lease->err;
        /* The router has compiled it, too: a constraint that is unsupported here stays so. */
        return job->lease->status == STATUS_LIMIT ? STATUS_LIMIT : STATUS_INVALID;
    }
    job->spec.constraint = step_constraints_add(loop->run.constraints, job->lease);
    if (!job->spec.constraint)
        return error_set(err, STATUS_LIMIT, "all %u sequence slots of the worker are in use",
                         loop->config.max_sequences);
    job->lease = NULL;
    return STATUS_OK;
}

/* Gives back what the job still owns. */
static void job_release(struct step_loop *loop, const struct job *job)
{
    if (job->kind != JOB_ADD)
        return;
    sequence_spec_free(&job->spec);
    if (job->spec.constraint)
        step_constraints_remove(loop->run.constraints, job->spec.constraint);
    if (job->lease)
        constraint_host_give(loop->config.constraints, job->lease);
}

static void refuse(struct step_loop *loop, const struct job *job, enum status status,
                   const struct error *err)
{
    job_release(loop, job);
    step_events_post_error(&loop->events, STEP_REFUSED, job->spec.key, status, err);
}

static void add_now(struct step_loop *loop, struct job *job)
{
    struct error err;
    enum status status = take_constraint(loop, job, &err);
    job->spec.needs_token =
        job->spec.constraint || !engine_feeds(loop->config.engine, &job->spec.sampling);
    job->spec.may_draft = !job->spec.constraint && engine_drafts(&job->spec.sampling);
    if (status == STATUS_OK)
        status = scheduler_add(loop->scheduler, &job->spec, &err);
    if (status != STATUS_OK)
        refuse(loop, job, status, &err);
}

/* Returns false if the job is parked. */
static bool job_add(struct step_loop *loop, struct job *job)
{
    struct error err;
    if (!job->lease || constraint_lease_settled(job->lease)) {
        add_now(loop, job);
        return true;
    }
    if (loop->parked_count == loop->config.max_sequences) {
        error_set(&err, STATUS_LIMIT, "%u requests wait for their constraints already",
                  loop->parked_count);
        refuse(loop, job, STATUS_LIMIT, &err);
        return true;
    }
    TAILQ_INSERT_TAIL(&loop->parked, job, link);
    loop->parked_count++;
    return false;
}

static void unpark(struct step_loop *loop, struct job *job)
{
    TAILQ_REMOVE(&loop->parked, job, link);
    loop->parked_count--;
}

static void job_settled(struct step_loop *loop)
{
    struct job *next;
    atomic_store(&loop->settled, false); /* a lease that settles from here on posts again */
    for (struct job *job = TAILQ_FIRST(&loop->parked); job; job = next) {
        next = TAILQ_NEXT(job, link);
        if (!constraint_lease_settled(job->lease))
            continue;
        unpark(loop, job);
        add_now(loop, job);
        free(job);
    }
}

static void job_remove(struct step_loop *loop, struct sequence_key key)
{
    struct sequence *sequence = scheduler_find(loop->scheduler, key);
    if (sequence)
        step_run_remove(&loop->run, sequence);
    struct job *parked;
    TAILQ_FOREACH(parked, &loop->parked, link)
    {
        if (parked->key.request != key.request || parked->key.attempt != key.attempt)
            continue;
        unpark(loop, parked);
        job_release(loop, parked);
        free(parked);
        break;
    }
    step_events_post(&loop->events, step_events_take(&loop->events, STEP_REMOVED, key));
}

static void job_admit(struct step_loop *loop, const struct job *job)
{
    struct sequence *sequence = scheduler_find(loop->scheduler, job->key);
    ASSERT(sequence); /* its owner alone admits and removes it */
    struct step_event *event =
        step_events_take(&loop->events, STEP_TOKENS, (struct sequence_key){0});
    enum finish_reason finish = scheduler_admit(loop->scheduler, sequence, job->first_token);
    struct step_token *token = step_event_add_token(event, sequence);
    token->logits_hash = job->logits_hash;
    step_event_add_logprobs(event, token, &job->logprobs);
    token->finish = finish;
    if (finish != FINISH_NONE) {
        step_run_remove(&loop->run, sequence);
        publish(loop);
    }
    step_events_post(&loop->events, event);
}

static void job_read_cache(struct step_loop *loop, const struct job *job)
{
    struct step_event *event =
        step_events_take(&loop->events, STEP_CACHE, (struct sequence_key){0});
    struct prefix_cache *cache = scheduler_prefix_cache(loop->scheduler);
    if (cache && job->restart)
        prefix_cache_restart_events(cache);
    if (cache)
        event->cache_event_count =
            prefix_cache_read_events(cache, loop->cache_events, STEP_CACHE_EVENTS);
    event->cache_events = loop->cache_events;
    step_events_post(&loop->events, event);
}

/* Carries out the job, and frees it unless it is parked. */
static void job_run(struct step_loop *loop, struct job *job)
{
    switch (job->kind) {
    case JOB_ADD:
        if (!job_add(loop, job))
            return;
        break;
    case JOB_ADMIT: job_admit(loop, job); break;
    case JOB_REMOVE: job_remove(loop, job->key); break;
    case JOB_SETTLED: job_settled(loop); break;
    /* the next step takes the walked set */
    case JOB_WALKED: atomic_store(&loop->walked, false); break;
    case JOB_READ_CACHE: job_read_cache(loop, job); break;
    case JOB_STOP: loop->stopping = true; break;
    }
    free(job);
}

/* Frees all queued and parked jobs undone. loop->jobs may be NULL. */
static void jobs_drop(struct step_loop *loop)
{
    for (struct job *job; loop->jobs && (job = ring_pop(loop->jobs));) {
        job_release(loop, job);
        free(job);
    }
    for (struct job *job; (job = TAILQ_FIRST(&loop->parked));) {
        unpark(loop, job);
        job_release(loop, job);
        free(job);
    }
}

/* ---------------------------------------------------------------- the thread */

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

/* Ends the sequences that can't be whole at their deadlines, before anything more is computed for
 * them. */
static void end_missed(struct step_loop *loop)
{
    struct error err;
    for (struct sequence *sequence;
         (sequence = scheduler_next_missed(loop->scheduler, clock_now_us()));) {
        struct sequence_key key = sequence->key;
        bool waits = sequence->state == SEQUENCE_WAITING && !sequence->preempted;
        error_set(&err, STATUS_TIMEOUT,
                  "its deadline can't be met any more: %u of %u tokens of the answer are there",
                  sequence_answer_count(sequence), sequence->sampling.max_tokens);
        if (waits)
            step_run_remove(&loop->run, sequence);
        else
            scheduler_fail(loop->scheduler, sequence);
        step_events_post_error(&loop->events, waits ? STEP_REFUSED : STEP_FAILED, key,
                               STATUS_TIMEOUT, &err);
    }
}

/* Does one round: the jobs from `job` on, then one step. Returns true while there is work to do
 * without a new job. */
static bool go_around(struct step_loop *loop, struct job *job)
{
    for (; job; job = ring_pop(loop->jobs))
        job_run(loop, job);
    end_missed(loop);
    reserve(loop);
    publish(loop);
    bool behind = step_run_prepare(&loop->run);
    const struct step_plan *plan = scheduler_plan(loop->scheduler, clock_now_us());
    bool works = step_plan_works(plan), had_flight = loop->run.in_flight > 0;
    if (!loop->stopping)
        step_run_plan(&loop->run, plan);
    loop->wake_us = plan->wake_us;
    return works || plan->freed || plan->drain || behind || had_flight;
}

static void *step_main(void *argument)
{
    struct step_loop *loop = argument;
    _Atomic uint64_t *time_ns = loop->load.time_ns;
    pthread_setname_np(pthread_self(), "baton-step");
    if (loop->config.cpu >= 0) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(loop->config.cpu, &set);
        if (pthread_setaffinity_np(pthread_self(), sizeof set, &set))
            log_warn(MODULE, "cpu=%d msg=\"the step thread could not be pinned\"",
                     loop->config.cpu);
    }
    for (bool busy = false; !loop->stopping;) {
        if (!busy) {
            step_run_flush(&loop->run);
            atomic_store(&loop->load.round_began_us, 0);
        }
        uint64_t now_us = clock_now_us(), left_us = loop->wake_us;
        if (left_us != UINT64_MAX)
            left_us = left_us > now_us ? left_us - now_us : 0;
        struct job *job = busy ? ring_pop(loop->jobs) : ring_wait(loop->jobs, left_us);
        uint64_t begun_ns = clock_now_ns(), engine_ns = time_ns[STEP_IN_ENGINE];
        atomic_store(&loop->load.round_began_us, begun_ns / 1000);
        busy = go_around(loop, job);
        uint64_t all_ns = clock_now_ns() - begun_ns;
        time_ns[STEP_AROUND_IT] += all_ns - (time_ns[STEP_IN_ENGINE] - engine_ns);
    }
    step_run_land(&loop->run);
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

/* Called on the constraint host's thread. */
static void on_settled(void *context)
{
    struct step_loop *loop = context;
    if (!atomic_exchange(&loop->settled, true))
        job_post(loop, &(struct job){.kind = JOB_SETTLED});
}

/* Called on the walker's thread. */
static void on_walked(void *context)
{
    struct step_loop *loop = context;
    if (!atomic_exchange(&loop->walked, true))
        job_post(loop, &(struct job){.kind = JOB_WALKED});
}

/* ---------------------------------------------------------------- life */

static void loop_free(struct step_loop *loop)
{
    constraint_walker_stop(loop->walker); /* its thread posts jobs */
    jobs_drop(loop);
    ring_destroy(loop->jobs);
    step_events_deinit(&loop->events);
    scheduler_destroy(loop->scheduler);
    step_constraints_destroy(loop->run.constraints);
    constraint_walker_destroy(loop->walker);
    for (int i = 0; i < ENGINE_TICKETS; i++) {
        free(loop->run.flights[i].inputs);
        free(loop->run.flights[i].scores);
        free(loop->run.flights[i].draws);
    }
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
        .prompts_first = config->prompts_first,
        .context = engine_context(config->engine),
        .end_ids = end_ids,
        .end_id_count = end_id_count,
        .max_batch_sequences = config->max_batch_sequences,
        .max_batch_tokens = config->max_batch_tokens,
        .draft_tokens = config->draft_tokens,
        .drafter = config->drafter,
        .drafter_context = config->drafter_context,
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
        .runs_ahead = engine_runs_ahead(config->engine),
    };
    TRY(scheduler_create(&schedule, &loop->scheduler));
    TRY(ring_create(JOB_CAPACITY, &loop->jobs));
    TRY(step_events_init(&loop->events, config->max_sequences));
    loop->run = (struct step_run){
        .engine = config->engine,
        .scheduler = loop->scheduler,
        .events = &loop->events,
        .load = &loop->load,
        .constrained = calloc(config->max_sequences, sizeof(struct sequence *)),
        .sends_reports = config->sends_reports,
        .runs_ahead = schedule.runs_ahead,
        .failed_limit = config->failed_limit,
        .broken = config->broken,
        .broken_context = config->broken_context,
    };
    for (int i = 0; i < (loop->run.runs_ahead ? ENGINE_TICKETS : 1); i++) {
        struct step_flight *flight = &loop->run.flights[i];
        flight->inputs = calloc(config->max_sequences, sizeof *flight->inputs);
        flight->scores = calloc(config->chunk_tokens, sizeof *flight->scores);
        size_t drafts = (size_t)config->max_sequences * config->draft_tokens;
        flight->draws = calloc(drafts + 1, sizeof *flight->draws);
        if (!flight->inputs || !flight->scores || !flight->draws)
            return STATUS_LIMIT;
    }
    if (!loop->run.constrained)
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
    loop->wake_us = UINT64_MAX;
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

bool step_loop_stop(struct step_loop *loop)
{
    if (!loop)
        return true;
    job_post(loop, &(struct job){.kind = JOB_STOP});
    engine_interrupt(loop->config.engine);
    /* The step thread may wait for a spare event: hand back the events that are no longer read. */
    for (struct timespec soon;;) {
        for (struct step_event *event; (event = ring_pop(loop->events.posted));)
            step_loop_recycle(loop, event);
        clock_gettime(CLOCK_REALTIME, &soon);
        soon.tv_nsec += 5 * 1000 * 1000;
        soon.tv_sec += soon.tv_nsec / 1000000000;
        soon.tv_nsec %= 1000000000;
        if (!pthread_timedjoin_np(loop->thread, NULL, &soon))
            break;
        uint64_t stall_us = loop->config.stall_us;
        if (stall_us && step_load_busy_us(&loop->load, clock_now_us()) > stall_us)
            return false;
    }
    loop_free(loop);
    return true;
}

/* Returns false if the sequence has a constraint and no lease can be had. */
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
