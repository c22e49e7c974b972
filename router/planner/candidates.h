/* The workers of each model that requests may be placed on, and the books of each: how much work it
 * holds. PURE.
 *
 * A request is placed among the workers of its own model only, so a lack or a surplus in one model
 * has no effect on another. Within a model, workers of one kind (weights, KV layout, numerics) can
 * pair; the kinds are kept apart, so that a search never looks at a pair that can't be. Two workers
 * of one kind may refuse each other all the same: such a misfit is kept with the decode worker
 * until either of the two is removed. Breakers keep workers and pairs out for a while: they get
 * requests only where no other is ready.
 *
 * Memory: candidates_init allocates, each worker and each misfit allocates more. Owner: one thread.
 * Failing functions return STATUS_LIMIT (no memory), and change nothing. */
#ifndef BATON_ROUTER_PLANNER_CANDIDATES_H
#define BATON_ROUTER_PLANNER_CANDIDATES_H

#include "common/base/domain/cost_fit.h"
#include "common/base/domain/worker_info.h"
#include "common/base/map.h"
#include "router/planner/worker_books.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#define CANDIDATES_MAX_MODELS 16
#define CANDIDATES_MAX        (2 * CLUSTER_MAX_WORKERS) /* members, and leaving workers */

/* Facts that the reports of a worker tell. Its owner updates them in place. */
struct worker_learnt {
    struct cost_fit steps;
    uint32_t chunk_rows; /* most prompt rows that a step had; 0: not known */
    double chunk_us;     /* most time that prompt rows took of a step with answers; 0: not known */
    double answers_us, prompts_us;  /* lately, of steps with answers: all, and prompt rows' part */
    uint64_t lane_bytes_per_second; /* its last handoff's; 0: not known */
    uint64_t link_bytes_per_second; /* decode: of all handoffs to it together; 0: not known */
    double kv_bytes_per_token;      /* moved by its last handoff; 0: not known */
    double kv_rows, kv_tokens; /* lately: tokens of its sequences, and the KV that these take */
};

/* The worker reported a step that took so long. */
void worker_learnt_step(struct worker_learnt *learnt, const struct step_shape *shape,
                        double took_us);
/* Returns the part of the time of answers' steps that prompts took lately, 0 .. 0.9. */
double worker_learnt_prompts(const struct worker_learnt *learnt);
/* After such a step `used_tokens` of its KV were in use: by the step's sequences, and for
 * `landing_tokens` of handoffs. Steps with prompts say nothing: more is in use than they show. */
void worker_learnt_kv(struct worker_learnt *learnt, const struct step_shape *shape,
                      uint64_t landing_tokens, uint64_t used_tokens);
/* Returns how many tokens of KV one token of a sequence takes, 0.05 .. 1: sequences share blocks of
 * equal beginnings. 1: not known. */
double worker_learnt_kv_part(const struct worker_learnt *learnt);

/* A worker as a placement sees it. */
struct route_worker {
    /* Facts, which candidates_set replaces. */
    uint64_t key; /* not 0; of one incarnation of one name */
    enum worker_role role;
    bool ready;             /* session up, not draining or hung; others still count as existing */
    bool draining;          /* has a session, and takes no requests */
    bool leaving;           /* not a candidate any more; its books stay until it is removed */
    uint64_t away_since_us; /* not ready: since when */
    uint64_t model_hash, layout_hash, numerics_id; /* its kind, the same for its life */
    /* By it the worker names blocks that it has computed, if a kind's workers differ in that
     * (mixed-numerics); 0: numerics_id. The same for its life. */
    uint64_t own_numerics_id;
    uint32_t block_tokens;    /* a part of layout_hash; 0: not known */
    uint64_t capacity_tokens; /* for one sequence, prompt and answer */
    uint64_t unconfirmed_limit_tokens;
    uint64_t pool_tokens;  /* for all sequences; 0: not known */
    uint32_t max_requests; /* 0: no limit is known */
    /* Borrowed until the worker is removed. NULL: nothing is known. */
    const struct worker_learnt *learnt;
    /* Books. Prefill: prompt tokens to compute. Decode: tokens of all its sequences at their limit.
     */
    uint64_t work_tokens;
    uint64_t reported_tokens;    /* a lower bound of its work, as others may use it too */
    uint64_t unconfirmed_tokens; /* decode: of handoffs that are not done */
    uint32_t requests;           /* on it now */
    uint64_t placed_at;          /* breaks ties: the longest unused worker wins */
    uint64_t blocked_until_us;   /* a breaker's: until then it is used only if there is no other */
};

/* Returns the numerics by which the worker names blocks that it has computed. */
static inline uint64_t route_worker_names(const struct route_worker *worker)
{
    return worker->own_numerics_id ? worker->own_numerics_id : worker->numerics_id;
}

/* Two workers that a breaker keeps apart until then, if there are others. */
struct candidate_pair {
    uint64_t prefill, decode; /* keys */
    uint64_t until_us;
};

