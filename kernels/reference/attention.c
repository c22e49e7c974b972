#include "kernels/cpu/exp_fixed.h"
#include "kernels/cpu/kv_view.h"
#include "kernels/reference/inner/quantized.h"
#include "kernels/reference/inner/rows.h"
#include "kernels/reference/reference.h"

#include <string.h>

struct attention_job {
    const struct step_batch *batch;
    const struct attention_shape *shape;
    struct kv_view kv;
    const struct head_parameters *parameters;
    float *qkv;
    float *out;
    struct reference_scratch *scratch;
};

/* --- bias, norm, rope and append: item = row --- */

/* Queries and keys of one row, in place. */
static void normalise_heads(const struct attention_job *job, float *row)
{
    const struct head_parameters *p = job->parameters;
    const struct attention_shape *shape = job->shape;
    float normed[KERNELS_MAX_HEAD_DIM];
    for (uint32_t h = 0; h < shape->heads + shape->kv_heads; h++) {
        float *head = row + (size_t)h * shape->head_dim;
        const float *weight = h < shape->heads ? p->q_norm.address : p->k_norm.address;
        reference_rmsnorm(head, weight, p->norm_eps, shape->head_dim, normed);
        memcpy(head, normed, shape->head_dim * sizeof *head);
    }
}

/* One head of a token into the pool. */
static void append(const struct attention_job *job, uint32_t row, bool value, uint32_t head,
                   const float *numbers)
{
    uint32_t position = ((const uint32_t *)job->batch->positions.address)[row];
    uint32_t sequence = ((const uint32_t *)job->batch->row_sequence.address)[row];
    void *target = kv_view_at(&job->kv, sequence, position, value, head);
    if (job->kv.type == KV_INT8)
        *kv_view_scale_at(&job->kv, sequence, position, value, head) =
            reference_quantize(numbers, job->shape->head_dim, target);
    else
        memcpy(target, numbers, job->shape->head_dim * sizeof *numbers);
}

static void rope_rows(void *context, uint32_t thread, uint32_t first, uint32_t last)
{
    (void)thread;
    const struct attention_job *job = context;
    const struct attention_shape *shape = job->shape;
    const uint32_t *positions = job->batch->positions.address;
    size_t dim = shape->head_dim;
    for (uint32_t t = first; t < last; t++) {
        float *row = job->qkv + t * qkv_width(shape);
        const float *cos_sin = (const float *)job->parameters->rope.address + positions[t] * dim;
        const float *bias = job->parameters->bias.address;
        for (size_t i = 0; bias && i < qkv_width(shape); i++)
            row[i] += bias[i];
        if (job->parameters->q_norm.address)
            normalise_heads(job, row);
        for (uint32_t h = 0; h < shape->heads + shape->kv_heads; h++)
            reference_rope(cos_sin, shape->head_dim, row + h * dim);
        const float *keys = row + shape->heads * dim;
        const float *values = keys + shape->kv_heads * dim;
        for (uint32_t g = 0; g < shape->kv_heads; g++) {
            append(job, t, false, g, keys + g * dim);
            append(job, t, true, g, values + g * dim);
        }
    }
}

enum status reference_rope_append(struct kernels *kernels, const struct step_batch *batch,
                                  const struct attention_shape *shape,
                                  const struct head_parameters *parameters,
                                  const struct kv_layout *layout, uint32_t layer,
                                  struct buffer *qkv, struct buffer *pool)
{
    struct reference *self = kernels->state;
    struct attention_job job = {.batch = batch,
                                .shape = shape,
                                .kv = kv_view_make(batch, layout, layer, pool),
                                .parameters = parameters,
                                .qkv = qkv->address};
    pool_run(self->pool, batch->rows, 16, rope_rows, &job);
    return STATUS_OK;
}

/* --- attention: item = (row, kv head) --- */

/* Positions from p on that lie behind each other as floats, short of `end`: up to the end of p's
 * block, or one that is widened. */
static uint32_t run_tokens(const struct attention_job *job, uint32_t p, uint32_t end)
{
    if (job->kv.type == KV_INT8)
        return 1;
    uint32_t left = job->kv.block_tokens - p % job->kv.block_tokens;
    return end - p < left ? end - p : left;
}

