/* The life of one request, from arrival to its one terminal status: the workers of each attempt,
 * and the next token. PURE. Each event is a function that appends actions to the caller's list, in
 * order. The dispatcher owns the struct and executes the actions. It keeps the prompt, the
 * emitted ids and the handle's block list, which aren't needed here.
 *
 * QUEUED -placed-> PREFILL -opened-> DECODE -last token-> ENDED. If the decode worker is lost
 * before its first token, the state is REGIVE: the handle goes to another decode worker. With
 * `bind_late` each handle is in REGIVE first: the decode worker of the placement is a guess that
 * holds the place, and the real one is chosen when the prefill starts, from the loads of that time.
 * A guess that drains meanwhile stays: it serves what it was promised, and no other need be there.
 * Until then the loss of the prefill worker's session is that of the handle.
 * After other losses it is QUEUED again: prompt and emitted tokens are prefilled again. A placement
 * without a prefill worker leads to DECODE at once, where the prompt is computed. Cancel, deadline
 * and limits lead from each state to ENDED. If the prefill worker draws the last token (a prompt
 * alone, an answer of one token), the request stays in PREFILL until that token comes: no worker
 * reads its handle.
 *
 * `attempt` is counted up when an attempt ends. Later messages of an ended attempt are older, and
 * dropped and counted.
 *
 * Retries have three limits: runs, losses and attempts of any kind. The limit of losses keeps a
 * request that kills its workers from killing them all. The first retry comes at once. The others
 * wait for a pause after the last placement, which doubles each time, so that a worker that keeps
 * refusing doesn't use up the attempts at once. After the pause a tick asks for a place.
 *
 * Retries count per progress, not per life: once `progress_tokens` tokens have come since the last
 * failure, the limits begin anew. A long answer outlives any number of workers, if it gets on with
 * each. A planned move, away from a worker that leaves in order, counts against no limit.
 *
 * Silence: if the worker that owes the next token sends no sign of the request for `silence_us`, a
 * tick asks whether the request waits in that worker's queue (LIFE_SILENT). If it doesn't, the
 * caller answers with request_life_on_silent, and the request goes elsewhere. The reader of a
 * handle owes nothing before its prompt is known to be computed. A prefill may take longer than
 * `silence_us`, and after REGIVE it sends no sign before its end. */
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
    TERMINAL_INVALID,     /* no worker can ever serve it */
    TERMINAL_OVERLOADED,  /* no worker took it */
    TERMINAL_UNAVAILABLE, /* there is no worker, or too many were lost */
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
    uint32_t runs;         /* prefills that were opened, and decodes that compute the prompt */
    uint32_t losses;       /* sessions lost during it, also before Opened; may cost a run too */
    uint32_t attempts;     /* any kind, so that refusals can't go on for ever */
    uint64_t no_worker_us; /* the wait for a worker of a needed role */
    uint64_t local_us;     /* after this absence of prefill workers decode computes the prompt */
    uint64_t pause_us, max_pause_us; /* before the second retry, doubled each time; its maximum */
    uint32_t progress_tokens; /* delivered since the last failure: limits begin anew; 0: never */
    uint64_t silence_us;      /* without a sign of the worker that owes a token; 0: no limit */
    bool bind_late;           /* the decode worker is chosen again when the prefill starts */
};

/* The past of a life that no limit counts any more. */
struct life_forgiven {
    uint32_t attempts, runs, losses;
};

/* Why a PLACE comes again, and whether the retry budget (retry_budget.h) pays for it. */
enum life_again {
    AGAIN_NOT,     /* the first one */
    AGAIN_MOVED,   /* planned: free */
    AGAIN_FREE,    /* nothing was computed, or it is the first loss of a worker since progress */
    AGAIN_CHARGED, /* all others */
};

