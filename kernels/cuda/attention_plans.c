#include "kernels/cuda/plan.h"

#include "common/base/u32.h"

/* Sequences with fewer rows in the step are done row by row, their contexts in parts. */
#define SHORT_RUN 8
/* Stages of a warp that decodes: no more are of use, and no fewer if others can have fewer. */
#define DECODE_MOST_STAGES  24
#define DECODE_LEAST_STAGES 3
/* Segments of a row that decoding merges itself at most. */
#define DECODE_MERGES 8

const char *cuda_refusal_head_dim(uint32_t head_dim)
{
    return head_dim == 16 || head_dim == 32 || head_dim == 64 || head_dim == 128
               ? NULL
               : "CUDA kernels take attention heads of 16, 32, 64 and 128 numbers";
}

/* A plan of attention: the kernels, and how rows are cut. No bit depends on it. */
struct choice {
    uint32_t short_run; /* rows of a short run at most; 0: no run is short; UINT32_MAX: all are */
    bool decodes;       /* short runs by attention_decode_... */
    bool splits;        /* otherwise their contexts go in parts */
    uint32_t warps, stages; /* a block that decodes has them; 0: as many as units ask for */
    uint32_t merges;        /* segments of a row that it merges at most */
    bool groups;            /* long runs by attention_..._sm90 */
    uint32_t tile_rows;     /* rows of a tile of long runs */
    uint32_t slots;         /* blocks that run at once */
};

/* --- attention.cu --- */

#define PAIRS  64 /* a block, as in attention.cu */
#define STAGES 3
#define TOKENS 64 /* a stage */

/* By head_dim 16, 32, 64 and 128; bf16 and int8 pools. */
static const char *const portable_kernels[4][2] = {{"attention_bf16_16", "attention_int8_16"},
                                                   {"attention_bf16_32", "attention_int8_32"},
                                                   {"attention_bf16_64", "attention_int8_64"},
                                                   {"attention_bf16_128", "attention_int8_128"}};

/* Rows of runs within [p->least_run, p->most_run], in tiles of p->tile_rows. */
static void launch_portable(struct cuda_plan *plan, struct attention_parameters *p, bool int8)
{
    uint32_t head_dim = p->head_dim, tiles = divide_up(p->rows - p->first_row, p->tile_rows);
    p->chunks = divide_up(p->tile_rows * p->group, PAIRS);
    uint32_t shared = (PAIRS + STAGES * TOKENS) * head_dim * 2 +
                      2 * ATTENTION_SEGMENT_TOKENS * (uint32_t)sizeof(float) + 32 + 128 * 16;
    struct cuda_launch *launch =
        plan_launch(plan, portable_kernels[__builtin_ctz(head_dim / 16)][int8], tiles * p->chunks,
                    128, shared, p, sizeof *p);
    launch->grid[1] = p->kv_heads;
    launch->grid[2] = p->segments ? p->segments : 1;
    if (p->segments)
        PLAN_ROWS(plan, "attention_merge", p->rows - p->first_row, p);
}

/* --- prefill.cu --- */

static const char *const group_kernels[2][2] = {
    {"attention_bf16_64_sm90", "attention_int8_64_sm90"},
    {"attention_bf16_128_sm90", "attention_int8_128_sm90"}};

static void launch_group(const struct choice *choice, struct cuda_plan *plan,
                         struct attention_parameters *p, bool int8)
{
    uint32_t head_dim = p->head_dim, stages = CUDA_PREFILL_STAGES(head_dim, int8);
    uint32_t stage_bytes =
        CUDA_PREFILL_TOKENS * (head_dim * 2 + (int8 ? 2 * (uint32_t)sizeof(float) : 0));
    p->chunks = divide_up(p->tile_rows * p->group, CUDA_PREFILL_PAIRS);
    uint32_t units = divide_up(p->rows - p->first_row, p->tile_rows) * p->chunks * p->kv_heads;
    /* alignment, queries, stages with their barriers, runs with theirs, the walk */
    uint32_t shared =
        1024 + CUDA_PREFILL_PAIRS * head_dim * 2 + stages * (stage_bytes + 16) + 96 + 48;
    plan_launch(plan, group_kernels[head_dim == 128][int8], min_u32(units, choice->slots), 384,
                shared, p, sizeof *p);
}

/* --- decode.cu --- */

static const char *const decode_kernels[2][2] = {
    {"attention_decode_bf16_64", "attention_decode_int8_64"},
    {"attention_decode_bf16_128", "attention_decode_int8_128"}};
static const char *const merge_kernels[2] = {"attention_decode_merge_64",
                                             "attention_decode_merge_128"};

/* Rows of short runs among `rows` at most. */
static uint32_t short_rows(const struct step_batch *batch, const struct choice *choice,
                           uint32_t rows)
{
    uint64_t most = (uint64_t)batch->sequences * choice->short_run;
    return most < rows ? (uint32_t)most : rows;
}

static size_t part_bytes(const struct attention_shape *shape)
{
    return shape->heads * ((size_t)shape->head_dim + 2) * sizeof(float);
}

