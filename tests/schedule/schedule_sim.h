/* The life of one schedule from one seed: requests of all plans and classes come, are handed off,
 * received, cancelled, fail and end, in a pool of few blocks, under every policy. The engine is
 * played. A row's content is a hash of its sequence's tokens up to it, written into the block that
 * the plan names. Swaps carry contents, a sender writes into landing blocks at any moment, and the
 * next token is drawn from the last row's content. So if a block is given away too early, moved too
 * late or written by two, a sequence reads wrong rows. A life with steps in flight
 * (schedule_flight.c) plans the next step before the last has ended; its device computes a step at
 * any moment until that step ends.
 *
 * The list below names the invariants; schedule_check.c and schedule_order.c check them. */
#ifndef BATON_TESTS_SCHEDULE_SIM_H
#define BATON_TESTS_SCHEDULE_SIM_H

#include "common/base/rng.h"
#include "common/engine/sched/scheduler.h"

#include <setjmp.h>
#include <signal.h>

#define LIFE_BLOCKS       48
#define LIFE_BLOCK_TOKENS 8
#define LIFE_SLOTS        32
#define LIFE_SEQUENCES    24
#define LIFE_CONTEXT      64
#define LIFE_DRAFTS       5 /* drafts of one answer in a step */
#define LIFE_END_ID       2
#define LIFE_DRAIN_STEPS  4000 /* by then a life without new requests is over */

enum life_invariant {
    HOLDS_ALL,
    HOLDS_BLOCKS,  /* a block's holds are its sequences; none is lost; the same for host slots */
    HOLDS_CONTENT, /* a sequence reads its own rows, and answers as if it were alone */
    HOLDS_WRITE,   /* no block is written that two hold or that is cached */
    /* blocks named to another worker stay in place while it reads or writes them */
    HOLDS_TOLD,
    /* Rows, sequences and prompt rows of a step are within their limits. Drafts are no more than an
     * answer may still draw tokens. */
    HOLDS_BUDGET,
    /* beside online decodes prompts have as many rows as fit chunk_us, and at least the minimum */
    HOLDS_TIME,
    HOLDS_DECODES, /* no decode waits for a prompt's rows; fcfs: no begun prompt for a new one's */
    HOLDS_OLDEST,  /* the oldest of the highest running class is never preempted, and computes */
    HOLDS_VICTIM,  /* a victim of preemption is the newest of the lowest class */
    /* A reservation isn't overtaken; if all have one, neither is a starved sequence. offline takes
     * nothing while another waits, and only rows that are left. No class gets rows that a higher
     * one lacks, and no sequence comes back from a preemption while a higher one waits. */
    HOLDS_ORDER,
    HOLDS_ROOM, /* a sequence that fits gets blocks, even behind others without a reservation */
    /* No sequence computes or receives a prefix that one before it is about to have in the cache,
     * if it is no later for that. */
    HOLDS_SIBLING,
    /* Blocks and rows go to the tenant that was served less. A light tenant beside a heavy one
     * waits hardly longer than alone. */
    HOLDS_TURN,
    /* beside others no tenant gets more blocks than its share */
    HOLDS_SHARE,
    /* No row is computed after a deadline. In overload hardly any work is for answers that miss
     * their deadlines, and none is given up that would be in time. */
    HOLDS_DEADLINE,
    /* a sequence starved beyond the bound goes before others; starved ones by arrival */
    HOLDS_STARVE,
    /* No block of a step in flight is free, or moved, and none that the step writes is another's.
     * Nothing that the host waits for in the middle of a step is planned behind one. */
    HOLDS_FLIGHT,
    /* No row comes before its token is known here, unless the step in flight draws and feeds it. No
     * result counts for a sequence that has ended. */
    HOLDS_TOKEN,
    HOLDS_ENDS,   /* every sequence ends, and no wake-up is lost */
    HOLDS_ASSERT, /* no assertion of the code is reached */
    HOLDS_COUNT
};
const char *life_invariant_name(enum life_invariant invariant);

