/* Predicts the time of a step from the rows in it. PURE: numbers in, numbers out.
 *
 * A prompt row costs a fixed part and, by its attention, a part for each position before it. A
 * decode row costs a fixed part and a part for each token of its context. These four slopes and the
 * step's own cost are one profile: `cost_fit` learns it from a worker's step reports, and the mock
 * engine lives by one. Unlike cost_model.h, which orders work inside a worker, it has a term for
 * the context that decode rows read. */
#ifndef BATON_BASE_DOMAIN_STEP_COST_H
#define BATON_BASE_DOMAIN_STEP_COST_H

#include <stdint.h>

/* Microseconds; all >= 0. */
struct step_cost {
    double step_us;             /* any step, whatever its rows: launch, weights read once */
    double prefill_row_us;      /* one row of a prompt at position 0 */
    double prefill_position_us; /* added for each position before that row */
    double decode_row_us;       /* one decode row without context */
    double decode_context_us;   /* added for each token before that row */
};

/* The rows of one step. */
struct step_shape {
    uint32_t prefill_rows;
    uint64_t prefill_positions; /* sum over the prompt rows: positions before each */
    uint32_t decode_rows;
    uint64_t decode_context; /* sum over the decode rows: tokens before each */
};

/* Returns the predicted time of a step, in microseconds. */
static inline double step_cost_predict(const struct step_cost *cost, const struct step_shape *shape)
{
    return cost->step_us + cost->prefill_row_us * shape->prefill_rows +
           cost->prefill_position_us * (double)shape->prefill_positions +
           cost->decode_row_us * shape->decode_rows +
           cost->decode_context_us * (double)shape->decode_context;
}

#endif
