/* A whole cluster life from one seed: the real source, sink and request_life under a virtual clock, with everything around them
 * played: ordered streams with delays, step threads, block pools, a byte plane, and faults of all kinds at any event.
 *
 * The byte plane carries tags instead of bytes: each block knows which reservation wrote it and how far. A read copies every block
 * at its own moment, so bytes of another use of a block are seen if the protocol lets them be seen. A checksum finds flipped bytes
 * only: it isn't trusted to find stale ones.
 *
 * Checked at every event: no sequence enters a batch with other bytes than its handle's; no landing block is given away; a handle is
 * held for one reader, the newest; tokens reach the client once each, in order; one terminal status each; soon after it, workers that
 * could hear of it have stopped and freed. Checked at rest: every table, queue and
 * block is free; without a fault or a cancel every request ended OK; a fault costs a request at most one more run, and a lost Peer
 * stream, a lost Session, a lost decode worker before its first token, or one read gone wrong cost none; nobody waited for the deadline unless a message vanished on
 * a stream that lived. */
#ifndef BATON_TESTS_SIM_H
#define BATON_TESTS_SIM_H

#include "common/base/rng.h"
#include "common/base/str.h"
#include "common/handoff/sink.h"
#include "common/handoff/source.h"
#include "router/request_life.h"

#include <setjmp.h>

#define SIM_BLOCK_TOKENS  4
#define SIM_MAX_PROMPT    40 /* tokens of the longest prompt, emitted ones included */
#define SIM_MAX_BLOCKS    16 /* of one sequence */
#define SIM_POOL_BLOCKS   64 /* of one worker, at most */
#define SIM_MAX_REQUESTS  8
#define SIM_MAX_WORKERS   6 /* process 0 is the router, 1.. are workers */
#define SIM_MAX_STREAMS   1024
#define SIM_MAX_JOBS      64 /* of one step thread, over its life between crashes; slots are reused */
#define SIM_MAX_READS     64 /* of one decode worker */
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
#define SIM_STOP_US                                                                                \
    300000 /* after the end of a request; less than a lease, which would do it otherwise */
#define SIM_REST_LIMIT_US 90000000 /* by then the cluster is at rest */

/* ------------------------------------------------------------------------------------- what travels */

enum sim_message_kind {
    MESSAGE_PREFILL, /* router -> worker */
    MESSAGE_DECODE,
    MESSAGE_RELEASE,
    MESSAGE_OPENED, /* worker -> router */
    MESSAGE_REFUSED,
    MESSAGE_TOKEN,
    MESSAGE_LOST,
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
    uint32_t serial; /* what only the simulation knows: the reservation behind the handle */
    uint32_t source; /* DECODE: process of the prefill worker */
    struct life_token token;
    bool retry;
    struct peer_down down;
    struct peer_up up;
};

struct sim_stream {
    uint32_t dialer, acceptor; /* processes */
    uint32_t epochs[2];        /* of either */
    bool known_lost[2];
    uint64_t opened_us, broken_us; /* UINT64_MAX: alive */
    uint64_t last_us[2]; /* delivery of the latest message from either: streams are ordered */
};

/* ------------------------------------------------------------------------------------------- events */

enum sim_event_kind {
    EVENT_MESSAGE,
    EVENT_STREAM_LOST, /* one end learns it */
    EVENT_DIAL,        /* router to worker `index` */
    EVENT_ARRIVE,      /* request `index` */
    EVENT_CANCEL,
    EVENT_PLACE,
    EVENT_LIFE_TICK,
    EVENT_STOPPED,   /* by now nobody works on request `index` any more */
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
                     STEP_FINISHED,
};

struct sim_event {
    uint64_t at_us, due_us, order; /* due_us: at_us before a pause put it off */
    enum sim_event_kind kind;
    uint32_t process, epoch; /* of whom it happens to; another epoch: dropped */
    uint32_t stream, index, value, serial;
    uint64_t cookie;
    enum status status;
    struct sim_message message;
};

/* ------------------------------------------------------------------------------------------ workers */

struct sim_tag {
    uint32_t serial; /* of the reservation that wrote it */
    uint32_t block;  /* index in the prompt */
    uint32_t fill;   /* tokens */
    bool flipped;
};

struct sim_block {
    uint32_t owner; /* serial of the job, 0: free */
    uint32_t landing;
    struct sim_tag tag;
};

struct sim_job {     /* what a step thread holds for (request, attempt) */
    uint32_t serial; /* 0: unused */
    uint64_t request;
    uint32_t attempt, emitted_count, token_count, reserve_tokens;
    uint32_t block_count; /* 0: waits */
    uint32_t blocks[SIM_MAX_BLOCKS];
    uint32_t computed_tokens; /* prefill */
    uint32_t
        source_serial; /* decode: the reservation on prefill that it must have the bytes of; 0: computes them */
    bool running; /* decode: admitted */
    uint32_t next_index;
    uint64_t arrival; /* order in the queue */
};

struct sim_read {
    bool used;
    uint32_t generation; /* of the slot: an event of an earlier read is dropped */
    uint32_t source;     /* process */
    uint64_t cookie;
    uint32_t owner; /* serial of the job whose blocks are landing */
    uint32_t count;
    uint32_t remote[SIM_MAX_BLOCKS], local[SIM_MAX_BLOCKS];
    bool closed; /* by force: nothing lands any more, its end is on the way */
};

enum sim_pair { PAIR_IS_DOWN, PAIR_IS_ASKED, PAIR_IS_UP, PAIR_IS_CLOSING };

struct sim_handle { /* every handle that was ever opened */
    struct handle_ref ref;
    uint64_t request;
    uint32_t reader;       /* the newest attempt whose Subscribe was answered well */
    uint32_t held_attempt; /* the one that was answered HELD; 0: none */
};

