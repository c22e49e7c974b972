/* Quantized linear layers of the fast backend: int8 and int4 weights in panels (inner/quantized.h),
 * rows quantized as they are packed. Same threads and duties as the rest of kernels/cpu; called
 * where a linear layer's type is quantized. */
#ifndef BATON_KERNELS_CPU_QUANTIZED_H
#define BATON_KERNELS_CPU_QUANTIZED_H

#include "kernels/cpu/cpu.h"

/* The fastest that this CPU has, of the instruction set that `inner` is of or below. */
const struct quantized_inner *quantized_inner_for(const struct inner *inner);

size_t quantized_linear_bytes(enum weight_type type, uint32_t n, uint32_t k);
void quantized_linear_load(struct linear *linear, uint32_t first_row, uint32_t row_count,
                           const void *rows, const float *scales);
void quantized_linear(struct cpu *self, const struct linear *linear, const float *in, uint32_t rows,
                      bool accumulate, float *out);
/* Row n, widened: [k]. */
void quantized_linear_row(const struct linear *linear, uint32_t n, float *out);

#endif
