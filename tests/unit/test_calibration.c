/* calibration: the P(miss) that is used comes true, also after drift; when it may be acted on. */
#include "router/planner/calibration.h"

#include "common/base/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* ---------------------------------------------------------------- a policy and its requests */

/* TTFT = the queue and the prompt, TPOT = the step: each by a device of this speed, with noise. */
struct world {
    double slower;   /* than the policy believes */
    double longer;   /* answers, than the policy believes: that many more rows in each step */
    double uncached; /* share of the prompt; the policy believes that it is half */
};
static const struct world AS_BELIEVED = {1, 1, 0.5};

struct request {
    double prompt_us, rows, ttft_us, tpot_us; /* the last two: objectives */
};

static double noise(struct rng *rng) /* about normal, standard deviation 1 */
{
    double sum = 0;
    for (int i = 0; i < 12; i++)
        sum += rng_unit(rng);
    return sum - 6;
}

static struct request some_request(struct rng *rng)
{
    return (struct request){.prompt_us = 100e3 + 900e3 * rng_unit(rng),
                            .rows = 4 + 60 * rng_unit(rng),
                            .ttft_us = 400e3,
                            .tpot_us = 40e3};
}

static double believed_ttft_us(const struct request *request, const struct world *world)
{
    return request->prompt_us * world->uncached * world->slower;
}

static double believed_tpot_us(const struct request *request, const struct world *world)
{
    return (20e3 + 300 * request->rows * world->longer) * world->slower;
}

/* P(x > objective), where x is `expected` with a spread of 15%. */
static double exceeds(double expected, double objective)
{
    return 0.5 * erfc((objective - expected) / (0.15 * expected) / sqrt(2));
}

/* The policy's P(miss): with the world that it believes in, and both objectives by themselves. */
static double raw_of(const struct request *request)
{
    double hit = (1 - exceeds(believed_ttft_us(request, &AS_BELIEVED), request->ttft_us)) *
                 (1 - exceeds(believed_tpot_us(request, &AS_BELIEVED), request->tpot_us));
    return 1 - hit;
}

static bool misses(const struct request *request, const struct world *world, struct rng *rng)
{
    double ttft = believed_ttft_us(request, world) * (1 + 0.15 * noise(rng));
    double tpot = believed_tpot_us(request, world) * (1 + 0.15 * noise(rng));
    return ttft > request->ttft_us || tpot > request->tpot_us;
}

/* Errors of what was used and of the policy's own P, each request counted in full. */
struct errors {
    struct calibration_bin used[CALIBRATION_BINS], raw[CALIBRATION_BINS];
    double count;
};

static void count_in(struct calibration_bin *bins, double p, bool missed)
{
    struct calibration_bin *bin = &bins[p < 1 ? (int)(p * CALIBRATION_BINS) : CALIBRATION_BINS - 1];
    bin->predicted += p;
    bin->missed += missed;
}

static double error_in(const struct calibration_bin *bins, double count)
{
    double sum = 0;
    for (int i = 0; i < CALIBRATION_BINS; i++)
        sum += fabs(bins[i].predicted - bins[i].missed);
    return sum / count;
}

static struct errors serve(struct calibration *calibration, const struct world *world, int count,
                           struct rng *rng)
{
    struct errors errors = {.count = count};
    for (int i = 0; i < count; i++) {
        struct request request = some_request(rng);
        double raw = raw_of(&request), used = calibration_map(calibration, raw);
        bool missed = misses(&request, world, rng);
        count_in(errors.raw, raw, missed);
        count_in(errors.used, used, missed);
        calibration_note(calibration, raw, used, missed);
    }
    return errors;
}

/* ------------------------------------------------------------------------------------- tests */

static void test_a_calibration_of_nothing_changes_nothing(void **state)
{
    (void)state;
    struct calibration calibration = {0};
    assert_true(calibration_map(&calibration, 0.37) == 0.37);
    assert_true(calibration_error(&calibration) == 0);
    assert_false(calibration_is_good(&calibration));
}

static void test_the_error_is_the_gap_of_each_bin(void **state)
{
    (void)state;
    struct calibration calibration = {0};
    for (int i = 0; i < 3; i++) /* predicted 0.75 on average, and 1 of 3 misses */
        calibration_note(&calibration, 0.5, i == 1 ? 0.75 : 0.7 + 0.05 * i, i == 0);
    calibration_note(&calibration, 0.5, 0.05, true);
    /* weights 0.996.., so nearly (|2.25 - 1| + |0.05 - 1|) / 4 */
    assert_true(fabs(calibration_error(&calibration) - 2.2 / 4) < 0.003);
    assert_false(calibration_is_good(&calibration));
}

