/* The CUDA kernels on the CPU's emulator: against the reference backend and double arithmetic over
 * a table of shapes, and equal bits for all plans, numbers of rows and chunks. */
#include "kernels/cpu/e4m3.h"
#include "tests/cuda/emulated.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(ARRAY) (sizeof(ARRAY) / sizeof *(ARRAY))
#define TOLERANCE    8e-3 /* as of the CPU's bf16 backends: inputs are rounded */

static bool is_long(void)
{
    return getenv("BATON_LONG") != NULL;
}

static struct kernels *open_reference(void)
{
    struct variant f32 = {"f32", true, ISA_AUTO, 0};
    return fixture_open(&f32, 1);
}

/* --- linear layers --- */

struct linear_case {
    uint32_t n, k, rows;
};
/* One and several tiles, partial ones on each side; K that fills no cell, one and several segments,
 * the last of them shorter. */
static const struct linear_case linear_cases[] = {
    {64, 64, 1},    {1, 1, 1},       {96, 200, 5},  {130, 72, 17},  {300, 128, 3},  {64, 3712, 9},
    {70, 7300, 16}, {128, 320, 130}, {192, 64, 65}, {257, 130, 33}, {128, 4096, 2},
};

struct layer {
    struct linear_case shape;
    enum weight_type type;
    uint16_t *bf16;
    uint8_t *numbers;
    float *scales, *in;
    float input_scale;
};

static struct layer layer_make(const struct linear_case *shape, enum weight_type type)
{
    struct rng rng = rng_seeded(shape->n * 31 + shape->k);
    size_t count = (size_t)shape->n * shape->k;
    struct layer layer = {.shape = *shape, .type = type};
    layer.bf16 = fixture_bf16(&rng, count, 1.0f);
    layer.in = fixture_floats(&rng, (size_t)shape->rows * shape->k, 2.0f);
    if (weight_type_is_quantized(type)) {
        float *wide = malloc(count * sizeof *wide);
        layer.numbers = malloc(count);
        layer.scales = malloc(shape->n * weight_row_scales(type, shape->k) * sizeof(float));
        assert_true(wide && layer.numbers && layer.scales);
        for (size_t i = 0; i < count; i++)
            wide[i] = naive_widen(layer.bf16[i]);
        uint32_t bad;
        assert_int_equal(
            weight_quantize(type, wide, shape->n, shape->k, layer.numbers, layer.scales, &bad),
            STATUS_OK);
        free(wide);
    }
    return layer;
}

static void layer_free(struct layer *layer)
{
    free(layer->bf16);
    free(layer->numbers);
    free(layer->scales);
    free(layer->in);
}

/* Loads the rows in two ranges, as those of fused layers are. */
static struct linear load_layer(struct kernels *kernels, const struct layer *layer)
{
    uint32_t n = layer->shape.n, k = layer->shape.k, cut = n / 3;
    struct linear linear;
    bool quantized = weight_type_is_quantized(layer->type);
    enum weight_type type = quantized ? layer->type : kernels_info(kernels).weight_type;
    void *wide = quantized ? NULL : fixture_weights(kernels, layer->bf16, (size_t)n * k);
    const char *rows = quantized ? (const char *)layer->numbers : wide;
    const float *behind = quantized ? layer->scales + cut * weight_row_scales(type, k) : NULL;
    size_t row_bytes = weight_row_bytes(type, k);
    assert_int_equal(kernels_linear_create(kernels, type, n, k, &linear), STATUS_OK);
    assert_int_equal(
        kernels_linear_load(kernels, &linear, cut, n - cut, rows + cut * row_bytes, behind),
        STATUS_OK);
    assert_int_equal(kernels_linear_load(kernels, &linear, 0, cut, rows, layer->scales), STATUS_OK);
    linear.input_scale = layer->input_scale;
    free(wide);
    return linear;
}

/* Multiplies rows [first, first + rows) and adds to ones, or not; free(). */
static float *multiply(struct kernels *kernels, const struct linear *linear,
                       const struct layer *layer, uint32_t first, uint32_t rows, bool add)
{
    size_t count = (size_t)rows * linear->n;
    float *ones = malloc(count * sizeof *ones);
    assert_non_null(ones);
    for (size_t i = 0; i < count; i++)
        ones[i] = 1.0f;
    struct buffer in = fixture_buffer(kernels, layer->in + (size_t)first * linear->k,
                                      (size_t)rows * linear->k * sizeof(float));
    struct buffer out = fixture_buffer(kernels, add ? ones : NULL, count * sizeof(float));
    assert_int_equal(kernels_linear(kernels, linear, &in, rows, add, &out), STATUS_OK);
    float *got = fixture_download(kernels, &out);
    kernels_free(kernels, &in);
    kernels_free(kernels, &out);
    free(ones);
    return got;
}

