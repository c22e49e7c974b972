/* answer_length: means, quantiles and tails of known distributions come out, also of answers that
 * max_tokens or a client cut off; cells lean on their parents; a change is learnt. */
#include "common/base/rng.h"
#include "router/planner/answer_length.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#define NEVER 1048576 /* max_tokens that cut nothing off here */

static const struct answer_ask open_ask = {.prompt_tokens = 100, .max_tokens = NEVER, .open = true};

static const struct answer_course untold;

static struct answer_lengths *lengths_of(size_t models)
{
    struct answer_lengths *lengths;
    assert_int_equal(answer_lengths_create(models, &lengths), STATUS_OK);
    return lengths;
}

static void assert_near(double value, double expected, double part)
{
    if (fabs(value - expected) > part * expected)
        fail_msg("%g is not near %g", value, expected);
}

/* Returns a length, geometric with this mean. */
static uint32_t geometric(struct rng *rng, double mean)
{
    return 1 + (uint32_t)(log1p(-rng_unit(rng)) / log1p(-1 / mean));
}

/* Learns an answer that would have `tokens`, as it is cut off by max_tokens. */
static void learn(struct answer_lengths *lengths, const struct answer_ask *ask, uint32_t tokens)
{
    bool ended = tokens <= ask->max_tokens;
    answer_lengths_learn(lengths, ask, &untold, ended ? tokens : ask->max_tokens, ended);
}

static void test_nothing_is_known_at_first(void **state)
{
    (void)state;
    struct answer_lengths *lengths = lengths_of(1);
    struct answer_length guess = answer_length_predict(lengths, &open_ask, 0);
    assert_near(guess.mean, ANSWER_PRIOR_TOKENS, 0.01);
    assert_near(guess.p50, log(2) * ANSWER_PRIOR_TOKENS, 0.02);
    assert_near(answer_length_rest(lengths, &open_ask, 1000), ANSWER_PRIOR_TOKENS, 0.01);
    assert_true(answer_lengths_weight(lengths, &open_ask) == 0);
    answer_lengths_destroy(lengths);
}

static void test_a_distribution_is_learnt(void **state)
{
    (void)state;
    static const double means[] = {2, 40, 700, 20000};
    for (size_t i = 0; i < sizeof means / sizeof *means; i++) {
        struct answer_lengths *lengths = lengths_of(1);
        struct rng rng = rng_seeded(5 + i);
        for (int k = 0; k < 6000; k++)
            learn(lengths, &open_ask, geometric(&rng, means[i]));
        struct answer_length got = answer_length_predict(lengths, &open_ask, 0);
        assert_near(got.mean, means[i], 0.12);
        if (means[i] > 10) {
            assert_near(got.p50, log(2) * means[i], 0.15);
            assert_near(got.p90, log(10) * means[i], 0.15);
            assert_near(answer_length_rest(lengths, &open_ask, (uint32_t)means[i]), means[i], 0.2);
        }
        double exceeds = answer_length_exceeds(lengths, &open_ask, 0, means[i]);
        assert_near(exceeds, pow(1 - 1 / means[i], floor(means[i])), 0.12);
        assert_near(answer_lengths_weight(lengths, &open_ask), 1.44 * ANSWER_HALF_LIFE, 0.01);
        answer_lengths_destroy(lengths);
    }
}

/* Half of the answers have 10 tokens, half 1000: given 20 it is surely a long one. */
static void test_tokens_that_came_tell_the_rest(void **state)
{
    (void)state;
    struct answer_lengths *lengths = lengths_of(1);
    for (int k = 0; k < 2000; k++)
        learn(lengths, &open_ask, k % 2 ? 10 : 1000);
    assert_near(answer_length_predict(lengths, &open_ask, 0).mean, 505, 0.2);
    struct answer_length later = answer_length_predict(lengths, &open_ask, 20);
    assert_near(later.p50, 1000, 0.25); /* the bucket has 897 .. 1024 */
    assert_near(answer_length_exceeds(lengths, &open_ask, 20, 800), 1, 0.2);
    assert_near(answer_length_exceeds(lengths, &open_ask, 0, 800), 0.5, 0.2);
    assert_true(answer_length_exceeds(lengths, &open_ask, 20, 19) == 1);
    answer_lengths_destroy(lengths);
}

