/* The dispatcher: owns every call from its submission to its end, the workers and their links.
 * It feeds what happens to request_life, executes the actions, asks route_policy for places, and
 * sends deltas.
 *
 * Turns: all of that happens in turns, one at a time, under a lock. In a turn a thread handles
 * messages of the inbox, places what waits, sends deltas, and tells clients the ends that the
 * turn brought. A thread that posts a call, a worker's message or a client's end takes a turn
 * itself where no other thread has it, because waking a thread costs more. The dispatch thread
 * takes the turns that time asks for, those that may block, and those that are too much for a
 * helper. Structs of the dispatcher belong to the thread that has the turn. Other threads see
 * only the status board and the metrics.
 *
 * Limits: `max_requests` places, one for each choice of a call, of which each model has a
 * reserve (route_pools.h), and `max_queue` requests of a model that wait for a worker. One more
 * is refused as overloaded. Each model has a queue of its own: none waits for what another
 * lacks. An ended call gives its places back before its client can know, so a client that asks
 * again at once finds them. A call over gRPC stays until its client has read the end,
 * `linger_us` at most, then it is broken off. There may be as many such calls as there are
 * places.
 *
 * Failures: a worker, or a pair, that fails requests gets no others for a while, if there are
 * other workers (breaker.h). The requests of a worker that hangs go elsewhere (step_watch.h).
 * Prompts that are computed again because of failures have a budget (retry_budget.h).
 *
 * Books (places, quotas, metrics, access log, traces) are settled before the last of an answer
 * is handed to the client's socket, with the reason that the client is told. Nothing that
 * happens to it there changes them. */
#ifndef BATON_ROUTER_DISPATCH_DISPATCH_H
#define BATON_ROUTER_DISPATCH_DISPATCH_H

#include "common/net/membership/membership.h"
#include "router/dispatch/call.h"
#include "router/dispatch/constraint_checks.h"
#include "router/dispatch/request_observers.h"
#include "router/dispatch/workers.h"
#include "router/ops/router_metrics.h"

struct dispatch;

struct dispatch_config {
    struct rpc_runtime *runtime;
    struct membership *membership;
    struct router_metrics *metrics;
    struct status_board *board;
    struct request_observers views;
    const struct served_models *models;
    struct constraint_checks
        *checks;           /* started and stopped here; NULL: workers check constraints */
    uint32_t max_requests; /* places */
    uint32_t max_queue;    /* requests that wait, for each model */
    struct request_limits limits;
    uint64_t unconfirmed_tokens; /* at most, for each decode worker; 0: half of its pool */
    uint32_t retry_percent, breaker_failures; /* retry_budget.h, breaker.h */
    uint64_t step_timeout_us;                 /* step_watch.h; 0: no worker hangs */
    enum placement_policy policy;
    uint32_t prefix_limit; /* placement_config.prefix_limit */
    bool force_local_prefill;
    bool mixed_numerics; /* workers of different numerics may be paired */
    uint64_t linger_us;
    struct rpc_tls tls;    /* for Sessions */
    uint64_t keepalive_us; /* for Sessions */
    uint64_t incarnation;  /* this router's, random at its start */
};

enum status dispatch_start(const struct dispatch_config *config, struct dispatch **dispatch,
                           struct error *err) WARN_UNUSED;

/* --- any thread --- */
/* Calls admitted beyond max_requests, so that the router can read which model they ask for before
 * it refuses them. As many again may have been refused and not be closed yet. So calls that are
 * refused for one model don't stand in the way of another's. */
#define DISPATCH_MAX_AT_DOOR 256
/* Admits a call of this client, before any work is done for it: REASON_NONE, REASON_DRAINING,
 * REASON_OVERLOADED or REASON_INTERNAL (no memory). An admitted call ends with one dispatch_close
 * and one call_unref. */
enum reason dispatch_admit(struct dispatch *dispatch, struct call_client client,
                           struct call **call) WARN_UNUSED;
/* Reserves `choices` (1 .. REQUEST_MAX_CHOICES) places of `model` for an admitted call. Until that
 * succeeds it may be called again. REASON_OVERLOADED: not enough places. */
enum reason dispatch_reserve(struct dispatch *dispatch, struct call *call, size_t model,
                             uint32_t choices) WARN_UNUSED;
/* Returns the time after which the queue of the model is likely to have room: what a client that is
 * refused with REASON_OVERLOADED is told. */
uint32_t dispatch_retry_after_s(const struct dispatch *dispatch, size_t model);
/* Gives back the places and the grant of a call. The door does so before it tells the client why a
 * call was not submitted. Otherwise they come back when the call is settled. */
void dispatch_give_back(struct dispatch *dispatch, struct call *call);
/* Hands over the filled calls of one client, as a group. */
void dispatch_submit(struct dispatch *dispatch, struct call *const *calls, size_t count);
/* Reports that the client's side of an admitted call is over. Only the first report counts. */
void dispatch_close(struct dispatch *dispatch, struct call *call, enum rpc_code code);

/* Reports that workers joined or left. */
void dispatch_membership_changed(struct dispatch *dispatch);
/* Admits no calls from now on. dispatch_idle_fd becomes readable when no call is left. */
void dispatch_drain(struct dispatch *dispatch);
int dispatch_idle_fd(const struct dispatch *dispatch);
/* Ends all calls (UNAVAILABLE, draining) and all links. Returns at once; the dispatch thread ends
 * when that is done. */
void dispatch_stop(struct dispatch *dispatch);

/* --- main --- */
/* After dispatch_stop, and after the servers have closed all calls: waits for the dispatch thread
 * and frees. */
void dispatch_destroy(struct dispatch *dispatch);

#endif
