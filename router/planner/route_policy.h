/* Chooses the workers of a request: the pair (prefill, decode) with the least queued work, or a
 * decode worker alone. PURE: a function of the candidates, the request and the rules. The
 * dispatcher does the counting.
 *
 * The candidates are the workers of one model (route_pools.h). The two of a pair must have equal
 * weights, KV layout and numerics id. An answer keeps the weights and numerics that it began with,
 * as a mixture would be an answer that neither would have given. A decode worker computes a prompt
 * itself only if no prefill worker exists, if its prefill workers have been away for a while, or if
 * the rules force it. Work counts in tokens from its placement, not from a worker's report, so that
 * a burst spreads. Reports are a lower bound, as others may use the worker too. */
#ifndef BATON_ROUTER_PLANNER_ROUTE_POLICY_H
#define BATON_ROUTER_PLANNER_ROUTE_POLICY_H

#include "common/base/domain/worker_info.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct route_worker {
    uint64_t key; /* not 0 */
    enum worker_role role;
    bool ready;             /* session up, not draining; others still count as existing */
    uint64_t away_since_us; /* not ready: since when */
    uint64_t model_hash, layout_hash, numerics_id;
    uint64_t capacity_tokens; /* for one sequence, prompt and answer */
    /* Prefill: prompt tokens to compute. Decode: tokens of all its sequences at their limit. */
    uint64_t work_tokens;
    uint64_t unconfirmed_tokens; /* decode: of handoffs that are not done */
    uint64_t unconfirmed_limit_tokens;
    uint32_t requests, max_requests; /* on it now, and at most; 0: no limit is known */
    uint64_t placed_at;              /* breaks ties: the longest unused worker wins */
};

/* Two workers that match by their registrations, but refused each other. */
struct route_misfit {
    uint64_t prefill, decode;
};

/* The newest misfits. Beyond the limit the oldest is forgotten, until it is found again. */
#define ROUTE_MAX_MISFITS 256
struct route_misfits {
    struct route_misfit items[ROUTE_MAX_MISFITS]; /* [count]; once full, a ring */
    size_t count, next;
};
void route_misfits_note(struct route_misfits *misfits, struct route_misfit pair);
void route_misfits_forget(struct route_misfits *misfits);

/* The properties of a worker on which an answer's bytes depend. */
struct route_kind {
    uint64_t model_hash, numerics_id;
};

struct route_request {
    const struct route_kind *kind; /* its answer began with this; NULL: it hasn't begun */
    uint64_t prompt_tokens;        /* to compute: prompt + emitted */
    uint64_t total_tokens;         /* prompt + longest answer */
    bool ends_at_prefill; /* the decode worker of its pair gets no command, and may be full */
    uint64_t avoid_prefill, avoid_decode; /* just failed; only if there are no others. 0: none */
    bool local;                           /* always compute the prompt on the decode worker */
    /* If no pair is ready: compute it on a decode worker if its matching prefill workers have all
     * been away since this time or longer; 0: never. */
    uint64_t local_away_us;
    const struct route_misfit *misfits; /* [misfit_count]: never paired */
    size_t misfit_count;
};

/* A handle that needs a reader, and the prefill worker that holds it. */
struct route_handle {
    uint64_t prefill; /* its key */
    uint64_t model_hash, layout_hash, numerics_id;
};

enum route_outcome {
    ROUTE_PLACED,
    ROUTE_FULL,      /* all suitable workers are full: of unconfirmed tokens, or of requests */
    ROUTE_NO_WORKER, /* no worker of a needed kind is ready */
    ROUTE_NO_READER, /* route_handle: the ready workers don't match its holder, or are misfits */
    ROUTE_TOO_LONG,  /* no worker could ever hold it */
};

/* NO_WORKER: the obstacle of the ready decode worker that comes nearest to taking the request. Each
 * value is nearer than the one before. */
enum route_lack {
    ROUTE_LACKS_NOTHING, /* another outcome */
    ROUTE_LACKS_DECODE,  /* no decode worker is ready */
    ROUTE_LACKS_KIND,    /* not the weights and numerics that its answer began with */
    ROUTE_LACKS_FIT,     /* no prefill worker matches: weights, layout, numerics, or a misfit */
    ROUTE_LACKS_SPACE,   /* it, or each matching prefill worker, is too small */
    ROUTE_LACKS_PREFILL, /* its matching prefill workers are away, but not for long enough */
};

struct route_choice {
    enum route_outcome outcome;
    enum route_lack lack;
    uint64_t prefill; /* 0: computed on the decode worker */
    uint64_t decode;
    /* NO_WORKER of route_request: the earliest time since which all prefill workers of a ready
     * decode worker have been away. UINT64_MAX: there is no such decode worker. */
    uint64_t away_since_us;
    uint64_t most_tokens; /* TOO_LONG: of one request on the largest matching decode worker */
};

/* Finds a place for a request with a prompt to compute. */
struct route_choice route_request(const struct route_worker *workers, size_t count,
                                  const struct route_request *request);

/* Finds another decode worker for a handle. The limit of unconfirmed tokens doesn't apply, as the
 * handle's lease runs. The limit of requests does, as the worker would refuse it. */
struct route_choice route_handle(const struct route_worker *workers, size_t count,
                                 const struct route_request *request,
                                 const struct route_handle *handle);

/* Returns the most tokens, prompt and answer, that the request may have on a ready decode worker,
 * even if that worker is full. The worker must hold total_tokens and match the holder of `handle`.
 * If `handle` is NULL, it must match a prefill worker that holds the prompt, unless it computes the
 * prompt itself. If the matching prefill workers of all are away, these count too. 0: no worker. */
uint64_t route_room(const struct route_worker *workers, size_t count,
                    const struct route_request *request, const struct route_handle *handle);

#endif
