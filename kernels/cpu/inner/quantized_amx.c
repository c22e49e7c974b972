/* Quantized products by AMX: 16 rows times 16 outputs times 64 k an instruction. A product has
 * units of rows, two at a time if there are two: four tiles of sums, two of rows, two of weights.
 * The sums go through memory to become floats. int4 is always widened to signed numbers, so that a
 * group's sum begins at zero.
 *
 * A unit of rows: f32 scale [16], int32 -128 times the sum of the inputs [16] (int4: zeros), then
 * blocks of 64 k, [k/64][16][64] s8; K is padded with zeros. Missing rows hold old contents, and
 * their sums are not read. */

#include "kernels/cpu/inner/amx.h"
#include "kernels/cpu/inner/quantized_end.h"

#include <string.h>

#define BLOCK_K      64
#define BLOCK_STEPS  (BLOCK_K / QUANTIZED_STEP)
#define BLOCK_BYTES  (AMX_ROWS * AMX_ROW_BYTES) /* bytes of a unit's block */
#define BLOCK_PANEL  (BLOCK_K * PANEL)          /* bytes of a panel's block */
#define HEADER_BYTES (AMX_ROWS * 8)

ALWAYS_INLINE uint32_t block_count(uint32_t steps)
{
    return (steps + BLOCK_STEPS - 1) / BLOCK_STEPS;
}

ALWAYS_INLINE size_t unit_bytes(uint32_t steps)
{
    return HEADER_BYTES + (size_t)block_count(steps) * BLOCK_BYTES;
}

/* --- sums: tiles 0 to 3, [unit][half of the panel], or with one unit [panel][half] --- */

ALWAYS_INLINE void zero_sums(const uint32_t pairs)
{
    TILE_ZERO(0);
    TILE_ZERO(1);
    if (pairs == 2) {
        TILE_ZERO(2);
        TILE_ZERO(3);
    }
}

/* Loads sums [row][PANEL]. */
ALWAYS_INLINE void load_sums(const int32_t *sums, const uint32_t pairs)
{
    TILE_LOAD(0, sums, PANEL * 4);
    TILE_LOAD(1, sums + AMX_ROWS, PANEL * 4);
    if (pairs == 2) {
        TILE_LOAD(2, sums + AMX_ROWS * PANEL, PANEL * 4);
        TILE_LOAD(3, sums + AMX_ROWS * PANEL + AMX_ROWS, PANEL * 4);
    }
}

ALWAYS_INLINE void store_sums(int32_t *sums, const uint32_t pairs)
{
    TILE_STORE(0, sums, PANEL * 4);
    TILE_STORE(1, sums + AMX_ROWS, PANEL * 4);
    if (pairs == 2) {
        TILE_STORE(2, sums + AMX_ROWS * PANEL, PANEL * 4);
        TILE_STORE(3, sums + AMX_ROWS * PANEL + AMX_ROWS, PANEL * 4);
    }
}

/* Prefetches beside the blocks, in equal shares: the memory of `next` into the level 2 cache, and,
 * with the last steps, lines of the outputs. */
struct errand {
    const char *next, *end;
    size_t bytes; /* bytes of a share */
    float *out;
    uint32_t row, rows, share_rows;
};

ALWAYS_INLINE struct errand errand_of(const struct quantized_product *product, uint32_t blocks)
{
    const char *next = product->next;
    bool ends = product->end_step == product->steps;
    return (struct errand){.next = next,
                           .end = next + product->next_bytes,
                           .bytes = product->next_bytes / blocks + 1,
                           .out = product->out,
                           .rows = ends && !product->past_caches ? product->rows : 0,
                           .share_rows = (product->rows + blocks - 1) / blocks};
}

ALWAYS_INLINE void run_errand(struct errand *errand, size_t stride)
{
    const char *end = errand->next + errand->bytes;
    end = end < errand->end ? end : errand->end;
    for (; errand->next < end; errand->next += 64)
        __builtin_prefetch(errand->next, 0, 2);
    for (uint32_t i = 0; i < errand->share_rows && errand->row < errand->rows; i++, errand->row++) {
        prefetch_rows(errand->out, stride, 0, 1);
        errand->out += stride;
    }
}