struct request_life {
    enum request_state state;
    struct request_limits limits;
    uint32_t attempt; /* the current one, from 1; without a place, the next one */
    uint32_t runs, losses;
    struct life_forgiven forgiven;
    uint32_t failed_at;       /* tokens that were delivered at the last failure */
    bool ran;                 /* `runs` has counted this attempt's prefill */
    uint64_t prefill, decode; /* keys of this attempt's workers, which a reconnect keeps; 0: none */
    bool ends_at_prefill;     /* this attempt's prefill worker draws the last token */
    bool has_handle;
    struct handle_ref ref;
    uint32_t handle_emitted;     /* emitted tokens that the handle's prefill covers */
    uint32_t handle_attempt;     /* its prefill's: later ones hear the reader alone */
    bool computed;               /* its prompt is known to be computed */
    uint32_t delivered;          /* the client got tokens 1..delivered */
    bool from_decode;            /* this attempt's decode worker sent a token */
    bool keeps_guess;            /* bind_late: this placement's decode worker is its reader */
    bool binding;                /* REGIVE: the prefill runs, and bind_late asks for its reader */
    bool decode_over;            /* it sent the last token: there is nothing to release */
    bool prompt_only;            /* the client gets no token */
    bool told;                   /* prompt_only: the client has its output */
    uint64_t deadline_us;        /* UINT64_MAX: none */
    uint64_t no_worker_since_us; /* UINT64_MAX: there are workers */
    uint64_t away_since_us;      /* only prefill workers are missing; UINT64_MAX: no */
    bool local;                  /* QUEUED: local_us have passed since then */
    uint64_t placed_us;          /* the last placement */
    uint64_t sign_us;     /* the last sign of this attempt's workers, or of the silence's check */
    uint64_t place_at_us; /* the pause's end; UINT64_MAX: none */
    uint64_t avoid_prefill, avoid_decode; /* for the PLACE after the pause, as is: */
    enum life_again again;
    enum terminal_status status; /* in ENDED */
    enum finish_reason finish;
    const char *reason; /* static: the cause of the end, "retries", "deadline", ... */
    bool step_failed;   /* a worker could not compute a step since the last token */
    uint32_t dropped;   /* messages of old attempts, and unexpected second tokens */
};

enum life_action_kind {
    /* Choose workers, then call request_life_on_placed. */
    LIFE_PLACE,        /* prefill and decode, or decode alone */
    LIFE_PLACE_DECODE, /* a decode worker for the handle */
    LIFE_SEND_PREFILL, /* emitted_count tokens are the answer so far */
    LIFE_SEND_DECODE,  /* emitted_count; with_handle: of the last accepted Opened */
    LIFE_SEND_RELEASE, /* not needed if the worker has no session */
    LIFE_DELIVER,      /* to the client: index, id, logits_hash, logprobs, finish */
    LIFE_FINISH,       /* the one end: status, finish, reason */
    LIFE_SILENT,       /* worker: it owes a token for silence_us. See request_life_on_silent */
};

struct life_action {
    enum life_action_kind kind;
    uint64_t worker; /* SEND_* */
    uint32_t attempt;
    uint32_t emitted_count;
    bool with_handle;
    uint64_t avoid_prefill, avoid_decode; /* PLACE*: just failed; only if there are no others */
    enum life_again again;                /* PLACE */
    uint32_t index, id;
    uint64_t logits_hash;
    const struct token_logprobs *logprobs;
    enum terminal_status status;
    enum finish_reason finish;
    const char *reason;
};

#define LIFE_MAX_ACTIONS 8 /* per event */
struct life_actions {
    uint32_t count; /* every event sets it to 0 first */
    struct life_action items[LIFE_MAX_ACTIONS];
};

/* 3 runs, 3 losses, 16 attempts, 3 s, 1 s, pauses from 10 ms to 1 s, 64 tokens, 60 s. */
struct request_limits request_limits_default(void);

/* Starts QUEUED and asks for a place. */
void request_life_init(struct request_life *life, const struct request_limits *limits,
                       uint64_t deadline_us, bool prompt_only, struct life_actions *out);

/* Answers PLACE or PLACE_DECODE, at once or later. `prefill` 0: decode alone; ignored for
 * PLACE_DECODE. `decode` 0, for PLACE only: the prefill worker draws the last token. */
void request_life_on_placed(struct request_life *life, uint64_t now_us, uint64_t prefill,
                            uint64_t decode, struct life_actions *out);
