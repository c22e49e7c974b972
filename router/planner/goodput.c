#include "router/planner/goodput.h"

#include <math.h>
#include <stddef.h>

#define USUAL_TARDINESS 1e-3
#define USUAL_FLOOR     0.05
#define FLOOR_WINDOW_US 60e6 /* work that a worker's floor remembers, twice as much at most */
#define WINDOW_US       10e6 /* the demand forgets: e times less after so long */
#define REMEMBERED      200  /* requests that a class's missed share remembers */
#define USUAL_LEFT      0.1  /* a class with so much error budget left weighs 1 */
#define LEAST_WEIGHT    0.25
#define MOST_WEIGHT     20.0
#define REUSED          0.25 /* an evicted block would have been found again so likely */
#define PATIENT_TTFT_US 60e6 /* without an objective, for the order of choices alone */
#define PATIENT_TPOT_US 1e6
#define MILLIONTHS      1e6

static const struct predict_error nothing_known;

/* --------------------------------------------------------------------------------- classes */

void goodput_ended(struct goodput_class *slo, const struct prediction *predicted,
                   const struct slo_outcome *measured, bool attained)
{
    slo->ended++;
    double counted = slo->ended < REMEMBERED ? (double)slo->ended : REMEMBERED;
    slo->missed += ((attained ? 0 : 1) - slo->missed) / counted;
    if (!measured->ok)
        return;
    predict_error_learn(&slo->ttft, predicted->ttft_us, (double)measured->ttft_us);
    if (measured->answer_tokens > 1 && measured->e2e_us > measured->ttft_us)
        predict_error_learn(&slo->tpot, predicted->tpot_us,
                            (double)(measured->e2e_us - measured->ttft_us) /
                                (measured->answer_tokens - 1));
}

double goodput_weight(const struct goodput_class *slo, double percentile)
{
    double left = 1 - percentile / 100 - (slo ? slo->missed : 0);
    if (left <= USUAL_LEFT / MOST_WEIGHT)
        return MOST_WEIGHT;
    double weight = USUAL_LEFT / left;
    return weight > LEAST_WEIGHT ? weight : LEAST_WEIGHT;
}

void goodput_arrived(struct goodput_demand *demand, const struct predict_request *request,
                     double weight, uint64_t now_us)
{
    const struct slo_objective *objective = &request->objective;
    double past_us = now_us > demand->at_us ? (double)(now_us - demand->at_us) : 0;
    double kept = exp(-past_us / WINDOW_US);
    demand->ttft =
        demand->ttft * kept + (objective->ttft_us ? weight / (double)objective->ttft_us : 0);
    demand->tpot =
        demand->tpot * kept + (objective->tpot_us ? weight / (double)objective->tpot_us : 0);
    demand->near_ttft =
        demand->near_ttft * kept + (objective->ttft_us ? 1 / (double)objective->ttft_us : 0);
    demand->near_tpot =
        demand->near_tpot * kept + (objective->tpot_us ? 1 / (double)objective->tpot_us : 0);
    demand->arrivals = demand->arrivals * kept + 1;
    demand->tokens =
        demand->tokens * kept + (double)request->prompt_tokens + request->answer_tokens;
    demand->prompt_tokens *= kept;
    demand->cached_tokens *= kept;
    demand->at_us = now_us;
}

void goodput_found(struct goodput_demand *demand, uint64_t prompt_tokens, uint64_t cached_tokens)
{
    demand->prompt_tokens += (double)prompt_tokens;
    demand->cached_tokens += (double)cached_tokens;
}

double goodput_arrival_rate(const struct goodput_demand *demand, uint64_t now_us)
{
    double past_us = now_us > demand->at_us ? (double)(now_us - demand->at_us) : 0;
    return demand->arrivals * exp(-past_us / WINDOW_US) / WINDOW_US;
}

/* --------------------------------------------------------------------------------- the floor */

void goodput_floor_note(struct books_floor *floor, double device_us, bool late)
{
    if (floor->given_us > FLOOR_WINDOW_US) {
        floor->given_us /= 2;
        floor->late_us /= 2;
    }
    floor->given_us += device_us;
    floor->late_us += late ? device_us : 0;
}

