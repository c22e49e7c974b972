/* Quantized products by AMX: 16 rows times 16 outputs times 64 k an instruction. A product is of
 * units of rows, two beside each other where there are two: four tiles of sums, two of rows, two of
 * weights. The sums go through memory to become floats. One unit alone is here; pairs are in
 * quantized_amx_pairs.h. int4 is always widened, to signed numbers, so that a group's sum begins at
 * zero. */
#include "kernels/cpu/inner/quantized_amx_pairs.h"
#include "kernels/cpu/inner/quantized_amx_streams.h"

#define BLOCKS_OF_GROUP (QUANTIZED_GROUP / BLOCK_K)
/* Of a panel: what stays in a level 1 cache of 48 KiB, 32 KiB of it, and of int4 half of that
 * beside sums of two groups. */
#define INT8_PART_K 1024
#define INT4_PART_K 512

_Static_assert(2 * AMX_ROWS == PANEL && 2 * AMX_ROWS == QUANTIZED_TILE_ROWS, "two by two tiles");

static size_t row_bytes(uint32_t k, bool int4)
{
    (void)int4;
    return unit_bytes((k + QUANTIZED_STEP - 1) / QUANTIZED_STEP) / AMX_ROWS;
}

/* --- rows --- */

/* Row r of a unit. */
static void pack_row(const float *row, uint32_t k, bool int4, uint8_t *unit, uint32_t r)
{
    const __m512i ones = _mm512_set1_epi8(1);
    struct row_scale scale = row_scale_of(row, k);
    int8_t *out = (int8_t *)unit + HEADER_BYTES + (size_t)r * BLOCK_K;
    __m512i sum = _mm512_setzero_si512();
    for (uint32_t begin = 0; begin < k; begin += BLOCK_K, out += BLOCK_BYTES) {
        const float *in = row + begin;
        /* of the row behind this one, whose maximum is looked for next, if rows are neighbours
         * (quantized.h) */
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

/* A block of a unit times one of the panel. */
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

/* A step's bytes to those of two quads, each less 8. */
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

/* The part's groups. Behind a cut one remains what lay there: it meets inputs that are zero. */
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

/* A group whose sums are in memory. */
struct group {
    const int32_t *sums;
    const float *scales;
    bool first; /* of all */
};

/* Rows first .. end - 1 of its sums, times its scales, join the partial ones. */
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

/* A group's sums become floats between the blocks of the next one, half of the rows behind each,
 * since those wait for memory. */
static void int4_unit(const struct quantized_product *product, struct errand *errand)
{
    const uint32_t first_block = product->first_step / BLOCK_STEPS;
    const uint32_t blocks = block_count(product->end_step) - first_block;
    const uint8_t *rows =
        (const uint8_t *)product->tile + HEADER_BYTES + (size_t)first_block * BLOCK_BYTES;
    const uint8_t *wide = product->wide;
    const uint32_t half = product->rows / 2;
    _Alignas(64) int32_t sums[2][AMX_ROWS * PANEL]; /* in turns */
    struct group group = {0};                       /* that waits */
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

/* Outputs past the caches are seen before what is written from here on. */
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