/* Takes inputs that are, over the scale, at the middle of two codes or right beside it. */
static void take_middles(struct layer *layer, float input_scale)
{
    layer->input_scale = input_scale;
    for (uint32_t i = 0; i < layer->shape.rows * layer->shape.k && input_scale > 0; i++) {
        uint8_t code = (uint8_t)(i * 7 % 0x7e), next = (uint8_t)(code + 1);
        float middle = (e4m3_value(code) + e4m3_value(next)) / 2 * input_scale;
        layer->in[i] = i % 3 ? middle : -middle;
    }
}

static void check_linear(bool hopper, const struct linear_case *shape, enum weight_type type,
                         float input_scale)
{
    struct kernels *kernels = emulated_open(hopper), *reference = open_reference();
    struct layer layer = layer_make(shape, type);
    take_middles(&layer, input_scale);
    struct linear linear = load_layer(kernels, &layer), plain = load_layer(reference, &layer);
    size_t count = (size_t)shape->n * shape->rows;
    for (int add = 0; add < 2; add++) {
        float *got = multiply(kernels, &linear, &layer, 0, shape->rows, add);
        float *want = multiply(reference, &plain, &layer, 0, shape->rows, add);
        double *wide = malloc(count * sizeof *wide);
        assert_non_null(wide);
        for (size_t i = 0; i < count; i++)
            wide[i] = (double)want[i];
        if (weight_type_is_quantized(type))
            fixture_assert_same_bits(got, want, count, weight_type_names[type]);
        else
            fixture_assert_near(got, wide, count, TOLERANCE, "bf16");
        free(got);
        free(want);
        free(wide);
    }
    kernels_linear_destroy(kernels, &linear);
    kernels_linear_destroy(reference, &plain);
    layer_free(&layer);
    emulated_close(kernels);
    kernels_close(reference);
}

static void test_linear_is_right(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(linear_cases); i++)
        for (int hopper = 0; hopper < 2; hopper++) {
            check_linear(hopper, &linear_cases[i], WEIGHT_BF16, 0);
            check_linear(hopper, &linear_cases[i], WEIGHT_INT8, 0);
        }
}

/* Skips a test on a device that has no tensor cores for fp8. */
static void need_fp8(void)
{
    struct kernels *kernels = emulated_open(true);
    bool hopper = emulated_of(kernels)->target.hopper;
    emulated_close(kernels);
    if (!hopper)
        skip();
}

/* FP8 gives the reference's bits, which adds by a model of the tensor core. Without BATON_LONG each
 * shape has one kind of scales. */
static void test_fp8_is_the_reference(void **state)
{
    (void)state;
    need_fp8();
    for (size_t i = 0; i < COUNT(linear_cases); i++) {
        if (is_long() || i % 2 == 0)
            check_linear(true, &linear_cases[i], WEIGHT_FP8, i % 3 == 2 ? 0.003f : 0);
        if (is_long() || i % 2 == 1)
            check_linear(true, &linear_cases[i], WEIGHT_FP8_BLOCK, 0);
    }
}

/* Steps of one large product and two of 2^-12. Their sums tell by which exponent the tensor core
 * aligns a product (decision 59): 3.75 x 1.875 is 7.03 by exponents 1 + 0, and the subnormal 2^-9 x
 * 256 is 2^-1 by exponents -6 + 8. The model takes the first row of `readings`. */
static void test_fp8_terms_are_aligned_as_in_the_model(void **state)
{
    (void)state;
    need_fp8();
    enum { K = 32, STEPS = 2, READINGS = 3 };
    static const struct {
        const char *what;
        float sums[STEPS];
    } readings[READINGS] = {
        {"the sum of its operands' exponents", {7.03125f + 0x1p-11f, 0.5f}},
        {"that sum, of operands made normal", {7.03125f + 0x1p-11f, 0.5f + 0x1p-11f}},
        {"its own exponent", {7.03125f, 0.5f + 0x1p-11f}},
    };
    uint8_t weights[STEPS * K] = {0x47, 0x08, 0x08, [K] = 0x01, 0x08, 0x08};
    float inputs[STEPS * K] = {1.875f, 0x1p-6f, 0x1p-6f, [K] = 256, 0x1p-6f, 0x1p-6f};
    float ones[STEPS] = {1, 1};
    struct kernels *kernels = emulated_open(true);
    struct layer layer = {{STEPS, K, STEPS}, WEIGHT_FP8, NULL, weights, ones, inputs, 1};
    struct linear linear = load_layer(kernels, &layer);
    float *got = multiply(kernels, &linear, &layer, 0, STEPS, false);
    const float sums[STEPS] = {got[0], got[STEPS + 1]};
    int seen = 0;
    while (seen < READINGS && memcmp(readings[seen].sums, sums, sizeof sums) != 0)
        seen++;
    const char *what = seen < READINGS ? readings[seen].what : "none that is known";
    printf("fp8: a product is aligned by %s (%a, %a)\n", what, (double)sums[0], (double)sums[1]);
    assert_int_equal(seen, 0); /* kernels/cpu/e4m3.h: e4m3_step, `exponent` */
    free(got);
    kernels_linear_destroy(kernels, &linear);
    emulated_close(kernels);
}

