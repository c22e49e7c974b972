/* Plans of linear layers: packed weights, inputs, tiles. */
#include "kernels/cuda/plan.h"

#include "common/base/u32.h"

#include <stdio.h>

#define MOST_GRID_Y       65535
#define CUDA_MOST_CLUSTER 2 /* blocks */
#define CUDA_MOST_SHARE   4

/* --- packed weights --- */

const char *cuda_refusal_weights(enum weight_type type, bool hopper)
{
    if (weight_type_is_fp8(type) && !hopper)
        return "fp8 weights need the tensor cores of compute capability 9.0";
    return type == WEIGHT_INT4  ? "CUDA kernels take bf16, int8 and fp8 weights, not int4 yet"
           : type == WEIGHT_F32 ? "CUDA kernels take bf16, int8 and fp8 weights, not f32"
                                : NULL;
}

static uint32_t k_blocks_of(enum weight_type type, uint32_t k)
{
    return (uint32_t)((weight_row_bytes(type, k) + CUDA_K_BYTES - 1) / CUDA_K_BYTES);
}

static size_t numbers_bytes(enum weight_type type, uint32_t n, uint32_t k)
{
    return (size_t)divide_up(n, CUDA_TILE_N) * k_blocks_of(type, k) * CUDA_TILE_N * CUDA_K_BYTES;
}

/* Scales of a layer lie in columns; those of blocks are copied tile by tile. */
static uint32_t scale_rows_of(enum weight_type type, uint32_t n)
{
    return type == WEIGHT_FP8_BLOCK ? divide_up(n, CUDA_TILE_N) * CUDA_TILE_N : n;
}

size_t cuda_linear_bytes(enum weight_type type, uint32_t n, uint32_t k)
{
    if (cuda_refusal_weights(type, true))
        return 0;
    size_t scales = weight_row_scales(type, k) * (size_t)scale_rows_of(type, n) * sizeof(float);
    return numbers_bytes(type, n, k) +
           (scales + CUDA_ALIGN_BYTES - 1) / CUDA_ALIGN_BYTES * CUDA_ALIGN_BYTES;
}

/* The rows of pairs that are packed side by side: epilogue.cuh has the rule. 0: rows stay as they
 * are, as others than 8 of each would take more room. */
static uint32_t packed_pair(const struct linear *linear)
{
    uint32_t pair = linear->pair;
    bool fits = pair && linear->n % (2 * (uint64_t)pair) == 0;
    return fits && (pair % 8 == 0 || linear->n == 2 * pair) ? pair : 0;
}

size_t cuda_packed_offset(const struct linear *linear, uint32_t n, size_t byte)
{
    uint32_t pair = packed_pair(linear), place = n;
    if (pair)
        place = n / pair / 2 * (divide_up(pair, 8) * 16) + n % pair / 8 * 16 + n / pair % 2 * 8 +
                n % pair % 8;
    size_t block =
        (size_t)(place / CUDA_TILE_N) * k_blocks_of(linear->type, linear->k) + byte / CUDA_K_BYTES;
    size_t row = place % CUDA_TILE_N, chunk = byte % CUDA_K_BYTES / 16;
    return (block * CUDA_TILE_N + row) * CUDA_K_BYTES + (chunk ^ (row & 7)) * 16 + byte % 16;
}

struct cuda_weights plan_weights(const struct linear *linear)
{
    uint8_t *packed = linear->packed.address;
    size_t numbers = numbers_bytes(linear->type, linear->n, linear->k);
    return (struct cuda_weights){
        .packed = packed,
        .scales = weight_type_is_quantized(linear->type) ? (float *)(packed + numbers) : NULL,
        .n = linear->n,
        .k = linear->k,
        .k_blocks = k_blocks_of(linear->type, linear->k),
        .scale_columns = weight_row_scales(linear->type, linear->k),
        .scale_rows = scale_rows_of(linear->type, linear->n)};
}