/* There is no place now: all workers are full, or (`worker_exists` false) a role is missing.
 * `away_since_us`: since when only prefill workers are missing, so that a request that comes later
 * doesn't wait for local_us again; UINT64_MAX: decode workers are missing too. */
void request_life_on_no_place(struct request_life *life, uint64_t now_us, bool worker_exists,
                              uint64_t away_since_us, struct life_actions *out);
/* Answers PLACE_DECODE: there are workers, but none can read from the holder of the handle. */
void request_life_on_no_reader(struct request_life *life, struct life_actions *out);

/* True: `ref` is this request's handle from now on, and the caller keeps its block list. Asks for a
 * decode worker where the placement's has left, or was a guess that wasn't kept. */
bool request_life_on_opened(struct request_life *life, uint64_t worker, uint32_t attempt,
                            struct handle_ref ref, struct life_actions *out);
/* The decode worker of this placement drains: it is no guess any more. Call it before
 * request_life_on_opened. */
void request_life_keep_guess(struct request_life *life);
/* The worker has computed the prompt. After a REGIVE `attempt` is that of the handle, and older
 * than the current one. */
void request_life_on_prefilled(struct request_life *life, uint64_t now_us, uint64_t worker,
                               uint32_t attempt);
/* A worker of this attempt, or the one that computes its handle, has said anything about it: the
 * silence begins anew. Call it before the event's own function. */
void request_life_on_sign(struct request_life *life, uint64_t now_us, uint64_t worker,
                          uint32_t attempt);

struct life_token {
    uint64_t worker;
    uint32_t attempt;
    uint32_t index; /* 1-based over the whole answer */
    uint32_t id;
    uint64_t logits_hash;
    const struct token_logprobs *logprobs; /* NULL: none. Valid until the actions are executed */
    enum finish_reason finish;
};
void request_life_on_token(struct request_life *life, const struct life_token *token,
                           struct life_actions *out);
/* prompt_only: the client has its output. If a worker is lost from now on, the request ends OK. */
void request_life_on_told(struct request_life *life);
/* The decode worker gave the attempt up, or (`step_failed`) either worker could not compute a step.
 * Other workers may fail too: if the runs are used up so, the request ends as "step_failed". */
void request_life_on_lost(struct request_life *life, uint64_t worker, uint32_t attempt,
                          bool step_failed, struct life_actions *out);
/* A worker found that the request's constraints allow no token. The request ends as INVALID
 * ("no_token_allowed"). */
void request_life_on_banned(struct request_life *life, uint64_t worker, uint32_t attempt,
                            struct life_actions *out);
void request_life_on_refused(struct request_life *life, uint64_t worker, uint32_t attempt,
                             bool retry, struct life_actions *out);
void request_life_on_session_lost(struct request_life *life, uint64_t worker,
                                  struct life_actions *out);
/* The worker leaves in order: its requests go elsewhere, and no limit counts that. */
void request_life_on_moved(struct request_life *life, uint64_t worker, struct life_actions *out);
/* The worker computes nothing although it should, and its session is up: it hangs. Requests that it
 * owes a token go elsewhere, and count a loss. The others only get another reader. */
void request_life_on_silent(struct request_life *life, uint64_t worker, struct life_actions *out);
/* True: a worker is at it, though its decode worker may not be chosen yet. */
bool request_life_works(const struct request_life *life);
/* Returns the worker that owes the next token: the prefill worker until the prompt is known to be
 * computed. 0: the request has no workers. */
uint64_t request_life_owing(const struct request_life *life);

void request_life_on_cancel(struct request_life *life, struct life_actions *out);
/* A stop string matched in the delivered text: the answer ends here, OK. */
void request_life_on_stop_string(struct request_life *life, struct life_actions *out);
/* The dispatcher ends it: OVERLOADED, INVALID, UNAVAILABLE (shutting down), INTERNAL. */
void request_life_on_fail(struct request_life *life, enum terminal_status status,
                          const char *reason, struct life_actions *out);
/* The deadline, the end of the wait without workers, the end of a pause, or a silence. Call it at
 * request_life_next_us or later. */
void request_life_on_tick(struct request_life *life, uint64_t now_us, struct life_actions *out);
uint64_t request_life_next_us(const struct request_life *life);

#endif
