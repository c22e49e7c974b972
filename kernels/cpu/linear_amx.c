/* Linear layers of bf16 weights by AMX, on the panels of linear.c.
 *
 * A call goes over blocks of at most MOST_ROWS rows. Each block goes over as many K segments at a
 * time as the packed inputs have room for. Such a pass packs the rows into tiles, then streams
 * every panel once past them, two tiles at a time. A step of products needs as many tiles of inputs
 * as of weights, so both must come from the level 2 cache at least. The inputs stay there, and the
 * next panel is brought there meanwhile. Few rows take all of K in one pass and read the weights in
 * memory order. One row uses vectors and reads several panels side by side. */
#include "kernels/cpu/cpu.h"

#if defined(__x86_64__)

#include "common/base/u32.h"
#include "kernels/cpu/host_memory.h"
#include "kernels/cpu/inner/linear_amx.h"

#include <stdlib.h>
#include <string.h>

/* Rows of one segment: their packed inputs stay in a 2 MiB level 2 cache, beside two panels. More
 * segments, fewer rows. */
#define MOST_ROWS 512

/* Rows of a block that takes all its segments in one pass. This is better than writing outputs once
 * a segment and reading them again. */
#define FEWER_ROWS 256

/* K of a part of a segment. All tiles go past one part before the next, so that the part of a panel
 * stays in the level 1 cache. */
#define PART 512

/* Scratch of one thread for one panel. */
struct thread_scratch {
    _Alignas(64) float sums[MOST_ROWS * PANEL]; /* sums of one segment */
    float totals[MOST_ROWS * PANEL];            /* sums of all segments so far */
    uint32_t last[AMX_STEP_WORDS];              /* weights of a cut step */
};

#define TILES_BYTES ((size_t)MOST_ROWS * LINEAR_SEGMENT * sizeof(uint16_t))

/* Most K of one row by vectors: its scratch holds the tile and the numbers as floats. */
#define MOST_STREAMED_K (TILES_BYTES / (sizeof(uint16_t) + sizeof(float)))

struct linear_amx {
    _Alignas(64) uint8_t tiles[TILES_BYTES];
    struct thread_scratch threads[];
};

#define HUGE_PAGE ((size_t)2 << 20) /* tiles in small pages would miss in the TLB */

struct linear_amx *linear_amx_new(uint32_t threads)
{
    size_t bytes = sizeof(struct linear_amx) + threads * sizeof(struct thread_scratch);
    return host_memory_take(bytes > HUGE_PAGE ? bytes : HUGE_PAGE);
}

void linear_amx_free(struct linear_amx *scratch)
{
    free(scratch);
}

/* One pass: rows x K range. */
struct pass {
    const struct linear *linear;
    struct linear_amx *scratch;
    const float *in; /* row 0 of the pass */
    float *out;
    uint32_t rows, tile_count, height;
    uint32_t k_begin, k_end;
    bool accumulate;  /* adds to what `out` held before this pass */
    bool past_caches; /* outputs are complete and exceed the caches */
    bool streams;     /* one row of whole steps: reads several panels side by side */
    struct panel_units units;
};

static uint8_t *tile_address(const struct pass *pass, uint32_t tile)
{
    size_t steps = divide_up(pass->k_end - pass->k_begin, AMX_STEP);
    return pass->scratch->tiles + tile * steps * pass->height * AMX_ROW_BYTES;
}

/* Returns the one row as floats, behind its tile. */
static float *row_address(const struct pass *pass)
{
    return (float *)tile_address(pass, 1);
}

static void pack_tiles(void *context, uint32_t thread, uint32_t first, uint32_t last)
{
    (void)thread;
    const struct pass *pass = context;
    for (uint32_t tile = first; tile < last; tile++) {
        uint32_t row = tile * AMX_ROWS, count = min_u32(AMX_ROWS, pass->rows - row);
        const float *rows[AMX_ROWS];
        for (uint32_t r = 0; r < count; r++)
            rows[r] = pass->in + (size_t)(row + r) * pass->linear->k + pass->k_begin;
        amx_pack(rows, count, pass->k_end - pass->k_begin, pass->height, tile_address(pass, tile));
    }
}