/* --- int8 --- */

/* Copies the last steps as a whole block, padded with zeros: no others follow, perhaps no
 * memory. */
static void cut_block(const uint8_t *weights, uint32_t steps, uint8_t cut[BLOCK_PANEL])
{
    size_t bytes = (size_t)steps * 2 * QUANTIZED_STEP_BYTES;
    memcpy(cut, weights, bytes);
    memset(cut + bytes, 0, BLOCK_PANEL - bytes);
}

/* Writes sums [row][PANEL] times their scales to a panel's outputs. */
static void finish_int8(const struct quantized_product *product, const int32_t *sums, float *out,
                        const float *scales)
{
    const size_t unit = unit_bytes(product->steps);
    const floats scale0 = ((const floats *)scales)[0], scale1 = ((const floats *)scales)[1];
    for (uint32_t r = 0; r < product->rows; r++, sums += PANEL, out += product->out_stride) {
        const uint8_t *header = (const uint8_t *)product->tile + r / AMX_ROWS * unit;
        floats row_scale = broadcast(((const float *)header)[r % AMX_ROWS]);
        int32_t start = ((const int32_t *)header)[AMX_ROWS + r % AMX_ROWS];
        write_out(product, to_floats(((const ints *)sums)[0] + start) * (row_scale * scale0), out);
        write_out(product, to_floats(((const ints *)sums)[1] + start) * (row_scale * scale1),
                  out + VECTOR);
    }
}

/* --- pairs of units, one after the other, times a panel's steps ---
 *
 * A store of sums waits for the products before it, and all later instructions wait with it. So the
 * last sums of a pair are stored between the first products of the next one, tile by tile, and
 * become floats meanwhile. */

#define PAIR_ROWS (2 * AMX_ROWS)
#define PAIR_SUMS (PAIR_ROWS * PANEL)

/* Adds a block of both units, `unit` bytes apart, times a block of the panel. BEGIN(tile) comes
 * before the first product into a tile of sums. Rows bypass the level 1 cache, which keeps the
 * panel. */
#define ADD_PAIR(DOT, ROWS, UNIT, WEIGHTS, BEGIN)                                                  \
    do {                                                                                           \
        TILE_LOAD(6, WEIGHTS, PANEL * 4);                                                          \
        TILE_LOAD_FAR(4, ROWS, BLOCK_K);                                                           \
        TILE_LOAD(7, (WEIGHTS) + AMX_ROW_BYTES, PANEL * 4);                                        \
        BEGIN(0);                                                                                  \
        DOT(0, 4, 6);                                                                              \
        TILE_LOAD_FAR(5, (ROWS) + (UNIT), BLOCK_K);                                                \
        BEGIN(1);                                                                                  \
        DOT(1, 4, 7);                                                                              \
        BEGIN(2);                                                                                  \
        DOT(2, 5, 6);                                                                              \
        BEGIN(3);                                                                                  \
        DOT(3, 5, 7);                                                                              \
    } while (0)

#define TILE_OF(SUMS, T) ((SUMS) + (T) / 2 * AMX_ROWS * PANEL + (T) % 2 * AMX_ROWS)

ALWAYS_INLINE void write_past(const struct quantized_product *product, floats value, float *out)
{
    if (product->past_caches)
        _mm512_stream_ps(out, (__m512)value);
    else
        write_out(product, value, out);
}

/* --- int8 --- */

