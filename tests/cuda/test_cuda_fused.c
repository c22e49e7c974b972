/* Fused layers by the CUDA kernels on the emulator: near the reference, and the bits of the plain
 * operations in all plans, numbers of rows and on both paths. */
#include "tests/cuda/emulated.h"
#include "tests/kernels/layer_fixture.h"

#include <stdlib.h>
#include <string.h>

#define COUNT(ARRAY) (sizeof(ARRAY) / sizeof *(ARRAY))
#define TOLERANCE    2e-2

/* hidden, heads, kv heads, head_dim, ffn, rows; weights; int8 pool, bias, norms of heads. All
 * head sizes with and without what needs a whole head in one block; ffn and heads that don't fill
 * their last block of k, by more and less than half; several tiles of rows and tokens; several
 * segments of k. */
static const struct layer_case cases[] = {
    {64, 4, 2, 128, 128, {2, 1}, WEIGHT_BF16, false, false, false, 0},
    {200, 3, 1, 16, 36, {4, 3}, WEIGHT_BF16, false, true, true, 0},
    {96, 2, 1, 64, 72, {9, 8}, WEIGHT_INT8, false, true, false, 0},
    {128, 2, 1, 128, 104, {12, 5}, WEIGHT_INT8, true, false, true, 0},
    {64, 2, 1, 128, 264, {40, 30}, WEIGHT_BF16, false, true, true, 0},
    {72, 3, 3, 32, 33, {1, 1}, WEIGHT_BF16, true, false, true, 0},
    {64, 1, 1, 64, 64, {70, 61}, WEIGHT_BF16, true, true, false, 0},
    {3712, 1, 1, 16, 24, {3, 1}, WEIGHT_BF16, false, false, false, 0},
    {3712, 1, 1, 16, 24, {2, 2}, WEIGHT_INT8, true, true, true, 0},
    {130, 2, 1, 128, 72, {9, 4}, WEIGHT_FP8, false, true, true, 0},
    {260, 3, 1, 16, 136, {5, 3}, WEIGHT_FP8_BLOCK, false, false, false, 0},
    {130, 3, 1, 16, 72, {9, 4}, WEIGHT_FP8, false, true, true, 0.02f},
    {64, 2, 1, 128, 136, {40, 30}, WEIGHT_FP8, false, false, false, 0.01f},
    {64, 2, 1, 64, 40, {3, 2}, WEIGHT_FP8, true, false, true, 0.03f},
    {64, 3, 1, 64, 40, {3, 2}, WEIGHT_FP8, false, false, true, 0.03f},
};

static bool is_long(void)
{
    return getenv("BATON_LONG") != NULL;
}

struct outcome {
    float *x;
    void *pool;
};

static void outcome_free(struct outcome *outcome)
{
    free(outcome->x);
    free(outcome->pool);
}

/* Runs all rows in one step, or sequence 1 later and row by row. */
static struct outcome run(struct kernels *kernels, const struct layer_case *shape, bool fused,
                          bool in_turns)
{
    struct layer_rig rig = layer_rig_make(kernels, shape);
    struct layer_step step = {.rows = {shape->rows[0], in_turns ? 0 : shape->rows[1]},
                              .fused = fused};
    struct outcome out = {.x = layer_run(&rig, &step)};
    size_t row = shape->hidden;
    if (in_turns)
        out.x = realloc(out.x, (shape->rows[0] + shape->rows[1]) * row * sizeof(float));
    assert_non_null(out.x);
    for (uint32_t i = 0; in_turns && i < shape->rows[1]; i++) {
        struct layer_step one = {.first = {0, i}, .rows = {0, 1}, .fused = fused};
        float *x = layer_run(&rig, &one);
        memcpy(out.x + (shape->rows[0] + i) * row, x, row * sizeof(float));
        free(x);
    }
    out.pool = layer_pool(&rig);
    layer_rig_free(&rig);
    return out;
}

static size_t numbers_of(const struct layer_case *shape)
{
    return (size_t)(shape->rows[0] + shape->rows[1]) * shape->hidden;
}

static void check_same(const struct layer_case *shape, const struct outcome *got,
                       const struct outcome *want, size_t pool_bytes, const char *what)
{
    fixture_assert_same_bits(got->x, want->x, numbers_of(shape), what);
    if (memcmp(got->pool, want->pool, pool_bytes) != 0)
        fail_msg("%s: another pool", what);
}

