/* Quantized products by vpdpbusd, four u8 times s8 to a lane. Four inputs of a row are one word of
 * a tile. The instruction is written in assembly, for two rows of three with a broadcast memory
 * operand (product_fma.h has the reason). Only its signed operand may be in memory, so the weights
 * are the unsigned ones. gcc 12 spills the sums to the stack when it is given as an intrinsic. */

#include "kernels/cpu/inner/quantized_end.h"

#include <stddef.h>
#include <string.h>

/* Few rows split each sum into two, for even and odd quads of k: otherwise a lane's next product
 * would wait for its last. */
#define CHAINS(ROWS) ((ROWS) <= 6 ? 2 : 1)

struct sums {
    __m512i part[TILE_ROWS][2]; /* [row * chains + chain][half of the panel] */
};

/* `rows` is a constant at every call, so that the sums live in registers. */
ALWAYS_INLINE void begin_sums(struct sums *sums, const int32_t *inputs, const uint32_t rows)
{
#pragma GCC unroll 12
    for (uint32_t r = 0; r < rows; r++) {
        /* volatile: read twice, since a copy would take a port of the products */
        __m512i *start = sums->part[r * CHAINS(rows)];
        __asm__ volatile("vpbroadcastd %1, %0" : "=v"(start[0]) : "m"(inputs[r]));
        __asm__ volatile("vpbroadcastd %1, %0" : "=v"(start[1]) : "m"(inputs[r]));
        if (CHAINS(rows) == 2)
            sums->part[2 * r + 1][0] = sums->part[2 * r + 1][1] = _mm512_setzero_si512();
    }
}

ALWAYS_INLINE void add_row(const uint32_t *x, const bool loaded, __m512i w0, __m512i w1,
                           __m512i sum[2])
{
    if (!loaded) {
        __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum[0]) : "v"(w0), "m"(*x));
        __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum[1]) : "v"(w1), "m"(*x));
        return;
    }
    __m512i all;
    __asm__("vpbroadcastd %1, %0" : "=v"(all) : "m"(*x));
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum[0]) : "v"(w0), "v"(all));
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum[1]) : "v"(w1), "v"(all));
}

/* Adds row r of a quad of k; chain: 0 or 1 in turns. */
ALWAYS_INLINE void add_row_of_quad(struct sums *sums, __m512i w0, __m512i w1, const uint32_t *tile,
                                   const uint32_t chain, const uint32_t r, const uint32_t rows)
{
    uint32_t part = r * CHAINS(rows) + (CHAINS(rows) == 2 ? chain : 0);
    add_row(tile + r, r % 3 == 1, w0, w1, sums->part[part]);
}

ALWAYS_INLINE void add_quad(struct sums *sums, __m512i w0, __m512i w1, const uint32_t *tile,
                            const uint32_t chain, const uint32_t rows)
{
#pragma GCC unroll 12
    for (uint32_t r = 0; r < rows; r++)
        add_row_of_quad(sums, w0, w1, tile, chain, r, rows);
}

ALWAYS_INLINE ints sum_of_row(const struct sums *sums, uint32_t r, uint32_t half,
                              const uint32_t rows)
{
    ints sum = (ints)sums->part[r * CHAINS(rows)][half];
    if (CHAINS(rows) == 2)
        sum += (ints)sums->part[2 * r + 1][half];
    return sum;
}

/* Writes the sums times their scales to a panel's outputs. */
ALWAYS_INLINE void write_int8(const struct quantized_product *product, const struct sums *sums,
                              const floats *scales, float *out, const uint32_t rows)
{
    const floats scale0 = scales[0], scale1 = scales[1];
    const float *row_scales = product->tile;
#pragma GCC unroll 12
    for (uint32_t r = 0; r < rows; r++, out += product->out_stride) {
        floats row_scale = broadcast(row_scales[r]);
        write_out(product, to_floats(sum_of_row(sums, r, 0, rows)) * (row_scale * scale0), out);
        write_out(product, to_floats(sum_of_row(sums, r, 1, rows)) * (row_scale * scale1),
                  out + VECTOR);
    }
}

#define TILE_WORDS(INT4) 1

/* Transposes four rows of four words, in each quarter of the vectors. */
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

/* --- one row times QUANTIZED_VNNI_STREAMS panels side by side, a step of each in turns
 * (stream_line) --- */

