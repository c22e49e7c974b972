/* Attention of the bf16 backend.
 *
 * A work item is a few query rows x one KV head, with all query heads of its group, so that keys
 * and values are read and widened once for all of them. An item is cut into slices of up to
 * ATTENTION_ROWS (row, head) pairs, and a slice into tiles of up to TILE_ROWS. The context is cut
 * into segments of ATTENTION_SEGMENT_TOKENS at absolute positions. Each segment gives a pair a
 * partial (max, sum, output), and partials are merged in ascending order. Both products of a
 * segment (inner/attention.h) sum over head_dim and over the segment's tokens in a fixed order, for
 * any number of rows. Tokens after a row's own position, or before its window, weigh exactly zero.
 * Values after the slice's last token are never read, and scores of keys there never count.
 * Segments that no row sees are skipped. */
#include "common/base/u32.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/kv_view.h"

#include <string.h>

#define SEGMENT_RUNS (ATTENTION_SEGMENT_TOKENS / RUN_TOKENS)

struct attention_job {
    const struct cpu *cpu;
    const struct step_batch *batch;
    const struct attention_shape *shape;
    struct kv_view kv;
    const float *qkv;
    float *out;
    uint32_t group;     /* query heads per KV head */
    uint32_t item_rows; /* query rows of a work item */
};

/* Consecutive (query row, head) pairs of one sequence and KV head. Pair i is row first_row +
 * (first_head + i) / group. */
struct slice {
    const struct attention_job *job;
    const struct attention_inner *inner;
    struct attention_scratch *scratch;
    uint32_t sequence, kv_head;
    uint32_t first_row, pairs;            /* pairs count from head first_head of first_row */
    uint32_t first_head;                  /* inside the group */
    uint32_t context;                     /* tokens up to the position of its last pair */
    uint32_t segment;                     /* first position of the current segment */
    struct attention_tokens keys, values; /* keys and values of the current segment */
    /* addresses of its keys; the values lie behind each at one distance */
    const char *runs[SEGMENT_RUNS];
};

static uint32_t position_of(const struct attention_job *job, uint32_t row)
{
    return ((const uint32_t *)job->batch->positions.address)[row];
}

static uint32_t sequence_of(const struct attention_job *job, uint32_t row)
{
    return ((const uint32_t *)job->batch->row_sequence.address)[row];
}

static uint32_t pair_row(const struct slice *slice, uint32_t pair)
{
    return slice->first_row + (slice->first_head + pair) / slice->job->group;
}

/* Returns the query head of a pair: its query's place in a row of qkv, and its output's in a row of
 * out, in units of head_dim. */
static uint32_t pair_head(const struct slice *slice, uint32_t pair)
{
    return slice->kv_head * slice->job->group + (slice->first_head + pair) % slice->job->group;
}

/* --- what a pair sees --- */

static uint32_t window_begin(const struct slice *slice, uint32_t pair)
{
    uint32_t position = position_of(slice->job, pair_row(slice, pair));
    uint32_t window = slice->job->shape->window;
    return window && position >= window ? position - window + 1 : 0;
}

/* Returns the first position of the first segment that the pair sees. */
static uint32_t first_segment(const struct slice *slice, uint32_t pair)
{
    return window_begin(slice, pair) / ATTENTION_SEGMENT_TOKENS * ATTENTION_SEGMENT_TOKENS;
}

static bool sees_segment(const struct slice *slice, uint32_t pair)
{
    return slice->segment <= position_of(slice->job, pair_row(slice, pair)) &&
           slice->segment >= first_segment(slice, pair);
}

/* Returns the number of the segment's tokens up to the pair's position. */
static uint32_t segment_end(const struct slice *slice, uint32_t pair)
{
    uint32_t position = position_of(slice->job, pair_row(slice, pair));
    return min_u32(position - slice->segment + 1, ATTENTION_SEGMENT_TOKENS);
}

/* --- a slice over one segment --- */

/* A slice of several tiles (prompts) widens keys and values once for all of them. Each tile then
 * goes through scores, weights and output while its numbers are in the level 1 cache. A tile that
 * is alone (decode) reads keys and values where they lie, and asks ahead for later ones: otherwise
 * it would wait for memory at each block of the pool. */
/* Pairs [begin, end) of a tile see the segment, the last of them `count` tokens of it. Pairs from
 * `fresh` on see it first. */
struct tile {
    uint32_t begin, fresh, end, count;
};

/* Returns a tile's pairs that see the segment. Positions ascend, so pairs that don't see it yet, or
 * no longer, lie at the ends of a tile. */