bool goodput_floor_due(const struct books_floor *floor, const struct goodput_config *config)
{
    double share = config->floor_share > 0 ? config->floor_share : USUAL_FLOOR;
    return floor->late_us <= share * floor->given_us;
}

bool goodput_is_late(const struct predict_request *request)
{
    double objective_us = (double)request->objective.ttft_us;
    return objective_us > 0 && request->age_us >= objective_us;
}

/* --------------------------------------------------------------------------------- misses */

typedef double miss_function(const struct predict_error *error, double predicted_us,
                             double objective_us);

/* Without a spread: 0 or 1. */
static double miss_or_not(const struct predict_error *error, double predicted_us,
                          double objective_us)
{
    return objective_us > 0 && predicted_us * predict_error_median(error) > objective_us;
}

/* Returns P(miss) of a request in time with this prediction. `each`: TPOT limits each step. */
static double own_miss(const struct goodput_request *request, const struct prediction *is,
                       miss_function *miss, bool each)
{
    const struct slo_objective *objective = &request->is.objective;
    const struct predict_error *ttft = request->slo ? &request->slo->ttft : &nothing_known;
    const struct predict_error *tpot = request->slo ? &request->slo->tpot : &nothing_known;
    double steps = request->is.answer_tokens - 1, attains = 1;
    double token_us = steps <= 0 ? 0 : each ? is->step_us : is->tpot_us;
    double all_us = is->ttft_us > 0 && steps > 0 ? is->ttft_us + steps * is->tpot_us : is->ttft_us;
    attains *= 1 - miss(ttft, is->ttft_us, (double)objective->ttft_us);
    attains *= 1 - miss(tpot, token_us, (double)objective->tpot_us);
    if (steps > 0)
        attains *= 1 - miss(tpot, is->gap_us, (double)objective->itl_us);
    if (objective
            ->e2e_us) /* it is likely to fail together with the others: the larger one counts */
        attains = fmin(attains, 1 - miss(tpot, all_us, (double)objective->e2e_us));
    return 1 - attains;
}

/* Returns the misses of prompts that the worker computes after this one: it delays them. */
static double misses_behind(const struct candidate *worker, enum priority priority, double delay_us)
{
    double misses = 0;
    for (int i = 0; worker->books.prompts && i < PRIORITIES; i++) {
        bool behind = priority == PRIORITY_HIGH
                          ? i != PRIORITY_HIGH
                          : priority == PRIORITY_NORMAL && i == PRIORITY_OFFLINE;
        const struct books_prefill *here = &worker->books.prefill[i];
        for (unsigned b = behind ? books_next(here->slack_set, 1) : BOOKS_TIMES; b < BOOKS_TIMES;
             b = books_next(here->slack_set, b + 1)) {
            double least_us = books_time_us(b) * exp2(-0.5 / BOOKS_AN_OCTAVE),
                   most_us = books_time_us(b) * exp2(0.5 / BOOKS_AN_OCTAVE);
            double part = (delay_us - least_us) / (most_us - least_us);
            misses += here->slack[b] * fmin(fmax(part, 0), 1);
        }
    }
    return misses / BOOKS_WEIGHT_ONE;
}

/* Returns the misses that a longer step adds to the answers on the worker. Answers that have missed
 * already add none. */
static double misses_beside(const struct candidate *worker, const struct predict_error *error,
                            miss_function *miss, double before_us, double after_us)
{
    double misses = 0;
    const struct worker_books *books = &worker->books;
    for (unsigned b = after_us > before_us ? books_next(books->tolerance_set, 1) : BOOKS_TIMES;
         b < BOOKS_TIMES - 1; b = books_next(books->tolerance_set, b + 1))
        misses += books->tolerance[b] * fmax(miss(error, after_us, books_time_us(b)) -
                                                 miss(error, before_us, books_time_us(b)),
                                             0);
    return misses / BOOKS_WEIGHT_ONE;
}

/* --------------------------------------------------------------------------------- the score */

/* The workers of a choice. */
struct roles {
    const struct candidate *computes, *draws; /* NULL: not part of the choice */
    bool local;                               /* both are one */
};

