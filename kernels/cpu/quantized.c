/* Linear layers of int8 and int4 weights. A call goes over blocks of as many rows as the packed
 * inputs have room for, over all of K. It quantizes and packs the rows into tiles, then streams
 * every panel once past them. Many tiles go past a panel part by part, so that a part stays in the
 * level 1 cache, and share its widening. Few rows read the weights in memory order, or several
 * panels side by side if the CPU has tiles. */
#include "kernels/cpu/cpu.h"

#include "common/base/u32.h"
#include "kernels/cpu/inner/bf16.h"
#include "kernels/cpu/isa.h"

#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers move in words of bytes");
_Static_assert(QUANTIZED_GROUP == WEIGHT_GROUP, "the group is part of the contract");
_Static_assert(QUANTIZED_MAX == WEIGHT_MAX_QUANTIZED, "so is what is refused");
/* Room for one row of the longest K: its scale, a sum for each group, two words for four inputs.
 * AMX: sixteen rows of one word. */
_Static_assert(QUANTIZED_PASS_BYTES >=
                   4 + WEIGHT_MAX_QUANTIZED_K / WEIGHT_GROUP * 4 + WEIGHT_MAX_QUANTIZED_K * 2,
               "the packed inputs have room for a row");
_Static_assert(QUANTIZED_MAX_BYTES >= 16 * (8 + WEIGHT_MAX_QUANTIZED_K),
               "the packed inputs have room for a tile's rows");
_Static_assert(LINEAR_TILES_BYTES >= QUANTIZED_MAX_BYTES &&
                   LINEAR_TILES_BYTES >= QUANTIZED_PASS_BYTES &&
                   QUANTIZED_MAX_ROWS >= QUANTIZED_PASS_ROWS,
               "there is room for a pass");

const struct quantized_inner *quantized_inner_for(const struct inner *inner)
{
#if defined(__x86_64__)
    if (inner == &inner_avx2)
        return &quantized_avx2;
    if (inner != &inner_baseline && isa_allows_amx())
        return &quantized_amx;
    if (inner != &inner_baseline)
        return isa_reports_avx512vnni() ? &quantized_avx512vnni : &quantized_avx512;
#endif
    (void)inner;
    return &quantized_baseline;
}

/* --- panels --- */

#define GROUP_STEPS (QUANTIZED_GROUP / QUANTIZED_STEP)
#define GROUP_BYTES (GROUP_STEPS * QUANTIZED_STEP_BYTES + INT4_SCALE_BYTES)

static size_t panel_bytes(enum weight_type type, uint32_t k)
{
    size_t steps = divide_up(k, QUANTIZED_STEP);
    if (type == WEIGHT_INT8)
        return steps * 2 * QUANTIZED_STEP_BYTES + INT8_SCALE_BYTES;
    return steps * QUANTIZED_STEP_BYTES + (size_t)divide_up(k, QUANTIZED_GROUP) * INT4_SCALE_BYTES;
}

static uint8_t *panel_of(const struct linear *linear, uint32_t n)
{
    return (uint8_t *)linear->packed.address + n / PANEL * panel_bytes(linear->type, linear->k);
}

/* Returns the offset of an int4 group's scales in its panel. */
static size_t int4_scales_at(uint32_t k, uint32_t group)
{
    uint32_t steps = divide_up(k, QUANTIZED_STEP) - group * GROUP_STEPS;
    return (size_t)group * GROUP_BYTES + min_u32(steps, GROUP_STEPS) * QUANTIZED_STEP_BYTES;
}

size_t quantized_linear_bytes(enum weight_type type, uint32_t n, uint32_t k)
{
    return divide_up(n, PANEL) * panel_bytes(type, k);
}

static void load_int8(const struct linear *linear, uint32_t n, const uint8_t *row, float scale)
{
    uint8_t *lane = panel_of(linear, n) + n % PANEL * 4;
    uint32_t word, whole = linear->k / 4 * 4, rest = linear->k % 4;
    for (uint32_t k = 0; k < whole; k += 4, lane += QUANTIZED_STEP_BYTES) {
        memcpy(&word, row + k, 4);
        word ^= 0x80808080; /* + 128 */
        memcpy(lane, &word, 4);
    }
    for (uint32_t j = 0; j < rest; j++)
        lane[j] = row[whole + j] ^ 0x80;
    float *scales = (float *)(panel_of(linear, n) + panel_bytes(WEIGHT_INT8, linear->k)) - PANEL;
    scales[n % PANEL] = scale;
}

