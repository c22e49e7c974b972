/* The operations that go row by row, in every backend, against double arithmetic. */
#include "tests/kernels/fixture.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef void variant_check(const struct variant *variant, struct kernels *kernels);

static void for_every_variant(variant_check *check)
{
    size_t count;
    const struct variant *variants = fixture_variants(&count);
    for (size_t v = 0; v < count; v++)
        for (uint32_t threads = 1; threads <= 2; threads++) {
            struct kernels *kernels = fixture_open(&variants[v], threads);
            check(&variants[v], kernels);
            kernels_close(kernels);
        }
}

static double *doubles(size_t count)
{
    double *values = calloc(count, sizeof *values);
    assert_non_null(values);
    return values;
}

static void check_embed(const struct variant *variant, struct kernels *kernels)
{
    enum { VOCAB = 11, HIDDEN = 37, ROWS = 50 };
    struct rng rng = rng_seeded(1);
    uint16_t *table = fixture_bf16(&rng, VOCAB * HIDDEN, 1);
    uint32_t tokens[ROWS];
    for (uint32_t t = 0; t < ROWS; t++)
        tokens[t] = (uint32_t)rng_below(&rng, VOCAB);
    uint32_t sequence_rows[] = {0, ROWS};
    struct buffer ids = fixture_buffer(kernels, tokens, sizeof tokens);
    struct step_batch batch = {.rows = ROWS,
                               .sequences = 1,
                               .tokens = ids,
                               .positions = ids,
                               .row_sequence = ids,
                               .sequence_rows =
                                   fixture_buffer(kernels, sequence_rows, sizeof sequence_rows),
                               .block_tables = ids,
                               .table_stride = 1};
    struct linear embedding = fixture_linear(kernels, table, VOCAB, HIDDEN);
    struct buffer x = fixture_buffer(kernels, NULL, ROWS * HIDDEN * sizeof(float));
    assert_int_equal(kernels_embed(kernels, &batch, &embedding, &x), STATUS_OK);
    float *got = fixture_download(kernels, &x);
    for (uint32_t t = 0; t < ROWS; t++)
        for (uint32_t d = 0; d < HIDDEN; d++)
            assert_true(got[t * HIDDEN + d] == naive_widen(table[tokens[t] * HIDDEN + d]));
    x.bytes--;
    assert_int_equal(kernels_embed(kernels, &batch, &embedding, &x), STATUS_INVALID);
    (void)variant;
    free(got);
    free(table);
    kernels_free(kernels, &x);
    kernels_linear_destroy(kernels, &embedding);
    kernels_free(kernels, &ids);
    kernels_free(kernels, &batch.sequence_rows);
}

static void test_embed(void **state)
{
    (void)state;
    for_every_variant(check_embed);
}

static void check_rmsnorm_of(const struct variant *variant, struct kernels *kernels,
                             uint32_t hidden, bool picked)
{
    enum { ROWS = 19, PICKED = 3 };
    static const uint32_t pick[PICKED] = {18, 0, 7};
    struct rng rng = rng_seeded(hidden);
    float *x = fixture_floats(&rng, (size_t)ROWS * hidden, 3);
    float *weight = fixture_floats(&rng, hidden, 2);
    uint32_t count = picked ? PICKED : ROWS;
    double *want = doubles((size_t)count * hidden);
    for (uint32_t i = 0; i < count; i++) {
        const float *row = x + (size_t)(picked ? pick[i] : i) * hidden;
        double mean = 0;
        for (uint32_t d = 0; d < hidden; d++)
            mean += (double)row[d] * row[d] / hidden;
        for (uint32_t d = 0; d < hidden; d++)
            want[(size_t)i * hidden + d] = row[d] / sqrt(mean + 1e-5) * weight[d];
    }
    struct buffer in = fixture_buffer(kernels, x, (size_t)ROWS * hidden * sizeof(float));
    struct buffer scale = fixture_buffer(kernels, weight, hidden * sizeof(float));
    struct buffer rows = fixture_buffer(kernels, pick, sizeof pick);
    struct buffer out = fixture_buffer(kernels, NULL, (size_t)count * hidden * sizeof(float));
    assert_int_equal(
        kernels_rmsnorm(kernels, &in, &scale, 1e-5, picked ? &rows : NULL, count, hidden, &out),
        STATUS_OK);
    float *got = fixture_download(kernels, &out);
    fixture_assert_near(got, want, (size_t)count * hidden, 1e-6, variant->name);
    assert_int_equal(kernels_rmsnorm(kernels, &in, &scale, 1e-5, &rows, PICKED + 1, hidden, &in),
                     STATUS_INVALID);
    free(x);
    free(weight);
    free(want);
    free(got);
    kernels_free(kernels, &in);
    kernels_free(kernels, &scale);
    kernels_free(kernels, &rows);
    kernels_free(kernels, &out);
}

