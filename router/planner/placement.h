/* The placement core: which request goes to which workers, and when. PURE: a function of its state,
 * of events and of the time that is handed in. It owns the candidates and their books
 * (candidates.h), the queue of each model, and the pace at which the queue drains. The dispatcher
 * feeds events, and executes decisions.
 *
 * Books. Each request records the share that it has in the books of its workers, and takes exactly
 * that out again. placement_track brings the shares up to date after any event of the request; so
 * the books are always the sum over all requests (placement_recount), and cost nothing per pass.
 * Each worker has the list of the requests on it.
 *
 * Queue of a model, in order: handles that need another reader (regiving), as their leases run;
 * requests that are placed again, by arrival; then new ones. New requests are served in turns round
 * the tenants, and within a tenant by arrival, so that a tenant waits for at most one request of
 * each other tenant. A request that all workers are too full for may be overtaken by smaller ones
 * until it has waited PLACEMENT_OVERTAKE_US. From then on nothing behind it in the order is placed
 * before it, or large prompts would starve. Requests behind it are still looked at once after each
 * change of the workers, as one that lacks a worker must know that.
 *
 * With SLO classes, new requests have a rank. The ones in time come first, by priority, and in a
 * tenant by the time at which their first token is due: least slack first (EDF: Liu and Layland,
 * JACM'73). A request that is late, by its class's TTFT, counts for goodput no more: it
 * is behind all others, by arrival. No rank starves: of PLACEMENT_FLOOR_EVERY new requests that are
 * placed while others wait in a rank, one is of that rank. So late ones have a floor share of 8%.
 *
 * Deadlines. A new request has its turn, and would likely miss its client's deadline at the place
 * that it would get (deadline_estimate.h): it is held back, as it would only make others late. It
 * waits behind all that are in time, too. A pass tries PLACEMENT_LATE_TRIES of the ones that were
 * held back, in turns. For a request with a deadline within eight times its likely time, workers
 * are full if its prompt would wait for room at its decode worker PLACEMENT_AHEAD_US longer than it
 * takes: prefill workers don't run ahead of answers that may be late. Once it has waited
 * PLACEMENT_OVERTAKE_US, they are full for all behind it that would wait for such room, too. It
 * stops none that finds room.
 *
 * Shares. While there are requests of other tenants, or were in the last PLACEMENT_SHARE_US, a
 * tenant leaves them an eighth of each worker's places. One that waits for its tenant's share holds
 * up no other tenant.
 *
 * Cost of a pass: a request that needs at least as much as one that was found too large since the
 * last change of the candidates isn't searched for again.
 *
 * Requests are embedded in the caller's, which bounds their number. Owner: one thread. */
#ifndef BATON_ROUTER_PLANNER_PLACEMENT_H
#define BATON_ROUTER_PLANNER_PLACEMENT_H

#include "common/base/domain/placement_policy.h"
#include "common/base/domain/priority.h"
#include "router/planner/answer_length.h"
#include "router/planner/goodput.h"
#include "router/planner/prefix_index.h"
#include "router/planner/prompt_names.h"
#include "router/planner/route_policy.h"

#define PLACEMENT_OVERTAKE_US    1000000 /* as long as a worker's own (POLICY_STARVE_US) */
#define PLACEMENT_FLOOR_EVERY    12
#define PLACEMENT_RANKS          (PRIORITIES + 1) /* the last one: late */
#define PLACEMENT_LATE_TRIES     4
#define PLACEMENT_AHEAD_US       1000000
#define PLACEMENT_RECENT         32 /* placements that the pace is read from */
#define PLACEMENT_RETRY_LEAST_US 1000000
#define PLACEMENT_RETRY_MOST_US  60000000
#define PLACEMENT_SHARE_US       10000000 /* as a worker's (TENANT_RECENT_US) */
#define PLACEMENT_MAX_TENANTS    4096 /* waiting for one model, in all ranks; more share a turn */

