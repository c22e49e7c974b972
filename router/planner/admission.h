/* Early rejection: whether a request of a class with objectives is taken, or told at once that it
 * would miss them. PURE.
 *
 * A request is judged when it arrives and has to wait, and when its turn comes, by the P(miss) of
 * the best choice that there is. It is beyond the bound if the calibrated P is above
 * ADMISSION_BOUND and the class's calibration is good (calibration.h). A class without objectives,
 * or of fewer than CALIBRATION_LEAST known outcomes, rejects nothing.
 *
 * Soft start. Only a share of the requests beyond the bound is rejected. The others are let
 * through, and say whether a rejection would have been right: each that misses raises the share by
 * ADMISSION_STEP, each that attains lowers it by ADMISSION_BACK of itself (additive increase,
 * multiplicative decrease). It never exceeds ADMISSION_MOST, so that a wrong belief can't keep
 * itself alive. A request that was let through is not judged again.
 *
 * Memory: the caller's; admission_class_init sets it up. Owner: one thread. */
#ifndef BATON_ROUTER_PLANNER_ADMISSION_H
#define BATON_ROUTER_PLANNER_ADMISSION_H

#include "common/base/rng.h"
#include "router/planner/calibration.h"
#include "router/planner/goodput.h"

#define ADMISSION_BOUND 0.75 /* P(miss) */
#define ADMISSION_FIRST 0.10 /* shares of the requests beyond the bound that are rejected */
#define ADMISSION_MOST  0.95
#define ADMISSION_STEP  0.05
#define ADMISSION_BACK  0.15

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
    double share;                            /* rejected, among the requests beyond the bound */
    uint64_t rejected, let_through, refuted; /* refuted: was let through, and attained */
};

/* A request's part. All zeros: not judged yet. */
struct admission_request {
    struct {
        bool known;
        double raw, used; /* P(miss) */
    } at[ADMISSION_STAGES];
    bool let_through;
};

enum admission_verdict {
    ADMISSION_TAKEN,
    ADMISSION_LET_THROUGH, /* beyond the bound, and taken to learn from it */
    ADMISSION_REJECTED,
};

void admission_class_init(struct admission_class *of, bool has_objective);

/* Judges a request by `raw`, its P(miss) as predicted at this stage. `rng`: draws the share. The
 * first prediction of a stage is the one that calibrates. */
enum admission_verdict admission_judge(struct admission_class *of,
                                       struct admission_request *request,
                                       enum admission_stage stage, double raw, struct rng *rng);
/* The outcome of a request that was taken. Call at most once. */
void admission_ended(struct admission_class *of, const struct admission_request *request,
                     bool missed);

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
