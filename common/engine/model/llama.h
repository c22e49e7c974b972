/* The forward pass of the Llama family and its kin (Mistral, Qwen2, Qwen3). Rows of tokens go in;
 * keys and values are appended to the pool; logits of the rows that sample come out. It only queues
 * operations of kernels.h on the backend's stream. It allocates in llama_init, never in a pass. A
 * row's result depends on that row and its own context alone. Letters as in kernels.h. Owner: the
 * step thread. */
#ifndef BATON_ENGINE_MODEL_LLAMA_H
#define BATON_ENGINE_MODEL_LLAMA_H

#include "common/engine/model/weights.h"

struct llama {
    struct kernels *kernels; /* borrowed */
    const struct model_shape *shape;
    const struct weights *weights;
    /* Activations, f32 or inputs of linear layers, for up to max_rows rows T: */
    struct buffer x;      /* [T, D] residual stream */
    struct buffer normed; /* inputs [T, D] of the next layer */
    /* One memory with three uses, one at a time: qkv and heads | gate_up and gated, for the rows P
     * that share a pass over the weights (at most kernels_info.pass_rows) | logits. */
    struct buffer shared;
    struct buffer qkv;     /* [T, (H + 2G) E] */
    struct buffer heads;   /* inputs [T, H E]: attention's output */
    struct buffer gate_up; /* [P, 2F]; empty where SwiGLU is fused */
    struct buffer gated;   /* inputs [P, F] */
    struct buffer logits;  /* [max_samples, V]; valid until the next step */
};

/* The rows of a step that need logits. */
struct llama_samples {
    struct buffer rows; /* u32 [count] row numbers, ascending */
    uint32_t count;     /* <= max_samples; 0: the head is not run */
    bool more;          /* llama_head will be called for other rows of the step */
};

/* `kernels`, `shape` and `weights` are borrowed. STATUS_LIMIT or the device's status: no memory. */
enum status llama_init(struct llama *llama, struct kernels *kernels,
                       const struct model_shape *shape, const struct weights *weights,
                       uint32_t max_rows, uint32_t max_samples, struct error *err) WARN_UNUSED;
void llama_deinit(struct llama *llama);
/* Returns the bytes of activations that llama_init takes. */
size_t llama_bytes(const struct kernels *kernels, const struct model_shape *shape,
                   uint32_t max_rows, uint32_t max_samples);

/* Computes a step. Row i of llama->logits belongs to samples->rows[i]. llama_head computes
 * logits of other rows of the same step. */
enum status llama_forward(struct llama *llama, const struct step_batch *batch,
                          const struct kv_layout *layout, struct buffer *pool,
                          const struct llama_samples *samples) WARN_UNUSED;
enum status llama_head(struct llama *llama, const struct llama_samples *samples) WARN_UNUSED;

#endif
