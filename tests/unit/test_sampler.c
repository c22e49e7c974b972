/* model/sampler: against a plain oracle, its limits, its frequencies, and draws that must never
 * change. */
#include "common/base/rng.h"
#include "common/engine/model/logits.h"
#include "common/engine/model/sampler.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define VOCAB 500

static const struct sampler_ban NO_BAN;

static struct sampler sampler_of(uint32_t vocab)
{
    struct sampler sampler;
    assert_int_equal(sampler_init(&sampler, vocab), STATUS_OK);
    return sampler;
}

static enum status draw_without(struct sampler *sampler, const float *logits,
                                const struct sampling *sampling, uint32_t index,
                                const struct sampler_ban *ban, uint32_t *token)
{
    struct sampler_row row = {.logits = logits, .index = index, .ban = *ban};
    return sampler_draw(sampler, &row, sampling, token);
}

static uint32_t drawn(struct sampler *sampler, const float *logits, const struct sampling *sampling,
                      uint32_t index)
{
    uint32_t token = UINT32_MAX;
    assert_int_equal(draw_without(sampler, logits, sampling, index, &NO_BAN, &token), STATUS_OK);
    return token;
}

/* --- the oracle: libm, fp64, sorting everything --- */

struct ranked {
    double p;
    uint32_t id;
};

static int by_rank(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->p != y->p)
        return x->p > y->p ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

static uint32_t oracle(const float *logits, const struct sampling *s, uint32_t index)
{
    struct ranked ranked[VOCAB];
    double max = -INFINITY, total = 0, prefix = 0;
    for (uint32_t i = 0; i < VOCAB; i++)
        max = fmax(max, (double)logits[i]);
    for (uint32_t i = 0; i < VOCAB; i++)
        ranked[i] = (struct ranked){exp(((double)logits[i] - max) / (double)s->temperature), i};
    qsort(ranked, VOCAB, sizeof *ranked, by_rank);
    uint32_t kept = s->top_k && s->top_k < VOCAB ? s->top_k : VOCAB;
    for (uint32_t i = 0; i < kept; i++)
        total += ranked[i].p;
    uint32_t top = 0;
    while (top < kept && prefix < (double)s->top_p * total)
        prefix += ranked[top++].p;
    kept = s->top_p < 1 ? top : kept;
    while (kept > 1 && ranked[kept - 1].p < (double)s->min_p)
        kept--;
    double p_by_id[VOCAB] = {0}, passed = 0;
    total = 0;
    for (uint32_t i = 0; i < kept; i++) {
        p_by_id[ranked[i].id] = ranked[i].p;
        total += ranked[i].p;
    }
    for (uint32_t i = 0; i < VOCAB; i++) {
        passed += p_by_id[i];
        if (passed > rng_unit_at(s->seed, s->choice, index) * total)
            return i;
    }
    return UINT32_MAX;
}

static void test_against_the_oracle(void **state)
{
    (void)state;
    static const struct {
        float temperature, top_p, min_p;
        uint32_t top_k;
    } cases[] = {{1, 1, 0, 0},
                 {0.7f, 1, 0, 0},
                 {2, 1, 0, 40},
                 {1, 0.9f, 0, 0},
                 {1, 0.5f, 0, 20},
                 {1, 1, 0.05f, 0},
                 {1.3f, 0.95f, 0.02f, 50},
                 {5, 0.999f, 0, 0},
                 {1, 1, 0, VOCAB},
                 {1, 0.9f, 0, 2 * VOCAB},
                 {0.3f, 0.1f, 0, 0},
                 {100, 0.5f, 0.9f, 0}};
    struct sampler sampler = sampler_of(VOCAB);
    struct rng rng = rng_seeded(3);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        for (uint32_t trial = 0; trial < 200; trial++) {
            float logits[VOCAB];
            for (int i = 0; i < VOCAB; i++)
                logits[i] = (float)(rng_unit(&rng) * 16 - 8);
            struct sampling sampling = sampling_default();
            sampling.temperature = cases[c].temperature;
            sampling.top_p = cases[c].top_p;
            sampling.min_p = cases[c].min_p;
            sampling.top_k = cases[c].top_k;
            sampling.seed = trial;
            sampling.choice = trial % 3;
            assert_int_equal(drawn(&sampler, logits, &sampling, trial),
                             oracle(logits, &sampling, trial));
        }
    }
    sampler_deinit(&sampler);
}