enum status cuda_plan_pack(const struct cuda_target *target, const struct linear *linear,
                           uint32_t first_row, uint32_t row_count, const struct buffer *rows,
                           const struct buffer *scales, struct cuda_plan *plan)
{
    if (cuda_refusal_weights(linear->type, true))
        return STATUS_UNSUPPORTED;
    if (!plan_begin(plan, row_count))
        return STATUS_OK;
    struct pack_parameters p = {.weights = plan_weights(linear),
                                .rows = rows->address,
                                .scales = plan_weights(linear).scales ? scales->address : NULL,
                                .first_row = first_row,
                                .row_count = row_count,
                                .pair = packed_pair(linear),
                                .scales_too = linear->type == WEIGHT_FP8_BLOCK};
    struct cuda_launch *launch =
        plan_launch(plan, "pack_rows", divide_up(p.weights.k_blocks, 4), 32, 0, &p, sizeof p);
    launch->grid[1] = min_u32(row_count, MOST_GRID_Y);
    return plan_end(target, plan, row_count, row_count);
}

/* --- inputs of layers --- */

static const char *const inputs_kernels[WEIGHT_FP8_BLOCK + 1] = {
    [WEIGHT_BF16] = "inputs_bf16",
    [WEIGHT_INT8] = "inputs_s8",
    [WEIGHT_FP8] = "inputs_e4m3",
    [WEIGHT_FP8_BLOCK] = "inputs_e4m3_blocks",
};

static size_t aligned(size_t bytes)
{
    return (bytes + 1023) / 1024 * 1024;
}

struct plan_inputs plan_inputs(const struct inputs *inputs, uint32_t rows)
{
    uint32_t padded = divide_up(rows, CUDA_CELL_ROWS) * CUDA_CELL_ROWS;
    uint32_t k = inputs->k, k_blocks = k_blocks_of(inputs->type, k);
    size_t cells = aligned(((size_t)k_blocks * padded + CUDA_MOST_TOKENS) * CUDA_K_BYTES);
    size_t scaled = (size_t)weight_row_scales(inputs->type, k) * padded + CUDA_MOST_TOKENS;
    uint8_t *base = inputs->memory.address;
    struct plan_inputs parts = {.inputs = {.cells = base, .padded = padded, .k_blocks = k_blocks},
                                .rows = rows,
                                .k = k,
                                .kernel = inputs_kernels[inputs->type],
                                .bytes = cells};
    if (inputs->type == WEIGHT_FP8 && inputs->input_scale > 0)
        parts.fixed = (struct cuda_scale){inputs->input_scale, 1.0f / inputs->input_scale};
    if (weight_type_is_quantized(inputs->type)) {
        parts.scales = (float *)(base + cells);
        parts.whole = (float *)(base + cells + aligned(scaled * sizeof(float)));
        parts.bytes += aligned(scaled * sizeof(float)) + aligned((size_t)rows * k * sizeof(float));
    }
    return parts;
}

size_t cuda_inputs_bytes(enum weight_type type, uint32_t rows, uint32_t k)
{
    return plan_inputs(&(struct inputs){.type = type, .k = k}, rows).bytes;
}

void plan_launch_inputs(struct cuda_plan *plan, const struct plan_inputs *to,
                        struct inputs_parameters p)
{
    p.to = to->inputs;
    p.scales = to->scales;
    p.fixed = to->fixed;
    p.rows = to->rows;
    p.k = to->k;
    PLAN_ROWS(plan, to->kernel, to->rows, &p);
}

enum status cuda_plan_fused_rmsnorm(const struct cuda_target *target, const struct buffer *x,
                                    const struct buffer *weight, double eps,
                                    const struct buffer *rows, uint32_t row_count,
                                    const struct inputs *out, struct cuda_plan *plan)
{
    if (!plan_begin(plan, row_count))
        return STATUS_OK;
    struct plan_inputs to = plan_inputs(out, row_count);
    plan_launch_inputs(plan, &to,
                       (struct inputs_parameters){.in = x->address,
                                                  .norm = weight->address,
                                                  .chosen = rows ? rows->address : NULL,
                                                  .eps = eps});
    return plan_end(target, plan, row_count, row_count);
}

