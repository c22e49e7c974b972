/* Attention of kernels/cuda on the CPU's emulator: against double arithmetic over a table of
 * shapes, and equal bits for all plans, chunks, strangers, places of blocks, and launches that run
 * again with longer contexts. */
#include "tests/cuda/emulated.h"
#include "tests/kernels/attention_fixture.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(ARRAY) (sizeof(ARRAY) / sizeof *(ARRAY))
#define TOLERANCE    (4 * 8e-3) /* as of the CPU's bf16 backends: inputs are rounded */

static bool is_long(void)
{
    return getenv("BATON_LONG") != NULL;
}

/* heads, kv heads, head_dim, block_tokens, context, window, int8: groups of 1 to 70; one and
 * several segments and parts of them; windows inside a segment, of exactly one, across several,
 * and such that whole segments are out of sight. Odd cases run the kernels for sm_90a. */
static const struct attention_case cases[] = {
    {1, 1, 16, 8, 1, 0, false},      {4, 2, 64, 16, 37, 0, false},
    {8, 2, 16, 16, 300, 0, false},   {7, 1, 64, 32, 257, 0, false},
    {6, 2, 128, 64, 90, 0, false},   {2, 1, 128, 32, 530, 0, false},
    {70, 1, 16, 16, 20, 0, false},   {16, 1, 64, 8, 40, 1, false},
    {8, 2, 16, 16, 300, 24, false},  {3, 3, 128, 8, 300, 140, false},
    {3, 3, 32, 8, 530, 256, false},  {2, 1, 64, 32, 800, 200, false},
    {6, 2, 32, 8, 300, 0, true},     {4, 1, 64, 16, 270, 0, true},
    {4, 1, 16, 256, 560, 290, true}, {3, 1, 128, 256, 290, 130, true},
    {9, 1, 64, 32, 60, 0, true},     {130, 1, 64, 16, 20, 0, false},
};

static size_t out_count(const struct attention_case *shape)
{
    return (size_t)shape->context * shape->heads * shape->head_dim;
}

static void test_attention_is_right(void **state)
{
    (void)state;
    for (size_t c = 0; c < COUNT(cases); c++) {
        struct kernels *kernels = emulated_open(c % 2);
        struct attention_data data = attention_data_make(&cases[c], c);
        float *got = attention_in_chunks(kernels, &data, data.shape.context);
        double *want = attention_in_double(&data);
        fixture_assert_near(got, want, out_count(&data.shape), TOLERANCE, "attention");
        free(got);
        free(want);
        attention_data_free(&data);
        emulated_close(kernels);
    }
}

/* In chunks and by drawn plans: kernels, tiles of rows, splits of the context, little scratch.
 * Without BATON_LONG one number of chunks each, and no chunks of one row of long contexts. */
static void test_plans_leave_no_trace(void **state)
{
    (void)state;
    static const uint32_t chunks[] = {1, 7, 33, 255, 1000};
    for (size_t c = 1; c < COUNT(cases); c++) {
        if (!is_long() && out_count(&cases[c]) > 60000 && c % 4 != 3)
            continue;
        struct kernels *kernels = emulated_open(true);
        struct emulated *emulated = emulated_of(kernels);
        struct attention_data data = attention_data_make(&cases[c], 100 + c);
        float *whole = attention_in_chunks(kernels, &data, 1000);
        size_t step = is_long() ? 1 : 4;
        for (size_t i = c % step; i < COUNT(chunks); i += step) {
            if (chunks[i] == 1 && data.shape.context > 100 && !is_long())
                continue;
            emulated->target.draw = 1 + i + c;
            emulated->target.scratch.bytes = i % 2 ? 8u << 20 : CUDA_LEAST_SCRATCH_BYTES;
            float *got = attention_in_chunks(kernels, &data, chunks[i]);
            fixture_assert_same_bits(got, whole, out_count(&data.shape), "chunks");
            free(got);
        }
        free(whole);
        attention_data_free(&data);
        emulated_close(kernels);
    }
}

/* Sequences in their prompts and decoding, in one step, by the plan that isn't drawn and by drawn
 * ones: as if each were alone. */
