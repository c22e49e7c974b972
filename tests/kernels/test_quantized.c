/* Quantized linear layers: every instruction set gives the reference's bits, the reference is
 * right, a row depends on itself alone, and layers that can't be computed are refused. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/isa.h"
#include "tests/kernels/fixture.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const enum weight_type types[] = {WEIGHT_INT8, WEIGHT_INT4};
enum { TYPES = sizeof types / sizeof *types };

/* --- backends: the fixture's, AVX-512 without tiles, and without its dot product --- */

enum { MAX_VARIANTS = 12 };

struct quantized_variant {
    struct variant variant;
    const struct quantized_inner *inner; /* NULL: the backend chooses */
};

static size_t all_variants(struct quantized_variant out[MAX_VARIANTS])
{
    size_t count;
    const struct variant *variants = fixture_variants(&count);
    for (size_t i = 0; i < count; i++)
        out[i] = (struct quantized_variant){.variant = variants[i]};
#if defined(__x86_64__)
    if (isa_reports_avx512()) {
        out[count] = out[count - 1];
        out[count].variant.name = "avx512 without vnni";
        out[count++].inner = &quantized_avx512;
    }
    if (isa_allows_amx()) {
        static struct quantized_inner tiles;
        tiles = quantized_amx;
        tiles.int8_few_rows = tiles.int4_few_rows = 0;
        out[count] = out[count - 1];
        out[count].variant.name = "amx of any number of rows";
        out[count++].inner = &tiles;
    }
    if (isa_reports_avx512vnni()) {
        out[count] = out[count - 1];
        out[count].variant.name = "avx512 without amx";
        out[count++].inner = &quantized_avx512vnni;
    }
#endif
    return count;
}

static struct kernels *open_variant(const struct quantized_variant *one, uint32_t threads)
{
    struct kernels *kernels = fixture_open(&one->variant, threads);
    if (one->inner)
        ((struct cpu *)kernels->state)->quantized = one->inner;
    return kernels;
}

/* --- problems --- */

struct problem {
    enum weight_type type;
    uint32_t rows, n, k;
    uint8_t *weights; /* [n] rows as they are loaded */
    float *scales, *in, *residual;
};

static void *take(size_t count, size_t size)
{
    void *memory = calloc(count, size);
    assert_non_null(memory);
    return memory;
}

/* Kinds of rows of inputs, or of weights: random, or an extreme. */
static void fill_row(struct rng *rng, uint32_t kind, uint32_t k, float *row)
{
    float scale = (float)rng_unit(rng) * 4;
    for (uint32_t i = 0; i < k; i++) {
        float random = (float)(rng_unit(rng) * 2 - 1) * scale;
        switch (kind % 8) {
        case 1: row[i] = 0; break;
        case 2: row[i] = i == k / 2 ? 3e30f : random; break; /* all others become zero */
        case 3: row[i] = i % 2 ? -scale : scale; break;      /* the largest of alternating sign */
        case 4: row[i] = scale; break;                       /* the largest sum */
        case 5: row[i] = -scale; break;                      /* the smallest */
        case 6: row[i] = random * 0x1p-120f; break;          /* counts as zero */
        default: row[i] = random;
        }
    }
}

static void fill_weights(struct rng *rng, struct problem *p)
{
    size_t row_bytes = weight_row_bytes(p->type, p->k);
    uint32_t row_scales = weight_row_scales(p->type, p->k);
    for (uint32_t n = 0; n < p->n; n++) {
        uint8_t *row = p->weights + n * row_bytes;
        for (size_t i = 0; i < row_bytes; i++)
            row[i] = (uint8_t)rng_next(rng);
        if (n % 8 == 5) /* the smallest number everywhere */
            memset(row, p->type == WEIGHT_INT8 ? 0x80 : 0, row_bytes);
        if (n % 8 == 6) /* the largest */
            memset(row, p->type == WEIGHT_INT8 ? 0x7f : 0xff, row_bytes);
        for (uint32_t i = 0; i < row_scales; i++) {
            float scale = (float)(rng_unit(rng) - 0.3) * 0.02f;
            scale = n % 8 == 7 ? 0 : scale;
            p->scales[(size_t)n * row_scales + i] = naive_widen(naive_round(scale));
        }
    }
}

