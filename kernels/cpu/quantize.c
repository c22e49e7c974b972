#include "kernels/cpu/quantize.h"

#include "common/base/assert.h"
#include "kernels/cpu/inner/quantizer.h"
#include "kernels/cpu/isa.h"

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
        bool finite = type == WEIGHT_INT8 ? quantizer->int8_row(row, k, out, scale)
                                          : quantizer->int4_row(row, k, out, scale);
        if (!finite) {
            *bad_row = (uint32_t)i;
            return STATUS_INVALID;
        }
    }
    return STATUS_OK;
}
