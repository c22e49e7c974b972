/* For test_admission*: classes with a known calibration, and how they judge requests. */
#ifndef BATON_TESTS_UNIT_ADMISSION_FIXTURE_H
#define BATON_TESTS_UNIT_ADMISSION_FIXTURE_H

#include "router/planner/admission.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define SURE_MISS 0.999
#define SURE_HIT  0.001

static const struct slo_objective usual = {.ttft_us = 1000000, .tpot_us = 50000};

static inline struct admission_class fresh(void)
{
    struct admission_class of;
    admission_class_init(&of, &usual);
    return of;
}

/* Judges one that comes when no other has come for long: nothing stands before it. */
static inline enum admission_verdict judge_at(struct admission_class *of,
                                              struct admission_request *request,
                                              enum admission_stage stage, double raw,
                                              struct rng *rng)
{
    const struct admission_ask ask = {.raw = raw,
                                      .prompt_us = 1000,
                                      .tokens = 100,
                                      .now_us = of->judged_us + 2 * ADMISSION_QUIET_US};
    return admission_judge(of, request, stage, &ask, rng);
}

static inline enum admission_verdict
judge(struct admission_class *of, struct admission_request *request, double raw, struct rng *rng)
{
    return judge_at(of, request, ADMISSION_TURN, raw, rng);
}

/* `count` requests, half of which are predicted to miss and do if `come_true`. None is rejected
 * where the class takes all. Returns the rejected. */
static inline int serve(struct admission_class *of, int count, bool come_true, struct rng *rng)
{
    int rejected = 0;
    for (int i = 0; i < count; i++) {
        struct admission_request request = {.let_through = false};
        bool miss = i % 2;
        if (judge(of, &request, miss ? SURE_MISS : SURE_HIT, rng) == ADMISSION_REJECTED)
            rejected++;
        else
            admission_ended(of, &request, miss && come_true);
    }
    return rejected;
}

/* Returns a class with a calibration that has just become good. */
static inline struct admission_class calibrated(struct rng *rng)
{
    struct admission_class of = fresh();
    assert_true(!serve(&of, CALIBRATION_LEAST, true, rng) &&
                calibration_is_good(&of.calibrations[ADMISSION_TURN]));
    return of;
}

/* Work stands before it, and others wait for the same workers. */
static const struct admission_ask crowded = {
    .raw = SURE_MISS, .wait_us = 500000, .prompt_us = 100000, .rate = 1e-5, .tokens = 1000};

/* Its predictions are right, but those that were used were wrong: its calibration isn't good. */
static inline struct admission_class distrusted(void)
{
    struct admission_class of = fresh();
    for (int i = 0; i < 2 * CALIBRATION_LEAST; i++) {
        double raw = (i % 20 + 0.5) / 20;
        calibration_note(&of.calibrations[ADMISSION_TURN], raw, raw < 0.5 ? 0.99 : 0.01,
                         (i / 20 * 7 % 20 + 0.5) / 20 < raw);
    }
    assert_false(calibration_is_good(&of.calibrations[ADMISSION_TURN]));
    return of;
}

static inline enum admission_verdict judge_new(struct admission_class *of,
                                               const struct admission_ask *ask, struct rng *rng)
{
    struct admission_request request = {.let_through = false};
    return admission_judge(of, &request, ADMISSION_TURN, ask, rng);
}

#endif