static const float *read_tokens(const struct attention_job *job, uint32_t sequence, uint32_t p,
                                bool value, uint32_t head, struct reference_scratch *scratch)
{
    const void *tokens = kv_view_at(&job->kv, sequence, p, value, head);
    if (job->kv.type != KV_INT8)
        return tokens;
    float scale = *kv_view_scale_at(&job->kv, sequence, p, value, head);
    reference_widen_int8(tokens, scale, job->shape->head_dim, scratch->token);
    return scratch->token;
}

/* One query's partial over positions [begin, end) of one segment: returns the sum of its weights;
 * `max` and the unscaled output in scratch->partial. */
static float attend_segment(const struct attention_job *job, uint32_t sequence, uint32_t head,
                            const float *q, uint32_t begin, uint32_t end,
                            struct reference_scratch *scratch, float *max)
{
    uint32_t dim = job->shape->head_dim;
    for (uint32_t p = begin, count; p < end; p += count) {
        count = run_tokens(job, p, end);
        reference_scores(q, read_tokens(job, sequence, p, false, head, scratch), dim, count,
                         job->shape->scale, scratch->scores + (p - begin));
    }
    float sum = reference_softmax(scratch->scores, end - begin, max);
    memset(scratch->partial, 0, dim * sizeof(float));
    for (uint32_t p = begin, count; p < end; p += count) {
        count = run_tokens(job, p, end);
        reference_weigh(scratch->scores + (p - begin),
                        read_tokens(job, sequence, p, true, head, scratch), dim, count,
                        scratch->partial);
    }
    return sum;
}

/* Segments merged in ascending order into out[head_dim]. */
static void attend(const struct attention_job *job, uint32_t row, uint32_t head, const float *q,
                   struct reference_scratch *scratch, float *out)
{
    const uint32_t *positions = job->batch->positions.address;
    const uint32_t *row_sequence = job->batch->row_sequence.address;
    uint32_t context = positions[row] + 1, dim = job->shape->head_dim;
    uint32_t window = job->shape->window;
    uint32_t start = window && context > window ? context - window : 0;
    float max = 0, sum = 0;
    for (uint32_t begin = start, end; begin < context; begin = end) {
        uint32_t segment_end = begin - begin % ATTENTION_SEGMENT_TOKENS + ATTENTION_SEGMENT_TOKENS;
        end = context < segment_end ? context : segment_end;
        float segment_max;
        float segment_sum =
            attend_segment(job, row_sequence[row], head, q, begin, end, scratch, &segment_max);
        if (begin == start) {
            memcpy(out, scratch->partial, dim * sizeof(float));
            max = segment_max;
            sum = segment_sum;
            continue;
        }
        float top = segment_max > max ? segment_max : max;
        float a = exp_fixed(max - top), b = exp_fixed(segment_max - top);
        reference_blend(out, a, scratch->partial, b, dim);
        sum = sum * a + segment_sum * b;
        max = top;
    }
    for (uint32_t d = 0; d < dim; d++)
        out[d] /= sum;
}

static void attention_items(void *context, uint32_t thread, uint32_t first, uint32_t last)
{
    const struct attention_job *job = context;
    const struct attention_shape *shape = job->shape;
    size_t dim = shape->head_dim;
    uint32_t group = shape->heads / shape->kv_heads;
    for (uint32_t item = first; item < last; item++) {
        uint32_t row = item / shape->heads, head = item % shape->heads;
        attend(job, row, head / group, job->qkv + row * qkv_width(shape) + head * dim,
               &job->scratch[thread], job->out + ((size_t)row * shape->heads + head) * dim);
    }
}

enum status reference_attention(struct kernels *kernels, const struct step_batch *batch,
                                const struct attention_shape *shape, const struct kv_layout *layout,
                                uint32_t layer, const struct buffer *qkv, const struct buffer *pool,
                                struct buffer *out)
{
    struct reference *self = kernels->state;
    struct attention_job job = {.batch = batch,
                                .shape = shape,
                                .kv = kv_view_make(batch, layout, layer, pool),
                                .qkv = qkv->address,
                                .out = out->address,
                                .scratch = self->scratch};
    pool_run(self->pool, batch->rows * shape->heads, shape->heads, attention_items, &job);
    return STATUS_OK;
}