static double misses_of_others(const struct goodput_config *config,
                               const struct goodput_request *request, struct roles roles,
                               const struct prediction *is, miss_function *miss)
{
    const struct predict_error *error = request->slo ? &request->slo->tpot : &nothing_known;
    double misses = 0;
    if (roles.computes)
        misses += misses_behind(roles.computes, request->is.priority, is->prefill_us);
    if (roles.draws && request->is.answer_tokens > 1) {
        double left = worker_books_mean_left(&roles.draws->books);
        double chunks_us = roles.local ? is->beside_us / fmax(left, 1) : 0;
        misses +=
            misses_beside(roles.draws, error, miss, is->step_before_us, is->step_us + chunks_us);
    }
    if (roles.draws && !(config->off & GOODPUT_OFF_MEMORY))
        misses += predict_preemption(roles.draws, &request->is);
    return misses;
}

/* Returns how likely an arrival has no slack for a delay of a worker that is busy for so long: the
 * nearer the objective, the likelier. */
static double lacks_slack(double busy_us, double near)
{
    return fmin(busy_us * near, 1);
}

/* Returns the part of a delay that counts: beyond its objective an arrival has missed. */
static double counted_us(double delay_us, double near)
{
    return delay_us * near > 1 ? 1 / near : delay_us;
}

/* A term of the price: arrivals, as rates on one worker. */
struct arrivals {
    double ttft, tpot;           /* sums of weight / objective a us, 1 / us^2 */
    double tokens;               /* a us */
    double computing;            /* workers that compute prompts */
    double each_ttft;            /* weight / objective of one arrival */
    double found;                /* share of prompt tokens that were cached lately */
    double near_ttft, near_tpot; /* 1 / objective of one arrival */
};

static struct arrivals arrivals_of(const struct goodput_pool *pool)
{
    const struct goodput_demand *demand = pool->demand;
    if (!demand || !(demand->arrivals > 0))
        return (struct arrivals){0};
    double past_us = pool->now_us > demand->at_us ? (double)(pool->now_us - demand->at_us) : 0;
    double rate = exp(-past_us / WINDOW_US) / WINDOW_US;
    double decodes = pool->decodes ? pool->decodes : 1;
    double computing = pool->prefills ? pool->prefills : decodes;
    return (struct arrivals){.ttft = demand->ttft * rate / computing,
                             .tpot = demand->tpot * rate / decodes,
                             .tokens = demand->tokens * rate / decodes,
                             .computing = computing,
                             .each_ttft = demand->ttft / demand->arrivals,
                             .found = demand->cached_tokens / fmax(demand->prompt_tokens, 1),
                             .near_ttft = demand->near_ttft / demand->arrivals,
                             .near_tpot = demand->near_tpot / demand->arrivals};
}

/* Prices the step budget, the link and the KV of answers. Half of an answer's time is left, on
 * average, when an arrival comes to sit beside it. */
static double price_of_answer(const struct candidate *worker, const struct arrivals *arrivals,
                              const struct predict_request *request, const struct prediction *is)
{
    double steps = request->answer_tokens - 1, lives_us = steps * is->step_us;
    double takes = (double)request->prompt_tokens + request->answer_tokens;
    double free = predict_pool_tokens(worker) - (double)worker->books.promised_tokens;
    /* On an idle worker it adds the step's own cost, which an arrival would have anyway. */
    double more_us = is->step_before_us > 0 ? is->step_us - is->step_before_us : 0;
    double price = arrivals->tpot * lives_us * counted_us(more_us, arrivals->near_tpot) / 2 *
                   lacks_slack(is->step_us, arrivals->near_tpot);
    if (is->link_us > 0) /* arrivals wait for the link behind its handoff, as that waits */
        price += arrivals->tpot * is->link_us *
                 counted_us(is->link_each_us / steps, arrivals->near_tpot) *
                 lacks_slack(is->tpot_us, arrivals->near_tpot);
    if (worker->is.pool_tokens)
        price += fmin(arrivals->tokens * lives_us / fmax(free, 1), 1) * takes / fmax(free, takes);
    return price;
}

