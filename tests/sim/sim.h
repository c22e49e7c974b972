/* A whole cluster life from one plan: the real source, sink and request_life under a virtual clock,
 * with everything around them played: ordered streams with delays, step threads, block pools, a
 * byte plane, and faults of all kinds at any event.
 *
 * The byte plane carries tags instead of bytes: each block knows which reservation wrote it and how
 * far. A read copies every block at its own moment. So if the protocol allows it, a read sees bytes
 * of another use of a block. A checksum finds flipped bytes only: it isn't trusted to find stale
 * ones.
 *
 * A plan is made from a seed (sim_plan.c). It names workers, requests, faults. The duration of each
 * event is drawn when it happens, by number and from the seed, so that a smaller plan still takes
 * the same course (sim_shrink.c). The list of invariants is below; sim_check.c checks them after
 * every event. */
#ifndef BATON_TESTS_SIM_H
#define BATON_TESTS_SIM_H

#include "common/base/rng.h"
#include "common/base/str.h"
#include "common/kv/handoff/sink.h"
#include "common/kv/handoff/source.h"
#include "router/planner/breaker.h"
#include "router/planner/retry_budget.h"
#include "router/planner/step_watch.h"

#include <setjmp.h>
#include <signal.h>

#define SIM_BLOCK_TOKENS  4
#define SIM_MAX_PROMPT    40 /* tokens of the longest prompt, emitted ones included */
#define SIM_MAX_BLOCKS    16 /* blocks in one sequence */
#define SIM_POOL_BLOCKS   64 /* most blocks of a worker */
#define SIM_MAX_REQUESTS  8
#define SIM_MAX_WORKERS   6 /* process 0 is the router, 1.. are workers */
#define SIM_MAX_STREAMS   1024
#define SIM_MAX_JOBS      64 /* jobs in a step thread between crashes; slots are reused */
#define SIM_MAX_READS     64 /* reads in one decode worker */
#define SIM_MAX_HANDLES   512
#define SIM_MAX_LEFT      16
#define SIM_NONE          UINT32_MAX
#define SIM_LEASE_US      500000
#define SIM_HEARTBEAT_US  50000
#define SIM_SILENCE_US    400000
#define SIM_PEER_DOWN_US  300000
#define SIM_RECONNECT_US  10000
#define SIM_NO_WORKER_US  3000000
#define SIM_DEADLINE_US   30000000
#define SIM_READ_LIMIT_US 100000
/* work on a request stops so long after its end: less than a lease, which would stop it anyway */
#define SIM_STOP_US 300000
/* all blocks are free so long after the last end, fault or restart: a lease, and a little */
#define SIM_FREE_US       (SIM_LEASE_US + 200000)
#define SIM_REST_LIMIT_US 90000000 /* by then the cluster is at rest */
#define SIM_DRAIN_US      300000   /* a draining worker's wait for its last handle or sequence */
#define SIM_LOAD_US       50000    /* a worker with work reports its load so often */
#define SIM_STEP_LIMIT_US 300000   /* a step that takes longer hangs */
#define SIM_STEP_US       6000     /* the longest step of a prefill worker */
#define SIM_LONG_TIMES    45       /* a step of a long prompt takes so many times as long */
#define SIM_LONG_US       (SIM_STEP_US * SIM_LONG_TIMES)
#define SIM_SIGN_LIMIT_US 4000000 /* a request that hears nothing for so long is lost */
#define SIM_PROGRESS      3       /* tokens after which limits begin anew */
#define SIM_MAX_EVENTS    400000
#define SIM_MAX_FAULTS    12
#define SIM_MAX_DRAWS     512 /* draws per kind and process that a plan can make plain */

/* --- invariants --- */

