/* Inside kernels/reference: the backend's state and the operations that have a file of their own. */
#ifndef BATON_KERNELS_REFERENCE_REFERENCE_H
#define BATON_KERNELS_REFERENCE_REFERENCE_H

#include "kernels/backend.h"
#include "kernels/cpu/pool.h"

/* One thread's scratch for attention. */
struct reference_scratch {
    float scores[ATTENTION_SEGMENT_TOKENS];
    float partial[KERNELS_MAX_HEAD_DIM]; /* of one segment */
};

struct reference {
    struct pool *pool;
    struct reference_scratch *scratch; /* [threads] */
};

enum status reference_rope_append(struct kernels *kernels, const struct step_batch *batch,
                                  const struct attention_shape *shape,
                                  const struct head_parameters *parameters,
                                  const struct kv_layout *layout, uint32_t layer,
                                  struct buffer *qkv, struct buffer *pool);
enum status reference_attention(struct kernels *kernels, const struct step_batch *batch,
                                const struct attention_shape *shape, const struct kv_layout *layout,
                                uint32_t layer, const struct buffer *qkv, const struct buffer *pool,
                                struct buffer *out);

#endif