/* Returns the misses of requests that come while this one is there. */
static double price_of(const struct goodput_pool *pool, const struct goodput_request *request,
                       const struct predict_choice *choice, struct roles roles,
                       const struct prediction *is)
{
    const struct arrivals arrivals = arrivals_of(pool);
    double steps = request->is.answer_tokens - 1, price = 0;
    if (roles.computes && choice->evicted_tokens) /* a later prompt isn't found there any more */
        price += REUSED * arrivals.found * arrivals.each_ttft *
                 counted_us(predict_prefill_us(roles.computes, 0, choice->evicted_tokens, COST_P50),
                            arrivals.near_ttft);
    /* Arrivals go where the wait is least: this prompt delays them all, each by its share of one
     * worker. The nearer their wait is to the objective, the likelier they have no slack for it. */
    double busy_us = is->wait_us + is->prefill_us / fmax(arrivals.computing, 1);
    if (roles.computes && (!roles.local || !pool->prefills)) /* arrivals have their prompts here */
        price += arrivals.ttft * busy_us * counted_us(is->prefill_us, arrivals.near_ttft) *
                 lacks_slack(busy_us, arrivals.near_ttft);
    double beside_us = is->beside_us / fmax(steps, 1);
    if (roles.local) /* answers that arrive beside its chunks */
        price += arrivals.tpot * is->prefill_us * counted_us(beside_us, arrivals.near_tpot) *
                 lacks_slack(is->step_us + beside_us, arrivals.near_tpot);
    if (roles.draws && steps > 0)
        price += price_of_answer(roles.draws, &arrivals, &request->is, is);
    return price;
}

/* Returns how far a time is beyond its objective: convex, and straight in the end. */
static double tardy(double predicted_us, double objective_us, double patient_us)
{
    double times = predicted_us / (objective_us > 0 ? objective_us : patient_us);
    return sqrt(1 + times * times) - 1;
}

void goodput_score(const struct goodput_config *config, const struct goodput_pool *pool,
                   const struct goodput_request *request, const struct predict_choice *choice,
                   struct goodput_score *out)
{
    const struct slo_objective *objective = &request->is.objective;
    const struct roles roles = {.computes = predict_computes(choice),
                                .draws = predict_draws(choice),
                                .local =
                                    choice->way == PREDICT_LOCAL || choice->way == PREDICT_MIRROR};
    uint32_t off = config->off;
    bool each = off & GOODPUT_OFF_BANKED;
    miss_function *miss = off & GOODPUT_OFF_ERRORS ? miss_or_not : predict_miss_hopeless;
    *out = (struct goodput_score){.total = 0};
    predict(&request->is, choice, COST_P50, &out->is);
    bool is_late = goodput_is_late(&request->is);
    if (!(off & GOODPUT_OFF_HONEST))
        out->p_miss = is_late ? 1 : own_miss(request, &out->is, predict_miss, each);
    if (!(off & GOODPUT_OFF_OWN))
        out->own = (is_late ? 1 : own_miss(request, &out->is, miss, each)) *
                   (off & GOODPUT_OFF_WEIGHTS ? 1 : request->weight);
    bool late = is_late || request->is.priority == PRIORITY_OFFLINE;
    /* The floor of each worker lets late work disturb others. */
    bool free = late && (off & GOODPUT_OFF_FLOOR ||
                         ((!roles.computes || goodput_floor_due(&roles.computes->floor, config)) &&
                          (!roles.draws || goodput_floor_due(&roles.draws->floor, config))));
    if (!(off & GOODPUT_OFF_OTHERS) && !free)
        out->others = misses_of_others(config, request, roles, &out->is, miss);
    if (!(off & GOODPUT_OFF_PRICE) && !free)
        out->price = price_of(pool, request, choice, roles, &out->is);
    if (!(off & GOODPUT_OFF_TARDINESS))
        out->tardiness = (config->tardiness > 0 ? config->tardiness : USUAL_TARDINESS) *
                         (tardy(out->is.ttft_us, (double)objective->ttft_us, PATIENT_TTFT_US) +
                          tardy(out->is.tpot_us, (double)objective->tpot_us, PATIENT_TPOT_US));
    out->total = out->own + out->others + out->tardiness + out->price;
}

bool goodput_better(const struct goodput_score *a, const struct goodput_score *b)
{
    double totals[] = {floor(a->total * MILLIONTHS), floor(b->total * MILLIONTHS)};
    if (totals[0] < totals[1] || totals[0] > totals[1])
        return totals[0] < totals[1];
    if (a->is.device_us < b->is.device_us || a->is.device_us > b->is.device_us)
        return a->is.device_us < b->is.device_us;
    return a->is.ttft_us < b->is.ttft_us;
}