/* Counted events. If one never happens, a run shows nothing about it. */
enum life_event {
    DID_ADD,
    DID_REFUSE,
    DID_RESERVE,
    DID_OVERTAKE, /* blocks went to a sequence behind a waiting one of its class */
    DID_ADMIT,
    DID_SWAP,
    DID_DROP,
    DID_SWAP_IN,
    DID_RECOMPUTE,
    DID_CANCEL,
    DID_FAIL,
    DID_HIT, /* a prompt found a block in the cache */
    DID_EVICT,
    DID_FULL_BATCH, /* more decodes than a batch takes */
    DID_PROMOTE,
    DID_BOUND, /* the time bound reduced the prompt rows of a step */
    DID_FINISH,
    DID_MISS,       /* a sequence missed its deadline */
    DID_HOLD_BACK,  /* a sequence that fits waits: its tenant has its share */
    DID_AWAIT,      /* a sequence that fits waits for its sibling's rows */
    DID_TAKE_TURNS, /* blocks went to a tenant that was served less, before one that came first */
    DID_FEED,       /* a row was planned on a token that only the device knew */
    DID_LATE,       /* a result came after its sequence had ended */
    DID_DEFER,      /* a sequence was removed while it was in flight */
    DID_DRAIN,      /* a preemption waited for the step in flight */
    DID_BREAK,      /* a step failed while another one was queued behind it */
    DID_DRAFT,      /* a part had drafts */
    DID_DRAFT_FED,  /* behind a token that only the device knew */
    DID_ACCEPT,     /* a draft was what the row before it drew */
    DID_REJECT,     /* a draft was not */
    DID_COUNT
};
const char *life_event_name(enum life_event event);

struct shadow {
    bool live;
    struct sequence_key key;
    uint32_t tokens[LIFE_CONTEXT]; /* prompt and emitted tokens of the request as it came */
    uint32_t token_count;
    uint32_t landed;                        /* rows that a sender has written */
    uint32_t told[LIFE_BLOCKS], told_count; /* its blocks when it got them */
};

/* A sequence's state before blocks were given, or before the plan. */
struct glimpse {
    struct sequence *sequence;
    enum sequence_state state;
    uint64_t ran_us;
    uint32_t computed;
    bool promoted, preempted, arriving;
    bool barred, awaits_token;
};

/* A part of a step in flight, as the device got it. */
struct flight_part {
    const struct planned_rows *part;
    struct sequence *sequence;
    bool ended; /* the sequence ended, failed or was removed meanwhile */
    uint32_t known, tokens[LIFE_CONTEXT];
    uint32_t block_count, blocks[LIFE_BLOCKS], seed, drawn[1 + LIFE_DRAFTS];
};
struct flight {
    const struct step_plan *plan; /* NULL: none */
    bool computed, fails;
    uint64_t took_us;
    struct flight_part parts[LIFE_SEQUENCES];
    uint32_t samples[LIFE_SEQUENCES * (1 + LIFE_DRAFTS)]; /* drawn tokens */
    bool holds[LIFE_BLOCKS]; /* blocks that it uses, or that its sequences hold */
};

struct life {
    uint64_t seed, now_us;
    struct rng rng;
    bool trace, draining;
    struct scheduler_config config;
    struct cost_model cost; /* learns the same as the scheduler's */
    struct scheduler *scheduler;
    uint64_t next_request;
    uint32_t tenants; /* 0 and 1: one */
    bool deadlines;   /* some requests have one */
    struct shadow shadows[LIFE_SEQUENCES];
    uint64_t blocks[LIFE_BLOCKS][LIFE_BLOCK_TOKENS], slots[LIFE_SLOTS][LIFE_BLOCK_TOKENS];
    struct glimpse before[LIFE_SEQUENCES];
    uint32_t before_count;
    struct flight flights[2]; /* the older one first */
    uint64_t happened[DID_COUNT];
    enum life_invariant broken;
    char failure[256];
    uint64_t step_count;
    sigjmp_buf bail;
};

/* Runs `steps` steps, and more until all sequences have ended. `runs_ahead`: with steps in flight.
 * Sets `broken` and `failure` if an invariant broke. Adds to happened[]. */
void life_run(struct life *life, uint64_t seed, bool runs_ahead, uint32_t steps, bool trace);

/* for the files of one life: */
void life_fail(struct life *life, enum life_invariant invariant, const char *format, ...)
    __attribute__((format(printf, 3, 4), noreturn));
void life_trace(struct life *life, const char *format, ...) __attribute__((format(printf, 2, 3)));
uint32_t life_below(struct life *life, uint64_t bound);
bool life_chance(struct life *life, uint32_t one_in);
struct shadow *life_shadow(struct life *life, struct sequence_key key);
/* a row's content, from the row before it */
uint64_t life_content(uint64_t before, uint32_t token);
uint32_t life_draw(uint64_t content, uint64_t seed);

void requests_happen(struct life *life);
void requests_land(struct life *life); /* senders write a few more rows */
void requests_finished(struct life *life, struct sequence *sequence);
void requests_remove(struct life *life, struct sequence *sequence);

/* A sender writes a prompt into landing blocks as far as `rows`, each row once. */
void played_land(struct life *life, const struct sequence *sequence, uint32_t rows);
void played_moves(struct life *life, const struct step_plan *plan);
/* `drawn`: the tokens of the part's samples */
void played_rows(struct life *life, const struct planned_rows *part, uint32_t *drawn);
/* The scheduler_drafter: proposes what the sequence will draw, with some errors. */
uint32_t played_drafts(void *context, const struct sequence *sequence, uint32_t skip, uint32_t most,
                       uint32_t *drafts);