/* Random plans of both kinds of kernels, little scratch, and rows alone: the same bits. */
static void check_linear_plans(const struct linear_case *shape, enum weight_type type,
                               uint64_t plans)
{
    struct kernels *kernels = emulated_open(true);
    struct emulated *emulated = emulated_of(kernels);
    struct layer layer = layer_make(shape, type);
    struct linear linear = load_layer(kernels, &layer);
    float *want = multiply(kernels, &linear, &layer, 0, shape->rows, true);
    for (uint64_t draw = 1; draw <= plans; draw++) {
        emulated->target.draw = draw;
        emulated->target.scratch.bytes = draw % 3 ? 8u << 20 : CUDA_LEAST_SCRATCH_BYTES;
        uint32_t rows = draw % 2 ? shape->rows : (uint32_t)(1 + draw % shape->rows);
        uint32_t first = (shape->rows - rows) / 2;
        float *got = multiply(kernels, &linear, &layer, first, rows, true);
        fixture_assert_same_bits(got, want + (size_t)first * shape->n, (size_t)rows * shape->n,
                                 "another plan");
        free(got);
    }
    free(want);
    kernels_linear_destroy(kernels, &linear);
    layer_free(&layer);
    emulated_close(kernels);
}

static void test_linear_plans_leave_no_trace(void **state)
{
    (void)state;
    static const struct linear_case shapes[] = {{200, 3712, 21}, {128, 192, 130}, {320, 64, 5}};
    for (size_t i = 0; i < COUNT(shapes); i++) {
        check_linear_plans(&shapes[i], WEIGHT_BF16, is_long() ? 60 : 8);
        check_linear_plans(&shapes[i], WEIGHT_INT8, is_long() ? 60 : 6);
    }
}

/* Plans of layers with several tiles, segments, and rows that don't fill a tile: wide tiles with
 * sums in shared memory, and clusters, with split tiles, too. The bits are those of kernels that
 * aren't for sm_90a. */
static void check_all_plans(const struct linear_case *shape, enum weight_type type)
{
    struct kernels *kernels = emulated_open(true);
    struct cuda_target *target = &emulated_of(kernels)->target;
    bool hopper = target->hopper;
    struct layer layer = layer_make(shape, type);
    struct linear linear = load_layer(kernels, &layer);
    target->hopper = hopper && weight_type_is_fp8(type);
    float *want = multiply(kernels, &linear, &layer, 0, shape->rows, false);
    target->hopper = hopper;
    uint32_t plans = cuda_linear_plans(target, &linear, shape->rows);
    bool splits_cluster = false, is_wide = false;
    for (uint32_t plan = 0; plan <= plans; plan++) {
        char name[CUDA_PLAN_NAME_BYTES];
        target->linear_plan = plan;
        cuda_linear_plan_name(target, &linear, shape->rows, name);
        splits_cluster |= strstr(name, "c2s:") || strstr(name, "c2t:");
        is_wide |= strstr(name, "128x256c2") != NULL;
        bool is_narrow = shape->rows < 64 && strstr(name, "c2");
        if (!is_long() && !is_narrow && !strstr(name, "128x256c2") && !strstr(name, "64x128c2s"))
            continue;
        float *got = multiply(kernels, &linear, &layer, 0, shape->rows, false);
        fixture_assert_same_bits(got, want, (size_t)shape->rows * shape->n, name);
        free(got);
    }
    assert_true(!hopper || (plans > 2 && splits_cluster));
    assert_true(!hopper || weight_type_is_fp8(type) || is_wide == (shape->rows > 64));
    free(want);
    kernels_linear_destroy(kernels, &linear);
    layer_free(&layer);
    emulated_close(kernels);
}

static void test_wide_tiles_and_clusters(void **state)
{
    (void)state;
    static const struct linear_case wide = {256, 3712, 70}, narrow = {128, 3712, 3};
    check_all_plans(&wide, WEIGHT_BF16);
    check_all_plans(&narrow, WEIGHT_BF16);
    if (is_long()) {
        check_all_plans(&wide, WEIGHT_INT8);
        check_all_plans(&narrow, WEIGHT_INT8);
    }
}

