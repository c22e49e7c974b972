#include "common/base/domain/cost_fit.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#define N COST_FIT_PARAMETERS

#define FORGETS_STEP      (1.0 / 20)  /* the share forgotten at each step: the step's own cost */
#define FORGETS_SLOPES    (1.0 / 500) /* the same, along the rows of the step */
#define FORGETS_AT_CHANGE 0.5         /* the step's own cost, while times change */
#define HUBER             2.0         /* bound of an error, in usual errors */
#define CHANGE            3           /* steps beyond the bound in a row that are a change */
#define SPREAD_STEPS      50.0
#define SWEEPS            24 /* coordinate descent; the next step goes on from there */
#define NO_PRIOR          1e-3
#define WARM_UP           12  /* first steps: the errors of their predictions don't count */
#define SAMPLE            64  /* weight of a new ratio in its bin */
#define SAMPLES           384 /* in all bins; then all are halved */
#define BORROWED          4.0 /* ratios of all sizes that count beside those of one */
#define ENOUGH            128 /* ratios of one size that begin to tell its P90; twice as many do */
#define BINS_PER_OCTAVE   8
#define LEAST_OCTAVE      (-3)
#define AT_ONE            (-LEAST_OCTAVE * BINS_PER_OCTAVE) /* the bin from 1 on */
#define LARGE             1e15 /* nothing real is larger; keeps sums finite */

static const double quantiles[COST_QUANTILES] = {[COST_P50] = 0.5, [COST_P90] = 0.9};

/* Serves where nothing is known: a step costs as much as 200 rows of a prompt. */
static const struct step_cost unknown = {.step_us = 1,
                                         .prefill_row_us = 5e-3,
                                         .prefill_position_us = 1e-6,
                                         .decode_row_us = 5e-3,
                                         .decode_context_us = 2e-5};

static void publish(struct cost_fit *fit)
{
    fit->figures.cost = (struct step_cost){.step_us = fit->unit[0] * fit->times[0],
                                           .prefill_row_us = fit->unit[1] * fit->times[1],
                                           .prefill_position_us = fit->unit[2] * fit->times[2],
                                           .decode_row_us = fit->unit[3] * fit->times[3],
                                           .decode_context_us = fit->unit[4] * fit->times[4]};
}

void cost_fit_init(struct cost_fit *fit, const struct step_cost *prior, double steps)
{
    const struct step_cost *from = prior ? prior : &unknown;
    const double given[N] = {from->step_us, from->prefill_row_us, from->prefill_position_us,
                             from->decode_row_us, from->decode_context_us};
    const double ratios[N] = {unknown.step_us, unknown.prefill_row_us, unknown.prefill_position_us,
                              unknown.decode_row_us, unknown.decode_context_us};
    double weight = prior && steps > NO_PRIOR ? steps : NO_PRIOR;
    memset(fit, 0, sizeof *fit);
    fit->figures.spread = prior ? 0.3 : 1;
    for (int i = 0; i < N; i++) {
        bool known = given[i] > 0 && given[i] < LARGE;
        fit->unit[i] = known ? given[i] : ratios[i] * (given[0] > 0 ? given[0] : 1);
        fit->times[i] = known ? 1 : 0;
        fit->information[i][i] = weight;
        fit->evidence[i] = known ? weight : 0;
    }
    for (int i = 0; i < COST_FIT_BINS; i++) /* before the first: from -20% to +20% */
        fit->all.bins[i] = i >= AT_ONE - 2 && i < AT_ONE + 2 ? 2 * SAMPLE : 0;
    fit->all.total = 8 * SAMPLE;
    fit->usual[COST_P50] = 1;
    fit->usual[COST_P90] = 1.15;
    if (prior)
        publish(fit);
}

/* ---------------------------------------------------------------- the five parameters */

/* Forgets `share` of what is known along `direction`: adds uncertainty there and nowhere else. The
 * estimate stays. */
static void forget(struct cost_fit *fit, const double direction[N], double share)
{
    double along[N], evidence = 0, all = 0;
    for (int i = 0; i < N; i++) {
        along[i] = 0;
        for (int j = 0; j < N; j++)
            along[i] += fit->information[i][j] * direction[j];
        all += along[i] * direction[i];
        evidence += fit->evidence[i] * direction[i];
    }
    if (!(all > 0))
        return;
    for (int i = 0; i < N; i++) {
        fit->evidence[i] -= share * along[i] * evidence / all;
        for (int j = 0; j < N; j++)
            fit->information[i][j] -= share * along[i] * along[j] / all;
    }
}

