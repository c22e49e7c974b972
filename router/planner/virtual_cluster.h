/* A cluster in virtual time: the router's placement (placement.h) and request life
 * (request_life.h), and workers that run the real scheduler (scheduler.h). A step takes the time of
 * a profile (step_profile.h), a handoff that of a link (link_model.h). PURE: no clock and no
 * randomness but the seeds of the profiles and of placement. Equal settings and clients give equal
 * outcomes on any machine.
 *
 * Requests of a class with objectives are ranked, and rejected early, as in the dispatcher.
 *
 * Not played: handoff machines (a handoff has no loss, lease or credit), breakers, the retry
 * budget, and failures of workers. Blocks of a prompt stay at its prefill worker until they were
 * read; chunks are read as they are computed.
 *
 * Time is in microseconds from 0. A command takes `message_us` to a worker; what workers say takes
 * no time. While requests wait, the router looks at them each VIRTUAL_REPORT_US, as the reports of
 * idle workers make it. A worker takes commands between two steps, as a real one does. One event is
 * a step of one worker, whatever its rows: a request costs some 100 us of CPU, and a step about 10.
 *
 * Tokens are hashes: those of prompts are the clients', token `i` of an answer is
 * virtual_answer_token. The last token of an answer that is shorter than max_tokens is VIRTUAL_END.
 *
 * Owner: one thread. */
#ifndef BATON_ROUTER_PLANNER_VIRTUAL_CLUSTER_H
#define BATON_ROUTER_PLANNER_VIRTUAL_CLUSTER_H

#include "common/base/domain/step_profile.h"
#include "common/engine/sched/scheduler.h"
#include "router/planner/admission.h"
#include "router/planner/request_life.h"

#define VIRTUAL_END       0      /* the id that ends an answer; no other token has it */
#define VIRTUAL_REPORT_US 100000 /* as a worker's reports of its load */

struct virtual_worker {
    enum worker_role role;
    struct step_profile profile;
    /* Its end id is VIRTUAL_END, set by the cluster; so is its table_seed. */
    struct scheduler_config scheduler;
    double slowness; /* its steps take so many times as long; 0: 1 */
    double reported; /* it reports so many times the time of its steps; 0: 1 */
};
/* A worker of this role as it is by default (worker_config.c) on the device of the profile: blocks
 * of 32 tokens, `context` tokens for a request, swaps of a quarter of its pool. `chunk_tokens`:
 * prompt rows of a step. */
struct virtual_worker virtual_worker_default(enum worker_role role,
                                             const struct step_profile *profile, uint32_t context,
                                             uint32_t chunk_tokens);

struct virtual_request {
    uint64_t tenant;
    uint32_t prompt_tokens;
    uint32_t answer_tokens; /* its true length, which neither router nor worker knows */
    uint32_t max_tokens;    /* at least answer_tokens */
    bool exact;             /* it never ends by itself (ignore_eos): max_tokens long */
    uint64_t timeout_us;    /* its client leaves then; 0: never */
    enum priority priority;
    uint32_t slo_class;             /* SLO_NONE: none; then it has no objective */
    struct slo_objective objective; /* the first one's of a class is the class's */
    double percentile;              /* its class's */
};

struct virtual_outcome {
    uint64_t id; /* the request's number, from 0, in the order of arrival */
    enum terminal_status status;
    const char *reason; /* static */
    uint64_t arrived_us, ttft_us, e2e_us, longest_gap_us;
    uint32_t prompt_tokens, answer_tokens; /* delivered */
    uint32_t cached_tokens;                /* prompt tokens that weren't computed */
    uint64_t prefill, decode;              /* keys of its last workers; 0: none */
    bool attained;                         /* its objective */
    /* P(miss) by which it was judged, as predicted and calibrated; below 0: it wasn't, or wasn't
     * placed by it. */
    struct {
        double raw, used;
    } miss[ADMISSION_STAGES];
};

/* The clients. None of them calls the cluster. */
struct virtual_clients {
    void *context;
    /* Returns when the next request comes; UINT64_MAX: none before another one ends. */
    uint64_t (*next_us)(void *context);
    /* Takes that request, which gets the number `id`. */
    void (*take)(void *context, uint64_t id, struct virtual_request *request);
    /* Writes the prompt of a request that was taken and hasn't ended, any number of times. Tokens
     * are not VIRTUAL_END, except at the end of an earlier answer. */
    void (*prompt)(void *context, uint64_t id, uint32_t *tokens);
    void (*ended)(void *context, const struct virtual_outcome *outcome);
};

struct virtual_config {
    struct placement_config placement; /* model_count is 1 */
    struct request_limits limits;
    const struct virtual_worker *workers; /* copied; key i + 1 is that of workers[i] */
    uint32_t worker_count;
    uint32_t max_queue; /* one more request that waits is refused as overloaded; 0: no limit */
    bool takes_all;     /* no admission: none is held or rejected for its objectives */
    uint64_t message_us;
    uint64_t seed;
    struct virtual_clients clients;
};

struct virtual_figures {
    uint64_t now_us, arrived, ended, events, steps, tokens, handoffs;
    uint64_t prompt_rows; /* computed */
    uint64_t hash;        /* covers all outcomes so far, in the order of their ends */
};

struct virtual_cluster;

/* STATUS_LIMIT: no memory. STATUS_INVALID: a scheduler's settings, with a sentence. */
enum status virtual_cluster_create(const struct virtual_config *config,
                                   struct virtual_cluster **cluster, struct error *err) WARN_UNUSED;
void virtual_cluster_destroy(struct virtual_cluster *cluster);
/* Runs until nothing is left to do, or until `until_us`. */
void virtual_cluster_run(struct virtual_cluster *cluster, uint64_t until_us);
/* From now on the worker's steps take so many times the profile's time. */
void virtual_cluster_slow(struct virtual_cluster *cluster, uint32_t worker, double slowness);
/* All workers forget their prefix caches. */
void virtual_cluster_wipe(struct virtual_cluster *cluster);

struct virtual_figures virtual_cluster_figures(const struct virtual_cluster *cluster);
/* Returns the facts that the router has learnt of a worker. */
const struct worker_learnt *virtual_cluster_learnt(const struct virtual_cluster *cluster,
                                                   uint32_t worker);
/* True: the books are the sum over all requests; and where none is left they are 0, and no worker
 * has a sequence or holds a block. Costs time in proportion to workers times requests. */
bool virtual_cluster_is_consistent(const struct virtual_cluster *cluster);

/* Returns token `index`, from 0, of the answer to request `id`. */
uint32_t virtual_answer_token(uint64_t seed, uint64_t id, uint32_t index);

#endif
