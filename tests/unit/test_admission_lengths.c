/* admission: the shares of prompt lengths. */
#include "admission_fixture.h"

/* A request of that tenth of the lengths, 0 .. 9. */
static struct admission_ask of_length(int tenth, double raw, uint64_t now_us)
{
    struct admission_ask ask = crowded;
    ask.raw = raw;
    ask.rate = 0;
    ask.tokens = 100 * exp2(tenth);
    ask.now_us = now_us;
    return ask;
}

static void test_each_tenth_of_the_lengths_has_as_many_requests(void **state)
{
    (void)state;
    struct rng rng = rng_seeded(21);
    struct admission_class of = fresh();
    int counts[ADMISSION_TENTHS] = {0};
    for (int i = 0; i < 12000; i++) {
        struct admission_request request = {.let_through = false};
        struct admission_ask ask = crowded;
        ask.raw = SURE_HIT;
        ask.tokens = (i < 4000 ? 100 : 1000) * exp2(8 * rng_unit(&rng)); /* they become longer */
        (void)admission_judge(&of, &request, ADMISSION_TURN, &ask, &rng);
        assert_in_range(request.tenth, 1, ADMISSION_TENTHS);
        counts[request.tenth - 1] += i >= 8000;
    }
    for (int tenth = 0; tenth < ADMISSION_TENTHS; tenth++)
        assert_in_range(counts[tenth], 300, 500);
}

/* Returns a class that knows the lengths, and sheds requests: all lengths have the same shares. */
static struct admission_class shedding(struct rng *rng)
{
    struct admission_class of = calibrated(rng);
    of.lengths = fresh().lengths;
    of.shed = 0;
    for (int i = 0; i < 2000; i++) {
        struct admission_request request = {.let_through = false};
        const struct admission_ask ask =
            of_length((int)rng_below(rng, ADMISSION_TENTHS), SURE_HIT, 0);
        assert_int_equal(admission_judge(&of, &request, ADMISSION_TURN, &ask, rng),
                         ADMISSION_TAKEN);
    }
    assert_true(of.crowded > 0.99);
    of.shed = 0.5;
    of.judged_us = 0;
    return of;
}

/* Returns the part of the requests of a length that pass, with the class as it is. */
static double passes(const struct admission_class *was, int tenth, uint64_t now_us, bool is_only,
                     struct rng *rng)
{
    int passed = 0, count = 4000;
    for (int i = 0; i < count; i++) {
        struct admission_class of = *was;
        struct admission_request request = {.let_through = false};
        struct admission_ask ask = of_length(tenth, SURE_HIT, now_us);
        ask.is_only = is_only;
        enum admission_verdict verdict = ADMISSION_TAKEN; /* each is tossed for once */
        for (int stage = 0; stage < ADMISSION_STAGES && verdict == ADMISSION_TAKEN; stage++)
            verdict = admission_judge(&of, &request, stage, &ask, rng);
        passed += verdict == ADMISSION_TAKEN;
        assert_true(verdict == ADMISSION_TAKEN || of.rejected == was->rejected + 1);
    }
    return (double)passed / count;
}

static bool near(double value, double expected)
{
    return fabs(value - expected) < 0.03;
}

