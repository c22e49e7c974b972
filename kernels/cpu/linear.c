/* Linear layers of the bf16 backend; quantized.c has those of quantized weights.
 *
 * Weights are panels of PANEL outputs over all of K, [pair][PANEL][2] bf16, with N and K padded
 * with zeros: one layout for every number of rows. A call goes over blocks of at most LINEAR_ROWS
 * rows. Each block goes over as many K segments at a time as the packed inputs have room for. Such
 * a pass packs rows into tiles, then streams every panel once past them. Rows that need several
 * products share a part of a panel at a time, and more than two tiles also share the widening, if
 * the set widens. Few rows take all of K in one pass and read the weights in memory order. */
#include "kernels/cpu/cpu.h"

#include "common/base/u32.h"
#include "kernels/cpu/exp_fixed.h"

#include <string.h>

size_t cpu_linear_bytes(enum weight_type type, uint32_t n, uint32_t k)
{
    if (weight_type_is_fp8(type))
        return 0;
    if (weight_type_is_quantized(type))
        return quantized_linear_bytes(type, n, k);
    return (size_t)divide_up(n, PANEL) * divide_up(k, 2) * PANEL * sizeof(uint32_t);
}

/* Rows to be packed into a layer. */
struct load {
    struct linear *linear;
    uint32_t first_row, row_count;
    const char *rows;
    const float *scales;
};

/* Pairs of a panel that rows are written to in turn: their lines stay in the level 2 cache. */
#define LOAD_PAIRS 512

/* Packs rows of one panel. */
static void load_bf16(struct linear *linear, uint32_t first_row, uint32_t row_count,
                      const char *rows)
{
    size_t row_bytes = (size_t)linear->k * sizeof(uint16_t), whole = linear->k / 2;
    size_t pairs = divide_up(linear->k, 2);
    uint32_t *panel = (uint32_t *)linear->packed.address + first_row / PANEL * pairs * PANEL;
    panel += first_row % PANEL;
    for (size_t begin = 0; begin < whole; begin += LOAD_PAIRS) {
        size_t end = begin + LOAD_PAIRS < whole ? begin + LOAD_PAIRS : whole;
        for (uint32_t i = 0; i < row_count; i++)
            for (size_t pair = begin; pair < end; pair++)
                memcpy(&panel[pair * PANEL + i], rows + i * row_bytes + pair * sizeof *panel,
                       sizeof *panel);
    }
    for (uint32_t i = 0; whole < pairs && i < row_count; i++) { /* an odd K leaves half a pair */
        uint16_t last;
        memcpy(&last, rows + i * row_bytes + whole * sizeof *panel, sizeof last);
        panel[whole * PANEL + i] = last;
    }
}

static void load_panels(void *context, uint32_t thread, uint32_t first, uint32_t last)
{
    (void)thread;
    const struct load *load = context;
    struct linear *linear = load->linear;
    size_t row_bytes = weight_row_bytes(linear->type, linear->k);
    size_t row_scales = weight_row_scales(linear->type, linear->k);
    for (uint32_t i = first; i < last; i++) {
        uint32_t panel = load->first_row / PANEL + i, end = load->first_row + load->row_count;
        uint32_t row = panel * PANEL < load->first_row ? load->first_row : panel * PANEL;
        uint32_t count = min_u32(end - row, PANEL - row % PANEL);
        size_t skipped = row - load->first_row;
        const char *rows = load->rows + skipped * row_bytes;
        if (weight_type_is_quantized(linear->type))
            quantized_linear_load(linear, row, count, rows, load->scales + skipped * row_scales);
        else
            load_bf16(linear, row, count, rows);
    }
}

enum status cpu_linear_load(struct kernels *kernels, struct linear *linear, uint32_t first_row,
                            uint32_t row_count, const void *rows, const float *scales)
{
    struct cpu *self = kernels->state;
    struct load load = {linear, first_row, row_count, rows, scales};
    uint32_t panels = divide_up(first_row % PANEL + row_count, PANEL);
    pool_run(self->pool, panels, 1, load_panels, &load);
    return STATUS_OK;
}

