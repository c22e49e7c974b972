#include "tests/kernels/attention_fixture.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LAYERS 4
#define LAYER  2

static size_t qkv_width(const struct attention_case *shape)
{
    return (size_t)(shape->heads + 2 * shape->kv_heads) * shape->head_dim;
}

static size_t out_width(const struct attention_case *shape)
{
    return (size_t)shape->heads * shape->head_dim;
}

struct attention_data attention_data_make(const struct attention_case *shape, uint64_t seed)
{
    struct rng rng = rng_seeded(seed);
    return (struct attention_data){
        .shape = *shape, .qkv = fixture_floats(&rng, shape->context * qkv_width(shape), 2.0f)};
}

void attention_data_free(struct attention_data *data)
{
    free(data->qkv);
}

/* Identity rotation: keys are appended unchanged. Rotation has a test of its own. */
static struct buffer identity_rope(struct kernels *kernels, const struct attention_case *shape)
{
    size_t count = (size_t)shape->context * shape->head_dim;
    float *rope = calloc(count, sizeof *rope);
    assert_non_null(rope);
    for (size_t i = 0; i < count; i++)
        rope[i] = i % shape->head_dim < shape->head_dim / 2 ? 1.0f : 0.0f;
    struct buffer buffer = fixture_buffer(kernels, rope, count * sizeof *rope);
    free(rope);
    return buffer;
}

struct attention_rig attention_rig_make(struct kernels *kernels, const struct attention_case *shape,
                                        uint32_t sequences)
{
    struct attention_rig rig = {.kernels = kernels, .shape = *shape, .sequences = sequences};
    /* The upper half of the heads and the upper layers: a worker's rectangle needn't start at 0. */
    rig.layout = (struct kv_layout){.layers = LAYERS,
                                    .kv_heads = 2 * shape->kv_heads,
                                    .head_dim = shape->head_dim,
                                    .block_tokens = shape->block_tokens,
                                    .type = shape->int8 ? KV_INT8 : kernels_info(kernels).kv_type,
                                    .layer_begin = LAYER - 1,
                                    .layer_end = LAYERS,
                                    .head_begin = shape->kv_heads,
                                    .head_end = 2 * shape->kv_heads};
    rig.blocks_each = kv_layout_blocks_for(&rig.layout, shape->context);
    uint32_t blocks = rig.blocks_each * sequences;
    rig.pool = fixture_buffer(kernels, NULL, blocks * kv_layout_block_bytes(&rig.layout));
    rig.rope = identity_rope(kernels, shape);
    rig.tables = malloc(blocks * sizeof *rig.tables);
    assert_non_null(rig.tables);
    struct rng rng = rng_seeded(blocks);
    for (uint32_t i = 0; i < blocks; i++)
        rig.tables[i] = i;
    for (uint32_t i = blocks; i > 1; i--) {
        uint32_t other = (uint32_t)rng_below(&rng, i), kept = rig.tables[i - 1];
        rig.tables[i - 1] = rig.tables[other];
        rig.tables[other] = kept;
    }
    return rig;
}

void attention_rig_free(struct attention_rig *rig)
{
    kernels_free(rig->kernels, &rig->pool);
    kernels_free(rig->kernels, &rig->rope);
    free(rig->tables);
}

struct rows {
    uint32_t *positions, *row_sequence, *sequence_rows;
    float *qkv;
    uint32_t count;
};

static struct rows gather_rows(const struct attention_rig *rig, const struct attention_data *data,
                               const uint32_t *begin, const uint32_t *end)
{
    struct rows rows = {0};
    for (uint32_t s = 0; s < rig->sequences; s++)
        rows.count += end[s] - begin[s];
    size_t width = qkv_width(&rig->shape);
    rows.positions = malloc((rows.count + 1) * sizeof(uint32_t));
    rows.row_sequence = malloc((rows.count + 1) * sizeof(uint32_t));
    rows.sequence_rows = malloc((rig->sequences + 1) * sizeof(uint32_t));
    rows.qkv = malloc((rows.count + 1) * width * sizeof(float));
    assert_true(rows.positions && rows.row_sequence && rows.sequence_rows && rows.qkv);
    uint32_t t = 0;
    for (uint32_t s = 0; s < rig->sequences; s++) {
        rows.sequence_rows[s] = t;
        for (uint32_t p = begin[s]; p < end[s]; p++, t++) {
            rows.positions[t] = p;
            rows.row_sequence[t] = s;
            memcpy(rows.qkv + t * width, data[s].qkv + p * width, width * sizeof(float));
        }
    }
    rows.sequence_rows[rig->sequences] = t;
    return rows;
}