/* --- linear layers --- */

/* The kernels of a linear layer: tiles of 64 R weights x BT tokens. NULL: there is none. */
struct shape {
    const char *tile, *kernels[WEIGHT_FP8_BLOCK + 1];
    uint32_t r, tokens;
    bool hopper;
    uint32_t threads;
};
#define PORTABLE_SHAPE(TILE, R, TOKENS)                                                            \
    {                                                                                              \
        TILE, {[WEIGHT_BF16] = "linear_bf16_" TILE, [WEIGHT_INT8] = "linear_s8_" TILE}, R, TOKENS, \
            false, 128 * (R)                                                                       \
    }
#define SM90_SHAPE(TILE, R, TOKENS)                                                                \
    {                                                                                              \
        TILE,                                                                                      \
            {[WEIGHT_BF16] = "linear_bf16_" TILE "_sm90",                                          \
             [WEIGHT_INT8] = "linear_s8_" TILE "_sm90",                                            \
             [WEIGHT_FP8] = "linear_e4m3_" TILE "_sm90",                                           \
             [WEIGHT_FP8_BLOCK] = "linear_e4m3_blocks_" TILE "_sm90"},                             \
            R, TOKENS, true, CUDA_TILE_THREADS(R, TOKENS)                                          \
    }
/* Without kernels for fp8. */
#define SM90_PLAIN_SHAPE(TILE, R, TOKENS)                                                          \
    {                                                                                              \
        TILE,                                                                                      \
            {[WEIGHT_BF16] = "linear_bf16_" TILE "_sm90",                                          \
             [WEIGHT_INT8] = "linear_s8_" TILE "_sm90"},                                           \
            R, TOKENS, true, CUDA_TILE_THREADS(R, TOKENS)                                          \
    }
enum tile {
    TILE_64X8,
    TILE_64X16,
    TILE_64X32,
    TILE_64X64,
    TILE_64X128,
    TILE_128X16,
    TILE_128X64,
    TILE_128X128,
    TILE_128X256,
    TILE_PORTABLE_64X16,
    TILE_PORTABLE_64X64,
    TILE_PORTABLE_128X64,
    TILES
};
static const struct shape shapes[TILES] = {
    [TILE_64X8] = SM90_SHAPE("64x8", 1, 8),
    [TILE_64X16] = SM90_SHAPE("64x16", 1, 16),
    [TILE_64X32] = SM90_PLAIN_SHAPE("64x32", 1, 32),
    [TILE_64X64] = SM90_SHAPE("64x64", 1, 64),
    [TILE_64X128] = SM90_PLAIN_SHAPE("64x128", 1, 128),
    [TILE_128X16] = SM90_SHAPE("128x16", 2, 16),
    [TILE_128X64] = SM90_SHAPE("128x64", 2, 64),
    [TILE_128X128] = SM90_SHAPE("128x128", 2, 128),
    [TILE_128X256] = SM90_PLAIN_SHAPE("128x256", 2, 256),
    [TILE_PORTABLE_64X16] = PORTABLE_SHAPE("64x16", 1, 16),
    [TILE_PORTABLE_64X64] = PORTABLE_SHAPE("64x64", 1, 64),
    [TILE_PORTABLE_128X64] = PORTABLE_SHAPE("128x64", 2, 64),
};

/* A plan of a layer: the tile, and how its launch fills the device. */
struct linear_choice {
    enum tile tile;
    uint32_t cluster; /* blocks that share tokens; not more than CUDA_MOST_CLUSTER */
    uint32_t share;   /* blocks that the memory of an SM is cut for */
    /* Tiles that several blocks do, a segment each: none, those of the last round, all; or those
     * by which the rounds are fewest. */
    enum { SPLIT_NONE, SPLIT_TAIL, SPLIT_ALL, SPLIT_BY_ROUNDS } split;
    bool one_each;          /* a block a unit; otherwise blocks walk over several */
    uint32_t group, stages; /* 0: the usual ones */
    uint32_t slots;         /* clusters that run at once; 0: as many as the device holds */
};

