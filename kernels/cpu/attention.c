/* Rotation, append and attention of the bf16 backend.
 *
 * Work item: a few query rows x one KV head, with all query heads of its group, so that one pass over keys and values
 * serves them all. The context is cut into segments of ATTENTION_SEGMENT_TOKENS at absolute positions; each gives a partial
 * (max, sum, output), merged in ascending order. Both products of a segment are tile products (inner.h), whose sums run over
 * head_dim and over the segment's tokens in ascending order, whatever the number of rows. What lies after a row's
 * own position, or in front of its window, weighs exactly zero; keys and values after the last token of the slice are
 * zeros, never pool memory. Segments in front of every row's window are passed over.
 */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/exp_fixed.h"
#include "kernels/cpu/kv_view.h"

#include <math.h>
#include <string.h>

struct attention_job {
    const struct cpu *cpu;
    const struct step_batch *batch;
    const struct attention_shape *shape;
    struct kv_view kv;
    const struct head_parameters *parameters;
    float *qkv;
    float *out;
    uint32_t group;     /* query heads per KV head */
    uint32_t item_rows; /* query rows of a work item */
};

static uint32_t divide_up(uint32_t a, uint32_t b)
{
    return a / b + (a % b != 0);
}

static uint32_t min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static size_t qkv_width(const struct attention_shape *shape)
{
    return ((size_t)shape->heads + 2 * (size_t)shape->kv_heads) * shape->head_dim;
}

static uint32_t position_of(const struct attention_job *job, uint32_t row)
{
    return ((const uint32_t *)job->batch->positions.address)[row];
}

static uint32_t sequence_of(const struct attention_job *job, uint32_t row)
{
    return ((const uint32_t *)job->batch->row_sequence.address)[row];
}

/* --- bias, norm, rotation and append: an item is a row --- */

/* Queries and keys of one row, in place. */
static void normalise_heads(const struct attention_job *job, float *row)
{
    const struct head_parameters *p = job->parameters;
    const struct attention_shape *shape = job->shape;
    float normed[KERNELS_MAX_HEAD_DIM];
    for (uint32_t h = 0; h < shape->heads + shape->kv_heads; h++) {
        float *head = row + (size_t)h * shape->head_dim;
        const float *weight = h < shape->heads ? p->q_norm.address : p->k_norm.address;
        job->cpu->inner->rmsnorm(head, weight, p->norm_eps, shape->head_dim, normed);
        memcpy(head, normed, shape->head_dim * sizeof *head);
    }
}

static void append_rows(void *context, uint32_t thread, uint32_t first, uint32_t last)
{
    (void)thread;
    const struct attention_job *job = context;
    const struct attention_shape *shape = job->shape;
    const struct inner *inner = job->cpu->inner;
    uint32_t dim = shape->head_dim;
    for (uint32_t t = first; t < last; t++) {
        uint32_t sequence = sequence_of(job, t), position = position_of(job, t);
        float *row = job->qkv + t * qkv_width(shape);
        const float *rope = (const float *)job->parameters->rope.address + (size_t)position * dim;
        if (job->parameters->bias.address)
            inner->blend(row, 1, job->parameters->bias.address, 1, (uint32_t)qkv_width(shape));
        if (job->parameters->q_norm.address)
            normalise_heads(job, row);
        for (uint32_t h = 0; h < shape->heads + shape->kv_heads; h++)
            inner->rope(rope, dim, row + (size_t)h * dim);
        const float *key = row + (size_t)shape->heads * dim;
        const float *value = key + (size_t)shape->kv_heads * dim;
        for (uint32_t g = 0; g < shape->kv_heads; g++) {
            inner->round(key + (size_t)g * dim, dim,
                         kv_view_at(&job->kv, sequence, position, false, g));
            inner->round(value + (size_t)g * dim, dim,
                         kv_view_at(&job->kv, sequence, position, true, g));
        }
    }
}

