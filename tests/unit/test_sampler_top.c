/* sampler_top: against sorting everything and adding it up in that order. */
#include "common/base/fixed_math.h"
#include "common/base/rng.h"
#include "kernels/cpu/sampler_masses.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

enum { MOST = 3000, BLOCKS = MOST / SAMPLER_BLOCK + 1 };

static float p[MOST];
static double sums[BLOCKS];
static uint64_t keys[MOST], sorted[MOST];
static struct sampler_bucket buckets[SAMPLER_BUCKETS], finer[SAMPLER_FINER_BUCKETS];
static const struct sampler_top top = {keys, buckets, finer};

static int descending(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x < y) - (x > y);
}

/* How many tokens both keep, by their definition; sorted[]: all that have a mass. */
static uint32_t kept_in_order(uint32_t count, uint32_t top_k, float top_p)
{
    uint32_t some = 0, kept = 0;
    double total = 0, prefix = 0;
    for (uint32_t i = 0; i < count; i++)
        if (p[i] > 0) {
            total += (double)p[i];
            sorted[some++] = sampler_key(p[i], i);
        }
    qsort(sorted, some, sizeof *sorted, descending);
    if (top_k && top_k < some) {
        some = top_k;
        total = 0;
        for (uint32_t i = 0; i < some; i++)
            total += (double)sampler_key_mass(sorted[i]);
    }
    while (kept < some && (top_p >= 1.0f || prefix < (double)top_p * total))
        prefix += (double)sampler_key_mass(sorted[kept++]);
    return kept;
}

static void check(uint32_t count, uint32_t top_k, float top_p)
{
    const struct sampler_masses masses = {p, sums, count};
    double total = sampler_masses_keep(&masses, 0);
    uint64_t bound = sampler_top_bound(&top, &masses, total, top_k, top_p);
    uint32_t wanted = kept_in_order(count, top_k, top_p), kept = 0;
    for (uint32_t i = 0; i < count; i++)
        kept += p[i] > 0 && sampler_key(p[i], i) >= bound;
    if (kept != wanted)
        fail_msg("top_k %u, top_p %.9g of %u keep %u, should be %u", top_k, (double)top_p, count,
                 kept, wanted);
}

/* Masses that are far apart, equal except in the last bits, and equal. */
static void draw_masses(struct rng *rng, uint32_t count, int kind)
{
    for (uint32_t i = 0; i < count; i++) {
        double unit = rng_unit(rng);
        p[i] = kind == 0   ? exp_negative((float)(unit * -90))
               : kind == 1 ? exp_negative((float)(unit * -1e-4))
               : kind == 2 ? ldexpf(1, -(int)rng_below(rng, 4))
                           : exp_negative((float)(unit * -12));
        if (kind < 3 && rng_below(rng, 10) == 0)
            p[i] = 0;
    }
    p[rng_below(rng, count)] = 1;
}

static void test_against_sorting(void **state)
{
    (void)state;
    struct rng rng = rng_seeded(1);
    for (int round = 0; round < 4000; round++) {
        uint32_t count = 1 + (uint32_t)rng_below(&rng, round % 8 ? 200 : MOST);
        uint32_t top_k = round % 3 ? 1 + (uint32_t)rng_below(&rng, count + 5) : 0;
        float top_p = round % 5 ? (float)(1 + rng_below(&rng, 64)) / 64 : 1;
        if (round % 7 == 0)
            top_p = 1 - (float)rng_below(&rng, 1000) * 1e-6f;
        draw_masses(&rng, count, round % 4);
        check(count, top_k, top_p);
    }
}

static void test_every_count_and_every_prefix(void **state)
{
    (void)state;
    enum { COUNT = 48 };
    struct rng rng = rng_seeded(2);
    for (int kind = 0; kind < 4; kind++) {
        draw_masses(&rng, COUNT, kind);
        for (uint32_t top_k = 0; top_k <= COUNT + 1; top_k++)
            for (int prefix = 1; prefix <= 128; prefix++)
                check(COUNT, top_k, (float)prefix / 128);
        check(COUNT, 0, 1e-45f);
    }
}

/* Many small masses that vanish when they are added to 1 one by one, but not when they are added up
 * before. Half of the mass is one token, or two. */
static void test_where_the_order_of_additions_decides(void **state)
{
    (void)state;
    for (int exponent = 50; exponent <= 60; exponent++)
        for (uint32_t great = 2; great <= 64; great *= 2) {
            for (uint32_t i = 0; i < MOST; i++)
                p[i] = i < great ? 1 : ldexpf(1, -exponent);
            for (uint32_t prefix = 1; prefix <= great; prefix++) {
                check(MOST, 0, (float)prefix / (float)great);
                check(MOST, MOST - 1, (float)prefix / (float)great);
            }
        }
}

/* The same with masses that are each rounded up when they are added to 1 or more: sums of blocks
 * say that half is enough. */
static void test_where_each_addition_rounds_up(void **state)
{
    (void)state;
    struct rng rng = rng_seeded(4);
    double small = 0x1.8p-53, others = MOST - 2;
    int seen = 0;
    for (int round = 0; round < 4000000; round++) {
        float second = (float)(0.1 + 0.8 * rng_unit(&rng)), top_p = 1 / (1 + second);
        double both = 1 + (double)second;
        if (!((double)top_p * (both + others * small) < 1 - 1e-14 &&
              (double)top_p * (both + others * 0x1p-52) > 1 + 1e-14))
            continue;
        for (uint32_t i = 0; i < MOST; i++)
            p[i] = i == 0 ? 1 : i == 1 ? second : (float)small;
        check(MOST, 0, top_p);
        assert_int_equal(kept_in_order(MOST, 0, top_p), 2);
        seen++;
    }
    assert_true(seen > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_sorting),
        cmocka_unit_test(test_every_count_and_every_prefix),
        cmocka_unit_test(test_where_the_order_of_additions_decides),
        cmocka_unit_test(test_where_each_addition_rounds_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