/* Plans of an H200: the chosen ones by name, and what all of them ask of an SM. */
static void test_chosen_plans(void **state)
{
    (void)state;
    static const struct {
        uint32_t n, k, rows;
        enum weight_type type;
        const char *name;
    } want[] = {
        /* All segments at once, or all tiles, where either fits the device. */
        {6144, 4096, 1, WEIGHT_BF16, "64x8s:4/4"},
        {28672, 4096, 1, WEIGHT_BF16, "64x8:4/4"},
        {4096, 14336, 16, WEIGHT_BF16, "64x16s:4/4"},
        {4096, 14336, 32, WEIGHT_INT8, "64x32s:2/2"},
        {4096, 14336, 32, WEIGHT_FP8, "64x64s:1/1"},
        {28672, 4096, 128, WEIGHT_BF16, "64x128c2t:1/1"},
        {6144, 4096, 512, WEIGHT_INT8, "128x128c2t:1/1"},
        {28672, 4096, 2048, WEIGHT_BF16, "128x256c2:1/1"},
        {28672, 4096, 2048, WEIGHT_FP8_BLOCK, "128x128c2:1/1"},
        /* N that no cluster, or only tiles of 64, divide. */
        {384, 4096, 2048, WEIGHT_BF16, "128x256:1/1"},
        {320, 64, 2048, WEIGHT_BF16, "64x128:1/1"},
    };
    struct cuda_target target = {.hopper = true, .sms = 132, .shared_bytes = 227 << 10};
    target.scratch = (struct buffer){.address = (void *)CUDA_ALIGN_BYTES, .bytes = 256u << 20};
    for (size_t i = 0; i < COUNT(want); i++) {
        struct linear linear = {.type = want[i].type, .n = want[i].n, .k = want[i].k};
        char name[CUDA_PLAN_NAME_BYTES];
        target.linear_plan = 0;
        cuda_linear_plan_name(&target, &linear, want[i].rows, name);
        assert_string_equal(name, want[i].name);
        uint32_t plans = cuda_linear_plans(&target, &linear, want[i].rows);
        for (; target.linear_plan <= plans; target.linear_plan++) {
            struct cuda_plan plan = {0};
            cuda_linear_plan_name(&target, &linear, want[i].rows, name);
            uint32_t share = (uint32_t)atoi(strchr(name, '/') + 1);
            assert_int_equal(cuda_plan_linear(&target, &linear, &target.scratch, want[i].rows,
                                              false, &target.scratch, &plan),
                             STATUS_OK);
            const struct cuda_launch *launch = &plan.launches[plan.count - 1];
            assert_true(share * (launch->shared_bytes + 1024) <= target.shared_bytes + 1024);
            assert_int_equal(launch->cluster, strstr(name, "c2") ? 2 : 1);
            assert_int_equal(launch->grid[0] % launch->cluster, 0);
            assert_true(strchr(name, 'u') || launch->grid[0] <= target.sms * share);
        }
    }
    target.hopper = false;
    struct linear portable = {.type = WEIGHT_BF16, .n = 64, .k = 64};
    assert_int_equal(cuda_linear_plans(&target, &portable, 1), 0);
}

static void test_fp8_plans_leave_no_trace(void **state)
{
    (void)state;
    need_fp8();
    static const struct linear_case shapes[] = {{130, 3712, 9}, {128, 320, 70}};
    for (size_t i = 0; i < COUNT(shapes); i++) {
        check_linear_plans(&shapes[i], WEIGHT_FP8, is_long() ? 60 : 4);
        check_linear_plans(&shapes[i], WEIGHT_FP8_BLOCK, is_long() ? 60 : 4);
    }
}

/* A row with infinite, NaN or tiny inputs: the reference's bits, NaN where it has them. */
static void check_unsound_rows(enum weight_type type, float input_scale)
{
    static const struct linear_case shape = {70, 130, 4};
    struct kernels *kernels = emulated_open(true), *reference = open_reference();
    struct layer layer = layer_make(&shape, type);
    layer.input_scale = input_scale;
    layer.in[3] = NAN;
    layer.in[shape.k + 129] = INFINITY;
    for (uint32_t k = 0; k < shape.k; k++)
        layer.in[2 * shape.k + k] *= 0x1p-110f;
    struct linear linear = load_layer(kernels, &layer), plain = load_layer(reference, &layer);
    float *got = multiply(kernels, &linear, &layer, 0, shape.rows, false);
    float *want = multiply(reference, &plain, &layer, 0, shape.rows, false);
    for (uint32_t i = 0; i < shape.n * shape.rows; i++)
        assert_true(isnan(want[i]) ? isnan(got[i]) : got[i] == want[i]);
    free(got);
    free(want);
    kernels_linear_destroy(kernels, &linear);
    kernels_linear_destroy(reference, &plain);
    layer_free(&layer);
    emulated_close(kernels);
    kernels_close(reference);
}