enum sim_invariant {
    HOLDS_ALL,
    /* a running sequence reads the bytes of its handle, complete, from one generation */
    HOLDS_BYTES,
    HOLDS_LANDING, /* a block that a read is in flight into is not given away */
    /* a block has one owner, which knows of it; a lease after the end all are free */
    HOLDS_FREE,
    HOLDS_TERMINAL, /* one end for each request, explained by the events */
    HOLDS_INDICES,  /* tokens reach a client once each, in order */
    /* nothing waits for ever: a request that waited for its deadline had lost a message */
    HOLDS_WAITS,
    HOLDS_RUNS,    /* k faults cost a request at most k more prefills */
    HOLDS_READER,  /* a handle is held for one reader only, the newest */
    HOLDS_CONFIRM, /* no batch before `held`, and no read after Confirm was asked */
    HOLDS_OLD,     /* a message of an older attempt changes nothing */
    HOLDS_FENCE,   /* a handle that never existed gets nothing */
    HOLDS_STOP,    /* soon after the end of a request no worker works on it */
    HOLDS_ORDER,   /* room on decode is reserved for open handles only */
    HOLDS_GRANT,   /* a source lets a reader read only full blocks of a handle that is its own */
    HOLDS_BLAME,   /* only a worker that a fault has struck is kept out */
    HOLDS_PROBE,   /* an open worker gets one request at a time, while there are others */
    HOLDS_BUDGET,  /* retries that the budget pays for stay within it */
    HOLDS_LIMITS,  /* progress and planned moves use up no limit of a request */
    HOLDS_ASSERT,  /* no assertion of the code is reached */
    HOLDS_COUNT
};
const char *sim_invariant_name(enum sim_invariant invariant); /* "bytes", "landing", ... */

/* --- plans --- */

enum sim_fault_kind {
    FAULT_CRASH,        /* and restart, as another incarnation */
    FAULT_PAUSE,        /* SIGSTOP, SIGCONT; of the router too */
    FAULT_GIVE_UP,      /* the router closes the session of a worker that lives */
    FAULT_SESSION_LOST, /* breaks; each end learns it in its own time */
    FAULT_PEER_LOST,    /* the same for a Peer stream */
    FAULT_DROP_SESSION, /* one message vanishes although its stream lives */
    FAULT_DROP_PEER,    /* the same on a Peer stream */
    FAULT_DUPLICATE,    /* one message comes twice, the second one late */
    FAULT_DELAY,        /* one direction of a stream stalls: others overtake it */
    FAULT_READ_HANGS,   /* past its deadline: forced close, which fails all reads of the pair */
    FAULT_LANE_LOST,    /* the pairing closes by itself */
    FAULT_FLIP,         /* a block is damaged on the way */
    FAULT_LEASE,        /* all leases of a prefill worker run out */
    FAULT_PREFILL_STEP, /* a forward pass fails */
    FAULT_DECODE_STEP,
    FAULT_NO_ROOM,    /* a step thread refuses a reservation for now */
    FAULT_NO_PAIRING, /* no byte path */
    FAULT_FORGERY,    /* a question names a handle that never was */
    FAULT_MISMATCH,   /* a worker comes back with another model, layout or numerics for a while */
    FAULT_DRAIN, /* a worker leaves when its last handle or sequence is done, or its time is over */
    FAULT_ROUTER_RESTART, /* its requests end with it */
    FAULT_HANG,           /* the step thread of a worker hangs, its other threads go on */
    FAULT_BROKEN_DEVICE,  /* every step of a worker fails for a while */
    FAULT_COUNT
};
const char *sim_fault_name(enum sim_fault_kind kind); /* "crash", "pause", ... */

struct sim_fault {
    enum sim_fault_kind kind;
    bool fixed;         /* false: the seed decides: */
    uint32_t gap;       /* events after the one before */
    uint32_t pick;      /* index among the possible victims */
    uint32_t skip;      /* chances to pass over from then on */
    uint64_t length_us; /* length of a pause, a stall, a mismatch */
    /* fixed, or filled in by a run: */
    bool happened; /* it found a victim, and had its chance */
    uint64_t at_us;
    uint32_t victim, other; /* processes: worker, or the two ends of the stream */
};

/* Kinds of random draws during a life. */
enum sim_draw {
    DRAW_NETWORK, /* how long messages travel */
    DRAW_LOSS,    /* how late an end learns that its stream is gone */
    DRAW_RING,    /* between the two threads of a worker */
    DRAW_COMPUTE, /* chunks and rows */
    DRAW_READ,    /* reads, and checks of the bytes read */
    DRAW_CONNECT, /* dialling, pairing, restarts */
    DRAW_PLACE,   /* which worker */
    DRAW_BLOCKS,  /* which blocks */
    DRAW_CACHED,  /* how much of a prompt decode has already */
    DRAW_COUNT
};

