/* cost_fit: what it predicts after 200 noisy steps of published profiles with stairs, and what it
 * forgets. */
#include "common/base/domain/cost_fit.h"
#include "common/base/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define NOISE         0.2
#define OUTLIERS      0.05
#define OUTLIER_TIMES 10
/* Quantiles of a step's time, noise and outliers included, as multiples of its time without. */
#define TRUE_P50 (1 + NOISE * 0.0660) /* normal quantile of 0.5 / 0.95 */
#define TRUE_P90 (1 + NOISE * 1.6199) /* the same of 0.9 / 0.95 */

/* --- published profiles, in milliseconds --- */

struct decode_cost {
    double step, context, row;
};
#define POINTS 7
/* DistServe (Zhong et al., OSDI 2024) gives coefficients for its own engine on A100-80GB. A prompt
 * costs step + row * tokens + square * tokens^2. Decodes have two sets, by batch size. Splitwise
 * (Patel et al., ISCA 2024) gives measured times at some sizes; between them is a line. */
struct profile {
    const char *name;
    double prefill_step, prefill_row, prefill_square;
    struct decode_cost small, large;
    uint32_t large_from;
    uint32_t prompt_at[POINTS], batch_at[POINTS];
    double prompt_ms[POINTS], batch_ms[POINTS];
};
static const struct profile profiles[] = {
    {.name = "OPT-13B, tp 1",
     .prefill_step = 18.10254647,
     .prefill_row = 0.10191226,
     .prefill_square = 7.12226431e-06,
     .small = {19.93470262, 0.00062694, 0.03850698},
     .large = {7.16618895, 0.0005798, 0.15831096},
     .large_from = 95},
    {.name = "OPT-66B, tp 4",
     .prefill_step = 29.44163604,
     .prefill_row = 0.15135218,
     .prefill_square = 8.31745077e-06,
     .small = {30.76028462, 0.00045195, 0.0632842},
     .large = {27.47082137, 0.00040468, 0.12480668},
     .large_from = 95},
    {.name = "Llama-2-70B on H100, tp 4",
     .prompt_at = {128, 256, 512, 1024, 2048, 4096, 8192},
     .prompt_ms = {49.09, 50.98, 59.62, 105.61, 200.68, 463.46, 953.58},
     .batch_at = {1, 2, 4, 8, 16, 32, 64},
     .batch_ms = {29.4, 29.98, 29.92, 31.44, 32.84, 36.88, 52.36}},
};
#define PROFILES (sizeof profiles / sizeof *profiles)

static double between(const uint32_t at[POINTS], const double ms[POINTS], double size)
{
    size_t i = 1;
    while (i + 1 < POINTS && size > at[i])
        i++;
    double share = (size - at[i - 1]) / ((double)at[i] - at[i - 1]);
    double value = ms[i - 1] + share * (ms[i] - ms[i - 1]);
    return value > ms[0] ? value : ms[0];
}

/* Returns the next batch size for which an engine has a graph: 1, 2, 4, then multiples of 8. */
static uint32_t padded(uint32_t rows)
{
    return rows <= 2 ? rows : rows <= 4 ? 4 : (rows + 7) / 8 * 8;
}

/* Returns the time of a step without noise. Stairs: decodes are padded to a graph's size, prompt
 * rows to tiles of 64. Rows of both kinds in one step share the larger step cost. */
static double true_us(const struct profile *profile, const struct step_shape *shape)
{
    double prefill = 0, decode = 0, shared = 0;
    double rows = (shape->prefill_rows + 63) / 64 * 64;
    uint32_t batch = padded(shape->decode_rows);
    if (profile->batch_at[0]) {
        prefill = shape->prefill_rows ? between(profile->prompt_at, profile->prompt_ms, rows) : 0;
        decode = batch ? between(profile->batch_at, profile->batch_ms, batch) : 0;
        shared = fmin(profile->prompt_ms[0], profile->batch_ms[0]);
    } else {
        const struct decode_cost *cost =
            batch >= profile->large_from ? &profile->large : &profile->small;
        if (shape->prefill_rows)
            prefill = profile->prefill_step + profile->prefill_row * rows +
                      profile->prefill_square * (2 * (double)shape->prefill_positions + rows);
        if (batch)
            decode = cost->step + cost->row * batch + cost->context * (double)shape->decode_context;
        shared = fmin(profile->prefill_step, cost->step);
    }
    return 1000 * (prefill + decode - (prefill > 0 && decode > 0 ? shared : 0));
}

/* --- steps --- */

static double normal(struct rng *rng)
{
    return sqrt(-2 * log(1 - rng_unit(rng))) * cos(6.283185307179586 * rng_unit(rng));
}