/* Limits cut off most answers. The same limit predicts itself, and no limit the true lengths. */
static void test_cut_answers_do_not_look_short(void **state)
{
    (void)state;
    struct answer_lengths *lengths = lengths_of(1);
    struct rng rng = rng_seeded(9);
    struct answer_ask ask = open_ask;
    ask.open = false;
    for (int k = 0; k < 20000; k++) {
        ask.max_tokens = k % 4 ? 120 : 4000; /* one in four shows the tail */
        learn(lengths, &ask, geometric(&rng, 300));
    }
    ask.max_tokens = 120;
    struct answer_length cut = answer_length_predict(lengths, &ask, 0);
    assert_near(cut.mean, 300 * (1 - pow(1 - 1.0 / 300, 120)), 0.05);
    assert_true(cut.p50 == 120 && cut.p90 == 120);
    assert_true(answer_length_exceeds(lengths, &ask, 0, 120) == 0);
    ask.max_tokens = 4000;
    assert_near(answer_length_predict(lengths, &ask, 0).mean, 300, 0.15);
    ask.max_tokens = 500; /* never seen: from the answers to such prompts */
    assert_near(answer_length_exceeds(lengths, &ask, 0, 400), pow(1 - 1.0 / 300, 400), 0.2);
    assert_near(answer_length_predict(lengths, &open_ask, 0).mean, 300, 0.15);
    answer_lengths_destroy(lengths);
}

/* Clients that leave after a time of their own: lengths as if they had stayed. */
static void test_clients_that_leave(void **state)
{
    (void)state;
    struct answer_lengths *lengths = lengths_of(1);
    struct rng rng = rng_seeded(21);
    for (int k = 0; k < 20000; k++) {
        uint32_t tokens = geometric(&rng, 200), leaves = geometric(&rng, 150);
        answer_lengths_learn(lengths, &open_ask, &untold, tokens < leaves ? tokens : leaves,
                             tokens <= leaves);
    }
    assert_near(answer_length_predict(lengths, &open_ask, 0).p50, log(2) * 200, 0.15);
    assert_near(answer_length_predict(lengths, &open_ask, 0).mean, 200, 0.15);
    answer_lengths_destroy(lengths);
}

static void test_cells_differ_and_lean_on_each_other(void **state)
{
    (void)state;
    struct answer_lengths *lengths = lengths_of(2);
    struct answer_ask brief = open_ask, lengthy = open_ask, other = open_ask;
    lengthy.prompt_tokens = 10000;
    other.model = 1;
    for (int k = 0; k < 2000; k++) {
        learn(lengths, &brief, 20);
        learn(lengths, &lengthy, 2000);
    }
    assert_near(answer_length_predict(lengths, &brief, 0).p50, 20, 0.3);
    assert_near(answer_length_predict(lengths, &lengthy, 0).p50, 2000, 0.3);
    assert_near(answer_length_predict(lengths, &other, 0).mean, ANSWER_PRIOR_TOKENS, 0.01);
    struct answer_ask between = open_ask; /* no such prompt came: half are short, half long */
    between.prompt_tokens = 1000;
    assert_near(answer_length_exceeds(lengths, &between, 0, 1000), 0.5, 0.2);
    between.open = false;
    between.max_tokens = 500;
    assert_near(answer_length_exceeds(lengths, &between, 0, 400), 0.5, 0.2);
    answer_lengths_destroy(lengths);
}

static void test_a_change_is_learnt(void **state)
{
    (void)state;
    struct answer_lengths *lengths = lengths_of(1);
    struct rng rng = rng_seeded(33);
    for (int k = 0; k < 20000; k++)
        learn(lengths, &open_ask, geometric(&rng, 100));
    assert_near(answer_length_predict(lengths, &open_ask, 0).p90, log(10) * 100, 0.15);
    for (int k = 0; k < 2000; k++)
        learn(lengths, &open_ask, geometric(&rng, 300));
    assert_near(answer_length_predict(lengths, &open_ask, 0).p90, log(10) * 300, 0.15);
    answer_lengths_destroy(lengths);
}