struct sim_process {
    bool up;
    bool is_prefill;
    uint32_t epoch;
    uint64_t paused_until_us;
    uint64_t incarnation;
    uint64_t tick_us;                  /* of the scheduled tick; UINT64_MAX: none */
    uint64_t to_step_us, from_step_us; /* the rings are ordered: when their latest message comes */
    uint32_t session;                  /* stream as this worker sees it, or SIM_NONE */
    uint32_t pool_blocks;
    struct sim_block blocks[SIM_POOL_BLOCKS];
    struct sim_job jobs[SIM_MAX_JOBS];
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
    uint32_t peer_uses[SIM_MAX_WORKERS + 1]; /* counts CLOSE: events from before are dropped */
};

struct sim_request {
    struct request_life life;
    uint32_t prompt_count, length; /* tokens of the answer */
    struct sim_message handle;     /* of the last accepted Opened */
    bool arrived, cancelled;
    uint32_t delivered, finishes; /* what its client saw */
    uint64_t tick_us, finish_us;
    uint32_t costs; /* decode workers lost under it after their first token */
    struct {        /* and before it: costs a run if it had been answered HELD */
        struct handle_ref ref;
        uint32_t attempt;
    } left[SIM_MAX_LEFT];
    uint32_t left_count;
};

/* --------------------------------------------------------------------------------------------- all */

struct sim_totals { /* over many runs: that what should happen did happen */
    uint64_t runs, events, faults, ok, cancelled, unavailable, overloaded, deadline;
    uint64_t admitted, admitted_local, ended_with_first_token, regiven, rerun, orphans, rereads,
        held_again;
    uint64_t gone, expired, dropped, early_bytes;
    uint64_t lost_by_reason[SINK_REASON_INVALID + 1];
};

struct sim {
    uint64_t seed;
    bool trace;
    struct rng rng;
    uint64_t now_us, order, event_count;
    struct sim_event **heap;
    uint32_t heap_count, heap_capacity;
    struct sim_stream streams[SIM_MAX_STREAMS];
    uint32_t stream_count;
    uint32_t worker_count, request_count;
    struct sim_process processes[SIM_MAX_WORKERS + 1];
    uint32_t sessions[SIM_MAX_WORKERS + 1]; /* as the router sees them */
    struct sim_request requests[SIM_MAX_REQUESTS];
    uint32_t last_serial;
    struct sim_handle handles[SIM_MAX_HANDLES];
    uint32_t handle_count;
    bool tiny; /* tables so small that refusals are right */
    bool slow; /* sequences hold their blocks for so long that others wait for more than a lease */
    uint32_t faults_left, faults;
    uint32_t costs; /* faults that may cost any request a run: not a lost Peer stream, for one */
    uint32_t reread_faults; /* flips and hangs: the first is free */
    uint64_t next_fault_event;
    bool message_lost;
    uint32_t flips_left, hangs_left, swallows_left, refusals_left,
        forgeries_left; /* faults that wait for their victim */
    jmp_buf bail;
    char failure[512];
    struct sim_totals *totals;
};

/* Runs the life of `seed`; false, and `failure` filled, if something that must hold did not. `trace` prints every event. */
bool sim_run(uint64_t seed, bool trace, struct sim_totals *totals, char failure[512]);

/* --- sim.c: clock, streams, faults --- */
_Noreturn void sim_fail(struct sim *sim, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void sim_trace(struct sim *sim, const char *format, ...) __attribute__((format(printf, 2, 3)));
uint64_t sim_between(struct sim *sim, uint64_t low, uint64_t high); /* uniform, both included */
bool sim_chance(struct sim *sim, uint32_t percent);
/* To be filled by the caller; `delay_us` from now, to the process as it is now. */
struct sim_event *sim_push(struct sim *sim, enum sim_event_kind kind, uint32_t process,
                           uint64_t delay_us);
uint32_t sim_open_stream(struct sim *sim, uint32_t dialer, uint32_t acceptor);
void sim_break_stream(struct sim *sim, uint32_t stream); /* each end learns it later */
void sim_send(struct sim *sim, uint32_t stream, uint32_t from, const struct sim_message *message);
/* Between the two threads of a worker, in order. */
struct sim_event *sim_push_ring(struct sim *sim, enum sim_event_kind kind, uint32_t process);
void sim_schedule_tick(struct sim *sim, uint32_t process, uint64_t next_us);
uint32_t sim_token_id(uint64_t request, uint32_t index);
const char *sim_name(uint32_t process); /* "p1", "d3": static */

/* --- sim_pool.c: blocks and jobs of a step thread --- */
struct sim_job *sim_job_add(struct sim *sim, struct sim_process *process, uint64_t request,
                            uint32_t attempt);
struct sim_job *sim_job_find(struct sim_process *process, uint64_t request, uint32_t attempt);
/* Frees its blocks; the job is unused then. */
void sim_job_end(struct sim *sim, struct sim_process *process, struct sim_job *job);
/* The job that waits the longest, if there are blocks for it: they are its own then. NULL otherwise. */
struct sim_job *sim_reserve_next(struct sim *sim, struct sim_process *process);
uint32_t sim_blocks_for(uint32_t tokens);

struct sim_handle *sim_find_handle(struct sim *sim, uint64_t request, struct handle_ref ref);

/* --- sim_prefill.c, sim_decode.c, sim_router.c --- */
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
/* All reads of the pair end with `status`, then the pairing is closed. */
void sim_decode_close_pair(struct sim *sim, uint32_t process, uint32_t source, enum status status);
void sim_router_event(struct sim *sim, struct sim_event *event);
void sim_router_check_end(struct sim *sim);

#endif
