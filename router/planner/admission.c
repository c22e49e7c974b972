#include "router/planner/admission.h"

#include "common/base/assert.h"

#include <math.h>

#define HARMLESS    0.05 /* misses of others */
#define MOST_CREDIT 2

void admission_class_init(struct admission_class *of, bool has_objective)
{
    *of = (struct admission_class){.has_objective = has_objective, .share = ADMISSION_FIRST};
}

struct admission_ask admission_ask_of(const struct placement *placement,
                                      const struct placement_request *placing,
                                      const struct goodput_request *asked,
                                      const struct decision_alternative *won, double raw)
{
    const struct prediction *predicted = &placing->predicted;
    const struct predict_request *is = &asked->is;
    const struct candidate_pool *pool = &placement->candidates.pools[placing->model];
    double prefills = pool->roles[ROLE_PREFILL].up, decodes = pool->roles[ROLE_DECODE].up;
    uint64_t now_us = placement->pass.now_us;
    double rate = goodput_arrival_rate(&placement->demands[placing->model], now_us);
    double slack_us = (double)is->objective.tpot_us - predicted->step_us; /* each step's */
    bool any = !is->objective.tpot_us;
    bool is_only = TAILQ_FIRST(&placement->all) == placing && !TAILQ_NEXT(placing, all_link);
    return (struct admission_ask){.raw = fmin(raw, 1),
                                  .is_only = is_only,
                                  .others = won->others / asked->weight,
                                  .wait_us = predicted->wait_us,
                                  .prompt_us = predicted->prefill_us,
                                  .ttft_us = (double)is->objective.ttft_us,
                                  .rate = rate / (prefills > 0 ? prefills : fmax(decodes, 1)),
                                  .room_us = predicted->room_us,
                                  .room_each_us = predicted->room_each_us,
                                  .room_left_us =
                                      any ? 0 : fmax((is->answer_tokens - 1) * slack_us, 1),
                                  .drawing_rate = rate / fmax(decodes, 1),
                                  .tokens = (double)is->prompt_tokens,
                                  .cached_tokens = (double)placing->cached_tokens,
                                  .now_us = now_us};
}

/* Returns the misses of others that this request leads to. Each later one that comes while the
 * worker is busy waits as much longer as this prompt takes, and has no slack for that with the
 * probability of that time in its objective. KV is the same kind of queue. Long prompts and short
 * ones count as the mean, or only short ones would be taken under overload; but one that is cached
 * for the most part costs little. */
static double misses_of_others(const struct admission_class *of, const struct admission_ask *ask)
{
    bool is_cached = 2 * ask->cached_tokens > ask->tokens, is_long = ask->prompt_us > of->prompt_us;
    double prompt_us = is_cached ? fmin(ask->prompt_us, of->prompt_us) : of->prompt_us;
    double misses = ask->others * (is_long ? of->prompt_us / ask->prompt_us : 1);
    if (ask->ttft_us > 0)
        misses += ask->rate * ask->wait_us * prompt_us / ask->ttft_us;
    if (ask->room_left_us > 0 && ask->tokens > 0)
        misses += ask->drawing_rate * ask->room_us * ask->room_each_us * of->prompt_tokens /
                  ask->tokens / ask->room_left_us;
    return misses;
}

/* True: nothing stands before it, and no other request is disturbed. */
static bool is_first(const struct admission_ask *ask)
{
    return ask->wait_us <= 0 && ask->room_us <= 0 && ask->others < HARMLESS;
}

static enum admission_verdict hold(struct admission_class *of, struct admission_request *request)
{
    of->held++;
    request->held = true;
    request->at[ADMISSION_ARRIVAL].known = false;
    return ADMISSION_HELD;
}

static enum admission_verdict let_through(struct admission_class *of,
                                          struct admission_request *request)
{
    of->let_through++;
    request->let_through = true;
    return ADMISSION_LET_THROUGH;
}

static enum admission_verdict judge_beyond(struct admission_class *of,
                                           struct admission_request *request,
                                           enum admission_stage stage, bool harmless,
                                           struct rng *rng)
{
    of->credit += harmless && of->rejected ? 1 - ADMISSION_MOST : 0;
    const struct calibration *calibration = &of->calibrations[stage];
    if (calibration->requests < CALIBRATION_LEAST)
        return ADMISSION_TAKEN;
    if (!calibration_is_good(calibration))
        return harmless || stage == ADMISSION_ARRIVAL ? ADMISSION_TAKEN : hold(of, request);
    bool rejects = rng_unit(rng) < of->share / ADMISSION_MOST;
    if (rejects && of->credit < 1) {
        of->rejected++;
        return ADMISSION_REJECTED;
    }
    if (!rejects && !harmless)
        return hold(of, request);
    of->credit -= rejects;
    return let_through(of, request);
}

/* A new request counts in the means of its class. */
static void count(struct admission_class *of, const struct admission_ask *ask, bool beyond)
{
    double kept = of->prompt_tokens > 0 ? ADMISSION_REQUESTS : 1;
    of->judged_us = ask->now_us;
    of->shed += (beyond - of->shed) / ADMISSION_REQUESTS;
    if (!beyond && of->rejected)
        of->credit = fmin(of->credit + 1.0 / ADMISSION_EXPLORE, MOST_CREDIT);
    if (ask->prompt_us <= 0)
        return; /* it has no turn yet */
    of->prompt_us += (ask->prompt_us - of->prompt_us) / kept;
    of->prompt_tokens += (ask->tokens - of->prompt_tokens) / kept;
}

enum admission_verdict admission_judge(struct admission_class *of,
                                       struct admission_request *request,
                                       enum admission_stage stage, const struct admission_ask *ask,
                                       struct rng *rng)
{
    struct calibration *calibration = &of->calibrations[stage];
    ASSERT(ask->raw >= 0 && ask->raw <= 1);
    if (!of->has_objective || request->let_through)
        return ADMISSION_TAKEN;
    double used = calibration_map(calibration, ask->raw);
    bool needed = of->shed >= ADMISSION_SHED && of->shed < ADMISSION_MOST &&
                  ask->now_us - of->judged_us <= ADMISSION_QUIET_US;
    bool harmless = ask->is_only || (is_first(ask) && !needed);
    bool beyond = used > (is_first(ask) ? ADMISSION_SURE : ADMISSION_BOUND) ||
                  used + misses_of_others(of, ask) > 1;
    if (!request->at[stage].known || request->held) {
        request->at[stage].known = true;
        request->at[stage].raw = ask->raw;
        request->at[stage].used = used;
    }
    if (request->held)
        return beyond && !harmless ? ADMISSION_HELD : ADMISSION_TAKEN;
    if (!request->counted && (beyond || stage == ADMISSION_TURN)) {
        request->counted = true;
        count(of, ask, beyond);
    }
    if (!beyond)
        return ADMISSION_TAKEN;
    return calibration_is_good(calibration) && ask->is_only
               ? let_through(of, request)
               : judge_beyond(of, request, stage, harmless, rng);
}

void admission_ended(struct admission_class *of, struct admission_request *request, bool missed)
{
    if (request->ended)
        return;
    request->ended = true;
    for (int stage = 0; stage < ADMISSION_STAGES; stage++)
        if (request->at[stage].known)
            calibration_note(&of->calibrations[stage], request->at[stage].raw,
                             request->at[stage].used, missed);
    if (!request->let_through && !request->held)
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
