/* Early rejection: whether a request of a class with objectives is taken, or told at once that it
 * would miss them, or that others would. PURE.
 *
 * A request is judged when it arrives and has to wait, and when its turn comes, by the best choice
 * that there is. It is beyond the bound if
 * - its calibrated P(miss) is above ADMISSION_BOUND (ADMISSION_SURE where nothing stands before it,
 *   and none is disturbed: then to take it costs nothing), or
 * - it leads to more misses than its attainment is worth: P(miss) + those of others + those of
 *   later arrivals, which wait longer behind it, are above 1. Without the last ones a queue would
 *   grow under overload until each request that is taken has a P(miss) at the bound.
 *
 * A request beyond the bound is rejected only if the class's calibration is good (calibration.h),
 * never in a class without objectives. Otherwise it is held at its turn: it waits behind all that
 * can attain, for the floor that late requests have, or for a worker that no other needs. One that
 * draws so many answers that the next would miss its TPOT is needed: otherwise late ones would keep
 * it so, and none would attain any more. So is each worker while requests are shed, unless nearly
 * all are, and those that are taken miss, too: then no objective can be met, and none is kept idle.
 * While fewer than CALIBRATION_LEAST outcomes are known it is taken, unless its raw P(miss) is
 * above a bound by the load, which falls from ADMISSION_SURE to ADMISSION_BOUND with the first
 * ADMISSION_DOUBTED outcomes: a burst would give the workers a backlog in which all are late. With
 * these outcomes the misses of others come to count, too: otherwise workers would draw so many
 * answers that each just misses its TPOT. If as many are held as may be, it is rejected.
 *
 * Misses of others are predicted by the same errors as its own. If the calibration says that its
 * own P(miss) is too high, theirs is by as much; less so the heavier the overload is, as the
 * requests that attain then do so because others are kept out.
 *
 * A request's own P(miss) is that of its own objectives, which it may have loosened. Later ones
 * have those of its class: a client that has time doesn't get past the bound at their cost.
 *
 * Soft start. Only a share of the requests beyond the bound is rejected, the others are held. They
 * say whether a rejection would have been right: each that misses raises the share by
 * ADMISSION_STEP, each that attains lowers it by ADMISSION_BACK of itself (additive increase,
 * multiplicative decrease). At ADMISSION_MOST none is held any more. One is let through for each
 * ADMISSION_EXPLORE that were taken, and one of each 1 / (1 - ADMISSION_MOST) that nothing stands
 * before, so that a wrong belief can't keep itself alive. So is each one that comes to an idle
 * cluster: it can't delay others, and what became of requests under overload says little of it. A
 * request that was held or let through is not rejected later.
 *
 * Lengths. A long prompt needs a worker that has little else to do. Under overload short prompts
 * take each such worker first, and to attain would be a matter of length. So lengths are told apart
 * in tenths, and the coin is tossed for a new request before anything else is asked: it passes with
 * the probability
 *
 *     ((lately_least / lately) (share_least / share)^2 / ADMISSION_FAIR)^heavy
 *
 * or else is given up, which is a rejection. `least` is the tenth that is worst off. `lately`: the
 * part that attains of those that pass. If of some length half as many attain, half of the others
 * pass: then all lengths attain alike. It follows within a few requests. `share`: the part that
 * attained of all that came under overload. It pays what lengths owe each other from before the
 * first factor followed. It is a multiple of the mean share. Each tenth counts ADMISSION_FEW more
 * that attained, as expected of the mean, so that few requests are no debt (the mean of a gamma
 * prior). Both are relative to what the tenth would attain on a worker with nothing
 * else to do, so that prompts that are too long for their TTFT anyway hold up none. The tenth that
 * is worst off, and all within ADMISSION_FAIR of it, always pass. `heavy` grows from 0 to 1 with
 * the part that is beyond the bound or given up: under light overload a share costs more than it
 * gives. If those that are given up didn't count, the coin would make the overload look light that
 * it is tossed for, and let others pass while a length attains no more. The coin is tossed only
 * while requests are shed, most find no free worker, and lengths differ. The tenths are streaming
 * quantiles of the length's logarithm (Robbins and Monro, 1951).
 *
 * Memory: the caller's; admission_class_init sets it up. Owner: one thread. */
