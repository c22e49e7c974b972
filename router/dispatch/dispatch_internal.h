/* Shared by the files of the dispatcher: dispatch.c (start, end, admission, turns), dispatch_call.c
 * (calls and their choices), dispatch_place.c (which worker a request gets), dispatch_decide.c
 * (which requests are rejected), dispatch_failures.c
 * (which workers get none, and which retries wait), dispatch_worker.c (messages to workers and from
 * them). */
#ifndef BATON_ROUTER_DISPATCH_DISPATCH_INTERNAL_H
#define BATON_ROUTER_DISPATCH_DISPATCH_INTERNAL_H

#include "common/base/due_heap.h"
#include "common/base/map.h"
#include "router/dispatch/dispatch.h"
#include "router/planner/admission.h"
#include "router/planner/breaker.h"
#include "router/planner/placement.h"
#include "router/planner/retry_budget.h"

#include <pthread.h>
#include <stddef.h>

#define BOARD_EVERY_US 50000 /* between two copies of all workers to the status board */
#define BOARD_AT_ONCE  64    /* so few are copied at once when the state of one changes */

/* One SLO class of one model. */
struct class_decisions {
    struct admission_class admission;
    struct gauge *error[ADMISSION_STAGES], *calibrated[ADMISSION_STAGES], *share;
    struct counter *missed, *attained; /* let through */
};

struct dispatch {
    struct dispatch_config config;
    struct inbox inbox;
    pthread_t thread;
    int idle_fd, bell_fd; /* the latter: the dispatch thread has something to do */

    /* Any thread. */
    atomic_uint admitted;               /* calls that are not closed */
    pthread_mutex_t places_lock;        /* guards the next three */
    uint32_t places[SERVED_MODELS_MAX]; /* held by calls of each model */
    uint32_t places_beyond;             /* the ones beyond the reserves of their models */
    struct map *tenants;                /* tenant -> its places, a number in the pointer */
    atomic_uint retry_after_s[SERVED_MODELS_MAX]; /* as the last placement pass found it */
    atomic_uint_fast64_t next_id;
    atomic_bool refusing;           /* draining or stopping */
    atomic_bool membership_pending; /* the message below is in the inbox */
    struct inbox_message membership_message, drain_message, stop_message;
    atomic_bool helped;   /* threads that post may take a turn */
    pthread_mutex_t turn; /* held by the thread that has the turn */

    /* The turn's. */
    uint64_t armed_us;     /* the dispatch thread sleeps until then, or the bell */
    uint64_t help_from_us; /* helpers have used their part of the time until then */
    struct workers workers;
    struct map *requests;           /* choices by id, until their call is told */
    struct request_list all, dirty; /* choices that run */
    struct call_list ended;         /* to be told at the end of this turn */
    struct call_list closing;       /* told or held; the client's side isn't closed */
    struct due_heap due_requests;   /* choices that may have something to do */
    struct due_heap due_calls;      /* calls in `closing` to be cut off */
    uint64_t tenant_salt;       /* random: workers learn no more of a tenant than that it is one */
    struct placement placement; /* candidates, books and queues */
    struct breakers breakers;
    struct retry_budget budgets[SERVED_MODELS_MAX];
    struct breaker_candidate *failing;    /* scratch of dispatch_failures.c */
    uint64_t breakers_seen, workers_seen; /* their changes that placement knows */
    uint64_t breakers_due_us;             /* breakers change by themselves then */
    uint64_t failures_due_us;             /* no worker hangs before, nor can a retry be paid for */
    struct request_list held[SERVED_MODELS_MAX]; /* wait for the budget, by arrival */
    uint32_t held_count;
    uint64_t now_us;
    uint64_t lapse_us;      /* the membership has nothing to do before */
    uint64_t judge_from_us; /* after a stop: nothing is judged by its time before; 0: no stop */
    bool place_needed;      /* something changed that a waiting request may profit from */
    bool board_changed;     /* the status board is shown in this turn */
    uint64_t tenants_shown_us;
    uint64_t board_due_us;   /* loads have changed: it is shown then; UINT64_MAX: they haven't */
    uint64_t board_shown_us; /* the last time */
    bool draining, stopping;
    struct class_decisions *decisions; /* [models x SLO classes]; NULL: there are no classes */
    struct gauge *regret;              /* NULL: there are no classes */
    struct rng decision_rng;
};

/* --- dispatch.c --- */
/* Start and end without the dispatch thread, for tests that take every turn themselves. */
enum status dispatch_create(const struct dispatch_config *config, struct dispatch **dispatch,
                            struct error *err) WARN_UNUSED;
void dispatch_free(struct dispatch *dispatch);
/* Takes one turn, and never waits. False: the dispatcher was stopped, and nothing is left. */
bool dispatch_turn(struct dispatch *dispatch);
/* Returns until when the dispatch thread may sleep after a turn, and notes it: a turn that comes
 * much later tells of a stopped process. */
uint64_t dispatch_arm(struct dispatch *dispatch);
/* Figures of a worker have changed: the status board is shown when the next copy is due. */
void dispatch_show_soon(struct dispatch *dispatch);
/* Is the dispatch thread. */
void *dispatch_main(void *dispatch);

/* --- dispatch_call.c: events of a call. call.h has the table of its states. --- */
/* Begins the calls of a group, or refuses each that finds no room. */
void call_begin(struct dispatch *dispatch, struct call *first);
/* The client's side is closed. */
void call_closed(struct dispatch *dispatch, struct call *call);
/* Tells the clients of all calls that have ended in this turn. */
void calls_tell(struct dispatch *dispatch);