static struct tile tile_of(const struct slice *slice, uint32_t index)
{
    uint32_t tiles = divide_up(slice->pairs, TILE_ROWS);
    struct tile tile = {.begin = slice->pairs * index / tiles,
                        .end = slice->pairs * (index + 1) / tiles};
    while (tile.begin < tile.end && !sees_segment(slice, tile.begin))
        tile.begin++;
    while (tile.begin < tile.end && !sees_segment(slice, tile.end - 1))
        tile.end--;
    tile.fresh = tile.end;
    while (tile.fresh > tile.begin && first_segment(slice, tile.fresh - 1) == slice->segment)
        tile.fresh--;
    if (tile.begin < tile.end)
        tile.count = segment_end(slice, tile.end - 1);
    return tile;
}

/* --- keys and values of the pool --- */

/* Returns the number of a segment's tokens up to the context's end. */
static uint32_t segment_tokens(const struct slice *slice, uint32_t segment)
{
    return min_u32(slice->context - segment, ATTENTION_SEGMENT_TOKENS);
}

/* Fills the rest of `runs` with the last one: addresses that may be read. */
static void repeat_last(const char *runs[SEGMENT_RUNS], uint32_t count)
{
    for (uint32_t i = count; i < SEGMENT_RUNS; i++)
        runs[i] = runs[count - 1];
}

static struct attention_tokens tokens_of(const struct slice *slice, const char *const *runs,
                                         bool value)
{
    const struct kv_view *kv = &slice->job->kv;
    return (struct attention_tokens){.runs = runs,
                                     .offset =
                                         value ? kv->offset_bytes[1] - kv->offset_bytes[0] : 0,
                                     .token_bytes = kv->token_bytes,
                                     .head_dim = slice->job->shape->head_dim,
                                     .int8 = kv->type == KV_INT8};
}

/* Reads the scales of the segment's tokens; zeros behind the context. */
static void read_scales(const struct slice *slice, bool value, float *scales)
{
    memset(scales, 0, ATTENTION_SEGMENT_TOKENS * sizeof *scales);
    kv_view_scales(&slice->job->kv, slice->sequence, slice->segment,
                   segment_tokens(slice, slice->segment), value, slice->kv_head, scales);
}

/* Returns the tokens that are read after the current values: keys of the next segment, of the next
 * head if they are few, and so on, up to a segment's runs. At the very end: the current keys. */
static struct attention_tokens keys_ahead(const struct slice *slice, const char *runs[SEGMENT_RUNS])
{
    uint32_t found = 0;
    uint32_t segment = slice->segment + ATTENTION_SEGMENT_TOKENS, kv_head = slice->kv_head;
    while (found < SEGMENT_RUNS) {
        if (segment >= slice->context) {
            segment = first_segment(slice, 0);
            kv_head++;
        }
        if (kv_head == slice->job->shape->kv_heads)
            break;
        uint32_t count =
            min_u32(segment_tokens(slice, segment), (SEGMENT_RUNS - found) * RUN_TOKENS);
        found += kv_view_runs(&slice->job->kv, slice->sequence, segment, count, kv_head, RUN_TOKENS,
                              runs + found);
        segment += ATTENTION_SEGMENT_TOKENS;
    }
    if (!found)
        return slice->keys;
    repeat_last(runs, found);
    return tokens_of(slice, runs, false);
}

#define VALUE_PANEL (ATTENTION_SEGMENT_TOKENS * PANEL) /* floats from panel to panel */

/* Widens the keys and values of the segment into panels. */
static void widen(struct slice *slice)
{
    struct attention_scratch *scratch = slice->scratch;
    uint32_t count = segment_tokens(slice, slice->segment);
    for (uint32_t t = 0; t < count; t += PANEL)
        slice->inner->pack_keys(&slice->keys, t, scratch->keys + (size_t)t * slice->keys.head_dim);
    slice->inner->pack_values(&slice->values, count, VALUE_PANEL, scratch->values);
}

/* --- a tile over a segment --- */

/* scores[pair][token] = query . key, unscaled. */
static void score(struct slice *slice, const struct tile *tile)
{
    struct attention_scratch *scratch = slice->scratch;
    uint32_t dim = slice->job->shape->head_dim;
    for (uint32_t t = 0; t < tile->count; t += PANEL) {
        struct attention_product product = {.rows = scratch->queries +
                                                    (size_t)tile->begin * ATTENTION_STRIDE,
                                            .panel = scratch->keys + (size_t)t * dim,
                                            .count = tile->end - tile->begin,
                                            .k = dim,
                                            .out = scratch->scores + t,
                                            .out_stride = ATTENTION_STRIDE};
        slice->inner->multiply(&product);
    }
}