/* THE plans for sm_90a. A layer takes the first row that is for its rows, and for its n and k if
 * they are named, and that it fits (types without a kernel, heads that one block must have). No
 * device has measured them: they follow the prototype's tiles, and rounds as few as may be.
 * tests/gpu/run plans times each that a layer could take beside the chosen one. */
static const struct chosen_plan {
    uint32_t n, k, most_rows; /* n, k: 0 for any */
    struct linear_choice choice;
} chosen_plans[] = {
#define PLAN(N, K, MOST_ROWS, TILE, CLUSTER, SHARE, SPLIT)                                         \
    {                                                                                              \
        N, K, MOST_ROWS,                                                                           \
        {                                                                                          \
            .tile = TILE, .cluster = CLUSTER, .share = SHARE, .split = SPLIT                       \
        }                                                                                          \
    }
    PLAN(0, 0, 8, TILE_64X8, 1, 4, SPLIT_BY_ROUNDS),
    PLAN(0, 0, 16, TILE_64X16, 1, 4, SPLIT_BY_ROUNDS),
    PLAN(0, 0, 16, TILE_128X16, 1, 2, SPLIT_BY_ROUNDS),
    PLAN(0, 0, 32, TILE_64X32, 1, 2, SPLIT_BY_ROUNDS),
    PLAN(0, 0, 64, TILE_64X64, 1, 2, SPLIT_BY_ROUNDS),
    PLAN(0, 0, 64, TILE_128X64, 1, 1, SPLIT_BY_ROUNDS),
    PLAN(0, 0, 128, TILE_64X128, 2, 1, SPLIT_BY_ROUNDS),
    PLAN(0, 0, 128, TILE_128X64, 2, 1, SPLIT_BY_ROUNDS),
    PLAN(0, 0, 768, TILE_128X128, 2, 1, SPLIT_BY_ROUNDS),
    PLAN(0, 0, UINT32_MAX, TILE_128X256, 2, 1, SPLIT_NONE),
    PLAN(0, 0, UINT32_MAX, TILE_128X256, 1, 1, SPLIT_NONE),
    PLAN(0, 0, UINT32_MAX, TILE_128X128, 2, 1, SPLIT_BY_ROUNDS),
    PLAN(0, 0, UINT32_MAX, TILE_128X128, 1, 1, SPLIT_BY_ROUNDS),
    PLAN(0, 0, UINT32_MAX, TILE_64X128, 1, 1, SPLIT_BY_ROUNDS),
    PLAN(0, 0, UINT32_MAX, TILE_64X64, 1, 2, SPLIT_BY_ROUNDS),
    /* Without sm_90a. */
    PLAN(0, 0, 16, TILE_PORTABLE_64X16, 1, 1, SPLIT_BY_ROUNDS),
    PLAN(0, 0, 64, TILE_PORTABLE_64X64, 1, 1, SPLIT_BY_ROUNDS),
    PLAN(0, 0, UINT32_MAX, TILE_PORTABLE_128X64, 1, 1, SPLIT_BY_ROUNDS),
    PLAN(0, 0, UINT32_MAX, TILE_PORTABLE_64X64, 1, 1, SPLIT_BY_ROUNDS),
#undef PLAN
};

static uint32_t segments_of(const struct linear *linear)
{
    return divide_up(linear->k, weight_segment_k(linear->k));
}

/* Blocks that may share an SM. */
static uint32_t blocks_of(const struct linear_choice *choice, enum weight_type type)
{
    const struct shape *shape = &shapes[choice->tile];
    return shape->hopper ? CUDA_TILE_BLOCKS(shape->r, shape->tokens, weight_type_is_fp8(type)) : 1;
}

/* Tiles of all blocks of a cluster together. */
static uint32_t tiles_of(const struct linear_choice *choice, uint32_t n, uint32_t rows)
{
    const struct shape *shape = &shapes[choice->tile];
    return divide_up(n, CUDA_TILE_N * shape->r * choice->cluster) * divide_up(rows, shape->tokens);
}

