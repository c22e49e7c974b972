/* The router's view of its workers: identity, whether the Session is up, what they report. A worker
 * is one incarnation of one name. Its key outlives reconnects of its stream.
 *
 * workers.c dials, redials with back-off while the membership stands, and checks a Hello; decisions
 * about requests are the dispatcher's. worker_link.c is one Session stream, from dialling to its
 * end: commands go down in order, messages of the worker come up through the inbox as link
 * messages, and the end comes as one INBOX_LINK_CLOSED, after which nothing of this stream comes. A
 * new stream is a new link, opened after the end of the old one was handled: so a loss is always
 * seen before anything new.
 *
 * Owner: the dispatcher, in its turns. Handlers of a link run on rpc threads. */
#ifndef BATON_ROUTER_DISPATCH_WORKERS_H
#define BATON_ROUTER_DISPATCH_WORKERS_H

#include "common/base/arena.h"
#include "common/base/domain/cost_fit.h"
#include "common/base/domain/worker_info.h"
#include "common/net/membership/membership.h"
#include "common/net/rpc/rpc.h"
#include "proto/worker.pb-c.h"
#include "router/dispatch/inbox.h"
#include "router/ops/status_board.h"
#include "router/planner/breaker.h"
#include "router/planner/placement.h"
#include "router/planner/step_watch.h"
#include "router/planner/worker_state.h"
#include "router/served_models.h"

#include <stdbool.h>

/* --- worker_link.c --- */
#define WORKER_LINK_MAX_UP_BYTES     (4u << 20)
#define WORKER_LINK_MAX_QUEUED_BYTES (64u << 20)

struct worker_link {
    struct inbox_message closed_message; /* first: INBOX_LINK_CLOSED */
    uint64_t worker;                     /* its key */
    struct rpc_channel *channel;
    struct rpc_call *call;
    struct inbox *inbox;
    bool up, refused; /* the worker's Hello was accepted, or not; kept by workers.c */
    /* Why it ended; written before INBOX_LINK_CLOSED is posted. */
    enum rpc_code code;
    char message[200];
};

/* A message of the worker, with the memory that it lies in. */
struct link_message {
    struct inbox_message message; /* first: INBOX_LINK_MESSAGE */
    struct worker_link *link;
    struct arena arena;
    const Baton__Worker__V1__SessionUp *up;
    size_t size; /* as it came */
};
/* Frees a message that was handled, and lets the worker send more. */
void link_message_free(struct link_message *message);

struct worker_link_config {
    struct rpc_runtime *runtime;
    struct inbox *inbox;
    const char *address;
    uint64_t worker; /* its key */
    struct rpc_tls tls;
    uint64_t keepalive_us;
    /* In the RouterHello, which is sent first. */
    uint64_t router_incarnation, worker_incarnation;
    const char *worker_name;
};

/* Dials. On success INBOX_LINK_CLOSED will come. */
enum status worker_link_open(const struct worker_link_config *config, struct worker_link **link,
                             struct error *err) WARN_UNUSED;
/* STATUS_LIMIT: the worker doesn't read; STATUS_CANCELLED: the stream is over. */
enum status worker_link_send(struct worker_link *link,
                             const Baton__Worker__V1__SessionDown *command) WARN_UNUSED;
/* Ends the stream now; INBOX_LINK_CLOSED comes. */
void worker_link_close(struct worker_link *link);
/* After INBOX_LINK_CLOSED only. */
void worker_link_destroy(struct worker_link *link);

/* --- workers.c --- */
/* Members, and workers that are leaving. */
#define WORKERS_MAX_SLOTS (2 * ROUTER_MAX_WORKERS)
#define WORKERS_MAX_GONE  256 /* names that left while they were away, and are remembered */