static struct attention_weighing weighing_of(const struct slice *slice, const struct tile *tile,
                                             uint32_t pair)
{
    struct attention_scratch *scratch = slice->scratch;
    uint32_t begin = window_begin(slice, pair);
    return (struct attention_weighing){
        .scores = scratch->scores + (pair - tile->begin) * ATTENTION_STRIDE,
        .begin = begin > slice->segment ? begin - slice->segment : 0,
        .end = segment_end(slice, pair),
        .tokens = divide_up(tile->count, WEIGH_TOKENS) * WEIGH_TOKENS,
        .scale = slice->job->shape->scale,
        .key_scales = slice->keys.int8 ? scratch->key_scales : NULL,
        .value_scales = slice->keys.int8 ? scratch->value_scales : NULL};
}

/* Turns scores into weights, zero behind the tokens that a pair sees. Gives the max and sum of each
 * pair. */
static void weigh(const struct slice *slice, const struct tile *tile, float *max, float *sum)
{
    struct attention_weighing rows[TILE_ROWS];
    uint32_t count = tile->end - tile->begin;
    for (uint32_t i = 0; i < count; i++) {
        rows[i] = weighing_of(slice, tile, tile->begin + i);
        max[i] = slice->inner->prepare(&rows[i]);
    }
    for (uint32_t i = 0; i < count; i++)
        sum[i] = slice->inner->weigh(&rows[i], max[i]);
}

/* partial[pair][head_dim, padded to panels] = sum over the segment's tokens of weight * value. */
static void gather(struct slice *slice, const struct tile *tile)
{
    struct attention_scratch *scratch = slice->scratch;
    uint32_t panels = divide_up(slice->job->shape->head_dim, PANEL);
    for (uint32_t panel = 0; panel < panels; panel++) {
        struct attention_product product = {.rows = scratch->scores,
                                            .panel = scratch->values + (size_t)panel * VALUE_PANEL,
                                            .count = tile->end - tile->begin,
                                            .k = divide_up(tile->count, 2) * 2,
                                            .out = scratch->partial + panel * PANEL,
                                            .out_stride = panels * PANEL};
        slice->inner->multiply(&product);
    }
}

/* Merges the segment's partials into those of the segments before it; a pair's first partial is
 * copied. */
static void merge(const struct slice *slice, const struct tile *tile, const float *max,
                  const float *sum)
{
    struct attention_scratch *scratch = slice->scratch;
    uint32_t width = divide_up(slice->job->shape->head_dim, PANEL) * PANEL;
    uint32_t known = tile->fresh - tile->begin, fresh = tile->end - tile->fresh;
    struct attention_merge merge = {.rows = known,
                                    .width = width,
                                    .merged = scratch->merged + (size_t)tile->begin * width,
                                    .max = scratch->max + tile->begin,
                                    .sum = scratch->sum + tile->begin,
                                    .partial = scratch->partial,
                                    .partial_max = max,
                                    .partial_sum = sum};
    if (known)
        slice->inner->merge(&merge);
    memcpy(merge.merged + (size_t)known * width, scratch->partial + (size_t)known * width,
           (size_t)fresh * width * sizeof(float));
    memcpy(merge.max + known, max + known, fresh * sizeof *max);
    memcpy(merge.sum + known, sum + known, fresh * sizeof *sum);
}

/* --- tiles --- */

static void attend_tile(struct slice *slice, const struct tile *tile)
{
    float max[TILE_ROWS], sum[TILE_ROWS];
    score(slice, tile);
    weigh(slice, tile, max, sum);
    gather(slice, tile);
    merge(slice, tile, max, sum);
}

/* attend_tile for a tile that is alone: reads keys and values where they lie. */
static void scan_tile(struct slice *slice, const struct tile *tile)
{
    struct attention_scratch *scratch = slice->scratch;
    float max[TILE_ROWS], sum[TILE_ROWS];
    struct attention_scan scan = {.rows = scratch->queries + (size_t)tile->begin * ATTENTION_STRIDE,
                                  .count = tile->end - tile->begin,
                                  .tokens = &slice->keys,
                                  .token_count = tile->count,
                                  .out = scratch->scores,
                                  .out_stride = ATTENTION_STRIDE,
                                  .next = &slice->values,
                                  .near = slice->job->cpu->has_near_room};
    slice->inner->scan_keys(&scan);
    weigh(slice, tile, max, sum);
    const char *runs[SEGMENT_RUNS];
    struct attention_tokens next = keys_ahead(slice, runs);
    scan.rows = scratch->scores;
    scan.tokens = &slice->values;
    scan.out = scratch->partial;
    scan.out_stride = slice->keys.head_dim;
    scan.next = &next;
    slice->inner->scan_values(&scan);
    merge(slice, tile, max, sum);
}

