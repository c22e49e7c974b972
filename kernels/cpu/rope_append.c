/* Rotation and append of the bf16 backend: bias, norm of heads, rotation, and keys and values into
 * the pool. An item is a row. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/kv_view.h"

#include <string.h>

struct append_job {
    const struct cpu *cpu;
    const struct step_batch *batch;
    const struct attention_shape *shape;
    struct kv_view kv;
    const struct head_parameters *parameters;
    float *qkv;
};

/* Queries and keys of one row, in place. */
static void normalise_heads(const struct append_job *job, float *row)
{
    const struct head_parameters *p = job->parameters;
    const struct attention_shape *shape = job->shape;
    float normed[KERNELS_MAX_HEAD_DIM];
    for (uint32_t h = 0; h < shape->heads + shape->kv_heads; h++) {
        float *head = row + (size_t)h * shape->head_dim;
        const float *weight = h < shape->heads ? p->q_norm.address : p->k_norm.address;
        job->cpu->inner->rmsnorm(head, weight, p->norm_eps, shape->head_dim, normed);
        memcpy(head, normed, shape->head_dim * sizeof *head);
    }
}

/* One head of a token into the pool. */
static void append(const struct append_job *job, uint32_t row, bool value, uint32_t head,
                   const float *numbers)
{
    uint32_t position = ((const uint32_t *)job->batch->positions.address)[row];
    uint32_t sequence = ((const uint32_t *)job->batch->row_sequence.address)[row];
    void *target = kv_view_at(&job->kv, sequence, position, value, head);
    if (job->kv.type == KV_INT8)
        *kv_view_scale_at(&job->kv, sequence, position, value, head) =
            job->cpu->inner->quantize(numbers, job->shape->head_dim, target);
    else
        job->cpu->inner->round(numbers, job->shape->head_dim, target);
}

static void append_rows(void *context, uint32_t thread, uint32_t first, uint32_t last)
{
    (void)thread;
    const struct append_job *job = context;
    const struct attention_shape *shape = job->shape;
    const struct inner *inner = job->cpu->inner;
    const uint32_t *positions = job->batch->positions.address;
    uint32_t dim = shape->head_dim;
    for (uint32_t t = first; t < last; t++) {
        float *row = job->qkv + t * qkv_width(shape);
        const float *rope =
            (const float *)job->parameters->rope.address + (size_t)positions[t] * dim;
        if (job->parameters->bias.address)
            inner->blend(row, 1, job->parameters->bias.address, 1, (uint32_t)qkv_width(shape));
        if (job->parameters->q_norm.address)
            normalise_heads(job, row);
        for (uint32_t h = 0; h < shape->heads + shape->kv_heads; h++)
            inner->rope(rope, dim, row + (size_t)h * dim);
        const float *key = row + (size_t)shape->heads * dim;
        const float *value = key + (size_t)shape->kv_heads * dim;
        for (uint32_t g = 0; g < shape->kv_heads; g++) {
            append(job, t, false, g, key + (size_t)g * dim);
            append(job, t, true, g, value + (size_t)g * dim);
        }
    }
}

enum status cpu_rope_append(struct kernels *kernels, const struct step_batch *batch,
                            const struct attention_shape *shape,
                            const struct head_parameters *parameters,
                            const struct kv_layout *layout, uint32_t layer, struct buffer *qkv,
                            struct buffer *pool)
{
    struct cpu *self = kernels->state;
    struct append_job job = {.cpu = self,
                             .batch = batch,
                             .shape = shape,
                             .kv = kv_view_make(batch, layout, layer, pool),
                             .parameters = parameters,
                             .qkv = qkv->address};
    pool_run(self->pool, batch->rows, 8, append_rows, &job);
    return STATUS_OK;
}