struct sim_plan {
    uint64_t seed, draws; /* draws: the seed of draws during the life */
    bool tiny;            /* tables so small that refusals are right */
    bool binds_late;      /* the decode worker is chosen again when the prefill starts */
    bool guarded; /* sources send the bytes, if source_may_read; otherwise pools are mapped */
    bool slow; /* sequences hold their blocks for so long that others wait for more than a lease */
    bool long_prompt;           /* request 0's takes about as long as a worker may be silent */
    uint32_t prefills, decodes; /* process 0 is the router, then come these */
    uint32_t pool_blocks[SIM_MAX_WORKERS + 1];
    uint32_t read_blocks[SIM_MAX_WORKERS + 1]; /* most blocks in one read */
    uint32_t request_count;
    struct {
        bool left_out;
        uint32_t prompt_count, length;               /* tokens of the prompt and of the answer */
        uint64_t arrival_us, cancel_us, deadline_us; /* the latter two after arrival; 0: none */
    } requests[SIM_MAX_REQUESTS];
    uint32_t fault_count;
    struct sim_fault faults[SIM_MAX_FAULTS];
    /* Draws that give the least value instead of the seed's: */
    uint8_t plain[DRAW_COUNT][SIM_MAX_WORKERS + 1][SIM_MAX_DRAWS];
};

void sim_plan_make(struct sim_plan *plan, uint64_t seed);
void sim_plan_print(const struct sim_plan *plan);

/* --- messages --- */

enum sim_message_kind {
    MESSAGE_PREFILL, /* router -> worker */
    MESSAGE_DECODE,
    MESSAGE_RELEASE,
    MESSAGE_OPENED, /* worker -> router */
    MESSAGE_REFUSED,
    MESSAGE_TOKEN,
    MESSAGE_LOST,
    MESSAGE_DRAINING,
    MESSAGE_PEER_DOWN, /* decode -> prefill */
    MESSAGE_PEER_UP,   /* prefill -> decode */
};

struct sim_message {
    enum sim_message_kind kind;
    uint64_t request;
    uint32_t attempt;
    uint32_t emitted_count, token_count; /* PREFILL, DECODE; token_count = prompt + emitted */
    bool has_handle;
    struct handle handle; /* its blocks point nowhere: use `blocks` */
    uint32_t blocks[SIM_MAX_BLOCKS];
    uint32_t serial;  /* known to the simulation only: the reservation behind the handle */
    uint32_t source;  /* DECODE: process of the prefill worker */
    uint32_t variant; /* OPENED: the worker's variant */
    struct life_token token;
    bool retry, misfit; /* REFUSED */
    bool step_failed;   /* LOST */
    const char *reason; /* LOST, REFUSED; static */
    struct peer_down down;
    struct peer_up up;
};

struct sim_stream {
    uint32_t dialer, acceptor; /* processes */
    uint32_t epochs[2];        /* each end's epoch */
    bool known_lost[2];
    bool session;                  /* a Session of the router; otherwise a Peer stream */
    uint64_t opened_us, broken_us; /* UINT64_MAX: alive */
    uint64_t last_us[2]; /* delivery of the latest message from either: streams are ordered */
    uint64_t seen_us[2]; /* sending of the latest message that came to either end */
};

/* --- events --- */

enum sim_event_kind {
    EVENT_MESSAGE,
    EVENT_STREAM_LOST, /* one end learns it */
    EVENT_DIAL,        /* router to worker `index` */
    EVENT_ARRIVE,      /* request `index` */
    EVENT_CANCEL,
    EVENT_PLACE,
    EVENT_LIFE_TICK,
    EVENT_STOPPED,   /* by now no worker works on request `index` any more */
    EVENT_TICK,      /* transfer thread of the process */
    EVENT_TO_STEP,   /* transfer thread -> step thread */
    EVENT_FROM_STEP, /* and back */
    EVENT_CHUNK,     /* prefill's step thread: job `index` goes on */
    EVENT_ROW,       /* decode's step thread: job `index` draws its next token */
    EVENT_CONNECTED, /* decode: the Peer stream to process `index` is up, or not */
    EVENT_PAIRED,
    EVENT_PAIR_CLOSED,
    EVENT_COPY, /* block `value` of read `index` lands */
    EVENT_READ_END,
    EVENT_VERIFIED,
    EVENT_RESTART,
    EVENT_REGISTERED, /* the router learns what worker `index` serves now */
    EVENT_DRAINED,    /* is its last work done? */
    EVENT_LOAD,       /* a worker reports its load; not a message, so that no fault strikes it */
    EVENT_WATCH,      /* the router looks whether worker `index` hangs */
    EVENT_BUDGET,     /* the router looks whether there is a token for a retry */
    EVENT_FAULT,      /* number `index` of a fixed plan */
};