static void test_greedy_takes_the_lower_of_equals(void **state)
{
    (void)state;
    const float logits[] = {-1, 4, 2, 4, -INFINITY};
    const uint32_t first[] = {1}, both[] = {1, 3, 99}, rest[] = {0, 2, 4};
    struct sampler sampler = sampler_of(5);
    struct sampling sampling = sampling_default();
    struct sampler_ban ban = {.ids = {first, NULL}, .counts = {1, 0}};
    uint32_t token;
    sampling.temperature = 0;
    assert_int_equal(drawn(&sampler, logits, &sampling, 0), 1);
    assert_int_equal(draw_without(&sampler, logits, &sampling, 0, &ban, &token), STATUS_OK);
    assert_int_equal(token, 3);
    ban = (struct sampler_ban){.ids = {first, both},
                               .counts = {1, 3}}; /* 99 is no token: passed over */
    assert_int_equal(draw_without(&sampler, logits, &sampling, 0, &ban, &token), STATUS_OK);
    assert_int_equal(token, 2);
    ban = (struct sampler_ban){.ids = {both, rest}, .counts = {3, 3}};
    token = 77;
    assert_int_equal(draw_without(&sampler, logits, &sampling, 0, &ban, &token), STATUS_INVALID);
    assert_int_equal(token, 77);
    sampler_deinit(&sampler);
}

static void test_banned_ids_are_never_drawn(void **state)
{
    (void)state;
    const float logits[] = {9, 1, 1, 9};
    const uint32_t banned[] = {0, 3};
    struct sampler sampler = sampler_of(4);
    struct sampling sampling = sampling_default();
    const struct sampler_ban ban = {.ids = {banned, NULL}, .counts = {2, 0}};
    for (uint32_t index = 0; index < 200; index++) {
        uint32_t token;
        assert_int_equal(draw_without(&sampler, logits, &sampling, index, &ban, &token), STATUS_OK);
        assert_true(token == 1 || token == 2);
    }
    sampler_deinit(&sampler);
}

/* Draws as if the others were banned, in the order of ids. */
static void test_only_what_is_allowed_is_drawn(void **state)
{
    (void)state;
    struct sampler sampler = sampler_of(VOCAB);
    struct rng rng = rng_seeded(21);
    float logits[VOCAB];
    uint32_t allowed[VOCAB / 32 + 1], others[VOCAB];
    for (int round = 0; round < 200; round++) {
        struct sampling sampling = sampling_default();
        sampling.seed = (uint64_t)round;
        sampling.temperature = round % 3 ? 1.5f : 0;
        sampling.top_k = round % 4 ? 0 : 5;
        sampling.top_p = round % 5 ? 1 : 0.7f;
        struct sampler_ban ban = {.ids = {others}};
        memset(allowed, 0, sizeof allowed);
        for (uint32_t id = 0; id < VOCAB; id++) {
            logits[id] = (float)(4 * rng_unit(&rng));
            if (rng_below(&rng, 20) == 0 || id == (uint32_t)round)
                allowed[id / 32] |= 1u << id % 32;
            else
                others[ban.counts[0]++] = id;
        }
        uint32_t one, other;
        struct sampler_row row = {.logits = logits, .allowed = allowed};
        assert_int_equal(sampler_draw(&sampler, &row, &sampling, &one), STATUS_OK);
        assert_int_equal(draw_without(&sampler, logits, &sampling, 0, &ban, &other), STATUS_OK);
        assert_int_equal(one, other);
        assert_true(allowed[one / 32] >> one % 32 & 1);
    }
    memset(allowed, 0, sizeof allowed);
    uint32_t none;
    struct sampling sampling = sampling_default();
    struct sampler_row row = {.logits = logits, .allowed = allowed};
    assert_int_equal(sampler_draw(&sampler, &row, &sampling, &none), STATUS_INVALID);
    sampler_deinit(&sampler);
}

enum { LONG = 2600 }; /* longer than two parts of the second look */

/* Rows of any length, as they are and by way of an edit that changes nothing: the first of the
 * greatest, wherever it is, and none if any is unsound, wherever. */