static void check_rmsnorm(const struct variant *variant, struct kernels *kernels)
{
    static const uint32_t widths[] = {1, 15, 64, 257, 2048};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        check_rmsnorm_of(variant, kernels, widths[i], false);
        check_rmsnorm_of(variant, kernels, widths[i], true);
    }
}

static void test_rmsnorm(void **state)
{
    (void)state;
    for_every_variant(check_rmsnorm);
}

static void check_swiglu(const struct variant *variant, struct kernels *kernels)
{
    enum { ROWS = 21, FFN = 45 };
    struct rng rng = rng_seeded(3);
    float *gate_up = fixture_floats(&rng, ROWS * 2 * FFN, 12);
    gate_up[0] = 200; /* the ends of exp */
    gate_up[1] = -200;
    double *want = doubles(ROWS * FFN);
    for (uint32_t t = 0; t < ROWS; t++)
        for (uint32_t f = 0; f < FFN; f++) {
            double gate = gate_up[t * 2 * FFN + f];
            want[t * FFN + f] = gate / (1 + exp(-gate)) * gate_up[t * 2 * FFN + FFN + f];
        }
    struct buffer in = fixture_buffer(kernels, gate_up, ROWS * 2 * FFN * sizeof(float));
    struct buffer out = fixture_buffer(kernels, NULL, ROWS * FFN * sizeof(float));
    assert_int_equal(kernels_swiglu(kernels, &in, ROWS, FFN, &out), STATUS_OK);
    assert_int_equal(kernels_swiglu(kernels, &in, ROWS + 1, FFN, &out), STATUS_INVALID);
    float *got = fixture_download(kernels, &out);
    fixture_assert_near(got, want, ROWS * FFN, 1e-6, variant->name);
    free(gate_up);
    free(want);
    free(got);
    kernels_free(kernels, &in);
    kernels_free(kernels, &out);
}

static void test_swiglu(void **state)
{
    (void)state;
    for_every_variant(check_swiglu);
}

enum {
    HEADS = 3,
    KV_HEADS = 1,
    DIM = 20,
    BLOCK = 8,
    ROWS = 30,
    FIRST = 5,
    WIDTH = (HEADS + 2) * DIM
};

static double rotated(const float *head, const float *cos_sin, uint32_t i)
{
    uint32_t half = DIM / 2, j = i % half;
    double other = i < half ? -(double)head[i + half] : head[j];
    return head[i] * (double)cos_sin[j] + other * cos_sin[half + j];
}

/* q in place; k and v of layer 1 in blocks 4, 3, 2, ... of the pool. */
static void check_rotation(const struct variant *variant, const float *before, const float *after,
                           const float *rope, const void *pool, const struct kv_layout *layout)
{
    double q_want[HEADS * DIM], kv_want[2 * DIM];
    float kv_got[2 * DIM];
    for (uint32_t t = 0; t < ROWS; t++) {
        uint32_t position = FIRST + t, block = 4 - position / BLOCK;
        const float *row = before + t * WIDTH, *cos_sin = rope + position * DIM;
        for (uint32_t i = 0; i < HEADS * DIM; i++)
            q_want[i] = rotated(row + i / DIM * DIM, cos_sin, i % DIM);
        fixture_assert_near(after + t * WIDTH, q_want, HEADS * DIM, 1e-6, variant->name);
        for (uint32_t i = 0; i < DIM; i++) {
            kv_want[i] = rotated(row + HEADS * DIM, cos_sin, i);
            kv_want[DIM + i] = row[(HEADS + 1) * DIM + i];
        }
        for (uint32_t i = 0; i < 2 * DIM; i++) {
            size_t offset = block * kv_layout_block_bytes(layout) +
                            kv_layout_offset_bytes(layout, 1, i >= DIM, 0);
            size_t element = position % BLOCK * DIM + i % DIM;
            const char *run = (const char *)pool + offset;
            kv_got[i] = layout->type == KV_F32 ? ((const float *)run)[element]
                                               : naive_widen(((const uint16_t *)run)[element]);
        }
        fixture_assert_near(kv_got, kv_want, 2 * DIM, variant->f32 ? 1e-6 : 4e-3, variant->name);
    }
}

/* The numbers added to a row and the norm of its heads, in double arithmetic; NULL: none. */
struct preparation {
    float *bias, *q_norm, *k_norm;
};

#define NORM_EPS 1e-3 /* large enough to be seen */

