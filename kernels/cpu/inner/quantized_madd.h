/* Quantized products by the 16-bit multiply-add of neighbours (vpmaddwd), which can't saturate
 * here; the 8-bit one (vpmaddubsw) would. Four inputs of a row are two words of a tile: inputs 0
 * and 2, then 1 and 3, as 16-bit numbers. Weights are widened in registers, first those of even k,
 * then those of odd k. */
#include "kernels/cpu/inner/quantized.h"
#include "kernels/cpu/inner/vector.h"

#include <stddef.h>
#include <string.h>

#define TILE_WORDS(INT4) 2

static void pack_quads(const int8_t numbers[PACK_ROWS][QUANTIZED_GROUP], uint32_t rows,
                       uint32_t quads, uint32_t *out, uint32_t stride)
{
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t q = 0; q < quads; q++) {
            const int8_t *four = numbers[r] + 4 * q;
            uint32_t *at = out + (size_t)2 * q * stride + r;
            at[0] = (uint32_t)(uint16_t)four[2] << 16 | (uint16_t)four[0];
            at[stride] = (uint32_t)(uint16_t)four[3] << 16 | (uint16_t)four[1];
        }
}

static int32_t sum_of(const int8_t numbers[QUANTIZED_GROUP])
{
    int32_t sum = 0;
    for (uint32_t i = 0; i < QUANTIZED_GROUP; i++)
        sum += numbers[i];
    return sum;
}

#include "kernels/cpu/inner/quantized_tile.h"

#if VECTOR == 16
#define BLOCK_ROWS 6
#else
#define BLOCK_ROWS 4
#endif

typedef uint16_t pairs __attribute__((vector_size(VECTOR * 4), aligned(4), may_alias));

/* Adds the products of both 16-bit halves of each word: u8 weights times s8 inputs. The empty
 * assembly keeps the compiler from adding products to each other first, which would take registers
 * from the sums. */
ALWAYS_INLINE ints add_pairs(words weights, uint32_t inputs, ints sum)
{
#if defined(__AVX512BW__)
    sum += (ints)_mm512_madd_epi16((__m512i)weights, _mm512_set1_epi32((int)inputs));
    __asm__("" : "+v"(sum));
#else
    int32_t low = (int16_t)inputs, high = (int16_t)(inputs >> 16);
    sum += (ints)(weights & 0xffff) * low + (ints)(weights >> 16) * high;
#endif
    return sum;
}

/* Adds four k of `rows` rows and two vectors of outputs. `rows` is a constant, so that the sums
 * live in registers. */
ALWAYS_INLINE void add_quad(words w0, words w1, const uint32_t *tile, uint32_t stride,
                            const uint32_t rows, ints sum[][2])
{
    words even0 = w0 & 0x00ff00ff, even1 = w1 & 0x00ff00ff;
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++) {
        sum[r][0] = add_pairs(even0, tile[r], sum[r][0]);
        sum[r][1] = add_pairs(even1, tile[r], sum[r][1]);
    }
    words odd0 = (words)((pairs)w0 >> 8), odd1 = (words)((pairs)w1 >> 8);
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++) {
        sum[r][0] = add_pairs(odd0, tile[stride + r], sum[r][0]);
        sum[r][1] = add_pairs(odd1, tile[stride + r], sum[r][1]);
    }
}

/* Multiplies rows first .. first + rows - 1 by outputs n .. n + 2 VECTOR - 1. */
ALWAYS_INLINE void int8_block(const struct quantized_product *product, uint32_t first, uint32_t n,
                              const uint32_t rows)
{
    const uint32_t *panel = (const uint32_t *)product->panel + n;
    const uint32_t *tile = tile_words(product, 1) + first;
    const uint32_t stride = product->rows;
    ints sum[BLOCK_ROWS][2];
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++)
        sum[r][0] = sum[r][1] = (ints){0} + tile_sums(product)[first + r];
    for (uint32_t i = 0; i < 2 * product->steps; i++, panel += PANEL, tile += 2 * (size_t)stride)
        add_quad(*(const words *)panel, *(const words *)(panel + VECTOR), tile, stride, rows, sum);
    const float *scales =
        (const float *)(product->panel + (size_t)product->steps * 2 * QUANTIZED_STEP_BYTES) + n;
    const float *row_scales = product->tile;
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (uint32_t i = 0; i < 2; i++) {
            floats scale = broadcast(row_scales[first + r]) * ((const floats *)scales)[i];
            write_out(product, to_floats(sum[r][i]) * scale,
                      product->out + (first + r) * product->out_stride + n + i * VECTOR);
        }
}