enum sim_step_kind { /* value of TO_STEP and FROM_STEP */
                     STEP_START,
                     STEP_FREE,
                     STEP_RESERVE,
                     STEP_UNRESERVE,
                     STEP_ADMIT,
                     STEP_RESERVED, /* back */
                     STEP_COMPUTED,
                     STEP_COMPLETED,
                     STEP_FAILED,
                     STEP_REFUSED,
                     STEP_FINISHED,
};

struct sim_event {
    uint64_t at_us, due_us, order; /* due_us: at_us before a pause put it off */
    uint64_t sent_us;
    enum sim_event_kind kind;
    uint32_t process, epoch; /* the process that it happens to; another epoch: dropped */
    uint32_t stream, index, value, serial;
    uint64_t cookie;
    enum status status;
    struct sim_message message;
};

/* --- workers --- */

struct sim_tag {
    uint32_t serial; /* the reservation that wrote it */
    uint32_t block;  /* index in the prompt */
    uint32_t fill;   /* tokens */
    bool flipped;
};

struct sim_block {
    uint32_t owner; /* serial of the job, 0: free */
    uint32_t landing;
    struct sim_tag tag;
};

struct sim_job {     /* held by a step thread for (request, attempt) */
    uint32_t serial; /* 0: unused */
    uint64_t request;
    uint32_t attempt, emitted_count, token_count, reserve_tokens;
    uint32_t block_count; /* 0: waits */
    uint32_t blocks[SIM_MAX_BLOCKS];
    uint32_t held_blocks; /* decode: the first ones had their bytes already; others may read them */
    uint32_t computed_tokens; /* prefill */
    bool failed;              /* prefill: no chunk follows, and the source has been told */
    /* decode: the reservation on prefill with its bytes; 0: computes them */
    uint32_t source_serial;
    bool running; /* decode: admitted */
    uint32_t next_index;
    uint64_t arrival; /* order in the queue */
};

struct sim_read {
    bool used;
    uint32_t generation; /* the slot's generation: an event of an earlier read is dropped */
    uint32_t source;     /* process */
    uint64_t cookie, grant;
    uint64_t request;
    bool refused;   /* the source has refused a block of it */
    uint32_t owner; /* serial of the job that owns the landing blocks */
    uint32_t count;
    uint32_t remote[SIM_MAX_BLOCKS], local[SIM_MAX_BLOCKS];
    bool closed; /* by force: nothing lands any more, its end is on the way */
};

enum sim_pair { PAIR_IS_DOWN, PAIR_IS_ASKED, PAIR_IS_UP, PAIR_IS_CLOSING };

struct sim_handle { /* every handle that was ever opened */
    struct handle_ref ref;
    uint64_t request;
    uint32_t serial;       /* the reservation's serial */
    uint32_t reader;       /* the newest attempt with an accepted Subscribe */
    uint32_t reads;        /* the process that sent it */
    uint32_t held_attempt; /* the attempt that was answered HELD; 0: none */
};