void cpu_linear_row(const struct linear *linear, uint32_t n, float *out)
{
    if (weight_type_is_quantized(linear->type)) {
        quantized_linear_row(linear, n, out);
        return;
    }
    size_t pairs = divide_up(linear->k, 2);
    const uint16_t *lane =
        (const uint16_t *)linear->packed.address + (n / PANEL * pairs * PANEL + n % PANEL) * 2;
    for (size_t k = 0; k < linear->k; k++) {
        union float_bits wide = {.bits = (uint32_t)lane[k / 2 * (2 * PANEL) + k % 2] << 16};
        out[k] = wide.value;
    }
}

/* One pass: rows x K range, in tiles of equal height (or one row less). */
struct pass {
    const struct inner *inner;
    const struct linear *linear;
    const float *in; /* row 0 of the pass */
    float *out;
    uint8_t *tiles;
    struct linear_scratch *scratch; /* [threads] */
    uint32_t rows, tile_count;
    uint32_t part;   /* k of a segment that all tiles go past before the next part */
    bool wide;       /* parts are widened first */
    bool near_alone; /* weights are asked for into the level 1 cache alone */
    uint32_t k_begin, k_end;
    bool accumulate; /* adds to what `out` held before this pass */
};

static uint32_t tile_row(const struct pass *pass, uint32_t tile)
{
    return (uint32_t)((uint64_t)pass->rows * tile / pass->tile_count);
}

static uint8_t *tile_address(const struct pass *pass, uint32_t tile)
{
    size_t pairs = divide_up(pass->k_end - pass->k_begin, 2);
    return pass->tiles + tile_row(pass, tile) * pairs * TILE_BYTES_PER_PAIR;
}

static void pack_tiles(void *context, uint32_t thread, uint32_t first, uint32_t last)
{
    (void)thread;
    const struct pass *pass = context;
    for (uint32_t tile = first; tile < last; tile++) {
        uint32_t row = tile_row(pass, tile), count = tile_row(pass, tile + 1) - row;
        const float *rows[TILE_ROWS];
        for (uint32_t r = 0; r < count; r++)
            rows[r] = pass->in + (size_t)(row + r) * pass->linear->k + pass->k_begin;
        pass->inner->pack_tile(rows, count, pass->k_end - pass->k_begin, tile_address(pass, tile));
    }
}

/* Multiplies the last panel if N isn't a multiple of PANEL: through a buffer, since `multiply`
 * writes whole panels. */
static void multiply_cut_panel(const struct pass *pass, const struct tile_product *whole,
                               uint32_t outputs)
{
    float wide[TILE_ROWS * PANEL];
    struct tile_product product = *whole;
    product.add = false;
    product.out = wide;
    product.out_stride = PANEL;
    pass->inner->multiply(&product);
    for (uint32_t r = 0; r < whole->rows; r++)
        for (uint32_t n = 0; n < outputs; n++) {
            float *target = whole->out + r * whole->out_stride + n;
            *target = whole->add ? *target + wide[r * PANEL + n] : wide[r * PANEL + n];
        }
}

static const uint32_t *weights_at(const struct pass *pass, uint32_t panel, uint32_t k)
{
    const uint32_t *weights = pass->linear->packed.address;
    return weights + ((size_t)panel * divide_up(pass->linear->k, 2) + k / 2) * PANEL;
}