/* Finds the parameters of least squares that are not negative. */
static void solve(struct cost_fit *fit)
{
    for (int sweep = 0; sweep < SWEEPS; sweep++)
        for (int i = 0; i < N; i++) {
            double left = fit->evidence[i], own = fit->information[i][i];
            for (int j = 0; j < N; j++)
                left -= j == i ? 0 : fit->information[i][j] * fit->times[j];
            if (own > 0)
                fit->times[i] = left > 0 ? left / own : 0;
        }
    publish(fit);
}

/* Returns the error to learn from, as a share of the predicted time, and notes how usual it was. */
static double bounded_error(struct cost_fit *fit, double error)
{
    double bound = HUBER * fit->figures.spread, size = fabs(error);
    bool beyond = size > bound;
    int32_t side = error > 0 ? 1 : -1;
    fit->figures.clamped += beyond ? 1 : 0;
    fit->beyond = !beyond ? 0 : fit->beyond * side > 0 ? fit->beyond + side : side;
    if (fit->beyond > CHANGE || fit->beyond < -CHANGE) {
        fit->beyond = side * CHANGE + side;
        return error;
    }
    double weight =
        1 / (fit->figures.steps < SPREAD_STEPS ? (double)fit->figures.steps + 2 : SPREAD_STEPS);
    fit->figures.spread += weight * ((beyond ? bound : size) - fit->figures.spread);
    if (fit->figures.spread < 1e-3)
        fit->figures.spread = 1e-3;
    return beyond ? side * bound : error;
}

static void learn_parameters(struct cost_fit *fit, const struct step_shape *shape, double predicted,
                             double took_us)
{
    const double first[N] = {1};
    double error = bounded_error(fit, took_us / predicted - 1);
    bool changes = fit->beyond > CHANGE || fit->beyond < -CHANGE;
    double target = 1 + error, scale = predicted;
    if (changes || fit->figures.steps < WARM_UP) { /* the prediction is no measure of the step */
        scale = took_us > predicted ? took_us : predicted;
        target *= predicted / scale;
    }
    const double rows[N] = {fit->unit[0] / scale, fit->unit[1] / scale * shape->prefill_rows,
                            fit->unit[2] / scale * (double)shape->prefill_positions,
                            fit->unit[3] / scale * shape->decode_rows,
                            fit->unit[4] / scale * (double)shape->decode_context};
    forget(fit, first, changes ? FORGETS_AT_CHANGE : FORGETS_STEP);
    forget(fit, rows, FORGETS_SLOPES);
    for (int i = 0; i < N; i++) {
        fit->evidence[i] += rows[i] * target;
        for (int j = 0; j < N; j++)
            fit->information[i][j] += rows[i] * rows[j];
    }
    solve(fit);
}

/* ---------------------------------------------------------------- ratios by batch size */

static uint32_t size_of(uint32_t rows)
{
    uint32_t size = 0;
    while (size + 1 < COST_FIT_SIZES && rows >> (size + 1))
        size++;
    return size;
}

/* Returns the ratio below which `share` of the samples lie, with `borrowed` samples of `all` beside
 * the own ones. */
static double quantile_of(const struct cost_ratios *ratios, const struct cost_ratios *all,
                          double borrowed, double share)
{
    double left = share * (ratios->total + borrowed * SAMPLE);
    borrowed *= (double)SAMPLE / all->total;
    int bin = 0;
    for (; bin < COST_FIT_BINS; bin++) {
        double here = ratios->bins[bin] + borrowed * all->bins[bin];
        if (here > 0 && here >= left)
            return exp2(LEAST_OCTAVE + (bin + left / here) / BINS_PER_OCTAVE);
        left -= here;
    }
    return exp2(LEAST_OCTAVE + (double)COST_FIT_BINS / BINS_PER_OCTAVE);
}

static void add_ratio(struct cost_ratios *ratios, double ratio)
{
    double bin = floor((log2(ratio) - LEAST_OCTAVE) * BINS_PER_OCTAVE);
    bin = bin < 0 ? 0 : bin >= COST_FIT_BINS ? COST_FIT_BINS - 1 : bin;
    if (ratios->total >= SAMPLES * SAMPLE) {
        ratios->total = 0;
        for (int i = 0; i < COST_FIT_BINS; i++)
            ratios->total += ratios->bins[i] /= 2;
    }
    ratios->bins[(int)bin] += SAMPLE;
    ratios->total += SAMPLE;
}

/* A size has a median of its own: stairs. Noise is much alike at all sizes, and its upper end needs
 * many samples. So the way from the median to another quantile is that of all sizes, as long as
 * this one has few samples. */
