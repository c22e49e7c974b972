/* Where the keys or values of one (block, layer, head) lie in a host's KV pool: [token][head_dim]. */
#ifndef BATON_KERNELS_CPU_KV_RUN_H
#define BATON_KERNELS_CPU_KV_RUN_H

#include "common/base/assert.h"
#include "kernels/kernels.h"

/* `head` counts from the layout's first head. Block ids come from the block allocator: one outside the pool is a
 * programmer's error. */
static inline void *kv_run_address(const struct buffer *pool, const struct kv_layout *layout,
                                   uint32_t block, uint32_t layer, bool value, uint32_t head)
{
    size_t block_bytes = kv_layout_block_bytes(layout);
    ASSERT(block < pool->bytes / block_bytes);
    return (char *)pool->address + block * block_bytes +
           kv_layout_offset_bytes(layout, layer, value, layout->head_begin + head);
}

/* The block that holds `position` of a sequence. */
static inline uint32_t kv_run_block(const struct step_batch *batch, const struct kv_layout *layout,
                                    uint32_t sequence, uint32_t position)
{
    const uint32_t *tables = batch->block_tables.address;
    uint32_t index = position / layout->block_tokens;
    ASSERT(index < batch->table_stride);
    return tables[(size_t)sequence * batch->table_stride + index];
}

#endif