static struct problem make_problem(enum weight_type type, uint32_t rows, uint32_t n, uint32_t k,
                                   uint64_t seed)
{
    struct rng rng = rng_seeded(seed);
    struct problem p = {.type = type, .rows = rows, .n = n, .k = k};
    p.weights = take(n, weight_row_bytes(type, k));
    p.scales = take((size_t)n * weight_row_scales(type, k), sizeof *p.scales);
    p.in = take((size_t)rows * k, sizeof *p.in);
    p.residual = fixture_floats(&rng, (size_t)rows * n, 3);
    fill_weights(&rng, &p);
    for (uint32_t t = 0; t < rows; t++)
        fill_row(&rng, t, k, p.in + (size_t)t * k);
    return p;
}

static void free_problem(struct problem *p)
{
    free(p->weights);
    free(p->scales);
    free(p->in);
    free(p->residual);
}

static double weight_at(const struct problem *p, uint32_t n, uint32_t k)
{
    const uint8_t *row = p->weights + n * weight_row_bytes(p->type, p->k);
    const float *scales = p->scales + (size_t)n * weight_row_scales(p->type, p->k);
    if (p->type == WEIGHT_INT8)
        return (int8_t)row[k] * (double)scales[0];
    return ((row[k / 2] >> (k % 2 * 4) & 15) - 8) * (double)scales[k / WEIGHT_GROUP];
}

static struct linear load(struct kernels *kernels, const struct problem *p)
{
    struct linear linear = {0};
    uint32_t half = p->n / 2, row_scales = weight_row_scales(p->type, p->k);
    size_t row_bytes = weight_row_bytes(p->type, p->k);
    assert_int_equal(kernels_linear_create(kernels, p->type, p->n, p->k, &linear), STATUS_OK);
    assert_int_equal(kernels_linear_load(kernels, &linear, half, p->n - half,
                                         p->weights + half * row_bytes,
                                         p->scales + (size_t)half * row_scales),
                     STATUS_OK);
    assert_int_equal(kernels_linear_load(kernels, &linear, 0, half, p->weights, p->scales),
                     STATUS_OK);
    return linear;
}

/* Rows [first, first + rows) in one call; free(). */
static float *run(struct kernels *kernels, const struct linear *linear, const struct problem *p,
                  uint32_t first, uint32_t rows, bool accumulate)
{
    size_t n = p->n, k = p->k;
    struct buffer in = fixture_buffer(kernels, p->in + first * k, rows * k * sizeof(float));
    struct buffer out = fixture_buffer(kernels, accumulate ? p->residual + first * n : NULL,
                                       rows * n * sizeof(float));
    assert_int_equal(kernels_linear(kernels, linear, &in, rows, accumulate, &out), STATUS_OK);
    float *result = fixture_download(kernels, &out);
    kernels_free(kernels, &in);
    kernels_free(kernels, &out);
    return result;
}

static float *run_once(const struct quantized_variant *variant, const struct problem *p)
{
    struct kernels *kernels = open_variant(variant, 1);
    struct linear linear = load(kernels, p);
    float *result = run(kernels, &linear, p, 0, p->rows, false);
    kernels_linear_destroy(kernels, &linear);
    kernels_close(kernels);
    return result;
}

/* --- tests --- */