static const uint32_t *weights_at(const struct pass *pass, uint32_t panel, uint32_t k)
{
    const uint32_t *weights = pass->linear->packed.address;
    return weights + ((size_t)panel * divide_up(pass->linear->k, 2) + k / 2) * PANEL;
}

/* Copies the weights of a cut last step and pads them with zeros. NULL: all steps are whole. */
static const uint32_t *cut_step(const uint32_t *weights, uint32_t width, uint32_t *last)
{
    uint32_t rest = width % AMX_STEP;
    if (!rest)
        return NULL;
    size_t pairs = divide_up(rest, 2);
    memcpy(last, weights + (size_t)width / AMX_STEP * AMX_STEP_WORDS, pairs * PANEL * sizeof *last);
    memset(last + pairs * PANEL, 0, (AMX_STEP / 2 - pairs) * PANEL * sizeof *last);
    return last;
}

/* A part of a panel: k .. end - 1, inside one segment. */
struct part {
    const struct pass *pass;
    struct thread_scratch *scratch;
    uint32_t panel, k, end;
    bool first, last; /* the first or last segment of the pass */
    bool is_total;    /* the segment's sums become the totals as they are */
    bool adds;        /* the segment ends here: its sums are added to the totals */
};

static struct part part_of(const struct pass *pass, struct thread_scratch *scratch, uint32_t panel,
                           uint32_t k, uint32_t width)
{
    uint32_t end = k + min_u32(width, pass->k_end - k), done = end - pass->k_begin;
    struct part part = {.pass = pass, .scratch = scratch, .panel = panel, .k = k, .end = end};
    part.first = done <= LINEAR_SEGMENT;
    part.last =
        divide_up(done, LINEAR_SEGMENT) == divide_up(pass->k_end - pass->k_begin, LINEAR_SEGMENT);
    part.is_total = part.first && !part.last && !pass->accumulate;
    part.adds = (done % LINEAR_SEGMENT == 0 || end == pass->k_end) && !part.is_total;
    return part;
}

/* Describes how a pair of tiles adds its sums to the totals or outputs when its segment ends. */
static struct amx_sums pair_sums(const struct part *part, uint32_t row)
{
    const struct pass *pass = part->pass;
    uint32_t n = pass->linear->n;
    float *out = pass->out + (size_t)row * n + (size_t)part->panel * PANEL;
    float *total = part->scratch->totals + (size_t)row * PANEL;
    struct amx_sums sums = {.sums = part->scratch->sums + (size_t)row * PANEL,
                            .rows = min_u32(2 * AMX_ROWS, pass->rows - row),
                            .outputs = min_u32(PANEL, n - part->panel * PANEL),
                            .from = total,
                            .to = part->last ? out : total,
                            .from_stride = PANEL,
                            .to_stride = part->last ? n : PANEL,
                            .past_caches = part->last && pass->past_caches};
    if (part->first) {
        sums.from = pass->accumulate ? out : NULL;
        sums.from_stride = n;
    }
    return sums;
}

#define LINE_BYTES 64
#define STEP_LINES (AMX_STEP_WORDS * sizeof(uint32_t) / LINE_BYTES)

