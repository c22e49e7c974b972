#include "router/planner/admission.h"

#include "common/base/assert.h"

#include <math.h>

#define HARMLESS    0.05 /* misses of others */
#define MOST_CREDIT 2
#define CUT_STEP    0.02 /* octaves that a quantile moves at a request ... */
#define FAST_STEPS  100  /* ... and more at so many first ones */
#define LEAST_ABLE  0.01

void admission_class_init(struct admission_class *of, const struct slo_objective *objective)
{
    *of = (struct admission_class){.objective = *objective, .share = ADMISSION_FIRST};
    for (int i = 0; i < ADMISSION_TENTHS; i++)
        of->lengths.tenths[i].able = of->lengths.tenths[i].lately = 1;
}

/* Returns P(miss) of a request on workers with nothing else to do, and of its TPOT by the answers
 * that `draws` (NULL: none yet) has already. */
static void miss_by_load(const struct goodput_request *asked, const struct candidate *draws,
                         const struct prediction *predicted, double *alone, double *spoilt)
{
    const struct slo_objective *objective = &asked->is.objective;
    double tpot_us = (double)objective->tpot_us, token_us = 0;
    *alone = *spoilt = 0;
    if (!asked->slo)
        return;
    if (draws && predicted->tpot_us > 0)
        token_us = predict_alone_step_us(draws, (double)asked->is.prompt_tokens + 1, COST_P50);
    double ttft = predict_miss(&asked->slo->ttft, fmin(predicted->beside_us, predicted->prefill_us),
                               (double)objective->ttft_us);
    double tpot = predict_miss(&asked->slo->tpot, token_us, tpot_us);
    *alone = 1 - (1 - ttft) * (1 - tpot);
    if (predicted->step_before_us > 0)
        *spoilt = predict_miss(&asked->slo->tpot, predicted->tpot_us, tpot_us) * (1 - tpot);
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
    double alone, spoilt;
    miss_by_load(asked, candidates_get(&placement->candidates, won->decode), predicted, &alone,
                 &spoilt);
    bool links = predicted->link_us > predicted->room_us; /* the longer queue counts */
    bool is_only = TAILQ_FIRST(&placement->all) == placing && !TAILQ_NEXT(placing, all_link);
    return (struct admission_ask){.raw = fmin(raw, 1),
                                  .is_only = is_only,
                                  .is_owed = placement_is_owed(placement),
                                  .hold_full = !placement_may_hold(placement, placing),
                                  .others = won->others / asked->weight,
                                  .wait_us = predicted->wait_us,
                                  .prompt_us = predicted->prefill_us,
                                  .alone = alone,
                                  .spoilt = spoilt,
                                  .rate = rate / (prefills > 0 ? prefills : fmax(decodes, 1)),
                                  .room_us = links ? predicted->link_us : predicted->room_us,
                                  .room_each_us =
                                      links ? predicted->link_each_us : predicted->room_each_us,
                                  .steps = is->answer_tokens - 1,
                                  .step_us = predicted->step_us,
                                  .drawing_rate = rate / fmax(decodes, 1),
                                  .tokens = (double)is->prompt_tokens,
                                  .cached_tokens = (double)placing->cached_tokens,
                                  .now_us = now_us};
}

/* ------------------------------------------------------------------------------------- lengths */

/* Returns the tenth of a new request, from 1 on, by those before it, and learns its length. */
static uint8_t learn_length(struct admission_lengths *lengths, double tokens)
{
    double length = log2(fmax(tokens, 1));
    uint8_t tenth = 1;
    for (int i = 0; i < ADMISSION_TENTHS - 1; i++) {
        double *cut = &lengths->cuts[i], below = (i + 1.0) / ADMISSION_TENTHS;
        if (!lengths->requests)
            *cut = length;
        tenth += length > *cut;
        double step = CUT_STEP * fmax(1, FAST_STEPS / (double)(lengths->requests + 1));
        *cut += step * (below - (length <= *cut));
        if (i && *cut < cut[-1])
            *cut = cut[-1];
    }
    lengths->requests++;
    return tenth;
}

/* A request of the tenth came under overload. */
static void count_debt(struct admission_lengths *lengths, int tenth, double attains)
{
    double *came = &lengths->tenths[tenth].came, *attained = &lengths->tenths[tenth].attained;
    *came += 1 - *came / ADMISSION_DEBTS;
    *attained += attains - *attained / ADMISSION_DEBTS;
}

/* A request that passed is expected to attain with this probability. */
static void count_share(struct admission_lengths *lengths, struct admission_request *request,
                        double attains)
{
    if (request->shared || !request->tenth)
        return;
    double *lately = &lengths->tenths[request->tenth - 1].lately;
    request->shared = true;
    request->attains = attains;
    *lately += (attains - *lately) / ADMISSION_LATELY;
    if (request->tossed)
        count_debt(lengths, request->tenth - 1, attains);
}

/* Returns how heavy an overload is in which this part is shed, 0 .. 1. */
static double heavy_of(double shed)
{
    return fmin(shed / ADMISSION_HEAVY, 1);
}