/* The backends' results are one, bit by bit. */
static void check_sets(const struct problem *p)
{
    struct quantized_variant variants[MAX_VARIANTS];
    size_t count = all_variants(variants);
    float *want[2] = {NULL, NULL}; /* the reference's results, without and with accumulation */
    for (size_t v = 0; v < count; v++) {
        struct kernels *kernels = open_variant(&variants[v], 1);
        struct linear linear = load(kernels, p);
        for (int accumulate = 0; accumulate < 2; accumulate++) {
            float *got = run(kernels, &linear, p, 0, p->rows, accumulate);
            if (v == 0) {
                want[accumulate] = got;
                continue;
            }
            fixture_assert_same_bits(got, want[accumulate], (size_t)p->rows * p->n,
                                     variants[v].variant.name);
            free(got);
        }
        kernels_linear_destroy(kernels, &linear);
        kernels_close(kernels);
    }
    free(want[0]);
    free(want[1]);
}

static void test_all_sets_give_the_references_bits(void **state)
{
    (void)state;
    static const struct {
        uint32_t rows, n, k;
    } shapes[] = {{1, 1, 1},
                  {8, 33, 7},
                  {9, 31, 8},
                  {13, 64, 128},
                  {12, 40, 129},
                  {24, 97, 130},
                  {65, 70, 1027},
                  {3, 32, 5632},
                  /* outputs past the caches, some of a last panel that is cut */
                  {64, 96, 200},
                  {65, 112, 1100},
                  {100, 64, 1153},
                  {515, 80, 2100}};
    for (size_t t = 0; t < TYPES; t++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
            struct problem p = make_problem(types[t], shapes[s].rows, shapes[s].n, shapes[s].k, s);
            check_sets(&p);
            free_problem(&p);
        }
}

static void test_random_shapes(void **state)
{
    (void)state;
    struct rng rng = rng_seeded(20);
    for (uint64_t i = 0; i < 24; i++) {
        struct problem p =
            make_problem(types[i % TYPES], 1 + (uint32_t)rng_below(&rng, 65),
                         1 + (uint32_t)rng_below(&rng, 100), 1 + (uint32_t)rng_below(&rng, 700), i);
        check_sets(&p);
        free_problem(&p);
    }
}

/* Every number of rows of a tile and of two, a pass of them, and more; K and N that are no whole
 * blocks of 64 and panels. */
static void test_all_heights_of_tiles(void **state)
{
    (void)state;
    static const uint32_t ns[] = {1, 32, 33, 95}, ks[] = {1, 63, 64, 65, 127, 200, 321, 1153};
    for (uint32_t i = 0; i < 43; i++)
        for (size_t t = 0; t < TYPES; t++) {
            uint32_t rows = i < 40 ? i + 1 : (const uint32_t[]){100, 512, 515}[i - 40];
            uint32_t n = ns[i < 40 ? i % 4 : 3], k = ks[i < 40 ? (i / 4 + i) % 8 : 7];
            struct problem p = make_problem(types[t], rows, n, k, rows);
            check_sets(&p);
            free_problem(&p);
        }
}

/* As many panels as a set reads side by side, and some more: of one row four, of two to sixteen
 * (int8) two. */
static void test_panels_side_by_side(void **state)
{
    (void)state;
    static const uint32_t heights[] = {1, 2, 3, 6, 7, 8, 15, 16, 17},
                          ns[] = {64, 65, 128, 129, 319, 320};
    static const uint32_t ks[] = {1, 63, 64, 65, 72, 1153};
    for (uint32_t h = 0; h < sizeof heights / sizeof *heights; h++)
        for (uint32_t i = 0; i < sizeof ns / sizeof *ns; i++)
            for (size_t t = 0; t < TYPES; t++) {
                uint32_t k = ks[(h + i) % (sizeof ks / sizeof *ks)];
                struct problem p = make_problem(types[t], heights[h], ns[i], k, h * 10 + i);
                check_sets(&p);
                free_problem(&p);
            }
}

/* |out - exact| <= half a step of the row's scale for each weight (an input is off by no more,
 * except for the rounding of x / scale), plus an fp32 rounding for each group and the three around
 * them. */
