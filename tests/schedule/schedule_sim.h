/* The life of one schedule from one seed: requests of all plans and classes come, are handed off,
 * received, cancelled, fail and end, in a pool of few blocks, under every policy. The
 * engine is played: a row's content is a hash of its sequence's tokens up to it, written into the
 * block that the plan names; swaps carry contents, a sender writes into landing blocks
 * at any moment; the next token is drawn from the last row's content. So a block that is given away
 * too early, moved too late or written by two shows in what a sequence reads.
 *
 * What must hold is the list below; schedule_check.c and schedule_order.c say how each is looked
 * at. */
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
#define LIFE_END_ID       2
#define LIFE_DRAIN_STEPS  4000 /* by then a life without new requests is over */

enum life_invariant {
    HOLDS_ALL,
    HOLDS_BLOCKS,  /* a block's holds are its sequences; none is lost; the same of host slots */
    HOLDS_CONTENT, /* a sequence reads its own rows, and answers as if it were alone */
    HOLDS_WRITE,   /* nobody writes into a block that two hold, or that is cached */
    /* blocks that another worker was told of stay where they are while it reads or writes them */
    HOLDS_TOLD,
    HOLDS_BUDGET, /* rows, sequences and prompt rows of a step are within their limits */
    /* beside online decodes prompts have the rows that fit chunk_us, and the least ones */
    HOLDS_TIME,
    HOLDS_DECODES, /* no decode waits for a prompt's rows; fcfs: no begun prompt for a new one's */
    HOLDS_OLDEST,  /* the oldest of the highest class that runs is never preempted, and computes */
    HOLDS_VICTIM,  /* who is preempted is of the lowest class, and of that the newest */
    HOLDS_ORDER, /* a reservation isn't overtaken; where all have one, nor is who starved; offline takes nothing while
                      another waits, and rows only that are left; no class gets rows that a higher one lacks, and
                      nobody comes back from a preemption while one waits */
    HOLDS_ROOM,  /* who fits gets blocks, whoever waits before it without a reservation */
    HOLDS_STARVE, /* who starved beyond the bound goes before who didn't, and by arrival */
    HOLDS_ENDS,   /* every sequence ends, and no wake-up is lost */
    HOLDS_ASSERT, /* no assertion of the code is reached */
    HOLDS_COUNT
};
const char *life_invariant_name(enum life_invariant invariant);

/* How often things happened: a run in which one never did shows nothing about it. */
enum life_event {
    DID_ADD,
    DID_REFUSE,
    DID_RESERVE,
    DID_OVERTAKE, /* blocks for one behind another of its class that waits */
    DID_ADMIT,
    DID_SWAP,
    DID_DROP,
    DID_SWAP_IN,
    DID_RECOMPUTE,
    DID_CANCEL,
    DID_FAIL,
    DID_HIT, /* a block of a prompt was cached */
    DID_EVICT,
    DID_FULL_BATCH, /* more decodes than a batch takes */
    DID_PROMOTE,
    DID_BOUND, /* prompts of a step had fewer rows for the time that they would take */
    DID_FINISH,
    DID_COUNT
};
const char *life_event_name(enum life_event event);

struct shadow {
    bool live;
    struct sequence_key key;
    uint32_t tokens[LIFE_CONTEXT]; /* prompt + emitted, as it came */
    uint32_t token_count;
    uint32_t landed;                        /* rows that a sender has written */
    uint32_t told[LIFE_BLOCKS], told_count; /* its blocks, when it was given them */
};

/* What a sequence was before blocks were given, or before the plan. */
struct glimpse {
    struct sequence *sequence;
    enum sequence_state state;
    uint64_t ran_us;
    uint32_t computed;
    bool promoted, preempted, arriving;
};

struct life {
    uint64_t seed, now_us;
    struct rng rng;
    bool trace, draining;
    struct scheduler_config config;
    struct cost_model cost; /* learns what the scheduler's does */
    struct scheduler *scheduler;
    uint64_t next_request;
    struct shadow shadows[LIFE_SEQUENCES];
    uint64_t blocks[LIFE_BLOCKS][LIFE_BLOCK_TOKENS], slots[LIFE_SLOTS][LIFE_BLOCK_TOKENS];
    struct glimpse before[LIFE_SEQUENCES];
    uint32_t before_count;
    uint64_t happened[DID_COUNT];
    enum life_invariant broken;
    char failure[256];
    uint64_t step_count;
    sigjmp_buf bail;
};

/* Lives `steps` steps, then until all have ended. `broken` and `failure` say what didn't hold;
 * happened[] is added to. */
void life_run(struct life *life, uint64_t seed, uint32_t steps, bool trace);

/* for the files of one life: */
void life_fail(struct life *life, enum life_invariant invariant, const char *format, ...)
    __attribute__((format(printf, 3, 4), noreturn));
void life_trace(struct life *life, const char *format, ...) __attribute__((format(printf, 2, 3)));
uint32_t life_below(struct life *life, uint64_t bound);
bool life_chance(struct life *life, uint32_t one_in);
struct shadow *life_shadow(struct life *life, struct sequence_key key);
uint64_t life_content(uint64_t before, uint32_t token); /* of a row, from the row before it */
uint32_t life_draw(uint64_t content, uint64_t seed);

void requests_happen(struct life *life);
void requests_land(struct life *life); /* senders write a little more */
void requests_finished(struct life *life, struct sequence *sequence);

/* A sender writes a prompt into landing blocks as far as `rows`, each row once. */
void played_land(struct life *life, const struct sequence *sequence, uint32_t rows);
void played_moves(struct life *life, const struct step_plan *plan);
uint32_t played_rows(struct life *life, const struct planned_rows *part); /* what it draws */

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

void check_before(struct life *life); /* what all are now, for the checks that follow */
void check_reserved(struct life *life, const struct sequence *sequence);
/* When scheduler_reserve has nobody any more; check_before was called before its first call. */
void check_waiting(struct life *life);
void check_plan(struct life *life, const struct step_plan *plan);
void check_time(struct life *life, const struct step_plan *plan);
void check_learns(struct life *life, const struct step_plan *plan, uint64_t took_us);
void check_order(struct life *life, const struct step_plan *plan); /* who gets rows before whom */
/* Answers that others wait for are in the step, and the time of prompts beside them is used up;
 * also where that can't be said any more. */
bool life_is_out_of_time(struct life *life, const struct step_plan *plan);
void check_reads(struct life *life, const struct sequence *sequence, uint32_t rows);
void check_write(struct life *life, const struct sequence *sequence, uint32_t position);
void check_answer(struct life *life, const struct sequence *sequence);
void check_blocks(struct life *life);

#endif