static void test_rows_that_are_not_finite(void **state)
{
    (void)state;
    check_unsound_rows(WEIGHT_INT8, 0);
}

static void test_fp8_rows_that_are_not_finite(void **state)
{
    (void)state;
    need_fp8();
    check_unsound_rows(WEIGHT_FP8, 0);
    check_unsound_rows(WEIGHT_FP8, 0.01f); /* by which infinity would be 448 */
    check_unsound_rows(WEIGHT_FP8_BLOCK, 0);
}

/* Bytes of a packed layer lie where the function for host code says. */
static void test_packing(void **state)
{
    (void)state;
    struct kernels *kernels = emulated_open(false);
    static const enum weight_type types[] = {WEIGHT_BF16, WEIGHT_INT8, WEIGHT_FP8_BLOCK};
    for (size_t i = 0; i < COUNT(types); i++) {
        struct linear_case shape = {130, 200, 1};
        struct layer layer = layer_make(&shape, types[i]);
        struct linear linear = load_layer(kernels, &layer);
        size_t row_bytes = weight_row_bytes(types[i], shape.k);
        uint8_t *packed = malloc(linear.packed.bytes);
        assert_non_null(packed);
        assert_int_equal(kernels_download(kernels, &linear.packed, 0, packed, linear.packed.bytes),
                         STATUS_OK);
        const uint8_t *rows = layer.numbers ? layer.numbers : (const uint8_t *)layer.bf16;
        assert_int_equal(linear.packed.bytes % CUDA_ALIGN_BYTES, 0);
        for (uint32_t n = 0; n < shape.n; n++)
            for (size_t b = 0; b < row_bytes; b++)
                assert_int_equal(packed[cuda_packed_offset(&linear, n, b)],
                                 rows[n * row_bytes + b]);
        free(packed);
        kernels_linear_destroy(kernels, &linear);
        layer_free(&layer);
    }
    assert_int_equal(cuda_linear_bytes(WEIGHT_INT4, 64, 64), 0);
    assert_non_null(cuda_refusal_weights(WEIGHT_INT4, true));
    emulated_close(kernels);
}

static void test_segments(void **state)
{
    (void)state;
    static const struct {
        uint32_t k, segment;
    } want[] = {{1, 128},     {2048, 2048}, {3584, 3584},  {3585, 1920},
                {4096, 2048}, {8192, 2816}, {14336, 3584}, {28672, 3584}};
    for (size_t i = 0; i < COUNT(want); i++)
        assert_int_equal(weight_segment_k(want[i].k), want[i].segment);
}

/* --- row by row --- */

static float *embed(struct kernels *kernels, const struct layer *layer, const uint32_t *tokens,
                    uint32_t rows)
{
    struct linear linear = load_layer(kernels, layer);
    struct buffer ids = fixture_buffer(kernels, tokens, rows * sizeof *tokens);
    struct buffer x = fixture_buffer(kernels, NULL, (size_t)rows * linear.k * sizeof(float));
    struct step_batch batch = {
        .rows = rows, .tokens = ids, .positions = ids, .row_sequence = ids, .sequence_rows = ids};
    assert_int_equal(kernels_embed(kernels, &batch, &linear, &x), STATUS_OK);
    float *got = fixture_download(kernels, &x);
    kernels_free(kernels, &ids);
    kernels_free(kernels, &x);
    kernels_linear_destroy(kernels, &linear);
    return got;
}

static void test_embed(void **state)
{
    (void)state;
    static const struct linear_case shape = {150, 300, 1};
    static const uint32_t tokens[] = {0, 149, 64, 63, 7, 7};
    struct kernels *kernels = emulated_open(false), *reference = open_reference();
    static const enum weight_type types[] = {WEIGHT_BF16, WEIGHT_INT8};
    for (size_t i = 0; i < COUNT(types); i++) {
        struct layer layer = layer_make(&shape, types[i]);
        float *got = embed(kernels, &layer, tokens, COUNT(tokens));
        float *want = embed(reference, &layer, tokens, COUNT(tokens));
        fixture_assert_same_bits(got, want, COUNT(tokens) * shape.k, "embed");
        free(got);
        free(want);
        layer_free(&layer);
    }
    emulated_close(kernels);
    kernels_close(reference);
}

static float *norm(struct kernels *kernels, const float *x, const float *weight,
                   const uint32_t *rows, uint32_t count, uint32_t hidden)
{
    struct buffer in = fixture_buffer(kernels, x, (size_t)count * hidden * sizeof(float));
    struct buffer weights = fixture_buffer(kernels, weight, hidden * sizeof(float));
    struct buffer out = fixture_buffer(kernels, NULL, (size_t)count * hidden * sizeof(float));
    struct buffer chosen = {0};
    if (rows)
        chosen = fixture_buffer(kernels, rows, count * sizeof *rows);
    assert_int_equal(
        kernels_rmsnorm(kernels, &in, &weights, 1e-5, rows ? &chosen : NULL, count, hidden, &out),
        STATUS_OK);
    float *got = fixture_download(kernels, &out);
    kernels_free(kernels, &in);
    kernels_free(kernels, &weights);
    kernels_free(kernels, &out);
    kernels_free(kernels, &chosen);
    return got;
}