enum placement_turn {
    PLACEMENT_REGIVE, /* its handle needs another reader */
    PLACEMENT_AGAIN,  /* it was placed before */
    PLACEMENT_NEW,
    /* Turns of a pass: a request never has these. */
    PLACEMENT_FLOOR, /* before NEW: one request of the rank that was passed over for too long */
    PLACEMENT_LATE,  /* after NEW */
};

/* The part of a request's life that its workers' books depend on. */
struct placement_use {
    uint64_t prefill, decode; /* keys of its workers; 0: none */
    bool working;             /* prefill or decode is under way on them */
    bool prefilled;           /* the prompt is computed: no work for the prefill worker any more */
    bool confirmed;           /* the handoff is done, and the handle is gone */
    bool reserved;            /* the prefill worker has blocks for it */
    uint64_t prompt_tokens;   /* to compute: prompt + emitted */
    uint64_t longest_tokens;  /* prompt + longest answer */
    /* For predictions (worker_books.h). */
    enum priority priority;
    bool drawing;           /* its decode worker draws tokens: none is still to come from prefill */
    uint64_t cached_tokens; /* on the worker that computes its prompt */
    uint64_t expected_tokens; /* prompt + expected answer; at least one more than prompt_tokens */
    uint64_t variance;        /* tokens squared: expected_tokens may err so much */
    /* How much later its first token may come and still attain (not above 0: it is late), and the
     * step time that it tolerates (predict_tolerance_us). INFINITY: any. */
    double slack_us, tolerance_us;
    uint16_t weight; /* a miss's; BOOKS_WEIGHT_ONE: 1. 0: it can't attain, or always does */
    uint64_t now_us;
};

/* A request's part of one worker's books. */
struct placement_share {
    struct candidate *worker; /* NULL: none */
    uint32_t requests;
    uint64_t work_tokens, unconfirmed_tokens;
    struct books_part part;
};

/* The blocks that the worker was promised that computes the request's prompt (prefix_index.h). */
struct placement_promise {
    uint64_t worker, id; /* id 0: nothing was promised */
    bool computed;
};

struct placement_tenant;

struct placement_request {
    size_t model;
    uint64_t tenant; /* its key; 0 is one too */
    uint64_t order;  /* counts arrivals */
    struct placement_use use;
    struct placement_share prefill, decode;
    struct prediction predicted; /* at the last place that was chosen for its prompt */
    uint64_t cached_tokens;      /* there, of its prompt */
    /* Then: all times, without the errors of such predictions, and with them the one from its first
     * token to the last that likely comes. */
    struct predict_times times;
    double answer_us; /* 0: none, or costs of its workers aren't known */
    double likely_us; /* the whole */
    bool found;       /* a worker told how much of its prompt was cached */
    uint64_t chosen_us;
    bool hopeless; /* then: nothing let it attain, or it has no objectives */
    struct placement_promise promise;
    const struct prefix_names *prefixes; /* as last asked with; the asker's */
    size_t prefix_kind_count;
    /* In the queue. */
    bool waiting, lacks; /* lacks: no worker was there at its last try */
    uint64_t heard;      /* the facts of the pass that last tried it; 0: none did */
    enum placement_turn turn;
    uint64_t since_us; /* when it began to wait */
    /* NEW: its order. placement_arrived sets NORMAL and UINT64_MAX, which the
     * caller may change before it waits. */
    enum priority priority;
    uint64_t due_us;             /* its first token; least slack first. UINT64_MAX: by arrival */
    bool has_ttft;               /* it is late after due_us */
    bool late;                   /* it waits behind all that are in time, or was held back */
    bool held;                   /* placement_hold put it there */
    struct placement_tenant *in; /* NEW, in time: its tenant's turn */
    TAILQ_ENTRY(placement_request) all_link, waiting_link, prefill_link, decode_link;
};