/* Returns what the products of all pairs of tiles share. */
static struct amx_product part_product(const struct part *part, uint32_t pairs)
{
    const struct pass *pass = part->pass;
    const uint32_t *weights = weights_at(pass, part->panel, part->k);
    /* Weights to prefetch during the products. One pair asks a little ahead in the same stream.
     * Several pairs share the lines that come after this part: the next part of the panel, or the
     * first of the next panel. */
    const uint32_t *after = part->end < pass->k_end
                                ? weights_at(pass, part->panel, part->end)
                                : weights_at(pass, part->panel + 1, pass->k_begin);
    return (struct amx_product){.height = pass->height,
                                .weights = weights,
                                .last = cut_step(weights, part->end - part->k, part->scratch->last),
                                .steps = divide_up(part->end - part->k, AMX_STEP),
                                .resume = (part->k - pass->k_begin) % LINEAR_SEGMENT > 0,
                                .next = pairs == 1 ? (const char *)weights + LINEAR_AHEAD_BYTES
                                                   : (const char *)after,
                                .next_lines = divide_up(STEP_LINES, pairs),
                                .near = pairs == 1,
                                .out_stride = pass->linear->n};
}

static void multiply_part(const struct part *part)
{
    const struct pass *pass = part->pass;
    uint32_t pairs = divide_up(pass->tile_count, 2);
    size_t done = (part->k - pass->k_begin) / AMX_STEP * pass->height * AMX_ROW_BYTES;
    float *to = part->is_total ? part->scratch->totals : part->scratch->sums;
    bool fetches_out =
        part->adds && ((part->first && pass->accumulate) || (part->last && !pass->past_caches));
    struct amx_product product = part_product(part, pairs);
    struct amx_sums sums;
    for (uint32_t pair = 0; pair < pairs; pair++) {
        uint32_t row = pair * 2 * AMX_ROWS;
        bool two = 2 * pair + 1 < pass->tile_count;
        product.tiles[0] = tile_address(pass, 2 * pair) + done;
        product.tiles[1] = two ? tile_address(pass, 2 * pair + 1) + done : NULL;
        product.sums = to + (size_t)row * PANEL;
        product.out = pass->out + (size_t)row * pass->linear->n + (size_t)part->panel * PANEL;
        product.out_rows = fetches_out ? min_u32(2 * AMX_ROWS, pass->rows - row) : 0;
        product.behind = part->adds && pair > 0 ? &sums : NULL;
        amx_multiply(&product);
        product.next += (size_t)product.steps * product.next_lines * LINE_BYTES;
        sums = pair_sums(part, row);
    }
    if (part->adds)
        amx_add_sums(&sums);
}

/* --- one row --- */

/* Multiplies one row by all segments of panels side by side. Their sums are added as if each panel
 * were a row. */
static void multiply_streams(const struct pass *pass, struct thread_scratch *scratch,
                             struct panel_unit unit)
{
    uint32_t first = unit.first, apart = unit.apart;
    float *out = pass->out + (size_t)first * PANEL;
    struct amx_sums sums = {.sums = scratch->sums,
                            .rows = AMX_STREAMS,
                            .outputs = PANEL,
                            .from = pass->accumulate ? out : NULL,
                            .to = out,
                            .from_stride = (size_t)apart * PANEL,
                            .to_stride = (size_t)apart * PANEL};
    for (uint32_t k = pass->k_begin; k < pass->k_end; k += LINEAR_SEGMENT) {
        uint32_t width = min_u32(LINEAR_SEGMENT, pass->k_end - k);
        amx_multiply_streams(
            &(struct amx_streams){.row = row_address(pass) + (k - pass->k_begin),
                                  .weights = weights_at(pass, first, k),
                                  .apart = (size_t)pass->linear->k / 2 * PANEL * apart,
                                  .steps = width / AMX_STEP,
                                  .sums = scratch->sums});
        amx_add_sums(&sums);
        sums.from = out;
    }
}

static void multiply_panel(const struct pass *pass, struct thread_scratch *scratch, uint32_t panel)
{
    uint32_t width = pass->tile_count > 2 ? PART : LINEAR_SEGMENT;
    for (uint32_t k = pass->k_begin; k < pass->k_end; k += min_u32(width, pass->k_end - k)) {
        struct part part = part_of(pass, scratch, panel, k, width);
        multiply_part(&part);
    }
}