static void test_others_give_up_for_a_length_that_is_worst_off(void **state)
{
    (void)state;
    struct rng rng = rng_seeded(22);
    const struct admission_class even = shedding(&rng);
    assert_true(passes(&even, 0, 0, false, &rng) == 1);
    struct admission_class of = even; /* half as many attain lately */
    of.lengths.tenths[9].lately = 0.5;
    assert_true(near(passes(&of, 0, 0, false, &rng), 0.5 / ADMISSION_FAIR));
    assert_true(passes(&of, 9, 0, false, &rng) == 1);
    assert_true(passes(&of, 0, 0, true, &rng) == 1);                       /* it is alone */
    assert_true(passes(&of, 0, ADMISSION_QUIET_US + 1, false, &rng) == 1); /* no other comes */
    of.crowded = ADMISSION_CROWDED / 2; /* free workers: it isn't the load */
    assert_true(passes(&of, 0, 0, false, &rng) == 1);
    of = even;
    of.lengths.tenths[9].lately = 0.5;
    of.lengths.tenths[9].able = 0.5; /* no worker would do: it isn't the load either */
    assert_true(passes(&of, 0, 0, false, &rng) == 1);
    of = even; /* some are better off than others */
    of.lengths.tenths[9].lately = 0.3;
    of.lengths.tenths[4].lately = 0.5;
    assert_true(near(passes(&of, 0, 0, false, &rng), 0.3 / ADMISSION_FAIR));
    assert_true(near(passes(&of, 4, 0, false, &rng), 0.6 / ADMISSION_FAIR));
    of.shed = ADMISSION_HEAVY / 2; /* lighter overload */
    assert_true(near(passes(&of, 4, 0, false, &rng), sqrt(0.6 / ADMISSION_FAIR)));
    of.shed = ADMISSION_SHED / 2; /* the cluster isn't overloaded */
    assert_true(passes(&of, 0, 0, false, &rng) == 1);
    of = even;
    of.lengths.tenths[9].lately = 0.5;
    for (int i = 0; i < ADMISSION_TENTHS - 1; i++) /* lengths are about the same */
        of.lengths.cuts[i] = 10 + ADMISSION_SPREAD * i / (ADMISSION_TENTHS + 1.0);
    assert_true(passes(&of, 0, 0, false, &rng) == 1);
    of = even;
    of.lengths.tenths[9].lately = 0.5;
    of.calibrations[ADMISSION_TURN].requests = CALIBRATION_LEAST - 1; /* too little is known */
    assert_true(passes(&of, 0, 0, false, &rng) == 1);
    of = even; /* all lengths owe one */
    for (int i = 0; i < ADMISSION_TENTHS; i++)
        of.lengths.tenths[i].came = 100, of.lengths.tenths[i].attained = i < 9 ? 50 : 30;
    assert_true(near(passes(&of, 0, 0, false, &rng), 0.36 / ADMISSION_FAIR));
    assert_true(passes(&of, 9, 0, false, &rng) == 1);
    for (int i = 0; i < ADMISSION_TENTHS; i++) /* one missed: chance, and no debt */
        of.lengths.tenths[i].came = 1, of.lengths.tenths[i].attained = i < 9;
    assert_true(passes(&of, 0, 0, false, &rng) > 0.5);
    for (int i = 0; i < ADMISSION_TENTHS; i++) /* one of few that attain at all */
        of.lengths.tenths[i].came = 100, of.lengths.tenths[i].attained = i < 9 ? 1 : 0;
    assert_true(passes(&of, 0, 0, false, &rng) > 0.5);
    for (int i = 0; i < ADMISSION_TENTHS; i++)
        of.lengths.tenths[i].attained = 50;
    of.lengths.tenths[9].attained = 0; /* a wrong belief must not stop all */
    double least = passes(&of, 0, 0, false, &rng);
    assert_true(least > ADMISSION_PASS / 2 && least < 2 * ADMISSION_PASS);
}

/* The longest attain where few others pass. All lengths attain alike in the end. */
static void test_lengths_attain_alike_under_overload(void **state)
{
    (void)state;
    struct rng rng = rng_seeded(23);
    struct admission_class of = shedding(&rng);
    double load = 1, came[2] = {0}, attained[2] = {0};
    for (int i = 0; i < 20000; i++) {
        struct admission_request request = {.let_through = false};
        int tenth = (int)rng_below(&rng, ADMISSION_TENTHS);
        bool longest = tenth == 9, misses = longest && rng_unit(&rng) < load;
        const struct admission_ask ask = of_length(tenth, misses ? SURE_MISS : SURE_HIT, 0);
        of.shed = ADMISSION_HEAVY; /* heavy overload, by others */
        bool taken = admission_judge(&of, &request, ADMISSION_TURN, &ask, &rng) == ADMISSION_TAKEN;
        if (taken)
            admission_ended(&of, &request, misses);
        load += longest ? 0 : (taken - load) / 50;
        came[longest] += i >= 4000;
        attained[longest] += i >= 4000 && taken && !misses;
    }
    double share[] = {attained[0] / came[0], attained[1] / came[1]};
    assert_true(share[1] > 0.8 * share[0] && share[1] < 1.25 * share[0]);
    assert_true(share[0] > 0.3);
}