static void check_bound(const struct problem *p, const float *got)
{
    double roundings = (weight_row_scales(p->type, p->k) + 4) * 0x1p-24;
    for (uint32_t t = 0; t < p->rows; t++) {
        const float *row = p->in + (size_t)t * p->k;
        double largest = 0;
        for (uint32_t k = 0; k < p->k; k++)
            largest = fmax(largest, fabs((double)row[k]));
        for (uint32_t n = 0; n < p->n; n++) {
            double exact = 0, magnitude = 0, weights = 0;
            for (uint32_t k = 0; k < p->k; k++) {
                double weight = weight_at(p, n, k);
                exact += row[k] * weight;
                magnitude += fabs(row[k] * weight);
                weights += fabs(weight);
            }
            double step = largest / 127;
            double bound =
                (0.5 + 3e-5) * step * weights + 2 * roundings * (magnitude + step * weights);
            bound = largest < 0x1p-100 ? magnitude : bound; /* the row counts as zero */
            if (!(fabs(got[(size_t)t * p->n + n] - exact) <= bound))
                fail_msg("[%u][%u] is %g, exactly %g, bound %g", t, n,
                         (double)got[(size_t)t * p->n + n], exact, bound);
        }
    }
}

static void test_results_are_within_the_bound(void **state)
{
    (void)state;
    struct quantized_variant variants[MAX_VARIANTS];
    size_t count = all_variants(variants);
    for (size_t t = 0; t < TYPES; t++)
        for (size_t v = 0; v < count; v += count - 1) { /* all between them have the same bits */
            struct problem p = make_problem(types[t], 25, 65, 1100, t);
            float *got = run_once(&variants[v], &p);
            check_bound(&p, got);
            free(got);
            free_problem(&p);
        }
}

static void check_rows(const struct quantized_variant *variant, const struct problem *p, bool add)
{
    static const uint32_t threads[] = {1, 2, 3, 5};
    struct kernels *kernels[4], *one;
    for (size_t i = 0; i < 4; i++)
        kernels[i] = open_variant(variant, threads[i]);
    one = kernels[0];
    struct linear linear = load(one, p);
    float *alone = take((size_t)p->rows * p->n, sizeof *alone);
    for (uint32_t t = 0; t < p->rows; t++) {
        float *row = run(one, &linear, p, t, 1, add);
        memcpy(alone + (size_t)t * p->n, row, p->n * sizeof *row);
        free(row);
    }
    for (uint32_t rows = 1; rows <= p->rows; rows += rows < 66 ? 1 : 120)
        for (size_t i = 0; i < 4;
             i += 1 + (rows + i) % 3) { /* one thread, and some of the others */
            float *together = run(kernels[i], &linear, p, 0, rows, add);
            fixture_assert_same_bits(together, alone, (size_t)rows * p->n, variant->variant.name);
            free(together);
        }
    kernels_linear_destroy(one, &linear);
    free(alone);
    for (size_t i = 0; i < 4; i++)
        kernels_close(kernels[i]);
}

static void test_a_row_depends_on_itself_alone(void **state)
{
    (void)state;
    static const struct {
        uint32_t rows, n, k;
        bool add;
    } shapes[] = {{65, 70, 300, true},
                  {300, 33, 4100, true}, /* several blocks of rows */
                  {17, 673, 1032, true}, /* panels side by side for each of five threads */
                  {17, 3233, 72, true},  /* several of each stream, in shares that begin later */
                  {66, 336, 72, false}}; /* past the caches, but a cut panel */
    struct quantized_variant variants[MAX_VARIANTS];
    size_t count = all_variants(variants);
    for (size_t t = 0; t < TYPES; t++)
        for (size_t v = 0; v < count; v++)
            for (size_t s = 0; s < (v == 0 ? 1 : 5); s++) {
                struct problem p =
                    make_problem(types[t], shapes[s].rows, shapes[s].n, shapes[s].k, s);
                check_rows(&variants[v], &p, shapes[s].add);
                free_problem(&p);
            }
}