enum status cpu_rope_append(struct kernels *kernels, const struct step_batch *batch,
                            const struct attention_shape *shape,
                            const struct head_parameters *parameters,
                            const struct kv_layout *layout, uint32_t layer, struct buffer *qkv,
                            struct buffer *pool)
{
    struct cpu *self = kernels->state;
    struct attention_job job = {.cpu = self,
                                .batch = batch,
                                .shape = shape,
                                .kv = kv_view_make(batch, layout, layer, pool),
                                .parameters = parameters,
                                .qkv = qkv->address};
    pool_run(self->pool, batch->rows, 8, append_rows, &job);
    return STATUS_OK;
}

/* --- attention --- */

/* Consecutive (query row, head) pairs of one sequence and KV head: pair i is row `first_row` + i / group. */
struct slice {
    const struct attention_job *job;
    struct attention_scratch *scratch;
    uint32_t sequence, kv_head;
    uint32_t first_row, pairs; /* pairs counted from head `first_head` of first_row */
    uint32_t first_head;       /* inside the group */
};

static uint32_t pair_row(const struct slice *slice, uint32_t pair)
{
    return slice->first_row + (slice->first_head + pair) / slice->job->group;
}

/* Where the pair's query starts in qkv, and its output in out, in units of head_dim. */
static uint32_t pair_head(const struct slice *slice, uint32_t pair)
{
    return slice->kv_head * slice->job->group + (slice->first_head + pair) % slice->job->group;
}

static uint32_t tile_begin(uint32_t pairs, uint32_t tile)
{
    return pairs * tile / divide_up(pairs, TILE_ROWS);
}

static void pack_queries(const struct slice *slice)
{
    const struct attention_job *job = slice->job;
    uint32_t dim = job->shape->head_dim;
    for (uint32_t tile = 0; tile < divide_up(slice->pairs, TILE_ROWS); tile++) {
        uint32_t begin = tile_begin(slice->pairs, tile), end = tile_begin(slice->pairs, tile + 1);
        const float *rows[TILE_ROWS];
        for (uint32_t i = begin; i < end; i++)
            rows[i - begin] = job->qkv + pair_row(slice, i) * qkv_width(job->shape) +
                              (size_t)pair_head(slice, i) * dim;
        job->cpu->inner->pack_tile(rows, end - begin, dim,
                                   slice->scratch->queries +
                                       (size_t)begin * (dim / 2) * TILE_BYTES_PER_PAIR);
    }
}

/* Keys of `count` tokens from `segment` on become count / PANEL panels; the rest of the last panel is zero. */
static void pack_keys(const struct slice *slice, uint32_t segment, uint32_t count)
{
    const struct attention_job *job = slice->job;
    uint32_t dim = job->shape->head_dim, panel_size = dim / 2 * PANEL;
    uint32_t *panels = slice->scratch->keys;
    if (count % PANEL)
        memset(panels + count / PANEL * panel_size, 0, panel_size * sizeof *panels);
    uint32_t step = min_u32(job->kv.block_tokens, PANEL);
    for (uint32_t t = 0; t < count; t += step)
        job->cpu->inner->pack_keys(
            kv_view_at(&job->kv, slice->sequence, segment + t, false, slice->kv_head),
            min_u32(step, count - t), dim, t % PANEL, panels + t / PANEL * panel_size);
}

static void pack_values(const struct slice *slice, uint32_t segment, uint32_t count)
{
    const struct attention_job *job = slice->job;
    uint32_t step = job->kv.block_tokens;
    for (uint32_t t = 0; t < count; t += step)
        job->cpu->inner->pack_values(
            kv_view_at(&job->kv, slice->sequence, segment + t, true, slice->kv_head),
            min_u32(step, count - t), job->shape->head_dim, ATTENTION_SEGMENT_TOKENS / 2,
            slice->scratch->values + t / 2 * PANEL);
}

