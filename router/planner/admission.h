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
 * never in a class without objectives. While fewer than CALIBRATION_LEAST outcomes are known it is
 * taken. Otherwise it is held at its turn: it waits behind all that can attain, for the floor that
 * late requests have, or for a worker that no other needs.
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
 * Memory: the caller's; admission_class_init sets it up. Owner: one thread. */
#ifndef BATON_ROUTER_PLANNER_ADMISSION_H
#define BATON_ROUTER_PLANNER_ADMISSION_H

#include "common/base/rng.h"
#include "router/planner/calibration.h"
#include "router/planner/decision_log.h"
#include "router/planner/placement.h"

#define ADMISSION_BOUND 0.75 /* P(miss) */
#define ADMISSION_SURE  0.95
#define ADMISSION_FIRST 0.10 /* shares of the requests beyond the bound that are rejected */
#define ADMISSION_MOST  0.95
#define ADMISSION_STEP  0.05
#define ADMISSION_BACK  0.15

#define ADMISSION_EXPLORE 50 /* requests taken, for each that is let through */
/* The room of workers is needed while so many are beyond, and fewer than ADMISSION_MOST: where all
 * would miss, an idle worker helps none. */
#define ADMISSION_SHED     0.05
#define ADMISSION_QUIET_US 1000000 /* without a new request: it isn't needed any more */
#define ADMISSION_REQUESTS 64      /* remembered by means */

#define ADMISSION_RETRY_LEAST_US 1000000
#define ADMISSION_RETRY_MOST_US  60000000

enum admission_stage {
    ADMISSION_ARRIVAL, /* others wait before it: predicted from the pace of the queue */
    ADMISSION_TURN,    /* the policy has chosen its workers, and predicts */
    ADMISSION_STAGES
};

struct admission_class {
    bool has_objective;
    struct calibration calibrations[ADMISSION_STAGES];
    double share; /* rejected, among the requests beyond the bound */
    /* Means over the last requests: the share beyond the bound, the time of their prompts and their
     * tokens (0: not known). */
    double shed, prompt_us, prompt_tokens;
    double credit;      /* requests to let through */
    uint64_t judged_us; /* the last new one */
    /* refuted: was held or let through, and attained */
    uint64_t rejected, held, let_through, refuted;
};

/* A request's part. All zeros: not judged yet. */
struct admission_request {
    struct {
        bool known;
        double raw, used; /* P(miss) */
    } at[ADMISSION_STAGES];
    bool counted;           /* in the means of its class */
    bool held, let_through; /* beyond the bound, and not rejected */
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
    double others;    /* misses that it adds to requests that are there, as multiples of its own */
    double wait_us;   /* the work that stands before it */
    double prompt_us; /* the time of its own prompt; 0: not known */
    double ttft_us;   /* its objective; 0: none */
    double rate;      /* arrivals a us, for each worker that computes prompts */
    /* It waits for so long for KV at the worker that draws, each request of its size makes that so
     * much longer, and it may wait for `room_left_us` and attain its TPOT (0: any). Arrivals a us,
     * for each worker that draws. */
    double room_us, room_each_us, room_left_us, drawing_rate;
    double tokens, cached_tokens; /* its prompt's */
    uint64_t now_us;
};

void admission_class_init(struct admission_class *of, bool has_objective);

/* Returns all that is known of the choice that won: its workers' predictions are in
 * placing->predicted. `raw`: its P(miss), not below 0. */
struct admission_ask admission_ask_of(const struct placement *placement,
                                      const struct placement_request *placing,
                                      const struct goodput_request *asked,
                                      const struct decision_alternative *won, double raw);

/* Judges a request. `rng`: draws the share. The first prediction of a stage is the one that
 * calibrates. A request that is held isn't placed as predicted at first: the last prediction of its
 * turn calibrates. Without those a class that holds all of its requests would never calibrate. */
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