/* Multiplies all rows by k .. end - 1 of a panel, a part of a segment. */
static void multiply_part(const struct pass *pass, struct linear_scratch *scratch, uint32_t panel,
                          uint32_t k, uint32_t end)
{
    const struct linear *linear = pass->linear;
    const uint32_t *weights = weights_at(pass, panel, k);
    uint32_t pairs = divide_up(end - k, 2), outputs = min_u32(PANEL, linear->n - panel * PANEL);
    uint32_t done = k - pass->k_begin, segment_done = done % LINEAR_SEGMENT;
    bool ends = (end - pass->k_begin) % LINEAR_SEGMENT == 0 || end == pass->k_end;
    /* Weights to prefetch during the products. Several tiles share the lines that come after this
     * part: the next part of the panel, or the first of the next panel. One tile without parts asks
     * a little ahead in the same stream. */
    const uint32_t *after = end < pass->k_end ? weights_at(pass, panel, end)
                                              : weights_at(pass, panel + 1, pass->k_begin);
    bool streams = pass->tile_count == 1 && pass->part == LINEAR_SEGMENT;
    const char *next = streams ? (const char *)weights + LINEAR_AHEAD_BYTES : (const char *)after;
    size_t part_bytes = (size_t)pairs * PANEL * sizeof(uint32_t);
    if (pass->wide)
        pass->inner->widen(weights, pairs, scratch->wide);
    for (uint32_t tile = 0; tile < pass->tile_count; tile++) {
        uint32_t row = tile_row(pass, tile), rows = tile_row(pass, tile + 1) - row;
        struct tile_product product = {
            .panel = weights,
            .wide = pass->wide ? scratch->wide : NULL,
            .tile = tile_address(pass, tile) +
                    (size_t)done / 2 * rows * pass->inner->tile_bytes_per_pair,
            .rows = rows,
            .pairs = pairs,
            .resume = segment_done > 0,
            .pause = !ends,
            .sums = scratch->sums + (size_t)row * PANEL,
            .add = pass->accumulate || done >= LINEAR_SEGMENT,
            .out = pass->out + (size_t)row * linear->n + (size_t)panel * PANEL,
            .out_stride = linear->n,
            .next = pass->near_alone ? NULL : next + part_bytes * tile / pass->tile_count,
            .next_step = divide_up(PANEL * sizeof(uint32_t), pass->tile_count)};
        if (outputs == PANEL || product.pause)
            pass->inner->multiply(&product);
        else
            multiply_cut_panel(pass, &product, outputs);
    }
}

static void multiply_panels(void *context, uint32_t thread, uint32_t first, uint32_t last)
{
    const struct pass *pass = context;
    for (uint32_t panel = first; panel < last; panel++)
        for (uint32_t k = pass->k_begin; k < pass->k_end; k += pass->part)
            multiply_part(pass, &pass->scratch[thread], panel, k,
                          k + min_u32(pass->part, pass->k_end - k));
}

#define SHARE_WORK (8u << 20) /* multiply-adds of a share: some 20 us, at least one panel */

uint32_t linear_grain(uint32_t threads, uint32_t panels, uint64_t panel_work, uint64_t least_work)
{
    if (!panel_work)
        return 1;
    uint32_t least = (uint32_t)(least_work / panel_work) + 1;
    uint32_t most = (uint32_t)(SHARE_WORK / panel_work) + 1;
    uint32_t even = panels / (threads * 32);
    return even < least ? least : min_u32(even, most);
}

bool linear_near_alone(const struct cpu *cpu, uint32_t near_rows, uint32_t rows)
{
    return !cpu->has_near_room && rows > 1 && rows <= near_rows;
}

bool linear_past_caches(const float *out, uint32_t n, uint32_t rows)
{
    return rows >= 64 && (uintptr_t)out % 64 == 0 && n % (64 / sizeof *out) == 0;
}

/* Returns how many fewer units there are than panels in the first `threads` regions. */
static uint32_t joined(const struct panel_units *units, uint32_t threads)
{
    return threads * units->run * (units->streams - 1);
}