/* scores[pair][token] = query . key, unscaled. */
static void score(const struct slice *slice, uint32_t count)
{
    struct attention_scratch *scratch = slice->scratch;
    uint32_t dim = slice->job->shape->head_dim;
    for (uint32_t panel = 0; panel < divide_up(count, PANEL); panel++)
        for (uint32_t tile = 0; tile < divide_up(slice->pairs, TILE_ROWS); tile++) {
            uint32_t begin = tile_begin(slice->pairs, tile);
            struct tile_product product = {
                .panel = scratch->keys + panel * (dim / 2 * PANEL),
                .tile = scratch->queries + (size_t)begin * (dim / 2) * TILE_BYTES_PER_PAIR,
                .rows = tile_begin(slice->pairs, tile + 1) - begin,
                .pairs = dim / 2,
                .out = scratch->scores + begin * ATTENTION_SEGMENT_TOKENS + panel * PANEL,
                .out_stride = ATTENTION_SEGMENT_TOKENS};
            slice->job->cpu->inner->multiply(&product);
        }
}

/* The first position that the pair sees. */
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

/* The tokens of a segment that a pair sees: [begin, end), empty where end is 0. */
struct range {
    uint32_t begin, end;
};

static struct range visible(const struct slice *slice, uint32_t pair, uint32_t segment)
{
    uint32_t position = position_of(slice->job, pair_row(slice, pair));
    uint32_t begin = window_begin(slice, pair);
    if (position < segment || segment < first_segment(slice, pair))
        return (struct range){0};
    return (struct range){.begin = begin > segment ? begin - segment : 0,
                          .end = min_u32(position - segment + 1, ATTENTION_SEGMENT_TOKENS)};
}

/* The visible part of a pair's scores becomes weights, lanes at absolute positions; returns what is behind it. */
static uint32_t weigh_visible(const struct slice *slice, struct range seen, float *scores,
                              float *max, float *sum)
{
    uint32_t from = seen.begin / SOFTMAX_LANES * SOFTMAX_LANES;
    memset(scores, 0, from * sizeof *scores);
    for (uint32_t t = from; t < seen.begin; t++)
        scores[t] = -INFINITY; /* weighs exactly nothing */
    *sum = slice->job->cpu->inner->softmax(scores + from, seen.end - from, slice->job->shape->scale,
                                           max);
    return divide_up(seen.end, SOFTMAX_LANES) * SOFTMAX_LANES;
}

/* Scores become weights, packed into tiles of `count` tokens; max and sum of each pair. */
static void weigh(const struct slice *slice, uint32_t segment, uint32_t count, float *max,
                  float *sum)
{
    struct attention_scratch *scratch = slice->scratch;
    const struct inner *inner = slice->job->cpu->inner;
    uint32_t padded = divide_up(count, SOFTMAX_LANES) * SOFTMAX_LANES;
    for (uint32_t i = 0; i < slice->pairs; i++) {
        float *scores = scratch->scores + i * ATTENTION_SEGMENT_TOKENS;
        struct range seen = visible(slice, i, segment);
        uint32_t done = seen.end ? weigh_visible(slice, seen, scores, &max[i], &sum[i]) : 0;
        memset(scores + done, 0, (padded - done) * sizeof *scores);
    }
    uint32_t tile_bytes = divide_up(count, 2) * TILE_BYTES_PER_PAIR;
    for (uint32_t tile = 0; tile < divide_up(slice->pairs, TILE_ROWS); tile++) {
        uint32_t begin = tile_begin(slice->pairs, tile), end = tile_begin(slice->pairs, tile + 1);
        const float *rows[TILE_ROWS];
        for (uint32_t i = begin; i < end; i++)
            rows[i - begin] = scratch->scores + i * ATTENTION_SEGMENT_TOKENS;
        inner->pack_tile(rows, end - begin, count, scratch->weights + begin * tile_bytes);
    }
}