/* Writes rows first .. end - 1 of a pair that begins at row `row` of the product. */
static inline void finish_int8_pair(const struct quantized_product *product, const int32_t *sums,
                                    uint32_t row, uint32_t first, uint32_t end)
{
    const size_t unit = unit_bytes(product->steps);
    const floats *scales =
        (const floats *)(product->panel + (size_t)(product->end_step - product->first_step) * 2 *
                                              QUANTIZED_STEP_BYTES);
    const floats scale0 = scales[0], scale1 = scales[1];
    end = product->rows - row < end ? product->rows - row : end;
    for (uint32_t r = first; r < end; r++) {
        const uint8_t *header = (const uint8_t *)product->tile + (row + r) / AMX_ROWS * unit;
        const ints *sum = (const ints *)(sums + (size_t)r * PANEL);
        float *out = product->out + (row + r) * product->out_stride;
        floats row_scale = broadcast(((const float *)header)[r % AMX_ROWS]);
        int32_t start = ((const int32_t *)header)[AMX_ROWS + r % AMX_ROWS];
        write_past(product, to_floats(sum[0] + start) * (row_scale * scale0), out);
        write_past(product, to_floats(sum[1] + start) * (row_scale * scale1), out + VECTOR);
    }
}

#define NOTHING(T)
#define BEGIN_INT8(T)                                                                              \
    if (held)                                                                                      \
        TILE_STORE(T, TILE_OF(held, T), PANEL * 4);                                                \
    if (begins)                                                                                    \
        TILE_ZERO(T);                                                                              \
    else                                                                                           \
        TILE_LOAD(T, TILE_OF(partial, T), PANEL * 4)

static void int8_pairs(const struct quantized_product *product, uint32_t pairs)
{
    const size_t unit = unit_bytes(product->steps);
    const uint32_t steps = product->end_step - product->first_step;
    const uint32_t blocks = block_count(steps), share = (PAIR_ROWS + blocks - 1) / blocks;
    const uint8_t *rows = (const uint8_t *)product->tile + HEADER_BYTES +
                          (size_t)(product->first_step / BLOCK_STEPS) * BLOCK_BYTES;
    const bool begins = product->first_step == 0, ends = product->end_step == product->steps;
    _Alignas(64) int32_t ended[PAIR_SUMS];
    _Alignas(64) uint8_t cut[BLOCK_PANEL];
    if (steps % BLOCK_STEPS)
        cut_block(product->panel + (size_t)(blocks - 1) * BLOCK_PANEL, steps % BLOCK_STEPS, cut);
    int32_t *partial = (int32_t *)product->partial, *held = NULL;
    struct errand errand = errand_of(product, pairs * blocks);
    for (uint32_t pair = 0; pair < pairs; pair++, rows += 2 * unit, partial += PAIR_SUMS) {
        const uint8_t *row = rows, *weights = product->panel;
        for (uint32_t i = 0; i < blocks; i++, row += BLOCK_BYTES, weights += BLOCK_PANEL) {
            run_errand(&errand, product->out_stride);
            if (i == blocks - 1 && steps % BLOCK_STEPS)
                weights = cut;
            if (i == 0)
                ADD_PAIR(TILE_DOT_S8_U8, row, unit, weights, BEGIN_INT8);
            else
                ADD_PAIR(TILE_DOT_S8_U8, row, unit, weights, NOTHING);
            if (ends && pair)
                finish_int8_pair(product, ended, (pair - 1) * PAIR_ROWS, i * share,
                                 (i + 1) * share < PAIR_ROWS ? (i + 1) * share : PAIR_ROWS);
        }
        held = ends ? ended : partial;
    }
    store_sums(held, 2);
    if (ends)
        finish_int8_pair(product, ended, (pairs - 1) * PAIR_ROWS, 0, PAIR_ROWS);
}

/* --- int4 --- */

/* A group of a pair: its sums are in memory, or, for the last group, still in tiles. */
struct pair_group {
    int32_t *sums; /* NULL: no group */
    const float *scales;
    float *partial;
    uint32_t row; /* first row of the pair in the product */
    bool first, last;
};

/* Adds rows first .. end - 1 of the group's sums, times their scales, to the partial sums. With the
 * last group they become outputs. */
