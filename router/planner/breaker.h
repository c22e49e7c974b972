/* A circuit breaker: keeps requests away from a worker, or from a pair of workers, that fails them.
 * PURE. Owner: the caller, on one thread. Times are microseconds of the caller's clock.
 *
 *      CLOSED ----- too many failures ----> OPEN
 *      OPEN ------- placed, after the back-off (the probe) ----> HALF_OPEN
 *      HALF_OPEN -- the probe succeeds ----> CLOSED
 *      HALF_OPEN -- the probe fails -------> OPEN, with twice the back-off
 *
 * It opens after `failures` in a row, or when `percent` of the outcomes in a window have failed and
 * there are enough of them. The row finds a dead device after few requests; the rate finds one that
 * works now and then. Failures that come together count once: a step that fails ends all sequences
 * of it. Outcomes of requests that were placed before the last change of state are ignored, as they
 * tell of an earlier time.
 *
 * A breaker says which workers and pairs to avoid, never that a request fails. At most half of the
 * workers of a model and role, and half of the pairs of a model, are kept out at once
 * (breakers_keep_out): a failure that most have in common is no fault of theirs, but of the
 * requests, and must not close the cluster. */
#ifndef BATON_ROUTER_PLANNER_BREAKER_H
#define BATON_ROUTER_PLANNER_BREAKER_H

#include "router/planner/request_life.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum breaker_state { BREAKER_CLOSED, BREAKER_OPEN, BREAKER_HALF_OPEN };
const char *breaker_state_name(enum breaker_state state); /* "closed", "open", "half_open" */

struct breaker_limits {
    uint32_t failures; /* in a row; 0: it never opens */
    uint32_t percent;  /* failed ones in a window of least_outcomes or more */
    uint32_t least_outcomes;
    uint64_t window_us;
    uint64_t together_us;                /* a failure so soon after another one is the same */
    uint64_t backoff_us, max_backoff_us; /* before the first probe, doubled each time */
    uint64_t probe_us; /* a probe without an outcome for so long is lost: another one may go */
};
/* 3 in a row; half of 20 or more in 10 s; 10 ms; 1 s to 60 s; 10 s. */
struct breaker_limits breaker_limits_default(void);

struct breaker { /* all 0: closed, and nothing has happened */
    enum breaker_state state;
    uint32_t failures; /* in a row */
    uint64_t failed_us, changed_us;
    uint64_t backoff_us, probe_us; /* OPEN: the probe may go from then on. HALF_OPEN: it went */
    struct {
        uint64_t begun_us;
        uint32_t good, failed;
    } halves[2]; /* this half of the window, and the one before */
    uint64_t opened_count;
};

/* Returns whether a request may be placed there now. */
bool breaker_admits(const struct breaker *breaker, const struct breaker_limits *limits,
                    uint64_t now_us);
/* Returns when breaker_admits turns true without an event. UINT64_MAX: it is true already. */
uint64_t breaker_next_us(const struct breaker *breaker, const struct breaker_limits *limits);
/* A request was placed there. While open it is the probe, however it came there. */
void breaker_placed(struct breaker *breaker, const struct breaker_limits *limits, uint64_t now_us);
/* The outcomes of a request that was placed at placed_us. Both return whether the state changed. */
bool breaker_good(struct breaker *breaker, const struct breaker_limits *limits, uint64_t placed_us,
                  uint64_t now_us);
bool breaker_failed(struct breaker *breaker, const struct breaker_limits *limits,
                    uint64_t placed_us, uint64_t now_us);

/* The side that failed. */
struct blame {
    uint64_t worker; /* 0: neither worker, nor the pair */
    uint64_t reader; /* not 0: the pair of prefill worker `worker` and this decode worker */
};
/* A request's workers, and what one of them said of it. */
struct blame_cause {
    uint64_t said_by, prefill, decode; /* prefill 0: the decode worker computes the prompt */
    const char *reason; /* a Lost's or a Refused's (worker.proto), details behind a colon */
    bool refused;
    bool
        step_failed_before; /* since its last token, at any worker: the request is suspect itself */
};
/* Charges the worker for a failed step, unless the request has failed one before. Charges the pair
 * for bytes that can't be read, or not in time. Charges no worker for a request that is invalid or
 * finds no room. */
