#include "common/worker/step_jobs.h"

#include "common/base/assert.h"

#include <stdlib.h>

static enum status take_constraint(struct step_loop *loop, struct job *job, struct error *err)
{
    if (!job->lease)
        return STATUS_OK;
    if (job->lease->status != STATUS_OK) {
        *err = job->lease->err;
        /* The router has compiled it, too: what is not supported here won't be tomorrow. */
        return job->lease->status == STATUS_LIMIT ? STATUS_LIMIT : STATUS_INVALID;
    }
    job->spec.constraint = step_constraints_add(loop->run.constraints, job->lease);
    if (!job->spec.constraint)
        return error_set(err, STATUS_LIMIT, "all %u sequence slots of the worker are in use",
                         loop->config.max_sequences);
    job->lease = NULL;
    return STATUS_OK;
}

/* What the job holds and nobody has taken over. */
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
    if (status == STATUS_OK)
        status = scheduler_add(loop->scheduler, &job->spec, &err);
    if (status != STATUS_OK)
        refuse(loop, job, status, &err);
}

/* False: it is kept. */
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
    atomic_store(&loop->settled, false); /* what is settled from here on says so again */
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
    ASSERT(sequence); /* only its owner removes it, and its owner admits it */
    struct step_event *event =
        step_events_take(&loop->events, STEP_TOKENS, (struct sequence_key){0});
    enum finish_reason finish = scheduler_admit(loop->scheduler, sequence, job->first_token);
    struct step_token *token = step_event_add_token(event, sequence);
    token->logits_hash = job->logits_hash;
    step_event_add_logprobs(event, token, &job->logprobs);
    token->finish = finish;
    if (finish != FINISH_NONE) {
        step_run_remove(&loop->run, sequence);
        step_load_publish(&loop->load, loop->config.engine, loop->scheduler);
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

void step_job_run(struct step_loop *loop, struct job *job)
{
    switch (job->kind) {
    case JOB_ADD:
        if (!job_add(loop, job))
            return;
        break;
    case JOB_ADMIT: job_admit(loop, job); break;
    case JOB_REMOVE: job_remove(loop, job->key); break;
    case JOB_SETTLED: job_settled(loop); break;
    case JOB_WALKED: atomic_store(&loop->walked, false); break; /* the step sees what it is */
    case JOB_READ_CACHE: job_read_cache(loop, job); break;
    case JOB_STOP: loop->stopping = true; break;
    }
    free(job);
}

void step_jobs_drop(struct step_loop *loop)
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