static void test_norm_and_swiglu(void **state)
{
    (void)state;
    static const uint32_t widths[] = {1, 64, 300, 1100}, chosen[] = {2, 0, 2};
    struct kernels *kernels = emulated_open(false), *reference = open_reference();
    for (size_t i = 0; i < COUNT(widths); i++) {
        struct rng rng = rng_seeded(i);
        uint32_t width = widths[i], rows = 3;
        float *x = fixture_floats(&rng, 2 * rows * width, 9.0f);
        float *weight = fixture_floats(&rng, width, 2.0f);
        for (int pick = 0; pick < 2; pick++) {
            float *got = norm(kernels, x, weight, pick ? chosen : NULL, rows, width);
            float *want = norm(reference, x, weight, pick ? chosen : NULL, rows, width);
            for (uint32_t e = 0; e < rows * width; e++)
                assert_true(fabsf(got[e] - want[e]) <= 1e-6f * fabsf(want[e]));
            free(got);
            free(want);
        }
        struct kernels *both[] = {kernels, reference};
        float *out[2];
        for (int b = 0; b < 2; b++) {
            struct buffer in = fixture_buffer(both[b], x, 2 * rows * width * sizeof(float));
            struct buffer to = fixture_buffer(both[b], NULL, rows * width * sizeof(float));
            assert_int_equal(kernels_swiglu(both[b], &in, rows, width, &to), STATUS_OK);
            out[b] = fixture_download(both[b], &to);
            kernels_free(both[b], &in);
            kernels_free(both[b], &to);
        }
        fixture_assert_same_bits(out[0], out[1], rows * width, "swiglu");
        free(out[0]);
        free(out[1]);
        free(x);
        free(weight);
    }
    emulated_close(kernels);
    kernels_close(reference);
}

/* --- rotation, and the pool --- */

/* Bias, norms of heads and rotation, and the bytes of the pool, against the reference. */
enum { ROPE_HEADS = 3, ROPE_ROWS = 5, ROPE_CONTEXT = 40, ROPE_BLOCKS = 4 };
struct rope_case {
    struct attention_shape shape;
    size_t width;
    float *qkv, *rope, *bias, *norms; /* bias, norms: NULL: none */
};

/* Runs the case. Returns the rows; free(). The caller frees *pool. */
static float *run_rope(struct kernels *k, const struct rope_case *one,
                       const struct kv_layout *layout, void **pool)
{
    static const uint32_t positions[ROPE_ROWS] = {9, 10, 0, 1, 39};
    static const uint32_t sequences[ROPE_ROWS] = {0, 0, 1, 1, 2}, rows[] = {0, 2, 4, 5};
    static const uint32_t tables[15] = {0, 3, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 2};
    size_t pool_bytes = ROPE_BLOCKS * kv_layout_block_bytes(layout);
    size_t head_bytes = one->shape.head_dim * sizeof(float);
    struct buffer kv, qkv = fixture_buffer(k, one->qkv, ROPE_ROWS * one->width * sizeof(float));
    assert_int_equal(kernels_alloc(k, pool_bytes, &kv), STATUS_OK);
    struct step_batch batch = {.rows = ROPE_ROWS,
                               .sequences = 3,
                               .tokens = fixture_buffer(k, positions, sizeof positions),
                               .positions = fixture_buffer(k, positions, sizeof positions),
                               .row_sequence = fixture_buffer(k, sequences, sizeof sequences),
                               .sequence_rows = fixture_buffer(k, rows, sizeof rows),
                               .block_tables = fixture_buffer(k, tables, sizeof tables),
                               .table_stride = 5};
    struct head_parameters p = {.norm_eps = 1e-6,
                                .rope = fixture_buffer(k, one->rope, ROPE_CONTEXT * head_bytes)};
    if (one->bias)
        p.bias = fixture_buffer(k, one->bias, one->width * sizeof(float));
    if (one->norms) {
        p.q_norm = fixture_buffer(k, one->norms, head_bytes);
        p.k_norm = fixture_buffer(k, one->norms + one->shape.head_dim, head_bytes);
    }
    assert_int_equal(kernels_rope_append(k, &batch, &one->shape, &p, layout, 0, &qkv, &kv),
                     STATUS_OK);
    float *out = fixture_download(k, &qkv);
    *pool = malloc(pool_bytes);
    assert_non_null(*pool);
    assert_int_equal(kernels_download(k, &kv, 0, *pool, pool_bytes), STATUS_OK);
    struct buffer *all[] = {&kv,
                            &qkv,
                            &batch.tokens,
                            &batch.positions,
                            &batch.row_sequence,
                            &batch.sequence_rows,
                            &batch.block_tables,
                            &p.rope,
                            &p.bias,
                            &p.q_norm,
                            &p.k_norm};
    for (size_t i = 0; i < COUNT(all); i++)
        kernels_free(k, all[i]);
    return out;
}

