/* Pairs of units of rows, one after the other, times a panel's steps.
 *
 * A store of sums waits for the products behind it, and all that comes after waits with it. So a
 * pair's last sums are stored between the first products of what comes next, tile by tile, and
 * become floats meanwhile. */
#ifndef BATON_KERNELS_CPU_INNER_QUANTIZED_AMX_PAIRS_H
#define BATON_KERNELS_CPU_INNER_QUANTIZED_AMX_PAIRS_H

#include "kernels/cpu/inner/quantized_amx.h"

#define PAIR_ROWS (2 * AMX_ROWS)
#define PAIR_SUMS (PAIR_ROWS * PANEL)

/* A block of both units, `unit` bytes apart, times one of the panel; BEGIN(tile) comes before the
 * first product into a tile of sums. Rows pass the first level by, where what is read of the panel
 * stays. */
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

/* Rows first .. end - 1 of a pair, the rows of the product from `row` on. */
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

/* A group whose sums are in memory, or, of the last one, still in tiles. */
struct pair_group {
    int32_t *sums; /* NULL: none */
    const float *scales;
    float *partial;
    uint32_t row; /* of the product: the pair's first */
    bool first, last;
};

/* Rows first .. end - 1 of its sums, times their scales, join the partial ones, and with the last
 * group become outputs. */
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

/* Between a group's products: what the one before left in tiles is stored, and that of the one
 * before it ends, four rows at a time. */
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

#endif