static double log_uniform(struct rng *rng, double low, double high)
{
    return low * pow(high / low, rng_unit(rng));
}

enum mix { PREFILLS, DECODES, BOTH, MIXES };
static const char *const mix_names[] = {"prefills", "decodes", "both"};

/* Draws the rows of a step. The load comes and goes, so batches are of all sizes. */
static struct step_shape draw(struct rng *rng, const struct profile *profile, enum mix mix)
{
    struct step_shape shape = {0};
    bool prefills = mix == PREFILLS || (mix == BOTH && rng_unit(rng) < 0.4);
    if (prefills) {
        uint64_t before = profile->batch_at[0] ? 0 : (uint64_t)log_uniform(rng, 1, 2048);
        shape.prefill_rows = (uint32_t)log_uniform(rng, 32, 2048);
        shape.prefill_positions =
            shape.prefill_rows * before + (uint64_t)shape.prefill_rows * shape.prefill_rows / 2;
    }
    if (!prefills || mix == BOTH) {
        shape.decode_rows = (uint32_t)log_uniform(rng, 1, profile->batch_at[0] ? 64 : 200);
        shape.decode_context = (uint64_t)(shape.decode_rows * log_uniform(rng, 100, 1500));
    }
    return shape;
}

static double noisy(struct rng *rng, double us)
{
    double factor = 1 + NOISE * normal(rng);
    us *= factor > 0.1 ? factor : 0.1;
    return rng_unit(rng) < OUTLIERS ? us * OUTLIER_TIMES : us;
}

static void learn(struct cost_fit *fit, struct rng *rng, const struct profile *profile,
                  enum mix mix, int steps)
{
    for (int i = 0; i < steps; i++) {
        struct step_shape shape = draw(rng, profile, mix);
        cost_fit_learn(fit, &shape, noisy(rng, true_us(profile, &shape)));
    }
}

static bool all_are_sane(const struct cost_fit *fit)
{
    const struct step_cost *cost = &fit->figures.cost;
    const double all[] = {cost->step_us, cost->prefill_row_us, cost->prefill_position_us,
                          cost->decode_row_us, cost->decode_context_us};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!(all[i] >= 0) || !isfinite(all[i]))
            return false;
    return true;
}

#define SHAPES 300

/* Returns the mean error of predictions for other steps of the mix, as a share. */
static double mean_error(const struct cost_fit *fit, struct rng *rng, const struct profile *profile,
                         enum mix mix, enum cost_quantile quantile)
{
    double sum = 0;
    for (int i = 0; i < SHAPES; i++) {
        struct step_shape shape = draw(rng, profile, mix);
        double truth = true_us(profile, &shape) * (quantile == COST_P50 ? TRUE_P50 : TRUE_P90);
        sum += fabs(cost_fit_predict(fit, &shape, quantile) / truth - 1) / SHAPES;
    }
    return sum;
}

#define SEEDS 20

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Prints one line for each profile and mix. Half of the seeds must have an error of less than
 * 10% for P50 and P90, and nine of ten less than 20%: by chance one in some hundred has more than
 * twice as many outliers as is usual, which reach its P90. */
static void expect_errors(const struct step_cost *(*prior)(const struct profile *), double weight,
                          int steps, uint64_t seeds)
{
    for (size_t i = 0; i < PROFILES * MIXES; i++) {
        const struct profile *profile = &profiles[i / MIXES];
        enum mix mix = (enum mix)(i % MIXES);
        double errors[COST_QUANTILES][SEEDS];
        for (uint64_t seed = 0; seed < seeds; seed++) {
            struct rng rng = rng_seeded(seed + 1);
            struct cost_fit fit;
            cost_fit_init(&fit, prior ? prior(profile) : NULL, weight);
            learn(&fit, &rng, profile, mix, steps);
            assert_true(all_are_sane(&fit));
            errors[COST_P50][seed] = mean_error(&fit, &rng, profile, mix, COST_P50);
            errors[COST_P90][seed] = mean_error(&fit, &rng, profile, mix, COST_P90);
        }
        for (int quantile = 0; quantile < COST_QUANTILES; quantile++) {
            qsort(errors[quantile], seeds, sizeof(double), ascending);
            double median = errors[quantile][seeds / 2], high = errors[quantile][seeds * 9 / 10];
            printf("%-26s %-8s %d steps: %s is off by %.1f%%, nine seeds of ten by %.1f%%\n",
                   profile->name, mix_names[mix], steps, quantile == COST_P50 ? "P50" : "P90",
                   100 * median, 100 * high);
            assert_true(median < 0.1 && high < 0.2);
        }
    }
}

static void test_errors_after_200_noisy_steps(void **state)
{
    (void)state;
    expect_errors(NULL, 0, 200, SEEDS);
}

