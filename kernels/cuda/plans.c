#include "kernels/cuda/plan.h"

#include "common/base/assert.h"
#include "common/base/rng.h"
#include "common/base/u32.h"

#include <string.h>

#define MOST_GRID_Y 65535

/* --- helpers of all plans --- */

struct cuda_launch *plan_launch(struct cuda_plan *plan, const char *kernel, uint32_t blocks,
                                uint32_t threads, uint32_t shared_bytes, const void *parameters,
                                size_t bytes)
{
    ASSERT(plan->count < CUDA_MAX_LAUNCHES && bytes <= CUDA_PARAMETER_BYTES);
    struct cuda_launch *launch = &plan->launches[plan->count++];
    *launch = (struct cuda_launch){.kernel = kernel,
                                   .grid = {blocks, 1, 1},
                                   .threads = threads,
                                   .cluster = 1,
                                   .shared_bytes = shared_bytes,
                                   .parameter_bytes = (uint32_t)bytes};
    memcpy(launch->parameters, parameters, bytes);
    return launch;
}

bool plan_begin(struct cuda_plan *plan, uint32_t rows)
{
    plan->count = 0;
    plan->done = plan->next_row >= rows;
    return !plan->done;
}

enum status plan_end(const struct cuda_target *target, struct cuda_plan *plan, uint32_t next_row,
                     uint32_t rows)
{
    plan->next_row = next_row;
    plan->done = next_row >= rows;
    for (uint32_t i = 0; i < plan->count; i++)
        plan->launches[i].early = target->hopper;
    return STATUS_OK;
}

uint32_t plan_drawn(const struct cuda_target *target, const struct cuda_plan *plan, uint32_t what,
                    uint32_t bound)
{
    return (uint32_t)(rng_at(target->draw, what, plan->next_row) % bound);
}

/* --- heads --- */

struct cuda_kv plan_kv(const struct step_batch *batch, const struct kv_layout *layout,
                       uint32_t layer, const struct buffer *pool)
{
    uint32_t token_bytes = layout->head_dim * kv_type_bytes(layout->type);
    return (struct cuda_kv){
        .pool = pool->address,
        .tables = batch->block_tables.address,
        .block_bytes = kv_layout_block_bytes(layout),
        .offset_bytes = {kv_layout_offset_bytes(layout, layer, false, layout->head_begin),
                         kv_layout_offset_bytes(layout, layer, true, layout->head_begin)},
        .head_bytes = kv_layout_head_run_bytes(layout),
        .token_bytes = token_bytes,
        .scales_bytes = layout->block_tokens * token_bytes,
        .block_tokens = layout->block_tokens,
        .table_stride = batch->table_stride};
}

struct cuda_heads plan_heads(const struct step_batch *batch, const struct attention_shape *shape,
                             const struct head_parameters *parameters,
                             const struct kv_layout *layout, uint32_t layer,
                             const struct buffer *pool)
{
    return (struct cuda_heads){.kv = plan_kv(batch, layout, layer, pool),
                               .positions = batch->positions.address,
                               .row_sequence = batch->row_sequence.address,
                               .bias = parameters->bias.address,
                               .q_norm = parameters->q_norm.address,
                               .k_norm = parameters->k_norm.address,
                               .rope = parameters->rope.address,
                               .norm_eps = parameters->norm_eps,
                               .heads = shape->heads,
                               .kv_heads = shape->kv_heads,
                               .head_dim = shape->head_dim,
                               .int8 = layout->type == KV_INT8};
}

/* --- row by row --- */

enum status cuda_plan_embed(const struct cuda_target *target, const struct step_batch *batch,
                            const struct linear *embedding, const struct buffer *x,
                            struct cuda_plan *plan)
{
    if (weight_type_is_fp8(embedding->type) || cuda_refusal_weights(embedding->type, true))
        return STATUS_UNSUPPORTED;
    if (!plan_begin(plan, batch->rows))
        return STATUS_OK;
    struct embed_parameters p = {.weights = plan_weights(embedding),
                                 .tokens = batch->tokens.address,
                                 .x = x->address,
                                 .rows = batch->rows};
    PLAN_ROWS(plan, "embed_rows", batch->rows, &p);
    return plan_end(target, plan, batch->rows, batch->rows);
}