/* Adds a group's sum to the partial sum, or begins it. */
ALWAYS_INLINE void add_group(floats value, bool first, float *partial)
{
    if (!first)
        value += *(const floats *)partial;
    *(floats *)partial = value;
}

ALWAYS_INLINE void int4_block(const struct quantized_product *product, uint32_t first, uint32_t n,
                              const uint32_t rows)
{
    const uint32_t stride = product->rows, groups = group_count(product->steps);
    const uint8_t *panel = product->panel;
    const uint32_t *tile = tile_words(product, groups) + first;
    const int32_t *inputs = tile_sums(product) + first;
    for (uint32_t g = 0; g < groups; g++, inputs += stride) {
        uint32_t steps = group_end(g * STEPS_OF_GROUP, product->steps) - g * STEPS_OF_GROUP;
        ints sum[BLOCK_ROWS][2];
#pragma GCC unroll 6
        for (uint32_t r = 0; r < rows; r++)
            sum[r][0] = sum[r][1] = (ints){0} + inputs[r];
        for (uint32_t step = 0; step < steps; step++, panel += QUANTIZED_STEP_BYTES) {
            const words *packed = (const words *)((const uint32_t *)panel + n);
            words w0 = packed[0], w1 = packed[1];
            add_quad(w0 & 0x0f0f0f0f, w1 & 0x0f0f0f0f, tile, stride, rows, sum);
            tile += 2 * (size_t)stride;
            add_quad(w0 >> 4 & 0x0f0f0f0f, w1 >> 4 & 0x0f0f0f0f, tile, stride, rows, sum);
            tile += 2 * (size_t)stride;
        }
        const uint16_t *scales = (const uint16_t *)panel + n;
        floats scale0 = widen_bf16(scales), scale1 = widen_bf16(scales + VECTOR);
        panel += INT4_SCALE_BYTES;
#pragma GCC unroll 6
        for (uint32_t r = 0; r < rows; r++) {
            float *partial = product->partial + (first + r) * PANEL + n;
            add_group(scaled_group(sum[r][0], scale0), g == 0, partial);
            add_group(scaled_group(sum[r][1], scale1), g == 0, partial + VECTOR);
        }
    }
}

#define BLOCK_CASE(BLOCK, ROWS)                                                                    \
    case ROWS:                                                                                     \
        BLOCK(product, r, n, ROWS);                                                                \
        break;

#if BLOCK_ROWS > 4
#define MORE_BLOCK_CASES(BLOCK)                                                                    \
    BLOCK_CASE(BLOCK, 5)                                                                           \
    BLOCK_CASE(BLOCK, 6)
#else
#define MORE_BLOCK_CASES(BLOCK)
#endif

#define FOR_EVERY_BLOCK(BLOCK)                                                                     \
    for (uint32_t n = 0; n < PANEL; n += 2 * VECTOR)                                               \
        for (uint32_t r = 0; r < product->rows; r += BLOCK_ROWS)                                   \
            switch (product->rows - r < BLOCK_ROWS ? product->rows - r : BLOCK_ROWS) {             \
                BLOCK_CASE(BLOCK, 1)                                                               \
                BLOCK_CASE(BLOCK, 2)                                                               \
                BLOCK_CASE(BLOCK, 3)                                                               \
                BLOCK_CASE(BLOCK, 4)                                                               \
                MORE_BLOCK_CASES(BLOCK)                                                            \
            }

static void multiply_int8(const struct quantized_product *product)
{
    FOR_EVERY_BLOCK(int8_block)
}

static void multiply_int4(const struct quantized_product *product)
{
    FOR_EVERY_BLOCK(int4_block)
    finish_int4(product);
}

#define QUANTIZED_TABLE(NAME)                                                                      \
    {                                                                                              \
        .name = NAME, .tile_rows = TILE_ROWS, .row_unit = 1, .pass_rows = QUANTIZED_PASS_ROWS,     \
        .pass_bytes = QUANTIZED_PASS_BYTES, .speed = 1, .row_bytes = row_bytes,                    \
        .pack_tile = pack_tile, .multiply_int8 = multiply_int8, .multiply_int4 = multiply_int4,    \
    }