static void check_rope(uint32_t head_dim, bool biased, bool normed, bool int8)
{
    struct rng rng = rng_seeded(head_dim);
    size_t width = (ROPE_HEADS + 2) * (size_t)head_dim;
    float *bias = fixture_floats(&rng, width, 1.0f);
    float *norms = fixture_floats(&rng, 2 * (size_t)head_dim, 2.0f);
    struct rope_case one = {
        .shape = {ROPE_HEADS, 1, head_dim, 0, 1.0f},
        .width = width,
        .qkv = fixture_floats(&rng, ROPE_ROWS * width, 3.0f),
        .rope = fixture_floats(&rng, (size_t)ROPE_CONTEXT * head_dim, 1.0f),
        .bias = biased ? bias : NULL,
        .norms = normed ? norms : NULL,
    };
    struct kernels *both[] = {emulated_open(false), open_reference()};
    struct kv_layout layout = {.layers = 1,
                               .kv_heads = 1,
                               .head_dim = head_dim,
                               .block_tokens = 8,
                               .layer_end = 1,
                               .head_end = 1};
    float *out[2];
    void *pools[2];
    for (int b = 0; b < 2; b++) {
        layout.type = int8 ? KV_INT8 : kernels_info(both[b]).kv_type;
        out[b] = run_rope(both[b], &one, &layout, &pools[b]);
    }
    size_t bytes = ROPE_BLOCKS * kv_layout_block_bytes(&layout);
    if (!normed)
        fixture_assert_same_bits(out[0], out[1], ROPE_ROWS * width, "rope");
    if (!normed && int8)
        assert_memory_equal(pools[0], pools[1], bytes);
    for (size_t i = 0; !normed && !int8 && i < bytes / sizeof(float); i++)
        assert_int_equal(((uint16_t *)pools[0])[i], naive_round(((float *)pools[1])[i]));
    for (size_t i = 0; i < ROPE_ROWS * width; i++)
        assert_true(fabsf(out[0][i] - out[1][i]) <= 2e-6f * (1 + fabsf(out[1][i])));
    void *all[] = {out[0], out[1], pools[0], pools[1], one.qkv, one.rope, bias, norms};
    for (size_t i = 0; i < COUNT(all); i++)
        free(all[i]);
    emulated_close(both[0]);
    kernels_close(both[1]);
}

static void test_rope_append(void **state)
{
    (void)state;
    static const uint32_t dims[] = {16, 64, 128, 80, 256};
    for (size_t i = 0; i < COUNT(dims); i++)
        for (int how = 0; how < 8; how++)
            if (is_long() || how == 0 || how == 7 || how % 5 == (int)i)
                check_rope(dims[i], how & 1, how & 2, how & 4);
}

/* Bytes go where they shall and nowhere else, whatever the pieces of a move are. */
static void test_gather(void **state)
{
    (void)state;
    enum { BYTES = 400 << 10, MOVES = 7 };
    static const struct kv_move moves[MOVES] = {
        {0, 96 << 10, 16},
        {1600, 32, 48},
        {64 << 10, 200 << 10, 96 << 10},
        {3200, 112 << 10, 32 << 10},
        {(200 << 10) + 16, 160, (32 << 10) + 16},
        {(400 << 10) - 16, (400 << 10) - 16, 16},
        {368 << 10, 64 << 10, 32},
    };
    static uint8_t from[BYTES], to[BYTES], want[BYTES];
    struct rng rng = rng_seeded(5);
    struct kernels *kernels = emulated_open(true);
    for (size_t i = 0; i < BYTES; i++) {
        from[i] = (uint8_t)rng_next(&rng);
        want[i] = 0x5a;
    }
    struct buffer source = fixture_buffer(kernels, from, BYTES);
    struct buffer target = fixture_buffer(kernels, want, BYTES);
    for (size_t i = 0; i < MOVES; i++)
        memcpy(want + moves[i].to, from + moves[i].from, moves[i].bytes);
    kernels_event copied;
    assert_int_equal(kernels_gather(kernels, &source, &target, moves, MOVES), STATUS_OK);
    assert_int_equal(kernels_record(kernels, KERNELS_TRANSFERS, &copied), STATUS_OK);
    assert_int_equal(kernels_wait(kernels, KERNELS_TRANSFERS, copied), STATUS_OK);
    if (emulated_counts)
        assert_int_equal(emulated_of(kernels)->launches, 1); /* one kernel for all of them */
    assert_int_equal(kernels_download(kernels, &target, 0, to, BYTES), STATUS_OK);
    assert_memory_equal(to, want, BYTES);
    static const struct kv_move bad[] = {{8, 0, 16}, {0, 8, 16}, {0, 0, 24}, {BYTES, 0, 16}};
    struct kv_move many[KV_MOVES_AT_ONCE + 1] = {0};
    for (size_t i = 0; i < COUNT(bad); i++)
        assert_int_equal(kernels_gather(kernels, &source, &target, &bad[i], 1), STATUS_INVALID);
    assert_int_equal(kernels_gather(kernels, &source, &target, many, 0), STATUS_INVALID);
    assert_int_equal(kernels_gather(kernels, &source, &target, many, COUNT(many)), STATUS_INVALID);
    kernels_free(kernels, &source);
    kernels_free(kernels, &target);
    emulated_close(kernels);
}

