/* The types of weights of kernels.h: names, sizes of rows, and numbers of floats. */
#include "kernels/kernels.h"

#include "common/base/u32.h"
#include "kernels/cpu/quantize.h"

const char *const weight_type_names[] = {"bf16", "f32", "int8", "int4", "fp8", "fp8b", NULL};

bool weight_type_is_quantized(enum weight_type type)
{
    return type != WEIGHT_BF16 && type != WEIGHT_F32;
}

bool weight_type_is_fp8(enum weight_type type)
{
    return type == WEIGHT_FP8 || type == WEIGHT_FP8_BLOCK;
}

uint32_t weight_segment_k(uint32_t k)
{
    uint32_t segments = divide_up(k, WEIGHT_SEGMENT_K_MOST);
    return divide_up(divide_up(k, segments), WEIGHT_GROUP) * WEIGHT_GROUP;
}

size_t weight_row_bytes(enum weight_type type, uint32_t k)
{
    switch (type) {
    case WEIGHT_BF16: return (size_t)k * 2;
    case WEIGHT_F32: return (size_t)k * 4;
    case WEIGHT_INT8:
    case WEIGHT_FP8:
    case WEIGHT_FP8_BLOCK: return k;
    case WEIGHT_INT4: return (size_t)k / 2 + k % 2;
    }
    return 0;
}

uint32_t weight_row_scales(enum weight_type type, uint32_t k)
{
    if (type == WEIGHT_INT4 || type == WEIGHT_FP8_BLOCK)
        return divide_up(k, WEIGHT_GROUP);
    return weight_type_is_quantized(type);
}

enum status weight_quantize(enum weight_type type, const float *rows, uint32_t row_count,
                            uint32_t k, uint8_t *numbers, float *scales, uint32_t *bad_row)
{
    return quantize_rows(quantizer_best(), type, rows, row_count, k, numbers, scales, bad_row);
}
