/* Tile product by fp32 multiply-add, on 4 or 16 lanes (AVX2: avx2.c). product_fma_sums.h has the
 * tile. The product is cut into blocks of SUM_ROWS rows x two vectors of outputs: as many sums as
 * the registers hold.
 *
 * On 16 lanes two rows of three are the instruction's own broadcast memory operand. This is written
 * in assembly, since compilers prefer one load for two products. The third row is loaded once for
 * both. Operands alone wait for the load ports. Loads alone issue half as many instructions again,
 * and a core that serves two hardware threads has few of both to spare. */
#include "kernels/cpu/inner/product_fma_sums.h"

#define WIDEN      widen
#define WHOLE_ROWS TILE_ROWS
#define NEAR_ROWS  0

ALWAYS_INLINE floats odd_k(words pairs)
{
    return (floats)(pairs & 0xffff0000);
}

ALWAYS_INLINE floats even_k(words pairs)
{
    return (floats)(pairs << 16);
}

static void widen(const uint32_t *restrict panel, uint32_t pairs, float *restrict wide)
{
    for (uint32_t p = 0; p < pairs; p++, panel += PANEL, wide += (size_t)2 * PANEL)
#pragma GCC unroll 8
        for (uint32_t n = 0; n < PANEL; n += VECTOR) {
            words packed = *(const words *)(panel + n);
            *(floats *)(wide + n) = odd_k(packed);
            *(floats *)(wide + PANEL + n) = even_k(packed);
        }
}

/* sum[i] += *x * w[i], where the products are exact. */
ALWAYS_INLINE void add_row(const float *x, const bool loaded, floats w0, floats w1, floats sum[2])
{
#if defined(__AVX512F__)
    if (!loaded) {
        __asm__("vfmadd231ps %2%{1to16%}, %1, %0" : "+v"(sum[0]) : "v"(w0), "m"(*x));
        __asm__("vfmadd231ps %2%{1to16%}, %1, %0" : "+v"(sum[1]) : "v"(w1), "m"(*x));
        return;
    }
    floats all;
    __asm__("vbroadcastss %1, %0" : "=v"(all) : "m"(*x));
    add_in_place(&sum[0], w0, all);
    add_in_place(&sum[1], w1, all);
#else
    (void)loaded;
    sum[0] = add_exact_product(broadcast(*x), w0, sum[0]);
    sum[1] = add_exact_product(broadcast(*x), w1, sum[1]);
#endif
}

ALWAYS_INLINE void add_k(const float *tile, floats w0, floats w1, const uint32_t rows,
                         floats sum[][2])
{
#pragma GCC unroll 12
    for (uint32_t r = 0; r < rows; r++)
        add_row(tile + r, r % 3 == 1, w0, w1, sum[r]);
}

/* `rows` is a constant at every call, so that the sums live in registers. */
ALWAYS_INLINE void multiply_block(const struct tile_product *product, uint32_t row, uint32_t n,
                                  const uint32_t rows, const bool is_wide)
{
    const uint32_t stride = SUM_ROWS >= TILE_ROWS ? rows : product->rows; /* a constant, too */
    const float *tile = (const float *)product->tile + row;
    const uint32_t *panel = is_wide ? (const uint32_t *)product->wide + n : product->panel + n;
    const char *next = product->next ? product->next : (const char *)panel;
    floats sum[SUM_ROWS][2];
    float *out = product->out + row * product->out_stride + n;
    const uint32_t shares = ROW_SHARES(rows);
    begin_block(product, row, n, rows, sum);
    for (uint32_t share = 0, p = 0; share < shares; share++) {
        if (!product->pause)
            prefetch_rows(out, product->out_stride, rows * share / shares,
                          rows * (share + 1) / shares);
#pragma GCC unroll 2
        for (uint32_t end = product->pairs * (share + 1) / shares; p < end;
             p++, next += product->next_step) {
            floats odd[2], even[2];
            __builtin_prefetch(next, 0, 2); /* into the level 2 cache */
            const words *w = (const words *)panel;
            if (is_wide) {
                const words *w_even = (const words *)(panel + PANEL);
                odd[0] = (floats)w[0], odd[1] = (floats)w[1];
                even[0] = (floats)w_even[0], even[1] = (floats)w_even[1];
                panel += (size_t)2 * PANEL;
            } else {
                __builtin_prefetch(next + 64, 0, 2);
                if (rows == 1)
                    bring_near(w, 2 * sizeof *w);
                odd[0] = odd_k(w[0]), odd[1] = odd_k(w[1]);
                even[0] = even_k(w[0]), even[1] = even_k(w[1]);
                panel += PANEL;
            }
            add_k(tile, odd[0], odd[1], rows, sum);
            add_k(tile + stride, even[0], even[1], rows, sum);
            tile += (size_t)2 * stride;
        }
    }
    end_block(product, row, n, rows, sum);
}

#define BLOCK_CASE(ROWS)                                                                           \
    case ROWS:                                                                                     \
        if (product->wide)                                                                         \
            multiply_block(product, r, n, ROWS, true);                                             \
        else                                                                                       \
            multiply_block(product, r, n, ROWS, false);                                            \
        break;

static void multiply(const struct tile_product *product)
{
    for (uint32_t n = 0; n < PANEL; n += 2 * VECTOR)
        for (uint32_t r = 0; r < product->rows; r += SUM_ROWS) {
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
