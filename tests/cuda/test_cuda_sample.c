/* Draws of the CUDA kernels on the emulator: the tokens and errors of kernels_draw_row, for random
 * rows and settings, rows with many equal masses, and rows in which sums decide nearly. */
#include "tests/cuda/emulated.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { VOCAB = 1111, ROWS = 40 };

static void make_row(struct rng *rng, uint32_t kind, float *logits)
{
    for (uint32_t i = 0; i < VOCAB; i++) {
        float uniform = (float)(rng_unit(rng) * 2 - 1);
        switch (kind % 6) {
        case 0: logits[i] = 4 * uniform; break;
        case 1: /* many equals */ logits[i] = rintf(2 * uniform); break;
        case 2: /* all equal, and as many minus infinities */
            logits[i] = i % 2 ? -INFINITY : 1.0f;
            break;
        case 3: /* a peak */ logits[i] = i == 700 ? 30.0f : uniform; break;
        case 4: /* most have no mass */ logits[i] = 300 * uniform; break;
        default: /* zeros of both signs */ logits[i] = i % 3 ? -0.0f : 0.0f; break;
        }
    }
}

static struct kernels_draw make_draw(struct rng *rng, uint32_t row)
{
    static const float top_ps[] = {1, 0.9f, 0.5f, 0.999f, 1e-6f}, min_ps[] = {0, 0.1f, 1};
    static const uint32_t top_ks[] = {0, 1, 7, 500, VOCAB, 5000};
    return (struct kernels_draw){.temperature = row % 7 == 6 ? 0 : 0.3f + (float)rng_unit(rng),
                                 .top_p = top_ps[rng_below(rng, 5)],
                                 .min_p = min_ps[rng_below(rng, 3)],
                                 .top_k = top_ks[rng_below(rng, 6)],
                                 .seed = rng_next(rng),
                                 .choice = row,
                                 .index = 3 * row};
}

static void draw_all(struct kernels *kernels, const float *logits, const struct kernels_draw *draws,
                     struct kernels_drawn *drawn)
{
    struct buffer in = fixture_buffer(kernels, logits, sizeof(float) * ROWS * VOCAB);
    struct buffer settings = fixture_buffer(kernels, draws, sizeof *draws * ROWS);
    struct buffer out = fixture_buffer(kernels, NULL, sizeof *drawn * ROWS), scratch;
    assert_int_equal(kernels_alloc(kernels, kernels_sample_bytes(kernels, VOCAB), &scratch),
                     STATUS_OK);
    assert_int_equal(kernels_sample(kernels, &in, ROWS, VOCAB, &settings, &scratch, &out),
                     STATUS_OK);
    assert_int_equal(kernels_download(kernels, &out, 0, drawn, sizeof *drawn * ROWS), STATUS_OK);
    kernels_free(kernels, &in);
    kernels_free(kernels, &settings);
    kernels_free(kernels, &out);
    kernels_free(kernels, &scratch);
}

static void check_round(struct kernels *kernels, uint64_t seed)
{
    struct rng rng = rng_seeded(seed);
    float *logits = malloc(sizeof(float) * ROWS * VOCAB);
    void *memory = malloc(kernels_draw_bytes(VOCAB));
    struct kernels_draw draws[ROWS];
    struct kernels_drawn drawn[ROWS];
    assert_true(logits && memory);
    for (uint32_t t = 0; t < ROWS; t++) {
        make_row(&rng, t, logits + t * VOCAB);
        draws[t] = make_draw(&rng, t);
    }
    logits[5] = NAN;
    logits[1 * VOCAB + 1110] = INFINITY;
    for (uint32_t i = 0; i < VOCAB; i++)
        logits[2 * VOCAB + i] = -INFINITY;
    draw_all(kernels, logits, draws, drawn);
    for (uint32_t t = 0; t < ROWS; t++) {
        uint32_t want = 0;
        enum status status = kernels_draw_row(logits + t * VOCAB, VOCAB, &draws[t], memory, &want);
        if (drawn[t].status != (uint32_t)status || (status == STATUS_OK && drawn[t].token != want))
            fail_msg("row %u of seed %u: token %u, not %u (temperature %g, top_k %u, top_p %g, "
                     "min_p %g)",
                     t, (unsigned)seed, drawn[t].token, want, (double)draws[t].temperature,
                     draws[t].top_k, (double)draws[t].top_p, (double)draws[t].min_p);
    }
    free(logits);
    free(memory);
}

static void test_draws_are_the_cpus(void **state)
{
    (void)state;
    struct kernels *kernels = emulated_open(false);
    for (uint64_t seed = 1; seed <= (getenv("BATON_LONG") ? 60 : 3); seed++) {
        emulated_of(kernels)->target.draw = seed % 2 ? 0 : seed;
        check_round(kernels, seed);
    }
    emulated_close(kernels);
}

static void test_take_tokens(void **state)
{
    (void)state;
    static const uint32_t from[] = {1, KERNELS_TOKEN_GIVEN, 0, 1}, given[] = {5, 6, 7, 8};
    static const struct kernels_drawn drawn[] = {{70, 0}, {71, 0}};
    struct kernels *kernels = emulated_open(true);
    struct buffer places = fixture_buffer(kernels, from, sizeof from);
    struct buffer results = fixture_buffer(kernels, drawn, sizeof drawn);
    struct buffer tokens = fixture_buffer(kernels, given, sizeof given);
    uint32_t got[4];
    assert_int_equal(kernels_take_tokens(kernels, &places, 4, &results, &tokens), STATUS_OK);
    assert_int_equal(kernels_download(kernels, &tokens, 0, got, sizeof got), STATUS_OK);
    static const uint32_t want[] = {71, 6, 70, 71};
    assert_memory_equal(got, want, sizeof want);
    kernels_free(kernels, &places);
    kernels_free(kernels, &results);
    kernels_free(kernels, &tokens);
    emulated_close(kernels);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_draws_are_the_cpus),
        cmocka_unit_test(test_take_tokens),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
