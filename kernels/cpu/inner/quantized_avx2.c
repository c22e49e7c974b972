/* Quantized products by the multiply-adds of AVX2: int8 by vpmaddwd, int4 by vpmaddubsw. In an int8
 * tile four inputs of a row are two words, inputs 0 and 2, then 1 and 3, as 16-bit numbers. In an
 * int4 tile they are one word, and each half of a group has a start word: -8 times the sums of the
 * inputs at even and at odd pairs of k. */
#include "kernels/cpu/inner/quantized_avx2.h"

#include <stddef.h>

/* --- rows --- */

#define PACK_QUADS(INT4)  ((INT4) ? pack_int4_quads : pack_int8_quads)
#define TILE_WORDS(INT4)  ((INT4) ? 1 : 2)
#define START_WORDS(INT4) ((INT4) ? 2 : 1)
#define FIRST_START(INT4) 0

/* Stores a word of each row, side by side. */
ALWAYS_INLINE void store_rows(__m128i word, uint32_t rows, uint32_t *out)
{
    if (rows == PACK_ROWS) {
        _mm_storeu_si128((__m128i *)out, word);
        return;
    }
    for (; rows; rows--, word = _mm_srli_si128(word, 4))
        *out++ = (uint32_t)_mm_cvtsi128_si32(word);
}

/* Transposes eight words of four rows into columns `stride` words apart, and stores `count` of
 * them. */
ALWAYS_INLINE void store_columns(const words row[PACK_ROWS], uint32_t rows, uint32_t count,
                                 uint32_t *out, size_t stride)
{
    words low01 = interleave_low(row[0], row[1]), high01 = interleave_high(row[0], row[1]);
    words low23 = interleave_low(row[2], row[3]), high23 = interleave_high(row[2], row[3]);
    const words column[4] = {
        interleave_low_pairs(low01, low23), interleave_high_pairs(low01, low23),
        interleave_low_pairs(high01, high23), interleave_high_pairs(high01, high23)};
#pragma GCC unroll 4
    for (uint32_t c = 0; c < 4; c++)
        if (c < count)
            store_rows(_mm256_castsi256_si128((__m256i)column[c]), rows, out + c * stride);
#pragma GCC unroll 4
    for (uint32_t c = 0; c < 4; c++)
        if (c + 4 < count)
            store_rows(_mm256_extracti128_si256((__m256i)column[c], 1), rows,
                       out + (c + 4) * stride);
}

static void pack_int8_quads(const int8_t numbers[PACK_ROWS][QUANTIZED_GROUP], uint32_t rows,
                            uint32_t quads, uint32_t *out, uint32_t stride)
{
    for (uint32_t q = 0; q < quads; q += VECTOR, out += (size_t)2 * VECTOR * stride) {
        words even[PACK_ROWS], odd[PACK_ROWS];
#pragma GCC unroll 4
        for (uint32_t r = 0; r < PACK_ROWS; r++) {
            __m256i row = _mm256_loadu_si256((const __m256i *)(numbers[r] + 4 * q));
            even[r] = (words)_mm256_srai_epi16(_mm256_slli_epi16(row, 8), 8);
            odd[r] = (words)_mm256_srai_epi16(row, 8);
        }
        store_columns(even, rows, quads - q, out, (size_t)2 * stride);
        store_columns(odd, rows, quads - q, out + stride, (size_t)2 * stride);
    }
}

static void pack_int4_quads(const int8_t numbers[PACK_ROWS][QUANTIZED_GROUP], uint32_t rows,
                            uint32_t quads, uint32_t *out, uint32_t stride)
{
    for (uint32_t q = 0; q < quads; q += VECTOR, out += (size_t)VECTOR * stride) {
        words row[PACK_ROWS];
#pragma GCC unroll 4
        for (uint32_t r = 0; r < PACK_ROWS; r++)
            row[r] = (words)_mm256_loadu_si256((const __m256i *)(numbers[r] + 4 * q));
        store_columns(row, rows, quads - q, out, stride);
    }
}

/* Sums 64 numbers: pairs at even places in the low half of the word, the others in the high
 * half. */
ALWAYS_INLINE uint32_t sums_of_pairs(const int8_t *numbers)
{
    const __m256i ones = _mm256_set1_epi8(1);
    const __m256i low = _mm256_loadu_si256((const __m256i *)numbers);
    const __m256i high = _mm256_loadu_si256((const __m256i *)numbers + 1);
    __m256i sums =
        _mm256_add_epi16(_mm256_maddubs_epi16(ones, low), _mm256_maddubs_epi16(ones, high));
    __m128i sum = _mm_add_epi16(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
    sum = _mm_add_epi16(sum, _mm_unpackhi_epi64(sum, sum));
    sum = _mm_add_epi16(sum, _mm_shuffle_epi32(sum, 1));
    return (uint32_t)_mm_cvtsi128_si32(sum);
}

/* Multiplies both halves of the word by -8; each wraps around on its own. */
static uint32_t less_eight_times(uint32_t sums)
{
    return ((0 - 8 * sums) & 0xffff) | (0 - 8 * (sums >> 16)) << 16;
}

/* Lowers the starts of the sums by what the zero point adds over these numbers. */
ALWAYS_INLINE void lower_start(const int8_t numbers[QUANTIZED_GROUP], int32_t zero_point,
                               int32_t *start, uint32_t stride)
{
    uint32_t first = sums_of_pairs(numbers), second = sums_of_pairs(numbers + INT4_HALF);
    if (zero_point == 128) {
        *start -= 128 * ((int16_t)first + (int16_t)(first >> 16) + (int16_t)second +
                         (int16_t)(second >> 16));
        return;
    }
    start[0] = (int32_t)less_eight_times(first);
    start[stride] = (int32_t)less_eight_times(second);
}

#include "kernels/cpu/inner/quantized_avx2_int4.h"
#include "kernels/cpu/inner/quantized_avx2_int8.h"

/* --- products --- */

#define WIDE_TILES 5 /* tiles; fewer don't make up for the widening */

static bool is_row(const struct quantized_product *product)
{
    return product->rows == 1 && product->end_step - product->first_step == product->steps;
}

static void multiply_int8(const struct quantized_product *product)
{
    if (product->wide) {
        if (product->widen)
            widen_int8_part(product);
        int8_wide(product);
    } else if (is_row(product)) {
        int8_row(product);
    } else {
        int8_packed(product);
    }
}

static void multiply_int4(const struct quantized_product *product)
{
    if (product->wide) {
        if (product->widen)
            widen_int4_part(product);
        int4_wide(product);
    } else if (is_row(product)) {
        int4_row(product);
    } else {
        int4_packed(product);
    }
}

const struct quantized_inner quantized_avx2 = {
    .name = "avx2",
    .tile_rows = BLOCK_ROWS,
    .row_unit = BLOCK_ROWS,
    .whole_blocks = true,
    .pass_rows = QUANTIZED_PASS_ROWS,
    .pass_bytes = QUANTIZED_MAX_BYTES,
    .int8_parts = {.tiles = 2, .steps = INT8_PART_STEPS, .wide = WIDE_TILES},
    .int4_parts = {.tiles = 2, .steps = INT4_PART_STEPS, .wide = WIDE_TILES},
    .speed = 1,
    .row_bytes = row_bytes,
    .pack_tile = pack_tile,
    .multiply_int8 = multiply_int8,
    .multiply_int4 = multiply_int4,
};
