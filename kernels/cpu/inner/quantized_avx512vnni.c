/* Quantized products by vpdpbusd, four u8 times s8 to a lane. Four inputs of a row are one word of
 * a tile. */
#include "kernels/cpu/inner/quantized_vnni.h"

#include <stddef.h>
#include <string.h>

#define TILE_WORDS(INT4) 1

/* Four rows of four words become columns, in each quarter of the vectors. */
static void pack_quads(const int8_t numbers[PACK_ROWS][QUANTIZED_GROUP], uint32_t rows,
                       uint32_t quads, uint32_t *out, uint32_t stride)
{
    const __mmask8 there = (__mmask8)((1 << rows) - 1);
    uint32_t q = 0;
    for (; q + VECTOR <= quads; q += VECTOR) {
        words row[PACK_ROWS], column[4];
        memcpy(&row[0], numbers[0] + 4 * q, sizeof *row);
        memcpy(&row[1], numbers[1] + 4 * q, sizeof *row);
        memcpy(&row[2], numbers[2] + 4 * q, sizeof *row);
        memcpy(&row[3], numbers[3] + 4 * q, sizeof *row);
        words low01 = interleave_low(row[0], row[1]), high01 = interleave_high(row[0], row[1]);
        words low23 = interleave_low(row[2], row[3]), high23 = interleave_high(row[2], row[3]);
        column[0] = interleave_low_pairs(low01, low23);
        column[1] = interleave_high_pairs(low01, low23);
        column[2] = interleave_low_pairs(high01, high23);
        column[3] = interleave_high_pairs(high01, high23);
#define STORE_QUARTER(QUARTER)                                                                     \
    for (uint32_t c = 0; c < 4; c++, out += stride)                                                \
        _mm_mask_storeu_epi32(out, there, _mm512_extracti32x4_epi32((__m512i)column[c], QUARTER));
        STORE_QUARTER(0)
        STORE_QUARTER(1)
        STORE_QUARTER(2)
        STORE_QUARTER(3)
#undef STORE_QUARTER
    }
    for (; q < quads; q++, out += stride)
        for (uint32_t r = 0; r < rows; r++)
            memcpy(out + r, numbers[r] + 4 * q, sizeof *out);
}

static int32_t sum_of(const int8_t numbers[QUANTIZED_GROUP])
{
    const __m512i ones = _mm512_set1_epi8(1);
    __m512i sum = _mm512_setzero_si512();
    for (uint32_t i = 0; i < QUANTIZED_GROUP; i += 64)
        __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(ones), "m"(*(const words *)(numbers + i)));
    return _mm512_reduce_add_epi32(sum);
}

#include "kernels/cpu/inner/quantized_tile.h"
#include "kernels/cpu/inner/quantized_vnni_streams.h"

/* 128 bytes of the panel into the second level. */
ALWAYS_INLINE void bring(const char *next)
{
    __builtin_prefetch(next, 0, 2);
    __builtin_prefetch(next + 64, 0, 2);
}

ALWAYS_INLINE void int8_rows(const struct quantized_product *product, const uint32_t rows)
{
    const uint32_t *panel = (const uint32_t *)product->panel, *tile = tile_words(product, 1);
    const char *next = product->next ? product->next : (const char *)panel;
    const uint32_t shares = ROW_SHARES(rows);
    struct sums sums;
    begin_sums(&sums, tile_sums(product), rows);
    for (uint32_t share = 0, step = 0; share < shares; share++) {
        prefetch_rows(product->out, product->out_stride, rows * share / shares,
                      rows * (share + 1) / shares);
        for (uint32_t end = product->steps * (share + 1) / shares; step < end; step++) {
            bring(next);
            if (product->next_step > QUANTIZED_STEP_BYTES / 2) /* else these 128 bytes are enough */
                bring(next + product->next_step);
            next += 2 * product->next_step;
            if (rows < TILE_ROWS)
                bring_near(panel, 2 * QUANTIZED_STEP_BYTES);
            __m512i w0 = _mm512_loadu_si512(panel), w1 = _mm512_loadu_si512(panel + PANEL / 2);
            add_quad(&sums, w0, w1, tile, 0, rows);
            __m512i w2 = _mm512_loadu_si512(panel + PANEL),
                    w3 = _mm512_loadu_si512(panel + PANEL + PANEL / 2);
            add_quad(&sums, w2, w3, tile + rows, 1, rows);
            panel += 2 * PANEL;
            tile += 2 * rows;
        }
    }
    write_int8(product, &sums, (const floats *)panel, product->out, rows);
}

