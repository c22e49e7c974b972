/* Fused operations give the bits of the plain ones that they stand for, in every backend, and
 * refuse what doesn't fit. */
#include "tests/kernels/layer_fixture.h"

#include <stdlib.h>
#include <string.h>

/* Heads, ffn and hidden that fill no block of k; one and several tiles. */
static const struct layer_case cases[] = {
    {96, 3, 1, 16, 36, {3, 2}, WEIGHT_BF16, false, false, false, 0},
    {64, 2, 2, 64, 72, {9, 4}, WEIGHT_INT8, true, true, false, 0},
    {130, 2, 1, 128, 200, {2, 1}, WEIGHT_BF16, false, true, true, 0},
    {130, 2, 1, 32, 200, {2, 1}, WEIGHT_FP8, false, true, true, 0},
    {130, 2, 1, 32, 200, {2, 1}, WEIGHT_FP8, false, false, true, 0.02f},
    {260, 2, 1, 128, 72, {2, 1}, WEIGHT_FP8_BLOCK, true, false, true, 0},
};
#define CASES (sizeof cases / sizeof *cases)

static void check_case(struct kernels *kernels, const struct layer_case *shape)
{
    struct layer_rig rig = layer_rig_make(kernels, shape);
    struct layer_step step = {.rows = {shape->rows[0], shape->rows[1]}};
    size_t pool_bytes = rig.pool.bytes, width = shape->hidden;
    float *want = layer_run(&rig, &step);
    void *pool = layer_pool(&rig);
    struct layer_rig again = layer_rig_make(kernels, shape);
    step.fused = true;
    float *got = layer_run(&again, &step);
    void *fused_pool = layer_pool(&again);
    fixture_assert_same_bits(got, want, (step.rows[0] + step.rows[1]) * width, "fused");
    assert_memory_equal(fused_pool, pool, pool_bytes);
    free(want);
    free(pool);
    free(got);
    free(fused_pool);
    layer_rig_free(&rig);
    layer_rig_free(&again);
}

static void test_fused_operations_leave_no_trace(void **state)
{
    (void)state;
    size_t count;
    const struct variant *variants = fixture_variants(&count);
    for (size_t v = 0; v < count; v++) {
        struct kernels *kernels = fixture_open(&variants[v], 2);
        for (size_t c = 0; c < CASES; c++) {
            enum weight_type type = cases[c].weights;
            struct error why;
            if (type == WEIGHT_BF16 ||
                kernels_check_model(kernels, type, cases[c].head_dim, &why) == STATUS_OK)
                check_case(kernels, &cases[c]);
        }
        kernels_close(kernels);
    }
}

/* Each field that doesn't fit the others. */
static void test_what_does_not_fit_is_refused(void **state)
{
    (void)state;
    size_t count;
    struct kernels *kernels = fixture_open(fixture_variants(&count), 1);
    struct layer_rig rig = layer_rig_make(kernels, &cases[0]);
    const struct linear *linear = &rig.gate_up;
    uint32_t rows = 3, ffn = cases[0].ffn;
    size_t bytes = kernels_inputs_bytes(kernels, linear->type, rows, linear->k);
    size_t gated_bytes = kernels_inputs_bytes(kernels, linear->type, rows, ffn);
    struct inputs in = {fixture_buffer(kernels, NULL, bytes), linear->type, linear->k, 0};
    struct inputs gated = {fixture_buffer(kernels, NULL, gated_bytes), linear->type, ffn, 0};
    struct buffer out = fixture_buffer(kernels, NULL, rows * linear->n * sizeof(float));
    struct epilogue swiglu = {.kind = EPILOGUE_SWIGLU, .out = out, .gated = gated};
    struct epilogue store = {.kind = EPILOGUE_STORE, .out = out};
    assert_int_equal(kernels_fused_linear(kernels, linear, &in, rows, &swiglu), STATUS_OK);
    assert_int_equal(kernels_fused_linear(kernels, linear, &in, rows, &store), STATUS_OK);

    struct inputs bad[] = {in, in, in, in};
    bad[0].type = WEIGHT_INT8;
    bad[3].input_scale = 1;
    bad[1].k--;
    bad[2].memory.bytes = bytes - 1;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(kernels_fused_linear(kernels, linear, &bad[i], rows, &store),
                         STATUS_INVALID);
    store.out.bytes--;
    assert_int_equal(kernels_fused_linear(kernels, linear, &in, rows, &store), STATUS_INVALID);
    struct epilogue bad_swiglu[] = {swiglu, swiglu};
    bad_swiglu[0].gated.k--;
    bad_swiglu[1].gated.memory.bytes = gated_bytes - 1;
    for (size_t i = 0; i < sizeof bad_swiglu / sizeof *bad_swiglu; i++)
        assert_int_equal(kernels_fused_linear(kernels, linear, &in, rows, &bad_swiglu[i]),
                         STATUS_INVALID);
    struct linear unpaired = *linear;
    unpaired.pair = 0;
    assert_int_equal(kernels_fused_linear(kernels, &unpaired, &in, rows, &swiglu), STATUS_INVALID);
    assert_int_equal(kernels_fused_rmsnorm(kernels, &out, &rig.norms[0], 1e-5, NULL, rows, &bad[2]),
                     STATUS_INVALID);
    struct buffer *all[] = {&in.memory, &gated.memory, &out};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        kernels_free(kernels, all[i]);
    layer_rig_free(&rig);
    kernels_close(kernels);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fused_operations_leave_no_trace),
        cmocka_unit_test(test_what_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