ALWAYS_INLINE void end_pair_group(const struct quantized_product *product,
                                  const struct pair_group *group, uint32_t first, uint32_t end)
{
    const floats scale0 = ((const floats *)group->scales)[0];
    const floats scale1 = ((const floats *)group->scales)[1];
    const __mmask16 known = group->first ? 0 : 0xffff;
    for (uint32_t r = first; r < end; r++) {
        const ints *sums = (const ints *)(group->sums + (size_t)r * PANEL);
        floats *joined = (floats *)(group->partial + (size_t)r * PANEL);
        floats value0 = scaled_group(sums[0] + INT4_START, scale0);
        floats value1 = scaled_group(sums[1] + INT4_START, scale1);
        value0 = _mm512_mask_add_ps(value0, known, value0, joined[0]);
        value1 = _mm512_mask_add_ps(value1, known, value1, joined[1]);
        joined[0] = value0;
        joined[1] = value1;
    }
    if (!group->last)
        return;
    const size_t unit = unit_bytes(product->steps);
    for (uint32_t r = first; r < end && group->row + r < product->rows; r++) {
        const uint8_t *header = (const uint8_t *)product->tile + (group->row + r) / AMX_ROWS * unit;
        const floats *joined = (const floats *)(group->partial + (size_t)r * PANEL);
        float *out = product->out + (group->row + r) * product->out_stride;
        floats row_scale = broadcast(((const float *)header)[r % AMX_ROWS]);
        write_past(product, joined[0] * row_scale, out);
        write_past(product, joined[1] * row_scale, out + VECTOR);
    }
}

/* Comes between a group's products: stores the sums that the group before left in tiles, and ends
 * the group before that, four rows at a time. */
#define BEGIN_GROUP(T)                                                                             \
    if (held.sums)                                                                                 \
        TILE_STORE(T, TILE_OF(held.sums, T), PANEL * 4);                                           \
    if (older.sums)                                                                                \
        end_pair_group(product, &older, (T)*4, (T)*4 + 4);                                         \
    TILE_ZERO(T)
#define GO_ON(T)                                                                                   \
    if (older.sums)                                                                                \
    end_pair_group(product, &older, AMX_ROWS + (T)*4, AMX_ROWS + (T)*4 + 4)

static void int4_pairs(const struct quantized_product *product, struct errand *errand,
                       uint32_t pairs)
{
    const size_t unit = unit_bytes(product->steps);
    const uint32_t blocks = block_count(product->end_step - product->first_step);
    const uint8_t *rows = (const uint8_t *)product->tile + HEADER_BYTES +
                          (size_t)(product->first_step / BLOCK_STEPS) * BLOCK_BYTES;
    _Alignas(64) int32_t sums[2][PAIR_SUMS];
    struct pair_group older = {0}, held = {0};
    uint32_t turn = 0;
    for (uint32_t pair = 0; pair < pairs; pair++, rows += 2 * unit) {
        const uint8_t *row = rows, *wide = product->wide;
        for (uint32_t i = 0; i < blocks; i += 2, wide += INT4_WIDE_BYTES, row += 2 * BLOCK_BYTES) {
            const uint8_t *weights = wide + (size_t)PANEL * 4;
            struct pair_group group = {.sums = sums[turn++ % 2],
                                       .scales = (const float *)wide,
                                       .partial = product->partial + (size_t)pair * PAIR_SUMS,
                                       .row = pair * PAIR_ROWS,
                                       .first = product->first_step == 0 && i == 0,
                                       .last =
                                           product->end_step == product->steps && i + 2 >= blocks};
            run_errand(errand, product->out_stride);
            ADD_PAIR(TILE_DOT_S8_S8, row, unit, weights, BEGIN_GROUP);
            if (i + 1 < blocks) {
                run_errand(errand, product->out_stride);
                ADD_PAIR(TILE_DOT_S8_S8, row + BLOCK_BYTES, unit, weights + BLOCK_PANEL, GO_ON);
            } else if (older.sums) {
                end_pair_group(product, &older, AMX_ROWS, PAIR_ROWS);
            }
            older = held;
            held = group;
        }
    }
    store_sums(held.sums, 2);
    if (older.sums)
        end_pair_group(product, &older, 0, PAIR_ROWS);
    end_pair_group(product, &held, 0, PAIR_ROWS);
}