/* The longest K, with sums at both ends of int32's range. */
static void test_sums_are_exact_at_the_longest_k(void **state)
{
    (void)state;
    for (size_t t = 0; t < TYPES; t++) {
        struct problem p = make_problem(types[t], 14, 40, WEIGHT_MAX_QUANTIZED_K, t);
        check_sets(&p);
        free_problem(&p);
    }
}

/* A row with a number that isn't finite is NaN, and its neighbours don't know. */
static void test_what_is_not_finite_stays_in_its_row(void **state)
{
    (void)state;
    static const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    struct quantized_variant variants[MAX_VARIANTS];
    size_t count = all_variants(variants);
    for (size_t t = 0; t < TYPES; t++)
        for (size_t v = 0; v < count; v++) {
            struct problem p = make_problem(types[t], 13, 35, 200, 3);
            float *want = run_once(&variants[v], &p);
            for (size_t b = 0; b < 4; b++)
                p.in[(2 * b + 1) * p.k + 55 * b] = bad[b];
            float *got = run_once(&variants[v], &p);
            for (uint32_t row = 0; row < p.rows; row++)
                if (row < 8 && row % 2)
                    for (uint32_t n = 0; n < p.n; n++)
                        assert_true(isnan(got[row * p.n + n]));
                else
                    fixture_assert_same_bits(got + (size_t)row * p.n, want + (size_t)row * p.n, p.n,
                                             variants[v].variant.name);
            free(want);
            free(got);
            free_problem(&p);
        }
}

static void test_the_largest_scales(void **state)
{
    (void)state;
    for (size_t t = 0; t < TYPES; t++) {
        struct problem p = make_problem(types[t], 30, 40, t ? 300 : 700, 4); /* three tiles */
        for (uint32_t i = 0; i < p.k; i++)
            p.in[2 * p.k + i] = p.in[i]; /* instead of a number with which products overflow */
        for (uint32_t i = 0; i < p.n * weight_row_scales(p.type, p.k); i++)
            p.scales[i] = i % 3 ? WEIGHT_MAX_QUANTIZED : -WEIGHT_MAX_QUANTIZED;
        check_sets(&p);
        free_problem(&p);
    }
}

static void test_no_rows_are_nothing_to_do(void **state)
{
    (void)state;
    struct quantized_variant variants[MAX_VARIANTS];
    size_t count = all_variants(variants);
    struct problem p = make_problem(WEIGHT_INT8, 1, 70, 300, 1);
    for (size_t v = 0; v < count; v++) {
        struct kernels *kernels = open_variant(&variants[v], 1);
        struct linear linear = load(kernels, &p);
        struct buffer in = fixture_buffer(kernels, p.in, (size_t)p.k * sizeof(float));
        struct buffer out = fixture_buffer(kernels, NULL, (size_t)p.n * sizeof(float));
        assert_int_equal(kernels_linear(kernels, &linear, &in, 0, false, &out), STATUS_OK);
        kernels_free(kernels, &in);
        kernels_free(kernels, &out);
        kernels_linear_destroy(kernels, &linear);
        kernels_close(kernels);
    }
    free_problem(&p);
}

static void test_no_tiles_stay_configured(void **state)
{
    (void)state;
    if (!isa_allows_amx())
        skip();
    static const struct variant variant = {.name = "avx512", .isa = ISA_AVX512};
    for (size_t t = 0; t < TYPES; t++) {
        struct problem p = make_problem(types[t], 40, 70, 300, t);
        free(run_once(&(struct quantized_variant){.variant = variant}, &p));
        fixture_assert_no_tiles();
        free_problem(&p);
    }
}

