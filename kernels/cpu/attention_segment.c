/* Attention of a slice over one segment of the context; see attention.c.
 *
 * A slice of several tiles (prompts) widens keys and values once for all of them; a tile then goes
 * through scores, weights and output while its numbers are in the first-level cache. A tile that is
 * alone (decode) reads them where they lie, and meanwhile asks for those that come later: it would
 * wait for memory at each block of the pool.
 */
#include "kernels/cpu/attention_slice.h"

#include <string.h>

/* Pairs [begin, end) of a tile see the segment, the last of them `count` tokens of it; those from
 * `fresh` on see it first. */
struct tile {
    uint32_t begin, fresh, end, count;
};

/* Positions ascend: pairs that don't see the segment yet, or no longer, lie at the ends of a
 * tile. */
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

/* Tokens of a segment up to the context's end. */
static uint32_t segment_tokens(const struct slice *slice, uint32_t segment)
{
    return min_u32(slice->context - segment, ATTENTION_SEGMENT_TOKENS);
}

static void repeat_last(const char *runs[SEGMENT_RUNS], uint32_t count)
{
    for (uint32_t i = count; i < SEGMENT_RUNS; i++)
        runs[i] = runs[count - 1];
}

/* Where keys of a segment lie; behind the context the last run again. */
static void find_runs(const struct slice *slice, uint32_t segment, uint32_t kv_head,
                      const char *runs[SEGMENT_RUNS])
{
    uint32_t count = kv_view_runs(&slice->job->kv, slice->sequence, segment,
                                  segment_tokens(slice, segment), kv_head, RUN_TOKENS, runs);
    repeat_last(runs, count);
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

/* Scales of the segment's tokens; zeros behind the context. */
static void read_scales(const struct slice *slice, bool value, float *scales)
{
    memset(scales, 0, ATTENTION_SEGMENT_TOKENS * sizeof *scales);
    kv_view_scales(&slice->job->kv, slice->sequence, slice->segment,
                   segment_tokens(slice, slice->segment), value, slice->kv_head, scales);
}

/* What comes behind the values at hand, a segment's runs: keys of the next segment, where those are
 * few of the next head's first ones, too, and so on; nothing: those at hand. */
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

/* Keys and values that the slice sees of the segment become panels. */
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

/* Scores become weights, zero behind what a pair sees; max and sum of each pair. */
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

/* --- tiles --- */

static void attend_tile(struct slice *slice, const struct tile *tile)
{
    float max[TILE_ROWS], sum[TILE_ROWS];
    score(slice, tile);
    weigh(slice, tile, max, sum);
    gather(slice, tile);
    merge(slice, tile, max, sum);
}

/* The same of a tile that is alone. */
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

void attend_segment(struct slice *slice)
{
    uint32_t tiles = divide_up(slice->pairs, TILE_ROWS);
    bool alone = tiles == 1 && slice->job->shape->head_dim % PANEL == 0;
    find_runs(slice, slice->segment, slice->kv_head, slice->runs);
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
