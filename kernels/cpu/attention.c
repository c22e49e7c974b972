/* Attention of the bf16 backend.
 *
 * Work item: a few query rows x one KV head, with all query heads of its group, so that keys and values are read and widened
 * once for them all: a slice of up to ATTENTION_ROWS (row, head) pairs, cut into tiles of up to TILE_ROWS. The context is cut
 * into segments of ATTENTION_SEGMENT_TOKENS at absolute positions; each gives a pair a partial (max, sum, output), merged in
 * ascending order. Both products of a segment (inner/attention.h) sum over head_dim and over the segment's tokens in a fixed
 * order, whatever the number of rows. What lies after a row's own position, or in front of its window, weighs exactly zero;
 * keys and values after the last token of the slice are zeros, never pool memory. Segments that no row sees are passed over.
 *
 * A tile goes through scores, weights and output while its numbers are in the first-level cache. The first tile of a segment
 * widens keys and values as it comes to them, and meanwhile asks for later ones: decode has no other tile.
 */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/kv_view.h"

#include <string.h>

#define VALUE_TOKENS 64 /* values widened at a time */

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

/* Consecutive (query row, head) pairs of one sequence and KV head: pair i is row `first_row` + (first_head + i) / group. */
struct slice {
    const struct attention_job *job;
    const struct attention_inner *inner;
    struct attention_scratch *scratch;
    bool int8; /* the pool's keys and values */
    uint32_t sequence, kv_head;
    uint32_t first_row, pairs; /* pairs counted from head `first_head` of first_row */
    uint32_t first_head;       /* inside the group */
    uint32_t context;      /* tokens that its last pair sees, or that are in front of its window */
    uint32_t segment;      /* the one at hand: its first position */
    uint32_t keys, values; /* so many tokens of it are widened */
};

/* Pairs [begin, end) of a tile see the segment, the last of them `count` tokens of it; those from `fresh` on see it first. */
struct tile {
    uint32_t begin, fresh, end, count;
};

static uint32_t divide_up(uint32_t a, uint32_t b)
{
    return a / b + (a % b != 0);
}

static uint32_t min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

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

/* Where the pair's query starts in its row of qkv, and its output in its row of out, in units of head_dim. */
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

/* The segment from which on the pair sees anything. */
static uint32_t first_segment(const struct slice *slice, uint32_t pair)
{
    return window_begin(slice, pair) / ATTENTION_SEGMENT_TOKENS * ATTENTION_SEGMENT_TOKENS;
}

static bool sees_segment(const struct slice *slice, uint32_t pair)
{
    return slice->segment <= position_of(slice->job, pair_row(slice, pair)) &&
           slice->segment >= first_segment(slice, pair);
}

/* Tokens of the segment up to the pair's position. */
static uint32_t segment_end(const struct slice *slice, uint32_t pair)
{
    uint32_t position = position_of(slice->job, pair_row(slice, pair));
    return min_u32(position - slice->segment + 1, ATTENTION_SEGMENT_TOKENS);
}

/* Positions ascend: pairs that don't see the segment yet, or no longer, lie at the ends of a tile. */
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

/* The addresses of `count` tokens from token t of the segment on; zeros behind the context. */
static void token_addresses(const struct slice *slice, uint32_t t, uint32_t count, bool value,
                            const void **addresses)
{
    static const uint16_t zeros[KERNELS_MAX_HEAD_DIM];
    const struct kv_view *kv = &slice->job->kv;
    uint32_t position = slice->segment + t, end = min_u32(position + count, slice->context), i = 0;
    for (uint32_t run; position < end; position += run) {
        run = min_u32(kv->block_tokens - position % kv->block_tokens, end - position);
        const char *first = kv_view_at(kv, slice->sequence, position, value, slice->kv_head);
        for (uint32_t j = 0; j < run; j++)
            addresses[i++] = first + j * kv->token_bytes;
    }
    while (i < count)
        addresses[i++] = zeros;
}

