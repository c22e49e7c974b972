/* sampler_masses: exp's bits, and draws that sums of blocks alone would get wrong. */
#include "common/base/fixed_math.h"
#include "common/base/rng.h"
#include "kernels/cpu/sampler_masses.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { MOST = 3000, BLOCKS = MOST / SAMPLER_BLOCK + 1 };

static float p[MOST];
static double sums[BLOCKS];

/* Rows of every length, so that all ends of vectors and of blocks are checked. */
static void test_every_mass_has_the_bits_of_exp(void **state)
{
    (void)state;
    static const float edges[] = {0, -0.0f, -INFINITY, -86.999f, -87, -87.001f, -3e38f, -0.346574f};
    struct rng rng = rng_seeded(1);
    for (uint32_t count = 1; count < 700; count += count < 40 ? 1 : 59) {
        float logits[700], temperature = (float)(0.1 + rng_unit(&rng));
        struct sampler_masses masses = {p, sums, count};
        for (uint32_t i = 0; i < count; i++)
            logits[i] = rng_below(&rng, 4) ? (float)(rng_unit(&rng) * -100)
                                           : edges[rng_below(&rng, sizeof edges / sizeof *edges)];
        double total = sampler_masses_fill(&masses, logits, 0, temperature), wanted = 0;
        for (uint32_t i = 0; i < count; i++) {
            float want = exp_negative((logits[i] - 0) / temperature);
            assert_memory_equal(&p[i], &want, sizeof want);
            wanted += (double)want;
        }
        assert_true(fabs(total - wanted) <= 1e-13 * wanted);
    }
}

static void draw_masses(struct rng *rng, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        p[i] = rng_below(rng, 5) ? exp_negative((float)(rng_unit(rng) * -40)) : 0;
    p[rng_below(rng, count)] = 1;
}

/* Sums take exactly the ids with a key not below the bound's, in whatever block the bound's id
 * lies. */
static void test_sums_are_of_what_is_kept(void **state)
{
    (void)state;
    struct rng rng = rng_seeded(2);
    for (int round = 0; round < 300; round++) {
        uint32_t count = 1 + (uint32_t)rng_below(&rng, MOST);
        struct sampler_masses masses = {p, sums, count};
        draw_masses(&rng, count);
        for (uint32_t i = 0; i < count; i++)
            p[i] = round % 2 ? p[i] : ldexpf(1, -(int)rng_below(&rng, 3)); /* equals */
        uint32_t id = (uint32_t)rng_below(&rng, count);
        uint64_t bound = sampler_key(p[id], round % 3 ? id : UINT32_MAX);
        double total = sampler_masses_keep(&masses, bound), wanted[BLOCKS] = {0}, all = 0;
        for (uint32_t i = 0; i < count; i++)
            wanted[i / SAMPLER_BLOCK] += sampler_key(p[i], i) >= bound ? (double)p[i] : 0;
        for (uint32_t b = 0; b * SAMPLER_BLOCK < count; b++) {
            assert_true(fabs(sums[b] - wanted[b]) <= 1e-13 * wanted[b]);
            all += wanted[b];
        }
        assert_true(fabs(total - all) <= 1e-13 * all);
    }
}

/* By its definition. */
static uint32_t picked_in_order(uint32_t count, uint64_t bound, double unit, double total)
{
    double passed = 0;
    uint32_t last = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (!(p[i] > 0) || sampler_key(p[i], i) < bound)
            continue;
        last = i;
        passed += (double)p[i];
        if (passed > unit * total)
            break;
    }
    return last;
}

/* Numbers at which, as exactly as a double can say, one token ends and the next begins: there the
 * order of additions decides. */
static void test_a_draw_between_two_tokens(void **state)
{
    (void)state;
    struct rng rng = rng_seeded(3);
    for (int round = 0; round < 100; round++) {
        uint32_t count = 1 + (uint32_t)rng_below(&rng, MOST);
        struct sampler_masses masses = {p, sums, count};
        draw_masses(&rng, count);
        uint64_t bound = round % 2 ? 0 : sampler_key(p[rng_below(&rng, count)], 0);
        double summed = sampler_masses_keep(&masses, bound), total = 0, passed = 0;
        for (uint32_t i = 0; i < count; i++)
            total += sampler_key(p[i], i) >= bound ? (double)p[i] : 0;
        for (uint32_t i = 0; i < count; i++) {
            passed += sampler_key(p[i], i) >= bound ? (double)p[i] : 0;
            if (rng_below(&rng, count) >= 20)
                continue;
            double unit = passed / total;
            for (int way = -1; way <= 1; way++, unit = nextafter(unit, 2)) {
                double near = way < 0 ? nextafter(unit, 0) : unit;
                assert_int_equal(sampler_masses_pick(&masses, bound, summed, near),
                                 picked_in_order(count, bound, near, total));
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_mass_has_the_bits_of_exp),
        cmocka_unit_test(test_sums_are_of_what_is_kept),
        cmocka_unit_test(test_a_draw_between_two_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