/* --- one unit of rows times QUANTIZED_AMX_STREAMS panels side by side, a block of each in turns
 * --- */

_Static_assert(QUANTIZED_AMX_STREAMS == 2, "a panel's two tiles of sums each");

/* Bytes ahead of prefetches into the level 1 cache (the next block), and into the level 2. */
#define UNIT_NEAR BLOCK_PANEL
#define UNIT_FAR  (4 * BLOCK_PANEL)

/* Makes a quarter of a block's requests, for lines of both panels in turns. */
ALWAYS_INLINE void request_quarter(const uint8_t *first, const uint8_t *second, uint32_t quarter)
{
    const uint32_t begin = quarter * (BLOCK_PANEL / 4);
#pragma GCC unroll 8
    for (uint32_t line = begin; line < begin + BLOCK_PANEL / 4; line += 64) {
        __builtin_prefetch(first + UNIT_FAR + line, 0, 2);
        __builtin_prefetch(second + UNIT_FAR + line, 0, 2);
        __builtin_prefetch(first + UNIT_NEAR + line, 0, 3);
        __builtin_prefetch(second + UNIT_NEAR + line, 0, 3);
    }
}

/* Prefetches the outputs of block i of `count`; they are written after all blocks, and would be
 * waited for at once otherwise. */
ALWAYS_INLINE void request_outputs(const struct quantized_product *product, uint32_t i,
                                   uint32_t count)
{
    uint32_t row = product->rows * i / count, end = product->rows * (i + 1) / count;
    prefetch_rows(product->out, product->out_stride, row, end);
    prefetch_rows(product->out + product->outs_apart, product->out_stride, row, end);
}

/* Adds half of a block of a panel, times the unit's block in tile 4. */
#define ADD_HALF(WEIGHTS, TILE, SUMS)                                                              \
    do {                                                                                           \
        TILE_LOAD(TILE, WEIGHTS, PANEL * 4);                                                       \
        TILE_DOT_S8_U8(SUMS, 4, TILE);                                                             \
    } while (0)

static void int8_unit_of_panels(const struct quantized_product *product)
{
    const uint32_t whole = product->steps / BLOCK_STEPS, rest = product->steps % BLOCK_STEPS;
    const uint8_t *first = product->panel, *second = first + product->panels_apart;
    const uint8_t *rows = (const uint8_t *)product->tile + HEADER_BYTES;
    zero_sums(QUANTIZED_AMX_STREAMS);
    for (uint32_t i = 0; i < whole; i++) {
        /* requests come between the loads of tiles, since a burst of them holds up later loads */
        TILE_LOAD(4, rows, BLOCK_K);
        ADD_HALF(first, 6, 0);
        request_quarter(first, second, 0);
        ADD_HALF(first + AMX_ROW_BYTES, 7, 1);
        request_quarter(first, second, 1);
        ADD_HALF(second, 6, 2);
        request_quarter(first, second, 2);
        ADD_HALF(second + AMX_ROW_BYTES, 7, 3);
        request_quarter(first, second, 3);
        request_outputs(product, i, whole);
        rows += BLOCK_BYTES;
        first += BLOCK_PANEL;
        second += BLOCK_PANEL;
    }
    if (rest) {
        _Alignas(64) uint8_t cut[QUANTIZED_AMX_STREAMS][BLOCK_PANEL];
        cut_block(first, rest, cut[0]);
        cut_block(second, rest, cut[1]);
        TILE_LOAD(4, rows, BLOCK_K);
        ADD_HALF(cut[0], 6, 0);
        ADD_HALF(cut[0] + AMX_ROW_BYTES, 7, 1);
        ADD_HALF(cut[1], 6, 2);
        ADD_HALF(cut[1] + AMX_ROW_BYTES, 7, 3);
        first += (size_t)rest * 2 * QUANTIZED_STEP_BYTES;
        second += (size_t)rest * 2 * QUANTIZED_STEP_BYTES;
    }
    _Alignas(64) int32_t sums[QUANTIZED_AMX_STREAMS][AMX_ROWS * PANEL];
    store_sums(sums[0], QUANTIZED_AMX_STREAMS);
    finish_int8(product, sums[0], product->out, (const float *)first);
    finish_int8(product, sums[1], product->out + product->outs_apart, (const float *)second);
}