/* Spreads the four numbers in the low 16 bits to a byte each. */
static uint32_t spread(uint32_t numbers)
{
    uint32_t pairs = (numbers | numbers << 8) & 0x00ff00ff;
    return (pairs | pairs << 4) & 0x0f0f0f0f;
}

/* Returns a step of a packed row, from its first byte, in the form of a panel. The last step may be
 * shorter. */
static uint32_t int4_step(const uint8_t *row, uint32_t count)
{
    uint32_t numbers = 0;
    if (count >= QUANTIZED_STEP) {
        memcpy(&numbers, row, 4);
    } else {
        memcpy(&numbers, row, (count + 1) / 2);
        numbers &= UINT32_MAX >> (32 - 4 * count);
    }
    return spread(numbers & 0xffff) | spread(numbers >> 16) << 4;
}

static void load_int4(const struct linear *linear, uint32_t n, const uint8_t *row,
                      const float *scales)
{
    uint8_t *panel = panel_of(linear, n);
    for (uint32_t group = 0, k = 0; k < linear->k; group++) {
        uint8_t *lane = panel + (size_t)group * GROUP_BYTES + n % PANEL * 4;
        uint32_t end = min_u32(linear->k, k + QUANTIZED_GROUP);
        for (; k < end; k += QUANTIZED_STEP, lane += QUANTIZED_STEP_BYTES) {
            uint32_t word = int4_step(row + k / 2, end - k);
            memcpy(lane, &word, 4);
        }
        k = end;
        uint16_t *line = (uint16_t *)(panel + int4_scales_at(linear->k, group));
        line[n % PANEL] = round_one(scales[group]);
    }
}

void quantized_linear_load(struct linear *linear, uint32_t first_row, uint32_t row_count,
                           const void *rows, const float *scales)
{
    size_t row_bytes = weight_row_bytes(linear->type, linear->k);
    size_t row_scales = weight_row_scales(linear->type, linear->k);
    for (size_t i = 0; i < row_count; i++) {
        const uint8_t *row = (const uint8_t *)rows + i * row_bytes;
        if (linear->type == WEIGHT_INT8)
            load_int8(linear, first_row + (uint32_t)i, row, scales[i]);
        else
            load_int4(linear, first_row + (uint32_t)i, row, scales + i * row_scales);
    }
}

void quantized_linear_row(const struct linear *linear, uint32_t n, float *out)
{
    const uint8_t *panel = panel_of(linear, n), *lane = panel + n % PANEL * 4;
    if (linear->type == WEIGHT_INT8) {
        const float *scales = (const float *)(panel + panel_bytes(WEIGHT_INT8, linear->k)) - PANEL;
        for (uint32_t k = 0; k < linear->k; k++)
            out[k] = (float)(lane[(size_t)(k / 4) * QUANTIZED_STEP_BYTES + k % 4] - 128) *
                     scales[n % PANEL];
        return;
    }
    for (uint32_t k = 0; k < linear->k; k++) {
        uint32_t group = k / QUANTIZED_GROUP, step = k % QUANTIZED_GROUP / QUANTIZED_STEP;
        const uint16_t *line = (const uint16_t *)(panel + int4_scales_at(linear->k, group));
        union float_bits scale = {.bits = (uint32_t)line[n % PANEL] << 16};
        uint8_t both =
            lane[(size_t)group * GROUP_BYTES + (size_t)step * QUANTIZED_STEP_BYTES + k % 4];
        out[k] = (float)((both >> (k % 8 / 4 * 4) & 15) - 8) * scale.value;
    }
}

/* --- products --- */

/* A block of rows, in tiles of equal height (or one row_unit less). */
struct block {
    const struct quantized_inner *inner;
    const struct linear *linear;
    const float *in; /* row 0 of the block */
    float *out;
    uint8_t *tiles;
    struct linear_scratch *scratch; /* [threads] */
    size_t row_bytes;               /* bytes of a packed row */
    uint32_t steps, part; /* steps of a panel; steps that all tiles go past before the next */
    bool wide;            /* int4: the products of the first tile widen a part for the others */
    /* more than one stream: one unit of rows reads several panels side by side */
    struct panel_units units;
    uint32_t rows, tile_count;
    bool accumulate;
    bool near_alone;  /* weights are asked for into the level 1 cache alone */
    bool past_caches; /* outputs are written once and exceed the caches */
};

static uint32_t tile_row(const struct block *block, uint32_t tile)
{
    uint32_t unit = block->inner->row_unit, units = divide_up(block->rows, unit);
    return min_u32(block->rows, (uint32_t)((uint64_t)units * tile / block->tile_count) * unit);
}