static void int8_row_of_panels(const struct quantized_product *product)
{
    const uint32_t *tile = tile_words(product, 1);
    const uint8_t *panel = product->panel;
    const size_t apart = product->panels_apart;
    struct sums sums[QUANTIZED_VNNI_STREAMS];
#pragma GCC unroll 4
    for (uint32_t p = 0; p < QUANTIZED_VNNI_STREAMS; p++)
        begin_sums(&sums[p], tile_sums(product), 1);
    for (uint32_t step = 0; step < product->steps; step++) {
#pragma GCC unroll 4
        for (uint32_t p = 0; p < QUANTIZED_VNNI_STREAMS; p++) {
            const uint8_t *w = panel + p * apart;
            add_quad(&sums[p], (__m512i)stream_line(w), (__m512i)stream_line(w + 64), tile, 0, 1);
            add_quad(&sums[p], (__m512i)stream_line(w + 128), (__m512i)stream_line(w + 192),
                     tile + 1, 1, 1);
        }
        panel += 2 * QUANTIZED_STEP_BYTES;
        tile += 2;
    }
#pragma GCC unroll 4
    for (uint32_t p = 0; p < QUANTIZED_VNNI_STREAMS; p++)
        write_int8(product, &sums[p], (const floats *)(panel + p * apart),
                   product->out + p * product->outs_apart, 1);
}

static void int4_row_of_panels(const struct quantized_product *product)
{
    const __m512i low = _mm512_set1_epi8(15);
    const uint32_t *tile = tile_words(product, group_count(product->steps));
    const int32_t *inputs = tile_sums(product);
    const uint8_t *at = product->panel;
    floats partial[QUANTIZED_VNNI_STREAMS][2] = {0};
    for (uint32_t step = 0; step < product->steps; inputs++) {
        const __mmask16 known = step ? 0xffff : 0;
        struct sums sums[QUANTIZED_VNNI_STREAMS];
#pragma GCC unroll 4
        for (uint32_t p = 0; p < QUANTIZED_VNNI_STREAMS; p++)
            begin_sums(&sums[p], inputs, 1);
        for (uint32_t end = group_end(step, product->steps); step < end; step++, tile += 2) {
#pragma GCC unroll 4
            for (uint32_t p = 0; p < QUANTIZED_VNNI_STREAMS; p++) {
                const uint8_t *w = at + p * product->panels_apart;
                __m512i w0 = (__m512i)stream_line(w), w1 = (__m512i)stream_line(w + 64);
                add_quad(&sums[p], w0 & low, w1 & low, tile, 0, 1);
                add_quad(&sums[p], _mm512_srli_epi16(w0, 4) & low, _mm512_srli_epi16(w1, 4) & low,
                         tile + 1, 1, 1);
            }
            at += QUANTIZED_STEP_BYTES;
        }
#pragma GCC unroll 8
        for (uint32_t i = 0; i < 2 * QUANTIZED_VNNI_STREAMS; i++) {
            const uint16_t *scales = (const uint16_t *)(at + i / 2 * product->panels_apart);
            floats value = scaled_group(sum_of_row(&sums[i / 2], 0, i % 2, 1),
                                        widen_bf16(scales + i % 2 * VECTOR));
            floats *sum = &partial[i / 2][i % 2];
            *sum = (floats)_mm512_mask_add_ps((__m512)value, known, (__m512)value, (__m512)*sum);
        }
        at += INT4_SCALE_BYTES;
    }
    floats row_scale = broadcast(*(const float *)product->tile);
#pragma GCC unroll 8
    for (uint32_t i = 0; i < 2 * QUANTIZED_VNNI_STREAMS; i++)
        write_out(product, partial[i / 2][i % 2] * row_scale,
                  product->out + i / 2 * product->outs_apart + i % 2 * VECTOR);
}

/* Prefetches 128 bytes of the panel into the level 2 cache. */
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
            /* otherwise these 128 bytes are enough */
            if (product->next_step > QUANTIZED_STEP_BYTES / 2)
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

/* Splits a step of a panel into the low halves of its bytes and the high ones. */
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

/* partial = value, plus `partial` in the lanes of `known`. */
ALWAYS_INLINE void join(floats value, __mmask16 known, float *partial)
{
    floats *out = (floats *)partial;
    __asm__("vaddps %2, %0, %0%{%1%}" : "+v"(value) : "Yk"(known), "m"(*out));
    *out = value;
}

/* Adds the last quad of a group. Then adds its sums, times its scales, to the partial sums. Goes
 * row by row: stores that wait for all sums at once would hold up the next group's products. */
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

/* Sources of weights: the panel; the panel with its weights kept wide for further tiles; the wide
 * weights. */
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
    /* Prefetches the outputs' lines with the last groups of all, in shares of the groups of this
     * call. */
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
            /* Other sources need one line a step: the panel is passed more than twice. */
            if (source == INT4_PACKED)
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
        /* One address from here on: the compiler would compute one for each row. */
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
