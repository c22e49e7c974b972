/* Inside kernels/reference: the backend's state and the operations that have a file of their
 * own. */
#ifndef BATON_KERNELS_REFERENCE_REFERENCE_H
#define BATON_KERNELS_REFERENCE_REFERENCE_H

#include "kernels/backend.h"
#include "kernels/cpu/limits.h"
#include "kernels/cpu/pool.h"

/* One thread's scratch. */
struct reference_scratch {
    float scores[ATTENTION_SEGMENT_TOKENS];
    float partial[KERNELS_MAX_HEAD_DIM];    /* of one segment */
    float token[KERNELS_MAX_HEAD_DIM];      /* a key or value of a quantized pool */
    int8_t numbers[WEIGHT_MAX_QUANTIZED_K]; /* of one row of a quantized layer's inputs */
};

/* Another number whenever the form of packed weights changes, of any type: files keep them. */
#define REFERENCE_PACKING "reference-1"

struct reference {
    struct pool *pool;
    struct reference_scratch *scratch; /* [threads] */
    enum limits_way read_way;
};

size_t reference_quantized_bytes(enum weight_type type, uint32_t n, uint32_t k);
void reference_quantized_load(struct linear *linear, uint32_t first_row, uint32_t row_count,
                              const void *rows, const float *scales);
void reference_quantized_row(const struct linear *linear, uint32_t n, float *out);
void reference_quantized(struct reference *self, const struct linear *linear, const float *in,
                         uint32_t rows, bool accumulate, float *out);
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
