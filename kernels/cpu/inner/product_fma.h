/* Tile product by fp32 multiply-add, on 4, 8 or 16 lanes. A tile is fp32: [pair][odd k, even k][rows].
 * The product is cut into blocks of BLOCK_ROWS rows x two vectors of outputs: as many sums as the registers hold. */
#include "kernels/cpu/inner/inner.h"

#define TILE_FORM_BYTES 8

#if defined(__AVX512F__)
#include <immintrin.h>
#define VECTOR     16
#define BLOCK_ROWS 12
#elif defined(__AVX2__)
#include <immintrin.h>
#define VECTOR     8
#define BLOCK_ROWS 6
#else
#define VECTOR     4
#define BLOCK_ROWS 4
#endif

typedef float floats __attribute__((vector_size(VECTOR * 4), aligned(4), may_alias));
typedef uint32_t words __attribute__((vector_size(VECTOR * 4), aligned(4), may_alias));

static inline floats multiply_add(floats a, floats b, floats c)
{
#if defined(__AVX512F__)
    return _mm512_fmadd_ps(a, b, c);
#elif defined(__AVX2__)
    return _mm256_fmadd_ps(a, b, c);
#else
    return a * b + c;
#endif
}

static inline floats broadcast(float value)
{
#if defined(__AVX512F__)
    return _mm512_set1_ps(value);
#elif defined(__AVX2__)
    return _mm256_set1_ps(value);
#else
    return (floats){value, value, value, value};
#endif
}

static inline void tile_put(void *tile, uint32_t pair, uint32_t rows, uint32_t row, uint16_t even,
                            uint16_t odd)
{
    uint32_t *out = (uint32_t *)tile + (size_t)pair * 2 * rows + row;
    out[0] = (uint32_t)odd << 16;
    out[rows] = (uint32_t)even << 16;
}

/* `rows` is a constant at every call, so that the sums live in registers. */
static inline __attribute__((always_inline)) void multiply_block(const struct tile_product *product,
                                                                 const uint32_t *panel,
                                                                 const float *tile, float *out,
                                                                 const uint32_t rows)
{
    floats sum[BLOCK_ROWS][2];
#pragma GCC unroll 12
    for (uint32_t r = 0; r < rows; r++)
        sum[r][0] = sum[r][1] = (floats){0};
    for (uint32_t p = 0; p < product->pairs; p++, panel += PANEL, tile += 2 * product->rows) {
        words w0 = *(const words *)panel, w1 = *(const words *)(panel + VECTOR);
        floats odd0 = (floats)(w0 & 0xffff0000), odd1 = (floats)(w1 & 0xffff0000);
#pragma GCC unroll 12
        for (uint32_t r = 0; r < rows; r++) {
            floats x = broadcast(tile[r]);
            sum[r][0] = multiply_add(x, odd0, sum[r][0]);
            sum[r][1] = multiply_add(x, odd1, sum[r][1]);
        }
        floats even0 = (floats)(w0 << 16), even1 = (floats)(w1 << 16);
#pragma GCC unroll 12
        for (uint32_t r = 0; r < rows; r++) {
            floats x = broadcast(tile[product->rows + r]);
            sum[r][0] = multiply_add(x, even0, sum[r][0]);
            sum[r][1] = multiply_add(x, even1, sum[r][1]);
        }
    }
#pragma GCC unroll 12
    for (uint32_t r = 0; r < rows; r++) {
        floats *target = (floats *)(out + r * product->out_stride);
        if (product->add) {
            sum[r][0] += target[0];
            sum[r][1] += target[1];
        }
        target[0] = sum[r][0];
        target[1] = sum[r][1];
    }
}

#define BLOCK_CASE(ROWS)                                                                           \
    case ROWS: multiply_block(product, panel, tile, out, ROWS); break;

static void multiply(const struct tile_product *product)
{
    for (uint32_t n = 0; n < PANEL; n += 2 * VECTOR)
        for (uint32_t r = 0; r < product->rows; r += BLOCK_ROWS) {
            const uint32_t *panel = product->panel + n;
            const float *tile = (const float *)product->tile + r;
            float *out = product->out + r * product->out_stride + n;
            uint32_t rows = product->rows - r < BLOCK_ROWS ? product->rows - r : BLOCK_ROWS;
            switch (rows) {
                BLOCK_CASE(1)
                BLOCK_CASE(2)
                BLOCK_CASE(3)
                BLOCK_CASE(4)
#if BLOCK_ROWS > 4
                BLOCK_CASE(5)
                BLOCK_CASE(6)
#endif
#if BLOCK_ROWS > 6
                BLOCK_CASE(7)
                BLOCK_CASE(8)
                BLOCK_CASE(9)
                BLOCK_CASE(10)
                BLOCK_CASE(11)
                BLOCK_CASE(12)
#endif
            }
        }
}
