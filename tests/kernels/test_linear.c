/* Linear layers of every backend: against double arithmetic, and the same bits for any number of
 * rows and threads. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/isa.h"
#include "kernels/reference/inner/rows.h"
#include "tests/kernels/fixture.h"

#include <stdlib.h>
#include <string.h>

struct linear_case {
    uint32_t rows, n, k;
};

/* Odd sizes, panels that are cut, several K segments. */
static const struct linear_case cases[] = {
    {1, 1, 1},     {1, 33, 65},   {3, 32, 64},    {2, 31, 2},      {5, 7, 3},
    {7, 96, 129},  {13, 40, 300}, {12, 64, 2048}, {25, 65, 2049},  {3, 33, 4096},
    {2, 35, 5001}, {97, 32, 64},  {193, 70, 100}, {200, 33, 2500},
};

struct problem {
    struct linear_case shape;
    uint16_t *weights;
    float *in, *residual;
};

static struct problem make_problem(const struct linear_case *shape, uint64_t seed)
{
    struct rng rng = rng_seeded(seed);
    return (struct problem){.shape = *shape,
                            .weights = fixture_bf16(&rng, (size_t)shape->n * shape->k, 0.5f),
                            .in = fixture_floats(&rng, (size_t)shape->rows * shape->k, 2.0f),
                            .residual = fixture_floats(&rng, (size_t)shape->rows * shape->n, 3.0f)};
}

static void free_problem(struct problem *problem)
{
    free(problem->weights);
    free(problem->in);
    free(problem->residual);
}

/* Rows [first, first + rows) of the problem in one call; free(). */
static float *run(struct kernels *kernels, const struct linear *linear,
                  const struct problem *problem, uint32_t first, uint32_t rows, bool accumulate)
{
    size_t n = problem->shape.n, k = problem->shape.k;
    struct buffer in = fixture_buffer(kernels, problem->in + first * k, rows * k * sizeof(float));
    struct buffer out = fixture_buffer(kernels, accumulate ? problem->residual + first * n : NULL,
                                       rows * n * sizeof(float));
    assert_int_equal(kernels_linear(kernels, linear, &in, rows, accumulate, &out), STATUS_OK);
    float *result = fixture_download(kernels, &out);
    kernels_free(kernels, &in);
    kernels_free(kernels, &out);
    return result;
}

static double *in_double(const struct problem *problem, bool accumulate)
{
    size_t n = problem->shape.n, k = problem->shape.k;
    double *out = malloc(problem->shape.rows * n * sizeof *out);
    assert_non_null(out);
    for (size_t i = 0; i < problem->shape.rows * n; i++)
        out[i] = accumulate ? problem->residual[i] : 0;
    naive_linear(problem->weights, problem->in, problem->shape.rows, n, k, out);
    return out;
}

static void test_linear_is_right(void **state)
{
    (void)state;
    size_t variant_count;
    const struct variant *variants = fixture_variants(&variant_count);
    for (size_t v = 0; v < variant_count; v++) {
        struct kernels *kernels = fixture_open(&variants[v], 1);
        for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
            struct problem problem = make_problem(&cases[c], c);
            struct linear linear = fixture_linear(kernels, problem.weights, cases[c].n, cases[c].k);
            for (int accumulate = 0; accumulate < 2; accumulate++) {
                double *want = in_double(&problem, accumulate);
                float *got = run(kernels, &linear, &problem, 0, cases[c].rows, accumulate);
                fixture_assert_near(got, want, (size_t)cases[c].rows * cases[c].n,
                                    variants[v].tolerance, variants[v].name);
                free(want);
                free(got);
            }
            kernels_linear_destroy(kernels, &linear);
            free_problem(&problem);
        }
        kernels_close(kernels);
    }
}

static void check_rows(const struct variant *variant, const struct linear_case *shape)
{
    static const uint32_t threads[] = {1, 2, 3, 5};
    struct kernels *kernels[4], *one;
    for (size_t i = 0; i < 4; i++)
        kernels[i] = fixture_open(variant, threads[i]);
    one = kernels[0];
    struct problem problem = make_problem(shape, shape->k);
    struct linear linear = fixture_linear(one, problem.weights, shape->n, shape->k);
    float *alone = malloc((size_t)shape->rows * shape->n * sizeof *alone);
    assert_non_null(alone);
    for (uint32_t t = 0; t < shape->rows; t++) {
        float *row = run(one, &linear, &problem, t, 1, true);
        memcpy(alone + (size_t)t * shape->n, row, shape->n * sizeof *row);
        free(row);
    }
    for (uint32_t rows = 1; rows <= shape->rows; rows += rows < 40 ? 1 : 105)
        for (size_t i = 0; i < 4;
             i += 1 + (rows + i) % 3) { /* one thread, and some of the others */
            float *together = run(kernels[i], &linear, &problem, 0, rows, true);
            fixture_assert_same_bits(together, alone, (size_t)rows * shape->n, variant->name);
            free(together);
        }
    kernels_linear_destroy(one, &linear);
    free(alone);
    free_problem(&problem);
    for (size_t i = 0; i < 4; i++)
        kernels_close(kernels[i]);
}

