#include "common/base/domain/kv_layout.h"

#include "common/base/assert.h"
#include "common/base/str.h"
#include "common/base/u32.h"

struct kv_layout kv_layout_whole(const struct model_shape *shape, uint32_t block_tokens,
                                 enum kv_type type)
{
    return (struct kv_layout){.layers = shape->layers,
                              .kv_heads = shape->kv_heads,
                              .head_dim = shape->head_dim,
                              .block_tokens = block_tokens,
                              .type = type,
                              .layer_begin = 0,
                              .layer_end = shape->layers,
                              .head_begin = 0,
                              .head_end = shape->kv_heads};
}

size_t kv_layout_head_run_bytes(const struct kv_layout *layout)
{
    return layout->block_tokens * ((size_t)layout->head_dim * kv_type_bytes(layout->type) +
                                   kv_type_scale_bytes(layout->type));
}

size_t kv_layout_layer_bytes(const struct kv_layout *layout)
{
    return 2 * kv_layout_head_run_bytes(layout) * (layout->head_end - layout->head_begin);
}

size_t kv_layout_block_bytes(const struct kv_layout *layout)
{
    return kv_layout_layer_bytes(layout) * (layout->layer_end - layout->layer_begin);
}

size_t kv_layout_offset_bytes(const struct kv_layout *layout, uint32_t layer, bool value,
                              uint32_t head)
{
    ASSERT(layer >= layout->layer_begin && layer < layout->layer_end);
    ASSERT(head >= layout->head_begin && head <= layout->head_end);
    uint32_t heads = layout->head_end - layout->head_begin;
    size_t run =
        ((size_t)(layer - layout->layer_begin) * 2 + value) * heads + (head - layout->head_begin);
    return run * kv_layout_head_run_bytes(layout);
}

uint32_t kv_layout_blocks_for(const struct kv_layout *layout, uint32_t tokens)
{
    return tokens / layout->block_tokens + (tokens % layout->block_tokens != 0);
}

uint64_t kv_layout_hash(const struct kv_layout *layout)
{
    uint32_t facts[] = {KV_LAYOUT_VERSION, layout->layers,       layout->kv_heads,
                        layout->head_dim,  layout->block_tokens, (uint32_t)layout->type};
    return hash_bytes(facts, sizeof facts, HASH_SEED);
}

enum status kv_layout_runs(const struct kv_layout *source, const struct kv_layout *target,
                           uint32_t layer_begin, uint32_t layer_end, struct kv_run *runs,
                           size_t capacity, size_t *count)
{
    if (kv_layout_hash(source) != kv_layout_hash(target))
        return STATUS_INVALID;
    uint32_t first_layer = max_u32(layer_begin, max_u32(source->layer_begin, target->layer_begin));
    uint32_t last_layer = min_u32(layer_end, min_u32(source->layer_end, target->layer_end));
    uint32_t first_head = max_u32(source->head_begin, target->head_begin);
    uint32_t last_head = min_u32(source->head_end, target->head_end);
    size_t used = 0;
    for (uint32_t layer = first_layer; layer < last_layer && first_head < last_head; layer++)
        for (int value = 0; value < 2; value++) {
            struct kv_run run = {
                .source_offset_bytes = kv_layout_offset_bytes(source, layer, value, first_head),
                .target_offset_bytes = kv_layout_offset_bytes(target, layer, value, first_head),
                .bytes = (last_head - first_head) * kv_layout_head_run_bytes(source)};
            struct kv_run *last = used ? &runs[used - 1] : NULL;
            if (last && last->source_offset_bytes + last->bytes == run.source_offset_bytes &&
                last->target_offset_bytes + last->bytes == run.target_offset_bytes) {
                last->bytes += run.bytes;
                continue;
            }
            if (used == capacity)
                return STATUS_LIMIT;
            runs[used++] = run;
        }
    *count = used;
    return STATUS_OK;
}
