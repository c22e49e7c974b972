#include "tests/kernels/layer_fixture.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_TOKENS 16
#define EPS          1e-5

static uint32_t width_of(const struct layer_case *shape)
{
    return (shape->heads + 2 * shape->kv_heads) * shape->head_dim;
}

static uint32_t blocks_each(const struct layer_case *shape)
{
    uint32_t rows = shape->rows[0] > shape->rows[1] ? shape->rows[0] : shape->rows[1];
    return rows / BLOCK_TOKENS + 1;
}

/* Random weights [n, k] of the case's type, in columns of about 1 / sqrt(k). */
static struct linear make_linear(struct kernels *kernels, const struct layer_case *shape,
                                 struct rng *rng, uint32_t n, uint32_t k, uint32_t pair)
{
    size_t count = (size_t)n * k;
    uint16_t *bf16 = fixture_bf16(rng, count, 1.7f / sqrtf((float)k));
    bool quantized = shape->weights != WEIGHT_BF16;
    enum weight_type type = quantized ? shape->weights : kernels_info(kernels).weight_type;
    size_t row_scales = weight_row_scales(type, k);
    float *wide = calloc(count, sizeof *wide), *scales = calloc(n * (row_scales + 1), sizeof *wide);
    void *rows = quantized ? calloc(count, 1) : fixture_weights(kernels, bf16, count);
    assert_true(wide && scales && rows);
    for (size_t i = 0; i < count; i++)
        wide[i] = naive_widen(bf16[i]);
    uint32_t bad;
    if (quantized)
        assert_int_equal(weight_quantize(type, wide, n, k, rows, scales, &bad), STATUS_OK);
    struct linear linear;
    assert_int_equal(kernels_linear_create(kernels, type, n, k, &linear), STATUS_OK);
    linear.pair = pair;
    uint32_t cut = n / 3; /* two ranges, as fused layers are loaded */
    const char *from = (const char *)rows + cut * weight_row_bytes(type, k);
    assert_int_equal(kernels_linear_load(kernels, &linear, cut, n - cut, from,
                                         quantized ? scales + cut * row_scales : NULL),
                     STATUS_OK);
    assert_int_equal(kernels_linear_load(kernels, &linear, 0, cut, rows, quantized ? scales : NULL),
                     STATUS_OK);
    assert_int_equal(kernels_sync(kernels), STATUS_OK);
    free(bf16);
    free(wide);
    free(scales);
    free(rows);
    return linear;
}

static struct buffer make_vector(struct kernels *kernels, struct rng *rng, size_t count)
{
    float *values = fixture_floats(rng, count, 1.5f);
    struct buffer buffer = fixture_buffer(kernels, values, count * sizeof *values);
    free(values);
    return buffer;
}

struct layer_rig layer_rig_make(struct kernels *kernels, const struct layer_case *shape)
{
    struct rng rng = rng_seeded(shape->hidden + shape->head_dim + shape->ffn);
    uint32_t heads = shape->heads * shape->head_dim, rows = shape->rows[0] + shape->rows[1];
    struct layer_rig rig = {.kernels = kernels, .shape = *shape, .heads = {.norm_eps = EPS}};
    rig.layout =
        (struct kv_layout){.layers = 1,
                           .kv_heads = shape->kv_heads,
                           .head_dim = shape->head_dim,
                           .block_tokens = BLOCK_TOKENS,
                           .type = shape->int8_pool ? KV_INT8 : kernels_info(kernels).kv_type,
                           .layer_end = 1,
                           .head_end = shape->kv_heads};
    rig.x = fixture_floats(&rng, (size_t)rows * shape->hidden, 2.0f);
    rig.qkv =
        make_linear(kernels, shape, &rng, width_of(shape), shape->hidden, shape->head_dim / 2);
    rig.attention_out = make_linear(kernels, shape, &rng, shape->hidden, heads, 0);
    rig.gate_up = make_linear(kernels, shape, &rng, 2 * shape->ffn, shape->hidden, shape->ffn);
    rig.down = make_linear(kernels, shape, &rng, shape->hidden, shape->ffn, 0);
    struct linear *linears[] = {&rig.qkv, &rig.attention_out, &rig.gate_up, &rig.down};
    for (int i = 0; i < 4; i++)
        linears[i]->input_scale = shape->input_scale * (1 + 0.25f * (float)i);
    for (int i = 0; i < 2; i++)
        rig.norms[i] = make_vector(kernels, &rng, shape->hidden);
    rig.heads.rope = make_vector(kernels, &rng, (size_t)rows * shape->head_dim);
    if (shape->biased)
        rig.heads.bias = make_vector(kernels, &rng, width_of(shape));
    if (shape->normed) {
        rig.heads.q_norm = make_vector(kernels, &rng, shape->head_dim);
        rig.heads.k_norm = make_vector(kernels, &rng, shape->head_dim);
    }
    /* Places without a token stay NaN. */
    size_t pool = 2 * blocks_each(shape) * kv_layout_block_bytes(&rig.layout);
    rig.pool = fixture_buffer(kernels, NULL, pool);
    return rig;
}

