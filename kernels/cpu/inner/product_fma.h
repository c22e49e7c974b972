/* Tile product by fp32 multiply-add, on 4, 8 or 16 lanes. A tile is fp32: [pair][odd k, even k][rows].
 * The product is cut into blocks of SUM_ROWS rows x two vectors of outputs: as many sums as the registers hold. */
#include "kernels/cpu/inner/bf16.h"
#include "kernels/cpu/inner/inner.h"
#include "kernels/cpu/inner/vector.h"

#define WORDS_PER_PAIR 2

/* A row as tile words: fp32 numbers without what bf16 can't hold, odd k first. k is even. */
static inline void row_words(const float *restrict row, uint32_t k, uint32_t *restrict out)
{
    for (uint32_t i = 0; i < k; i += 2) {
        out[i] = (uint32_t)round_one(row[i + 1]) << 16;
        out[i + 1] = (uint32_t)round_one(row[i]) << 16;
    }
}

/* `rows` is a constant at every call, so that the sums live in registers. */
static inline __attribute__((always_inline)) void multiply_block(const struct tile_product *product,
                                                                 const uint32_t *panel,
                                                                 const float *tile, float *out,
                                                                 const uint32_t rows)
{
    floats sum[SUM_ROWS][2];
#pragma GCC unroll 12
    for (uint32_t r = 0; r < rows; r++)
        sum[r][0] = sum[r][1] = (floats){0};
    const char *next = product->next ? product->next : (const char *)panel;
    for (uint32_t p = 0; p < product->pairs;
         p++, panel += PANEL, tile += 2 * product->rows, next += product->next_step) {
        __builtin_prefetch(next, 0, 2); /* into the second level */
        __builtin_prefetch(next + 64, 0, 2);
        words w0 = *(const words *)panel, w1 = *(const words *)(panel + VECTOR);
        floats odd0 = (floats)(w0 & 0xffff0000), odd1 = (floats)(w1 & 0xffff0000);
#pragma GCC unroll 12
        for (uint32_t r = 0; r < rows; r++) {
            floats x = broadcast(tile[r]);
            sum[r][0] = add_exact_product(x, odd0, sum[r][0]);
            sum[r][1] = add_exact_product(x, odd1, sum[r][1]);
        }
        floats even0 = (floats)(w0 << 16), even1 = (floats)(w1 << 16);
#pragma GCC unroll 12
        for (uint32_t r = 0; r < rows; r++) {
            floats x = broadcast(tile[product->rows + r]);
            sum[r][0] = add_exact_product(x, even0, sum[r][0]);
            sum[r][1] = add_exact_product(x, even1, sum[r][1]);
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
        for (uint32_t r = 0; r < product->rows; r += SUM_ROWS) {
            const uint32_t *panel = product->panel + n;
            const float *tile = (const float *)product->tile + r;
            float *out = product->out + r * product->out_stride + n;
            uint32_t rows = product->rows - r < SUM_ROWS ? product->rows - r : SUM_ROWS;
            switch (rows) {
                BLOCK_CASE(1)
                BLOCK_CASE(2)
                BLOCK_CASE(3)
                BLOCK_CASE(4)
#if SUM_ROWS > 4
                BLOCK_CASE(5)
                BLOCK_CASE(6)
#endif
#if SUM_ROWS > 6
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