static void scatter_rows(const struct attention_rig *rig, const struct rows *rows,
                         const float *computed, float **out)
{
    size_t width = out_width(&rig->shape);
    for (uint32_t t = 0; t < rows->count; t++)
        memcpy(out[rows->row_sequence[t]] + rows->positions[t] * width, computed + t * width,
               width * sizeof(float));
}

void attention_rig_step(struct attention_rig *rig, const struct attention_data *data,
                        const uint32_t *begin, const uint32_t *end, float **out)
{
    struct kernels *k = rig->kernels;
    struct rows rows = gather_rows(rig, data, begin, end);
    struct step_batch batch = {
        .rows = rows.count,
        .sequences = rig->sequences,
        .tokens = fixture_buffer(k, rows.positions, rows.count * sizeof(uint32_t)),
        .positions = fixture_buffer(k, rows.positions, rows.count * sizeof(uint32_t)),
        .row_sequence = fixture_buffer(k, rows.row_sequence, rows.count * sizeof(uint32_t)),
        .sequence_rows =
            fixture_buffer(k, rows.sequence_rows, (rig->sequences + 1) * sizeof(uint32_t)),
        .block_tables = fixture_buffer(
            k, rig->tables, (size_t)rig->sequences * rig->blocks_each * sizeof(uint32_t)),
        .table_stride = rig->blocks_each};
    struct buffer qkv =
        fixture_buffer(k, rows.qkv, rows.count * qkv_width(&rig->shape) * sizeof(float));
    struct buffer result =
        fixture_buffer(k, NULL, rows.count * out_width(&rig->shape) * sizeof(float));
    struct attention_shape shape = {.heads = rig->shape.heads,
                                    .kv_heads = rig->shape.kv_heads,
                                    .head_dim = rig->shape.head_dim,
                                    .window = rig->shape.window,
                                    .scale = (float)(1 / sqrt(rig->shape.head_dim))};
    struct head_parameters parameters = {.rope = rig->rope};
    assert_int_equal(
        kernels_rope_append(k, &batch, &shape, &parameters, &rig->layout, LAYER, &qkv, &rig->pool),
        STATUS_OK);
    assert_int_equal(
        kernels_attention(k, &batch, &shape, &rig->layout, LAYER, &qkv, &rig->pool, &result),
        STATUS_OK);
    float *computed = fixture_download(k, &result);
    scatter_rows(rig, &rows, computed, out);
    free(computed);
    struct buffer *buffers[] = {&batch.tokens,
                                &batch.positions,
                                &batch.row_sequence,
                                &batch.sequence_rows,
                                &batch.block_tables,
                                &qkv,
                                &result};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        kernels_free(k, buffers[i]);
    free(rows.positions);
    free(rows.row_sequence);
    free(rows.sequence_rows);
    free(rows.qkv);
}

float *attention_in_chunks(struct kernels *kernels, const struct attention_data *data,
                           uint32_t chunk)
{
    struct attention_rig rig = attention_rig_make(kernels, &data->shape, 1);
    float *out = malloc(data->shape.context * out_width(&data->shape) * sizeof *out);
    assert_non_null(out);
    for (uint32_t begin = 0; begin < data->shape.context; begin += chunk) {
        uint32_t left = data->shape.context - begin;
        uint32_t end = begin + (left < chunk ? left : chunk);
        attention_rig_step(&rig, data, &begin, &end, &out);
    }
    attention_rig_free(&rig);
    return out;
}

/* Rounds one head to int8 and back (kernels.h), written out. */
static void quantize_head(float *head, uint32_t head_dim)
{
    float largest = 0;
    for (uint32_t d = 0; d < head_dim; d++)
        largest = fmaxf(largest, fabsf(head[d]));
    float inverse = 127.0f / largest, scale = largest / 127.0f;
    for (uint32_t d = 0; d < head_dim; d++)
        head[d] = rintf(head[d] * inverse) * scale;
}

double *attention_in_double(const struct attention_data *data)
{
    const struct attention_case *shape = &data->shape;
    size_t width = qkv_width(shape), bytes = shape->context * width * sizeof(float);
    double *out = malloc(shape->context * out_width(shape) * sizeof *out);
    float *qkv = malloc(bytes);
    assert_true(out && qkv);
    memcpy(qkv, data->qkv, bytes);
    for (uint32_t t = 0; shape->int8 && t < shape->context; t++)
        for (uint32_t h = shape->heads; h < shape->heads + 2 * shape->kv_heads; h++)
            quantize_head(qkv + t * width + (size_t)h * shape->head_dim, shape->head_dim);
    naive_attention(shape, qkv, out);
    free(qkv);
    return out;
}