static void test_greedy_of_any_length(void **state)
{
    (void)state;
    static const uint32_t beyond[] = {LONG};
    const struct sampler_ban bans[] = {{.counts = {0}}, {.ids = {beyond}, .counts = {1}}};
    static const float bad[] = {NAN, INFINITY};
    struct rng rng = rng_seeded(33);
    float logits[LONG];
    struct sampling sampling = sampling_default();
    sampling.temperature = 0;
    for (uint32_t round = 0; round < 400; round++) {
        uint32_t vocab = 1 + (round < 40 ? round : rng_below(&rng, LONG));
        struct sampler sampler = sampler_of(vocab);
        for (uint32_t i = 0; i < vocab; i++)
            logits[i] = round % 3 ? (float)(rng_unit(&rng) - 2) : -INFINITY;
        uint32_t one = rng_below(&rng, vocab), other = rng_below(&rng, vocab), token;
        logits[one] = logits[other] = -0.5f;
        for (int edited = 0; edited < 2; edited++) {
            assert_int_equal(draw_without(&sampler, logits, &sampling, 0, &bans[edited], &token),
                             STATUS_OK);
            assert_int_equal(token, one < other ? one : other);
        }
        logits[rng_below(&rng, vocab)] = bad[round % 2];
        for (int edited = 0; edited < 2; edited++)
            assert_int_equal(draw_without(&sampler, logits, &sampling, 0, &bans[edited], &token),
                             STATUS_INTERNAL);
        sampler_deinit(&sampler);
    }
}

/* Whether it is edited, or not. */
static void test_a_row_of_nothing_is_refused(void **state)
{
    (void)state;
    const float logits[] = {-INFINITY, -INFINITY, -INFINITY};
    static const uint32_t first[] = {0};
    const struct sampler_ban bans[] = {{.counts = {0}}, {.ids = {first}, .counts = {1}}};
    struct sampler sampler = sampler_of(3);
    for (int i = 0; i < 4; i++) {
        struct sampling sampling = sampling_default();
        uint32_t token = 77;
        sampling.temperature = (float)(i / 2);
        assert_int_equal(draw_without(&sampler, logits, &sampling, 0, &bans[i % 2], &token),
                         STATUS_INVALID);
        assert_int_equal(token, 77);
    }
    sampler_deinit(&sampler);
}

static void test_unsound_logits_are_refused(void **state)
{
    (void)state;
    static const float bad[] = {NAN, -NAN, INFINITY};
    struct sampler sampler = sampler_of(4);
    for (size_t b = 0; b < sizeof bad / sizeof *bad; b++)
        for (int temperature = 0; temperature < 2; temperature++) {
            float logits[] = {1, 2, 3, 4};
            struct sampling sampling = sampling_default();
            uint32_t token = 77;
            sampling.temperature = (float)temperature;
            logits[b] = bad[b];
            assert_int_equal(draw_without(&sampler, logits, &sampling, 0, &NO_BAN, &token),
                             STATUS_INTERNAL);
            assert_int_equal(token, 77);
        }
    sampler_deinit(&sampler);
}

static void test_filters_keep_exactly_these(void **state)
{
    (void)state;
    /* p = 0.4, 0.2, 0.2, 0.1, 0.1 */
    const float logits[] = {logf(0.4f), logf(0.2f), logf(0.2f), logf(0.1f), logf(0.1f)};
    static const struct {
        uint32_t top_k;
        float top_p, min_p;
        const char *kept; /* '1' where the id can be drawn */
    } cases[] = {
        /* id 1 wins among equals */
        {0, 1, 0, "11111"},     {1, 1, 0, "10000"},        {2, 1, 0, "11000"},
        {4, 1, 0, "11110"},     {0, 0.39f, 0, "10000"},    {0, 0.41f, 0, "11000"},
        {0, 0.61f, 0, "11100"}, {0, 0.81f, 0, "11110"},    {0, 1, 0.49f, "11100"},
        {0, 1, 0.51f, "10000"}, {0, 1, 0.24f, "11111"},    {2, 0.6f, 0, "10000"}, /* 0.4 / 0.6 */
        {2, 0.7f, 0, "11000"},  {3, 0.95f, 0.6f, "10000"}, {0, 1, -0.0f, "11111"},
    };
    struct sampler sampler = sampler_of(5);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        char seen[] = "00000";
        struct sampling sampling = sampling_default();
        sampling.top_k = cases[c].top_k;
        sampling.top_p = cases[c].top_p;
        sampling.min_p = cases[c].min_p;
        for (uint32_t index = 0; index < 400; index++)
            seen[drawn(&sampler, logits, &sampling, index)] = '1';
        assert_string_equal(seen, cases[c].kept);
    }
    sampler_deinit(&sampler);
}

