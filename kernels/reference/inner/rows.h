/* The reference's inner loops. PURE. No instrumentation here (see CMakeLists.txt): callers check
 * bounds. */
#ifndef BATON_KERNELS_REFERENCE_INNER_ROWS_H
#define BATON_KERNELS_REFERENCE_INNER_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REFERENCE_PANEL 16 /* outputs of a linear layer computed side by side */

struct reference_panel {
    const float *weights; /* [k][REFERENCE_PANEL] */
    uint32_t k, out_stride;
    uint32_t outputs; /* <= REFERENCE_PANEL; the last panel of a layer may be narrower */
    bool accumulate;
};

/* out[t * out_stride + n] = sum over k, ascending, of in[t * k + k] * weights[k][n] (+ what is
 * there). */
void reference_panel_multiply(const struct reference_panel *panel, const float *in, uint32_t rows,
                              float *out);
void reference_rmsnorm(const float *x, const float *weight, double eps, uint32_t hidden,
                       float *out);
void reference_swiglu(const float *gate_up, uint32_t ffn, float *out);
/* Rotates one head in place by cos[half] then sin[half]. */
void reference_rope(const float *cos_sin, uint32_t head_dim, float *head);

/* scores[t] = (q . keys[t]) * scale for `count` keys of head_dim floats. */
void reference_scores(const float *q, const float *keys, uint32_t head_dim, uint32_t count,
                      float scale, float *scores);
/* scores become exp(score - max); returns their sum, writes the maximum. count >= 1. */
float reference_softmax(float *scores, uint32_t count, float *max);
/* out[d] += sum over t, ascending, of weights[t] * values[t][d]. */
void reference_weigh(const float *weights, const float *values, uint32_t head_dim, uint32_t count,
                     float *out);
/* out = out * a + partial * b. */
void reference_blend(float *out, float a, const float *partial, float b, uint32_t head_dim);

#endif
