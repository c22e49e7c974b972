/* How KV blocks lie in memory, and which byte runs move between two layouts. PURE.
 *
 * A block holds `block_tokens` tokens of all layers that a worker owns:
 * [block][layer][k|v][kv_head][token][head_dim]. A type with scales has them behind each head's
 * run, [token] fp32: what moves a run moves its scales. A worker owns a rectangle of the model:
 * layers [layer_begin, layer_end) x kv heads [head_begin, head_end). What moves between two workers
 * is the intersection of their rectangles; whole equal rectangles give one run a block.
 */
#ifndef BATON_BASE_DOMAIN_KV_LAYOUT_H
#define BATON_BASE_DOMAIN_KV_LAYOUT_H

#include "common/base/domain/model_shape.h"
#include "common/base/status.h"

#include <stddef.h>

#define KV_LAYOUT_VERSION 1

struct kv_layout {
    uint32_t layers, kv_heads, head_dim; /* of the whole model */
    uint32_t block_tokens;               /* power of two, 8..256 */
    enum kv_type type;
    uint32_t layer_begin, layer_end; /* this worker's rectangle */
    uint32_t head_begin, head_end;
};

/* The whole model on one worker. */
struct kv_layout kv_layout_whole(const struct model_shape *shape, uint32_t block_tokens,
                                 enum kv_type type);

size_t kv_layout_head_run_bytes(
    const struct kv_layout *layout); /* one head's tokens, K or V, with their scales */
size_t kv_layout_layer_bytes(const struct kv_layout *layout); /* one layer of a block, K and V */
size_t kv_layout_block_bytes(const struct kv_layout *layout);
/* Byte offset inside a block of the run of (layer, K or V, kv_head); layer and head absolute,
 * inside the rectangle. */
size_t kv_layout_offset_bytes(const struct kv_layout *layout, uint32_t layer, bool value,
                              uint32_t head);
uint32_t kv_layout_blocks_for(const struct kv_layout *layout, uint32_t tokens);

/* Covers everything but the rectangle: two workers may exchange KV only if this is equal. */
uint64_t kv_layout_hash(const struct kv_layout *layout);

struct kv_run {
    size_t source_offset_bytes, target_offset_bytes; /* inside a block of either side */
    size_t bytes;
};

/* The runs that bring what `source` holds of layers [layer_begin, layer_end) into `target`, in
 * ascending order, neighbours on both sides merged. Returns the number of runs; STATUS_LIMIT when
 * `capacity` is too small, STATUS_INVALID when the layouts differ beyond their rectangles. An empty
 * intersection gives 0 runs. */
enum status kv_layout_runs(const struct kv_layout *source, const struct kv_layout *target,
                           uint32_t layer_begin, uint32_t layer_end, struct kv_run *runs,
                           size_t capacity, size_t *count) WARN_UNUSED;

#endif