/* The smallest request that was found too large. */
struct placement_full {
    uint64_t version; /* the candidates' then; 0: none */
    uint64_t prompt_tokens, total_tokens;
    uint64_t deadline_us; /* it counts for earlier deadlines alone; 0: for all requests */
};

/* A tenant's requests of one rank. */
struct placement_tenant {
    uint64_t key;
    uint32_t rank, count;
    struct placement_full held; /* too large for the tenant's share alone */
    struct placement_requests requests;
    struct placement_request *next; /* the one to try next in pass `pass`; NULL: all were tried */
    uint64_t pass;
    TAILQ_ENTRY(placement_tenant) link;
};
TAILQ_HEAD(placement_tenants, placement_tenant);

struct placement_queue {
    struct placement_requests regiving, again, late;
    struct placement_tenants tenants[PRIORITIES]; /* by rank, in the order of their turns */
    struct map *by_key;                           /* tenants of each rank */
    /* Beyond PLACEMENT_MAX_TENANTS, or without memory. */
    struct placement_tenant shared[PRIORITIES];
    uint32_t ranks[PLACEMENT_RANKS];  /* new requests that wait */
    uint32_t passed[PLACEMENT_RANKS]; /* new ones of earlier ranks placed meanwhile */
    uint32_t count, lacking;          /* requests; those of them that lack a worker */
    uint32_t held;                    /* late ones that placement_hold put there */
    uint64_t heard;                   /* all of them have heard these facts; 0: not known */
    struct placement_full full;
    struct placement_full early; /* too early for prompts with a deadline in doubt */
    struct map *here; /* tenants with requests: how many, and how many of them have workers */
    struct {
        uint64_t tenant, at_us;           /* at_us 0: none */
    } left[2];                            /* the last two different ones that have none any more */
    uint64_t recent_us[PLACEMENT_RECENT]; /* times of the last placements, a ring */
    uint64_t placed;
    double pace_us;   /* mean time from one placement to the next while others wait; 0: unknown */
    uint64_t held_us; /* since then late ones were held, and none was placed; 0: not so */
    uint64_t backlog_us; /* the last placement; 0: since then none waited for a time */
};

/* A pass over the queue of one model. */
struct placement_pass {
    uint64_t number, now_us;
    size_t model;
    enum placement_turn turn;
    struct placement_request *next;  /* all except NEW */
    struct placement_tenant *tenant; /* NEW */
    struct placement_tenant *chosen; /* a place was chosen last for one of its requests */
    uint32_t rank;                   /* NEW */
    bool stopped;                    /* a request holds the place of all behind it */
    bool early;      /* one that is too early for its deadline has waited for long */
    uint32_t behind; /* requests that would wait for room, too, and were tried since then */
    uint32_t
        late_tries;   /* late ones that wait on; from PLACEMENT_LATE_TRIES on no more are tried */
    uint64_t facts;   /* the candidates' facts_version when the pass began */
    uint32_t unheard; /* requests that were returned, and had not heard of these workers */
    bool joined;      /* a request began to wait since the pass began */
};

struct placement_config {
    size_t model_count;
    enum placement_policy policy;
    bool binds_late; /* the decode worker of a pair is a guess before the prompt starts */
    struct policy_tuning tuning;
    struct goodput_config goodput;
    bool has_classes;      /* SLO classes: some requests have objectives */
    uint64_t seed;         /* draws samples */
    uint32_t prefix_limit; /* pairs (block, worker) of the prefix index; 0: there is none */
    bool force_local;      /* decode workers compute all prompts themselves */
    uint32_t held_limit;   /* new requests of a model that placement_hold may hold; 0: any number */
    /* They do so too where their prefill workers have been away for so long. UINT64_MAX: never, nor
     * does a policy move a prompt to them from prefill workers that are there. */
    uint64_t local_us;
};