static uint32_t slots_of(const struct cuda_target *target, const struct linear_choice *choice)
{
    uint32_t slots = target->sms / choice->cluster * choice->share;
    return choice->slots ? choice->slots : slots ? slots : 1;
}

/* Sums of a thread that lie in shared memory. */
static uint32_t rest_of(const struct shape *shape, enum weight_type type)
{
    return shape->tokens / 2 - CUDA_KEPT_SUMS(shape->tokens, weight_type_is_fp8(type));
}

/* Returns how many tiles are done by one block each. A round of segments takes as long as one of
 * their number of a round of tiles. */
static uint32_t whole_tiles(const struct cuda_target *target, const struct linear_choice *choice,
                            enum weight_type type, uint32_t tiles, uint32_t segments)
{
    uint32_t slots = slots_of(target, choice), tail = tiles / slots * slots, whole = tiles;
    if (segments > 1 && choice->split == SPLIT_ALL)
        whole = 0;
    if (segments > 1 && choice->split == SPLIT_TAIL)
        whole = tail;
    if (segments > 1 && choice->split == SPLIT_BY_ROUNDS) {
        uint64_t none = (uint64_t)divide_up(tiles, slots) * segments;
        uint64_t last = tail / slots * segments + divide_up((tiles - tail) * segments, slots);
        uint64_t all = divide_up(tiles * segments, slots);
        whole = none <= last && none <= all ? tiles : last <= all ? tail : 0;
    }
    bool fits = rest_of(&shapes[choice->tile], type) == 0 &&
                (uint64_t)(tiles - whole) * choice->cluster <= CUDA_TICKETS;
    return fits ? whole : tiles;
}

/* Returns the bytes of the split tiles' sums. */
static size_t partials_bytes(const struct cuda_target *target, const struct linear_choice *choice,
                             const struct linear *linear, uint32_t rows)
{
    const struct shape *shape = &shapes[choice->tile];
    uint32_t segments = segments_of(linear), tiles = tiles_of(choice, linear->n, rows);
    size_t split = tiles - whole_tiles(target, choice, linear->type, tiles, segments);
    return split * choice->cluster * segments * CUDA_TILE_N * shape->r * shape->tokens *
           sizeof(float);
}

/* Bytes of shared memory behind the stages: alignment, barriers, a flag, slots of over_heads, and
 * sums that registers don't keep. */
static uint32_t fixed_bytes(const struct shape *shape, enum weight_type type)
{
    uint32_t slots = 4 * shape->r * shape->tokens * (uint32_t)sizeof(float);
    uint32_t rest = rest_of(shape, type);
    return shape->hopper ? 1024 + CUDA_MOST_STAGES * 16 + 16 + slots +
                               rest * shape->r * 128 * (uint32_t)sizeof(float)
                         : 16 + slots;
}

static uint32_t stage_bytes(const struct shape *shape, enum weight_type type)
{
    return (CUDA_TILE_N * shape->r + shape->tokens) * CUDA_K_BYTES +
           (type == WEIGHT_FP8_BLOCK ? CUDA_STAGE_SCALE_BYTES : 0);
}

/* An SM has 1 KiB more than a block may take, and each block takes 1 KiB beside its own. */
static uint32_t stages_of(const struct cuda_target *target, const struct linear_choice *choice,
                          enum weight_type type)
{
    const struct shape *shape = &shapes[choice->tile];
    if (!shape->hopper)
        return CUDA_PORTABLE_STAGES;
    uint32_t room = (target->shared_bytes + 1024) / choice->share - 1024;
    uint32_t fixed = fixed_bytes(shape, type), bytes = stage_bytes(shape, type);
    uint32_t stages = room > fixed ? (room - fixed) / bytes : 0;
    return min_u32(stages, choice->stages ? choice->stages : CUDA_MOST_STAGES);
}