static void pack_tiles(void *context, uint32_t thread, uint32_t first, uint32_t last)
{
    (void)thread;
    const struct block *block = context;
    for (uint32_t tile = first; tile < last; tile++) {
        uint32_t row = tile_row(block, tile), count = tile_row(block, tile + 1) - row;
        const float *rows[QUANTIZED_TILE_ROWS];
        for (uint32_t r = 0; r < count; r++)
            rows[r] = block->in + (size_t)(row + r) * block->linear->k;
        block->inner->pack_tile(rows, count, block->linear->k, block->linear->type == WEIGHT_INT4,
                                block->tiles + row * block->row_bytes);
    }
}

static void multiply(const struct block *block, const struct quantized_product *product)
{
    if (block->linear->type == WEIGHT_INT8)
        block->inner->multiply_int8(product);
    else
        block->inner->multiply_int4(product);
}

/* Multiplies the last panel if N isn't a multiple of PANEL: through a buffer, since products are
 * whole panels. */
static void multiply_cut_panel(const struct block *block, const struct quantized_product *whole,
                               uint32_t outputs)
{
    float wide[QUANTIZED_TILE_ROWS * PANEL];
    struct quantized_product product = *whole;
    product.add = false;
    product.out = wide;
    product.out_stride = PANEL;
    multiply(block, &product);
    for (uint32_t r = 0; r < whole->rows; r++)
        for (uint32_t n = 0; n < outputs; n++) {
            float *target = whole->out + r * whole->out_stride + n;
            *target = whole->add ? *target + wide[r * PANEL + n] : wide[r * PANEL + n];
        }
}

/* Returns the weights of a step; int4: of the first step of a group. */
static const uint8_t *weights_at(const struct block *block, uint32_t panel, uint32_t step)
{
    const uint8_t *weights = panel_of(block->linear, panel * PANEL);
    if (block->linear->type == WEIGHT_INT8)
        return weights + (size_t)step * 2 * QUANTIZED_STEP_BYTES;
    return weights + (size_t)(step / GROUP_STEPS) * GROUP_BYTES;
}

/* Multiplies all rows by the part of a panel that begins at `step`. */
static void multiply_part(const struct block *block, struct linear_scratch *scratch, uint32_t panel,
                          uint32_t step)
{
    const struct linear *linear = block->linear;
    const uint8_t *weights = weights_at(block, panel, step);
    uint32_t end = step + min_u32(block->part, block->steps - step);
    uint32_t outputs = min_u32(PANEL, linear->n - panel * PANEL);
    /* Weights to prefetch during the products. One tile asks a little ahead. Several tiles share
     * the lines that come after this part. */
    const uint8_t *after =
        end < block->steps ? weights_at(block, panel, end) : weights_at(block, panel + 1, 0);
    const uint8_t *next = block->tile_count == 1 ? weights + LINEAR_AHEAD_BYTES : after;
    size_t bytes = (size_t)(after - weights);
    uint32_t each = block->inner->whole_blocks && outputs == PANEL ? block->tile_count : 1;
    for (uint32_t tile = 0; tile < block->tile_count; tile += each) {
        uint32_t row = tile_row(block, tile), rows = tile_row(block, tile + each) - row;
        size_t done = bytes * tile / block->tile_count;
        struct quantized_product product = {
            .panel = weights,
            .tile = block->tiles + row * block->row_bytes,
            .rows = rows,
            .steps = block->steps,
            .first_step = step,
            .end_step = end,
            .wide = block->wide ? scratch->wide_numbers : NULL,
            .widen = tile == 0,
            .add = block->accumulate,
            .past_caches = block->past_caches && outputs == PANEL,
            .out = block->out + (size_t)row * linear->n + (size_t)panel * PANEL,
            .out_stride = linear->n,
            .partial = scratch->sums + (size_t)row * PANEL,
            .next = block->near_alone ? NULL : next + done,
            .next_step = QUANTIZED_STEP_BYTES / block->tile_count,
            .next_bytes = bytes * (tile + each) / block->tile_count - done};
        if (outputs == PANEL || end < block->steps)
            multiply(block, &product);
        else
            multiply_cut_panel(block, &product, outputs);
    }
}

/* Multiplies one unit of rows by panels side by side. If memory is far away, a core has as many
 * lines on their way as it has streams to look ahead in. */
