#include "common/engine/model/llama.h"

#include <math.h>

static struct attention_shape attention_shape(const struct model_shape *shape)
{
    return (struct attention_shape){.heads = shape->heads,
                                    .kv_heads = shape->kv_heads,
                                    .head_dim = shape->head_dim,
                                    .window = shape->window,
                                    .scale = 1.0f / sqrtf((float)shape->head_dim)};
}

enum { ACTIVATIONS = 7 };

struct activation {
    struct buffer *buffer;
    size_t bytes;
};

static void plan_activations(struct llama *llama, const struct model_shape *shape, size_t max_rows,
                             size_t max_samples, struct activation plan[ACTIVATIONS])
{
    size_t row = max_rows * sizeof(float);
    size_t head_columns = (size_t)shape->heads * shape->head_dim;
    size_t qkv_columns = head_columns + 2 * (size_t)shape->kv_heads * shape->head_dim;
    plan[0] = (struct activation){&llama->x, row * shape->hidden};
    plan[1] = (struct activation){&llama->normed, row * shape->hidden};
    plan[2] = (struct activation){&llama->qkv, row * qkv_columns};
    plan[3] = (struct activation){&llama->heads, row * head_columns};
    plan[4] = (struct activation){&llama->gate_up, row * 2 * shape->ffn};
    plan[5] = (struct activation){&llama->gated, row * shape->ffn};
    plan[6] = (struct activation){&llama->logits, max_samples * shape->vocab * sizeof(float)};
}

size_t llama_bytes(const struct model_shape *shape, uint32_t max_rows, uint32_t max_samples)
{
    struct llama none;
    struct activation plan[ACTIVATIONS];
    size_t bytes = 0;
    plan_activations(&none, shape, max_rows, max_samples, plan);
    for (size_t i = 0; i < ACTIVATIONS; i++)
        bytes += plan[i].bytes;
    return bytes;
}

enum status llama_init(struct llama *out, struct kernels *kernels, const struct model_shape *shape,
                       const struct weights *weights, uint32_t max_rows, uint32_t max_samples,
                       struct error *err)
{
    struct llama llama = {.kernels = kernels, .shape = shape, .weights = weights};
    struct activation plan[ACTIVATIONS];
    plan_activations(&llama, shape, max_rows, max_samples, plan);
    for (size_t i = 0; i < ACTIVATIONS; i++) {
        enum status status = kernels_alloc(kernels, plan[i].bytes, plan[i].buffer);
        if (status != STATUS_OK) {
            llama_deinit(&llama);
            return error_set(err, status, "no device memory for %zu bytes of activations",
                             plan[i].bytes);
        }
    }
    *out = llama;
    return STATUS_OK;
}

void llama_deinit(struct llama *llama)
{
    if (!llama->kernels)
        return;
    struct activation plan[ACTIVATIONS];
    plan_activations(llama, llama->shape, 0, 0, plan);
    for (size_t i = 0; i < ACTIVATIONS; i++)
        kernels_free(llama->kernels, plan[i].buffer);
    *llama = (struct llama){0};
}

/* qkv = rope(norm of heads(linear(norm(x)) + bias)); this layer's keys and values go to the pool. */
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

/* x += down(silu(gate(norm(x))) * up(norm(x))) */
static enum status ffn_block(struct llama *m, const struct step_batch *batch, uint32_t l)
{
    const struct layer_weights *w = &m->weights->layers[l];
    TRY(kernels_rmsnorm(m->kernels, &m->x, &w->ffn_norm, m->shape->rms_eps, NULL, batch->rows,
                        m->shape->hidden, &m->normed));
    TRY(kernels_linear(m->kernels, &w->gate_up, &m->normed, batch->rows, false, &m->gate_up));
    TRY(kernels_swiglu(m->kernels, &m->gate_up, batch->rows, m->shape->ffn, &m->gated));
    return kernels_linear(m->kernels, &w->down, &m->gated, batch->rows, true, &m->x);
}

enum status llama_forward(struct llama *m, const struct step_batch *batch,
                          const struct kv_layout *layout, struct buffer *pool,
                          const struct llama_samples *samples)
{
    TRY(kernels_embed(m->kernels, batch, &m->weights->embedding, &m->x));
    for (uint32_t l = 0; l < m->shape->layers; l++) {
        TRY(append_keys_values(m, batch, layout, l, pool));
        if (l + 1 == m->shape->layers && !samples->count && !samples->more)
            break; /* nobody reads the last layer's output in the middle of a prompt */
        TRY(attention_block(m, batch, layout, l, pool));
        TRY(ffn_block(m, batch, l));
    }
    return samples->count ? llama_head(m, samples) : STATUS_OK;
}

/* logits = lm_head(norm(x)), of the rows that sample only. */
enum status llama_head(struct llama *m, const struct llama_samples *samples)
{
    TRY(kernels_rmsnorm(m->kernels, &m->x, &m->weights->final_norm, m->shape->rms_eps,
                        &samples->rows, samples->count, m->shape->hidden, &m->normed));
    return kernels_linear(m->kernels, weights_head(m->weights), &m->normed, samples->count, false,
                          &m->logits);
}