struct worker {
    uint64_t key; /* never 0, never used again; key % WORKERS_MAX_SLOTS is its slot */
    struct worker_info info;
    size_t model; /* index of served_models */
    enum worker_state state;
    struct worker_link *link; /* DIALLING, UP, LEAVING */
    /* Time when it was last ready, in any of its lives. If it never was: time when it registered.
     * 0: it is ready now. */
    uint64_t away_since_us;
    uint64_t redial_us, backoff_us;
    uint64_t complained_us; /* when a failed dial was last logged as a warning; 0: never */
    struct worker_load load;
    struct worker_learnt learnt; /* from its reports; placement reads it */
    struct step_watch watch;     /* whether its steps end */
    uint64_t queued_us;          /* its last report of a queue; 0: none */
    enum breaker_state breaker;  /* as shown */
    bool kept_out;               /* by its breaker */
    bool dismissed;              /* it drains, and was told that nothing comes any more */
    uint64_t prompt_tokens;      /* prompt tokens that it has computed */
    uint64_t tokens;             /* tokens from it that were the next of an answer */
    char lane[16];               /* the lane of its last handoff, and why not a faster one */
    char lane_reason[160];
    uint64_t seen; /* the last sync that found it among the members */
};

/* A worker that left while it was not ready. */
struct worker_gone {
    char name[64]; /* "": none */
    uint64_t away_since_us;
};

struct workers {
    struct membership *membership;
    const struct served_models *models;
    struct rpc_runtime *runtime;
    struct inbox *inbox;
    struct rpc_tls tls; /* for Sessions */
    uint64_t keepalive_us;
    uint64_t router_incarnation;
    struct placement *placement; /* hears of every change of a worker; NULL: none does */
    struct breakers *breakers;   /* hears which workers are gone; NULL: none does */
    bool mixed_numerics;         /* may differ in a pair; placement knows them as 0 */
    uint64_t unconfirmed_tokens; /* on each decode worker, at most; 0: half of its pool */
    uint64_t generation;         /* workers that ever were */
    uint64_t syncs;
    uint64_t changes; /* calls of worker_changed */
    uint64_t next_us; /* no worker is dialled before; 0: must be looked up */
    bool stopping;    /* dial no more */
    size_t count;
    struct worker *items[WORKERS_MAX_SLOTS]; /* [count] */
    struct worker *slots[WORKERS_MAX_SLOTS]; /* the same by slot; NULL: free */
    /* Lets a worker that restarts before it is ready keep its away time. When this is full, the
     * oldest entry is dropped. */
    struct worker_gone gone[WORKERS_MAX_GONE];
    size_t next_gone, gone_count;
};

struct worker *workers_get(const struct workers *workers, uint64_t key); /* NULL: not there */

/* Returns how many tokens one request may have there, prompt and answer. */
uint64_t worker_capacity_tokens(const struct worker_info *info);
/* True: it takes work: its session is up, it isn't draining, and it doesn't hang in a step. */
bool worker_is_ready(const struct worker *worker);
/* The state or the load of a worker has changed: brings away_since_us up to date, and what
 * placement knows. */
void worker_changed(struct workers *workers, struct worker *worker, uint64_t now_us);

/* Follows the membership: dials new workers, and closes those that are gone. */
void workers_sync(struct workers *workers, uint64_t now_us);
/* Dials the workers that are due. */
void workers_tick(struct workers *workers, uint64_t now_us);
uint64_t workers_next_us(const struct workers *workers);

/* Checks the first message of a stream. False: another worker than the one that was dialled; the
 * link is being closed. */
bool workers_hello(struct workers *workers, struct worker *worker,
                   const Baton__Worker__V1__SessionUp *up, uint64_t now_us);
/* Take over the worker's report of itself. Return false, and take nothing, if a number in it is out
 * of its bounds. */
bool worker_take_load(struct worker *worker, const Baton__Worker__V1__Load *load);
bool worker_take_steps(struct worker *worker, Baton__Worker__V1__StepReport *const *reports,
                       size_t count);
/* The worker told its last step and its load together: learns how many tokens share its KV. */
void worker_learn_kv(struct worker *worker, const Baton__Worker__V1__StepReport *last,
                     const Baton__Worker__V1__Load *load);
/* Handles the end of a stream, and frees the link. A LEAVING worker is removed. `busy`: it has
 * requests. Returns whether the worker had been up. */
bool workers_link_closed(struct workers *workers, struct worker_link *link, bool busy,
                         uint64_t now_us);

/* Copies all workers to the status board. Waits only for a copy, never for work. Returns when it is
 * due again if nothing changes, as a model will be served then; UINT64_MAX: never. */
uint64_t workers_show(const struct workers *workers, struct status_board *board, uint64_t now_us);

/* Closes all streams; done when count is 0. */
void workers_stop(struct workers *workers);

#endif