static void test_frequencies_follow_the_temperature(void **state)
{
    (void)state;
    enum { DRAWS = 40000, TOKENS = 4 };
    const float logits[TOKENS] = {0, 1, 2, 0.5f};
    static const float temperatures[] = {0.5f, 1, 3};
    struct sampler sampler = sampler_of(TOKENS);
    for (size_t t = 0; t < sizeof temperatures / sizeof *temperatures; t++) {
        struct sampling sampling = sampling_default();
        int counts[TOKENS] = {0};
        double p[TOKENS], total = 0;
        sampling.temperature = temperatures[t];
        sampling.seed = 99;
        for (uint32_t index = 0; index < DRAWS; index++)
            counts[drawn(&sampler, logits, &sampling, index)]++;
        for (int i = 0; i < TOKENS; i++)
            total += p[i] = exp((double)(logits[i] / temperatures[t]));
        for (int i = 0; i < TOKENS; i++) {
            double expected = DRAWS * p[i] / total;
            double sigma = sqrt(expected * (1 - p[i] / total));
            assert_true(fabs(counts[i] - expected) < 4 * sigma);
        }
    }
    sampler_deinit(&sampler);
}

static void test_tiny_and_huge_temperatures(void **state)
{
    (void)state;
    const float logits[] = {-100, 3.0f, 3.0001f, 200.0f - 1e4f};
    struct sampler sampler = sampler_of(4);
    struct sampling sampling = sampling_default();
    for (uint32_t index = 0; index < 50; index++) {
        sampling.temperature = 1e-30f;
        assert_int_equal(drawn(&sampler, logits, &sampling, index), 2);
        sampling.temperature = 100;
        assert_int_not_equal(drawn(&sampler, logits, &sampling, index), 3);
    }
    sampler_deinit(&sampler);
}

/* These may change only together with SAMPLER_VERSION: running clusters hold workers of both
 * builds. */
static void test_draws_are_pinned(void **state)
{
    (void)state;
    static const uint32_t expected[2][6] = {{387, 161, 255, 251, 412, 412},
                                            {387, 161, 253, 251, 412, 412}};
    float logits[VOCAB];
    for (int i = 0; i < VOCAB; i++)
        logits[i] = (float)(i * 37 % 101) * 0.0625f;
    struct sampler sampler = sampler_of(VOCAB);
    struct sampling sampling = sampling_default();
    sampling.seed = 0x123456789abcdefu;
    for (int c = 0; c < 2; c++) {
        sampling.top_p = c ? 0.9f : 1;
        sampling.min_p = c ? 0.1f : 0;
        for (uint32_t index = 0; index < 6; index++)
            assert_int_equal(drawn(&sampler, logits, &sampling, index), expected[c][index]);
    }
    sampler_deinit(&sampler);
}

static void test_logits_hash_sees_every_bit(void **state)
{
    (void)state;
    float logits[40];
    struct rng rng = rng_seeded(5);
    for (int i = 0; i < 40; i++)
        logits[i] = (float)rng_unit(&rng);
    for (size_t count = 1; count <= 40; count++) {
        uint64_t hash = logits_hash(logits, count);
        assert_int_equal(logits_hash(logits, count), hash);
        assert_int_not_equal(logits_hash(logits, count - 1), hash);
        for (size_t i = 0; i < count; i++) {
            uint32_t bits;
            memcpy(&bits, &logits[i], sizeof bits);
            for (int bit = 0; bit < 32; bit++) {
                uint32_t flipped = bits ^ 1u << bit;
                memcpy(&logits[i], &flipped, sizeof flipped);
                assert_int_not_equal(logits_hash(logits, count), hash);
            }
            memcpy(&logits[i], &bits, sizeof bits);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_the_oracle),
        cmocka_unit_test(test_greedy_takes_the_lower_of_equals),
        cmocka_unit_test(test_banned_ids_are_never_drawn),
        cmocka_unit_test(test_only_what_is_allowed_is_drawn),
        cmocka_unit_test(test_greedy_of_any_length),
        cmocka_unit_test(test_a_row_of_nothing_is_refused),
        cmocka_unit_test(test_unsound_logits_are_refused),
        cmocka_unit_test(test_filters_keep_exactly_these),
        cmocka_unit_test(test_frequencies_follow_the_temperature),
        cmocka_unit_test(test_tiny_and_huge_temperatures),
        cmocka_unit_test(test_draws_are_pinned),
        cmocka_unit_test(test_logits_hash_sees_every_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
