/* The life of one request, from arrival to its one terminal status: which worker works on which
 * attempt, and which token is the next one. PURE. One struct a request; each event is a function
 * that appends actions to the caller's list, in order. The dispatch thread owns it, executes the
 * actions, and keeps what this doesn't need: prompt, emitted ids, the handle's block list.
 *
 * QUEUED -placed-> PREFILL -opened-> DECODE -last token-> ENDED. Decode's loss before its first
 * token leads to REGIVE (the handle goes to another decode worker), other losses back to QUEUED
 * (prompt and emitted tokens are prefilled again). A placement without prefill worker goes to
 * DECODE at once: the prompt is computed there. Everything leads to ENDED by cancel, deadline, or
 * limits. Whose last token is the one that the prefill worker draws (a prompt alone, an answer of
 * one token) stays in PREFILL until it comes: nobody goes on from its handle.
 *
 * The attempt is counted up when an attempt ends, so whatever an ended one still sends is older,
 * and dropped (and counted).
 *
 * Trying again has three bounds: runs, losses (a request that kills each worker that it touches
 * must not go through them all) and attempts of any kind. The first retry comes at once, the others
 * after a pause from the last placement that doubles, so that a worker that keeps refusing doesn't
 * use them up in no time: while it lasts the request waits, and asks for a place at a tick. */
#ifndef BATON_ROUTER_PLANNER_REQUEST_LIFE_H
#define BATON_ROUTER_PLANNER_REQUEST_LIFE_H

#include "common/base/domain/sampling.h"
#include "common/kv/handoff/handoff.h"

#include <stdbool.h>
#include <stdint.h>

enum terminal_status {
    TERMINAL_NONE = 0,
    TERMINAL_OK, /* with a finish_reason */
    TERMINAL_CANCELLED,
    TERMINAL_DEADLINE,
    TERMINAL_INVALID,     /* a worker can't ever serve it */
    TERMINAL_OVERLOADED,  /* no worker took it */
    TERMINAL_UNAVAILABLE, /* no worker there, or workers died under it too often */
    TERMINAL_INTERNAL,
};
const char *terminal_status_name(enum terminal_status status); /* "ok", "cancelled", ... */

enum request_state {
    REQUEST_QUEUED,
    REQUEST_PREFILL,
    REQUEST_DECODE,
    REQUEST_REGIVE,
    REQUEST_ENDED
};
const char *request_state_name(enum request_state state);

struct request_limits {
    /* Prefills that were opened, and decodes that compute the prompt: the first and its retries. */
    uint32_t runs;
    uint32_t
        /* sessions lost under it, before Opened too: a worker's death can cost a run as well */
        losses;
    uint32_t attempts;     /* of any kind, so that refusals can't go on for ever */
    uint64_t no_worker_us; /* how long to wait while no worker of the needed kind is there */
    uint64_t local_us; /* how long prefill workers are away until a decode worker does their part */
    uint64_t pause_us, max_pause_us; /* before the second retry, doubling; at most */
};

struct request_life {
    enum request_state state;
    struct request_limits limits;
    uint32_t attempt; /* the current one, from 1; while it waits for a place, the next one */
    uint32_t runs, losses;
    uint64_t prefill, decode; /* workers of this attempt; 0: none. Keys that outlive a reconnect */
    bool ends_at_prefill;     /* of this attempt: its prefill worker draws the last token */
    bool has_handle;
    struct handle_ref ref;
    uint32_t handle_emitted;              /* emitted tokens that the handle's prefill covers */
    uint32_t delivered;                   /* tokens that the client was given, 1..delivered */
    bool from_decode;                     /* this attempt's decode worker has sent a token */
    bool decode_over;                     /* and the last one: nothing of it is left there */
    bool prompt_only;                     /* no token of it is anybody's */
    bool told;                            /* then: what was asked of the prompt */
    uint64_t deadline_us;                 /* UINT64_MAX: none */
    uint64_t no_worker_since_us;          /* UINT64_MAX: there are workers */
    uint64_t away_since_us;               /* prefill workers are, UINT64_MAX: not only those */
    bool local;                           /* QUEUED: local_us have passed since then */
    uint64_t placed_us;                   /* when it last got a place */
    uint64_t place_at_us;                 /* the pause's end; UINT64_MAX: none */
    uint64_t avoid_prefill, avoid_decode; /* of the PLACE that follows the pause */
    enum terminal_status status;          /* of ENDED */
    enum finish_reason finish;
    const char *reason; /* static: why it ended so, "retries", "deadline", ... */
    bool step_failed;   /* a worker could not compute a step of it, since the last token came */
    uint32_t dropped;   /* messages of older attempts, tokens that came twice without need */
};