/* --- dispatch_call.c: events of one choice. It may have ended when they return, and is there until
 * the end of the turn. --- */
void request_execute(struct dispatch *dispatch, struct request *request,
                     const struct life_actions *actions);
/* Ends it, with a reason that is static. */
void request_fail(struct dispatch *dispatch, struct request *request, enum terminal_status status,
                  const char *reason);
/* Puts it into the queue, for request->place. */
void request_wait_for_place(struct dispatch *dispatch, struct request *request);
/* Sends the deltas of all that are dirty. */
void requests_flush(struct dispatch *dispatch);
/* Does what is due: deadlines, pauses, keep-alives, clients that don't read their end. */
void requests_tick(struct dispatch *dispatch);
uint64_t requests_next_us(const struct dispatch *dispatch);
void requests_fail_all(struct dispatch *dispatch, enum reason reason);
/* A constraint was compiled: its requests may be placed, or end. */
void requests_constraint_checked(struct dispatch *dispatch, struct constraint_checked *checked);

/* --- dispatch_place.c --- */
void dispatch_place(struct dispatch *dispatch);
/* Shows the prefix index in the metrics. */
void dispatch_show_prefixes(struct dispatch *dispatch);
/* Brings the books of its workers up to date with the request. One that is over is taken out. */
void request_track(struct dispatch *dispatch, struct request *request);
/* True: its deadline ended it before it missed an objective. It says nothing of predictions, as a
 * client may give it any time. */
bool request_cut_short(const struct dispatch *dispatch, const struct request *request,
                       enum reason reason);
/* It ended, with this reason: placement learns how it went for its class. */
void request_teach(struct dispatch *dispatch, const struct request *request, enum reason reason);
static inline struct request *request_of(struct placement_request *placing)
{
    return (struct request *)((char *)placing - offsetof(struct request, placing));
}
/* Returns the facts on which the length of its answer depends. */
struct answer_ask request_answer(const struct request *request);
/* Returns the least time of its answer on a decode worker (deadline_estimate.h). If it is late
 * there: the least of all ready decode workers of known cost, as one slow worker is no proof. */
uint64_t request_least_us(const struct dispatch *dispatch, const struct request *request,
                          uint64_t decode);
/* True: it could be placed now, or wait for room, if its workers were gone. */
bool request_could_move(const struct dispatch *dispatch, const struct request *request);
/* Writes request->refusal for a request that ends because no worker was there, from the last
 * placement pass. */
void dispatch_explain_no_worker(const struct dispatch *dispatch, struct request *request);

/* Returns all that predictions know of it. */
struct predict_request request_predictable(struct dispatch *dispatch, struct request *request);

/* --- dispatch_decide.c --- */
enum status decisions_init(struct dispatch *dispatch) WARN_UNUSED;
/* Sets its rank in the queue. Call it before it waits. */
void request_rank(const struct dispatch *dispatch, struct request *request);
/* It has arrived. If others wait before it, and it would miss: rejects it. */
void request_judge_arrival(struct dispatch *dispatch, struct request *request);
/* Its workers are chosen: logs the decision. ADMISSION_REJECTED: it would miss, and has ended.
 * ADMISSION_HELD: it waits with the late ones. Otherwise it is to be placed. */
enum admission_verdict request_admit(struct dispatch *dispatch, struct request *request,
                                     struct decision *decision, const struct route_choice *choice);
/* Returns when it will have missed its TTFT. UINT64_MAX: it has a first token, or that is noted. */
uint64_t request_late_us(const struct dispatch *dispatch, const struct request *request);
/* Notes that it has missed its TTFT, if it has: its outcome is known before it ends. */
void request_note_late(struct dispatch *dispatch, struct request *request);
/* It ended, and its trace has the verdict of its class: learns from it. */
void request_outcome(struct dispatch *dispatch, struct request *request, enum reason reason);

/* --- dispatch_failures.c --- */
enum status failures_init(struct dispatch *dispatch, uint64_t now_us) WARN_UNUSED;
void failures_deinit(struct dispatch *dispatch);
/* Looks for workers that hang, and lets requests go on that the budget pays for now. */
void failures_tick(struct dispatch *dispatch);
/* Tells placement which workers and pairs get no requests now. Costs nothing if nothing has
 * changed, otherwise as much as there are ones that failed. */
void failures_apply(struct dispatch *dispatch);
uint64_t failures_next_us(const struct dispatch *dispatch);
/* Pays for a retry. False: the request is held, until failures_tick lets it wait for its place. */
bool request_pays(struct dispatch *dispatch, struct request *request);
/* The request ends, or has its place in the queue. */
void request_not_held(struct dispatch *dispatch, struct request *request);
/* The worker owes the request a token, and has said nothing of it for token-timeout. */
void request_is_silent(struct dispatch *dispatch, struct request *request, uint64_t key);
/* The worker has reported its load, or (NULL) its session has ended. */
void worker_reported_steps(struct dispatch *dispatch, struct worker *worker,
                           const struct step_report_seen *report);

/* --- dispatch_worker.c --- */
/* Checks each message against its request before it is believed. */
void worker_said(struct dispatch *dispatch, struct link_message *message);
void worker_link_ended(struct dispatch *dispatch, struct worker_link *link);
/* Tells a worker that drains, once, that it may leave when it is idle, if no request is left in its
 * books. `books` NULL: does nothing. */
void worker_dismiss(struct dispatch *dispatch, const struct candidate *books);
/* Executes a SEND_... action of the life. Sends nothing where the session is down. */
void worker_command(struct dispatch *dispatch, struct request *request,
                    const struct life_action *action);

#endif