/* Returns how many of the rows from `first` on a launch takes. */
static uint32_t decode_rows(const struct cuda_target *target, const struct step_batch *batch,
                            const struct attention_shape *shape, const struct choice *choice,
                            uint32_t first, uint32_t segments)
{
    uint32_t rows = batch->rows - first;
    uint32_t chunks = divide_up(shape->heads / shape->kv_heads, CUDA_DECODE_HEADS);
    size_t most = target->scratch.bytes / (part_bytes(shape) * segments);
    size_t tickets = (CUDA_TICKETS - CUDA_DECODE_COUNTERS) / (shape->kv_heads * chunks);
    most = most < tickets ? most : tickets;
    most = most < CUDA_DECODE_ROWS ? most : CUDA_DECODE_ROWS;
    return short_rows(batch, choice, rows) <= most ? rows : (uint32_t)most;
}

static void launch_decode(const struct cuda_target *target, const struct step_batch *batch,
                          const struct choice *choice, struct cuda_plan *plan,
                          struct attention_parameters *p, bool int8)
{
    uint32_t rows = short_rows(batch, choice, p->rows - p->first_row);
    p->chunks = divide_up(p->group, CUDA_DECODE_HEADS);
    p->merges = choice->merges;
    p->partial_o = target->scratch.address;
    p->partial_ml = p->partial_o + (size_t)rows * p->segments * p->heads * p->head_dim;
    p->tickets = target->tickets.address;
    uint32_t stage_bytes =
        CUDA_DECODE_TOKENS * (int8 ? p->head_dim + (uint32_t)sizeof(float) : p->head_dim * 2);
    uint32_t fixed = CUDA_DECODE_ROWS * 16 + 2 * CUDA_DECODE_WARPS * (uint32_t)sizeof(uint32_t);
    uint32_t stages = (target->shared_bytes - fixed) / stage_bytes;
    uint64_t units = (uint64_t)rows * p->segments * p->kv_heads * p->chunks;
    /* Few units get few warps with long rings, many units many warps with short ones. */
    p->warps = choice->warps ? choice->warps : 1;
    while (!choice->warps && p->warps < CUDA_DECODE_WARPS &&
           units > (uint64_t)p->warps * target->sms &&
           stages / (2 * p->warps) >= DECODE_LEAST_STAGES)
        p->warps *= 2;
    p->stages = min_u32(choice->stages, stages / p->warps);
    uint64_t blocks = (units + p->warps - 1) / p->warps;
    plan_launch(plan, decode_kernels[p->head_dim == 128][int8],
                blocks < choice->slots ? (uint32_t)blocks : choice->slots, p->warps * 32,
                p->warps * p->stages * stage_bytes + fixed, p, sizeof *p);
    if (p->segments <= p->merges)
        return;
    p->warps = CUDA_DECODE_HEADS;
    plan_launch(plan, merge_kernels[p->head_dim == 128],
                min_u32(rows * p->kv_heads * p->chunks, 2 * choice->slots), p->warps * 32, fixed, p,
                sizeof *p);
}

/* --- both --- */

/* Without measurements: decoding by its own kernel, prefill by wgmma where the device has it. */
static struct choice best_choice(const struct cuda_target *target, const struct step_batch *batch,
                                 const struct attention_shape *shape)
{
    bool is_long = batch->rows > batch->sequences, wide = shape->head_dim >= 64;
    bool groups = wide && target->hopper;
    uint32_t pairs = groups ? CUDA_PREFILL_PAIRS : PAIRS;
    return (struct choice){.short_run = is_long ? SHORT_RUN : UINT32_MAX,
                           .decodes = wide,
                           .splits = batch->rows <= batch->sequences * SHORT_RUN &&
                                     batch->rows * shape->kv_heads < 4 * target->sms,
                           .stages = DECODE_MOST_STAGES,
                           .merges = DECODE_MERGES,
                           .groups = groups,
                           .tile_rows = max_u32(1, pairs / (shape->heads / shape->kv_heads)),
                           .slots = target->sms};
}

static struct choice drawn_choice(const struct cuda_target *target, const struct cuda_plan *plan,
                                  const struct step_batch *batch,
                                  const struct attention_shape *shape)
{
    struct choice choice = best_choice(target, batch, shape);
    bool is_long = batch->rows > batch->sequences || plan_drawn(target, plan, 1, 2);
    if (is_long)
        choice.short_run = plan_drawn(target, plan, 2, 3) * plan_drawn(target, plan, 3, 20);
    choice.decodes = choice.decodes && plan_drawn(target, plan, 4, 4);
    choice.splits = plan_drawn(target, plan, 5, 2);
    choice.warps = 1u << plan_drawn(target, plan, 6, 4);
    choice.stages = 1 + plan_drawn(target, plan, 7, DECODE_LEAST_STAGES);
    choice.merges = plan_drawn(target, plan, 11, 4);
    choice.groups = choice.groups && plan_drawn(target, plan, 8, 4);
    choice.tile_rows = 1 + plan_drawn(target, plan, 9, 2 * choice.tile_rows);
    choice.slots = 1 + plan_drawn(target, plan, 10, 5);
    return choice;
}