/* head_rows: rows that one block must have of queries, keys and values; 0: another layer. */
static bool choice_fits(const struct cuda_target *target, const struct linear_choice *choice,
                        const struct linear *linear, uint32_t head_rows)
{
    const struct shape *shape = &shapes[choice->tile];
    bool heads = head_rows <= CUDA_TILE_N * shape->r &&
                 (!head_rows || shape->tokens <= CUDA_MOST_HEAD_TOKENS);
    return (!shape->hopper || target->hopper) && shape->kernels[linear->type] && heads &&
           divide_up(linear->n, CUDA_TILE_N) % (shape->r * choice->cluster) == 0 &&
           choice->cluster <= target->sms && stages_of(target, choice, linear->type) >= 2;
}

/* Whether the plan may be fast: a tile about as wide as the rows. */
static bool is_worth_a_try(const struct cuda_target *target, const struct linear_choice *choice,
                           const struct linear *linear, uint32_t rows)
{
    const struct shape *shape = &shapes[choice->tile];
    uint32_t wide = 8, segments = segments_of(linear), tiles = tiles_of(choice, linear->n, rows);
    while (wide < rows && wide < 128)
        wide *= 2;
    uint32_t whole = whole_tiles(target, choice, linear->type, tiles, segments);
    bool other_split =
        choice->split == SPLIT_NONE || (whole < tiles && (choice->split == SPLIT_ALL || whole > 0));
    return shape->hopper && shape->tokens >= wide && shape->tokens <= 2 * wide && other_split &&
           (rows <= 512 || shape->r > 1) && (rows <= 1024 || choice->split != SPLIT_ALL) &&
           (!choice->one_each || (rows <= 64 && choice->share > 1 && choice->cluster == 1));
}

/* Finds plan `number` of those that are worth a try, or, with number 0, counts them. */
static uint32_t find_plan(const struct cuda_target *target, const struct linear *linear,
                          uint32_t rows, uint32_t number, struct linear_choice *found)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < TILES * CUDA_MOST_CLUSTER * CUDA_MOST_SHARE * 2 * 3; i++) {
        uint32_t rest = i / 6;
        struct linear_choice choice = {.split = i % 3, .one_each = i / 3 % 2};
        choice.cluster = 1 + rest % CUDA_MOST_CLUSTER;
        choice.share = 1 + rest / CUDA_MOST_CLUSTER % CUDA_MOST_SHARE;
        choice.tile = (enum tile)(rest / CUDA_MOST_CLUSTER / CUDA_MOST_SHARE);
        if (choice.share > blocks_of(&choice, linear->type) ||
            !choice_fits(target, &choice, linear, 0) ||
            !is_worth_a_try(target, &choice, linear, rows))
            continue;
        if (++count == number) {
            *found = choice;
            break;
        }
    }
    return count;
}

static struct linear_choice best_choice(const struct cuda_target *target,
                                        const struct linear *linear, uint32_t rows,
                                        uint32_t head_rows)
{
    struct linear_choice choice = {.cluster = 1, .share = 1};
    if (target->linear_plan &&
        find_plan(target, linear, rows, target->linear_plan, &choice) == target->linear_plan &&
        choice_fits(target, &choice, linear, head_rows))
        return choice;
    for (size_t i = 0; i < sizeof chosen_plans / sizeof *chosen_plans; i++) {
        const struct chosen_plan *plan = &chosen_plans[i];
        choice = plan->choice;
        choice.share = min_u32(choice.share, blocks_of(&choice, linear->type));
        if (rows <= plan->most_rows && (!plan->n || plan->n == linear->n) &&
            (!plan->k || plan->k == linear->k) && choice_fits(target, &choice, linear, head_rows))
            return choice;
    }
    choice = (struct linear_choice){.tile = TILE_PORTABLE_128X64,
                                    .cluster = 1,
                                    .share = 1}; /* heads of 128 in one block, without sm_90a */
    return choice;
}

