/* Quantizes rows of float weights (weight_quantize of kernels.h), once per instruction set. All
 * sets give the same bytes. PURE; callers check bounds. */
#ifndef BATON_KERNELS_CPU_INNER_QUANTIZER_H
#define BATON_KERNELS_CPU_INNER_QUANTIZER_H

#include <stdbool.h>
#include <stdint.h>

struct quantizer {
    const char *name;
    /* Quantizes one row of `k` inputs. numbers: [weight_row_bytes]; scales: [weight_row_scales].
     * false: a number isn't finite, or exceeds WEIGHT_MAX_QUANTIZED of kernels.h. */
    bool (*int8_row)(const float *row, uint32_t k, uint8_t *numbers, float *scales);
    bool (*int4_row)(const float *row, uint32_t k, uint8_t *numbers, float *scales);
};

extern const struct quantizer quantizer_baseline;
#if defined(__x86_64__)
extern const struct quantizer quantizer_avx2, quantizer_avx512;
#endif

#endif
