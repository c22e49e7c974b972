/* The output of the step thread to other threads: events, and its load.
 *
 * An event goes to the transfer thread. Events come from a pool made at start, so a step allocates
 * nothing. A receiver that is behind makes the step thread wait. The receiver gives each event
 * back.
 *
 * The load is a set of numbers for metrics and load reports. The step thread publishes them and any
 * thread may read them. Each number is whole; together they are of about one moment.
 *
 * Threads: step_events_take, _post and step_load_publish are for the step thread. The transfer
 * thread reads the ring `posted` and calls step_events_recycle.
 */
#ifndef BATON_WORKER_STEP_EVENTS_H
#define BATON_WORKER_STEP_EVENTS_H

#include "common/base/domain/step_cost.h"
#include "common/base/ring.h"
#include "common/engine/engine.h"
#include "common/engine/sched/scheduler.h"

#include <stdatomic.h>

/* Events in the pool. The step thread waits while the receiver holds all of them. */
#define STEP_LOOP_EVENTS 256
/* Tokens with logprobs in one event, at most. A step that draws more of them, or more tokens than
 * there may be sequences, takes more events. */
#define STEP_EVENT_LOGPROBS 32
/* Reports of steps in one event, at most. */
#define STEP_EVENT_REPORTS 16

enum step_event_kind {
    /* The sequence owns blocks[0..block_count). Its first cached_tokens (whole blocks) are in them
     * already, and others may read those. PLAN_LOCAL: no blocks are reported, because they move. */
    STEP_RESERVED,
    /* It can't be computed here: status INVALID (never), LIMIT (not now) or TIMEOUT (not before its
     * deadline), sentence in err. */
    STEP_REFUSED,
    STEP_READY,  /* hand-off: keys and values of tokens [0, ready_tokens) are in the blocks */
    STEP_TOKENS, /* the tokens of one step, one entry a sequence */
    /* logprobs[] of the prompt tokens first_token .. first_token + logprobs_count */
    STEP_PROMPT_LOGPROBS,
    /* Its rows or its token could not be computed: status, sentence in err, banned. TIMEOUT: not
     * before its deadline. */
    STEP_FAILED,
    STEP_REMOVED,
    STEP_CACHE, /* the answer to step_loop_read_cache */
    STEP_DONE,  /* reports of steps that ended without a token */
};
/* A step that was computed, for the router. */
struct step_report {
    struct step_shape shape;
    uint64_t took_us, swap_us; /* rows; moves of blocks, 0: not known */
    uint32_t swapped_blocks;   /* out and in */
};
struct step_token {
    struct sequence_key key;
    uint32_t index; /* 1-based over the whole answer */
    uint32_t token;
    uint64_t logits_hash; /* if the request asked for it, otherwise 0 */
    enum finish_reason finish;
    const struct token_logprobs *logprobs; /* NULL: the request didn't ask for them */
    bool hand_off; /* the first token of a prefill; its blocks wait for a reader */
};
struct step_event {
    enum step_event_kind kind;
    struct sequence_key key; /* unused in STEP_TOKENS, STEP_CACHE and STEP_DONE */
    uint64_t at_us;          /* when it was posted */
    enum sequence_plan plan;
    const uint32_t *blocks; /* STEP_RESERVED */
    uint32_t block_count, cached_tokens, ready_tokens;
    enum status status;
    bool banned; /* STEP_FAILED: the request's own settings leave no token to draw */
    struct error err;
    const struct prefix_event *cache_events; /* STEP_CACHE: valid until the next read is asked */
    uint32_t cache_event_count;
    uint32_t first_token, logprobs_count;
    struct token_logprobs *logprobs; /* [STEP_EVENT_LOGPROBS], owned by the event */
    /* STEP_TOKENS, STEP_DONE: steps since the last such event, up to the tokens' own. */
    uint32_t report_count;
    struct step_report reports[STEP_EVENT_REPORTS];
    uint32_t token_count, token_capacity;
    struct step_token tokens[]; /* [token_capacity]: the most sequences */
};

struct step_events {
    struct ring *posted, *spare;
};

/* STATUS_LIMIT: out of memory. Call step_events_deinit after a failure, too. */
enum status step_events_init(struct step_events *events, uint32_t max_sequences) WARN_UNUSED;
void step_events_deinit(struct step_events *events);

/* Returns a spare event, empty except for `kind` and `key`. Waits while the receiver holds all. */
struct step_event *step_events_take(struct step_events *events, enum step_event_kind kind,
                                    struct sequence_key key);