static size_t pool_bytes(struct kernels *kernels, const struct layer_case *shape)
{
    struct layer_rig rig = layer_rig_make(kernels, shape);
    size_t bytes = rig.pool.bytes;
    layer_rig_free(&rig);
    return bytes;
}

static void test_layers_are_right(void **state)
{
    (void)state;
    struct variant f32 = {"f32", true, ISA_AUTO, 0};
    for (size_t c = 0; c < COUNT(cases); c++) {
        bool fp8 = weight_type_is_fp8(cases[c].weights);
        struct kernels *kernels = emulated_open(fp8 || c % 2);
        struct kernels *other = emulated_open(fp8 || c % 2 == 0);
        struct kernels *reference = fixture_open(&f32, 1);
        size_t bytes = pool_bytes(kernels, &cases[c]), count = numbers_of(&cases[c]);
        struct outcome got = run(kernels, &cases[c], true, false);
        struct outcome plain = run(other, &cases[c], false, false);
        struct outcome want = run(reference, &cases[c], true, false);
        check_same(&cases[c], &got, &plain, bytes, "fused");
        double *wide = malloc(count * sizeof *wide);
        assert_non_null(wide);
        for (size_t i = 0; i < count; i++)
            wide[i] = (double)want.x[i];
        fixture_assert_near(got.x, wide, count, TOLERANCE, "fused");
        free(wide);
        outcome_free(&got);
        outcome_free(&plain);
        outcome_free(&want);
        emulated_close(kernels);
        emulated_close(other);
        kernels_close(reference);
    }
}

/* Random plans of both kinds of kernels, little scratch, and rows alone: the same bits. */
static void test_plans_of_layers_leave_no_trace(void **state)
{
    (void)state;
    for (size_t c = 0; c < COUNT(cases); c++) {
        struct kernels *kernels = emulated_open(true);
        struct emulated *emulated = emulated_of(kernels);
        size_t bytes = pool_bytes(kernels, &cases[c]);
        struct outcome want = run(kernels, &cases[c], true, false);
        for (uint64_t draw = 1; draw <= (is_long() ? 40 : 1 + c % 2); draw++) {
            emulated->target.draw = draw + 10 * c;
            emulated->target.scratch.bytes = draw % 2 ? 8u << 20 : CUDA_LEAST_SCRATCH_BYTES;
            bool in_turns = cases[c].rows[1] <= 8 && draw % 2;
            struct outcome got = run(kernels, &cases[c], true, in_turns);
            check_same(&cases[c], &got, &want, bytes, "another plan");
            outcome_free(&got);
        }
        outcome_free(&want);
        emulated_close(kernels);
    }
}

/* Seven kernels a layer. Quantized weights take two more: rows of attention and SwiGLU are
 * quantized once they are whole, unless all share a scale. */
static void test_launches_of_a_layer(void **state)
{
    (void)state;
    if (!emulated_counts)
        skip();
    static const struct {
        struct layer_case shape;
        uint64_t launches;
    } want[] = {{{64, 4, 2, 64, 128, {1, 1}, WEIGHT_BF16, false, false, false, 0}, 7},
                {{64, 4, 2, 128, 128, {1, 1}, WEIGHT_BF16, true, true, true, 0}, 7},
                {{64, 4, 2, 64, 128, {1, 1}, WEIGHT_INT8, true, false, false, 0}, 9},
                {{64, 4, 2, 64, 128, {1, 1}, WEIGHT_FP8, false, false, false, 0}, 9},
                {{64, 4, 2, 64, 128, {1, 1}, WEIGHT_FP8, false, false, false, 0.1f}, 7},
                {{64, 4, 2, 16, 128, {1, 1}, WEIGHT_FP8, false, true, true, 0.1f}, 7}};
    for (size_t i = 0; i < COUNT(want); i++)
        for (int hopper = weight_type_is_fp8(want[i].shape.weights); hopper < 2; hopper++) {
            struct kernels *kernels = emulated_open(hopper);
            struct layer_rig rig = layer_rig_make(kernels, &want[i].shape);
            struct layer_step step = {.rows = {1, 1}, .fused = true};
            uint64_t before = emulated_of(kernels)->launches;
            free(layer_run(&rig, &step));
            assert_int_equal(emulated_of(kernels)->launches - before, want[i].launches);
            layer_rig_free(&rig);
            emulated_close(kernels);
        }
}

/* An argument chooses tests by name, with wildcards. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layers_are_right),
        cmocka_unit_test(test_plans_of_layers_leave_no_trace),
        cmocka_unit_test(test_launches_of_a_layer),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
