/* What the step thread tells the transfer thread, in events from a pool made at start: a step
 * allocates nothing, and a receiver that is behind makes the step thread wait. The receiver gives
 * each event back.
 *
 * Threads: take and post are the step thread's; the ring `posted` is read by the transfer thread,
 * which recycles.
 */
#ifndef BATON_WORKER_STEP_EVENTS_H
#define BATON_WORKER_STEP_EVENTS_H

#include "common/base/ring.h"
#include "common/engine/sched/sequence.h"

/* Under way at most: who keeps them all back lets the step thread wait. */
#define STEP_LOOP_EVENTS 256
/* Tokens of one event that have logprobs, at most: a step that draws more of them takes more
 * events. */
#define STEP_EVENT_LOGPROBS 32

enum step_event_kind {
    STEP_RESERVED, /* blocks[0..block_count) are its own now; nothing is told of a PLAN_LOCAL's: they move. The first
                      cached_tokens, whole blocks, are in them already, and others may read those */
    /* it can't be computed here: status INVALID (never) or LIMIT (not now), sentence in err */
    STEP_REFUSED,
    STEP_READY,  /* hand-off: keys and values of tokens [0, ready_tokens) are in the blocks */
    STEP_TOKENS, /* what the step drew, one entry a sequence */
    /* of its prompt's tokens first_token .. first_token + logprobs_count: logprobs[] */
    STEP_PROMPT_LOGPROBS,
    STEP_FAILED, /* its rows or its token could not be had: status, sentence in err, banned */
    STEP_REMOVED,
    STEP_CACHE, /* what step_loop_read_cache asked for */
};
struct step_token {
    struct sequence_key key;
    uint32_t index; /* 1-based over the whole answer */
    uint32_t token;
    uint64_t logits_hash; /* if asked for, else 0 */
    enum finish_reason finish;
    const struct token_logprobs *logprobs; /* NULL: not asked for */
    bool hand_off; /* the first token of a prefill whose blocks wait for a reader */
};
struct step_event {
    enum step_event_kind kind;
    struct sequence_key key; /* not for STEP_TOKENS and STEP_CACHE */
    uint64_t at_us;          /* when it was posted */
    enum sequence_plan plan;
    const uint32_t *blocks; /* STEP_RESERVED */
    uint32_t block_count, cached_tokens, ready_tokens;
    enum status status;
    bool banned; /* STEP_FAILED: what was asked for leaves no token to be drawn */
    struct error err;
    const struct prefix_event *cache_events; /* STEP_CACHE: until the next one is asked for */
    uint32_t cache_event_count;
    uint32_t first_token, logprobs_count;
    struct token_logprobs *logprobs; /* [STEP_EVENT_LOGPROBS], the event's own */
    uint32_t token_count;
    struct step_token tokens[]; /* [max_sequences] */
};

struct step_events {
    struct ring *posted, *spare;
};

/* STATUS_LIMIT: out of memory; step_events_deinit takes apart what there is, here and always. */
enum status step_events_init(struct step_events *events, uint32_t max_sequences) WARN_UNUSED;
void step_events_deinit(struct step_events *events);

/* A spare event with nothing in it but these; waits where the receiver has them all. */
struct step_event *step_events_take(struct step_events *events, enum step_event_kind kind,
                                    struct sequence_key key);
void step_events_post(struct step_events *events, struct step_event *event);
/* STEP_REFUSED or STEP_FAILED (not banned). */
void step_events_post_error(struct step_events *events, enum step_event_kind kind,
                            struct sequence_key key, enum status status, const struct error *err);
/* STEP_FAILED, INVALID: what was asked for leaves no token that may be drawn, here or elsewhere. */
void step_events_post_banned(struct step_events *events, struct sequence_key key,
                             const struct error *err);
/* What a worker says the attempt was lost by, of a STEP_FAILED. */
static inline const char *step_event_lost_by(const struct step_event *event)
{
    return event->banned ? "no_token_allowed" : "step_failed";
}
/* The sequence's last token, into a STEP_TOKENS. */
struct step_token *step_event_add_token(struct step_event *event, const struct sequence *sequence);
/* STEP_PROMPT_LOGPROBS, as many as there must be: of `count` tokens from first_token on. */
void step_events_post_scores(struct step_events *events, struct sequence_key key,
                             uint32_t first_token, const struct token_logprobs *scores,
                             uint32_t count);
/* Copies them, if any are given: there must be room. */
bool step_event_has_room(const struct step_event *event);
void step_event_add_logprobs(struct step_event *event, struct step_token *token,
                             const struct token_logprobs *logprobs);

void step_events_recycle(struct step_events *events, struct step_event *event);

#endif