struct placement {
    struct placement_config config;
    struct candidates candidates;
    struct prefix_index *prefix_index;     /* NULL: there is none. The caller feeds it events */
    struct answer_lengths *answer_lengths; /* the caller teaches it */
    struct placement_queue queues[CANDIDATES_MAX_MODELS];
    struct goodput_demand demands[CANDIDATES_MAX_MODELS];
    struct goodput_class classes[CANDIDATES_MAX_MODELS][SLO_MAX_CLASSES];
    struct {
        struct predict_error prompt, answer;
    } errors[CANDIDATES_MAX_MODELS]; /* predict_times' */
    struct placement_requests all;
    struct placement_pass pass;
    struct rng rng;
    uint64_t arrivals, placements;
    uint32_t waiting; /* in all queues */
};

enum status placement_init(struct placement *placement,
                           const struct placement_config *config) WARN_UNUSED;
void placement_deinit(struct placement *placement); /* no request is left */

/* --- workers: candidates.h has their facts. --- */
/* A worker came, or its facts changed. STATUS_LIMIT: no memory; it gets no requests. */
enum status placement_worker_set(struct placement *placement, size_t model,
                                 const struct route_worker *facts) WARN_UNUSED;
/* The worker is gone. The shares of its requests go with it. */
void placement_worker_remove(struct placement *placement, uint64_t key);
/* The worker reported its queued work. 0: no report holds any more. */
void placement_worker_load(struct placement *placement, uint64_t key, uint64_t reported_tokens);
/* The worker reported steps with so many prompt rows. Call it before prompts that end with them are
 * tracked as prefilled: they take their rows along. */
void placement_worker_stepped(struct placement *placement, uint64_t key, uint64_t prefill_rows);
/* Returns the first request on the worker; placement_next_of the next one. The one that was
 * returned may leave the worker meanwhile, if the next one was asked for before. */
struct placement_request *placement_first_of(const struct placement *placement, uint64_t key);
struct placement_request *placement_next_of(const struct placement_request *request, uint64_t key);

/* --- requests --- */
void placement_arrived(struct placement *placement, struct placement_request *request, size_t model,
                       uint64_t tenant);
/* Brings the books up to date after an event of the request: placed, prefilled, confirmed,
 * moved. */
void placement_track(struct placement *placement, struct placement_request *request,
                     const struct placement_use *use);
/* The worker that computes its prompt says how many tokens its cache had: the books hold the other
 * rows from now on. Call it before the steps that end the prompt (placement_worker_stepped), or
 * rows that the books didn't expect count for other prompts. */
void placement_found_cached(struct placement *placement, struct placement_request *request,
                            uint64_t cached_tokens);
/* Takes it out of the books and the queue. */
void placement_ended(struct placement *placement, struct placement_request *request);
/* True: other tenants have requests of its model, or had some in the last PLACEMENT_SHARE_US. */
bool placement_has_others(const struct placement *placement,
                          const struct placement_request *request);
/* The tenants with requests of one model; those beyond PLACEMENT_MAX_TENANTS aren't counted. */
struct placement_tenants_here {
    size_t known, waiting;  /* waiting: with requests that have no worker */
    uint64_t running, most; /* requests with workers; those of the tenant that has most */
};
/* Looks at each of them. */
struct placement_tenants_here placement_tenants_here(const struct placement *placement,
                                                     size_t model);
/* True: the books of all workers are the sum over all requests. For tests. */
bool placement_recount(const struct placement *placement);

/* --- the queue --- */
void placement_wait(struct placement *placement, struct placement_request *request,
                    enum placement_turn turn, uint64_t now_us);
void placement_stop_waiting(struct placement *placement, struct placement_request *request);
/* A new request that placement_next returned isn't placed, though there are workers for it: it
 * can't attain, or others couldn't. From now on it waits with the late ones. Then the ones behind
 * it wait, until the next pass. */
void placement_hold(struct placement *placement, struct placement_request *request);
/* True: the request may be held. It waits with the late ones already, or they have room for it.
 * Only held ones count: late ones, and the ones with early deadlines, take no room from them. */