#ifndef BATON_ROUTER_PLANNER_ADMISSION_H
#define BATON_ROUTER_PLANNER_ADMISSION_H

#include "common/base/rng.h"
#include "router/planner/calibration.h"
#include "router/planner/decision_log.h"
#include "router/planner/placement.h"

#define ADMISSION_BOUND   0.75 /* P(miss) */
#define ADMISSION_SURE    0.95
#define ADMISSION_DOUBTED 50   /* outcomes of a class, before its raw P(miss) counts in full */
#define ADMISSION_FIRST   0.10 /* shares of the requests beyond the bound that are rejected */
#define ADMISSION_MOST    0.95
#define ADMISSION_STEP    0.05
#define ADMISSION_BACK    0.15

#define ADMISSION_EXPLORE 50 /* requests taken, for each that is let through */
/* The room of workers is needed while so many are beyond, and fewer than ADMISSION_MOST: where all
 * would miss, an idle worker helps none. */
#define ADMISSION_SHED     0.05
#define ADMISSION_WORTH    0.5     /* so many that are taken attain: room is worth keeping */
#define ADMISSION_QUIET_US 1000000 /* without a new request: it isn't needed any more */
#define ADMISSION_REQUESTS 64      /* remembered by means */

#define ADMISSION_TENTHS  10
#define ADMISSION_CROWDED 0.5  /* requests that find no free worker; with fewer it isn't the load */
#define ADMISSION_FAIR    0.85 /* part of a share; a smaller difference is left alone */
#define ADMISSION_HEAVY   0.4  /* so many are beyond: the coin has its full weight */
#define ADMISSION_SPREAD  1 /* octaves between the first and the last tenth; less is one length */
#define ADMISSION_PASS    0.02 /* at least; a share that is wrong for long must not stop all */
#define ADMISSION_LATELY  15   /* requests of a tenth that are remembered, to follow the load */
#define ADMISSION_DEBTS   200  /* the same, to pay debts */
#define ADMISSION_FEW     2    /* attained ones, as the mean: a share of fewer says little */

#define ADMISSION_RETRY_LEAST_US 1000000
#define ADMISSION_RETRY_MOST_US  60000000

enum admission_stage {
    ADMISSION_ARRIVAL, /* others wait before it: predicted from the pace of the queue */
    ADMISSION_TURN,    /* the policy has chosen its workers, and predicts */
    ADMISSION_STAGES
};

/* Requests by prompt length, the shortest first. */
struct admission_lengths {
    uint64_t requests;
    double cuts[ADMISSION_TENTHS - 1]; /* between the tenths, logarithms to base 2, ascending */
    struct {
        double able;           /* P of attaining on a worker with nothing else to do */
        double lately;         /* the part that attains, or is expected to, of those that pass */
        double came, attained; /* sums under overload, older requests weigh less */
    } tenths[ADMISSION_TENTHS];
};

struct admission_class {
    struct slo_objective objective; /* none of TTFT and TPOT: no request is rejected */
    struct admission_lengths lengths;
    struct calibration calibrations[ADMISSION_STAGES];
    double share; /* rejected, among the requests beyond the bound */
    /* Means over the last requests: the shares beyond the bound, and that found no free worker, the
     * time of their prompts and their tokens (0: not known). */
    double shed, crowded, prompt_us, prompt_tokens;
    double given_up;    /* a mean, too: the share of those that a coin was tossed for */
    double attained;    /* a mean, too: the share of those that were taken at their turn */
    double credit;      /* requests to let through */
    uint64_t judged_us; /* the last new one */
    /* held: waits, or was placed as one of those. refuted: was held or let through, and attained */
    uint64_t rejected, held, let_through, refuted;
};

