/* Decisions of placement: the choices that were scored, their predictions, and which one won. PURE.
 *
 * The search fills a `struct decision` while it scores (decision_consider, decision_choose). It
 * keeps the DECISION_MAX_ALTERNATIVES choices of least total, and always the one that won.
 *
 * Memory: the caller's. Times are of one monotonic clock, in microseconds. */
#ifndef BATON_ROUTER_PLANNER_DECISION_LOG_H
#define BATON_ROUTER_PLANNER_DECISION_LOG_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DECISION_MAX_ALTERNATIVES 8

/* One choice of workers, as the policy predicts it. A policy that doesn't predict a value leaves it
 * at 0; p_miss below 0: not predicted. */
struct decision_alternative {
    uint64_t prefill, decode; /* keys. prefill 0: decode computes the prompt. decode 0: none yet */
    double ttft_us, tpot_us;  /* expected, from the request's arrival */
    double p_miss;            /* probability that this request misses its objective, 0 .. 1 */
    double others;            /* expected misses that it adds to the requests that it disturbs */
    double price;             /* shadow price of the slack that it takes from later arrivals */
    double total;             /* the score in the policy's own unit: the least wins */
};

/* Why the choice that won did. */
enum decision_why {
    DECISION_LEAST,    /* the least total */
    DECISION_ONLY,     /* there was no other */
    DECISION_TIE,      /* equal totals: the least device time, or the longest unused worker */
    DECISION_EXPLORED, /* a random draw, so that a worker that looks slow is looked at again */
};

struct decision {
    uint64_t time_us;
    uint64_t waited_us;    /* since the request's arrival */
    uint32_t slo_class;    /* its index; DECISION_NO_CLASS: none */
    const char *policy;    /* static: the policy's name */
    bool reader_only;      /* only the decode worker was chosen */
    enum decision_why why; /* set by decision_choose */
    uint32_t considered;   /* choices that were scored, also those that aren't kept */
    uint32_t count, chosen;
    struct decision_alternative alternatives[DECISION_MAX_ALTERNATIVES]; /* by total */
};
#define DECISION_NO_CLASS UINT32_MAX

/* Begins anew: nothing is considered. */
void decision_begin(struct decision *decision, const char *policy);
/* A choice was scored. Ties keep the order of these calls. `decision` NULL: does nothing. */
void decision_consider(struct decision *decision, const struct decision_alternative *choice);
/* This choice won. It is kept, in place of the worst where it isn't among the best. `why`:
 * DECISION_LEAST lets the totals say which of LEAST, ONLY and TIE it is. `decision` NULL: does
 * nothing. */
void decision_choose(struct decision *decision, const struct decision_alternative *choice,
                     enum decision_why why);

#endif
