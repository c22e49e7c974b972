/* Blocks of AVX2's quantized products: up to BLOCK_ROWS rows times BLOCK_OUTPUTS outputs, two vectors of sums for each row. With
 * the two of weights, an input in all lanes, and a product on its way these are all sixteen registers: so additions
 * are written in assembly, as in product_fma.h, and weights that take two steps to unpack are read twice. */
#ifndef BATON_KERNELS_CPU_INNER_QUANTIZED_AVX2_H
#define BATON_KERNELS_CPU_INNER_QUANTIZED_AVX2_H

#include "kernels/cpu/inner/quantized_end.h"

#include <stddef.h>

#define TILE_HEIGHT                                                                                \
    24 /* rows of a tile: several blocks, since a product costs a little before it begins */
#define BLOCK_ROWS    6
#define BLOCK_OUTPUTS (2 * VECTOR)
#define PANEL_VECTORS (PANEL / VECTOR)

/* Rows row .. row + BLOCK_ROWS - 1 at most, outputs n .. n + BLOCK_OUTPUTS - 1, steps step .. end - 1. */
struct block_place {
    uint32_t row, n, step, end;
};

/* What a product asks for, in shares of its blocks. */
struct ahead {
    const char *at;
    size_t share; /* bytes */
};

ALWAYS_INLINE struct ahead ahead_of(const struct quantized_product *product, uint32_t parts)
{
    uint32_t blocks =
        parts * (PANEL / BLOCK_OUTPUTS) * ((product->rows + BLOCK_ROWS - 1) / BLOCK_ROWS);
    return (struct ahead){.at = product->next, .share = product->next_bytes / blocks};
}

ALWAYS_INLINE void ask_ahead(struct ahead *ahead)
{
    const char *end = ahead->at + ahead->share;
    for (const char *line = ahead->at; line < end; line += 64)
        __builtin_prefetch(line, 0, 2);
    ahead->at = end;
}

ALWAYS_INLINE __m256i in_all_lanes(const uint32_t *word)
{
    return _mm256_set1_epi32((int)*word);
}

/* MULTIPLY_ROWS of 1 .. BLOCK_ROWS rows by the cases of a switch: it needs a constant. */
#define BLOCK_CASE(MULTIPLY, ROWS, ...)                                                            \
    case ROWS:                                                                                     \
        MULTIPLY(__VA_ARGS__, ROWS);                                                               \
        break;

#define BLOCK_CASES(MULTIPLY, LEFT, ...)                                                           \
    switch ((LEFT) < BLOCK_ROWS ? (LEFT) : BLOCK_ROWS) {                                           \
        BLOCK_CASE(MULTIPLY, 1, __VA_ARGS__)                                                       \
        BLOCK_CASE(MULTIPLY, 2, __VA_ARGS__)                                                       \
        BLOCK_CASE(MULTIPLY, 3, __VA_ARGS__)                                                       \
        BLOCK_CASE(MULTIPLY, 4, __VA_ARGS__)                                                       \
        BLOCK_CASE(MULTIPLY, 5, __VA_ARGS__)                                                       \
        BLOCK_CASE(MULTIPLY, 6, __VA_ARGS__)                                                       \
    }

#endif