static float *prepare(const float *qkv, const struct preparation *with)
{
    float *prepared = malloc(ROWS * WIDTH * sizeof *prepared);
    assert_non_null(prepared);
    for (uint32_t t = 0; t < ROWS; t++)
        for (uint32_t h = 0; h < HEADS + 2 * KV_HEADS; h++) {
            const float *norm = h < HEADS              ? with->q_norm
                                : h < HEADS + KV_HEADS ? with->k_norm
                                                       : NULL;
            double head[DIM], mean = 0;
            for (uint32_t d = 0; d < DIM; d++) {
                head[d] = qkv[t * WIDTH + h * DIM + d];
                head[d] += with->bias ? with->bias[h * DIM + d] : 0;
                mean += head[d] * head[d] / DIM;
            }
            for (uint32_t d = 0; d < DIM; d++)
                prepared[t * WIDTH + h * DIM + d] =
                    (float)(norm ? head[d] / sqrt(mean + NORM_EPS) * norm[d] : head[d]);
        }
    return prepared;
}

static struct head_parameters upload_parameters(struct kernels *kernels, const float *rope,
                                                const struct preparation *with)
{
    struct head_parameters p = {
        .norm_eps = NORM_EPS,
        .rope = fixture_buffer(kernels, rope, (FIRST + ROWS) * DIM * sizeof(float))};
    if (with->bias)
        p.bias = fixture_buffer(kernels, with->bias, WIDTH * sizeof(float));
    if (with->q_norm) {
        p.q_norm = fixture_buffer(kernels, with->q_norm, DIM * sizeof(float));
        p.k_norm = fixture_buffer(kernels, with->k_norm, DIM * sizeof(float));
    }
    return p;
}

static void check_rope_with(const struct variant *variant, struct kernels *kernels, bool bias,
                            bool norm)
{
    struct rng rng = rng_seeded(4);
    float *qkv = fixture_floats(&rng, ROWS * WIDTH, 1);
    float *extra = fixture_floats(&rng, WIDTH + 2 * DIM, 1);
    struct preparation with = {.bias = bias ? extra : NULL,
                               .q_norm = norm ? extra + WIDTH : NULL,
                               .k_norm = norm ? extra + WIDTH + DIM : NULL};
    float *rope = fixture_floats(&rng, (FIRST + ROWS) * DIM, 1);
    uint32_t positions[ROWS], row_sequence[ROWS] = {0}, sequence_rows[] = {0, ROWS};
    uint32_t table[] = {4, 3, 2, 1, 0};
    for (uint32_t t = 0; t < ROWS; t++)
        positions[t] = FIRST + t;
    struct kv_layout layout = {.layers = 2,
                               .kv_heads = KV_HEADS,
                               .head_dim = DIM,
                               .block_tokens = BLOCK,
                               .type = kernels_info(kernels).kv_type,
                               .layer_end = 2,
                               .head_end = KV_HEADS};
    struct step_batch batch = {
        .rows = ROWS,
        .sequences = 1,
        .tokens = fixture_buffer(kernels, positions, sizeof positions),
        .positions = fixture_buffer(kernels, positions, sizeof positions),
        .row_sequence = fixture_buffer(kernels, row_sequence, sizeof row_sequence),
        .sequence_rows = fixture_buffer(kernels, sequence_rows, sizeof sequence_rows),
        .block_tables = fixture_buffer(kernels, table, sizeof table),
        .table_stride = 5};
    struct attention_shape shape = {.heads = HEADS, .kv_heads = KV_HEADS, .head_dim = DIM};
    struct buffer pool = fixture_buffer(kernels, NULL, 5 * kv_layout_block_bytes(&layout));
    struct buffer rows = fixture_buffer(kernels, qkv, ROWS * WIDTH * sizeof(float));
    struct head_parameters p = upload_parameters(kernels, rope, &with);
    assert_int_equal(kernels_rope_append(kernels, &batch, &shape, &p, &layout, 1, &rows, &pool),
                     STATUS_OK);
    float *after = fixture_download(kernels, &rows), *kv = fixture_download(kernels, &pool);
    float *before = prepare(qkv, &with);
    check_rotation(variant, before, after, rope, kv, &layout);
    assert_int_equal(kernels_rope_append(kernels, &batch, &shape, &p, &layout, 2, &rows, &pool),
                     STATUS_INVALID);
    struct head_parameters wrong[2] = {p, p};
    wrong[0].q_norm = p.rope;
    wrong[0].k_norm = (struct buffer){0}; /* one norm without the other */
    wrong[1].bias = p.rope;
    wrong[1].bias.bytes = WIDTH * sizeof(float) - 1;
    for (int i = 0; i < 2; i++)
        assert_int_equal(
            kernels_rope_append(kernels, &batch, &shape, &wrong[i], &layout, 1, &rows, &pool),
            STATUS_INVALID);
    shape.heads = 0;
    assert_int_equal(kernels_rope_append(kernels, &batch, &shape, &p, &layout, 1, &rows, &pool),
                     STATUS_INVALID);
    free(before);
    free(extra);
    free(after);
    free(kv);
    free(qkv);
    free(rope);
    struct buffer *buffers[] = {&batch.tokens,
                                &batch.positions,
                                &batch.row_sequence,
                                &batch.sequence_rows,
                                &batch.block_tables,
                                &pool,
                                &rows,
                                &p.rope,
                                &p.bias,
                                &p.q_norm,
                                &p.k_norm};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        kernels_free(kernels, buffers[i]);
}