void layer_rig_free(struct layer_rig *rig)
{
    struct linear *linears[] = {&rig->qkv, &rig->attention_out, &rig->gate_up, &rig->down};
    struct buffer *buffers[] = {&rig->norms[0],    &rig->norms[1],   &rig->pool,
                                &rig->heads.rope,  &rig->heads.bias, &rig->heads.q_norm,
                                &rig->heads.k_norm};
    for (size_t i = 0; i < sizeof linears / sizeof *linears; i++)
        kernels_linear_destroy(rig->kernels, linears[i]);
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        kernels_free(rig->kernels, buffers[i]);
    free(rig->x);
}

/* --- a step --- */

/* The memory of a step. Inputs begin as NaN. */
struct work {
    struct step_batch batch;
    struct attention_shape shape;
    struct buffer x, qkv, gate_up;
    struct inputs normed, heads, wide, gated; /* wide: of gate and up */
};

static struct inputs make_inputs(struct kernels *kernels, const struct linear *linear,
                                 uint32_t rows)
{
    size_t bytes = kernels_inputs_bytes(kernels, linear->type, rows, linear->k);
    size_t plain = (size_t)rows * linear->k * sizeof(float); /* plain operations have f32 rows */
    return (struct inputs){.memory = fixture_buffer(kernels, NULL, bytes > plain ? bytes : plain),
                           .type = linear->type,
                           .k = linear->k,
                           .input_scale = linear->input_scale};
}

static struct work make_work(const struct layer_rig *rig, const struct layer_step *step)
{
    struct kernels *k = rig->kernels;
    const struct layer_case *s = &rig->shape;
    uint32_t rows = step->rows[0] + step->rows[1], blocks = blocks_each(s), row = 0;
    uint32_t *positions = calloc(rows, sizeof *positions), *of = calloc(rows, sizeof *of);
    uint32_t *tables = calloc(2 * (size_t)blocks, sizeof *tables);
    float *x = calloc((size_t)rows * s->hidden, sizeof *x);
    uint32_t firsts[3] = {0, step->rows[0], rows};
    assert_true(positions && of && tables && x);
    for (uint32_t q = 0; q < 2; q++)
        for (uint32_t i = 0; i < step->rows[q]; i++, row++) {
            positions[row] = step->first[q] + i;
            of[row] = q;
            uint32_t from = q * s->rows[0] + positions[row];
            memcpy(x + (size_t)row * s->hidden, rig->x + (size_t)from * s->hidden,
                   s->hidden * sizeof *x);
        }
    for (uint32_t i = 0; i < 2 * blocks; i++)
        tables[i] = 2 * blocks - 1 - i;
    struct work work = {
        .batch = {.rows = rows,
                  .sequences = 2,
                  .tokens = fixture_buffer(k, positions, rows * sizeof *positions),
                  .positions = fixture_buffer(k, positions, rows * sizeof *positions),
                  .row_sequence = fixture_buffer(k, of, rows * sizeof *of),
                  .sequence_rows = fixture_buffer(k, firsts, sizeof firsts),
                  .block_tables = fixture_buffer(k, tables, 2 * blocks * sizeof *tables),
                  .table_stride = blocks},
        .shape = {s->heads, s->kv_heads, s->head_dim, 0, 1.0f / sqrtf((float)s->head_dim)},
        .x = fixture_buffer(k, x, (size_t)rows * s->hidden * sizeof *x),
        .qkv = fixture_buffer(k, NULL, (size_t)rows * width_of(s) * sizeof(float)),
        .gate_up = fixture_buffer(k, NULL, (size_t)rows * 2 * s->ffn * sizeof(float)),
        .normed = make_inputs(k, &rig->qkv, rows),
        .heads = make_inputs(k, &rig->attention_out, rows),
        .wide = make_inputs(k, &rig->gate_up, rows),
        .gated = make_inputs(k, &rig->down, rows)};
    free(positions);
    free(of);
    free(tables);
    free(x);
    return work;
}