struct panel_unit panel_unit_at(const struct panel_units *units, uint32_t number)
{
    uint32_t of_whole = units->whole - joined(units, units->threads);
    if (number >= of_whole)
        return (struct panel_unit){.first = units->whole + number - of_whole};
    /* Region t begins at panel whole * t / threads, so at unit of_whole * t / threads. */
    uint32_t t = (uint32_t)(((uint64_t)units->threads * (number + 1) - 1) / of_whole);
    uint32_t begin = (uint32_t)((uint64_t)units->whole * t / units->threads);
    uint32_t place = number - (begin - joined(units, t));
    if (place < units->run)
        return (struct panel_unit){.first = begin + place,
                                   .apart = units->streams > 1 ? units->run : 0};
    return (struct panel_unit){.first = begin + units->run * (units->streams - 1) + place};
}

struct panel_units linear_units(uint32_t threads, uint32_t n, uint32_t streams)
{
    uint32_t whole = n / PANEL;
    struct panel_units units = {.threads = threads, .streams = 1, .whole = whole};
    if (streams && whole / threads >= streams)
        units.streams = streams;
    units.run = whole / threads / units.streams;
    units.count = whole - joined(&units, threads) + (n % PANEL != 0);
    return units;
}

static void run_pass(struct cpu *self, struct pass *pass)
{
    uint64_t width = pass->k_end - pass->k_begin;
    /* Packing is a small part of the work. Waking threads for a few rows costs more. */
    uint32_t pack_grain = pass->rows * width < LINEAR_INLINE_WORK ? pass->tile_count : 1;
    pool_run(self->pool, pass->tile_count, pack_grain, pack_tiles, pass);
    uint32_t panels = divide_up(pass->linear->n, PANEL);
    uint32_t grain =
        linear_grain(self->threads, panels, pass->rows * width * PANEL, LINEAR_INLINE_WORK);
    pool_run(self->pool, panels, grain, multiply_panels, pass);
}

_Static_assert(LINEAR_SEGMENT % LINEAR_PART == 0 && LINEAR_SEGMENT % LINEAR_WIDE_PART == 0,
               "segments end where parts do");

enum status cpu_linear(struct kernels *kernels, const struct linear *linear,
                       const struct buffer *in, uint32_t rows, bool accumulate, struct buffer *out)
{
    struct cpu *self = kernels->state;
    if (weight_type_is_quantized(linear->type)) {
        quantized_linear(self, linear, in->address, rows, accumulate, out->address);
        return STATUS_OK;
    }
    if (self->amx) {
        linear_amx(self, linear, in->address, rows, accumulate, out->address);
        return STATUS_OK;
    }
    uint32_t blocks = divide_up(rows, LINEAR_ROWS);
    for (uint32_t block = 0; block < blocks; block++) {
        uint32_t first = (uint32_t)((uint64_t)rows * block / blocks);
        uint32_t count = (uint32_t)((uint64_t)rows * (block + 1) / blocks) - first;
        uint32_t segments = LINEAR_ROWS / count; /* segments side by side */
        uint32_t step = (uint32_t)min_u32(segments, UINT32_MAX / LINEAR_SEGMENT) * LINEAR_SEGMENT;
        uint32_t tile_count = divide_up(count, TILE_ROWS);
        for (uint32_t k = 0; k < linear->k; k += min_u32(step, linear->k - k)) {
            struct pass pass = {.inner = self->inner,
                                .linear = linear,
                                .in = (const float *)in->address + (size_t)first * linear->k,
                                .out = (float *)out->address + (size_t)first * linear->n,
                                .tiles = self->tiles,
                                .scratch = self->linear,
                                .rows = count,
                                .tile_count = tile_count,
                                .part = count <= self->inner->whole_rows ? LINEAR_SEGMENT
                                        : self->inner->widen             ? LINEAR_WIDE_PART
                                                                         : LINEAR_PART,
                                .wide = self->inner->widen && tile_count > 2,
                                .near_alone = linear_near_alone(self, self->inner->near_rows, rows),
                                .k_begin = k,
                                .k_end = k + min_u32(step, linear->k - k),
                                .accumulate = accumulate || k > 0};
            run_pass(self, &pass);
        }
    }
    return STATUS_OK;
}