static struct linear_choice drawn_choice(const struct cuda_target *target,
                                         const struct cuda_plan *plan, const struct linear *linear,
                                         uint32_t head_rows)
{
    struct linear_choice choice = {.cluster = 1 + plan_drawn(target, plan, 7, CUDA_MOST_CLUSTER),
                                   .share = 1 + plan_drawn(target, plan, 8, CUDA_MOST_SHARE),
                                   .split = plan_drawn(target, plan, 1, 3),
                                   .group = 1 + plan_drawn(target, plan, 2, 4),
                                   .stages = 2 + plan_drawn(target, plan, 3, 3),
                                   .slots = 1 + plan_drawn(target, plan, 4, 5),
                                   .one_each = plan_drawn(target, plan, 5, 2)};
    uint32_t drawn = plan_drawn(target, plan, 6, TILES);
    for (uint32_t i = 0; i < 2 * TILES; i++) {
        choice.tile = (enum tile)((drawn + i) % TILES);
        if (i == TILES || !shapes[choice.tile].hopper)
            choice.cluster = choice.share = 1;
        choice.share = min_u32(choice.share, blocks_of(&choice, linear->type));
        if (choice_fits(target, &choice, linear, head_rows))
            return choice;
    }
    return best_choice(target, linear, 1, head_rows);
}

uint32_t cuda_linear_plans(const struct cuda_target *target, const struct linear *linear,
                           uint32_t rows)
{
    return find_plan(target, linear, rows, 0, NULL);
}

void cuda_linear_plan_name(const struct cuda_target *target, const struct linear *linear,
                           uint32_t rows, char name[CUDA_PLAN_NAME_BYTES])
{
    struct linear_choice choice = best_choice(target, linear, rows, 0);
    uint32_t tiles = tiles_of(&choice, linear->n, rows);
    uint32_t whole = whole_tiles(target, &choice, linear->type, tiles, segments_of(linear));
    char blocks[12] = "u";
    if (!choice.one_each)
        (void)snprintf(blocks, sizeof blocks, "%u", choice.share);
    (void)snprintf(name, CUDA_PLAN_NAME_BYTES, "%s%s%s:%s/%u", shapes[choice.tile].tile,
                   choice.cluster > 1 ? "c2" : "",
                   whole == tiles ? ""
                   : whole        ? "t"
                                  : "s",
                   blocks, choice.share);
}

/* Adds the launch. The caller has filled p's inputs, rows and epilogue. partials: partials_bytes of
 * scratch. */
static void launch_linear(const struct cuda_target *target, struct cuda_plan *plan,
                          const struct linear_choice *choice, const struct linear *linear,
                          void *partials, struct linear_parameters *p)
{
    const struct shape *shape = &shapes[choice->tile];
    uint32_t tiles = tiles_of(choice, linear->n, p->rows);
    p->weights = plan_weights(linear);
    p->partials = partials;
    p->tickets = target->tickets.address;
    p->segment_blocks = k_blocks_of(linear->type, weight_segment_k(linear->k));
    p->segments = segments_of(linear);
    p->group = choice->group ? choice->group : p->rows > 1024 ? 16 : 8;
    p->whole = whole_tiles(target, choice, linear->type, tiles, p->segments);
    p->cluster = choice->cluster;
    p->stages = stages_of(target, choice, linear->type);
    p->epilogue.rows = p->rows;
    p->epilogue.n = linear->n;
    p->epilogue.pair = packed_pair(linear);
    uint32_t units = p->whole + (tiles - p->whole) * p->segments;
    if (shape->hopper && !choice->one_each)
        units = min_u32(units, slots_of(target, choice));
    struct cuda_launch *launch =
        plan_launch(plan, shape->kernels[linear->type], units * choice->cluster, shape->threads,
                    p->stages * stage_bytes(shape, linear->type) + fixed_bytes(shape, linear->type),
                    p, sizeof *p);
    launch->cluster = choice->cluster;
}

