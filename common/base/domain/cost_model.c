#include "common/base/domain/cost_model.h"

#include <math.h>
#include <stdlib.h>

#define OPERATIONS_PER_US   50000.0 /* one core */
#define MEMORY_BYTES_PER_US 10000.0

#define WEIGHT      (1.0 / 16) /* weight of one measurement in the moving average */
#define OFF         1.5        /* a step that took so many times more, or less, is off */
#define STEPS_OFF   8          /* n steps off in a row weigh n times; this many at most */
#define RATIO_BOUND 4.0        /* bound of one measurement, either way */
#define SCALE_BOUND 64.0       /* bound of all together; tiles compute 22 times OPERATIONS_PER_US */

/* Ratio of a step's arithmetic to its reading of the weights. Chosen, not measured. By the roofline
 * model (Williams et al., 2009) reading bounds a step below 1. Above it, reading can hide behind
 * arithmetic. At 10 reading adds a tenth to a step at the very most, if none of it is hidden.
 * Kernels miss the peak by about as much anyway. `baton bench engine --prefill ...`
 * (docs/operations/models.md, "Prompt rows of a step") shows the gain of longer steps. */
#define SATURATION 10.0

/* A device with known rates: attention reaches about half the peak of linear layers. */
#define ATTENTION_SHARE 0.5
#define ANSWER_CONTEXT  1024 /* tokens that a row of an answer reads */

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
                               .step_scale = 1,
                               .swap_scale = 1};
}

/* Counts the weights of all layers. A row multiplies by each once. */
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
    model.step_us = 2 * weights / MEMORY_BYTES_PER_US; /* weights are read once, in bf16 */
    model.block_bytes = block_bytes;
    return model;
}

struct cost_model cost_model_of_rates(const struct model_shape *shape,
                                      const struct cost_rates *rates)
{
    struct cost_model model = cost_model_estimate(shape, rates->block_bytes, 1);
    if (!(rates->read_gbs > 0) || !(rates->peak_gflops > 0))
        return model;
    double heads = (double)shape->heads * shape->head_dim;
    double per_us = 1e3 * rates->peak_gflops, bytes_per_us = 1e3 * rates->read_gbs;
    double token_bytes = (double)rates->block_bytes / rates->block_tokens;
    model.prefill_row_us = 2 * layer_weights(shape) / per_us;
    model.prefill_position_us = 4 * heads * shape->layers / (ATTENTION_SHARE * per_us);
    model.step_us = (double)rates->weight_bytes / bytes_per_us;
    model.decode_row_us = ANSWER_CONTEXT * token_bytes / bytes_per_us;
    return model;
}

uint32_t cost_model_chunk_rows(uint32_t saturation, uint32_t unit, uint32_t least, uint32_t most,
                               uint32_t unknown_rows)
{
    uint64_t rows = saturation ? ((uint64_t)saturation + unit - 1) / unit * unit : unknown_rows;
    return rows < least ? least : rows > most ? most / unit * unit : (uint32_t)rows;
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

/* Solves prefill_us(first, rows) = us in a form that keeps its digits, also where positions cost
 * nothing. */
uint32_t cost_model_prefill_rows(const struct cost_model *model, uint32_t first, double us)
{
    double at_once = us / model->prefill_scale, slope = model->prefill_position_us;
    double row = model->prefill_row_us + slope * (first - 0.5);
    if (!(at_once > 0))
        return 0;
    double rows = 2 * at_once / (row + sqrt(row * row + 2 * slope * at_once));
    return rows < UINT32_MAX ? (uint32_t)rows : UINT32_MAX;
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

/* Moves `scale` towards scale * ratio, in proportion to its `share` of the time. */
static void correct(double *scale, double ratio, double share, double weight)
{
    *scale = clamp(*scale * (1 + (clamp(ratio, RATIO_BOUND) - 1) * share * weight), SCALE_BOUND);
}

/* Returns how many steps in a row, with this one, were off to the same side. */
static int32_t count_off(int32_t before, double ratio)
{
    if (ratio > OFF)
        return before < 0 ? 1 : before < STEPS_OFF ? before + 1 : STEPS_OFF;
    if (ratio < 1 / OFF)
        return before > 0 ? -1 : before > -STEPS_OFF ? before - 1 : -STEPS_OFF;
    return 0;
}

void cost_model_learn_step(struct cost_model *model, double prefill_us, double decode_us,
                           double took_us)
{
    double step_us = model->step_us * model->step_scale;
    double predicted = prefill_us + decode_us + step_us;
    if (predicted <= 0 || !(took_us > 0))
        return;
    double ratio = took_us / predicted;
    int32_t *off = &model->steps_off[prefill_us > 0];
    *off = count_off(*off, ratio);
    double weight = WEIGHT * (*off ? abs(*off) : 1);
    correct(&model->prefill_scale, ratio, prefill_us / predicted, weight);
    correct(&model->decode_scale, ratio, decode_us / predicted, weight);
    correct(&model->step_scale, ratio, step_us / predicted, weight);
}

void cost_model_learn_swap(struct cost_model *model, uint32_t blocks, double took_us)
{
    double predicted = cost_model_swap_us(model, blocks);
    if (predicted > 0 && took_us > 0)
        correct(&model->swap_scale, took_us / predicted, 1, WEIGHT);
}
