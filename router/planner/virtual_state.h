/* The state of a cluster in virtual time, and the functions that its three files share:
 * virtual_cluster.c has the order of events, virtual_router.c the router, virtual_worker.c the
 * workers. Only these include it. */
#ifndef BATON_ROUTER_PLANNER_VIRTUAL_STATE_H
#define BATON_ROUTER_PLANNER_VIRTUAL_STATE_H

#include "common/base/domain/link_model.h"
#include "router/planner/deadline_estimate.h"
#include "router/planner/virtual_cluster.h"

#define VIRTUAL_MODEL 0
#define VIRTUAL_KIND  1 /* model, layout and numerics of all workers */

struct virtual_node;

/* A prompt that is computed once, at one prefill worker or at its decode worker. Its rows may have
 * several readers, one after another. It lives as long as its call. */
struct virtual_run {
    struct virtual_call *call;
    struct virtual_run *next;                 /* the call's run before */
    struct virtual_node *prefill, *decode;    /* NULL: none */
    uint32_t prefill_attempt, decode_attempt; /* in their sequences' keys */
    uint32_t prompt_tokens, emitted_tokens;   /* emitted: the answer's part of prompt_tokens */
    uint32_t computed;                        /* rows in the prefill worker's blocks */
    uint32_t asked, landed;                   /* rows that the decode worker reads, and has */
    uint32_t first_token;
    bool complete; /* the prefill worker has drawn first_token */
    bool reserved; /* the decode worker has blocks */
    bool reads;    /* a read is under way: `flow` */
    bool whole;    /* all rows have landed */
    struct link_flow flow;
};

/* A request at the router. Freed when it has ended and nothing refers to it any more. */
struct virtual_call {
    uint64_t id;
    uint32_t references; /* its life, events, jobs and sequences */
    bool ended;
    struct virtual_call *next_ended; /* until the event is over */
    struct virtual_request asked;
    struct request_life life;
    enum request_state counted_state; /* when its state last set place_needed */
    struct placement_request placing;
    struct life_action place; /* the last PLACE or PLACE_DECODE */
    struct virtual_run *run;  /* the last one */
    bool reserved, prefilled, confirmed;
    uint64_t deadline_us, arrived_us, first_us, last_us, longest_gap_us;
    uint64_t tick_us; /* an event comes then; UINT64_MAX: none */
    uint32_t cached_tokens;
    uint64_t prefill, decode;
    struct prompt_names names;
    struct admission_request admission;
    struct deadline_prompt due;  /* its prefill worker's; zeros: it has no deadline */
    struct answer_course course; /* its answer's */
};

enum virtual_job_kind {
    JOB_PREFILL,  /* compute the run's prompt and hand it off */
    JOB_DECODE,   /* read the run's rows, or compute them, and decode */
    JOB_RELEASE,  /* end all attempts up to `attempt` */
    JOB_LANDED,   /* the run's rows are here: decode */
    JOB_CONFIRMED /* the run's rows were read: give the blocks back */
};
struct virtual_job {
    enum virtual_job_kind kind;
    struct virtual_run *run;
    uint32_t attempt;
};

enum virtual_event_kind { EVENT_JOB, EVENT_STEP, EVENT_LINK, EVENT_WAKE, EVENT_TICK };
struct virtual_event {
    uint64_t at_us, order; /* order: of events at one time */
    enum virtual_event_kind kind;
    struct virtual_node *node; /* NULL: TICK */
    struct virtual_call *call; /* TICK */
    struct virtual_job job;
};

struct virtual_node {
    struct virtual_worker is;
    uint64_t key;
    struct scheduler *scheduler;
    struct virtual_job *jobs; /* [job_count]: they wait for the end of the step */
    uint32_t job_count, job_capacity;
    bool stepping;
    const struct step_plan *plan;
    struct step_shape shape;
    uint64_t took_us, swap_us, steps;
    struct link_model link;     /* into it */
    struct virtual_run **reads; /* [read_count]: runs with a flow in the link */
    uint32_t read_count, read_capacity;
    uint64_t link_us; /* an event comes then; UINT64_MAX: none */
    uint64_t wake_us; /* an event comes then; 0: none */
    struct lane_speed lane;
    struct worker_learnt learnt; /* the router's */
};

struct virtual_cluster {
    struct virtual_config config;
    struct virtual_node *nodes; /* [config.worker_count] */
    struct placement placement;
    struct admission_class admissions[SLO_MAX_CLASSES];
    bool knows_class[SLO_MAX_CLASSES]; /* it has its admission */
    struct rng rng;                    /* draws of admission */
    struct prefix_hash root;
    uint32_t end_id;
    struct virtual_event *events; /* [event_count]: a heap by time and order */
    uint32_t event_count, event_capacity;
    uint64_t event_order;
    struct virtual_call **calls; /* [figures.arrived] by id; NULL: freed */
    uint64_t call_capacity;
    bool place_needed;
    uint32_t looks;             /* since the last event */
    struct virtual_call *ended; /* in this event */
    struct virtual_figures figures;
};

/* --- virtual_cluster.c --- */

/* Makes room for one item more. There is no test without memory: a simulation ends then. */
void *virtual_grow(void *items, size_t count, size_t size, uint32_t *capacity);
void virtual_post(struct virtual_cluster *cluster, struct virtual_event event);
void virtual_call_unref(struct virtual_cluster *cluster, struct virtual_call *call);

/* --- virtual_router.c --- */

/* The next request of the clients comes. */
void virtual_arrive(struct virtual_cluster *cluster);
void virtual_tick(struct virtual_cluster *cluster, struct virtual_call *call);
/* Places what waits, if anything has changed since the last time. */
void virtual_place(struct virtual_cluster *cluster);
/* Writes the run's prompt, with the tokens of the answer that were emitted before. */
void virtual_prompt(struct virtual_cluster *cluster, const struct virtual_run *run,
                    uint32_t *tokens);

/* A worker says: its blocks are reserved; rows are computed or read from now on. */
void virtual_opened(struct virtual_cluster *cluster, struct virtual_node *node,
                    struct virtual_run *run);
void virtual_token(struct virtual_cluster *cluster, struct virtual_node *node,
                   struct virtual_call *call, const struct life_token *token);
void virtual_pulled(struct virtual_cluster *cluster, struct virtual_run *run);
void virtual_refused(struct virtual_cluster *cluster, struct virtual_node *node,
                     struct virtual_call *call, uint32_t attempt, bool retry);
/* The sequence can't be whole at its deadline any more. */
void virtual_late(struct virtual_cluster *cluster, struct virtual_call *call, uint32_t attempt);
/* A step has ended, and its report is here. */
void virtual_reported(struct virtual_cluster *cluster, struct virtual_node *node);

/* --- virtual_worker.c --- */

enum status virtual_node_open(struct virtual_cluster *cluster, struct virtual_node *node,
                              struct error *err) WARN_UNUSED;
void virtual_node_close(struct virtual_node *node);
/* A job comes. It begins at once if no step runs. */
void virtual_node_job(struct virtual_cluster *cluster, struct virtual_node *node,
                      struct virtual_job job);
void virtual_node_step_done(struct virtual_cluster *cluster, struct virtual_node *node);
/* The time has come at which a waiting sequence is looked at again. */
void virtual_node_wake(struct virtual_cluster *cluster, struct virtual_node *node);
/* The time has come at which the node's link has something to tell. */
void virtual_node_link(struct virtual_cluster *cluster, struct virtual_node *node);

#endif
