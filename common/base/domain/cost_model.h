/* What a step and a move of KV blocks will cost on this worker, in microseconds. PURE: numbers in,
 * numbers out.
 *
 * The numbers are set at start-up (measured, estimated, or cost_model_default) and corrected by
 * what steps took: each correction is the moving average of measured / predicted, bounded on both
 * sides, so that one descheduled step can't turn a decision around; steps that are off in a row,
 * all to the same side, count more and more: the guess at the start may be 30 times off. Nobody's
 * output depends on them: they order work and choose between swap and recompute, which give the
 * same bytes.
 */
#ifndef BATON_BASE_DOMAIN_COST_MODEL_H
#define BATON_BASE_DOMAIN_COST_MODEL_H

#include "common/base/domain/model_shape.h"

#include <stdbool.h>
#include <stdint.h>

struct cost_model {
    /* as measured at start-up; all > 0 but the second and the third, which may be 0 */
    double prefill_row_us;      /* one row of a prompt at position 0 */
    double prefill_position_us; /* more for each position before the row: attention */
    double step_us;             /* any step, whatever its rows: launch, weights read once */
    double decode_row_us;       /* one decode row in a batch */
    double swap_bytes_per_us;   /* between the KV pool and host memory, one way */
    uint64_t block_bytes;       /* of one KV block */
    /* measured / predicted so far; 1 at start */
    double prefill_scale, decode_scale, step_scale, swap_scale;
    /* without prompt rows, with some: steps in a row that took far less (below 0), or far more,
     * than predicted */
    int32_t steps_off[2];
};

/* A machine of about 1 ms a row and 10 GB/s, blocks of 1 MiB: for tests, and until something was
 * measured. */
struct cost_model cost_model_default(void);

/* What a model of this shape costs by its operations and bytes, on cores as they mostly are: within
 * some factors of the truth, which corrections bridge. */
struct cost_model cost_model_estimate(const struct model_shape *shape, uint64_t block_bytes,
                                      uint32_t threads);

/* The fewest prompt rows of a step behind which more gain little: a step reads all weights once,
 * and then that takes at most a tenth of what its rows compute, and kernels hide most of it behind
 * that. By what was measured of the machine; 0: one of the rates is not known. */
uint32_t cost_model_saturation_rows(const struct model_shape *shape, uint64_t weight_bytes,
                                    double read_gbs, double peak_gflops);

/* Rows [first, first + count) of one prompt, without the step's own cost. */
double cost_model_prefill_us(const struct cost_model *model, uint32_t first, uint32_t count);
/* The most rows from `first` on that take no longer than `us`. */
uint32_t cost_model_prefill_rows(const struct cost_model *model, uint32_t first, double us);
/* `count` decode rows of one step, without the step's own cost. */
double cost_model_decode_us(const struct cost_model *model, uint32_t count);
/* `blocks` one way. */
double cost_model_swap_us(const struct cost_model *model, uint32_t blocks);

/* Is it cheaper to copy `blocks` out and in again than to compute their `rows` once more? */
bool cost_model_prefers_swap(const struct cost_model *model, uint32_t blocks, uint32_t rows);

/* A step whose rows were predicted to cost prefill_us + decode_us took, with its own cost,
 * took_us. */
void cost_model_learn_step(struct cost_model *model, double prefill_us, double decode_us,
                           double took_us);
void cost_model_learn_swap(struct cost_model *model, uint32_t blocks, double took_us);

#endif
