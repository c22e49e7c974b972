#include "kernels/cpu/quantize.h"

#include "common/base/assert.h"
#include "kernels/cpu/e4m3.h"
#include "kernels/cpu/inner/quantizer.h"
#include "kernels/cpu/isa.h"

#include <math.h>

const struct quantizer *quantizer_best(void)
{
#if defined(__x86_64__)
    if (isa_reports_avx512())
        return &quantizer_avx512;
    if (isa_reports_avx2())
        return &quantizer_avx2;
#endif
    return &quantizer_baseline;
}

/* One row to e4m3. Returns false if a number can't be quantized. */
static bool quantize_e4m3(enum weight_type type, const float *row, uint32_t k, uint8_t *out,
                          float *scales)
{
    uint32_t group = type == WEIGHT_FP8_BLOCK ? WEIGHT_GROUP : k;
    for (uint32_t first = 0; first < k; first += group) {
        uint32_t end = k - first < group ? k : first + group;
        float most = 0;
        for (uint32_t i = first; i < end; i++) {
            if (!(fabsf(row[i]) <= WEIGHT_MAX_QUANTIZED))
                return false;
            most = fmaxf(most, fabsf(row[i]));
        }
        float scale = most < 0x1p-100f ? 0 : most / E4M3_MOST;
        for (uint32_t i = first; i < end; i++)
            out[i] = scale == 0 ? 0 : e4m3_round(row[i] / scale);
        *scales++ = scale;
    }
    return true;
}

enum status quantize_rows(const struct quantizer *quantizer, enum weight_type type,
                          const float *rows, uint32_t row_count, uint32_t k, uint8_t *numbers,
                          float *scales, uint32_t *bad_row)
{
    ASSERT(weight_type_is_quantized(type));
    size_t row_bytes = weight_row_bytes(type, k), row_scales = weight_row_scales(type, k);
    for (size_t i = 0; i < row_count; i++) {
        const float *row = rows + i * k;
        uint8_t *out = numbers + i * row_bytes;
        float *scale = scales + i * row_scales;
        bool finite = type == WEIGHT_INT8   ? quantizer->int8_row(row, k, out, scale)
                      : type == WEIGHT_INT4 ? quantizer->int4_row(row, k, out, scale)
                                            : quantize_e4m3(type, row, k, out, scale);
        if (!finite) {
            *bad_row = (uint32_t)i;
            return STATUS_INVALID;
        }
    }
    return STATUS_OK;
}

void weight_widen(enum weight_type type, const uint8_t *numbers, const float *scales,
                  uint32_t row_count, uint32_t k, float *out)
{
    uint32_t row_scales = weight_row_scales(type, k);
    ASSERT(weight_type_is_fp8(type));
    for (size_t row = 0; row < row_count; row++, scales += row_scales)
        for (size_t i = 0; i < k; i++)
            out[row * k + i] = e4m3_value(numbers[row * k + i]) *
                               scales[type == WEIGHT_FP8_BLOCK ? i / WEIGHT_GROUP : 0];
}