static void test_what_is_used_comes_true_before_and_after_drift(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        struct world world;
        double at_least; /* the policy's own error, after the drift */
    } drifts[] = {{"a device 1.5 times slower", {1.5, 1, 0.5}, 0.2},
                  {"answers 3 times longer", {1, 3, 0.5}, 0.2},
                  {"caches wiped", {1, 1, 1}, 0.2},
                  {"a device twice as fast", {0.5, 1, 0.5}, 0.2}};
    for (size_t i = 0; i < COUNT(drifts); i++) {
        struct rng rng = rng_seeded(7 + i);
        struct calibration calibration = {0};
        struct errors errors = serve(&calibration, &AS_BELIEVED, 4000, &rng);
        assert_true(error_in(errors.used, errors.count) < 0.05);
        assert_true(calibration_is_good(&calibration));
        (void)serve(&calibration, &drifts[i].world, 2000, &rng);
        assert_true(calibration_error(&calibration) < 0.05);
        assert_true(calibration_is_good(&calibration));
        errors = serve(&calibration, &drifts[i].world, 2000, &rng);
        print_message("%s: error %.3f of the policy's own P, %.3f of what is used\n",
                      drifts[i].name, error_in(errors.raw, errors.count),
                      error_in(errors.used, errors.count));
        assert_true(error_in(errors.used, errors.count) < 0.05);
        assert_true(error_in(errors.raw, errors.count) > drifts[i].at_least);
    }
}

static void test_drift_shows_at_once_in_the_error(void **state)
{
    (void)state;
    struct rng rng = rng_seeded(3);
    struct calibration calibration = {0};
    (void)serve(&calibration, &AS_BELIEVED, 4000, &rng);
    (void)serve(&calibration, &(struct world){2, 3, 1}, 200, &rng);
    assert_false(calibration_is_good(&calibration)); /* nothing is rejected meanwhile */
}

static void test_the_map_is_monotone(void **state)
{
    (void)state;
    struct rng rng = rng_seeded(11);
    struct calibration calibration = {0};
    for (int i = 0; i < 3000; i++) { /* outcomes without any order in the raw P */
        double raw = rng_unit(&rng);
        calibration_note(&calibration, raw, calibration_map(&calibration, raw),
                         (rng_below(&rng, 8) & (uint32_t)(raw * 8)) != 0);
        if (i % 50)
            continue;
        double before = 0;
        for (int k = 0; k <= 1000; k++) {
            double used = calibration_map(&calibration, k / 1000.0);
            assert_true(used >= before - 1e-12 && used <= 1);
            before = used;
        }
    }
}

/* Raw P gather near 0 and 1: small ones differ, too. */
static void test_small_raw_predictions_are_told_apart(void **state)
{
    (void)state;
    struct rng rng = rng_seeded(13);
    struct calibration calibration = {0};
    for (int i = 0; i < 2000; i++) {
        double raw = i % 2 ? 0.0001 : 0.02;
        calibration_note(&calibration, raw, calibration_map(&calibration, raw),
                         rng_below(&rng, 10) < (i % 2 ? 1 : 9));
    }
    assert_true(calibration_map(&calibration, 0.0001) < 0.25);
    assert_true(calibration_map(&calibration, 0.02) > 0.75);
}

/* A policy with one answer for all still has the right mean. */
static void test_a_prediction_that_says_nothing_becomes_the_mean(void **state)
{
    (void)state;
    struct rng rng = rng_seeded(5);
    struct calibration calibration = {0};
    for (int i = 0; i < 2000; i++)
        calibration_note(&calibration, 0, calibration_map(&calibration, 0),
                         rng_below(&rng, 10) < 3);
    assert_true(fabs(calibration_map(&calibration, 0) - 0.3) < 0.08);
    assert_true(calibration_map(&calibration, 1) > 0.9); /* nothing is known there */
}

static void test_few_requests_are_not_enough(void **state)
{
    (void)state;
    struct calibration calibration = {0};
    for (int i = 1; i < CALIBRATION_LEAST; i++)
        calibration_note(&calibration, i % 2, i % 2, i % 2);
    assert_true(calibration_error(&calibration) < 1e-9);
    assert_false(calibration_is_good(&calibration));
    calibration_note(&calibration, 0, 0, false);
    assert_true(calibration_is_good(&calibration));
}

/* 200 perfect predictions in the middle miss the share by chance alone, and are good. */
static void test_chance_is_no_error(void **state)
{
    (void)state;
    int good = 0;
    for (uint64_t seed = 0; seed < 100; seed++) {
        struct rng rng = rng_seeded(seed);
        struct calibration perfect = {0}, wrong = {0};
        for (int i = 0; i < 300; i++) {
            double p = rng_unit(&rng);
            bool missed = rng_unit(&rng) < p;
            calibration_note(&perfect, p, p, missed);
            calibration_note(&wrong, p, p * 0.5, missed);
        }
        good += calibration_is_good(&perfect);
        assert_false(calibration_is_good(&wrong));
    }
    assert_true(good >= 99);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_calibration_of_nothing_changes_nothing),
        cmocka_unit_test(test_the_error_is_the_gap_of_each_bin),
        cmocka_unit_test(test_what_is_used_comes_true_before_and_after_drift),
        cmocka_unit_test(test_drift_shows_at_once_in_the_error),
        cmocka_unit_test(test_the_map_is_monotone),
        cmocka_unit_test(test_a_prediction_that_says_nothing_becomes_the_mean),
        cmocka_unit_test(test_small_raw_predictions_are_told_apart),
        cmocka_unit_test(test_few_requests_are_not_enough),
        cmocka_unit_test(test_chance_is_no_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