/* Rows of short runs. Takes fewer rows if the scratch doesn't hold more. */
static void plan_short(const struct cuda_target *target, const struct step_batch *batch,
                       const struct attention_shape *shape, const struct choice *choice,
                       struct cuda_plan *plan, struct attention_parameters *p, bool int8)
{
    uint32_t segments = p->segments, first = p->first_row, seen = segments;
    if (p->window && p->window / ATTENTION_SEGMENT_TOKENS + 2 < segments)
        seen = p->window / ATTENTION_SEGMENT_TOKENS + 2; /* a row sees no more of them */
    uint32_t rows = choice->decodes ? decode_rows(target, batch, shape, choice, first, seen) : 0;
    p->most_run = choice->short_run;
    p->tile_rows = 1;
    if (rows) {
        p->rows = first + rows;
        p->segments = seen;
        launch_decode(target, batch, choice, plan, p, int8);
        return;
    }
    size_t fit = target->scratch.bytes / (part_bytes(shape) * segments);
    p->segments = 0;
    if (choice->splits && segments > 1 && fit) {
        p->segments = segments;
        p->rows = fit < p->rows - first ? first + (uint32_t)fit : p->rows;
        p->partial_o = target->scratch.address;
        p->partial_ml =
            p->partial_o + (size_t)(p->rows - first) * shape->heads * segments * shape->head_dim;
    }
    launch_portable(plan, p, int8);
}

/* out: f32 rows; NULL: inputs `to`, in bf16, or e4m3 by a scale of all rows. */
static enum status plan_attention(const struct cuda_target *target, const struct step_batch *batch,
                                  const struct attention_shape *shape,
                                  const struct kv_layout *layout, uint32_t layer,
                                  const struct buffer *qkv, const struct buffer *pool, float *out,
                                  const struct plan_inputs *to, struct cuda_plan *plan)
{
    if (cuda_refusal_head_dim(shape->head_dim))
        return STATUS_UNSUPPORTED;
    if (!plan_begin(plan, batch->rows))
        return STATUS_OK;
    struct attention_parameters p = {
        .kv = plan_kv(batch, layout, layer, pool),
        .positions = batch->positions.address,
        .row_sequence = batch->row_sequence.address,
        .sequence_rows = batch->sequence_rows.address,
        .qkv = qkv->address,
        .out = out,
        .inputs = to->inputs,
        .fixed = to->fixed,
        .first_row = plan->next_row,
        .rows = batch->rows,
        .heads = shape->heads,
        .kv_heads = shape->kv_heads,
        .group = shape->heads / shape->kv_heads,
        .head_dim = shape->head_dim,
        .window = shape->window,
        .scale = shape->scale * 1.44269504088896341f,
        .least_run = 1,
        .most_run = UINT32_MAX,
        .segments =
            divide_up(batch->table_stride * layout->block_tokens, ATTENTION_SEGMENT_TOKENS)};
    bool int8 = layout->type == KV_INT8;
    struct choice choice =
        target->draw ? drawn_choice(target, plan, batch, shape) : best_choice(target, batch, shape);
    if (choice.short_run) {
        plan_short(target, batch, shape, &choice, plan, &p, int8);
        p.least_run = choice.short_run + 1;
        p.most_run = UINT32_MAX;
    }
    p.segments = 0;
    p.tile_rows = choice.tile_rows;
    if (choice.short_run < UINT32_MAX && choice.groups)
        launch_group(&choice, plan, &p, int8);
    else if (choice.short_run < UINT32_MAX)
        launch_portable(plan, &p, int8);
    return plan_end(target, plan, p.rows, batch->rows);
}

enum status cuda_plan_attention(const struct cuda_target *target, const struct step_batch *batch,
                                const struct attention_shape *shape, const struct kv_layout *layout,
                                uint32_t layer, const struct buffer *qkv, const struct buffer *pool,
                                const struct buffer *out, struct cuda_plan *plan)
{
    return plan_attention(target, batch, shape, layout, layer, qkv, pool, out->address,
                          &(struct plan_inputs){.rows = 0}, plan);
}

enum status cuda_plan_fused_attention(const struct cuda_target *target,
                                      const struct step_batch *batch,
                                      const struct attention_shape *shape,
                                      const struct kv_layout *layout, uint32_t layer,
                                      const struct buffer *qkv, const struct buffer *pool,
                                      const struct inputs *out, struct cuda_plan *plan)
{
    struct plan_inputs to = plan_inputs(out, batch->rows);
    if (to.fixed.scale > 0)
        to.whole = NULL; /* rows needn't be whole for a scale that they share */
    TRY(plan_attention(target, batch, shape, layout, layer, qkv, pool, to.whole, &to, plan));
    if (!plan->done || !to.whole || !plan->count)
        return STATUS_OK;
    plan_launch_inputs(plan, &to, (struct inputs_parameters){.in = to.whole});
    return plan_end(target, plan, batch->rows, batch->rows);
}
