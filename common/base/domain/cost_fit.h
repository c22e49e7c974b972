/* Learns the cost of a worker's steps from its step reports. PURE: numbers in, numbers out. The
 * caller owns the memory; nothing is allocated.
 *
 * The time of a step is a step_cost (step_cost.h), five numbers that are never negative, times a
 * ratio. Recursive least squares fits the five: each step weighs by its predicted time, so errors
 * count in per cent. The ratio is empirical: quantiles of measured / predicted, kept by batch size.
 * Real engines have stairs (graphs, tiles, experts) and noise.
 *
 * - A prior from a profile counts as so many steps. Without one the first step gives the scale.
 * - The step's own cost is forgotten within some 20 steps: clocks, neighbours, throttling move it.
 *   Slopes are forgotten over some 500, and only in the direction of the steps that came: hours of
 *   decode steps don't erase the slope of prompts (directional forgetting: Cao and Schwartz, 2000).
 * - A step far beyond the usual error counts as one at its bound (Huber, 1964). Several in a row to
 *   the same side are a change, and count in full.
 *
 * Predictions grow with the rows, and with the positions and the context of the same rows. */
#ifndef BATON_BASE_DOMAIN_COST_FIT_H
#define BATON_BASE_DOMAIN_COST_FIT_H

#include "common/base/domain/step_cost.h"

#define COST_FIT_PARAMETERS 5
#define COST_FIT_SIZES      13 /* batch sizes by powers of two; the last: 4,096 rows and more */
#define COST_FIT_BINS       48 /* ratios from 1/8 to 8, an eighth of an octave each */

enum cost_quantile { COST_P50, COST_P90, COST_QUANTILES };

/* Ratios of measured to predicted times; older ones weigh less. */
struct cost_ratios {
    uint16_t bins[COST_FIT_BINS];
    uint32_t total;
    float median, above[COST_QUANTILES]; /* quantiles, as multiples of the median */
    float own; /* 0 .. 1: its own quantiles count so much, the ones of all sizes the rest */
};

/* The state of a fit, for people. */
struct cost_fit_figures {
    struct step_cost cost; /* as fitted so far */
    uint64_t steps;        /* learnt from */
    uint64_t clamped;      /* learnt from with an error beyond the bound */
    double spread;         /* usual |measured / predicted - 1| */
};

/* Read `figures`; the rest is the fit's own. */
struct cost_fit {
    struct cost_fit_figures figures;
    int32_t beyond; /* steps in a row beyond the bound: above 0, or below */
    /* Normal equations of the parameters, as multiples of `unit`. */
    double unit[COST_FIT_PARAMETERS], times[COST_FIT_PARAMETERS];
    double information[COST_FIT_PARAMETERS][COST_FIT_PARAMETERS], evidence[COST_FIT_PARAMETERS];
    /* By batch size: prompt rows where there are any, otherwise decode rows. `all`: of all sizes,
     * each ratio divided by the median of its size; `usual`: its quantiles. */
    struct cost_ratios of_prefill[COST_FIT_SIZES], of_decode[COST_FIT_SIZES], all;
    double usual[COST_QUANTILES];
};

/* `prior` counts as `steps` steps for each parameter, more than 0. NULL: nothing is known. */
void cost_fit_init(struct cost_fit *fit, const struct step_cost *prior, double steps);

/* Learns from a step that took `took_us`, without its moves of blocks. Ignores a step without rows,
 * and times that are not above 0. */
void cost_fit_learn(struct cost_fit *fit, const struct step_shape *shape, double took_us);

/* Returns the predicted time in microseconds: half of such steps take no longer, or nine of ten.
 * Never negative; 0 before anything is known. */
double cost_fit_predict(const struct cost_fit *fit, const struct step_shape *shape,
                        enum cost_quantile quantile);

#endif
