#include "common/engine/model/llama.h"

#include "common/base/u32.h"

#include <math.h>

static struct attention_shape attention_shape(const struct model_shape *shape)
{
    return (struct attention_shape){.heads = shape->heads,
                                    .kv_heads = shape->kv_heads,
                                    .head_dim = shape->head_dim,
                                    .window = shape->window,
                                    .scale = 1.0f / sqrtf((float)shape->head_dim)};
}

struct activation_bytes {
    size_t x, qkv, heads, gate_up, gated, logits;
};

static struct activation_bytes plan_activations(const struct kernels *kernels,
                                                const struct model_shape *shape, uint32_t max_rows,
                                                uint32_t max_samples)
{
    size_t row = max_rows * sizeof(float);
    size_t ffn_row = min_u32(max_rows, kernels_info(kernels).pass_rows) * sizeof(float);
    size_t head_columns = (size_t)shape->heads * shape->head_dim;
    size_t kv_columns = (size_t)shape->kv_heads * shape->head_dim;
    return (struct activation_bytes){.x = row * shape->hidden,
                                     .qkv = row * (head_columns + 2 * kv_columns),
                                     .heads = row * head_columns,
                                     .gate_up = ffn_row * 2 * shape->ffn,
                                     .gated = ffn_row * shape->ffn,
                                     .logits = (size_t)max_samples * shape->vocab * sizeof(float)};
}

/* Returns the offset of an activation behind one of `bytes` bytes: on a cache line, as rows that
 * are written around the cache need it. */
static size_t behind(size_t bytes)
{
    const size_t line = 64;
    return (bytes + line - 1) / line * line;
}