static void test_mixed_batches_leave_no_trace(void **state)
{
    (void)state;
    enum { SEQUENCES = 5 };
    static const struct attention_case shapes[] = {{4, 2, 32, 16, 290, 0, false},
                                                   {4, 1, 64, 8, 290, 40, true},
                                                   {2, 1, 128, 32, 290, 0, false}};
    static const uint32_t begins[SEQUENCES] = {280, 0, 289, 250, 3};
    static const uint32_t ends[SEQUENCES] = {281, 90, 290, 290, 3};
    for (size_t c = 0; c < COUNT(shapes); c++) {
        struct kernels *kernels = emulated_open(c > 0);
        struct attention_rig rig = attention_rig_make(kernels, &shapes[c], SEQUENCES);
        struct attention_data data[SEQUENCES];
        float *alone[SEQUENCES], *out[SEQUENCES];
        uint32_t zeros[SEQUENCES] = {0};
        for (uint32_t s = 0; s < SEQUENCES; s++) {
            data[s] = attention_data_make(&shapes[c], 40 + s);
            data[s].shape.context = ends[s];
            alone[s] = attention_in_chunks(kernels, &data[s], 1000);
            out[s] = calloc(out_count(&shapes[c]), sizeof(float));
            assert_non_null(out[s]);
        }
        attention_rig_step(&rig, data, zeros, begins, out);
        for (uint64_t draw = 0; draw < (is_long() ? 20 : 3); draw++) {
            emulated_of(kernels)->target.draw = draw;
            attention_rig_step(&rig, data, begins, ends, out);
            size_t width = (size_t)shapes[c].heads * shapes[c].head_dim;
            for (uint32_t s = 0; s < SEQUENCES; s++)
                fixture_assert_same_bits(out[s], alone[s], ends[s] * width, "among strangers");
        }
        for (uint32_t s = 0; s < SEQUENCES; s++) {
            attention_data_free(&data[s]);
            free(alone[s]);
            free(out[s]);
        }
        attention_rig_free(&rig);
        emulated_close(kernels);
    }
}

/* --- long contexts: the pool is filled by the host, and one row of each sequence decodes --- */

#define SEQUENCES 3
struct decode_case {
    struct attention_case shape; /* context: of the tables */
    uint32_t contexts[SEQUENCES];
};
/* 2048 tokens: as many segments as decoding merges without a launch of its own. */
static const struct decode_case decode_cases[] = {
    {{4, 1, 64, 16, 4096, 0, false}, {1, 4096, 2048}},
    {{8, 1, 128, 32, 2048, 300, false}, {257, 2000, 256}},
    {{9, 1, 64, 32, 1280, 0, true}, {1030, 255, 1280}},
    {{2, 1, 128, 64, 768, 500, true}, {768, 30, 511}},
    {{4, 1, 128, 32, 131072, 0, false}, {131072, 60000, 5}},
    {{16, 1, 64, 64, 131072, 100000, true}, {131072, 131000, 99999}},
};
/* Cases of long contexts are for BATON_LONG. */
static size_t decode_case_count(void)
{
    return COUNT(decode_cases) - (is_long() ? 0 : 2);
}

struct decode_rig {
    struct kernels *kernels;
    const struct decode_case *one;
    struct kv_layout layout;
    struct attention_shape shape;
    struct step_batch batch;
    struct buffer pool, qkv, out;
    uint32_t stride, positions[SEQUENCES];
    float *kv;   /* [sequence][token][K, V][kv head][head_dim] */
    float *rows; /* [sequence][(H + 2G) E] */
};

static float *token_of(const struct decode_rig *rig, uint32_t sequence, uint32_t token, int value,
                       uint32_t head)
{
    const struct attention_case *shape = &rig->one->shape;
    size_t at =
        (((size_t)sequence * shape->context + token) * 2 + (size_t)value) * shape->kv_heads + head;
    return rig->kv + at * shape->head_dim;
}

/* Draws one head's numbers of a token, and writes them to the pool. */
static void put_token(struct decode_rig *rig, struct rng *rng, char *run, uint32_t inside,
                      float *numbers)
{
    uint32_t dim = rig->shape.head_dim;
    float scale = (float)(1 + rng_below(rng, 8)) / 512;
    int8_t *int8 = (int8_t *)run + (size_t)inside * dim;
    uint16_t *bf16 = (uint16_t *)(void *)run + (size_t)inside * dim;
    for (uint32_t d = 0; d < dim; d++) {
        int number = (int)rng_below(rng, 255) - 127;
        numbers[d] = (float)number * scale;
        if (rig->one->shape.int8)
            int8[d] = (int8_t)number;
        else {
            bf16[d] = naive_round(numbers[d]);
            numbers[d] = naive_widen(bf16[d]);
        }
    }
    if (rig->one->shape.int8)
        ((float *)(void *)(run + (size_t)rig->layout.block_tokens * dim))[inside] = scale;
}

/* Tokens that aren't there are NaN. */
static void fill_pool(struct decode_rig *rig, const uint32_t *tables, struct rng *rng)
{
    const struct attention_case *shape = &rig->one->shape;
    size_t block_bytes = kv_layout_block_bytes(&rig->layout);
    size_t bytes = SEQUENCES * rig->stride * block_bytes;
    char *pool = malloc(bytes);
    assert_non_null(pool);
    memset(pool, 0xff, bytes);
    for (uint32_t s = 0; s < SEQUENCES; s++)
        for (uint32_t t = 0; t < rig->one->contexts[s]; t++)
            for (uint32_t i = 0; i < 2 * shape->kv_heads; i++) {
                uint32_t block = tables[s * rig->stride + t / shape->block_tokens];
                char *run = pool + block * block_bytes +
                            kv_layout_offset_bytes(&rig->layout, 0, i % 2, i / 2);
                put_token(rig, rng, run, t % shape->block_tokens,
                          token_of(rig, s, t, i % 2, i / 2));
            }
    rig->pool = fixture_buffer(rig->kernels, pool, bytes);
    free(pool);
}

