#include "router/planner/admission.h"

#include "common/base/assert.h"

void admission_class_init(struct admission_class *of, bool has_objective)
{
    *of = (struct admission_class){.has_objective = has_objective, .share = ADMISSION_FIRST};
}

enum admission_verdict admission_judge(struct admission_class *of,
                                       struct admission_request *request,
                                       enum admission_stage stage, double raw, struct rng *rng)
{
    struct calibration *calibration = &of->calibrations[stage];
    ASSERT(raw >= 0 && raw <= 1);
    if (!of->has_objective)
        return ADMISSION_TAKEN;
    double used = calibration_map(calibration, raw);
    if (!request->at[stage].known) {
        request->at[stage].known = true;
        request->at[stage].raw = raw;
        request->at[stage].used = used;
    }
    if (request->let_through || used <= ADMISSION_BOUND || !calibration_is_good(calibration))
        return ADMISSION_TAKEN;
    if (rng_unit(rng) < of->share) {
        of->rejected++;
        return ADMISSION_REJECTED;
    }
    of->let_through++;
    request->let_through = true;
    return ADMISSION_LET_THROUGH;
}

void admission_ended(struct admission_class *of, const struct admission_request *request,
                     bool missed)
{
    for (int stage = 0; stage < ADMISSION_STAGES; stage++)
        if (request->at[stage].known)
            calibration_note(&of->calibrations[stage], request->at[stage].raw,
                             request->at[stage].used, missed);
    if (!request->let_through)
        return;
    of->refuted += !missed;
    of->share += missed ? ADMISSION_STEP : -ADMISSION_BACK * of->share;
    if (of->share > ADMISSION_MOST)
        of->share = ADMISSION_MOST;
}

double admission_miss(const struct goodput_class *slo, const struct prediction *predicted,
                      const struct slo_objective *objective)
{
    if (!(predicted->ttft_us > 0))
        return -1;
    double ttft = predict_miss(&slo->ttft, predicted->ttft_us, (double)objective->ttft_us);
    double tpot = predict_miss(&slo->tpot, predicted->tpot_us, (double)objective->tpot_us);
    return 1 - (1 - ttft) * (1 - tpot);
}

double admission_wait_miss(uint64_t wait_us, uint64_t left_us)
{
    double fits = wait_us ? (double)left_us / (double)wait_us : 2;
    return fits < 2 ? 1 - fits / 2 : 0;
}

uint64_t admission_retry_us(uint64_t over_us, struct rng *rng)
{
    uint64_t us = over_us < ADMISSION_RETRY_LEAST_US  ? ADMISSION_RETRY_LEAST_US
                  : over_us > ADMISSION_RETRY_MOST_US ? ADMISSION_RETRY_MOST_US
                                                      : over_us;
    return us + (uint64_t)(rng_unit(rng) * 0.5 * (double)us);
}