/* A profile of this model on another device: everything takes half as long. */
static const struct step_cost *half_prior(const struct profile *profile)
{
    static struct step_cost cost;
    bool points = profile->batch_at[0] != 0;
    cost = (struct step_cost){
        .step_us = 500 * (points ? profile->batch_ms[0] : profile->small.step),
        .prefill_row_us = 500 * (points ? 0.1 : profile->prefill_row),
        .prefill_position_us = 500 * (points ? 1e-5 : 2 * profile->prefill_square),
        .decode_row_us = 500 * (points ? 0.3 : profile->small.row),
        .decode_context_us = 500 * (points ? 1e-4 : profile->small.context)};
    return &cost;
}

static void test_a_wrong_prior_is_left_behind(void **state)
{
    (void)state;
    expect_errors(half_prior, 5, 600, 5);
}

static void test_a_prior_speaks_until_steps_come(void **state)
{
    (void)state;
    struct cost_fit fit;
    const struct step_cost prior = {1000, 10, 0.01, 20, 0};
    const struct step_shape shape = {
        .prefill_rows = 100, .prefill_positions = 5000, .decode_rows = 3, .decode_context = 900};
    cost_fit_init(&fit, NULL, 0);
    assert_true(cost_fit_predict(&fit, &shape, COST_P50) == 0);
    cost_fit_init(&fit, &prior, 30);
    assert_true(fabs(cost_fit_predict(&fit, &shape, COST_P50) - 2110) < 1e-6);
    assert_true(cost_fit_predict(&fit, &shape, COST_P90) > 2110);
    cost_fit_learn(&fit, &shape, 4220); /* one step moves it a little, and no further */
    double after = cost_fit_predict(&fit, &shape, COST_P50);
    assert_true(after > 2110 && after < 2600);
}

/* Steps without rows and times that are none are ignored. */
static void test_what_is_no_step_is_ignored(void **state)
{
    (void)state;
    struct cost_fit fit, before;
    const struct step_shape none = {0}, one = {.decode_rows = 1, .decode_context = 10};
    cost_fit_init(&fit, NULL, 0);
    cost_fit_learn(&fit, &one, 5000);
    before = fit;
    const double times[] = {0, -1, NAN, INFINITY, 1e300};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        cost_fit_learn(&fit, &one, times[i]);
    cost_fit_learn(&fit, &none, 1000);
    assert_memory_equal(&fit, &before, sizeof fit);
}

/* More rows, or the same rows with more context, never take less. */
static void test_predictions_grow_with_the_rows(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 18; seed++) {
        struct rng rng = rng_seeded(seed);
        struct cost_fit fit;
        cost_fit_init(&fit, NULL, 0);
        const struct profile *profile = &profiles[seed % PROFILES];
        learn(&fit, &rng, profile, (enum mix)(seed / PROFILES % MIXES), 20 + (int)seed * 20);
        for (int quantile = 0; quantile < COST_QUANTILES; quantile++) {
            double last = 0;
            for (uint32_t rows = 1; rows <= 9000; rows += 1 + rows / 50) {
                struct step_shape decodes = {.decode_rows = rows, .decode_context = 300ULL * rows};
                double us = cost_fit_predict(&fit, &decodes, (enum cost_quantile)quantile);
                assert_true(us > 0 && us >= last * (1 - 1e-9));
                last = us;
            }
            struct step_shape shape = {.decode_rows = 7, .decode_context = 1000};
            last = 0;
            for (; shape.prefill_rows <= 9000; shape.prefill_rows += 1 + shape.prefill_rows / 50) {
                shape.prefill_positions = 100ULL * shape.prefill_rows;
                double us = cost_fit_predict(&fit, &shape, (enum cost_quantile)quantile);
                assert_true(us >= last * (1 - 1e-9));
                shape.decode_context += 50000;
                assert_true(cost_fit_predict(&fit, &shape, (enum cost_quantile)quantile) >= us);
                shape.decode_context -= 50000;
                last = us;
            }
        }
        const struct step_shape shape = {.decode_rows = 40, .decode_context = 20000};
        assert_true(cost_fit_predict(&fit, &shape, COST_P90) >=
                    cost_fit_predict(&fit, &shape, COST_P50));
    }
}

static double decode_p50(const struct cost_fit *fit, uint32_t rows)
{
    struct step_shape shape = {.decode_rows = rows, .decode_context = 500ULL * rows};
    return cost_fit_predict(fit, &shape, COST_P50);
}