static void attend_segment(struct slice *slice)
{
    uint32_t tiles = divide_up(slice->pairs, TILE_ROWS);
    bool alone = tiles == 1 && slice->job->shape->head_dim % PANEL == 0;
    uint32_t runs = kv_view_runs(&slice->job->kv, slice->sequence, slice->segment,
                                 segment_tokens(slice, slice->segment), slice->kv_head, RUN_TOKENS,
                                 slice->runs);
    repeat_last(slice->runs, runs);
    slice->keys = tokens_of(slice, slice->runs, false);
    slice->values = tokens_of(slice, slice->runs, true);
    if (slice->keys.int8) {
        read_scales(slice, false, slice->scratch->key_scales);
        read_scales(slice, true, slice->scratch->value_scales);
    }
    if (!alone)
        widen(slice);
    for (uint32_t i = 0; i < tiles; i++) {
        struct tile tile = tile_of(slice, i);
        if (tile.begin == tile.end)
            continue;
        if (alone)
            scan_tile(slice, &tile);
        else
            attend_tile(slice, &tile);
    }
}

/* --- a slice over its context --- */

static void attend(struct slice *slice)
{
    const struct attention_job *job = slice->job;
    struct attention_scratch *scratch = slice->scratch;
    uint32_t dim = job->shape->head_dim, width = divide_up(dim, PANEL) * PANEL;
    size_t qkv_width = ((size_t)job->shape->heads + 2 * (size_t)job->shape->kv_heads) * dim;
    for (uint32_t i = 0; i < slice->pairs; i++)
        slice->inner->round_queries(job->qkv + pair_row(slice, i) * qkv_width +
                                        (size_t)pair_head(slice, i) * dim,
                                    dim, scratch->queries + (size_t)i * ATTENTION_STRIDE);
    slice->context = position_of(job, pair_row(slice, slice->pairs - 1)) + 1;
    for (slice->segment = first_segment(slice, 0); slice->segment < slice->context;
         slice->segment += ATTENTION_SEGMENT_TOKENS)
        attend_segment(slice);
    for (uint32_t i = 0; i < slice->pairs; i++) {
        size_t head = (size_t)pair_row(slice, i) * job->shape->heads + pair_head(slice, i);
        slice->inner->divide(scratch->merged + (size_t)i * width, scratch->sum[i], dim,
                             job->out + head * dim);
    }
}

/* Computes items: (block of item_rows rows, KV head); a block may hold the rows of several
 * sequences. Blocks of a prompt follow each other head by head, since they read the same keys and
 * values. Single rows go through the heads, in the order of memory. */
static void attention_items(void *context, uint32_t thread, uint32_t first, uint32_t last)
{
    const struct attention_job *job = context;
    uint32_t blocks = divide_up(job->batch->rows, job->item_rows), heads = job->shape->kv_heads;
    for (uint32_t item = first; item < last; item++) {
        uint32_t block = job->item_rows > 1 ? item % blocks : item / heads;
        uint32_t head = job->item_rows > 1 ? item / blocks : item % heads;
        uint32_t row = block * job->item_rows;
        uint32_t end = min_u32(row + job->item_rows, job->batch->rows);
        while (row < end) {
            uint32_t same = row + 1;
            while (same < end && sequence_of(job, same) == sequence_of(job, row))
                same++;
            uint32_t pairs = (same - row) * job->group;
            for (uint32_t done = 0; done < pairs; done += ATTENTION_ROWS) {
                struct slice slice = {.job = job,
                                      .inner = &job->cpu->inner->attention,
                                      .scratch = &job->cpu->attention[thread],
                                      .sequence = sequence_of(job, row),
                                      .kv_head = head,
                                      .first_row = row + done / job->group,
                                      .first_head = done % job->group,
                                      .pairs = min_u32(pairs - done, ATTENTION_ROWS)};
                attend(&slice);
            }
            row = same;
        }
    }
}

enum status cpu_attention(struct kernels *kernels, const struct step_batch *batch,
                          const struct attention_shape *shape, const struct kv_layout *layout,
                          uint32_t layer, const struct buffer *qkv, const struct buffer *pool,
                          struct buffer *out)
{
    struct cpu *self = kernels->state;
    uint32_t group = shape->heads / shape->kv_heads;
    /* Decode alone: one row an item. With prompts: as many rows as a slice holds. */
    bool decode = batch->rows <= batch->sequences || group > ATTENTION_ROWS;
    uint32_t item_rows = decode ? 1 : ATTENTION_ROWS / group;
    struct attention_job job = {.cpu = self,
                                .batch = batch,
                                .shape = shape,
                                .kv = kv_view_make(batch, layout, layer, pool),
                                .qkv = qkv->address,
                                .out = out->address,
                                .group = group,
                                .item_rows = item_rows};
    uint32_t items = divide_up(batch->rows, item_rows) * shape->kv_heads;
    pool_run(self->pool, items, 1, attention_items, &job);
    return STATUS_OK;
}