/* A new worker takes so many requests at once, and one more for each prompt that it has computed or
 * taken over, until these are CANDIDATE_PROVEN. Its caches are cold, and its costs unknown. */
#define CANDIDATE_FIRST_REQUESTS 4
#define CANDIDATE_PROVEN         64

struct placement_request;
TAILQ_HEAD(placement_requests, placement_request);

struct candidate {
    struct route_worker is;
    struct worker_books books; /* for predictions */
    struct books_floor floor;
    double kv_shared; /* sequences that use a token of its KV, on average, less 1; 0: not known */
    uint64_t computed_rows[PRIORITIES]; /* reported, of prompts that the books still hold whole */
    size_t model;
    struct candidate_kind *kind; /* NULL: leaving */
    size_t index;                /* in its kind's list */
    uint64_t *misfits;           /* decode: [misfit_count] keys of prefill workers, ascending */
    size_t misfit_count, misfit_capacity;
    size_t blocked_pairs;               /* decode: pairs with it that are kept apart */
    uint32_t proven;                    /* prompts computed or taken over */
    struct placement_requests requests; /* placed on it; placement.h has them */
    struct map *tenants;                /* their keys: how many of `is.requests` are each one's */
};

struct candidate_list {
    struct candidate **items; /* [count] */
    size_t count, capacity;
};

#define CANDIDATE_OWN_NUMERICS 4 /* a kind's; blocks of workers of further ones are never found */

/* Workers that can pair, except for misfits. */
struct candidate_kind {
    uint64_t model_hash, layout_hash, numerics_id;
    uint64_t own_numerics[CANDIDATE_OWN_NUMERICS]; /* [own_count] that it has workers of */
    uint32_t own_count;
    uint32_t block_tokens;
    struct candidate_list of[ROLE_DECODE + 1]; /* by worker_role */
    size_t misfit_count, blocked_pairs;        /* pairs */
    /* Capacities of the largest workers. */
    uint64_t most_prefill_tokens, most_ready_prefill_tokens, most_ready_decode_tokens;
    bool stale; /* the capacities must be looked up again */
};

struct candidate_pool {
    struct candidate_kind **kinds; /* [kind_count], none is empty */
    size_t kind_count, kind_capacity;
    struct {
        unsigned known, up, draining; /* up: ready */
    } roles[ROLE_DECODE + 1];
};

struct candidates {
    size_t model_count;
    struct candidate_pool pools[CANDIDATES_MAX_MODELS];
    struct map *by_key;
    uint64_t blocked_until_us;            /* no worker and no pair is blocked from then on */
    struct candidate_pair *blocked_pairs; /* [blocked_pair_count], by decode worker */
    size_t blocked_pair_count, blocked_pair_capacity;
    /* Grows with each change that may give a waiting request a place. */
    uint64_t version;
    /* Grows with each change of the workers themselves, and of what fits: a request may lack a
     * worker from then on, or no longer. Not 0. */
    uint64_t facts_version;
};

enum status candidates_init(struct candidates *candidates, size_t model_count) WARN_UNUSED;
void candidates_deinit(struct candidates *candidates);

struct candidate *candidates_get(const struct candidates *candidates,
                                 uint64_t key); /* NULL: none */
/* Adds a worker with empty books, or replaces the facts of one that is there. */
enum status candidates_set(struct candidates *candidates, size_t model,
                           const struct route_worker *facts) WARN_UNUSED;
/* Forgets the worker, its books and its misfits. None of its requests may be in its list. */
void candidates_remove(struct candidates *candidates, uint64_t key);
void candidates_block(struct candidates *candidates, uint64_t key, uint64_t until_us);
/* Replaces all pairs that are kept apart. Ignores pairs of workers that are gone. */
enum status candidates_block_pairs(struct candidates *candidates,
                                   const struct candidate_pair *pairs, size_t count) WARN_UNUSED;
/* True: the two are kept apart now. */
bool candidates_pair_is_blocked(const struct candidates *candidates, const struct candidate *decode,
                                uint64_t prefill, uint64_t now_us);

/* Notes two workers that match by their registrations, and refused each other. Ignores workers that
 * are gone or of different kinds. */
enum status candidates_misfit(struct candidates *candidates, uint64_t prefill,
                              uint64_t decode) WARN_UNUSED;
bool candidate_misfits(const struct candidate *decode, uint64_t prefill);

/* True: it is new, and has as many requests as it may for now. */
bool candidate_is_starting(const struct candidate *worker);

/* Brings the capacities of the kind up to date. */
void candidate_kind_refresh(struct candidate_kind *kind);

/* The tenant has `by` more requests on the worker, or fewer. Without memory it isn't counted. */
void candidate_count_tenant(struct candidate *candidate, uint64_t tenant, int64_t by);
uint32_t candidate_requests_of(const struct candidate *candidate, uint64_t tenant);

/* True: prompts reach this decode worker from no prefill worker, as none fits it. It computes them
 * itself. */
bool candidate_is_alone(const struct candidate *decode);

#endif