bool placement_may_hold(const struct placement *placement, const struct placement_request *request);
/* True: the request that placement_next returned last is one of a rank that was passed over. */
bool placement_is_owed(const struct placement *placement);

/* Begins a pass over the queue of a model. */
void placement_begin(struct placement *placement, size_t model, uint64_t now_us);
/* Returns the next request to try. NULL: the pass is over. Requests may come, leave and end between
 * two calls. */
struct placement_request *placement_next(struct placement *placement);

struct placement_ask {
    /* total_tokens: the fewest that it needs room for. Policy, rules and time are filled in. */
    struct route_request request;
    const struct route_handle *handle; /* NULL: its prompt is to be computed */
    /* Not 0: each place sets anew how long the answer may become. It is placed for as much of this
     * as the largest decode worker that could take it has room for. The worker need not be free:
     * how long an answer may be must not depend on load. */
    uint64_t most_tokens;
    /* The prompt's blocks for each kind of workers of its model. They live as long as the
     * request. */
    const struct prefix_names *prefixes; /* [prefix_kind_count] */
    size_t prefix_kind_count;            /* at most PREFIX_MAX_KINDS; 0: not known */
    struct predict_request predict;
    uint64_t deadline_us; /* its client's; 0 or UINT64_MAX: none */
    double likely_tokens; /* still to come of its answer (answer_length_likely) */
    double ready_us;      /* with a handle: time until its prompt is computed */
    uint32_t slo_class;   /* SLO_NONE: none */
    double percentile;    /* its class's */
};
/* Decides about the request that placement_next returned. *placed_tokens: it is placed for so many,
 * prompt and answer. Predicts what comes of a place for its prompt (request->predicted), whatever
 * the policy, where ask->predict says how long its answer may get. ROUTE_FULL, too, if it is held
 * back. */
struct route_choice placement_choose(struct placement *placement, struct placement_request *request,
                                     const struct placement_ask *ask, uint64_t *placed_tokens);
/* The choice was executed. `decode` 0: the prefill worker draws the last token. */
void placement_placed(struct placement *placement, const struct placement_request *request,
                      uint64_t prefill, uint64_t decode);

/* Its answer has ended, with so many tokens: learns how far the times were off. Only if its first
 * choice was executed, and its prompt wasn't computed again. */
void placement_learn_times(struct placement *placement, const struct placement_request *request,
                           uint64_t first_us, uint64_t last_us, uint32_t tokens);

/* True: a request like this would be placed now, or wait for room. */
bool placement_takes(const struct placement *placement, size_t model,
                     const struct route_request *request, uint64_t now_us);

/* Returns the weight of a miss of the class, for placement_use. `percentile`: the class's. */
uint16_t placement_weight(const struct placement *placement, size_t model, uint32_t slo_class,
                          double percentile);

/* True: a small request would be placed now, or wait for room. False: it lacks a worker, until a
 * change of the workers, or until *at_us (UINT64_MAX: no such time), when prefill workers will have
 * been away for long enough. */
bool placement_serves(const struct placement *placement, size_t model, uint64_t now_us,
                      uint64_t *at_us);

/* Returns the most tokens, prompt and answer, that a request could be placed with now, if no worker
 * were full. 0: no worker would take any. */
uint64_t placement_room(const struct placement *placement, size_t model);

/* Returns the time after which a request that is refused now would find room in the queue: the time
 * in which the queue drains at the pace of the last placements. */
uint64_t placement_retry_us(const struct placement *placement, size_t model, uint64_t now_us);

/* Returns the time that a new request which waits will wait for its turn, at the pace of the last
 * placements: behind all of earlier ranks, and in turns with the other tenants of its own. 0: the
 * pace isn't known. */
uint64_t placement_wait_us(const struct placement *placement,
                           const struct placement_request *request);

/* The number of `total` places that are reserved for each of `model_count` models: half of an equal
 * share. The other places go to the first requests that come. */
uint32_t placement_reserve(uint32_t total, size_t model_count);

#endif
