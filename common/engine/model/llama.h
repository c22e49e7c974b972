/* The forward pass of the Llama family and its next of kin (Mistral, Qwen2, Qwen3): rows of tokens
 * in, keys and values appended to the pool, logits of the rows that sample out. It only queues
 * operations of kernels.h on the backend's stream; it allocates at llama_init and never in a pass,
 * and a row's result depends on that row and its own context alone. Letters as in kernels.h. Owner:
 * the step thread. */
#ifndef BATON_ENGINE_MODEL_LLAMA_H
#define BATON_ENGINE_MODEL_LLAMA_H

#include "common/engine/model/weights.h"

struct llama {
    struct kernels *kernels; /* borrowed */
    const struct model_shape *shape;
    const struct weights *weights;
    /* Activations, f32, for up to max_rows rows T: */
    struct buffer x;      /* [T, D] residual stream */
    struct buffer normed; /* [T, D] input of the next linear layer */
    /* Three uses of one memory, never at once: qkv, heads | gate_up, gated, of the rows P that go
     * past weights together (kernels_info.pass_rows at most) | logits. */
    struct buffer shared;
    struct buffer qkv;     /* [T, (H + 2G) E] */
    struct buffer heads;   /* [T, H E] attention's output */
    struct buffer gate_up; /* [P, 2F] */
    struct buffer gated;   /* [P, F] */
    struct buffer logits;  /* [max_samples, V]; the next step writes over them */
};

/* The rows of a step whose logits are wanted. */
struct llama_samples {
    struct buffer rows; /* u32 [count] row numbers, ascending */
    uint32_t count;     /* <= max_samples; 0: the head isn't run */
    bool more;          /* llama_head will be asked for other rows of the step */
};

enum status llama_init(struct llama *llama, struct kernels *kernels,
                       const struct model_shape *shape, const struct weights *weights,
                       uint32_t max_rows, uint32_t max_samples, struct error *err) WARN_UNUSED;
void llama_deinit(struct llama *llama);
/* Of activations, that llama_init takes. */
size_t llama_bytes(const struct kernels *kernels, const struct model_shape *shape,
                   uint32_t max_rows, uint32_t max_samples);

/* Row i of llama->logits belongs to samples->rows[i]; of other rows of the same step after
 * llama_head. */
enum status llama_forward(struct llama *llama, const struct step_batch *batch,
                          const struct kv_layout *layout, struct buffer *pool,
                          const struct llama_samples *samples) WARN_UNUSED;
enum status llama_head(struct llama *llama, const struct llama_samples *samples) WARN_UNUSED;

#endif
