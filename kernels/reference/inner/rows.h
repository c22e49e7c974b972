/* The inner loops of the reference over rows and panels. PURE. Compiled without instrumentation
 * (kernels/CMakeLists.txt): callers check bounds. */
#ifndef BATON_KERNELS_REFERENCE_INNER_ROWS_H
#define BATON_KERNELS_REFERENCE_INNER_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REFERENCE_PANEL 16 /* outputs of a linear layer that are computed side by side */

struct reference_panel {
    const float *weights; /* [k][REFERENCE_PANEL] */
    uint32_t k, out_stride;
    uint32_t outputs; /* <= REFERENCE_PANEL; the last panel of a layer may be narrower */
    bool accumulate;
};

/* The loops that most time goes to, compiled for several instruction sets, with the same bits. */
struct reference_loops {
    /* out[t * out_stride + n] = sum over k, ascending, of in[t * k + k] * weights[k][n] (+ what is
     * there). */
    void (*panel_multiply)(const struct reference_panel *panel, const float *in, uint32_t rows,
                           float *out);
    /* out[f] = silu(gate_up[f]) * gate_up[ffn + f]. */
    void (*swiglu)(const float *gate_up, uint32_t ffn, float *out);
};

extern const struct reference_loops reference_loops_baseline;
extern const struct reference_loops reference_loops_avx2; /* x86-64 alone */

/* column[j * REFERENCE_PANEL] = row[j], for k inputs: one output's weights. */
void reference_panel_fill(const float *row, uint32_t k, float *column);
void reference_rmsnorm(const float *x, const float *weight, double eps, uint32_t hidden,
                       float *out);
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

/* --- quantized linear layers --- */
/* Quantizes a row of inputs (kernels.h): writes k numbers, returns the scale. */
float reference_quantize(const float *row, uint32_t k, int8_t *numbers);

/* Return one output. `inputs`: [k] with their `scale`; weights: a row as kernels_linear_load takes
 * it, with its scales. */
float reference_int8(const int8_t *inputs, float scale, uint32_t k, const int8_t *weights,
                     float weight_scale);
float reference_int4(const int8_t *inputs, float scale, uint32_t k, const uint8_t *weights,
                     const float *weight_scales);

/* A layer of FP8 (kernels.h). Sums are promoted after `promotion` of k, and segments have `segment`
 * of k. blocks: each `promotion` of k has scales of its own. */
struct reference_e4m3 {
    bool blocks;
    uint32_t k, promotion, segment;
    float input_scale;
};
/* Quantizes a row of inputs: writes k numbers, and a scale for each block. */
void reference_e4m3_quantize(const struct reference_e4m3 *shape, const float *row, uint8_t *numbers,
                             float *scales);
/* Returns one output, of inputs and weights with their scales. */
float reference_e4m3(const struct reference_e4m3 *shape, const uint8_t *inputs, const float *scales,
                     const uint8_t *weights, const float *weight_scales);

/* Write a row of weights as floats, times its scales: out [k]. */
void reference_widen_int8(const int8_t *weights, float scale, uint32_t k, float *out);
void reference_widen_int4(const uint8_t *weights, const float *scales, uint32_t k, float *out);

#endif