/* The step's own cost doubles (another process, throttling): predictions follow within 45 steps. */
static void test_a_change_of_the_step_cost_is_followed(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct rng rng = rng_seeded(seed);
        struct cost_fit fit;
        cost_fit_init(&fit, NULL, 0);
        learn(&fit, &rng, &profiles[0], DECODES, 1000);
        struct profile slower = profiles[0];
        slower.small.step *= 2;
        slower.large.step += profiles[0].small.step;
        learn(&fit, &rng, &slower, DECODES, 45);
        struct step_shape shape = {.decode_rows = 16, .decode_context = 8000};
        double error = decode_p50(&fit, 16) / (true_us(&slower, &shape) * TRUE_P50) - 1;
        assert_true(fabs(error) < 0.15);
        learn(&fit, &rng, &profiles[0], DECODES, 45);
        error = decode_p50(&fit, 16) / (true_us(&profiles[0], &shape) * TRUE_P50) - 1;
        assert_true(fabs(error) < 0.15);
    }
}

/* Hours with nothing but decodes leave what is known of prompts. */
static void test_quiet_hours_keep_the_slopes(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 3; seed++) {
        struct rng rng = rng_seeded(seed);
        struct cost_fit fit;
        cost_fit_init(&fit, NULL, 0);
        learn(&fit, &rng, &profiles[1], BOTH, 1000);
        struct step_shape prompt = {.prefill_rows = 1500, .prefill_positions = 1500 * 750};
        double row_us = fit.figures.cost.prefill_row_us,
               before = cost_fit_predict(&fit, &prompt, COST_P50);
        learn(&fit, &rng, &profiles[1], DECODES, 10000);
        assert_true(fabs(fit.figures.cost.prefill_row_us / row_us - 1) < 0.1);
        assert_true(fabs(cost_fit_predict(&fit, &prompt, COST_P50) / before - 1) < 0.1);
        /* One prompt later it is not thrown about. */
        cost_fit_learn(&fit, &prompt, noisy(&rng, true_us(&profiles[1], &prompt)));
        assert_true(fabs(cost_fit_predict(&fit, &prompt, COST_P50) / before - 1) < 0.2);
    }
}

/* Outliers alone don't move it: the same noise with and without them gives nearly the same. */
static void test_outliers_count_at_the_bound(void **state)
{
    (void)state;
    struct cost_fit fit;
    struct rng rng = rng_seeded(3);
    cost_fit_init(&fit, NULL, 0);
    learn(&fit, &rng, &profiles[0], DECODES, 300);
    double before = decode_p50(&fit, 16);
    uint64_t clamped = fit.figures.clamped;
    for (int i = 0; i < 20; i++) { /* one in three */
        struct step_shape shape = {.decode_rows = 16, .decode_context = 8000};
        double us = true_us(&profiles[0], &shape);
        cost_fit_learn(&fit, &shape, us * (i % 3 ? 1 : 100));
    }
    assert_true(fit.figures.clamped >= clamped + 7);
    assert_true(fabs(decode_p50(&fit, 16) / before - 1) < 0.2);
}

/* A worker that does the same step for days, or rows in one fixed proportion: nothing overflows or
 * degenerates, and the prediction holds. */
static void test_steps_that_teach_nothing_new(void **state)
{
    (void)state;
    struct cost_fit fit;
    cost_fit_init(&fit, NULL, 0);
    for (int i = 0; i < 33000; i++) {
        uint32_t rows = 1 + (uint32_t)(i / 1000) % 64;
        struct step_shape shape = {.prefill_rows = rows,
                                   .prefill_positions = 100ULL * rows,
                                   .decode_rows = rows,
                                   .decode_context = 700ULL * rows};
        double us = 3000 + 250.0 * rows;
        cost_fit_learn(&fit, &shape, us);
        if (i % 1000 != 999)
            continue;
        assert_true(all_are_sane(&fit));
        assert_true(fabs(cost_fit_predict(&fit, &shape, COST_P50) / us - 1) < 0.1);
    }
    const struct step_shape largest = {UINT32_MAX, UINT64_MAX, UINT32_MAX, UINT64_MAX};
    cost_fit_learn(&fit, &largest, 1);
    cost_fit_learn(&fit, &largest, 1e14);
    assert_true(all_are_sane(&fit));
    assert_true(isfinite(cost_fit_predict(&fit, &largest, COST_P90)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_errors_after_200_noisy_steps),
        cmocka_unit_test(test_a_wrong_prior_is_left_behind),
        cmocka_unit_test(test_a_prior_speaks_until_steps_come),
        cmocka_unit_test(test_what_is_no_step_is_ignored),
        cmocka_unit_test(test_predictions_grow_with_the_rows),
        cmocka_unit_test(test_a_change_of_the_step_cost_is_followed),
        cmocka_unit_test(test_quiet_hours_keep_the_slopes),
        cmocka_unit_test(test_outliers_count_at_the_bound),
        cmocka_unit_test(test_steps_that_teach_nothing_new),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