static void free_work(struct kernels *kernels, struct work *work)
{
    struct buffer *buffers[] = {&work->batch.tokens,
                                &work->batch.positions,
                                &work->batch.row_sequence,
                                &work->batch.sequence_rows,
                                &work->batch.block_tables,
                                &work->x,
                                &work->qkv,
                                &work->gate_up,
                                &work->normed.memory,
                                &work->heads.memory,
                                &work->wide.memory,
                                &work->gated.memory};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        kernels_free(kernels, buffers[i]);
}

static void run_fused(struct layer_rig *rig, struct work *w)
{
    struct kernels *k = rig->kernels;
    uint32_t rows = w->batch.rows;
    const struct epilogue append = {.kind = EPILOGUE_APPEND,
                                    .out = w->qkv,
                                    .batch = &w->batch,
                                    .shape = &w->shape,
                                    .heads = &rig->heads,
                                    .layout = &rig->layout,
                                    .pool = rig->pool};
    const struct epilogue add = {.kind = EPILOGUE_ADD, .out = w->x};
    const struct epilogue swiglu = {.kind = EPILOGUE_SWIGLU, .out = w->gate_up, .gated = w->gated};
    const enum status all[] = {
        kernels_fused_rmsnorm(k, &w->x, &rig->norms[0], EPS, NULL, rows, &w->normed),
        kernels_fused_linear(k, &rig->qkv, &w->normed, rows, &append),
        kernels_fused_attention(k, &w->batch, &w->shape, &rig->layout, 0, &w->qkv, &rig->pool,
                                &w->heads),
        kernels_fused_linear(k, &rig->attention_out, &w->heads, rows, &add),
        kernels_fused_rmsnorm(k, &w->x, &rig->norms[1], EPS, NULL, rows, &w->wide),
        kernels_fused_linear(k, &rig->gate_up, &w->wide, rows, &swiglu),
        kernels_fused_linear(k, &rig->down, &w->gated, rows, &add)};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        assert_int_equal(all[i], STATUS_OK);
}

static void run_plain(struct layer_rig *rig, struct work *w)
{
    struct kernels *k = rig->kernels;
    uint32_t rows = w->batch.rows, hidden = rig->shape.hidden;
    struct buffer *normed = &w->normed.memory, *heads = &w->heads.memory;
    struct buffer *wide = &w->wide.memory, *gated = &w->gated.memory;
    const enum status all[] = {
        kernels_rmsnorm(k, &w->x, &rig->norms[0], EPS, NULL, rows, hidden, normed),
        kernels_linear(k, &rig->qkv, normed, rows, false, &w->qkv),
        kernels_rope_append(k, &w->batch, &w->shape, &rig->heads, &rig->layout, 0, &w->qkv,
                            &rig->pool),
        kernels_attention(k, &w->batch, &w->shape, &rig->layout, 0, &w->qkv, &rig->pool, heads),
        kernels_linear(k, &rig->attention_out, heads, rows, true, &w->x),
        kernels_rmsnorm(k, &w->x, &rig->norms[1], EPS, NULL, rows, hidden, wide),
        kernels_linear(k, &rig->gate_up, wide, rows, false, &w->gate_up),
        kernels_swiglu(k, &w->gate_up, rows, rig->shape.ffn, gated),
        kernels_linear(k, &rig->down, gated, rows, true, &w->x)};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        assert_int_equal(all[i], STATUS_OK);
}

float *layer_run(struct layer_rig *rig, const struct layer_step *step)
{
    struct work work = make_work(rig, step);
    if (step->fused)
        run_fused(rig, &work);
    else
        run_plain(rig, &work);
    float *x = fixture_download(rig->kernels, &work.x);
    free_work(rig->kernels, &work);
    return x;
}

void *layer_pool(struct layer_rig *rig)
{
    return fixture_download(rig->kernels, &rig->pool);
}