struct quads {
    __m512i even[2], odd[2]; /* [half of the panel] */
};

/* A step of a panel: the low halves of its bytes, and the high ones. */
ALWAYS_INLINE struct quads split_step(const uint8_t *step)
{
    const __m512i low = _mm512_set1_epi8(15);
    __m512i w0 = _mm512_loadu_si512(step), w1 = _mm512_loadu_si512(step + 64);
    return (struct quads){
        .even = {_mm512_and_si512(w0, low), _mm512_and_si512(w1, low)},
        .odd = {_mm512_and_si512(_mm512_srli_epi16(w0, 4), low),
                _mm512_and_si512(_mm512_srli_epi16(w1, 4), low)},
    };
}

ALWAYS_INLINE struct quads wide_step(const uint8_t *step)
{
    return (struct quads){
        .even = {_mm512_loadu_si512(step), _mm512_loadu_si512(step + 64)},
        .odd = {_mm512_loadu_si512(step + 128), _mm512_loadu_si512(step + 192)},
    };
}

ALWAYS_INLINE void keep_step(const struct quads *quads, uint8_t *step)
{
    _mm512_storeu_si512(step, quads->even[0]);
    _mm512_storeu_si512(step + 64, quads->even[1]);
    _mm512_storeu_si512(step + 128, quads->odd[0]);
    _mm512_storeu_si512(step + 192, quads->odd[1]);
}

/* partial = value, plus partial in the lanes of `known`. */
ALWAYS_INLINE void join(floats value, __mmask16 known, float *partial)
{
    floats *out = (floats *)partial;
    __asm__("vaddps %2, %0, %0%{%1%}" : "+v"(value) : "Yk"(known), "m"(*out));
    *out = value;
}

/* The last quad of a group; then its sums, times its scales, join the partial sums. Row by row:
 * stores that wait for all sums at once would hold up the next group's products. */
ALWAYS_INLINE void end_group(struct sums *sums, __m512i w0, __m512i w1, const uint32_t *tile,
                             floats scale0, floats scale1, bool first, float *partial,
                             const uint32_t rows)
{
    __mmask16 known = first ? 0 : 0xffff;
#pragma GCC unroll 12
    for (uint32_t r = 0; r < rows; r++, partial += PANEL) {
        add_row_of_quad(sums, w0, w1, tile, 1, r, rows);
        join(scaled_group(sum_of_row(sums, r, 0, rows), scale0), known, partial);
        join(scaled_group(sum_of_row(sums, r, 1, rows), scale1), known, partial + VECTOR);
        __asm__ volatile("" ::: "memory"); /* this row before the next */
    }
}

/* Where weights come from: the panel; the panel, and they are kept wide for the products of further
 * tiles; from there. */
enum int4_source { INT4_PACKED, INT4_WIDENED, INT4_WIDE };

ALWAYS_INLINE void int4_rows(const struct quantized_product *product, const uint32_t rows,
                             const enum int4_source source)
{
    const bool is_wide = source == INT4_WIDE;
    const uint32_t step_bytes = is_wide ? 2 * QUANTIZED_STEP_BYTES : QUANTIZED_STEP_BYTES;
    const uint32_t *tile = tile_words(product, group_count(product->steps));
    tile += (size_t)product->first_step * 2 * rows;
    const int32_t *inputs = tile_sums(product) + product->first_step / STEPS_OF_GROUP * rows;
    const uint8_t *group = is_wide ? product->wide : product->panel;
    uint8_t *kept = product->wide;
    const char *next = product->next;
    /* The outputs' lines, with the last groups of all: shared out over those of this call. */
    uint32_t asked = product->end_step == product->steps ? 0 : rows;
    uint32_t shares = group_count(product->end_step - product->first_step);
    shares = shares < ROW_SHARES(rows) ? shares : ROW_SHARES(rows);
    for (uint32_t step = product->first_step; step < product->end_step; inputs += rows) {
        bool first = step == 0;
        const uint8_t *at = is_wide ? group + (size_t)PANEL * 4 : group;
        uint8_t *keep = source == INT4_WIDENED ? kept + (size_t)PANEL * 4 : NULL;
        struct quads quads;
        struct sums sums;
        begin_sums(&sums, inputs, rows);
        if (asked < rows) {
            uint32_t end = shares > 1 ? asked + (rows - asked + shares - 1) / shares : rows;
            prefetch_rows(product->out, product->out_stride, asked, end);
            asked = end;
            shares--;
        }
        for (uint32_t end = group_end(step, product->steps);; at += step_bytes, tile += 2 * rows) {
            __builtin_prefetch(next, 0, 2);
            if (source ==
                /* else one line a step is enough, the panel being gone past more than twice */
                INT4_PACKED)
                __builtin_prefetch(next + 64, 0, 2);
            if (source == INT4_PACKED && rows < TILE_ROWS)
                bring_near(at, QUANTIZED_STEP_BYTES);
            next += product->next_step;
            quads = is_wide ? wide_step(at) : split_step(at);
            if (source == INT4_WIDENED) {
                keep_step(&quads, keep);
                keep += 2 * QUANTIZED_STEP_BYTES;
            }
            add_quad(&sums, quads.even[0], quads.even[1], tile, 0, rows);
            if (++step == end)
                break;
            add_quad(&sums, quads.odd[0], quads.odd[1], tile + rows, 1, rows);
        }
        at += step_bytes;
        /* One address from here on: the compiler would compute each row's. */
        __asm__("" : "+r"(tile));
        next += product->next_step / 2; /* the line of scales */
        floats scale0, scale1;
        if (is_wide) {
            scale0 = ((const floats *)group)[0];
            scale1 = ((const floats *)group)[1];
            group += INT4_WIDE_BYTES;
        } else {
            scale0 = widen_bf16((const uint16_t *)at);
            scale1 = widen_bf16((const uint16_t *)at + VECTOR);
            group = at + INT4_SCALE_BYTES;
        }
        if (source == INT4_WIDENED) {
            ((floats *)kept)[0] = scale0;
            ((floats *)kept)[1] = scale1;
            kept += INT4_WIDE_BYTES;
        }
        end_group(&sums, quads.odd[0], quads.odd[1], tile + rows, scale0, scale1, first,
                  product->partial, rows);
        tile += 2 * rows;
    }
}