static void test_a_row_depends_on_itself_alone(void **state)
{
    (void)state;
    static const struct linear_case shapes[] = {
        {40, 33, 65}, {40, 160, 2049}, {14, 70, 5000}, {250, 64, 1100}};
    size_t variant_count;
    const struct variant *variants = fixture_variants(&variant_count);
    for (size_t v = 0; v < variant_count; v++)
        for (size_t c = 0; c < sizeof shapes / sizeof *shapes; c++)
            check_rows(&variants[v], &shapes[c]);
}

static void test_wrong_shapes_are_refused(void **state)
{
    (void)state;
    size_t variant_count;
    const struct variant *variants = fixture_variants(&variant_count);
    struct kernels *kernels = fixture_open(variants, 1);
    struct linear linear = {0};
    assert_int_equal(kernels_linear_create(kernels, WEIGHT_F32, 0, 4, &linear), STATUS_INVALID);
    assert_int_equal(kernels_linear_create(kernels, WEIGHT_F32, 4, 0, &linear), STATUS_INVALID);
    assert_int_equal(kernels_linear_create(kernels, WEIGHT_F32, 4, 8, &linear), STATUS_OK);
    uint16_t weights[8 * 5] = {0};
    assert_int_equal(kernels_linear_load(kernels, &linear, 0, 5, weights, NULL), STATUS_INVALID);
    assert_int_equal(kernels_linear_load(kernels, &linear, 4, 1, weights, NULL), STATUS_INVALID);
    assert_int_equal(kernels_linear_load(kernels, &linear, UINT32_MAX, 2, weights, NULL),
                     STATUS_INVALID);
    struct buffer in = fixture_buffer(kernels, NULL, 2 * 8 * sizeof(float));
    struct buffer out = fixture_buffer(kernels, NULL, 2 * 4 * sizeof(float));
    assert_int_equal(kernels_linear(kernels, &linear, &in, 3, false, &out), STATUS_INVALID);
    assert_int_equal(kernels_linear(kernels, &linear, &in, UINT32_MAX, false, &out),
                     STATUS_INVALID);
    assert_int_equal(kernels_linear(kernels, &linear, &in, 0, false, &out), STATUS_OK);
    float byte = 0;
    assert_int_equal(kernels_download(kernels, &out, out.bytes - 3, &byte, 4), STATUS_INVALID);
    assert_int_equal(kernels_upload(kernels, KERNELS_STEPS, &out, SIZE_MAX, &byte, 4),
                     STATUS_INVALID);
    kernels_free(kernels, &in);
    kernels_free(kernels, &out);
    kernels_linear_destroy(kernels, &linear);
    kernels_close(kernels);
}