static void note_ratio(struct cost_fit *fit, struct cost_ratios *size, double ratio)
{
    add_ratio(size, ratio);
    double median = quantile_of(size, &fit->all, BORROWED, 0.5);
    add_ratio(&fit->all, ratio / median);
    double own = (double)size->total / SAMPLE / ENOUGH - 1;
    size->own = (float)(own < 0 ? 0 : own > 1 ? 1 : own);
    size->median = (float)median;
    for (int i = 0; i < COST_QUANTILES; i++) {
        double usual = quantile_of(&fit->all, &fit->all, 0, quantiles[i]);
        double here = quantile_of(size, &fit->all, BORROWED, quantiles[i]);
        fit->usual[i] = usual / quantile_of(&fit->all, &fit->all, 0, 0.5);
        size->above[i] = (float)(here / median);
    }
}

void cost_fit_learn(struct cost_fit *fit, const struct step_shape *shape, double took_us)
{
    if (!(took_us > 0) || took_us > LARGE || (!shape->prefill_rows && !shape->decode_rows))
        return;
    double predicted = step_cost_predict(&fit->figures.cost, shape);
    if (!(predicted > 0) && fit->figures.steps) {
        predicted = took_us; /* its parameters were fitted to 0: it has no error to judge */
    } else if (!(predicted > 0)) {
        double ratio = took_us / step_cost_predict(&unknown, shape);
        cost_fit_init(fit, &unknown, NO_PRIOR);
        fit->figures.spread = 1;
        for (int i = 0; i < N; i++)
            fit->unit[i] *= ratio;
        publish(fit);
        predicted = took_us;
    }
    bool changes = fit->beyond > CHANGE || fit->beyond < -CHANGE;
    if (!changes && fit->figures.steps >= WARM_UP) {
        bool prefill = shape->prefill_rows > 0;
        uint32_t size = size_of(prefill ? shape->prefill_rows : shape->decode_rows);
        note_ratio(fit, prefill ? &fit->of_prefill[size] : &fit->of_decode[size],
                   took_us / predicted);
    }
    learn_parameters(fit, shape, predicted, took_us);
    fit->figures.steps++;
}

/* ---------------------------------------------------------------- predictions */

/* Returns the time of the shape with `rows` of its rows, which have its mean position or context.
 * Not rounded to whole tokens: predictions would fall now and then. */
static double part_us(const struct cost_fit *fit, const struct step_shape *shape, uint32_t rows)
{
    struct step_shape rest = *shape;
    double positions = (double)shape->prefill_positions, context = (double)shape->decode_context;
    if (shape->prefill_rows) {
        positions *= (double)rows / shape->prefill_rows;
        rest.prefill_rows = rows;
    } else {
        context *= (double)rows / shape->decode_rows;
        rest.decode_rows = rows;
    }
    rest.prefill_positions = rest.decode_context = 0;
    return step_cost_predict(&fit->figures.cost, &rest) +
           positions * fit->figures.cost.prefill_position_us +
           context * fit->figures.cost.decode_context_us;
}

static double ratio_of(const struct cost_fit *fit, const struct cost_ratios *size,
                       enum cost_quantile quantile)
{
    double above = fit->usual[quantile];
    return size->median * (above + size->own * (size->above[quantile] - above));
}

/* A size that no step had yet takes the ratio of the next smaller one, or of the smallest. More
 * rows are never predicted to take less, whatever the ratios are: the largest of a smaller size
 * counts too. */
static double predict_kind(const struct cost_fit *fit, const struct step_shape *shape,
                           enum cost_quantile quantile)
{
    const struct cost_ratios *sizes = shape->prefill_rows ? fit->of_prefill : fit->of_decode;
    uint32_t rows = shape->prefill_rows ? shape->prefill_rows : shape->decode_rows;
    double ratio = fit->usual[quantile], most = 0;
    for (uint32_t i = COST_FIT_SIZES; i-- > 0;)
        if (sizes[i].total)
            ratio = ratio_of(fit, &sizes[i], quantile);
    for (uint32_t i = 0; i <= size_of(rows); i++) {
        if (!sizes[i].total)
            continue;
        double smaller = i ? ratio * part_us(fit, shape, (1U << i) - 1) : 0;
        most = smaller > most ? smaller : most;
        ratio = ratio_of(fit, &sizes[i], quantile);
    }
    double own = ratio * part_us(fit, shape, rows);
    return own > most ? own : most;
}

double cost_fit_predict(const struct cost_fit *fit, const struct step_shape *shape,
                        enum cost_quantile quantile)
{
    double all = 0, decodes = 0;
    struct step_shape without = {.decode_rows = shape->decode_rows,
                                 .decode_context = shape->decode_context};
    if (shape->prefill_rows)
        all = predict_kind(fit, shape, quantile);
    if (shape->decode_rows)
        decodes = predict_kind(fit, &without, quantile);
    return all > decodes ? all : decodes;
}