#define BLOCKS_OF_GROUP (QUANTIZED_GROUP / BLOCK_K)
/* k of a part of a panel. It stays in a level 1 cache of 48 KiB: 32 KiB of int8, and half of that
 * of int4 beside sums of two groups. */
#define INT8_PART_K 1024
#define INT4_PART_K 512

_Static_assert(2 * AMX_ROWS == PANEL && 2 * AMX_ROWS == QUANTIZED_TILE_ROWS, "two by two tiles");

static size_t row_bytes(uint32_t k, bool int4)
{
    (void)int4;
    return unit_bytes((k + QUANTIZED_STEP - 1) / QUANTIZED_STEP) / AMX_ROWS;
}

/* --- rows --- */

/* Quantizes row r of a unit. */
static void pack_row(const float *row, uint32_t k, bool int4, uint8_t *unit, uint32_t r)
{
    const __m512i ones = _mm512_set1_epi8(1);
    struct row_scale scale = row_scale_of(row, k);
    int8_t *out = (int8_t *)unit + HEADER_BYTES + (size_t)r * BLOCK_K;
    __m512i sum = _mm512_setzero_si512();
    for (uint32_t begin = 0; begin < k; begin += BLOCK_K, out += BLOCK_BYTES) {
        const float *in = row + begin;
        /* prefetches the row behind this one: it is next, if rows are neighbours (quantized.h) */
        for (uint32_t i = 0; i < BLOCK_K; i += VECTOR)
            __builtin_prefetch(in + (size_t)k + i, 0, 2);
        if (k - begin >= BLOCK_K) {
            quantize(in, BLOCK_K, scale.inverse, out);
        } else {
            memset(out, 0, BLOCK_K);
            quantize(in, k - begin, scale.inverse, out);
        }
        __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(ones), "m"(*(const words *)out));
    }
    ((float *)unit)[r] = scale.scale;
    ((int32_t *)unit)[AMX_ROWS + r] = int4 ? 0 : -128 * _mm512_reduce_add_epi32(sum);
}

static void pack_tile(const float *const *rows, uint32_t count, uint32_t k, bool int4, void *tile)
{
    size_t unit = row_bytes(k, int4) * AMX_ROWS;
    for (uint32_t r = 0; r < count; r++)
        pack_row(rows[r], k, int4, (uint8_t *)tile + r / AMX_ROWS * unit, r % AMX_ROWS);
}

/* Adds a block of a unit times a block of the panel. */
#define ADD_BLOCK(DOT, ROWS, WEIGHTS)                                                              \
    do {                                                                                           \
        TILE_LOAD(4, ROWS, BLOCK_K);                                                               \
        TILE_LOAD(6, WEIGHTS, PANEL * 4);                                                          \
        TILE_LOAD(7, (WEIGHTS) + AMX_ROW_BYTES, PANEL * 4);                                        \
        DOT(0, 4, 6);                                                                              \
        DOT(1, 4, 7);                                                                              \
    } while (0)

/* --- int8 --- */

static void int8_unit(const struct quantized_product *product)
{
    const uint32_t steps = product->end_step - product->first_step, rest = steps % BLOCK_STEPS;
    const uint32_t whole = steps / BLOCK_STEPS;
    const uint8_t *weights = product->panel;
    const uint8_t *rows = (const uint8_t *)product->tile + HEADER_BYTES +
                          (size_t)(product->first_step / BLOCK_STEPS) * BLOCK_BYTES;
    struct errand errand = errand_of(product, whole ? whole : 1);
    if (product->first_step == 0)
        zero_sums(1);
    else
        load_sums((const int32_t *)product->partial, 1);
    for (uint32_t i = 0; i < whole; i++, rows += BLOCK_BYTES, weights += BLOCK_PANEL) {
        run_errand(&errand, product->out_stride);
        ADD_BLOCK(TILE_DOT_S8_U8, rows, weights);
    }
    if (rest) {
        _Alignas(64) uint8_t cut[BLOCK_PANEL];
        cut_block(weights, rest, cut);
        ADD_BLOCK(TILE_DOT_S8_U8, rows, cut);
    }
    if (product->end_step < product->steps) {
        store_sums((int32_t *)product->partial, 1);
        return;
    }
    _Alignas(64) int32_t sums[AMX_ROWS * PANEL];
    store_sums(sums, 1);
    finish_int8(product, sums, product->out,
                (const float *)(product->panel + (size_t)steps * 2 * QUANTIZED_STEP_BYTES));
}

