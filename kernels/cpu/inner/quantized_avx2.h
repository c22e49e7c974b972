/* Blocks of AVX2's quantized products: up to BLOCK_ROWS rows times BLOCK_OUTPUTS outputs, two
 * vectors of sums for each row. These sums, two vectors of weights, an input in all lanes and one
 * product take all sixteen registers. So additions are written in assembly, as in product_fma.h,
 * and weights that take two steps to unpack are read twice. */
#ifndef BATON_KERNELS_CPU_INNER_QUANTIZED_AVX2_H
#define BATON_KERNELS_CPU_INNER_QUANTIZED_AVX2_H

#include "kernels/cpu/inner/quantized_end.h"

#include <stddef.h>

#define BLOCK_ROWS    6 /* rows of a tile, too, so that its words lie in the order of reading */
#define BLOCK_OUTPUTS (2 * VECTOR)
#define PANEL_VECTORS (PANEL / VECTOR)
#define INT4_HALF     (QUANTIZED_GROUP / 2) /* k that 16-bit sums can take */

/* A block of the tile that begins at row `row` of the product: outputs n .. n + BLOCK_OUTPUTS - 1,
 * steps step .. end - 1. */
struct block {
    const uint32_t *tile;
    uint32_t row, n, step, end;
};

/* Prefetches of a product, in equal shares. */
struct ahead {
    const char *at;
    size_t share; /* bytes of a share */
};

ALWAYS_INLINE struct ahead ahead_of(const struct quantized_product *product, uint32_t shares)
{
    return (struct ahead){.at = product->next, .share = product->next_bytes / shares};
}

ALWAYS_INLINE void ask_ahead(struct ahead *ahead)
{
    const char *end = ahead->at + ahead->share;
    for (const char *line = ahead->at; line < end; line += 64)
        __builtin_prefetch(line, 0, 2);
    ahead->at = end;
}

/* Bytes ahead of a block's prefetches. Blocks read every other line of a panel, in short parts. The
 * block that reads a part first prefetches near lines into the level 1 cache and later ones into
 * the level 2. One row reads in order, and needs the near ones alone. */
#define BLOCK_NEAR 4096
ALWAYS_INLINE void ask_for_block(const uint32_t *weights, ptrdiff_t ahead)
{
    __builtin_prefetch((const char *)weights + BLOCK_NEAR, 0, 3);
    __builtin_prefetch((const char *)weights + ahead, 0, 2);
}

ALWAYS_INLINE uint32_t tile_count(const struct quantized_product *product)
{
    return (product->rows + BLOCK_ROWS - 1) / BLOCK_ROWS;
}

ALWAYS_INLINE uint32_t tile_rows(const struct quantized_product *product, uint32_t first)
{
    return product->rows - first < BLOCK_ROWS ? product->rows - first : BLOCK_ROWS;
}

/* Declares a constant that stays in memory: in a register it would cost a sum. */
#define IN_MEMORY(NAME, WORD)                                                                      \
    static const words NAME                                                                        \
        __attribute__((aligned(32))) = {WORD, WORD, WORD, WORD, WORD, WORD, WORD, WORD}

ALWAYS_INLINE __m256i in_all_lanes(const uint32_t *word)
{
    return _mm256_set1_epi32((int)*word);
}

/* Defines NAME: a row's word in all lanes, times two vectors of weights, added to its sums. One
 * piece of assembly: compilers (gcc 12) move its parts about and run out of registers. */
#define ADD_ROW(NAME, MULTIPLY, ADD)                                                               \
    ALWAYS_INLINE void NAME(const uint32_t *x, words w0, words w1, ints sum[2])                    \
    {                                                                                              \
        words all, product;                                                                        \
        __asm__ volatile("vpbroadcastd %4, %2\n\t" MULTIPLY " %2, %5, %3\n\t" ADD                  \
                         " %3, %0, %0\n\t" MULTIPLY " %2, %6, %2\n\t" ADD " %2, %1, %1"            \
                         : "+x"(sum[0]), "+x"(sum[1]), "=&x"(all), "=&x"(product)                  \
                         : "m"(*x), "x"(w0), "x"(w1));                                             \
    }

/* Calls MULTIPLY for 1 .. BLOCK_ROWS rows, a constant in each case. */
#define BLOCK_CASE(MULTIPLY, ROWS, ...)                                                            \
    case ROWS:                                                                                     \
        MULTIPLY(__VA_ARGS__, ROWS);                                                               \
        break;

#define BLOCK_CASES(MULTIPLY, ROWS, ...)                                                           \
    switch (ROWS) {                                                                                \
        BLOCK_CASE(MULTIPLY, 1, __VA_ARGS__)                                                       \
        BLOCK_CASE(MULTIPLY, 2, __VA_ARGS__)                                                       \
        BLOCK_CASE(MULTIPLY, 3, __VA_ARGS__)                                                       \
        BLOCK_CASE(MULTIPLY, 4, __VA_ARGS__)                                                       \
        BLOCK_CASE(MULTIPLY, 5, __VA_ARGS__)                                                       \
        BLOCK_CASE(MULTIPLY, 6, __VA_ARGS__)                                                       \
    }

#endif