static void check_embedding(const struct quantized_variant *variant, const struct problem *p)
{
    static const uint32_t tokens[] = {32, 0, 7, 31, 32, 1}, ends[] = {0, 6};
    enum { ROWS = 6 };
    struct kernels *kernels = open_variant(variant, 1);
    struct linear embedding = load(kernels, p);
    struct buffer ids = fixture_buffer(kernels, tokens, sizeof tokens);
    struct step_batch batch = {.rows = ROWS,
                               .sequences = 1,
                               .tokens = ids,
                               .positions = ids,
                               .row_sequence = ids,
                               .sequence_rows = fixture_buffer(kernels, ends, sizeof ends),
                               .block_tables = ids,
                               .table_stride = 1};
    struct buffer x = fixture_buffer(kernels, NULL, (size_t)ROWS * p->k * sizeof(float));
    assert_int_equal(kernels_embed(kernels, &batch, &embedding, &x), STATUS_OK);
    float *got = fixture_download(kernels, &x);
    for (uint32_t t = 0; t < ROWS; t++)
        for (uint32_t k = 0; k < p->k; k++)
            assert_true(got[t * p->k + k] == (float)weight_at(p, tokens[t], k));
    free(got);
    kernels_free(kernels, &x);
    kernels_free(kernels, &ids);
    kernels_free(kernels, &batch.sequence_rows);
    kernels_linear_destroy(kernels, &embedding);
    kernels_close(kernels);
}

static void test_embedding_rows_are_widened(void **state)
{
    (void)state;
    struct quantized_variant variants[MAX_VARIANTS];
    size_t count = all_variants(variants);
    for (size_t t = 0; t < TYPES; t++)
        for (size_t v = 0; v < count; v++) {
            struct problem p = make_problem(types[t], 1, 33, 389, 4);
            check_embedding(&variants[v], &p);
            free_problem(&p);
        }
}

static void test_what_cannot_be_computed_is_refused(void **state)
{
    (void)state;
    size_t count;
    const struct variant *variants = fixture_variants(&count);
    for (size_t v = 0; v < 2; v++) {
        struct kernels *kernels = fixture_open(&variants[v], 1);
        enum weight_type other =
            kernels_info(kernels).weight_type == WEIGHT_F32 ? WEIGHT_BF16 : WEIGHT_F32;
        struct linear linear = {0};
        assert_int_equal(kernels_linear_create(kernels, other, 4, 8, &linear), STATUS_UNSUPPORTED);
        for (size_t t = 0; t < TYPES; t++) {
            uint8_t rows[3 * 8] = {0};
            float scales[3] = {0};
            assert_int_equal(
                kernels_linear_create(kernels, types[t], 1, WEIGHT_MAX_QUANTIZED_K + 1, &linear),
                STATUS_UNSUPPORTED);
            assert_int_equal(kernels_linear_create(kernels, types[t], 2, 8, &linear), STATUS_OK);
            assert_int_equal(kernels_linear_load(kernels, &linear, 0, 2, rows, NULL),
                             STATUS_INVALID);
            assert_int_equal(kernels_linear_load(kernels, &linear, 0, 3, rows, scales),
                             STATUS_INVALID);
            kernels_linear_destroy(kernels, &linear);
        }
        kernels_close(kernels);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_sets_give_the_references_bits),
        cmocka_unit_test(test_random_shapes),
        cmocka_unit_test(test_all_heights_of_tiles),
        cmocka_unit_test(test_panels_side_by_side),
        cmocka_unit_test(test_results_are_within_the_bound),
        cmocka_unit_test(test_a_row_depends_on_itself_alone),
        cmocka_unit_test(test_sums_are_exact_at_the_longest_k),
        cmocka_unit_test(test_what_is_not_finite_stays_in_its_row),
        cmocka_unit_test(test_the_largest_scales),
        cmocka_unit_test(test_no_rows_are_nothing_to_do),
        cmocka_unit_test(test_no_tiles_stay_configured),
        cmocka_unit_test(test_embedding_rows_are_widened),
        cmocka_unit_test(test_what_cannot_be_computed_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