static void multiply_streams(const struct block *block, struct panel_unit unit)
{
    const struct linear *linear = block->linear;
    uint32_t first = unit.first, apart = unit.apart;
    multiply(block, &(struct quantized_product){.panel = panel_of(linear, first * PANEL),
                                                .tile = block->tiles,
                                                .rows = block->rows,
                                                .steps = block->steps,
                                                .end_step = block->steps,
                                                .add = block->accumulate,
                                                .out = block->out + (size_t)first * PANEL,
                                                .out_stride = linear->n,
                                                .side_by_side = true,
                                                .panels_apart =
                                                    apart * panel_bytes(linear->type, linear->k),
                                                .outs_apart = (size_t)apart * PANEL});
}

static void multiply_units(void *context, uint32_t thread, uint32_t first, uint32_t last)
{
    const struct block *block = context;
    if (block->inner->begin)
        block->inner->begin();
    for (uint32_t i = first; i < last; i++) {
        struct panel_unit unit = panel_unit_at(&block->units, i);
        if (unit.apart)
            multiply_streams(block, unit);
        for (uint32_t step = 0; !unit.apart && step < block->steps; step += block->part)
            multiply_part(block, &block->scratch[thread], unit.first, step);
    }
    if (block->inner->end)
        block->inner->end();
}

#define INLINE_WORK 131072u /* multiply-adds below which a second thread costs more than it gives */

static void run_block(struct cpu *self, struct block *block)
{
    uint64_t width = block->linear->k;
    /* Quantizing is a small part of the work. Waking threads for a few rows costs more. */
    uint32_t pack_grain = block->rows * width < INLINE_WORK ? block->tile_count : 1;
    pool_run(self->pool, block->tile_count, pack_grain, pack_tiles, block);
    /* Few rows are bound by reading the weights. */
    uint64_t panel_work = divide_up(block->rows, block->inner->speed) * width * PANEL;
    uint32_t grain = linear_grain(self->threads, block->units.count,
                                  panel_work * block->units.streams, INLINE_WORK);
    pool_run(self->pool, block->units.count, grain, multiply_units, block);
}

/* Returns the most rows of a block: whole tiles, or whole units of rows in one tile. */
static uint32_t block_rows(const struct quantized_inner *inner, size_t row_bytes)
{
    uint32_t fit = (uint32_t)(inner->pass_bytes / row_bytes);
    fit = min_u32(fit, inner->pass_rows);
    uint32_t multiple = fit > inner->tile_rows ? inner->tile_rows : inner->row_unit;
    return fit / multiple * multiple;
}

void quantized_linear(struct cpu *self, const struct linear *linear, const float *in, uint32_t rows,
                      bool accumulate, float *out)
{
    const struct quantized_inner *inner = self->quantized;
    bool int4 = linear->type == WEIGHT_INT4;
    uint32_t streams = int4 ? 1 : inner->int8_streams;
    if (inner->few && rows <= (int4 ? inner->int4_few_rows : inner->int8_few_rows)) {
        streams = inner->few_streams;
        inner = inner->few;
    }
    const struct quantized_parts *parts = int4 ? &inner->int4_parts : &inner->int8_parts;
    uint32_t steps = divide_up(linear->k, QUANTIZED_STEP);
    size_t row_bytes = inner->row_bytes(linear->k, int4);
    uint32_t blocks = divide_up(rows, block_rows(inner, row_bytes));
    for (uint32_t b = 0; b < blocks; b++) {
        uint32_t first = (uint32_t)((uint64_t)rows * b / blocks);
        uint32_t count = (uint32_t)((uint64_t)rows * (b + 1) / blocks) - first;
        uint32_t tile_count = divide_up(count, inner->tile_rows);
        bool shared = parts->tiles && tile_count >= parts->tiles;
        struct block block = {
            .inner = inner,
            .linear = linear,
            .in = in + (size_t)first * linear->k,
            .out = out + (size_t)first * linear->n,
            .tiles = self->tiles,
            .scratch = self->linear,
            .row_bytes = row_bytes,
            .steps = steps,
            .part = shared ? parts->steps : steps,
            .wide = shared && parts->wide && tile_count >= parts->wide,
            .units = linear_units(self->threads, linear->n, rows > inner->row_unit ? 1 : streams),
            .rows = count,
            .tile_count = tile_count,
            .accumulate = accumulate,
            .near_alone = !int4 && linear_near_alone(self, inner->int8_near_rows, rows),
            .past_caches =
                inner->whole_blocks && !accumulate && linear_past_caches(out, linear->n, count)};
        run_block(self, &block);
    }
}