enum status cuda_plan_rmsnorm(const struct cuda_target *target, const struct buffer *x,
                              const struct buffer *weight, double eps, const struct buffer *rows,
                              uint32_t row_count, uint32_t hidden, const struct buffer *out,
                              struct cuda_plan *plan)
{
    if (!plan_begin(plan, row_count))
        return STATUS_OK;
    struct rmsnorm_parameters p = {.x = x->address,
                                   .weight = weight->address,
                                   .rows = rows ? rows->address : NULL,
                                   .out = out->address,
                                   .eps = eps,
                                   .row_count = row_count,
                                   .hidden = hidden};
    PLAN_ROWS(plan, "rmsnorm_rows", row_count, &p);
    return plan_end(target, plan, row_count, row_count);
}

enum status cuda_plan_swiglu(const struct cuda_target *target, const struct buffer *gate_up,
                             uint32_t rows, uint32_t ffn, const struct buffer *out,
                             struct cuda_plan *plan)
{
    if (!plan_begin(plan, rows))
        return STATUS_OK;
    struct swiglu_parameters p = {
        .gate_up = gate_up->address, .out = out->address, .rows = rows, .ffn = ffn};
    struct cuda_launch *launch =
        PLAN_ROWS(plan, "swiglu_rows", divide_up(ffn, 4 * CUDA_ROW_THREADS), &p);
    launch->grid[1] = min_u32(rows, MOST_GRID_Y);
    return plan_end(target, plan, rows, rows);
}

/* --- rows to the pool --- */

enum status cuda_plan_rope_append(const struct cuda_target *target, const struct step_batch *batch,
                                  const struct attention_shape *shape,
                                  const struct head_parameters *parameters,
                                  const struct kv_layout *layout, uint32_t layer,
                                  const struct buffer *qkv, const struct buffer *pool,
                                  struct cuda_plan *plan)
{
    if (shape->head_dim > CUDA_MAX_HEAD_DIM)
        return STATUS_UNSUPPORTED;
    if (!plan_begin(plan, batch->rows))
        return STATUS_OK;
    struct rope_parameters p = {.heads = plan_heads(batch, shape, parameters, layout, layer, pool),
                                .qkv = qkv->address,
                                .rows = batch->rows};
    PLAN_ROWS(plan, "rope_append_rows", batch->rows, &p);
    return plan_end(target, plan, batch->rows, batch->rows);
}

/* --- drawing tokens --- */

#define SAMPLE_SLOTS 32 /* rows that are drawn at once */

static size_t sample_slot_bytes(uint32_t vocab)
{
    size_t masses = ((size_t)vocab * sizeof(float) + 15) / 16 * 16;
    return masses + (size_t)vocab * sizeof(uint64_t);
}

size_t cuda_sample_bytes(uint32_t vocab)
{
    return SAMPLE_SLOTS * sample_slot_bytes(vocab);
}

enum status cuda_plan_sample(const struct cuda_target *target, const struct buffer *logits,
                             uint32_t rows, uint32_t vocab, const struct buffer *draws,
                             const struct buffer *scratch, const struct buffer *drawn_tokens,
                             struct cuda_plan *plan)
{
    if (!plan_begin(plan, rows))
        return STATUS_OK;
    struct sample_parameters p = {.logits = logits->address,
                                  .draws = draws->address,
                                  .drawn = drawn_tokens->address,
                                  .scratch = scratch->address,
                                  .slot_bytes = sample_slot_bytes(vocab),
                                  .rows = rows,
                                  .vocab = vocab};
    uint32_t slots = target->draw ? 1 + plan_drawn(target, plan, 1, SAMPLE_SLOTS) : SAMPLE_SLOTS;
    plan_launch(plan, "sample_rows", min_u32(rows, slots), CUDA_ROW_THREADS,
                CUDA_SAMPLE_SHARED_BYTES, &p, sizeof p);
    return plan_end(target, plan, rows, rows);
}

enum status cuda_plan_take_tokens(const struct cuda_target *target, const struct buffer *from,
                                  uint32_t rows, const struct buffer *drawn_tokens,
                                  const struct buffer *tokens, struct cuda_plan *plan)
{
    if (!plan_begin(plan, rows))
        return STATUS_OK;
    struct take_parameters p = {.from = from->address,
                                .drawn = drawn_tokens->address,
                                .tokens = tokens->address,
                                .rows = rows};
    PLAN_ROWS(plan, "take_rows", divide_up(rows, CUDA_ROW_THREADS), &p);
    return plan_end(target, plan, rows, rows);
}
