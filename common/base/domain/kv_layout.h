/* The layout of KV blocks in memory, and the byte runs that move between two layouts. PURE.
 *
 * A block holds `block_tokens` tokens of all layers that a worker owns:
 * [block][layer][k|v][kv_head][token][head_dim]. A type with scales has them behind each head's
 * run, [token] fp32, so that a run moves with its scales. A worker owns a rectangle of the model:
 * layers [layer_begin, layer_end) x kv heads [head_begin, head_end). The intersection of two
 * workers' rectangles moves between them. Whole equal rectangles give one run a block. */
#ifndef BATON_BASE_DOMAIN_KV_LAYOUT_H
#define BATON_BASE_DOMAIN_KV_LAYOUT_H

#include "common/base/domain/model_shape.h"
#include "common/base/status.h"

#include <stddef.h>

#define KV_LAYOUT_VERSION 1

struct kv_layout {
    uint32_t layers, kv_heads, head_dim; /* in the whole model */
    uint32_t block_tokens;               /* power of two, 8..256 */
    enum kv_type type;
    uint32_t layer_begin, layer_end; /* this worker's rectangle */
    uint32_t head_begin, head_end;
};

/* Returns the layout of the whole model on one worker. */
struct kv_layout kv_layout_whole(const struct model_shape *shape, uint32_t block_tokens,
                                 enum kv_type type);

size_t kv_layout_head_run_bytes(
    const struct kv_layout *layout); /* one head's tokens, K or V, with their scales */
size_t kv_layout_layer_bytes(const struct kv_layout *layout); /* one layer of a block, K and V */
size_t kv_layout_block_bytes(const struct kv_layout *layout);
/* Byte offset inside a block of the run of (layer, K or V, kv_head). Layer and head are absolute,
 * inside the rectangle. */
size_t kv_layout_offset_bytes(const struct kv_layout *layout, uint32_t layer, bool value,
                              uint32_t head);
uint32_t kv_layout_blocks_for(const struct kv_layout *layout, uint32_t tokens);

/* Covers everything except the rectangle. Two workers may exchange KV only if it is equal. */
uint64_t kv_layout_hash(const struct kv_layout *layout);

struct kv_run {
    /* inside the sender's and the receiver's block */
    size_t source_offset_bytes, target_offset_bytes;
    size_t bytes;
};

/* Lists the runs that bring layers [layer_begin, layer_end) of `source` into `target`, in ascending
 * order. Runs that touch on both sides are merged. Returns the number of runs in *count; 0 when the
 * rectangles don't meet. STATUS_LIMIT: `capacity` is too small. STATUS_INVALID: the layouts differ
 * beyond their rectangles. */
enum status kv_layout_runs(const struct kv_layout *source, const struct kv_layout *target,
                           uint32_t layer_begin, uint32_t layer_end, struct kv_run *runs,
                           size_t capacity, size_t *count) WARN_UNUSED;

#endif