static void multiply_int8(const struct quantized_product *product)
{
    if (product->side_by_side)
        int8_unit_of_panels(product);
    else if (product->rows > AMX_ROWS)
        int8_pairs(product, (product->rows + PAIR_ROWS - 1) / PAIR_ROWS);
    else
        int8_unit(product);
}

/* --- int4 --- */

/* Widens a step's bytes to those of two quads, each less 8. */
ALWAYS_INLINE void widen_step(const uint8_t *step, uint8_t *wide)
{
    const __m512i low = _mm512_set1_epi8(15), eight = _mm512_set1_epi8(8);
    __m512i w0 = _mm512_loadu_si512(step), w1 = _mm512_loadu_si512(step + 64);
    __m512i high0 = _mm512_srli_epi16(w0, 4), high1 = _mm512_srli_epi16(w1, 4);
    _mm512_storeu_si512(wide, _mm512_sub_epi8(_mm512_and_si512(w0, low), eight));
    _mm512_storeu_si512(wide + 64, _mm512_sub_epi8(_mm512_and_si512(w1, low), eight));
    _mm512_storeu_si512(wide + 128, _mm512_sub_epi8(_mm512_and_si512(high0, low), eight));
    _mm512_storeu_si512(wide + 192, _mm512_sub_epi8(_mm512_and_si512(high1, low), eight));
}

/* Widens the groups of a part. Behind a cut group old contents remain, which meet inputs of
 * zero. */
static void widen_part(const struct quantized_product *product, struct errand *errand)
{
    const uint8_t *panel = product->panel;
    uint8_t *wide = product->wide;
    for (uint32_t step = product->first_step; step < product->end_step; wide += INT4_WIDE_BYTES) {
        uint8_t *out = wide + (size_t)PANEL * 4;
        run_errand(errand, product->out_stride);
        for (uint32_t end = group_end(step, product->steps); step < end; step++) {
            widen_step(panel, out);
            panel += QUANTIZED_STEP_BYTES;
            out += 2 * QUANTIZED_STEP_BYTES;
        }
        ((floats *)wide)[0] = widen_bf16((const uint16_t *)panel);
        ((floats *)wide)[1] = widen_bf16((const uint16_t *)panel + VECTOR);
        panel += INT4_SCALE_BYTES;
    }
}

/* A group: its sums are in memory. */
struct group {
    const int32_t *sums;
    const float *scales;
    bool first; /* the first of all groups */
};

/* Adds rows first .. end - 1 of the group's sums, times its scales, to the partial sums. */
ALWAYS_INLINE void end_group(const struct group *group, float *partial, uint32_t first,
                             uint32_t end)
{
    const floats scale0 = ((const floats *)group->scales)[0];
    const floats scale1 = ((const floats *)group->scales)[1];
    const __mmask16 known = group->first ? 0 : 0xffff;
    for (uint32_t r = first; r < end; r++) {
        const ints *sums = (const ints *)(group->sums + (size_t)r * PANEL);
        floats *joined = (floats *)(partial + (size_t)r * PANEL);
        floats value0 = scaled_group(sums[0] + INT4_START, scale0);
        floats value1 = scaled_group(sums[1] + INT4_START, scale1);
        joined[0] = _mm512_mask_add_ps(value0, known, value0, joined[0]);
        joined[1] = _mm512_mask_add_ps(value1, known, value1, joined[1]);
    }
}

