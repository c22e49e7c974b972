/* The loops of the reference that most of its time goes to, for vectors of PANEL_VECTOR_BYTES.
 * rows.c and rows_avx2.c include it: each lane of a vector is an output of its own, and nothing is
 * contracted, so both give the same bits. */
#ifndef BATON_KERNELS_REFERENCE_INNER_PANEL_H
#define BATON_KERNELS_REFERENCE_INNER_PANEL_H

#include "kernels/cpu/exp_fixed.h"
#include "kernels/reference/inner/rows.h"

#include <string.h>

typedef float panel_vector __attribute__((vector_size(PANEL_VECTOR_BYTES), aligned(4), may_alias));

/* The sums of a block take half the registers. */
enum {
    BLOCK_ROWS = PANEL_VECTOR_BYTES / 8,
    PANEL_VECTORS = REFERENCE_PANEL * sizeof(float) / PANEL_VECTOR_BYTES
};

/* `rows` is a constant at every call, so that the sums live in registers. */
static inline __attribute__((always_inline)) void
multiply(const struct reference_panel *panel, const float *in, const uint32_t rows, float *out)
{
    panel_vector sum[BLOCK_ROWS][PANEL_VECTORS] = {{{0}}};
    const panel_vector *weights = (const panel_vector *)panel->weights;
    for (size_t k = 0; k < panel->k; k++, weights += PANEL_VECTORS)
#pragma GCC unroll 4
        for (uint32_t r = 0; r < rows; r++)
#pragma GCC unroll 4
            for (uint32_t i = 0; i < PANEL_VECTORS; i++)
                sum[r][i] += in[r * (size_t)panel->k + k] * weights[i];
    for (uint32_t r = 0; r < rows; r++) {
        float wide[REFERENCE_PANEL];
        memcpy(wide, sum[r], sizeof wide);
        for (uint32_t n = 0; n < panel->outputs; n++) {
            float *target = &out[r * (size_t)panel->out_stride + n];
            *target = panel->accumulate ? *target + wide[n] : wide[n];
        }
    }
}

static inline void panel_multiply(const struct reference_panel *panel, const float *in,
                                  uint32_t rows, float *out)
{
    uint32_t t = 0;
    for (; t + BLOCK_ROWS <= rows; t += BLOCK_ROWS)
        multiply(panel, in + t * (size_t)panel->k, BLOCK_ROWS, out + t * (size_t)panel->out_stride);
    for (; t < rows; t++)
        multiply(panel, in + t * (size_t)panel->k, 1, out + t * (size_t)panel->out_stride);
}

static inline void panel_swiglu(const float *gate_up, uint32_t ffn, float *out)
{
    for (uint32_t f = 0; f < ffn; f++) {
        float gate = gate_up[f];
        out[f] = gate / (1.0f + exp_fixed(-gate)) * gate_up[ffn + f];
    }
}

#endif
