/* One layer of the KV pool in host memory, addressed by sequence and position through the step's
 * block tables. */
#ifndef BATON_KERNELS_CPU_KV_VIEW_H
#define BATON_KERNELS_CPU_KV_VIEW_H

#include "common/base/assert.h"
#include "kernels/kernels.h"

#include <string.h>

struct kv_view {
    char *pool;
    size_t block_count, block_bytes;
    size_t offset_bytes[2]; /* inside a block: first key and first value of head 0 */
    size_t head_bytes, token_bytes;
    size_t scales_bytes; /* KV_INT8: from a head's first token to its scales */
    enum kv_type type;
    uint32_t block_tokens;
    const uint32_t *tables; /* [sequences][table_stride] */
    uint32_t table_stride;
};

static inline struct kv_view kv_view_make(const struct step_batch *batch,
                                          const struct kv_layout *layout, uint32_t layer,
                                          const struct buffer *pool)
{
    size_t block_bytes = kv_layout_block_bytes(layout);
    return (struct kv_view){
        .pool = pool->address,
        .block_count = pool->bytes / block_bytes,
        .block_bytes = block_bytes,
        .offset_bytes = {kv_layout_offset_bytes(layout, layer, false, layout->head_begin),
                         kv_layout_offset_bytes(layout, layer, true, layout->head_begin)},
        .head_bytes = kv_layout_head_run_bytes(layout),
        .token_bytes = (size_t)layout->head_dim * kv_type_bytes(layout->type),
        .scales_bytes =
            (size_t)layout->block_tokens * layout->head_dim * kv_type_bytes(layout->type),
        .type = layout->type,
        .block_tokens = layout->block_tokens,
        .tables = batch->block_tables.address,
        .table_stride = batch->table_stride};
}

/* Returns the first key (or value) of one head in the position's block. `head` counts from the
 * layout's first. Block ids come from the block allocator: an id outside the pool is a programmer's
 * error. */
static inline char *kv_view_run(const struct kv_view *view, uint32_t sequence, uint32_t position,
                                bool value, uint32_t head)
{
    uint32_t index = position / view->block_tokens;
    ASSERT(index < view->table_stride);
    uint32_t block = view->tables[(size_t)sequence * view->table_stride + index];
    ASSERT(block < view->block_count);
    return view->pool + block * view->block_bytes + view->offset_bytes[value] +
           head * view->head_bytes;
}

/* Returns the key or value of one token. The tokens after it in its block follow. */
static inline void *kv_view_at(const struct kv_view *view, uint32_t sequence, uint32_t position,
                               bool value, uint32_t head)
{
    return kv_view_run(view, sequence, position, value, head) +
           position % view->block_tokens * view->token_bytes;
}

/* Returns the scale of one token (KV_INT8). The scales of the tokens after it in its block
 * follow. */
static inline float *kv_view_scale_at(const struct kv_view *view, uint32_t sequence,
                                      uint32_t position, bool value, uint32_t head)
{
    float *scales =
        (float *)(kv_view_run(view, sequence, position, value, head) + view->scales_bytes);
    return scales + position % view->block_tokens;
}

/* Writes the addresses of one head's keys for `count` tokens from `position`, the first of a block.
 * Each address is that of `run` neighbouring tokens; `run` divides block_tokens. The last run may
 * reach behind the tokens, never behind its block. Returns the number of addresses. */
static inline uint32_t kv_view_runs(const struct kv_view *view, uint32_t sequence,
                                    uint32_t position, uint32_t count, uint32_t head, uint32_t run,
                                    const char **runs)
{
    uint32_t found = 0;
    for (uint32_t t = 0; t < count; t += view->block_tokens) {
        const char *keys = kv_view_run(view, sequence, position + t, false, head);
        uint32_t left = count - t < view->block_tokens ? count - t : view->block_tokens;
        for (uint32_t i = 0; i < left; i += run)
            runs[found++] = keys + i * view->token_bytes;
    }
    return found;
}

/* Copies the scales of `count` tokens from `position`, the first of a block (KV_INT8). */
static inline void kv_view_scales(const struct kv_view *view, uint32_t sequence, uint32_t position,
                                  uint32_t count, bool value, uint32_t head, float *scales)
{
    for (uint32_t t = 0; t < count; t += view->block_tokens) {
        uint32_t left = count - t < view->block_tokens ? count - t : view->block_tokens;
        memcpy(scales + t, kv_view_scale_at(view, sequence, position + t, value, head),
               left * sizeof *scales);
    }
}

#endif
