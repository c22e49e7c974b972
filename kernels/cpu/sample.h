/* Drawing tokens on the host: kernels_sample and kernels_take_tokens of both host backends. Also
 * holds kernels_draw_row, kernels_draw_bytes and kernels_greatest of kernels.h. */
#ifndef BATON_KERNELS_CPU_SAMPLE_H
#define BATON_KERNELS_CPU_SAMPLE_H

#include "kernels/kernels.h"

size_t sample_scratch_bytes(const struct kernels *kernels, uint32_t vocab);
/* An item of the compute threads is a row. */
enum status sample_rows(struct kernels *kernels, const struct buffer *logits, uint32_t rows,
                        uint32_t vocab, const struct buffer *draws, struct buffer *scratch,
                        struct buffer *drawn) WARN_UNUSED;
enum status sample_take_tokens(struct kernels *kernels, const struct buffer *from, uint32_t rows,
                               const struct buffer *drawn, struct buffer *tokens) WARN_UNUSED;

#endif