void step_events_post(struct step_events *events, struct step_event *event);
/* Posts a STEP_REFUSED, or a STEP_FAILED that isn't banned. */
void step_events_post_error(struct step_events *events, enum step_event_kind kind,
                            struct sequence_key key, enum status status, const struct error *err);
/* Posts STEP_FAILED with INVALID and `banned`: no token may be drawn, here or at another worker. */
void step_events_post_banned(struct step_events *events, struct sequence_key key,
                             const struct error *err);
#define STEP_DEADLINE "deadline" /* the router ends the request */
/* The word that a worker sends in Lost for a STEP_FAILED. */
static inline const char *step_event_lost_by(const struct step_event *event)
{
    return event->banned                     ? "no_token_allowed"
           : event->status == STATUS_TIMEOUT ? STEP_DEADLINE
                                             : "step_failed";
}
/* The word that a worker sends in Refused for a STEP_REFUSED. */
static inline const char *step_event_refused_by(const struct step_event *event)
{
    return event->status == STATUS_TIMEOUT ? STEP_DEADLINE : status_name(event->status);
}
/* Returns true if another worker may take what a STEP_REFUSED names. */
static inline bool step_event_may_retry(const struct step_event *event)
{
    return event->status != STATUS_INVALID && event->status != STATUS_TIMEOUT;
}
/* Adds the sequence's last token to a STEP_TOKENS. */
struct step_token *step_event_add_token(struct step_event *event, const struct sequence *sequence);
/* Posts the logprobs of `count` prompt tokens from first_token on, in as many STEP_PROMPT_LOGPROBS
 * as are needed. */
void step_events_post_scores(struct step_events *events, struct sequence_key key,
                             uint32_t first_token, const struct token_logprobs *scores,
                             uint32_t count);
/* Returns true if one more token has room, or one with logprobs. */
bool step_event_has_room(const struct step_event *event, bool with_logprobs);
/* Copies the logprobs, if any are given, into the event. It must have room. */
void step_event_add_logprobs(struct step_event *event, struct step_token *token,
                             const struct token_logprobs *logprobs);

void step_events_recycle(struct step_events *events, struct step_event *event);

/* --- the load --- */

/* Parts of the time in which the step thread had anything to do. */
enum step_time {
    STEP_IN_ENGINE, /* rows, moves of blocks, draws */
    /* jobs, planning, results and events, also the wait for a receiver that is behind */
    STEP_AROUND_IT,
    STEP_TIMES
};

enum step_preemption { STEP_SWAPPED, STEP_DROPPED, STEP_PREEMPTIONS };

struct step_load {
    _Atomic uint32_t waiting, running, sequences, blocks[KV_BLOCK_STATES];
    _Atomic uint32_t preempted, swapped_blocks; /* now */
    _Atomic uint64_t queued_tokens, reserved_tokens, unconfirmed_tokens;
    _Atomic uint64_t prompt_rows, decode_rows, steps;
    _Atomic uint64_t recorded_steps, launched_steps; /* decode steps, by graph or not */
    _Atomic uint64_t device_us, idle_us;             /* as engine_counters */
    _Atomic uint64_t drafts, drafts_accepted;        /* drafts are rows of answers, too */
    _Atomic uint64_t steps_failed;                   /* in all */
    /* The step thread has been at its present round (jobs, then a step) since then; 0: it waits for
     * a job. */
    _Atomic uint64_t round_began_us;
    _Atomic uint64_t time_ns[STEP_TIMES];
    _Atomic uint64_t preemptions[STEP_PREEMPTIONS], dropped_rows;
    _Atomic uint64_t prefix_asked_tokens, prefix_hit_tokens, prefix_evicted_blocks;
    _Atomic uint64_t prefix_changes; /* changes of the cached set, so far */
};

/* Returns how long the present round has taken at now_us; 0: none is under way. Any thread. */
static inline uint64_t step_load_busy_us(const struct step_load *load, uint64_t now_us)
{
    uint64_t began_us = atomic_load(&load->round_began_us);
    return began_us && began_us < now_us ? now_us - began_us : 0;
}

/* Publishes the engine's and the scheduler's numbers. Call it before tokens leave, so that a
 * receiver of an answer's last token finds its blocks free and its rows counted. */
void step_load_publish(struct step_load *load, const struct engine *engine,
                       struct scheduler *scheduler);

#endif
