/* Attention of the bf16 backend.
 *
 * Work item: a few query rows x one KV head, with all query heads of its group, so that keys and
 * values are read and widened once for them all: a slice of up to ATTENTION_ROWS (row, head) pairs,
 * cut into tiles of up to TILE_ROWS. The context is cut into segments of ATTENTION_SEGMENT_TOKENS
 * at absolute positions; each gives a pair a partial (max, sum, output), merged in ascending order.
 * Both products of a segment (inner/attention.h) sum over head_dim and over the segment's tokens in
 * a fixed order, whatever the number of rows. What lies after a row's own position, or in front of
 * its window, weighs exactly zero; values after the slice's last token are never read, and scores
 * of keys there never count. Segments that no row sees are passed over.
 */
#include "kernels/cpu/attention_slice.h"

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

/* Item = (block of item_rows rows, KV head); a block may hold the rows of several sequences. Blocks
 * of a prompt follow each other head by head, since they read the same keys and values; single rows
 * go through the heads, as their memory lies. */
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