/* Positions of the rows that decode: the last of each context, less `before`. */
static void set_positions(struct decode_rig *rig, uint32_t before)
{
    for (uint32_t s = 0; s < SEQUENCES; s++) {
        uint32_t last = rig->one->contexts[s] - 1;
        rig->positions[s] = last > before ? last - before : last;
    }
    assert_int_equal(kernels_upload(rig->kernels, KERNELS_STEPS, &rig->batch.positions, 0,
                                    rig->positions, sizeof rig->positions),
                     STATUS_OK);
    assert_int_equal(kernels_sync(rig->kernels), STATUS_OK);
}

static struct decode_rig decode_rig_make(bool hopper, const struct decode_case *one, uint64_t seed)
{
    const struct attention_case *shape = &one->shape;
    struct decode_rig rig = {.kernels = emulated_open(hopper), .one = one};
    struct kernels *k = rig.kernels;
    struct rng rng = rng_seeded(1);
    rig.layout = (struct kv_layout){.layers = 1,
                                    .kv_heads = shape->kv_heads,
                                    .head_dim = shape->head_dim,
                                    .block_tokens = shape->block_tokens,
                                    .type = shape->int8 ? KV_INT8 : KV_BF16,
                                    .layer_end = 1,
                                    .head_end = shape->kv_heads};
    rig.shape = (struct attention_shape){shape->heads, shape->kv_heads, shape->head_dim,
                                         shape->window, (float)(1 / sqrt(shape->head_dim))};
    rig.stride = shape->context / shape->block_tokens;
    uint32_t blocks = SEQUENCES * rig.stride, sequences[SEQUENCES], rows[SEQUENCES + 1] = {0};
    uint32_t *tables = malloc(blocks * sizeof *tables);
    rig.kv = malloc((size_t)SEQUENCES * shape->context * 2 * shape->kv_heads * shape->head_dim *
                    sizeof(float));
    assert_true(tables && rig.kv);
    for (uint32_t i = 0; i < blocks; i++) /* any place: an odd step meets each block once */
        tables[i] = (uint32_t)((seed + (uint64_t)i * 7) % blocks);
    for (uint32_t s = 0; s < SEQUENCES; s++) {
        sequences[s] = s;
        rows[s + 1] = s + 1;
    }
    size_t width = (shape->heads + 2 * (size_t)shape->kv_heads) * shape->head_dim;
    rig.rows = fixture_floats(&rng, SEQUENCES * width, 3.0f);
    for (size_t i = 0; i < SEQUENCES * width; i++)
        rig.rows[i] = naive_widen(naive_round(rig.rows[i]));
    rig.batch =
        (struct step_batch){.rows = SEQUENCES,
                            .sequences = SEQUENCES,
                            .tokens = fixture_buffer(k, sequences, sizeof sequences),
                            .positions = fixture_buffer(k, NULL, sizeof sequences),
                            .row_sequence = fixture_buffer(k, sequences, sizeof sequences),
                            .sequence_rows = fixture_buffer(k, rows, sizeof rows),
                            .block_tables = fixture_buffer(k, tables, blocks * sizeof *tables),
                            .table_stride = rig.stride};
    rig.qkv = fixture_buffer(k, rig.rows, SEQUENCES * width * sizeof(float));
    rig.out =
        fixture_buffer(k, NULL, (size_t)SEQUENCES * shape->heads * shape->head_dim * sizeof(float));
    fill_pool(&rig, tables, &rng);
    set_positions(&rig, 0);
    free(tables);
    return rig;
}

static void decode_rig_free(struct decode_rig *rig)
{
    struct buffer *all[] = {&rig->batch.tokens,
                            &rig->batch.positions,
                            &rig->batch.row_sequence,
                            &rig->batch.sequence_rows,
                            &rig->batch.block_tables,
                            &rig->pool,
                            &rig->qkv,
                            &rig->out};
    for (size_t i = 0; i < COUNT(all); i++)
        kernels_free(rig->kernels, all[i]);
    free(rig->kv);
    free(rig->rows);
    emulated_close(rig->kernels);
}

/* Returns what the step gives; free(). */
static float *decode(struct decode_rig *rig)
{
    assert_int_equal(kernels_attention(rig->kernels, &rig->batch, &rig->shape, &rig->layout, 0,
                                       &rig->qkv, &rig->pool, &rig->out),
                     STATUS_OK);
    return fixture_download(rig->kernels, &rig->out);
}