enum status cuda_plan_linear(const struct cuda_target *target, const struct linear *linear,
                             const struct buffer *in, uint32_t rows, bool accumulate,
                             const struct buffer *out, struct cuda_plan *plan)
{
    if (cuda_refusal_weights(linear->type, target->hopper))
        return STATUS_UNSUPPORTED;
    if (!plan_begin(plan, rows))
        return STATUS_OK;
    uint32_t first = plan->next_row, count = rows - first;
    struct linear_choice choice = target->draw ? drawn_choice(target, plan, linear, 0)
                                               : best_choice(target, linear, count, 0);
    uint8_t *scratch = target->scratch.address;
    uint32_t tokens = shapes[choice.tile].tokens;
    struct inputs packed = {.memory = target->scratch,
                            .type = linear->type,
                            .k = linear->k,
                            .input_scale = linear->input_scale};
    struct plan_inputs parts = plan_inputs(&packed, count);
    /* As many rows as the scratch holds. */
    while (parts.bytes + partials_bytes(target, &choice, linear, count) > target->scratch.bytes) {
        if (count <= 1)
            return STATUS_LIMIT;
        count = count > tokens ? divide_up(count, 2 * tokens) * tokens : count / 2;
        parts = plan_inputs(&packed, count);
    }
    plan_launch_inputs(
        plan, &parts,
        (struct inputs_parameters){.in = (const float *)in->address + (size_t)first * linear->k});
    struct linear_parameters p = {
        .inputs = parts.inputs,
        .input_scales = parts.scales,
        .fixed_scale = parts.fixed.scale,
        .rows = count,
        .epilogue = {.kind = accumulate ? EPILOGUE_ADD : EPILOGUE_STORE,
                     .out = (float *)out->address + (size_t)first * linear->n}};
    launch_linear(target, plan, &choice, linear, scratch + parts.bytes, &p);
    return plan_end(target, plan, first + count, rows);
}

enum status cuda_plan_fused_linear(const struct cuda_target *target, const struct linear *linear,
                                   const struct inputs *in, uint32_t rows, const struct epilogue *e,
                                   struct cuda_plan *plan)
{
    bool appends = e->kind == EPILOGUE_APPEND, int8_pool = appends && e->layout->type == KV_INT8;
    if (cuda_refusal_weights(linear->type, target->hopper) ||
        (appends && (cuda_refusal_head_dim(e->shape->head_dim) || !packed_pair(linear))))
        return STATUS_UNSUPPORTED;
    if (!plan_begin(plan, rows))
        return STATUS_OK;
    /* Sums and maxima of a head are those of one block. */
    bool whole_heads = int8_pool || (appends && e->heads->q_norm.address);
    uint32_t head_rows = whole_heads ? e->shape->head_dim : appends;
    struct linear_choice choice = target->draw ? drawn_choice(target, plan, linear, head_rows)
                                               : best_choice(target, linear, rows, head_rows);
    if (partials_bytes(target, &choice, linear, rows) > target->scratch.bytes)
        choice.split = SPLIT_NONE;
    struct plan_inputs parts = plan_inputs(in, rows);
    struct linear_parameters p = {.inputs = parts.inputs,
                                  .input_scales = parts.scales,
                                  .fixed_scale = parts.fixed.scale,
                                  .rows = rows,
                                  .epilogue = {.kind = e->kind, .out = e->out.address}};
    if (appends)
        p.epilogue.heads = plan_heads(e->batch, e->shape, e->heads, e->layout, e->layer, &e->pool);
    struct plan_inputs gated = {0};
    if (e->kind == EPILOGUE_SWIGLU) {
        gated = plan_inputs(&e->gated, rows);
        if (weight_type_is_fp8(linear->type) && gated.fixed.scale > 0)
            gated.whole = NULL; /* rows needn't be whole for a scale that they share */
        p.epilogue.gated = gated.inputs;
        p.epilogue.gated_by = gated.fixed;
        p.epilogue.out = gated.whole;
    }
    launch_linear(target, plan, &choice, linear, target->scratch.address, &p);
    if (gated.whole)
        plan_launch_inputs(plan, &gated, (struct inputs_parameters){.in = gated.whole});
    return plan_end(target, plan, rows, rows);
}