/* A launch takes 16 to 32 blocks, a part of the device, and fewer if there is less to copy. */
static void test_gather_takes_a_part_of_the_device(void **state)
{
    (void)state;
    static const struct {
        uint32_t sms, asked, pieces, blocks;
    } cases[] = {{132, 0, 1000, 32},   {132, 0, 3, 3},     {80, 0, 1000, 20},
                 {16, 0, 1000, 16},    {600, 0, 1000, 32}, {132, 132, 1000, 132},
                 {132, 132, 100, 100}, {132, 8, 1000, 8}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct cuda_target target = {.sms = cases[i].sms, .gather_blocks = cases[i].asked};
        struct buffer none = {0};
        struct cuda_plan plan = {0};
        struct kv_move move = {0, 0, cases[i].pieces * (uint64_t)(32 << 10)};
        assert_int_equal(cuda_plan_gather(&target, &none, &none, &move, 1, &plan), STATUS_OK);
        assert_true(plan.done && plan.count == 1);
        assert_int_equal(plan.launches[0].grid[0], cases[i].blocks);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct attention_case shape = {2, 1, 80, 16, 20, 0, false};
    struct kernels *kernels = emulated_open(true);
    struct cuda_plan plan = {0};
    struct step_batch batch = {.rows = 1, .sequences = 1};
    struct attention_shape heads = {2, 1, shape.head_dim, 0, 1.0f};
    struct kv_layout layout = {.head_dim = shape.head_dim, .block_tokens = 16};
    struct buffer none = {0};
    assert_non_null(cuda_refusal_head_dim(80));
    assert_int_equal(cuda_plan_attention(&emulated_of(kernels)->target, &batch, &heads, &layout, 0,
                                         &none, &none, &none, &plan),
                     STATUS_UNSUPPORTED);
    /* fp8 on a device without its tensor cores, and as an embedding. */
    struct linear fp8 = {.type = WEIGHT_FP8, .n = 64, .k = 64};
    assert_null(cuda_refusal_weights(WEIGHT_FP8, true));
    assert_int_equal(cuda_plan_embed(&emulated_of(kernels)->target, &batch, &fp8, &none, &plan),
                     STATUS_UNSUPPORTED);
    emulated_of(kernels)->target.hopper = false;
    assert_non_null(strstr(cuda_refusal_weights(WEIGHT_FP8, false), "compute capability 9.0"));
    assert_int_equal(
        cuda_plan_linear(&emulated_of(kernels)->target, &fp8, &none, 1, false, &none, &plan),
        STATUS_UNSUPPORTED);
    emulated_close(kernels);
}

/* An argument chooses tests by name, with wildcards. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_packing),
        cmocka_unit_test(test_segments),
        cmocka_unit_test(test_embed),
        cmocka_unit_test(test_norm_and_swiglu),
        cmocka_unit_test(test_rope_append),
        cmocka_unit_test(test_linear_is_right),
        cmocka_unit_test(test_linear_plans_leave_no_trace),
        cmocka_unit_test(test_wide_tiles_and_clusters),
        cmocka_unit_test(test_chosen_plans),
        cmocka_unit_test(test_rows_that_are_not_finite),
        cmocka_unit_test(test_fp8_is_the_reference),
        cmocka_unit_test(test_fp8_terms_are_aligned_as_in_the_model),
        cmocka_unit_test(test_fp8_plans_leave_no_trace),
        cmocka_unit_test(test_fp8_rows_that_are_not_finite),
        cmocka_unit_test(test_gather),
        cmocka_unit_test(test_gather_takes_a_part_of_the_device),
        cmocka_unit_test(test_refusals),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
