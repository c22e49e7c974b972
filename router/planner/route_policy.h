/* Chooses the workers of a request: the best pair (prefill, decode) by the placement policy
 * (policy.h), or a decode worker alone. PURE: a function of the candidates, the request, the rules
 * and the draws.
 *
 * The candidates are the workers of one model (candidates.h). The two of a pair must be of one
 * kind: equal weights, KV layout and numerics id. An answer keeps the weights and numerics that it
 * began with, as a mixture would be an answer that neither would have given. A worker that fits no
 * worker of the other role counts as absent. A decode worker computes a prompt itself only if no
 * prefill worker fits it, if those that do have been away for a while, or if the rules force it;
 * where none fits it, pairs come first. Goodput scores decode workers that would compute the prompt
 * beside the pairs. Work counts in tokens from its placement, not from a worker's report, so that a
 * burst spreads. Reports are a lower bound, as others may use the worker too. A blocked worker, and
 * a blocked pair, is used only where no other is ready. The two of a blocked pair stay open to
 * other partners. The pair doesn't matter if no bytes are read. A worker that has just come takes
 * few requests at first, where others take them (candidate_is_starting).
 *
 * Cost: a list of at most ROUTE_EXACT workers is searched whole. A longer one, with n workers, is
 * searched in a random sample of 4 sqrt(n), with the holders of its prefix, and the ROUTE_BEST best
 * of each role are paired (ROUTE_EXACT of policies that compare): the power of d choices
 * (Mitzenmacher, TPDS'01). Goodput scores these decode workers, and the holders, alone too.
 * A request that finds no place in the sample is searched for among all before it is told so: no
 * bad luck refuses one. It takes time in proportion to the workers, and to the decode workers with
 * misfits or blocked pairs times the prefill workers. */
#ifndef BATON_ROUTER_PLANNER_ROUTE_POLICY_H
#define BATON_ROUTER_PLANNER_ROUTE_POLICY_H

#include "common/base/rng.h"
#include "router/planner/candidates.h"
#include "router/planner/decision_log.h"
#include "router/planner/policy.h"

#define ROUTE_EXACT POLICY_MOST
#define ROUTE_BEST  4

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
    const struct policy_ask *policy;      /* NULL: least tokens */
    bool local;                           /* always compute the prompt on the decode worker */
    bool never_local;                     /* the policy moves no prompt from prefill workers */
    /* If no pair is ready: compute it on a decode worker if its matching prefill workers have all
     * been away since this time or longer; 0: never. */
    uint64_t local_away_us;
    uint64_t now_us; /* for workers and pairs that are blocked until a time */
    /* Its tenant leaves others a part of each worker's places (tenant_share). */
    uint64_t tenant;
    bool leaves_share;
    /* The search fills in what it scored, and what won. NULL: isn't wanted. */
    struct decision *decision;
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
    ROUTE_LACKS_FIT,     /* route_handle: not the weights, layout and numerics of its holder */
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

/* Finds a place for a request with a prompt to compute. `rng`: for samples; NULL: searches all. */
struct route_choice route_request(const struct candidates *candidates, size_t model,
                                  const struct route_request *request, struct rng *rng);

/* Finds another decode worker for a handle. The limit of unconfirmed tokens doesn't apply, as the
 * handle's lease runs. The limit of requests does, as the worker would refuse it. NO_READER: a wait
 * for one is useless, or longer than to begin again on a ready worker of another kind. */
struct route_choice route_handle(const struct candidates *candidates, size_t model,
                                 const struct route_request *request,
                                 const struct route_handle *handle, struct rng *rng);

/* Returns the most tokens, prompt and answer, that the request may have on a ready decode worker,
 * even if that worker is full. The worker must hold total_tokens and match the holder of `handle`.
 * If `handle` is NULL, it must match a prefill worker that holds the prompt, unless the model has
 * none. Otherwise decode workers that fit no prefill worker count, and then those that match only
 * prefill workers that are away. 0: no worker. */
uint64_t route_room(const struct candidates *candidates, size_t model,
                    const struct route_request *request, const struct route_handle *handle);

#endif