/* Returns the probability with which a request of the tenth passes. */
static double pass_of(const struct admission_lengths *lengths, int tenth)
{
    double own_lately = 1, own_share = 1, least_lately = 1, least_share = INFINITY;
    double able_came = 0, all_attained = 0;
    for (int i = 0; i < ADMISSION_TENTHS; i++) {
        able_came += lengths->tenths[i].came * fmax(lengths->tenths[i].able, LEAST_ABLE);
        all_attained += lengths->tenths[i].attained;
    }
    for (int i = 0; i < ADMISSION_TENTHS; i++) {
        double able = fmax(lengths->tenths[i].able, LEAST_ABLE), came = lengths->tenths[i].came;
        /* Chance decides of few: each has some more that attained as the mean does. */
        double fair = able_came > 0 ? all_attained * came * able / able_came : 0;
        double lately = lengths->tenths[i].lately / able,
               share = (lengths->tenths[i].attained + ADMISSION_FEW) / (fair + ADMISSION_FEW);
        least_lately = fmin(least_lately, lately);
        least_share = fmin(least_share, share);
        if (i == tenth)
            own_lately = lately, own_share = share;
    }
    double part = own_lately > least_lately ? least_lately / own_lately : 1,
           owed = own_share > least_share ? least_share / own_share : 1;
    return fmax(part * owed * owed / ADMISSION_FAIR, ADMISSION_PASS);
}

/* Tosses the coin of a request. True: it is given up, so that other lengths have their share. */
static bool gives_up(struct admission_class *of, struct admission_request *request,
                     const struct admission_ask *ask, struct rng *rng)
{
    const double *cuts = of->lengths.cuts;
    if (!request->tenth || request->tossed || ask->is_only || of->crowded < ADMISSION_CROWDED ||
        of->calibrations[ADMISSION_TURN].requests < CALIBRATION_LEAST)
        return false;
    request->tossed = true;
    if (cuts[ADMISSION_TENTHS - 2] - cuts[0] < ADMISSION_SPREAD)
        return false;
    double heavy = heavy_of(1 - (1 - of->shed) * (1 - of->given_up));
    bool passes = rng_unit(rng) < pow(pass_of(&of->lengths, request->tenth - 1), heavy);
    of->given_up += (!passes - of->given_up) / ADMISSION_REQUESTS;
    if (passes)
        return false;
    count_debt(&of->lengths, request->tenth - 1, 0);
    of->judged_us = ask->now_us;
    of->rejected++;
    return true;
}

/* --------------------------------------------------------------------------------------- misses */

/* Returns the misses of others that this request leads to. Each later one that comes while the
 * worker is busy waits as much longer as this prompt takes, and has no slack for that with the
 * probability of that time in its objective. KV, or a link, is the same kind of queue. Long prompts
 * and short ones count as the mean, or only short ones would be taken under overload; but one that
 * is cached for the most part costs little. */
static double misses_of_others(const struct admission_class *of, const struct admission_ask *ask,
                               double used)
{
    bool is_cached = 2 * ask->cached_tokens > ask->tokens, is_long = ask->prompt_us > of->prompt_us;
    double prompt_us = is_cached ? fmin(ask->prompt_us, of->prompt_us) : of->prompt_us;
    double misses = ask->others * (is_long ? of->prompt_us / ask->prompt_us : 1);
    if (used < ask->raw) /* theirs are predicted by the same errors */
        misses *= 1 - (1 - used / ask->raw) * (1 - heavy_of(of->shed));
    if (of->objective.ttft_us)
        misses += ask->rate * ask->wait_us * prompt_us / (double)of->objective.ttft_us;
    /* An answer like this one may wait for so long and attain its TPOT. */
    double left_us = fmax(ask->steps * ((double)of->objective.tpot_us - ask->step_us), 1);
    if (of->objective.tpot_us && ask->tokens > 0)
        misses += ask->drawing_rate * ask->room_us * ask->room_each_us * of->prompt_tokens /
                  ask->tokens / left_us;
    return misses;
}

/* True: nothing stands before it, and no other request is disturbed. Beside so many answers that
 * all miss their TPOT it disturbs none, but the next one would miss, too. */
static bool is_first(const struct admission_ask *ask)
{
    return ask->wait_us <= 0 && ask->room_us <= 0 && ask->others < HARMLESS &&
           ask->spoilt <= ADMISSION_BOUND;
}

