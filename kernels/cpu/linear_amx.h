/* Inside kernels/cpu: linear layers of bf16 weights by AMX. */
#ifndef BATON_KERNELS_CPU_LINEAR_AMX_H
#define BATON_KERNELS_CPU_LINEAR_AMX_H

#include "kernels/cpu/cpu.h"

struct linear_amx; /* scratch */

/* Free with linear_amx_free. NULL: no memory. */
struct linear_amx *linear_amx_new(uint32_t threads);
void linear_amx_free(struct linear_amx *scratch); /* NULL is fine */

void linear_amx(struct cpu *self, const struct linear *linear, const float *in, uint32_t rows,
                bool accumulate, float *out);

#endif
