/* The arithmetic of quantized linear layers (kernels.h) as plain loops. PURE. No instrumentation
 * here (see CMakeLists.txt): callers check bounds. */
#ifndef BATON_KERNELS_REFERENCE_INNER_QUANTIZED_H
#define BATON_KERNELS_REFERENCE_INNER_QUANTIZED_H

#include <stdint.h>

/* Writes k numbers and returns the row's scale. */
float reference_quantize(const float *row, uint32_t k, int8_t *numbers);

/* One output. `inputs`: [k] with their `scale`; a row of weights as kernels_linear_load takes it,
 * with its scales. */
float reference_int8(const int8_t *inputs, float scale, uint32_t k, const int8_t *weights,
                     float weight_scale);
float reference_int4(const int8_t *inputs, float scale, uint32_t k, const uint8_t *weights,
                     const float *weight_scales);

/* A row of weights, times its scales. */
void reference_widen_int8(const int8_t *weights, float scale, uint32_t k, float *out);
void reference_widen_int4(const uint8_t *weights, const float *scales, uint32_t k, float *out);

#endif