/* It waits, unless this placement is that of such requests. */
static enum admission_verdict hold(struct admission_class *of, struct admission_request *request,
                                   const struct admission_ask *ask)
{
    if (ask->hold_full && !ask->is_owed) {
        of->rejected++;
        return ADMISSION_REJECTED;
    }
    of->held += !request->held;
    request->held = true;
    request->waits = !ask->is_owed;
    request->at[ADMISSION_ARRIVAL].known = false;
    return ask->is_owed ? ADMISSION_TAKEN : ADMISSION_HELD;
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
                                           enum admission_stage stage,
                                           const struct admission_ask *ask, bool harmless,
                                           struct rng *rng)
{
    of->credit += harmless && of->rejected ? 1 - ADMISSION_MOST : 0;
    const struct calibration *calibration = &of->calibrations[stage];
    if (calibration->requests < CALIBRATION_LEAST) {
        double doubt = fmax(1 - (double)calibration->requests / ADMISSION_DOUBTED, 0);
        double bound = ADMISSION_BOUND + doubt * (ADMISSION_SURE - ADMISSION_BOUND);
        double all = ask->raw + (1 - doubt) * misses_of_others(of, ask, ask->raw);
        bool holds = stage == ADMISSION_TURN && !harmless && (ask->raw > bound || all > 1) &&
                     ask->alone <= ADMISSION_SURE;
        return holds ? hold(of, request, ask) : ADMISSION_TAKEN;
    }
    if (!calibration_is_good(calibration))
        return harmless || stage == ADMISSION_ARRIVAL ? ADMISSION_TAKEN : hold(of, request, ask);
    bool rejects = rng_unit(rng) < of->share / ADMISSION_MOST;
    if (rejects && of->credit < 1) {
        of->rejected++;
        return ADMISSION_REJECTED;
    }
    if (!rejects && !harmless)
        return hold(of, request, ask);
    of->credit -= rejects;
    return let_through(of, request);
}

/* A new request counts in the means of its class. */
static void count(struct admission_class *of, const struct admission_request *request,
                  const struct admission_ask *ask, bool beyond)
{
    double kept = of->prompt_tokens > 0 ? ADMISSION_REQUESTS : 1;
    of->judged_us = ask->now_us;
    of->shed += (beyond - of->shed) / ADMISSION_REQUESTS;
    if (!request->tossed) /* no overload, or a light one: that of before is forgotten */
        of->given_up -= of->given_up / ADMISSION_REQUESTS;
    of->crowded += (!is_first(ask) - of->crowded) / ADMISSION_REQUESTS;
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
    bool has_objective = of->objective.ttft_us || of->objective.tpot_us;
    if (!has_objective || request->let_through)
        return ADMISSION_TAKEN;
    double used = calibration_map(calibration, ask->raw);
    bool all_miss = of->shed >= ADMISSION_MOST && of->attained < ADMISSION_WORTH;
    bool needed = of->shed >= ADMISSION_SHED && !all_miss &&
                  ask->now_us - of->judged_us <= ADMISSION_QUIET_US;
    bool knows = calibration->requests >= CALIBRATION_LEAST;
    bool harmless = ask->is_only || (is_first(ask) && !(needed && knows));
    bool beyond = used > (is_first(ask) ? ADMISSION_SURE : ADMISSION_BOUND) ||
                  used + misses_of_others(of, ask, used) > 1;
    if (!request->tenth && ask->tokens > 0)
        request->tenth = learn_length(&of->lengths, ask->tokens);
    if (request->tenth && stage == ADMISSION_TURN && !request->at[stage].known) {
        double *able = &of->lengths.tenths[request->tenth - 1].able;
        *able += (1 - calibration_map(calibration, ask->alone) - *able) / ADMISSION_LATELY;
    }
    if ((!request->at[stage].known || request->held) && !request->ended) {
        request->at[stage].known = true;
        request->at[stage].raw = ask->raw;
        request->at[stage].used = used;
    }
    request->waits = false;
    if (request->held)
        return beyond && !harmless ? hold(of, request, ask) : ADMISSION_TAKEN;
    if (needed && gives_up(of, request, ask, rng))
        return ADMISSION_REJECTED;
    if (!request->counted && (beyond || stage == ADMISSION_TURN)) {
        request->counted = true;
        count(of, request, ask, beyond);
    }
    enum admission_verdict verdict = ADMISSION_TAKEN;
    if (beyond)
        verdict = calibration_is_good(calibration) && ask->is_only
                      ? let_through(of, request)
                      : judge_beyond(of, request, stage, ask, harmless, rng);
    bool taken = verdict == ADMISSION_TAKEN || verdict == ADMISSION_LET_THROUGH;
    request->in_time |= stage == ADMISSION_TURN && verdict == ADMISSION_TAKEN && !request->held;
    if (!taken || stage == ADMISSION_TURN)
        count_share(&of->lengths, request, taken ? 1 - used : 0);
    return verdict;
}

void admission_ended(struct admission_class *of, struct admission_request *request, bool missed)
{
    if (request->ended)
        return;
    request->ended = true;
    if (request->in_time)
        of->attained += (!missed - of->attained) / ADMISSION_REQUESTS;
    if (request->shared) { /* the outcome replaces what was expected */
        double *lately = &of->lengths.tenths[request->tenth - 1].lately;
        double *attained = &of->lengths.tenths[request->tenth - 1].attained;
        *lately = fmin(fmax(*lately + (!missed - request->attains) / ADMISSION_LATELY, 0), 1);
        if (request->tossed)
            *attained = fmax(*attained + !missed - request->attains, 0);
    }
    if (request->waits)
        request->at[ADMISSION_TURN].known = false;
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
