/* Predicts the cost of a step and of a move of KV blocks on this worker, in microseconds. PURE:
 * numbers in, numbers out.
 *
 * The numbers are set at start-up (measured, estimated, or cost_model_default) and corrected by
 * measured steps. Each correction is the moving average of measured / predicted, bounded on both
 * sides, so that one descheduled step can't turn a decision around. Steps in a row that are off to
 * the same side weigh more and more, because the first guess may be 30 times off. No output depends
 * on the numbers: they order work and choose between swap and recompute, which give the same bytes.
 */
#ifndef BATON_BASE_DOMAIN_COST_MODEL_H
#define BATON_BASE_DOMAIN_COST_MODEL_H

#include "common/base/domain/model_shape.h"

#include <stdbool.h>
#include <stdint.h>

struct cost_model {
    /* as measured at start-up; all > 0, except that prefill_position_us and step_us may be 0 */
    double prefill_row_us;      /* one row of a prompt at position 0 */
    double prefill_position_us; /* added for each position before the row: attention */
    double step_us;             /* any step, whatever its rows: launch, weights read once */
    double decode_row_us;       /* one decode row in a batch */
    double swap_bytes_per_us;   /* between the KV pool and host memory, one way */
    uint64_t block_bytes;       /* one KV block */
    /* measured / predicted so far; 1 at start */
    double prefill_scale, decode_scale, step_scale, swap_scale;
    /* [0]: steps without prompt rows, [1]: with some. Number of steps in a row that took far less
     * (below 0), or far more, than predicted. */
    int32_t steps_off[2];
};

/* Returns the costs of a machine with about 1 ms a row, 10 GB/s and blocks of 1 MiB. It serves
 * tests, and decisions before a measurement. */
struct cost_model cost_model_default(void);

/* Estimates the cost of a model of this shape from its operations and bytes, on average cores. It
 * is within some factors of the truth, which corrections bridge. */
struct cost_model cost_model_estimate(const struct model_shape *shape, uint64_t block_bytes,
                                      uint32_t threads);

/* A machine's measured rates, and what a step reads. */
struct cost_rates {
    double read_gbs, peak_gflops; /* 10^9 bytes and operations a second; not > 0: not known */
    uint64_t weight_bytes;        /* each step reads them */
    uint64_t block_bytes;         /* a KV block */
    uint32_t block_tokens;
};

/* Makes the costs of a device with these rates by the roofline model: prompt rows by its
 * arithmetic, steps and rows of answers (with contexts of 1024 tokens) by what they read. Devices
 * are thousands of times faster than cost_model_estimate's cores, more than corrections bridge. */
struct cost_model cost_model_of_rates(const struct model_shape *shape,
                                      const struct cost_rates *rates);

/* Returns the number of prompt rows of a step beyond which more rows gain little. A step reads all
 * weights once. From this number on, reading takes at most a tenth of the time that the rows
 * compute, and kernels hide most of it. The rates are the machine's measured ones. 0: one of the
 * rates is unknown. */
uint32_t cost_model_saturation_rows(const struct model_shape *shape, uint64_t weight_bytes,
                                    double read_gbs, double peak_gflops);

/* Returns the prompt rows of a step for a machine with so many saturation rows: whole units, from
 * least, a whole number of them, to most. saturation 0: unknown_rows. */
uint32_t cost_model_chunk_rows(uint32_t saturation, uint32_t unit, uint32_t least, uint32_t most,
                               uint32_t unknown_rows);

/* Cost of rows [first, first + count) of one prompt, without the step's own cost. */
double cost_model_prefill_us(const struct cost_model *model, uint32_t first, uint32_t count);
/* Returns the most rows from `first` on that take no longer than `us`. */
uint32_t cost_model_prefill_rows(const struct cost_model *model, uint32_t first, double us);
/* Cost of `count` decode rows of one step, without the step's own cost. */
double cost_model_decode_us(const struct cost_model *model, uint32_t count);
/* Cost of moving `blocks` one way. */
double cost_model_swap_us(const struct cost_model *model, uint32_t blocks);

/* Returns whether it is cheaper to copy `blocks` out and in again than to compute their `rows`
 * again. */
bool cost_model_prefers_swap(const struct cost_model *model, uint32_t blocks, uint32_t rows);

/* Learns from a step: predicted were prefill_us + decode_us for its rows, and with the step's own
 * cost it took took_us. */
void cost_model_learn_step(struct cost_model *model, double prefill_us, double decode_us,
                           double took_us);
void cost_model_learn_swap(struct cost_model *model, uint32_t blocks, double took_us);

#endif
