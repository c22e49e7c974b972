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

static size_t larger_of(size_t a, size_t b)
{
    return a > b ? a : b;
}

struct activation_bytes {
    size_t x, normed, qkv, heads, gate_up, gated, logits;
};

static struct activation_bytes plan_activations(const struct kernels *kernels,
                                                const struct model_shape *shape, uint32_t max_rows,
                                                uint32_t max_samples)
{
    struct kernels_info info = kernels_info(kernels);
    size_t row = max_rows * sizeof(float);
    uint32_t ffn_rows = min_u32(max_rows, info.pass_rows);
    uint32_t head_columns = shape->heads * shape->head_dim;
    size_t kv_columns = (size_t)shape->kv_heads * shape->head_dim;
    struct activation_bytes plan = {.x = row * shape->hidden,
                                    .qkv = row * (head_columns + 2 * kv_columns),
                                    .gate_up =
                                        info.fuses ? 0 : ffn_rows * sizeof(float) * 2 * shape->ffn,
                                    .logits = (size_t)max_samples * shape->vocab * sizeof(float)};
    /* Layers may differ in type: the widest form of inputs counts. */
    const enum weight_type types[] = {info.weight_type, WEIGHT_INT8, WEIGHT_INT4, WEIGHT_FP8_BLOCK};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        enum weight_type type = types[i];
        plan.normed =
            larger_of(plan.normed, kernels_inputs_bytes(kernels, type, max_rows, shape->hidden));
        plan.heads =
            larger_of(plan.heads, kernels_inputs_bytes(kernels, type, max_rows, head_columns));
        plan.gated =
            larger_of(plan.gated, kernels_inputs_bytes(kernels, type, ffn_rows, shape->ffn));
    }
    return plan;
}

/* Returns the offset of an activation behind one of `bytes` bytes: on a cache line, as rows that
 * are written around the cache need it. */
static size_t behind(size_t bytes)
{
    const size_t line = 64;
    return (bytes + line - 1) / line * line;
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
    return plan.x + plan.normed + shared_bytes(&plan);
}

static struct buffer part_of(const struct buffer *whole, size_t offset, size_t bytes)
{
    return (struct buffer){.address = (char *)whole->address + offset, .bytes = bytes};
}

static enum status take_activations(struct llama *llama, const struct activation_bytes *plan)
{
    TRY(kernels_alloc(llama->kernels, plan->x, &llama->x));
    TRY(kernels_alloc(llama->kernels, plan->normed, &llama->normed));
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

/* Returns the memory as inputs of the layer. */
static struct inputs inputs_of(const struct linear *linear, const struct buffer *memory)
{
    return (struct inputs){.memory = *memory,
                           .type = linear->type,
                           .k = linear->k,
                           .input_scale = linear->input_scale};
}

/* qkv = rope(head norm(linear(norm(x)) + bias)). This layer's keys and values go to the pool. */
static enum status append_keys_values(struct llama *m, const struct step_batch *batch,
                                      const struct kv_layout *layout, uint32_t l,
                                      struct buffer *pool)
{
    const struct layer_weights *w = &m->weights->layers[l];
    struct attention_shape shape = attention_shape(m->shape);
    struct inputs normed = inputs_of(&w->qkv, &m->normed);
    struct head_parameters heads = {.bias = w->qkv_bias,
                                    .q_norm = w->q_norm,
                                    .k_norm = w->k_norm,
                                    .norm_eps = m->shape->rms_eps,
                                    .rope = m->weights->rope};
    struct epilogue append = {.kind = EPILOGUE_APPEND,
                              .out = m->qkv,
                              .batch = batch,
                              .shape = &shape,
                              .heads = &heads,
                              .layout = layout,
                              .layer = l,
                              .pool = *pool};
    TRY(kernels_fused_rmsnorm(m->kernels, &m->x, &w->attention_norm, m->shape->rms_eps, NULL,
                              batch->rows, &normed));
    return kernels_fused_linear(m->kernels, &w->qkv, &normed, batch->rows, &append);
}

/* x += linear(attention(q, pool)) */
static enum status attention_block(struct llama *m, const struct step_batch *batch,
                                   const struct kv_layout *layout, uint32_t l,
                                   const struct buffer *pool)
{
    const struct linear *linear = &m->weights->layers[l].attention_out;
    struct attention_shape shape = attention_shape(m->shape);
    struct inputs heads = inputs_of(linear, &m->heads);
    struct epilogue add = {.kind = EPILOGUE_ADD, .out = m->x};
    TRY(kernels_fused_attention(m->kernels, batch, &shape, layout, l, &m->qkv, pool, &heads));
    return kernels_fused_linear(m->kernels, linear, &heads, batch->rows, &add);
}

/* x += down(silu(gate(norm(x))) * up(norm(x))), for rows [first, first + count) */
static enum status ffn_part(struct llama *m, const struct layer_weights *w, uint32_t first,
                            uint32_t count)
{
    size_t row_bytes = m->shape->hidden * sizeof(float);
    struct buffer x = part_of(&m->x, first * row_bytes, count * row_bytes);
    struct inputs normed = inputs_of(&w->gate_up, &m->normed);
    struct inputs gated = inputs_of(&w->down, &m->gated);
    struct epilogue swiglu = {.kind = EPILOGUE_SWIGLU, .out = m->gate_up, .gated = gated};
    struct epilogue add = {.kind = EPILOGUE_ADD, .out = x};
    TRY(kernels_fused_rmsnorm(m->kernels, &x, &w->ffn_norm, m->shape->rms_eps, NULL, count,
                              &normed));
    TRY(kernels_fused_linear(m->kernels, &w->gate_up, &normed, count, &swiglu));
    return kernels_fused_linear(m->kernels, &w->down, &gated, count, &add);
}

/* The feed-forward block, for as many rows at a time as share a pass over the weights: activations
 * are by far the widest here. */
static enum status ffn_block(struct llama *m, const struct step_batch *batch, uint32_t l)
{
    const struct layer_weights *w = &m->weights->layers[l];
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
    const struct linear *head = weights_head(m->weights);
    struct inputs normed = inputs_of(head, &m->normed);
    struct epilogue store = {.kind = EPILOGUE_STORE, .out = m->logits};
    TRY(kernels_fused_rmsnorm(m->kernels, &m->x, &m->weights->final_norm, m->shape->rms_eps,
                              &samples->rows, samples->count, &normed));
    return kernels_fused_linear(m->kernels, head, &normed, samples->count, &store);
}