static void finish_int4(const struct quantized_product *product)
{
    const float *scales = product->tile;
    for (uint32_t r = 0; r < product->rows; r++) {
        floats scale = broadcast(scales[r]);
        const floats *partial = (const floats *)(product->partial + r * PANEL);
        float *out = product->out + r * product->out_stride;
        write_out(product, partial[0] * scale, out);
        write_out(product, partial[1] * scale, out + VECTOR);
    }
}

/* Multiplies one unit. A group's sums become floats between the blocks of the next group, half of
 * the rows after each block, since blocks wait for memory. */
static void int4_unit(const struct quantized_product *product, struct errand *errand)
{
    const uint32_t first_block = product->first_step / BLOCK_STEPS;
    const uint32_t blocks = block_count(product->end_step) - first_block;
    const uint8_t *rows =
        (const uint8_t *)product->tile + HEADER_BYTES + (size_t)first_block * BLOCK_BYTES;
    const uint8_t *wide = product->wide;
    const uint32_t half = product->rows / 2;
    _Alignas(64) int32_t sums[2][AMX_ROWS * PANEL]; /* in turns */
    struct group group = {0};                       /* the group with sums that wait */
    for (uint32_t block = 0; block < blocks; wide += INT4_WIDE_BYTES) {
        const uint8_t *weights = wide + (size_t)PANEL * 4;
        int32_t *kept = sums[block / BLOCKS_OF_GROUP % 2];
        zero_sums(1);
        run_errand(errand, product->out_stride);
        ADD_BLOCK(TILE_DOT_S8_S8, rows, weights);
        rows += BLOCK_BYTES;
        if (group.sums)
            end_group(&group, product->partial, 0, half);
        struct group next = {kept, (const float *)wide, first_block + block == 0};
        if (++block < blocks) {
            run_errand(errand, product->out_stride);
            ADD_BLOCK(TILE_DOT_S8_S8, rows, weights + BLOCK_PANEL);
            rows += BLOCK_BYTES;
            block++;
        }
        if (group.sums)
            end_group(&group, product->partial, half, product->rows);
        store_sums(kept, 1);
        group = next;
    }
    end_group(&group, product->partial, 0, product->rows);
    if (product->end_step == product->steps)
        finish_int4(product);
}

static void multiply_int4(const struct quantized_product *product)
{
    uint32_t blocks = block_count(product->end_step - product->first_step);
    uint32_t groups = group_count(product->end_step - product->first_step);
    uint32_t pairs = (product->rows + PAIR_ROWS - 1) / PAIR_ROWS;
    struct errand errand = errand_of(product, pairs * blocks + (product->widen ? groups : 0));
    if (product->widen)
        widen_part(product, &errand);
    if (product->rows > AMX_ROWS)
        int4_pairs(product, &errand, pairs);
    else
        int4_unit(product, &errand);
}

/* Fences: other threads see outputs past the caches before all later writes of this thread. */
static void end_products(void)
{
    amx_end();
    _mm_sfence();
}

const struct quantized_inner quantized_amx = {
    .name = "amx",
    .tile_rows = QUANTIZED_TILE_ROWS,
    .row_unit = AMX_ROWS,
    .pass_rows = QUANTIZED_MAX_ROWS,
    .pass_bytes = QUANTIZED_MAX_BYTES,
    .int8_parts = {.tiles = 3, .steps = INT8_PART_K / QUANTIZED_STEP},
    .int4_parts = {.tiles = 1, .steps = INT4_PART_K / QUANTIZED_STEP, .wide = 1},
    .speed = 6,
    .whole_blocks = true,
    .few = &quantized_avx512vnni,
    .int8_few_rows = 1,
    .int4_few_rows = 6,
    .int8_streams = QUANTIZED_AMX_STREAMS,
    .few_streams = QUANTIZED_VNNI_STREAMS,
    .row_bytes = row_bytes,
    .begin = amx_begin,
    .end = end_products,
    .pack_tile = pack_tile,
    .multiply_int8 = multiply_int8,
    .multiply_int4 = multiply_int4,
};