struct blame blame_of(const struct blame_cause *cause);

/* --- the breakers of a cluster --- */

struct worker_breaker {
    uint64_t worker; /* its key; 0: unused */
    struct breaker breaker;
    bool noted; /* in breakers.noted */
};
/* Only pairs with failures have one. When it is full, the pair that failed longest ago is
 * forgotten. */
#define BREAKER_MAX_PAIRS 256
struct pair_breaker {
    uint64_t prefill, decode; /* their keys */
    struct breaker breaker;
    bool kept_out; /* the caller's, for what it tells of changes */
};
struct breakers {
    struct breaker_limits limits;
    struct worker_breaker *workers; /* [slots]; worker `key` has slot key % slots */
    size_t slots;
    uint64_t *noted; /* [noted_count] of [slots]: workers with breakers that may not be closed */
    size_t noted_count;
    struct pair_breaker pairs[BREAKER_MAX_PAIRS]; /* [pair_count] */
    size_t pair_count;
    uint64_t changes; /* grows when any state changes */
};
/* A worker's key must not meet that of another live one in its slot. STATUS_LIMIT: no memory. */
enum status breakers_init(struct breakers *breakers, const struct breaker_limits *limits,
                          size_t slots) WARN_UNUSED;
void breakers_deinit(struct breakers *breakers);
/* Returns the worker's own breaker. */
struct breaker *breakers_of(struct breakers *breakers, uint64_t worker);
/* NULL: the pair has had no failure. */
struct pair_breaker *breakers_pair(struct breakers *breakers, uint64_t prefill, uint64_t decode);
struct breaker *breakers_of_pair(struct breakers *breakers, uint64_t prefill, uint64_t decode);

/* Events of a request. `life` is as it was before the event, except in breakers_placed. */
void breakers_placed(struct breakers *breakers, const struct request_life *life, uint64_t now_us);
/* Credits a worker with the first token that it computed, and the pair with the first token that
 * came over it. */
void breakers_token(struct breakers *breakers, const struct request_life *life,
                    const struct life_token *token, uint64_t now_us);
/* A worker's Lost or Refused. */
struct breaker_said {
    uint64_t worker;
    uint32_t attempt;
    const char *reason;
    bool refused;
};
void breakers_said(struct breakers *breakers, const struct request_life *life,
                   const struct breaker_said *said, uint64_t now_us);
/* The worker's session was lost, or the worker hangs or is silent. */
void breakers_left(struct breakers *breakers, uint64_t worker, uint64_t now_us);
/* The worker is gone for good. */
void breakers_forget(struct breakers *breakers, uint64_t worker);

/* Forgets the closed ones among the noted workers. */
void breakers_tidy(struct breakers *breakers);

/* A ready worker, or a pair of two. Only ones with breakers that may not be closed matter. */
struct breaker_candidate {
    uint32_t pool; /* the ones that can take each other's place: an index of the caller's */
    uint64_t worker, reader; /* reader not 0: the pair */
    /* The answer: until then it gets a request only if there is no other. 0: it may have one. */
    uint64_t until_us;
    uint64_t failed_us; /* filled in */
};
/* Finds the candidates that get no request now: the ones that are open, the latest failures first,
 * and at most half of pool_sizes[pool], which counts all ready ones. Sorts the candidates. Returns
 * when that changes without an event; UINT64_MAX: never. */
uint64_t breakers_keep_out(struct breakers *breakers, struct breaker_candidate *candidates,
                           size_t count, const size_t *pool_sizes, uint64_t now_us);

#endif