ALWAYS_INLINE void int4_packed_rows(const struct quantized_product *product, const uint32_t rows)
{
    int4_rows(product, rows, INT4_PACKED);
}

ALWAYS_INLINE void int4_widened_rows(const struct quantized_product *product, const uint32_t rows)
{
    int4_rows(product, rows, INT4_WIDENED);
}

ALWAYS_INLINE void int4_wide_rows(const struct quantized_product *product, const uint32_t rows)
{
    int4_rows(product, rows, INT4_WIDE);
}

#define ROWS_CASE(MULTIPLY, ROWS)                                                                  \
    case ROWS:                                                                                     \
        MULTIPLY(product, ROWS);                                                                   \
        break;

#define ROWS_CASES(MULTIPLY)                                                                       \
    switch (product->rows) {                                                                       \
        ROWS_CASE(MULTIPLY, 1)                                                                     \
        ROWS_CASE(MULTIPLY, 2)                                                                     \
        ROWS_CASE(MULTIPLY, 3)                                                                     \
        ROWS_CASE(MULTIPLY, 4)                                                                     \
        ROWS_CASE(MULTIPLY, 5)                                                                     \
        ROWS_CASE(MULTIPLY, 6)                                                                     \
        ROWS_CASE(MULTIPLY, 7)                                                                     \
        ROWS_CASE(MULTIPLY, 8)                                                                     \
        ROWS_CASE(MULTIPLY, 9)                                                                     \
        ROWS_CASE(MULTIPLY, 10)                                                                    \
        ROWS_CASE(MULTIPLY, 11)                                                                    \
        ROWS_CASE(MULTIPLY, 12)                                                                    \
    }

static void multiply_int8(const struct quantized_product *product)
{
    if (product->side_by_side) {
        int8_row_of_panels(product);
        return;
    }
    ROWS_CASES(int8_rows)
}

static void multiply_int4(const struct quantized_product *product)
{
    if (product->side_by_side) {
        int4_row_of_panels(product);
        return;
    }
    if (product->wide && product->widen)
        ROWS_CASES(int4_widened_rows)
    else if (product->wide)
        ROWS_CASES(int4_wide_rows)
    else
        ROWS_CASES(int4_packed_rows)
    finish_int4(product);
}

const struct quantized_inner quantized_avx512vnni = {
    .name = "avx512vnni",
    .tile_rows = TILE_ROWS,
    .row_unit = 1,
    .pass_rows = QUANTIZED_PASS_ROWS,
    .pass_bytes = QUANTIZED_PASS_BYTES,
    .int8_near_rows = 5,
    .int4_parts = {.tiles = 3, .steps = 8 * STEPS_OF_GROUP, .wide = 3},
    .speed = 1,
    .row_bytes = row_bytes,
    .pack_tile = pack_tile,
    .multiply_int8 = multiply_int8,
    .multiply_int4 = multiply_int4,
};