/* Answers that are followed while they are drawn teach the same as if their ends had told all. */
static void test_followed_answers_teach_the_same(void **state)
{
    (void)state;
    struct answer_lengths *followed = lengths_of(1), *at_end = lengths_of(1);
    struct rng rng = rng_seeded(34);
    for (int k = 0; k < 400; k++) {
        uint32_t tokens = geometric(&rng, k % 2 ? 30 : 500);
        bool ended = rng_below(&rng, 3) > 0;
        struct answer_course course = untold;
        for (uint32_t drawn = 0; drawn < tokens; drawn++)
            (void)answer_lengths_follow(followed, &open_ask, &course, drawn);
        answer_lengths_learn(followed, &open_ask, &course, tokens, ended);
        answer_lengths_learn(at_end, &open_ask, &untold, tokens, ended);
    }
    for (uint32_t drawn = 0; drawn < 1000; drawn += 50)
        assert_near(answer_length_rest(followed, &open_ask, drawn),
                    answer_length_rest(at_end, &open_ask, drawn), 0.005);
    assert_near(answer_lengths_weight(followed, &open_ask),
                answer_lengths_weight(at_end, &open_ask), 1e-9);
    answer_lengths_destroy(followed);
    answer_lengths_destroy(at_end);
}

/* Answers become longer. The first of them to end are short, but the others are on their way. */
static void test_longer_answers_are_seen_on_their_way(void **state)
{
    (void)state;
    enum { ON_THEIR_WAY = 300 };
    struct answer_lengths *lengths = lengths_of(1), *ends = lengths_of(1);
    struct answer_course courses[ON_THEIR_WAY] = {{.expect_at = 0}};
    uint32_t wanted[ON_THEIR_WAY];
    struct rng rng = rng_seeded(35);
    for (int k = 0; k < 2000; k++) {
        uint32_t tokens = geometric(&rng, 100);
        learn(lengths, &open_ask, tokens);
        learn(ends, &open_ask, tokens);
    }
    for (int i = 0; i < ON_THEIR_WAY; i++)
        wanted[i] = geometric(&rng, 400);
    for (uint32_t drawn = 0; drawn <= 120; drawn++) /* a quarter of them ends meanwhile */
        for (int i = 0; i < ON_THEIR_WAY; i++) {
            if (drawn < wanted[i])
                (void)answer_lengths_follow(lengths, &open_ask, &courses[i], drawn);
            if (drawn != wanted[i])
                continue;
            answer_lengths_learn(lengths, &open_ask, &courses[i], drawn, true);
            answer_lengths_learn(ends, &open_ask, &untold, drawn, true);
        }
    assert_true(answer_length_predict(ends, &open_ask, 0).p50 < 70); /* as if they were shorter */
    assert_true(answer_length_predict(lengths, &open_ask, 0).p50 > 95);
    assert_true(courses[0].expected.mean > 95); /* looked up again, and not at each token */
    answer_lengths_destroy(lengths);
    answer_lengths_destroy(ends);
}

/* A cell that few come to doesn't keep what was long ago. */
static void test_a_rare_cell_follows_its_model(void **state)
{
    (void)state;
    struct answer_lengths *lengths = lengths_of(1);
    struct rng rng = rng_seeded(36);
    struct answer_ask rare = open_ask;
    rare.prompt_tokens = 10000;
    for (int k = 0; k < 1000; k++)
        learn(lengths, &rare, geometric(&rng, 100));
    for (int k = 0; k < 10 * ANSWER_HALF_LIFE; k++)
        learn(lengths, &open_ask, geometric(&rng, 300));
    assert_near(answer_length_predict(lengths, &rare, 0).mean, 300, 0.2);
    answer_lengths_destroy(lengths);
}

static void test_answers_of_a_set_length(void **state)
{
    (void)state;
    struct answer_lengths *lengths = lengths_of(1);
    struct answer_ask exact = open_ask;
    exact.exact = true;
    exact.max_tokens = 64;
    answer_lengths_learn(lengths, &exact, &untold, 64, false); /* says nothing of others */
    answer_lengths_learn(lengths, &open_ask, &untold, 0, true);
    assert_true(answer_lengths_weight(lengths, &open_ask) == 0);
    struct answer_length length = answer_length_predict(lengths, &exact, 10);
    assert_true(length.mean == 64 && length.p50 == 64 && length.p90 == 64);
    assert_true(answer_length_rest(lengths, &exact, 10) == 54);
    assert_true(answer_length_exceeds(lengths, &exact, 10, 63) == 1);
    assert_true(answer_length_exceeds(lengths, &exact, 10, 64) == 0);
    struct answer_ask full = open_ask;
    full.max_tokens = 30;
    assert_true(answer_length_predict(lengths, &full, 30).mean == 30); /* it is over */
    assert_true(answer_length_rest(lengths, &full, 31) == 0);
    answer_lengths_destroy(lengths);
}