static inline bool life_waits(const struct sequence *sequence)
{
    return sequence->state == SEQUENCE_WAITING || sequence->state == SEQUENCE_SWAPPED;
}
static inline bool life_is_offline(const struct sequence *sequence)
{
    return sequence->class_index == priority_class(PRIORITY_OFFLINE);
}
/* Its rows are computed here, and its blocks can be taken from it. */
static inline bool life_runs(const struct sequence *sequence, enum sequence_state state)
{
    return (state == SEQUENCE_PREFILL || state == SEQUENCE_DECODE) &&
           sequence->plan != PLAN_HAND_OFF;
}
const struct planned_rows *life_part_of(const struct step_plan *plan,
                                        const struct sequence *sequence); /* NULL: none */

/* --- schedule_flight.c: steps in flight --- */

/* Hands the rows of a plan to the device, and ends the step before it. */
void flight_step(struct life *life, const struct step_plan *plan);
/* The sequence ended, failed or is about to be removed: results still to come don't count. */
void flight_lost(struct life *life, struct sequence *sequence, bool removed);
/* Returns how many blocks only steps in flight hold. `holds`: blocks of sequences that are here. */
uint32_t flight_blocks(struct life *life, const uint32_t *holds);
void check_fed(struct life *life, const struct step_plan *plan);
/* Drafts of the sequence are in the step in flight. */
bool flight_drafts(const struct life *life, const struct sequence *sequence);
/* A part's sequence got its result, if that counts. `drawn`: the tokens of its samples. */
void life_tell(struct life *life, const struct planned_rows *part, const uint32_t *drawn);

/* Its answer ends by count with the tokens in flight. */
bool life_needs_no_row(const struct life *life, const struct sequence *sequence);
/* The host must know its last token before its next row, and that token is in flight, or it waits
 * for others that are so. Or drafts of it are in flight. */
bool life_awaits_token(const struct life *life, const struct sequence *sequence);
/* It may have no row in this plan: it awaits a token, or its last one is in flight. */
bool life_is_barred(const struct life *life, const struct sequence *sequence);
void check_before(struct life *life); /* records all sequences for the checks that follow */
void check_reserved(struct life *life, const struct sequence *sequence);
/* Call when scheduler_reserve returns no more sequences. check_before was called before its first
 * call. */
void check_waiting(struct life *life);
void check_plan(struct life *life, const struct step_plan *plan);
void check_time(struct life *life, const struct step_plan *plan);
void check_learns(struct life *life, const struct step_plan *plan, uint64_t took_us);
/* Returns true if prompts go first, and the plan has rows of one: answers have none. `offline`:
 * offline answers, which offline prompts hold up, too. */
bool life_are_held(const struct life *life, const struct step_plan *plan, bool offline);
/* the order in which sequences get rows */
void check_order(struct life *life, const struct step_plan *plan);
/* Returns true if online answers are in the step and the time for prompts beside them is used up,
 * or if this can't be decided any more. */
bool life_is_out_of_time(struct life *life, const struct step_plan *plan);
void check_reads(struct life *life, const struct sequence *sequence, uint32_t rows);
void check_write(struct life *life, const struct sequence *sequence, uint32_t position);
void check_answer(struct life *life, const struct sequence *sequence);
void check_blocks(struct life *life);

/* --- schedule_fair.c: tenants and deadlines, served in virtual time --- */

struct fair_result {
    /* The light tenant's time to the first token, 99th percentile: alone, beside a heavy tenant. */
    uint64_t alone_us, beside_us;
    uint32_t light_count, heavy_count; /* answers that ended */
};
/* A tenant with small requests, and one with 128 answers of 2,000 tokens. `grow`: blocks are taken
 * as answers grow, and preemption gives them back. */
struct fair_result fair_run(bool grow);
/* Three requests of one tenant, then three of another, wait. True: they begin in turns. */
bool fair_alternates(void);

struct overload_result {
    uint64_t work_us, wasted_us; /* work for all answers; for those that missed */
    uint32_t in_time, missed;    /* answers */
    uint32_t given_up_early;     /* ended before their deadlines */
    uint64_t in_time_until_us;   /* when the last one in time ended */
    uint32_t capacity;           /* answers that a full batch gives until then */
};
/* Requests come `load` times as fast as they can be served, each with a deadline. rest_us: only
 * their prompts are computed here, and their answers take so long elsewhere. 0: all is done
 * here. */
struct overload_result overload_run(double load, uint64_t rest_us);
/* One request alone, with so much of the time that it needs. Returns its tokens at the end. */
uint32_t deadline_alone(double part, uint32_t max_tokens);

#endif