/* Scales of the segment's tokens; zeros behind the context. */
static void read_scales(const struct slice *slice, bool value, float *scales)
{
    const struct kv_view *kv = &slice->job->kv;
    uint32_t end = min_u32(slice->segment + ATTENTION_SEGMENT_TOKENS, slice->context);
    memset(scales, 0, ATTENTION_SEGMENT_TOKENS * sizeof *scales);
    for (uint32_t position = slice->segment, run; position < end; position += run) {
        run = min_u32(kv->block_tokens, end - position); /* segments begin with a block */
        memcpy(scales + (position - slice->segment),
               kv_view_scale_at(kv, slice->sequence, position, value, slice->kv_head),
               run * sizeof *scales);
    }
}

/* Keys become panels until `count` tokens of the segment have. */
static void widen_keys(struct slice *slice, uint32_t count)
{
    uint32_t dim = slice->job->shape->head_dim;
    for (; slice->keys < count; slice->keys += PANEL) {
        const void *tokens[PANEL];
        token_addresses(slice, slice->keys, PANEL, false, tokens);
        slice->inner->pack_keys(tokens, slice->int8, dim, slice->scratch->keys + slice->keys * dim);
    }
}

#define VALUE_PANEL (ATTENTION_SEGMENT_TOKENS * PANEL) /* floats from panel to panel */

static void widen_values(struct slice *slice, uint32_t count)
{
    for (; slice->values < count; slice->values += VALUE_TOKENS) {
        const void *tokens[VALUE_TOKENS];
        token_addresses(slice, slice->values, VALUE_TOKENS, true, tokens);
        slice->inner->pack_values(tokens, VALUE_TOKENS, slice->int8, slice->job->shape->head_dim,
                                  VALUE_PANEL, slice->scratch->values + slice->values * PANEL);
    }
}

/* What the products over keys from token t on ask for: values of the same tokens. NULL: not there. */
static const void *values_ahead(const struct slice *slice, uint32_t t)
{
    uint32_t position = slice->segment + t;
    if (position >= slice->context)
        return NULL;
    return kv_view_at(&slice->job->kv, slice->sequence, position, true, slice->kv_head);
}

/* What the products over values from token t on ask for: keys of the next segment, or of the next head's first. */
static const void *keys_ahead(const struct slice *slice, uint32_t t)
{
    uint32_t position = slice->segment + ATTENTION_SEGMENT_TOKENS + t, head = slice->kv_head;
    if (slice->segment + ATTENTION_SEGMENT_TOKENS >= slice->context) {
        position = first_segment(slice, 0) + t;
        head++;
    }
    if (position >= slice->context || head == slice->job->shape->kv_heads)
        return NULL;
    return kv_view_at(&slice->job->kv, slice->sequence, position, false, head);
}

/* --- a tile over a segment --- */

/* scores[pair][token] = query . key, unscaled. */
static void score(struct slice *slice, const struct tile *tile)
{
    struct attention_scratch *scratch = slice->scratch;
    uint32_t dim = slice->job->shape->head_dim;
    for (uint32_t t = 0; t < tile->count; t += PANEL) {
        bool first_tile = t >= slice->keys;
        widen_keys(slice, t + 1);
        struct attention_product product = {
            .rows = scratch->queries + (size_t)tile->begin * ATTENTION_STRIDE,
            .panel = scratch->keys + (size_t)t * dim,
            .count = tile->end - tile->begin,
            .k = dim,
            .out = scratch->scores + t,
            .out_stride = ATTENTION_STRIDE,
            .next = first_tile ? values_ahead(slice, t) : NULL,
            .next_step = PANEL * slice->job->kv.token_bytes / (dim / 2)};
        slice->inner->multiply(&product);
    }
}