static size_t larger_of(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t shared_bytes(const struct activation_bytes *plan)
{
    return larger_of(
        larger_of(behind(plan->qkv) + plan->heads, behind(plan->gate_up) + plan->gated),
        plan->logits);
}

size_t llama_bytes(const struct kernels *kernels, const struct model_shape *shape,
                   uint32_t max_rows, uint32_t max_samples)
{
    struct activation_bytes plan = plan_activations(kernels, shape, max_rows, max_samples);
    return 2 * plan.x + shared_bytes(&plan);
}

static struct buffer part_of(const struct buffer *whole, size_t offset, size_t bytes)
{
    return (struct buffer){.address = (char *)whole->address + offset, .bytes = bytes};
}

static enum status take_activations(struct llama *llama, const struct activation_bytes *plan)
{
    TRY(kernels_alloc(llama->kernels, plan->x, &llama->x));
    TRY(kernels_alloc(llama->kernels, plan->x, &llama->normed));
    TRY(kernels_alloc(llama->kernels, shared_bytes(plan), &llama->shared));
    llama->qkv = part_of(&llama->shared, 0, plan->qkv);
    llama->heads = part_of(&llama->shared, behind(plan->qkv), plan->heads);
    llama->gate_up = part_of(&llama->shared, 0, plan->gate_up);
    llama->gated = part_of(&llama->shared, behind(plan->gate_up), plan->gated);
    llama->logits = part_of(&llama->shared, 0, plan->logits);
    return STATUS_OK;
}

enum status llama_init(struct llama *out, struct kernels *kernels, const struct model_shape *shape,
                       const struct weights *weights, uint32_t max_rows, uint32_t max_samples,
                       struct error *err)
{
    struct llama llama = {.kernels = kernels, .shape = shape, .weights = weights};
    struct activation_bytes plan = plan_activations(kernels, shape, max_rows, max_samples);
    enum status status = take_activations(&llama, &plan);
    if (status != STATUS_OK) {
        llama_deinit(&llama);
        return error_set(err, status, "no device memory for %zu bytes of activations",
                         llama_bytes(kernels, shape, max_rows, max_samples));
    }
    *out = llama;
    return STATUS_OK;
}

void llama_deinit(struct llama *llama)
{
    if (!llama->kernels)
        return;
    kernels_free(llama->kernels, &llama->x);
    kernels_free(llama->kernels, &llama->normed);
    kernels_free(llama->kernels, &llama->shared);
    *llama = (struct llama){0};
}

/* qkv = rope(head norm(linear(norm(x)) + bias)). This layer's keys and values go to the pool. */
static enum status append_keys_values(struct llama *m, const struct step_batch *batch,
                                      const struct kv_layout *layout, uint32_t l,
                                      struct buffer *pool)
{
    const struct layer_weights *w = &m->weights->layers[l];
    struct attention_shape shape = attention_shape(m->shape);
    TRY(kernels_rmsnorm(m->kernels, &m->x, &w->attention_norm, m->shape->rms_eps, NULL, batch->rows,
                        m->shape->hidden, &m->normed));
    TRY(kernels_linear(m->kernels, &w->qkv, &m->normed, batch->rows, false, &m->qkv));
    struct head_parameters heads = {.bias = w->qkv_bias,
                                    .q_norm = w->q_norm,
                                    .k_norm = w->k_norm,
                                    .norm_eps = m->shape->rms_eps,
                                    .rope = m->weights->rope};
    return kernels_rope_append(m->kernels, batch, &shape, &heads, layout, l, &m->qkv, pool);
}

/* x += linear(attention(q, pool)) */
static enum status attention_block(struct llama *m, const struct step_batch *batch,
                                   const struct kv_layout *layout, uint32_t l,
                                   const struct buffer *pool)
{
    struct attention_shape shape = attention_shape(m->shape);
    TRY(kernels_attention(m->kernels, batch, &shape, layout, l, &m->qkv, pool, &m->heads));
    return kernels_linear(m->kernels, &m->weights->layers[l].attention_out, &m->heads, batch->rows,
                          true, &m->x);
}

/* x += down(silu(gate(normed)) * up(normed)), for rows [first, first + count) */
static enum status ffn_part(struct llama *m, const struct layer_weights *w, uint32_t first,
                            uint32_t count)
{
    size_t row_bytes = m->shape->hidden * sizeof(float);
    struct buffer x = part_of(&m->x, first * row_bytes, count * row_bytes);
    struct buffer normed = part_of(&m->normed, first * row_bytes, count * row_bytes);
    TRY(kernels_linear(m->kernels, &w->gate_up, &normed, count, false, &m->gate_up));
    TRY(kernels_swiglu(m->kernels, &m->gate_up, count, m->shape->ffn, &m->gated));
    return kernels_linear(m->kernels, &w->down, &m->gated, count, true, &x);
}

/* x += down(silu(gate(norm(x))) * up(norm(x))), for as many rows at a time as share a pass over the
 * weights: activations are by far the widest here. */
static enum status ffn_block(struct llama *m, const struct step_batch *batch, uint32_t l)
{
    const struct layer_weights *w = &m->weights->layers[l];
    TRY(kernels_rmsnorm(m->kernels, &m->x, &w->ffn_norm, m->shape->rms_eps, NULL, batch->rows,
                        m->shape->hidden, &m->normed));
    uint32_t parts = divide_up(batch->rows, kernels_info(m->kernels).pass_rows);
    for (uint32_t part = 0, first = 0; part < parts; part++) {
        uint32_t end = (uint32_t)((uint64_t)batch->rows * (part + 1) / parts);
        TRY(ffn_part(m, w, first, end - first));
        first = end;
    }
    return STATUS_OK;
}

enum status llama_forward(struct llama *m, const struct step_batch *batch,
                          const struct kv_layout *layout, struct buffer *pool,
                          const struct llama_samples *samples)
{
    TRY(kernels_embed(m->kernels, batch, &m->weights->embedding, &m->x));
    for (uint32_t l = 0; l < m->shape->layers; l++) {
        TRY(append_keys_values(m, batch, layout, l, pool));
        if (l + 1 == m->shape->layers && !samples->count && !samples->more)
            break; /* in the middle of a prompt the last layer's output is not read */
        TRY(attention_block(m, batch, layout, l, pool));
        TRY(ffn_block(m, batch, l));
    }
    return samples->count ? llama_head(m, samples) : STATUS_OK;
}

/* logits = lm_head(norm(x)), only for the rows that sample */
enum status llama_head(struct llama *m, const struct llama_samples *samples)
{
    TRY(kernels_rmsnorm(m->kernels, &m->x, &m->weights->final_norm, m->shape->rms_eps,
                        &samples->rows, samples->count, m->shape->hidden, &m->normed));
    return kernels_linear(m->kernels, weights_head(m->weights), &m->normed, samples->count, false,
                          &m->logits);
}