struct sim_process {
    bool up;
    bool is_prefill;
    uint32_t epoch;
    uint64_t paused_until_us;
    uint64_t incarnation;
    /* variant that it serves: 0 the usual, 1 another model, 2 another layout, 3 other
     * numerics */
    uint32_t variant;
    bool draining;
    uint64_t drain_end_us;
    uint64_t tick_us;                  /* time of the scheduled tick; UINT64_MAX: none */
    uint64_t to_step_us, from_step_us; /* the rings are ordered: when their latest message comes */
    uint64_t hung_us, hung_until_us;   /* the step thread hangs from then, until then */
    uint64_t broken_until_us;          /* its steps fail */
    uint64_t steps_done;
    bool reports;     /* an EVENT_LOAD is due */
    uint32_t session; /* stream as this worker sees it, or SIM_NONE */
    uint32_t pool_blocks;
    struct sim_block blocks[SIM_POOL_BLOCKS];
    struct sim_job jobs[SIM_MAX_JOBS];
    uint32_t newest[SIM_MAX_REQUESTS]; /* newest attempt that it knows */
    /* prefill */
    struct source_table *sources;
    struct source_actions source_out;
    uint32_t computing; /* job, or SIM_NONE */
    /* decode */
    struct sink_table *sinks;
    struct sink_actions sink_out;
    struct sim_read reads[SIM_MAX_READS];
    uint32_t peers[SIM_MAX_WORKERS + 1]; /* stream to each prefill process, or SIM_NONE */
    enum sim_pair pairs[SIM_MAX_WORKERS + 1];
    /* incarnations of the pairs; they may have died since */
    uint64_t pair_incarnations[SIM_MAX_WORKERS + 1];
    uint32_t pair_streams[SIM_MAX_WORKERS + 1]; /* their Welcomes admitted the pairs */
    uint32_t peer_uses[SIM_MAX_WORKERS + 1];    /* counts CLOSE: events from before are dropped */
    uint32_t confirmed[SIM_MAX_REQUESTS];       /* the attempt that has asked Confirm */
};

struct sim_request {
    struct request_life life;
    uint32_t prompt_count, length; /* tokens of the answer */
    struct sim_message handle;     /* from the last accepted Opened */
    bool arrived, cancelled;
    uint32_t delivered, finishes; /* as its client saw them */
    uint64_t tick_us, finish_us, deadline_us;
    uint32_t tries;  /* failed ones since progress: not planned moves */
    uint32_t losses; /* lost workers, since progress */
    uint32_t failed_at;
    bool bound;        /* its decode worker was chosen after Opened */
    bool budget_waits; /* for a token; then its place: */
    struct life_action budget_place;
    uint64_t left_queue_of; /* this worker's queue was empty during: */
    uint32_t left_queue_attempt;
    bool router_died; /* and the request with it */
    uint32_t costs;   /* decode workers lost under it after their first token */
    struct {          /* and before it: costs a run if it had been answered HELD */
        struct handle_ref ref;
        uint32_t attempt;
    } left[SIM_MAX_LEFT];
    uint32_t left_count;
};

/* --- the whole --- */

struct sim_totals { /* over many runs, to check that each kind of event happened */
    uint64_t runs, events, overtaken, cancels, deadlines;
    uint64_t happened[FAULT_COUNT];
    uint64_t ok, cancelled, unavailable, internal, overloaded, deadline, router_died;
    uint64_t admitted, admitted_local, ended_with_first_token, bound_late, regiven, rerun, orphans,
        rereads, held_again, refused_blocks;
    uint64_t probed, kept_out, apart, hung, silent, moved, unpaid, begun_anew;
    uint64_t gone, expired, dropped, early_bytes;
    uint64_t lost_by_reason[SINK_REASON_INVALID + 1];
};

struct sim {
    const struct sim_plan *plan;
    bool trace;
    uint64_t now_us, order, event_count;
    uint32_t actor; /* the process that the event under way happens to */
    uint32_t drawn[DRAW_COUNT][SIM_MAX_WORKERS + 1];
    struct sim_event **heap;
    uint32_t heap_count, heap_capacity;
    struct sim_stream streams[SIM_MAX_STREAMS];
    uint32_t stream_count;
    uint32_t worker_count, request_count;
    struct sim_process processes[SIM_MAX_WORKERS + 1];
    uint32_t sessions[SIM_MAX_WORKERS + 1]; /* as the router sees them, and: */
    bool misfits[SIM_MAX_WORKERS + 1][SIM_MAX_WORKERS + 1];
    struct breakers breakers;
    struct step_watch watches[SIM_MAX_WORKERS + 1];
    bool struck[SIM_MAX_WORKERS + 1];        /* a fault has struck the worker, or its links */
    uint64_t queued_us[SIM_MAX_WORKERS + 1]; /* its last report of a queue; 0: none */
    uint64_t watch_us[SIM_MAX_WORKERS + 1];  /* time of its EVENT_WATCH; UINT64_MAX: none */
    struct retry_budget budget;
    uint32_t arrivals, paid; /* retries that the budget paid for */
    uint32_t variants[SIM_MAX_WORKERS + 1];
    bool leaving[SIM_MAX_WORKERS + 1];
    uint64_t away_since_us[SIM_MAX_WORKERS + 1];
    struct sim_request requests[SIM_MAX_REQUESTS];
    uint32_t last_serial;
    struct sim_handle handles[SIM_MAX_HANDLES];
    uint32_t handle_count;
    struct sim_fault faults[SIM_MAX_FAULTS]; /* the plan's faults, with their results */
    bool armed[SIM_MAX_FAULTS];              /* waits for its chance */
    uint32_t next_fault;
    uint64_t next_fault_event;
    /* since then nothing new has happened: no end of a request, no fault, no restart */
    uint64_t calm_us;
    uint64_t freed_us;      /* when the latest blocks were freed */
    uint64_t hung_us;       /* steps that didn't end, all together */
    uint32_t fault_count;   /* faults begun */
    uint32_t costs;         /* faults that may cost any request a run */
    uint32_t reread_faults; /* flips, hangs, lost lanes and Peer streams: the first is free */
    bool message_lost, mismatched, stalled; /* on a Session, or anywhere */
    sigjmp_buf bail;
    enum sim_invariant broken;
    char failure[512];
    struct sim_totals *totals;
};

