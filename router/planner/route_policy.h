/* Where a request goes: the pair (prefill, decode) with the least queued work, or a decode worker
 * alone. PURE: a function of the candidates, the request and the rules; the dispatcher counts, this
 * decides.
 *
 * The candidates are the workers of one model (route_pools.h). A pair must be of the same weights,
 * one KV layout and one numerics id, and an answer that has begun goes on with the weights and
 * numerics that it began with: other ones would end it as none of both would have written it.
 * Prompts are computed on a decode worker only where no prefill worker exists, where the one that
 * it fits has been away for a while, or where the rules force it. Work is counted in tokens when it
 * is placed, not when a worker reports it, so that a burst spreads; what workers report is a lower
 * bound (others may use them too).
 */
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
    uint64_t away_since_us; /* not ready: for how long */
    uint64_t model_hash, layout_hash, numerics_id;
    uint64_t capacity_tokens; /* of one sequence, prompt and answer */
    /* Prefill: prompt tokens to be computed; decode: tokens of all its sequences, grown to their
     * limit. */
    uint64_t work_tokens;
    uint64_t unconfirmed_tokens; /* decode: of handoffs that are not done */
    uint64_t unconfirmed_limit_tokens;
    uint32_t requests, max_requests; /* that it holds, and may hold; 0: no limit is known */
    uint64_t placed_at;              /* breaks ties: the one not used for longest */
};

/* Two workers that should fit together by what they told the router, and refused each other
 * nevertheless. */
struct route_misfit {
    uint64_t prefill, decode;
};

/* The newest of them. Beyond the limit the oldest is forgotten, and found again. */
#define ROUTE_MAX_MISFITS 256
struct route_misfits {
    struct route_misfit items[ROUTE_MAX_MISFITS]; /* [count]; once full, a ring */
    size_t count, next;
};
void route_misfits_note(struct route_misfits *misfits, struct route_misfit pair);
void route_misfits_forget(struct route_misfits *misfits);

/* What decides over an answer's bytes, of a worker. */
struct route_kind {
    uint64_t model_hash, numerics_id;
};

struct route_request {
    const struct route_kind *kind; /* its answer has begun with; NULL: it hasn't, any will do */
    uint64_t prompt_tokens;        /* to be computed: prompt + emitted */
    uint64_t total_tokens;         /* prompt + longest answer */
    bool ends_at_prefill; /* the decode worker of its pair never hears of it, and may be full */
    uint64_t avoid_prefill,
        avoid_decode; /* just failed; taken only where nothing else is left. 0: none */
    bool local;       /* compute the prompt on the decode worker in any case */
    /* or, where no pair is ready, on one that fits prefill workers which exist, if all of those
     * have been away since then, or longer; 0: never */
    uint64_t local_away_us;
    const struct route_misfit *misfits; /* [misfit_count]: never paired */
    size_t misfit_count;
};

/* The prefill worker that holds a handle, which only needs a reader. */
struct route_handle {
    uint64_t prefill; /* its key */
    uint64_t model_hash, layout_hash, numerics_id;
};

enum route_outcome {
    ROUTE_PLACED,
    ROUTE_FULL, /* workers are there; all that could take it have their fill of unconfirmed tokens or of
                 * requests */
    ROUTE_NO_WORKER, /* none of a kind that is needed is ready */
    /* route_handle: those that are ready are misfits of its holder, or all serve something else */
    ROUTE_NO_READER,
    ROUTE_TOO_LONG, /* no worker could ever hold it */
};

/* NO_WORKER: how near the nearest of the decode workers that are ready is to taking the request;
 * each is nearer than the one before. */
enum route_lack {
    ROUTE_LACKS_NOTHING, /* another outcome */
    ROUTE_LACKS_DECODE,  /* no decode worker is ready */
    ROUTE_LACKS_KIND,    /* none of the weights and numerics that its answer began with */
    /* it fits no prefill worker: model, layout, numerics, or they refused each other */
    ROUTE_LACKS_FIT,
    /* it, or each prefill worker that it fits, is too small; others, which are away, are not */
    ROUTE_LACKS_SPACE,
    /* the prefill workers that it fits are away, and not long enough to do without them */
    ROUTE_LACKS_PREFILL,
};

struct route_choice {
    enum route_outcome outcome;
    enum route_lack lack;
    uint64_t prefill; /* 0: computed on the decode worker */
    uint64_t decode;
    /* NO_WORKER of route_request: a decode worker is ready whose prefill workers have all been away
     * since then: the one that has waited longest. UINT64_MAX: none is. */
    uint64_t away_since_us;
    uint64_t
        /* TOO_LONG: that one request may have on the largest of the decode workers that were looked
         * at */
        most_tokens;
};

/* A place for a request whose prompt is to be computed. */
struct route_choice route_request(const struct route_worker *workers, size_t count,
                                  const struct route_request *request);

/* Another decode worker for a handle that is there already; no limit of unconfirmed tokens holds it
 * up, for its lease runs; that of requests does, for the worker would refuse it. */
struct route_choice route_handle(const struct route_worker *workers, size_t count,
                                 const struct route_request *request,
                                 const struct route_handle *handle);

/* How many tokens, prompt and answer, it may have on the largest decode worker that is ready and
 * could take it, whether full or not: one that holds its total_tokens and fits the holder of
 * `handle` (NULL: its prompt is to be computed), or a prefill worker that holds the prompt. Those
 * whose prefill worker is away count where no others are. 0: none could. */
uint64_t route_room(const struct route_worker *workers, size_t count,
                    const struct route_request *request, const struct route_handle *handle);

#endif