static void multiply_units(void *context, uint32_t thread, uint32_t first, uint32_t last)
{
    const struct pass *pass = context;
    struct thread_scratch *scratch = &pass->scratch->threads[thread];
    amx_begin_rows(pass->height);
    for (uint32_t i = first; i < last; i++) {
        struct panel_unit unit = panel_unit_at(&pass->units, i);
        if (unit.apart)
            multiply_streams(pass, scratch, unit);
        else
            multiply_panel(pass, scratch, unit.first);
    }
    amx_end();
    if (pass->past_caches)
        amx_written();
}

/* Speed relative to AVX-512, for which LINEAR_INLINE_WORK is. Few rows are bound by reading the
 * weights, many rows compute this much faster. */
#define FASTER 8

static void run_pass(struct cpu *self, struct pass *pass)
{
    uint64_t width = pass->k_end - pass->k_begin;
    /* Packing is a small part of the work. Waking threads for a few rows costs more. */
    uint32_t pack_grain = pass->rows * width < LINEAR_INLINE_WORK ? pass->tile_count : 1;
    pool_run(self->pool, pass->tile_count, pack_grain, pack_tiles, pass);
    pass->units = linear_units(self->threads, pass->linear->n, pass->streams ? AMX_STREAMS : 1);
    if (pass->units.streams > 1)
        amx_round_row(pass->in + pass->k_begin, pass->k_end - pass->k_begin, row_address(pass));
    uint64_t panel_work = divide_up(pass->rows, FASTER) * width * PANEL;
    uint32_t grain = linear_grain(self->threads, pass->units.count,
                                  panel_work * pass->units.streams, LINEAR_INLINE_WORK);
    pool_run(self->pool, pass->units.count, grain, multiply_units, pass);
}

void linear_amx(struct cpu *self, const struct linear *linear, const float *in, uint32_t rows,
                bool accumulate, float *out)
{
    bool once = !accumulate && linear->k <= MOST_ROWS / FEWER_ROWS * LINEAR_SEGMENT;
    uint32_t blocks = divide_up(rows, once ? FEWER_ROWS : MOST_ROWS);
    for (uint32_t block = 0; block < blocks; block++) {
        uint32_t first = (uint32_t)((uint64_t)rows * block / blocks);
        uint32_t count = (uint32_t)((uint64_t)rows * (block + 1) / blocks) - first;
        uint32_t tile_count = divide_up(count, AMX_ROWS), height = min_u32(count, AMX_ROWS);
        uint32_t step = MOST_ROWS / (tile_count * height) * LINEAR_SEGMENT;
        bool whole = step >= linear->k && !accumulate; /* outputs are written once */
        for (uint32_t k = 0; k < linear->k; k += min_u32(step, linear->k - k)) {
            struct pass pass = {.linear = linear,
                                .scratch = self->amx,
                                .in = in + (size_t)first * linear->k,
                                .out = out + (size_t)first * linear->n,
                                .rows = count,
                                .tile_count = tile_count,
                                .height = height,
                                .k_begin = k,
                                .k_end = k + min_u32(step, linear->k - k),
                                .accumulate = accumulate || k > 0,
                                .streams = rows == 1 && linear->k % AMX_STEP == 0 &&
                                           linear->k <= MOST_STREAMED_K,
                                .past_caches = whole && linear_past_caches(out, linear->n, count)};
            run_pass(self, &pass);
        }
    }
}

#else

struct linear_amx *linear_amx_new(uint32_t threads)
{
    (void)threads;
    return NULL;
}

void linear_amx_free(struct linear_amx *scratch)
{
    (void)scratch;
}

/* Never called: no backend of such a machine has the scratch. */
void linear_amx(struct cpu *self, const struct linear *linear, const float *in, uint32_t rows,
                bool accumulate, float *out)
{
    (void)self, (void)linear, (void)in, (void)rows, (void)accumulate, (void)out;
}

#endif