static void check_rope(const struct variant *variant, struct kernels *kernels)
{
    check_rope_with(variant, kernels, false, false);
    check_rope_with(variant, kernels, true, false);
    check_rope_with(variant, kernels, false, true);
    check_rope_with(variant, kernels, true, true);
}

static void test_rope_append(void **state)
{
    (void)state;
    for_every_variant(check_rope);
}

/* A bit at a time, as RFC 3720 has it. */
static uint32_t naive_crc32c(const uint8_t *bytes, size_t count)
{
    uint32_t crc = ~0u;
    for (size_t i = 0; i < count; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
    }
    return ~crc;
}

static void check_block_sums(const struct variant *variant, struct kernels *kernels)
{
    (void)variant;
    enum { BEGIN = 16, BLOCKS = 7, BYTES = BEGIN + BLOCKS * 3 * 1100 };
    static const uint32_t run_bytes[] = {4, 32, 128, 132, 1096}, blocks[] = {6, 0, 3, 3};
    static const uint32_t many[KV_SUMS_AT_ONCE + 1] = {0};
    static uint8_t pool[BYTES];
    struct rng rng = rng_seeded(9);
    for (size_t i = 0; i < BYTES; i++)
        pool[i] = (uint8_t)rng_next(&rng);
    for (uint8_t i = 0; i < 32; i++)
        pool[BEGIN + i] = i; /* its sum is in the RFC */
    struct buffer memory = fixture_buffer(kernels, pool, BYTES);
    struct buffer sums = fixture_buffer(kernels, NULL, 4 * 3 * sizeof(uint32_t));
    for (size_t i = 0; i < sizeof run_bytes / sizeof *run_bytes; i++) {
        uint32_t got[4 * 3];
        kernels_event summed;
        struct kv_sum_job job = {BEGIN, 3 * run_bytes[i], run_bytes[i], blocks, 4};
        assert_int_equal(kernels_block_sums(kernels, &memory, &job, &sums), STATUS_OK);
        assert_int_equal(kernels_read_back(kernels, KERNELS_TRANSFERS, &sums, 0, got, sizeof got),
                         STATUS_OK);
        assert_int_equal(kernels_record(kernels, KERNELS_TRANSFERS, &summed), STATUS_OK);
        assert_int_equal(kernels_wait(kernels, KERNELS_TRANSFERS, summed), STATUS_OK);
        for (uint32_t run = 0; run < 4 * 3; run++)
            assert_int_equal(
                got[run],
                naive_crc32c(pool + BEGIN + (blocks[run / 3] * 3 + run % 3) * (size_t)run_bytes[i],
                             run_bytes[i]));
        if (run_bytes[i] == 32)
            assert_int_equal(got[3], 0x46dd794e);
    }
    const struct kv_sum_job bad[] = {{BEGIN, 3300, 1100, (uint32_t[]){7}, 1},
                                     {BEGIN, 3300, 1102, blocks, 1},
                                     {BEGIN, 3300, 0, blocks, 1},
                                     {BEGIN, 3300, 1100, blocks, 0},
                                     {BEGIN, 4, 4, many, KV_SUMS_AT_ONCE + 1},
                                     {BYTES + 4, 4, 4, blocks, 1},
                                     {BEGIN, 6 * 4, 4, blocks, 3}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(kernels_block_sums(kernels, &memory, &bad[i], &sums), STATUS_INVALID);
    kernels_free(kernels, &memory);
    kernels_free(kernels, &sums);
}

static void test_block_sums(void **state)
{
    (void)state;
    for_every_variant(check_block_sums);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_embed),      cmocka_unit_test(test_rmsnorm),
        cmocka_unit_test(test_swiglu),     cmocka_unit_test(test_rope_append),
        cmocka_unit_test(test_block_sums),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
