#include "common/domain/cost_model.h"

#include <math.h>

#define OPERATIONS_PER_US   50000.0 /* of one core */
#define MEMORY_BYTES_PER_US 10000.0

#define WEIGHT      (1.0 / 16) /* of one measurement in the moving average */
#define RATIO_BOUND 4.0        /* one measurement counts as at most so far off, either way */
#define SCALE_BOUND 64.0 /* all together; tiles compute 22 times what OPERATIONS_PER_US says */

/* Arithmetic, in times of reading the weights. Chosen, not measured: by the roofline model (Williams et al., 2009) reading bounds a step
 * below 1, and above it can hide behind arithmetic; at 10 it adds a tenth to a step at the very most, where nothing of it is hidden: about
 * what kernels miss of the peak anyway. `baton bench engine --prefill ...` (docs/operations.md, "Prompt rows of a step") shows what a
 * machine gains from longer steps. */
#define SATURATION 10.0

struct cost_model cost_model_default(void)
{
    return (struct cost_model){.prefill_row_us = 1000,
                               .prefill_position_us = 0.1,
                               .step_us = 1000,
                               .decode_row_us = 1000,
                               .swap_bytes_per_us = 10000,
                               .block_bytes = 1 << 20,
                               .prefill_scale = 1,
                               .decode_scale = 1,
                               .swap_scale = 1};
}

/* Of all layers, in numbers: a row multiplies by each once. */
static double layer_weights(const struct model_shape *shape)
{
    double hidden = shape->hidden, heads = (double)shape->heads * shape->head_dim;
    double kv = (double)shape->kv_heads * shape->head_dim;
    return shape->layers * hidden * (2 * heads + 2 * kv + 3 * (double)shape->ffn);
}

struct cost_model cost_model_estimate(const struct model_shape *shape, uint64_t block_bytes,
                                      uint32_t threads)
{
    double heads = (double)shape->heads * shape->head_dim, weights = layer_weights(shape);
    double per_us = OPERATIONS_PER_US * threads;
    struct cost_model model = cost_model_default();
    model.prefill_row_us = 2 * weights / per_us;
    model.prefill_position_us = 4 * heads * shape->layers / per_us;
    model.decode_row_us = model.prefill_row_us;
    model.step_us = 2 * weights / MEMORY_BYTES_PER_US; /* they are read once, in bf16 */
    model.block_bytes = block_bytes;
    return model;
}

uint32_t cost_model_saturation_rows(const struct model_shape *shape, uint64_t weight_bytes,
                                    double read_gbs, double peak_gflops)
{
    if (!(read_gbs > 0) || !(peak_gflops > 0))
        return 0;
    double read_ns = (double)weight_bytes / read_gbs;
    double rows = ceil(SATURATION * read_ns * peak_gflops / (2 * layer_weights(shape)));
    return rows < UINT32_MAX ? (uint32_t)rows : UINT32_MAX;
}

double cost_model_prefill_us(const struct cost_model *model, uint32_t first, uint32_t count)
{
    double mean_position = first + (count ? (count - 1) / 2.0 : 0);
    return count * (model->prefill_row_us + model->prefill_position_us * mean_position) *
           model->prefill_scale;
}

double cost_model_decode_us(const struct cost_model *model, uint32_t count)
{
    return count * model->decode_row_us * model->decode_scale;
}

double cost_model_swap_us(const struct cost_model *model, uint32_t blocks)
{
    return (double)blocks * (double)model->block_bytes / model->swap_bytes_per_us *
           model->swap_scale;
}

bool cost_model_prefers_swap(const struct cost_model *model, uint32_t blocks, uint32_t rows)
{
    return 2 * cost_model_swap_us(model, blocks) < cost_model_prefill_us(model, 0, rows);
}

static double clamp(double value, double bound)
{
    double low = 1 / bound;
    return value < low ? low : value > bound ? bound : value;
}

/* Moves `scale` towards scale * ratio, as far as `share` of the time was its own. */
static void correct(double *scale, double ratio, double share)
{
    *scale = clamp(*scale * (1 + (clamp(ratio, RATIO_BOUND) - 1) * share * WEIGHT), SCALE_BOUND);
}

void cost_model_learn_step(struct cost_model *model, double prefill_us, double decode_us,
                           double took_us)
{
    double predicted = prefill_us + decode_us + model->step_us;
    if (predicted <= 0 || !(took_us > 0))
        return;
    correct(&model->prefill_scale, took_us / predicted, prefill_us / predicted);
    correct(&model->decode_scale, took_us / predicted, decode_us / predicted);
}

void cost_model_learn_swap(struct cost_model *model, uint32_t blocks, double took_us)
{
    double predicted = cost_model_swap_us(model, blocks);
    if (predicted > 0 && took_us > 0)
        correct(&model->swap_scale, took_us / predicted, 1);
}