/* A share is expected at first, and is what came of it in the end. */
static void test_the_outcome_counts_in_the_share_of_its_length(void **state)
{
    (void)state;
    struct rng rng = rng_seeded(24);
    const struct admission_class was = shedding(&rng);
    const double each = 1.0 / ADMISSION_LATELY;
    for (int missed = 0; missed < 2; missed++) {
        struct admission_class of = was;
        of.calibrations[ADMISSION_TURN] = (struct calibration){.requests = 0};
        calibration_note(&of.calibrations[ADMISSION_TURN], 0.5, 0.5, true);
        of.calibrations[ADMISSION_TURN].requests = CALIBRATION_LEAST;
        struct admission_request request = {.let_through = false};
        const struct admission_ask ask = of_length(0, SURE_HIT, 0);
        for (int i = 0; i < ADMISSION_TENTHS; i++)
            of.lengths.tenths[i].lately = 0.5;
        assert_int_equal(admission_judge(&of, &request, ADMISSION_TURN, &ask, &rng),
                         ADMISSION_TAKEN);
        double used = request.at[ADMISSION_TURN].used;
        const double *lately = &of.lengths.tenths[request.tenth - 1].lately,
                     *attained = &of.lengths.tenths[request.tenth - 1].attained;
        assert_true(fabs(*lately - (0.5 + (0.5 - used) * each)) < 1e-9);
        assert_true(fabs(*attained - (1 - used)) < 1e-9);
        for (int twice = 0; twice < 2; twice++) {
            admission_ended(&of, &request, missed);
            assert_true(fabs(*lately - (0.5 + (0.5 - missed) * each)) < 1e-9);
            assert_true(fabs(*attained - !missed) < 1e-9);
        }
    }
    struct admission_class of = was; /* one that is given up is owed to its length */
    of.lengths.tenths[9].lately = 0;
    double *came = &of.lengths.tenths[0].came, before = of.lengths.tenths[0].lately;
    for (int tries = 0; *came <= 0; tries++) {
        assert_true(tries < 10000);
        const struct admission_ask ask = of_length(0, SURE_HIT, 0);
        if (judge_new(&of, &ask, &rng) != ADMISSION_REJECTED)
            of = was, of.lengths.tenths[9].lately = 0;
    }
    assert_true(*came == 1 && of.lengths.tenths[0].attained <= 0 &&
                of.lengths.tenths[0].lately == before);
}

/* Few of those that pass are beyond the bound, as the coin keeps the others away: it must not make
 * the overload look light. When lengths attain alike again, nothing of that is left. */
static void test_requests_that_are_given_up_show_the_overload(void **state)
{
    (void)state;
    struct rng rng = rng_seeded(26);
    struct admission_class of = shedding(&rng);
    struct admission_lengths lengths = of.lengths;
    double passed[2] = {0};
    for (int i = 0; i < 6000; i++) {
        bool even = i >= 3000;
        of.lengths = lengths;
        of.lengths.tenths[9].lately = even ? 1 : 0.3;
        of.shed = ADMISSION_HEAVY / 4;
        const struct admission_ask ask = of_length(0, SURE_HIT, 0);
        bool taken = judge_new(&of, &ask, &rng) == ADMISSION_TAKEN;
        passed[even] += i % 3000 >= 1000 && taken;
    }
    assert_true(near(passed[0] / 2000, 0.3 / ADMISSION_FAIR));
    assert_true(passed[1] / 2000 >= 1 && of.given_up < 1e-6);
    of.given_up = 0.5;
    of.crowded = 0; /* a quiet hour behind the overload: no coin is tossed */
    struct admission_ask quiet = of_length(0, SURE_HIT, 0);
    quiet.wait_us = 0;
    for (int i = 0; i < 1000; i++)
        judge_new(&of, &quiet, &rng);
    assert_true(of.given_up < 0.05);
}

static void test_a_held_request_is_not_given_up(void **state)
{
    (void)state;
    struct rng rng = rng_seeded(25);
    struct admission_class of = distrusted();
    struct admission_request request = {.let_through = false};
    struct admission_ask ask = of_length(0, SURE_MISS, 0);
    assert_int_equal(admission_judge(&of, &request, ADMISSION_TURN, &ask, &rng), ADMISSION_HELD);
    of.shed = 0.5;
    of.lengths.tenths[9].lately = 0;
    for (int i = 0; i < 1000; i++)
        assert_int_equal(admission_judge(&of, &request, ADMISSION_TURN, &ask, &rng),
                         ADMISSION_HELD);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_tenth_of_the_lengths_has_as_many_requests),
        cmocka_unit_test(test_others_give_up_for_a_length_that_is_worst_off),
        cmocka_unit_test(test_lengths_attain_alike_under_overload),
        cmocka_unit_test(test_the_outcome_counts_in_the_share_of_its_length),
        cmocka_unit_test(test_requests_that_are_given_up_show_the_overload),
        cmocka_unit_test(test_a_held_request_is_not_given_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
