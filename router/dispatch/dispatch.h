/* The dispatcher: owns every request from admission to its terminal status, the workers and their
 * links. It feeds what happens to request_life, executes the actions, asks route_policy for places,
 * and sends deltas.
 *
 * rpc threads, HTTP threads and main talk to it through its inbox; nothing of what it owns is seen
 * by anybody else, but for the status board and the metrics. It works in turns, one at a time. Who
 * brings a request, a worker's message or a client's end takes a turn himself where nobody else is
 * at it, for to wake a thread costs more than a turn; the dispatch thread takes those that time
 * asks for, all that may block, and what is too much for a helper. "The dispatch thread" is,
 * everywhere, whoever has the turn.
 *
 * Limits: `max_requests` places at once, one for each choice of a call, of which each model has a
 * reserve (route_pools.h), and `max_queue` requests of a model without a place; one more is refused
 * as overloaded. Each model has its own queue: none waits for what another lacks. A request that
 * ends gives its places back before its client can know: who asks again at once finds them. Its
 * call (of gRPC: HTTP's exchanges have limits of their own) is there until its client has read the
 * end, `linger_us` at most: then it is broken off. Of such calls there are as many more as there
 * are places.
 *
 * Books (places, quotas, metrics, access log, traces) are settled before the last of an answer is
 * handed to the client's socket, with what it tells. What becomes of it there changes nothing any
 * more.
 */
#ifndef BATON_ROUTER_DISPATCH_DISPATCH_H
#define BATON_ROUTER_DISPATCH_DISPATCH_H

#include "common/net/membership/membership.h"
#include "common/net/rpc/rpc.h"
#include "router/dispatch/constraint_checks.h"
#include "router/dispatch/inbox.h"
#include "router/dispatch/request.h"
#include "router/dispatch/request_observers.h"
#include "router/dispatch/workers.h"
#include "router/ops/router_metrics.h"
#include "router/ops/status_board.h"
#include "router/served_models.h"

struct dispatch;

struct dispatch_config {
    struct rpc_runtime *runtime;
    struct membership *membership;
    struct router_metrics *metrics;
    struct status_board *board;
    struct request_observers views;
    const struct served_models *models;
    struct constraint_checks
        *checks; /* started and stopped here; NULL: workers say what they refuse */
    uint32_t max_requests, max_queue; /* the queue of each model */
    struct request_limits limits;
    uint64_t unconfirmed_tokens; /* at most, of one decode worker; 0: half of its pool */
    bool force_local_prefill;
    uint64_t linger_us;
    struct rpc_tls tls;    /* of Sessions */
    uint64_t keepalive_us; /* of Sessions */
    uint64_t incarnation;  /* of this router, random at its start */
};

enum status dispatch_start(const struct dispatch_config *config, struct dispatch **dispatch,
                           struct error *err) WARN_UNUSED;

/* --- any thread --- */
/* Calls that have a place at the door beyond max_requests, and as many that have been answered,
 * until they are over: to be told, once read, that their model has none. Who is refused for one
 * model must not stand in the way of another's. */
#define DISPATCH_MAX_AT_DOOR 256
/* Room for one more call? Every REASON_NONE must be followed by one dispatch_client_gone. */
enum reason dispatch_admit(struct dispatch *dispatch);
/* Of an admitted call, whose message names that model and asks for so many choices (1 ..
 * REQUEST_MAX_CHOICES), at most once: is there a place for each of them? */
struct client_gone;
enum reason dispatch_admit_to(struct dispatch *dispatch, struct client_gone *gone, size_t model,
                              uint32_t choices);
/* Of admitted calls, each at most once, with as many choices: the request and those that follow it
 * as next_prompt. They are the dispatcher's, and each one's call has its id. */
void dispatch_submit(struct dispatch *dispatch, struct request *request);
/* The places of dispatch_admit_to, for which nothing was submitted: before its client is told why.
 * They come back with dispatch_client_gone otherwise. */
void dispatch_give_back(struct dispatch *dispatch, struct client_gone *gone);

/* An admitted call is over (its `closed` handler ran). */
struct client_gone {
    struct inbox_message message; /* first */
    uint64_t request;             /* 0: none was submitted */
    size_t model;     /* 1 + that of dispatch_admit_to; 0: it has no places, or no more */
    uint32_t choices; /* likewise */
    enum rpc_code code;
    void (*free)(struct client_gone *gone); /* called on the dispatch thread */
};
void dispatch_client_gone(struct dispatch *dispatch, struct client_gone *gone);

/* --- whoever has the turn --- */
/* In a client's `status` alone, of another request (0 is none) of the same call, whose end is told
 * with it: that one is settled, as what `why` says; what hasn't ended is cancelled. */
void dispatch_settle(struct dispatch *dispatch, uint64_t request);
/* As dispatch_client_gone, at once: in a client's `status` alone. */
void dispatch_let_go(struct dispatch *dispatch, struct client_gone *gone);

/* --- any thread --- */
/* Workers joined or left. */
void dispatch_membership_changed(struct dispatch *dispatch);
/* No new requests from now on; dispatch_idle_fd becomes readable when no call is left. */
void dispatch_drain(struct dispatch *dispatch);
int dispatch_idle_fd(const struct dispatch *dispatch);
/* Ends all requests (UNAVAILABLE, draining) and all links. Returns at once; the thread ends when
 * that is done. */
void dispatch_stop(struct dispatch *dispatch);

/* --- main --- */
/* After dispatch_stop, and after the server of the calls has stopped: waits for the thread and
 * frees. */
void dispatch_destroy(struct dispatch *dispatch);

#endif