static size_t decoded_count(const struct decode_rig *rig)
{
    return (size_t)SEQUENCES * rig->shape.heads * rig->shape.head_dim;
}

static void decode_head_in_double(const struct decode_rig *rig, uint32_t sequence, uint32_t head,
                                  double *out)
{
    const struct attention_shape *shape = &rig->shape;
    uint32_t dim = shape->head_dim, kv_head = head / (shape->heads / shape->kv_heads);
    uint32_t seen = rig->positions[sequence] + 1;
    uint32_t first = shape->window && seen > shape->window ? seen - shape->window : 0;
    const float *q =
        rig->rows + (sequence * (size_t)(shape->heads + 2 * shape->kv_heads) + head) * dim;
    double *scores = malloc(seen * sizeof *scores), most = -INFINITY, sum = 0;
    assert_non_null(scores);
    for (uint32_t t = first; t < seen; t++) {
        const float *key = token_of(rig, sequence, t, 0, kv_head);
        scores[t] = 0;
        for (uint32_t d = 0; d < dim; d++)
            scores[t] += (double)q[d] * (double)key[d] / sqrt(dim);
        most = fmax(most, scores[t]);
    }
    memset(out, 0, dim * sizeof *out);
    for (uint32_t t = first; t < seen; t++) {
        double weight = exp(scores[t] - most);
        sum += weight;
        for (uint32_t d = 0; d < dim; d++)
            out[d] += weight * (double)token_of(rig, sequence, t, 1, kv_head)[d];
    }
    for (uint32_t d = 0; d < dim; d++)
        out[d] /= sum;
    free(scores);
}

static void check_decoded(const struct decode_rig *rig, const float *got, const char *what)
{
    double *want = malloc(decoded_count(rig) * sizeof *want);
    assert_non_null(want);
    for (uint32_t i = 0; i < SEQUENCES * rig->shape.heads; i++)
        decode_head_in_double(rig, i / rig->shape.heads, i % rig->shape.heads,
                              want + (size_t)i * rig->shape.head_dim);
    fixture_assert_near(got, want, decoded_count(rig), TOLERANCE, what);
    free(want);
}

/* Right, and with the same bits by other plans, with little scratch, and with blocks in other
 * places. */
static void test_long_contexts(void **state)
{
    (void)state;
    for (size_t c = 0; c < decode_case_count(); c++) {
        struct decode_rig rig = decode_rig_make(c % 2, &decode_cases[c], 0);
        float *want = decode(&rig);
        check_decoded(&rig, want, "a long context");
        decode_rig_free(&rig);
        rig = decode_rig_make(true, &decode_cases[c], 1 + c);
        for (uint64_t draw = 0; draw < (is_long() ? 12 : 4); draw++) {
            struct cuda_target *target = &emulated_of(rig.kernels)->target;
            target->draw = draw;
            target->scratch.bytes = draw % 3 == 1 ? CUDA_LEAST_SCRATCH_BYTES : 8u << 20;
            float *got = decode(&rig);
            fixture_assert_same_bits(got, want, decoded_count(&rig), "a long context's plan");
            free(got);
        }
        free(want);
        decode_rig_free(&rig);
    }
}

/* Launches depend on numbers of rows and sizes of tables alone: run again as they are, after
 * lengths have changed, they give the bits of new ones. */
static void test_launches_follow_lengths(void **state)
{
    (void)state;
    if (!emulated_counts) /* test_graphs runs recorded launches */
        skip();
    struct decode_rig rig = decode_rig_make(true, &decode_cases[0], 3);
    struct cuda_plan plan = {0};
    set_positions(&rig, 600);
    assert_int_equal(cuda_plan_attention(&emulated_of(rig.kernels)->target, &rig.batch, &rig.shape,
                                         &rig.layout, 0, &rig.qkv, &rig.pool, &rig.out, &plan),
                     STATUS_OK);
    assert_true(plan.done);
    static const uint32_t before[] = {600, 300, 1, 0};
    for (size_t b = 0; b < COUNT(before); b++) {
        set_positions(&rig, before[b]);
        float *want = decode(&rig), *got = rig.out.address;
        memset(got, 0xff, rig.out.bytes);
        emulated_run(rig.kernels, &plan);
        fixture_assert_same_bits(got, want, decoded_count(&rig), "launched again");
        free(want);
    }
    decode_rig_free(&rig);
}

/* An argument chooses tests by name, with wildcards. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attention_is_right),
        cmocka_unit_test(test_plans_leave_no_trace),
        cmocka_unit_test(test_mixed_batches_leave_no_trace),
        cmocka_unit_test(test_long_contexts),
        cmocka_unit_test(test_launches_follow_lengths),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