/* out[pair][head_dim, padded to panels] = sum over the segment's tokens of weight * value. */
static void gather(const struct slice *slice, uint32_t count, float *out)
{
    struct attention_scratch *scratch = slice->scratch;
    uint32_t panels = divide_up(slice->job->shape->head_dim, PANEL);
    uint32_t tile_bytes = divide_up(count, 2) * TILE_BYTES_PER_PAIR;
    for (uint32_t panel = 0; panel < panels; panel++)
        for (uint32_t tile = 0; tile < divide_up(slice->pairs, TILE_ROWS); tile++) {
            uint32_t begin = tile_begin(slice->pairs, tile);
            struct tile_product product = {.panel = scratch->values +
                                                    panel * (ATTENTION_SEGMENT_TOKENS / 2 * PANEL),
                                           .tile = scratch->weights + begin * tile_bytes,
                                           .rows = tile_begin(slice->pairs, tile + 1) - begin,
                                           .pairs = divide_up(count, 2),
                                           .out = out + (begin * panels + panel) * PANEL,
                                           .out_stride = panels * PANEL};
            slice->job->cpu->inner->multiply(&product);
        }
}

/* Adds the segment's partial to what is merged already; a pair's first is taken as it is. */
static void merge(const struct slice *slice, uint32_t segment, const float *max, const float *sum)
{
    struct attention_scratch *scratch = slice->scratch;
    uint32_t width = divide_up(slice->job->shape->head_dim, PANEL) * PANEL;
    for (uint32_t i = 0; i < slice->pairs; i++) {
        float *merged = scratch->merged + i * width;
        if (!visible(slice, i, segment).end)
            continue;
        if (segment == first_segment(slice, i)) {
            memcpy(merged, scratch->partial + i * width, width * sizeof *merged);
            scratch->max[i] = max[i];
            scratch->sum[i] = sum[i];
            continue;
        }
        float top = max[i] > scratch->max[i] ? max[i] : scratch->max[i];
        float a = exp_fixed(scratch->max[i] - top), b = exp_fixed(max[i] - top);
        slice->job->cpu->inner->blend(merged, a, scratch->partial + i * width, b, width);
        scratch->sum[i] = scratch->sum[i] * a + sum[i] * b;
        scratch->max[i] = top;
    }
}

static void attend(const struct slice *slice)
{
    const struct attention_job *job = slice->job;
    struct attention_scratch *scratch = slice->scratch;
    uint32_t context = position_of(job, pair_row(slice, slice->pairs - 1)) + 1;
    uint32_t start = first_segment(slice, 0);
    pack_queries(slice);
    for (uint32_t segment = start; segment < context; segment += ATTENTION_SEGMENT_TOKENS) {
        uint32_t count = min_u32(context - segment, ATTENTION_SEGMENT_TOKENS);
        float max[ATTENTION_ROWS], sum[ATTENTION_ROWS];
        bool first = segment == start; /* nothing is merged yet */
        pack_keys(slice, segment, count);
        score(slice, count);
        weigh(slice, segment, count, first ? scratch->max : max, first ? scratch->sum : sum);
        pack_values(slice, segment, count);
        gather(slice, count, first ? scratch->merged : scratch->partial);
        if (!first)
            merge(slice, segment, max, sum);
    }
    uint32_t dim = job->shape->head_dim, width = divide_up(dim, PANEL) * PANEL;
    for (uint32_t i = 0; i < slice->pairs; i++) {
        size_t head = (size_t)pair_row(slice, i) * job->shape->heads + pair_head(slice, i);
        job->cpu->inner->divide(scratch->merged + i * width, scratch->sum[i], dim,
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
                                      .scratch = &job->cpu->attention[thread],
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
    /* Decode alone: one row an item. With prompts: as many as fill a slice. */
    uint32_t item_rows = batch->rows <= batch->sequences ? 1 : divide_up(ATTENTION_ROWS, group);
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