static void test_the_panels_that_a_thread_takes_at_a_time(void **state)
{
    (void)state;
    static const struct {
        uint32_t threads, panels;
        uint64_t panel_work;
        uint32_t grain;
    } rows[] = {
        {4, 100, 0, 1},          /* nothing to do */
        {1, 31, 1u << 20, 1},    /* fewer panels than shares */
        {1, 64, 1u << 20, 2},    /* even shares */
        {1, 1000, 1u << 20, 9},  /* a share of 8 Mi multiply-adds, and no more */
        {4, 1000, 1u << 20, 7},  /* more threads: even shares */
        {2, 1000, 1024, 65},     /* short panels: no share below the least work */
        {2, 100000, 1024, 1562}, /* even */
        {1, 1000000, 1024, 8193}, {8, 64, 65536, 2},               /* more than the least work */
        {1, 1000, 1u << 24, 1},   {1, 1000, (uint64_t)1 << 40, 1}, /* long panels: one by one */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(linear_grain(rows[i].threads, rows[i].panels, rows[i].panel_work, 65536),
                         rows[i].grain);
}

/* Every panel is in one unit, streams go on inside a region, and no thread has more panels than an
 * even share plus one. */
static void check_units(uint32_t threads, uint32_t streams, uint32_t n)
{
    uint8_t seen[4800] = {0};
    uint32_t whole = n / PANEL, panels = (n + PANEL - 1) / PANEL, most = 0, cut = panels - whole;
    struct panel_units units = linear_units(threads, n, streams);
    struct panel_unit before = {0};
    assert_int_equal(units.streams, streams && whole / threads >= streams ? streams : 1);
    for (uint32_t t = 0; t < threads; t++) {
        uint32_t own = 0, first = units.count * t / threads;
        for (uint32_t i = first; i < units.count * (t + 1) / threads; i++) {
            struct panel_unit unit = panel_unit_at(&units, i);
            if (unit.apart && i > first && !cut)
                assert_true(before.apart == unit.apart && before.first + 1 == unit.first);
            for (uint32_t j = 0; j < (unit.apart ? units.streams : 1); j++, own++) {
                assert_in_range(unit.first + j * unit.apart, 0, panels - 1);
                assert_int_equal(seen[unit.first + j * unit.apart]++, 0);
            }
            before = unit;
        }
        most = own > most ? own : most;
    }
    for (uint32_t p = 0; p < panels; p++)
        assert_int_equal(seen[p], 1);
    assert_in_range(most, 0, panels / threads + 1 + cut * (units.streams + 1));
}

static void test_panels_side_by_side_are_dealt_out_evenly(void **state)
{
    (void)state;
    static const uint32_t panels[] = {0, 1, 7, 28, 64, 112, 128, 160, 176, 352, 448, 1000, 4748};
    for (size_t p = 0; p < sizeof panels / sizeof *panels; p++)
        for (uint32_t threads = 1; threads <= 64; threads++)
            for (uint32_t s = 0; s < 4; s++) {
                uint32_t streams = (const uint32_t[]){0, 1, 2, 4}[s];
                if (panels[p])
                    check_units(threads, streams, panels[p] * PANEL);
                check_units(threads, streams, panels[p] * PANEL + 1);
            }
    struct panel_units of_two = linear_units(2, 64 * PANEL, 4);
    assert_int_equal(of_two.count, 16);
    assert_int_equal(panel_unit_at(&of_two, 9).first, 33); /* the second of the second region */
    assert_int_equal(panel_unit_at(&of_two, 9).apart, 8);
}

#if defined(__x86_64__)
/* fp32 is the measure of the other sets: vectors of another width may not change a bit of it. */
static void test_the_reference_has_the_same_bits_with_avx2(void **state)
{
    (void)state;
    if (!isa_reports_avx2())
        return;
    enum { K = 301, MOST_ROWS = 11, STRIDE = REFERENCE_PANEL + 3, FFN = 77 };
    const struct reference_loops *loops[] = {&reference_loops_baseline, &reference_loops_avx2};
    struct rng rng = rng_seeded(9);
    float *weights = fixture_floats(&rng, K * REFERENCE_PANEL, 1);
    float *in = fixture_floats(&rng, MOST_ROWS * K, 1);
    float *before = fixture_floats(&rng, MOST_ROWS * STRIDE, 1);
    float *gates = fixture_floats(&rng, 2 * FFN, 90);
    for (uint32_t rows = 1; rows <= MOST_ROWS; rows++)
        for (uint32_t outputs = 1; outputs <= REFERENCE_PANEL; outputs += 5)
            for (int accumulate = 0; accumulate <= 1; accumulate++) {
                struct reference_panel panel = {weights, K, STRIDE, outputs, accumulate};
                float out[2][MOST_ROWS * STRIDE];
                for (size_t i = 0; i < 2; i++) {
                    memcpy(out[i], before, sizeof out[i]);
                    loops[i]->panel_multiply(&panel, in, rows, out[i]);
                }
                fixture_assert_same_bits(out[1], out[0], MOST_ROWS * STRIDE, "rows");
            }
    float active[2][FFN];
    for (size_t i = 0; i < 2; i++)
        loops[i]->swiglu(gates, FFN, active[i]);
    fixture_assert_same_bits(active[1], active[0], FFN, "swiglu");
    free(weights);
    free(in);
    free(before);
    free(gates);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_linear_is_right),
        cmocka_unit_test(test_a_row_depends_on_itself_alone),
        cmocka_unit_test(test_wrong_shapes_are_refused),
        cmocka_unit_test(test_the_panels_that_a_thread_takes_at_a_time),
        cmocka_unit_test(test_panels_side_by_side_are_dealt_out_evenly),
#if defined(__x86_64__)
        cmocka_unit_test(test_the_reference_has_the_same_bits_with_avx2),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