enum life_action_kind {
    LIFE_PLACE, /* choose prefill and decode, or decode alone; then request_life_on_placed */
    /* choose a decode worker for the handle it has; then request_life_on_placed */
    LIFE_PLACE_DECODE,
    LIFE_SEND_PREFILL, /* emitted_count tokens are the answer so far */
    LIFE_SEND_DECODE,  /* emitted_count; with_handle: that of the last accepted Opened */
    LIFE_SEND_RELEASE, /* may be left out if the worker has no session */
    LIFE_DELIVER,      /* to the client: index, id, logits_hash, logprobs, finish */
    LIFE_FINISH,       /* status, finish, reason: the one end */
};

struct life_action {
    enum life_action_kind kind;
    uint64_t worker; /* SEND_* */
    uint32_t attempt;
    uint32_t emitted_count;
    bool with_handle;
    /* PLACE*: what just failed, 0 for none. A wish: if nothing else is there, take it again. */
    uint64_t avoid_prefill, avoid_decode;
    uint32_t index, id;
    uint64_t logits_hash;
    const struct token_logprobs *logprobs;
    enum terminal_status status;
    enum finish_reason finish;
    const char *reason;
};

#define LIFE_MAX_ACTIONS 8 /* of one event */
struct life_actions {
    uint32_t count; /* every call starts at 0 */
    struct life_action items[LIFE_MAX_ACTIONS];
};

/* 3 runs, 3 losses, 16 attempts, 3 s, 1 s, pauses from 10 ms to 1 s. */
struct request_limits request_limits_default(void);

/* Starts QUEUED and asks for a place. */
void request_life_init(struct request_life *life, const struct request_limits *limits,
                       uint64_t deadline_us, bool prompt_only, struct life_actions *out);

/* In answer to PLACE or PLACE_DECODE, at once or later; prefill 0: on decode alone. For
 * PLACE_DECODE prefill is ignored. For PLACE decode may be 0: the token that the prefill worker
 * draws is the last one. */
void request_life_on_placed(struct request_life *life, uint64_t now_us, uint64_t prefill,
                            uint64_t decode, struct life_actions *out);
/* There is no place now: because no worker of the needed kind is there, or because all are full.
 * Where only prefill workers are missing: since when; so a request that comes late does not wait
 * for local_us again. UINT64_MAX: decode workers are, too. */
void request_life_on_no_place(struct request_life *life, uint64_t now_us, bool worker_exists,
                              uint64_t away_since_us, struct life_actions *out);
/* In answer to PLACE_DECODE: workers are there, but none that can read from the one that holds the
 * handle. */
void request_life_on_no_reader(struct request_life *life, struct life_actions *out);

/* True: `ref` is this request's handle from now on; the caller keeps the rest of it. */
bool request_life_on_opened(struct request_life *life, uint64_t worker, uint32_t attempt,
                            struct handle_ref ref, struct life_actions *out);

struct life_token {
    uint64_t worker;
    uint32_t attempt;
    uint32_t index; /* 1-based over the whole answer */
    uint32_t id;
    uint64_t logits_hash;
    const struct token_logprobs *logprobs; /* NULL: none; until the actions are executed */
    enum finish_reason finish;
};
void request_life_on_token(struct request_life *life, const struct life_token *token,
                           struct life_actions *out);
/* Of a prompt alone: the client has what it asked of it. Where its worker is lost now, nothing is,
 * and it ends OK. */
void request_life_on_told(struct request_life *life);
/* The decode worker gave the attempt up, or (`step_failed`) either worker could not compute a step
 * of it: which may not help elsewhere either, and is the reason why the request ends if its runs
 * are used up so. */
void request_life_on_lost(struct request_life *life, uint64_t worker, uint32_t attempt,
                          bool step_failed, struct life_actions *out);
/* Either worker has found that what was asked for leaves no token to be drawn: it ends, INVALID
 * (no_token_allowed). */
void request_life_on_banned(struct request_life *life, uint64_t worker, uint32_t attempt,
                            struct life_actions *out);
void request_life_on_refused(struct request_life *life, uint64_t worker, uint32_t attempt,
                             bool retry, struct life_actions *out);
void request_life_on_session_lost(struct request_life *life, uint64_t worker,
                                  struct life_actions *out);

void request_life_on_cancel(struct request_life *life, struct life_actions *out);
/* A stop string matched in the text of what was delivered: the answer ends here, OK. */
void request_life_on_stop_string(struct request_life *life, struct life_actions *out);
/* What the dispatcher itself decides: OVERLOADED, INVALID, UNAVAILABLE (shutting down),
 * INTERNAL. */
void request_life_on_fail(struct request_life *life, enum terminal_status status,
                          const char *reason, struct life_actions *out);
/* Deadline, the wait without workers, and the end of a pause; call it at request_life_next_us or
 * later. */
void request_life_on_tick(struct request_life *life, uint64_t now_us, struct life_actions *out);
uint64_t request_life_next_us(const struct request_life *life);

#endif
