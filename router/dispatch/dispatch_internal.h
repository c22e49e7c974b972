/* Shared by the files of the dispatcher only: dispatch.c (start, end, what others may ask),
 * dispatch_turn.c (whose turn it is; inbox, time), dispatch_request.c (the life of requests),
 * dispatch_constraint.c (who waits for his constraint), dispatch_end.c (how it ends),
 * dispatch_place.c (who gets a worker), dispatch_command.c (what workers are told),
 * dispatch_worker.c (what they say), dispatch_tokens.c (what of that is an answer). */
#ifndef BATON_ROUTER_DISPATCH_DISPATCH_INTERNAL_H
#define BATON_ROUTER_DISPATCH_DISPATCH_INTERNAL_H

#include "common/base/map.h"
#include "router/dispatch/dispatch.h"
#include "router/planner/route_pools.h"

#include <pthread.h>
#include <stdatomic.h>

/* What the policy looks at: made once a placement pass, and kept up while the pass places. */
struct candidates {
    struct route_pools pools;                        /* one a served model */
    struct route_worker *of_slot[WORKERS_MAX_SLOTS]; /* in pools; NULL: not a candidate */
};

/* What waits for workers of one model. */
struct model_queue {
    struct request_list waiting, regiving;
    uint32_t count;
};

struct dispatch {
    struct dispatch_config config;
    struct inbox inbox;
    pthread_t thread;
    int idle_fd, bell_fd; /* the latter: the thread has something to do */

    /* Any thread. */
    atomic_uint admitted;
    pthread_mutex_t places_lock;        /* of the next two */
    uint32_t places[SERVED_MODELS_MAX]; /* that choices of each model hold */
    uint32_t places_beyond;             /* of those, the ones beyond the reserves of their models */
    atomic_uint_fast64_t next_id;
    atomic_bool refusing;           /* draining or stopping */
    atomic_bool membership_pending; /* the message below is in the inbox */
    struct inbox_message membership_message, drain_message, stop_message;
    atomic_bool helped;   /* who posts may take a turn */
    pthread_mutex_t turn; /* of whoever takes one */

    /* Of whoever has the turn. */
    uint64_t armed_us;     /* the thread sleeps until then, or the bell */
    uint64_t help_from_us; /* no help before: helpers had their part of the time */
    struct workers workers;
    struct map *requests;
    struct request_list all, dirty;
    struct request_list ended;   /* in this batch of messages */
    struct request_list closing; /* before it; their calls are not over */
    struct model_queue queues[SERVED_MODELS_MAX];
    uint32_t waiting_count; /* in all queues */
    uint64_t placements;
    struct candidates candidates;
    struct route_misfits misfits; /* until membership changes */
    uint64_t now_us;
    uint64_t due_us;   /* no request has anything to do before */
    uint64_t lapse_us; /* likewise the membership */
    bool place_needed; /* something changed that a waiting request may profit from */
    bool board_changed;
    bool draining, stopping;
};

/* dispatch.c: start and end without a thread, for tests that are the thread. */
enum status dispatch_create(const struct dispatch_config *config, struct dispatch **dispatch,
                            struct error *err) WARN_UNUSED;
void dispatch_free(struct dispatch *dispatch);

/* dispatch_turn.c: acts on what came and on what is due, and never waits. False: it was stopped,
 * and nothing is left. */
bool dispatch_turn(struct dispatch *dispatch);
void *dispatch_main(void *dispatch);                        /* the thread */
void dispatch_posted(void *dispatch, enum inbox_kind kind); /* the inbox's hook */

/* dispatch_request.c: events of one request; it may have ended when they return, and lives until
 * the batch is over, and until its call is. */
void request_begin(struct dispatch *dispatch, struct request *request);
void request_execute(struct dispatch *dispatch, struct request *request,
                     const struct life_actions *actions);
void request_stop_waiting(struct dispatch *dispatch, struct request *request);
void request_flush(struct dispatch *dispatch);
void request_tick(struct dispatch *dispatch);
void request_fail_all(struct dispatch *dispatch, enum reason reason);
/* Brings the gauges up to date with its state. */
void request_count_state(struct dispatch *dispatch, struct request *request);

/* dispatch_end.c: the one place where a choice, and then its call, ends. At the end of the turn its
 * client is told, when all that others may see of it is settled. A call that has its status stays
 * until the client's side of it is over: what isn't read in time is broken off. */
void request_finish(struct dispatch *dispatch, struct request *request,
                    const struct life_action *action);
void request_client_gone(struct dispatch *dispatch, struct request *first, enum rpc_code code);
/* It has not begun, and won't. */
void request_refuse(struct dispatch *dispatch, struct request *request, enum reason reason);
void request_put_away(struct dispatch *dispatch); /* tells those that ended in this batch */
void request_tick_closing(struct dispatch *dispatch);

/* dispatch_constraint.c: of a request that has begun; it may have ended. */
void request_ask_constraint(struct dispatch *dispatch, struct request *request);
/* Of one that has ended: it need not be compiled for this one. */
void request_drop_constraint(struct dispatch *dispatch, struct request *request);
void request_constraint_checked(struct dispatch *dispatch, struct constraint_checked *checked);

/* dispatch_place.c */
void dispatch_place(struct dispatch *dispatch);
/* Writes request->refusal for one that ends because no worker was there: what the last placement
 * pass saw. */
void dispatch_explain_no_worker(const struct dispatch *dispatch, struct request *request);

/* dispatch_worker.c */
void worker_said(struct dispatch *dispatch, struct link_message *message);
void worker_link_ended(struct dispatch *dispatch, struct worker_link *link);
/* A message that no honest worker of this version sends. Its session ends; its requests go
 * elsewhere. */
void worker_misbehaved(struct worker *worker, const char *what);
/* NULL: it has ended, and its workers have not heard of that yet. */
struct request *dispatch_find_request(struct dispatch *dispatch, uint64_t id);
/* The handle's KV may be read: the decode worker is told. */
void worker_take_opened(struct dispatch *dispatch, struct worker *worker, struct request *request,
                        const Baton__Worker__V1__Opened *opened);

/* dispatch_tokens.c: nothing of a message is believed before it is checked against its request. */
void worker_tokens(struct dispatch *dispatch, struct worker *worker,
                   const Baton__Worker__V1__Tokens *tokens);
void worker_prompt_logprobs(struct dispatch *dispatch, struct worker *worker,
                            const Baton__Worker__V1__PromptLogprobs *said);

/* dispatch_command.c: one of the life's SEND_... actions. Nothing is sent where the session is
 * down. */
void worker_command(struct dispatch *dispatch, struct request *request,
                    const struct life_action *action);

#endif
