/* What other threads ask of the step loop, and what the step thread does about it: sequences are
 * added, admitted and removed, those that wait for their constraints are parked beside the
 * schedule, and the prefix cache's events are read. Known to step_loop.c and step_jobs.c alone; all
 * but the ring and what is _Atomic is the step thread's. */
#ifndef BATON_WORKER_STEP_JOBS_H
#define BATON_WORKER_STEP_JOBS_H

#include "common/worker/step_loop.h"
#include "common/worker/step_run.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

enum job_kind { JOB_ADD, JOB_ADMIT, JOB_REMOVE, JOB_READ_CACHE, JOB_SETTLED, JOB_WALKED, JOB_STOP };

struct job {
    enum job_kind kind;
    struct sequence_key key;
    struct sequence_spec spec;
    struct constraint_lease *lease; /* of an ADD; NULL: none */
    TAILQ_ENTRY(job) link;          /* while it is parked */
    uint32_t first_token;
    uint64_t logits_hash;
    struct token_logprobs logprobs;
    bool restart;
};

struct step_loop {
    struct step_loop_config config;
    struct scheduler *scheduler;
    struct ring *jobs;
    struct step_events events;
    struct step_run run;
    struct prefix_event cache_events[STEP_CACHE_EVENTS]; /* of the STEP_CACHE that is out */
    pthread_t thread;
    bool stopping; /* step thread's own */
    TAILQ_HEAD(, job)
    parked; /* likewise: ADDs that wait for their constraints, at most max_sequences */
    uint32_t parked_count;
    _Atomic bool settled;             /* a JOB_SETTLED is under way */
    struct constraint_walker *walker; /* NULL without constraints */
    _Atomic bool walked;              /* a JOB_WALKED is under way */
    /* Transfer thread's own: what was refused last. Its removal must cost no place, or refusals
     * could fill the ring. */
    struct sequence_key refused;
    bool has_refused;
    struct step_load load;
};

/* Does it, and frees it unless it is parked. */
void step_job_run(struct step_loop *loop, struct job *job);
/* All that are queued or parked, undone: gives back what they hold. The ring may be NULL. */
void step_jobs_drop(struct step_loop *loop);

#endif