static struct attention_weighing weighing_of(const struct slice *slice, const struct tile *tile,
                                             uint32_t pair)
{
    struct attention_scratch *scratch = slice->scratch;
    uint32_t begin = window_begin(slice, pair);
    return (struct attention_weighing){.scores = scratch->scores +
                                                 (pair - tile->begin) * ATTENTION_STRIDE,
                                       .begin = begin > slice->segment ? begin - slice->segment : 0,
                                       .end = segment_end(slice, pair),
                                       .scale = slice->job->shape->scale,
                                       .key_scales = slice->int8 ? scratch->key_scales : NULL,
                                       .value_scales = slice->int8 ? scratch->value_scales : NULL};
}

/* Scores become weights, zero behind what a pair sees; max and sum of each pair. */
static void weigh(const struct slice *slice, const struct tile *tile, float *max, float *sum)
{
    struct attention_weighing rows[TILE_ROWS];
    uint32_t count = tile->end - tile->begin;
    for (uint32_t i = 0; i < count; i++) {
        rows[i] = weighing_of(slice, tile, tile->begin + i);
        max[i] = slice->inner->prepare(&rows[i]);
    }
    uint32_t padded = divide_up(tile->count, WEIGH_TOKENS) * WEIGH_TOKENS;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t done = divide_up(rows[i].end, WEIGH_TOKENS) * WEIGH_TOKENS;
        sum[i] = slice->inner->weigh(&rows[i], max[i]);
        memset(rows[i].scores + done, 0, (padded - done) * sizeof(float));
    }
}

/* partial[pair][head_dim, padded to panels] = sum over the segment's tokens of weight * value. */
static void gather(struct slice *slice, const struct tile *tile)
{
    struct attention_scratch *scratch = slice->scratch;
    uint32_t panels = divide_up(slice->job->shape->head_dim, PANEL);
    bool first_tile = slice->values < tile->count;
    uint32_t step = first_tile ? VALUE_TOKENS : ATTENTION_SEGMENT_TOKENS;
    for (uint32_t t = 0; t < tile->count; t += step) {
        widen_values(slice, t + 1);
        uint32_t tokens = min_u32(tile->count - t, step);
        for (uint32_t panel = 0; panel < panels; panel++) {
            struct attention_product product = {
                .rows = scratch->scores + t,
                .panel = scratch->values + (size_t)panel * VALUE_PANEL + t * PANEL,
                .count = tile->end - tile->begin,
                .k = divide_up(tokens, 2) * 2,
                .resume = t > 0,
                .out = scratch->partial + panel * PANEL,
                .out_stride = panels * PANEL,
                .next = first_tile ? keys_ahead(slice, t + panel * step / panels) : NULL,
                .next_step = 2 * slice->job->kv.token_bytes / panels};
            slice->inner->multiply(&product);
        }
    }
}

/* Adds the segment's partials to what is merged already; a pair's first is taken as it is. */
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

/* --- slices --- */

static void attend_segment(struct slice *slice)
{
    slice->keys = slice->values = 0;
    if (slice->int8) {
        read_scales(slice, false, slice->scratch->key_scales);
        read_scales(slice, true, slice->scratch->value_scales);
    }
    for (uint32_t i = 0; i < divide_up(slice->pairs, TILE_ROWS); i++) {
        struct tile tile = tile_of(slice, i);
        if (tile.begin == tile.end)
            continue;
        float max[TILE_ROWS], sum[TILE_ROWS];
        score(slice, &tile);
        weigh(slice, &tile, max, sum);
        gather(slice, &tile);
        merge(slice, &tile, max, sum);
    }
}

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

/* Item = (block of item_rows rows, KV head); a block may hold the rows of several sequences. */
static void attention_items(void *context, uint32_t thread, uint32_t first, uint32_t last)
{
    const struct attention_job *job = context;
    for (uint32_t item = first; item < last; item++) {
        uint32_t row = item / job->shape->kv_heads * job->item_rows;
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
                                      .int8 = job->kv.type == KV_INT8,
                                      .sequence = sequence_of(job, row),
                                      .kv_head = item % job->shape->kv_heads,
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
    /* Decode alone: one row an item. With prompts: as many as a slice holds. */
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