/* The result of one life. */
struct sim_result {
    enum sim_invariant broken; /* HOLDS_ALL: all is well */
    char failure[512];
    uint64_t event_count;
    uint32_t drawn[DRAW_COUNT][SIM_MAX_WORKERS + 1];
    struct sim_fault faults[SIM_MAX_FAULTS];
};

/* Invariants that are not checked, a bit each: shows the consequences when one of them is
 * broken. */
extern uint32_t sim_ignored;

/* Runs the life of the plan. `trace` prints every event. */
void sim_run(const struct sim_plan *plan, bool trace, struct sim_totals *totals,
             struct sim_result *result);
/* Makes the plan of a failing life smaller, as long as the same invariant breaks. Runs at most
 * `runs` lives. */
void sim_shrink(struct sim_plan *plan, const struct sim_result *failed, uint32_t runs);

/* --- sim.c: the life --- */
/* Ends the life, unless that invariant is ignored. */
void sim_fail(struct sim *sim, enum sim_invariant invariant, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Reports a new event that lasts until `until_us`: blocks may stay taken for a while after that. */
void sim_disturbed(struct sim *sim, uint64_t until_us);
/* Ends the test: the simulation itself is wrong, or too small. */
_Noreturn void sim_give_up(const char *what);
void sim_trace(struct sim *sim, uint32_t process, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void sim_start(struct sim *sim, uint32_t process, uint32_t variant);
void sim_stop(struct sim *sim, uint32_t process);

/* --- sim_clock.c: draws, events, streams --- */
uint64_t sim_between(struct sim *sim, enum sim_draw draw, uint64_t low,
                     uint64_t high); /* both included */
bool sim_chance(struct sim *sim, enum sim_draw draw, uint32_t percent);
/* Adds an event after `delay_us` for the present life of the process. The caller fills it. */
struct sim_event *sim_push(struct sim *sim, enum sim_event_kind kind, uint32_t process,
                           uint64_t delay_us);
/* The same between the two threads of a worker, in order. */
struct sim_event *sim_push_ring(struct sim *sim, enum sim_event_kind kind, uint32_t process);
void sim_schedule_tick(struct sim *sim, uint32_t process, uint64_t next_us);
struct sim_event *sim_next_event(struct sim *sim); /* taken out */
void sim_put_off(struct sim *sim, struct sim_event *event, uint64_t until_us);
uint32_t sim_open_stream(struct sim *sim, uint32_t dialer, uint32_t acceptor);
void sim_break_stream(struct sim *sim, uint32_t stream); /* each end learns it later */
void sim_send(struct sim *sim, uint32_t stream, uint32_t from, const struct sim_message *message);
/* Return whether the event's stream still delivers it, and whether this end learns of the stream's
 * loss for the first time. */
bool sim_arrives(struct sim *sim, const struct sim_event *event);
bool sim_learns_loss(struct sim *sim, const struct sim_event *event);

/* --- sim_faults.c --- */
void sim_faults_begin(struct sim *sim);
void sim_faults_due(struct sim *sim); /* after each event */
void sim_fault_at(struct sim *sim, uint32_t index);
/* Returns a fault of that kind that has waited for this chance, at this process (of this pair);
 * NULL: none. */
struct sim_fault *sim_fault_hits(struct sim *sim, enum sim_fault_kind kind, uint32_t process,
                                 uint32_t other);
void sim_drained(struct sim *sim, uint32_t process);
void sim_crash(struct sim *sim, uint32_t process, uint32_t variant); /* starts again as `variant` */

/* --- sim_check.c --- */
void sim_check_process(struct sim *sim, uint32_t process); /* after each of its events */
void sim_check_requests(struct sim *sim);
void sim_check_bytes(struct sim *sim, uint32_t process, const struct sim_job *job);
void sim_check_stopped(struct sim *sim, uint32_t request);
void sim_check_rest(struct sim *sim);

/* --- sim_words.c: one line of text each --- */
uint32_t sim_token_id(uint64_t request, uint32_t index);
const char *sim_name(const struct sim *sim, uint32_t process); /* "router", "p1", "d3": static */
void sim_say_message(struct str *text, const struct sim_message *message);
/* Return false if there is nothing to print now, for instance if the arrival prints it. */
bool sim_say_source(const struct sim *sim, struct str *text, const struct source_action *action);
bool sim_say_sink(const struct sim *sim, struct str *text, const struct sink_action *action);
bool sim_say_life(struct str *text, const struct life_action *action);

/* --- sim_pool.c: blocks and jobs of a step thread --- */
/* True: the step of the job that is under way fails, as the device is broken. */
bool sim_step_breaks(struct sim *sim, const struct sim_process *process, const struct sim_job *job);
struct sim_job *sim_job_add(struct sim *sim, struct sim_process *process, uint64_t request,
                            uint32_t attempt);
struct sim_job *sim_job_find(struct sim_process *process, uint64_t request, uint32_t attempt);
/* Frees its blocks. The job is unused after that. */
void sim_job_end(struct sim *sim, struct sim_process *process, struct sim_job *job);
/* Returns the job that waits the longest if there are blocks for it, and gives them to it. NULL
 * otherwise. */
struct sim_job *sim_reserve_next(struct sim *sim, struct sim_process *process);
uint32_t sim_blocks_for(uint32_t tokens);
struct sim_handle *sim_find_handle(struct sim *sim, uint64_t request, struct handle_ref ref);

/* --- sim_prefill.c, sim_decode.c, sim_decode_step.c, sim_bytes.c, sim_router.c --- */
void sim_prefill_start(struct sim *sim, uint32_t process);
void sim_prefill_stop(struct sim *sim, uint32_t process);
void sim_prefill_event(struct sim *sim, struct sim_event *event);
void sim_prefill_session_lost(struct sim *sim, uint32_t process);
void sim_prefill_expire_leases(struct sim *sim, uint32_t process);
bool sim_prefill_fail_step(struct sim *sim, uint32_t process); /* false: it computes nothing */
void sim_decode_start(struct sim *sim, uint32_t process);
void sim_decode_stop(struct sim *sim, uint32_t process);
void sim_decode_event(struct sim *sim, struct sim_event *event);
void sim_decode_session_lost(struct sim *sim, uint32_t process);
bool sim_decode_fail_step(struct sim *sim, uint32_t process); /* false: it runs nothing */
void sim_decode_to_step(struct sim *sim, uint32_t process, const struct sim_event *event);
void sim_decode_row(struct sim *sim, uint32_t process, const struct sim_event *event);
void sim_bytes_read(struct sim *sim, uint32_t process, const struct sink_action *action);
void sim_bytes_land(struct sim *sim, uint32_t process, const struct sim_event *event);
/* All reads of the pair end with `status`, then the pairing is closed. */
void sim_decode_close_pair(struct sim *sim, uint32_t process, uint32_t source, enum status status);
/* The source has lost this Peer stream: it closes the pairing that the Welcome admitted. */
void sim_bytes_revoke(struct sim *sim, uint32_t source, uint32_t stream);
void sim_router_begin(struct sim *sim);
void sim_router_event(struct sim *sim, struct sim_event *event);
void sim_router_session_lost(struct sim *sim, uint32_t worker); /* it knows at once */
void sim_router_restart(struct sim *sim);
void sim_router_load(struct sim *sim, uint32_t worker); /* its report arrives */

#endif