/* A request's part. All zeros: not judged yet. */
struct admission_request {
    struct {
        bool known;
        double raw, used; /* P(miss) */
    } at[ADMISSION_STAGES];
    uint8_t tenth;          /* by prompt length, from 1 on; 0: not known */
    bool tossed;            /* the coin was: it counts in the debts */
    bool shared;            /* counts in the shares of its tenth, as one that ... */
    double attains;         /* ... attains with this probability */
    bool counted;           /* in the means of its class */
    bool in_time;           /* taken at its turn, neither held nor let through */
    bool held, let_through; /* beyond the bound, and not rejected */
    bool waits;             /* held, and not placed by its last prediction */
    bool ended;             /* its outcome was noted */
};

enum admission_verdict {
    ADMISSION_TAKEN,
    ADMISSION_LET_THROUGH, /* beyond the bound, and taken to learn from it */
    ADMISSION_HELD,        /* beyond the bound: it waits behind all that can attain */
    ADMISSION_REJECTED,
};

/* The best choice that there is for a request. */
struct admission_ask {
    double raw;       /* its P(miss), as predicted at this stage */
    bool is_only;     /* no other request is there, placed or waiting: it is never rejected */
    bool is_owed;     /* it is the turn of late requests and held ones: this one is placed */
    bool hold_full;   /* as many requests are held as may be */
    double others;    /* misses that it adds to requests that are there, as multiples of its own */
    double wait_us;   /* the work that stands before it */
    double prompt_us; /* the time of its own prompt; 0: not known */
    double alone;     /* P(miss) on workers with nothing else to do */
    double spoilt;    /* P(miss) of its TPOT by the answers that its worker draws already */
    double rate;      /* arrivals a us, for each worker that computes prompts */
    /* It waits for so long for KV at the worker that draws, or for the link to it, and each request
     * of its size makes that so much longer. Its answer takes so many steps there. Arrivals a us,
     * for each worker that draws. */
    double room_us, room_each_us, steps, step_us, drawing_rate;
    double tokens, cached_tokens; /* its prompt's */
    uint64_t now_us;
};

void admission_class_init(struct admission_class *of, const struct slo_objective *objective);

/* Returns all that is known of the choice that won: its workers' predictions are in
 * placing->predicted. `raw`: its P(miss), not below 0. */
struct admission_ask admission_ask_of(const struct placement *placement,
                                      const struct placement_request *placing,
                                      const struct goodput_request *asked,
                                      const struct decision_alternative *won, double raw);

/* Judges a request. `rng`: draws the share. The first prediction of a stage is the one that
 * calibrates. A request that is held isn't placed as predicted at first: the prediction by which it
 * is placed calibrates, if its outcome isn't known by then. One that misses while it waits says
 * nothing of predictions: it missed because it was held. */
enum admission_verdict admission_judge(struct admission_class *of,
                                       struct admission_request *request,
                                       enum admission_stage stage, const struct admission_ask *ask,
                                       struct rng *rng);
/* The outcome of a request that was taken is known: it has ended, or has missed an objective
 * already. The first call for a request counts. */
void admission_ended(struct admission_class *of, struct admission_request *request, bool missed);

/* Returns the raw P(miss) of a request with these predictions, by the errors of its class: that of
 * TTFT or TPOT, as if each came by itself. Below 0: nothing is predicted. */
double admission_miss(const struct goodput_class *slo, const struct prediction *predicted,
                      const struct slo_objective *objective);

/* Returns the raw P(miss) of a request that must wait `wait_us` for its turn by the pace of the
 * queue, when its objective leaves `left_us` for it: 0 if twice the wait fits, 1/2 if the wait just
 * fits, and near 1 if it is many times too long. */
double admission_wait_miss(uint64_t wait_us, uint64_t left_us);

/* Returns the time after which a rejected request would attain: `over_us` is how much too late its
 * first token would come, the backlog that must drain first. At least ADMISSION_RETRY_LEAST_US, at
 * most ADMISSION_RETRY_MOST_US, and up to half longer at random, or all would come back together.
 */
uint64_t admission_retry_us(uint64_t over_us, struct rng *rng);

#endif
