/* The router's view of its workers: who they are, whether their Session is up, what they report. A
 * worker is one incarnation of one name; its key outlives reconnects of its stream.
 *
 * Owner: the dispatch thread. Decisions about requests are the dispatcher's; this dials, redials
 * with back-off while the membership stands, and checks a Hello.
 */
#ifndef BATON_ROUTER_DISPATCH_WORKERS_H
#define BATON_ROUTER_DISPATCH_WORKERS_H

#include "common/base/domain/worker_info.h"
#include "common/net/membership/membership.h"
#include "router/dispatch/worker_link.h"
#include "router/ops/status_board.h"
#include "router/planner/cache_event_count.h"
#include "router/planner/worker_state.h"
#include "router/served_models.h"

/* Members, and those that are leaving. */
#define WORKERS_MAX_SLOTS (2 * ROUTER_MAX_WORKERS)

struct worker {
    uint64_t key; /* never 0, never used again; key % WORKERS_MAX_SLOTS is its slot */
    struct worker_info info;
    size_t model; /* index of served_models */
    enum worker_state state;
    struct worker_link *link; /* DIALLING, UP, LEAVING */
    uint64_t
        /* when it was last ready in any of its lives, or known without having been; 0: it is */
        away_since_us;
    uint64_t redial_us, backoff_us;
    uint64_t complained_us; /* when a failed dial was last worth a warning; 0: never */
    struct worker_load load;
    struct cache_event_count cache; /* of the stream that is up */
    uint64_t prompt_tokens, tokens; /* that it has computed, and that were the next of an answer */
    uint64_t placed_at;             /* count of placements when it last got one */
    uint64_t lane_bytes_per_second; /* 0: not known */
    char lane[16]; /* of the last handoff that it pulled, or that was pulled from it */
    uint64_t work_tokens, unconfirmed_tokens; /* scratch of a placement pass */
};

/* Of a worker that left while it was not ready. */
struct worker_gone {
    char name[64]; /* "": none */
    uint64_t away_since_us;
};

struct workers {
    struct membership *membership;
    const struct served_models *models;
    struct rpc_runtime *runtime;
    struct inbox *inbox;
    struct rpc_tls tls; /* of Sessions */
    uint64_t keepalive_us;
    uint64_t router_incarnation; /* said to every worker */
    uint64_t generation;         /* counts the workers that ever were */
    bool stopping;               /* dial no more */
    size_t count;
    struct worker *items[WORKERS_MAX_SLOTS]; /* [count] */
    struct worker *slots[WORKERS_MAX_SLOTS]; /* the same by slot; NULL: free */
    /* So that a name's next life counts on from there: one that dies again and again before it is
     * ready is away all the time. Full, the oldest is forgotten, and counts from when it comes. */
    struct worker_gone gone[ROUTER_MAX_WORKERS];
    size_t next_gone;
};

struct worker *workers_get(const struct workers *workers, uint64_t key); /* NULL: not there */

/* How many tokens one request may have there, prompt and answer. */
uint64_t worker_capacity_tokens(const struct worker_info *info);
/* Whether it takes work. */
bool worker_is_ready(const struct worker *worker);
/* Brings away_since_us up to date; after whatever may have changed who is ready. */
void workers_note_away(struct workers *workers, uint64_t now_us);

/* Takes over what the membership says: new ones are dialled, those gone are closed. */
void workers_sync(struct workers *workers, uint64_t now_us);
/* Dials what is due. */
void workers_tick(struct workers *workers, uint64_t now_us);
uint64_t workers_next_us(const struct workers *workers);

/* The first message of a stream. False: not the worker that was dialled; the link is being
 * closed. */
bool workers_hello(struct workers *workers, struct worker *worker,
                   const Baton__Worker__V1__SessionUp *up, uint64_t now_us);
/* A stream is over: returns whether the worker had been up. The link is gone, and a LEAVING worker
 * too. `busy`: requests are there. */
bool workers_link_closed(struct workers *workers, struct worker_link *link, bool busy,
                         uint64_t now_us);

/* Copies all workers to the status board. Waits only for a copy, never for work. */
void workers_show(const struct workers *workers, struct status_board *board);

/* Closes all streams; done when count is 0. */
void workers_stop(struct workers *workers);

#endif