/* The least that surely comes counts until some answers have ended. */
static void test_a_guess_is_not_likely(void **state)
{
    (void)state;
    struct answer_lengths *lengths = NULL;
    const struct answer_ask ask = {.prompt_tokens = 100, .max_tokens = 500};
    const struct answer_ask exact = {.prompt_tokens = 100, .max_tokens = 500, .exact = true};
    assert_int_equal(answer_lengths_create(1, &lengths), STATUS_OK);
    assert_true(answer_length_likely(lengths, &ask, 0, 7) == 7);
    assert_true(answer_length_likely(lengths, &exact, 100, 7) == 400);
    for (int i = 0; i < 2 * ANSWER_KNOWN; i++)
        answer_lengths_learn(lengths, &ask, &untold, 40, true);
    double likely = answer_length_likely(lengths, &ask, 0, 7);
    assert_true(likely == answer_length_rest(lengths, &ask, 0) && likely > 20 && likely < 80);
    answer_lengths_destroy(lengths);
}

/* Whatever was learnt: probabilities fall, quantiles rise, the rest is the sum of the tail. */
static void test_it_is_a_distribution(void **state)
{
    (void)state;
    struct rng rng = rng_seeded(77);
    for (int round = 0; round < 24; round++) {
        struct answer_lengths *lengths = lengths_of(1);
        struct answer_ask ask = {.prompt_tokens = rng_below(&rng, 1u << (round % 30)),
                                 .max_tokens = 1 + (uint32_t)rng_below(&rng, 5000),
                                 .open = rng_below(&rng, 2)};
        for (uint64_t k = rng_below(&rng, 300); k > 0; k--)
            answer_lengths_learn(lengths, &ask, &untold, (uint32_t)rng_below(&rng, 1u << (k % 24)),
                                 rng_below(&rng, 2));
        uint32_t drawn = (uint32_t)rng_below(&rng, ask.max_tokens);
        double before = 1, sum = 0;
        for (uint32_t tokens = drawn; tokens <= ask.max_tokens; tokens++) {
            double exceeds = answer_length_exceeds(lengths, &ask, drawn, tokens);
            assert_true(exceeds >= 0 && exceeds <= before);
            before = exceeds;
            sum += exceeds;
        }
        assert_true(before == 0);
        assert_near(answer_length_rest(lengths, &ask, drawn), sum, 1e-6);
        double last = drawn;
        for (double q = 0.05; q < 1; q += 0.05) {
            double at = answer_length_quantile(lengths, &ask, drawn, q);
            assert_true(at >= last && at <= ask.max_tokens);
            assert_true(answer_length_exceeds(lengths, &ask, drawn, at) <= 1 - q);
            assert_true(answer_length_exceeds(lengths, &ask, drawn, at - 1) > 1 - q);
            last = at;
        }
        answer_lengths_destroy(lengths);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_is_known_at_first),
        cmocka_unit_test(test_a_distribution_is_learnt),
        cmocka_unit_test(test_tokens_that_came_tell_the_rest),
        cmocka_unit_test(test_cut_answers_do_not_look_short),
        cmocka_unit_test(test_clients_that_leave),
        cmocka_unit_test(test_cells_differ_and_lean_on_each_other),
        cmocka_unit_test(test_a_change_is_learnt),
        cmocka_unit_test(test_followed_answers_teach_the_same),
        cmocka_unit_test(test_longer_answers_are_seen_on_their_way),
        cmocka_unit_test(test_a_rare_cell_follows_its_model),
        cmocka_unit_test(test_answers_of_a_set_length),
        cmocka_unit_test(test_it_is_a_distribution),
        cmocka_unit_test(test_a_guess_is_not_likely),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
