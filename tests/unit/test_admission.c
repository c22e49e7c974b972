/* admission: which requests are rejected, how softly that starts, and what it learns. */
#include "router/planner/admission.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define SURE_MISS 0.999
#define SURE_HIT  0.001

/* Judges one that comes when no other has come for long: nothing stands before it. */
static enum admission_verdict judge_at(struct admission_class *of,
                                       struct admission_request *request,
                                       enum admission_stage stage, double raw, struct rng *rng)
{
    const struct admission_ask ask = {.raw = raw,
                                      .prompt_us = 1000,
                                      .tokens = 100,
                                      .now_us = of->judged_us + 2 * ADMISSION_QUIET_US};
    return admission_judge(of, request, stage, &ask, rng);
}

static enum admission_verdict judge(struct admission_class *of, struct admission_request *request,
                                    double raw, struct rng *rng)
{
    return judge_at(of, request, ADMISSION_TURN, raw, rng);
}

/* `count` requests, half of which are predicted to miss and do if `come_true`. None is rejected
 * where the class takes all. Returns the rejected. */
static int serve(struct admission_class *of, int count, bool come_true, struct rng *rng)
{
    int rejected = 0;
    for (int i = 0; i < count; i++) {
        struct admission_request request = {.let_through = false};
        bool miss = i % 2;
        if (judge(of, &request, miss ? SURE_MISS : SURE_HIT, rng) == ADMISSION_REJECTED)
            rejected++;
        else
            admission_ended(of, &request, miss && come_true);
    }
    return rejected;
}

/* Returns a class with a calibration that has just become good. */
static struct admission_class calibrated(struct rng *rng)
{
    struct admission_class of;
    admission_class_init(&of, true);
    assert_int_equal(serve(&of, CALIBRATION_LEAST, true, rng), 0);
    assert_true(calibration_is_good(&of.calibrations[ADMISSION_TURN]));
    return of;
}

static void test_a_class_without_objectives_rejects_nothing(void **state)
{
    (void)state;
    struct rng rng = rng_seeded(1);
    struct admission_class of;
    admission_class_init(&of, false);
    assert_int_equal(serve(&of, 5000, true, &rng), 0);
    assert_int_equal(of.calibrations[ADMISSION_TURN].requests, 0);
}

static void test_nothing_is_rejected_before_the_class_is_calibrated(void **state)
{
    (void)state;
    struct rng rng = rng_seeded(2);
    struct admission_class of;
    admission_class_init(&of, true);
    assert_int_equal(serve(&of, CALIBRATION_LEAST, true, &rng), 0);
    assert_true(serve(&of, 200, true, &rng) > 0);
}

/* Predictions that don't come true: the map learns it, and the error says so meanwhile. */
static void test_nothing_is_rejected_on_predictions_that_do_not_come_true(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct rng rng = rng_seeded(seed);
        struct admission_class of;
        admission_class_init(&of, true);
        assert_int_equal(serve(&of, 3000, false, &rng), 0);
        assert_true(calibration_is_good(&of.calibrations[ADMISSION_TURN]));
    }
}

static void test_rejection_starts_softly(void **state)
{
    (void)state;
    int first = 0;
    struct rng rng = rng_seeded(4);
    for (int run = 0; run < 400; run++) {
        struct admission_class of = calibrated(&rng);
        struct admission_request request = {.let_through = false};
        enum admission_verdict verdict = judge(&of, &request, SURE_MISS, &rng);
        first += verdict == ADMISSION_REJECTED;
        assert_true(request.let_through == (verdict == ADMISSION_LET_THROUGH));
    }
    assert_in_range(first, 400 * ADMISSION_FIRST / 2, 400 * ADMISSION_FIRST * 2);
    struct admission_class of = calibrated(&rng);
    (void)serve(&of, 1000, true, &rng); /* 500 misses */
    int later = serve(&of, 4000, true, &rng);
    assert_in_range(later, 2000 * (ADMISSION_MOST - 0.02), 2000 * (ADMISSION_MOST + 0.02));
    assert_true(of.let_through > 50 && of.refuted == 0);
}

/* The world becomes better at once: requests that are let through find it out. */
static void test_what_is_let_through_ends_a_wrong_belief(void **state)
{
    (void)state;
    struct rng rng = rng_seeded(5);
    struct admission_class of = calibrated(&rng);
    (void)serve(&of, 3000, true, &rng);
    assert_true(of.share > 0.9);
    (void)serve(&of, 3000, false, &rng);
    assert_true(of.refuted > 0);
    assert_true(of.share < ADMISSION_MOST);
    assert_int_equal(serve(&of, 1000, false, &rng), 0);
}

static void test_a_request_that_was_let_through_stays_taken(void **state)
{
    (void)state;
    struct rng rng = rng_seeded(6);
    struct admission_class of = calibrated(&rng);
    (void)serve(&of, 3000, true, &rng);
    struct admission_request request = {.let_through = false};
    for (int i = 0; i < 1000 && !request.let_through; i++)
        (void)judge(&of, &request, SURE_MISS, &rng);
    assert_true(request.let_through);
    for (int i = 0; i < 100; i++) /* its turn comes, and again after a loss */
        assert_int_equal(judge(&of, &request, SURE_MISS, &rng), ADMISSION_TAKEN);
}

static void test_the_stages_are_calibrated_apart(void **state)
{
    (void)state;
    struct rng rng = rng_seeded(7);
    struct admission_class of = calibrated(&rng);
    struct admission_request request = {.let_through = false};
    for (int i = 0; i < 100; i++)
        assert_int_equal(judge_at(&of, &request, ADMISSION_ARRIVAL, SURE_MISS, &rng),
                         ADMISSION_TAKEN);
    assert_true(request.at[ADMISSION_ARRIVAL].known && !request.at[ADMISSION_TURN].known);
    admission_ended(&of, &request, true);
    assert_int_equal(of.calibrations[ADMISSION_ARRIVAL].requests, 1);
    assert_int_equal(of.calibrations[ADMISSION_TURN].requests, CALIBRATION_LEAST);
}

static void test_the_first_prediction_of_a_stage_counts(void **state)
{
    (void)state;
    struct rng rng = rng_seeded(8);
    struct admission_class of;
    admission_class_init(&of, true);
    struct admission_request request = {.let_through = false};
    (void)judge(&of, &request, 0.25, &rng);
    (void)judge(&of, &request, 0.75, &rng);
    assert_true(request.at[ADMISSION_TURN].raw == 0.25);
}

static void test_an_uncertain_miss_is_no_reason(void **state)
{
    (void)state;
    struct rng rng = rng_seeded(9);
    struct admission_class of;
    admission_class_init(&of, true);
    for (int i = 0; i < 4000; i++) { /* two of three miss, as predicted */
        struct admission_request request = {.let_through = false};
        assert_int_equal(judge(&of, &request, 0.6, &rng), ADMISSION_TAKEN);
        admission_ended(&of, &request, rng_below(&rng, 10) < 6);
    }
    assert_true(calibration_is_good(&of.calibrations[ADMISSION_TURN]));
}

/* Work stands before it, and others wait for the same workers. */
static const struct admission_ask crowded = {.raw = SURE_MISS,
                                             .wait_us = 500000,
                                             .prompt_us = 100000,
                                             .ttft_us = 1000000,
                                             .rate = 1e-5,
                                             .tokens = 1000};

/* Its predictions are right, but those that were used were wrong: its calibration isn't good. */
static struct admission_class distrusted(void)
{
    struct admission_class of;
    admission_class_init(&of, true);
    for (int i = 0; i < 2 * CALIBRATION_LEAST; i++) {
        double raw = (i % 20 + 0.5) / 20;
        calibration_note(&of.calibrations[ADMISSION_TURN], raw, raw < 0.5 ? 0.99 : 0.01,
                         (i / 20 * 7 % 20 + 0.5) / 20 < raw);
    }
    assert_false(calibration_is_good(&of.calibrations[ADMISSION_TURN]));
    return of;
}

static enum admission_verdict judge_new(struct admission_class *of, const struct admission_ask *ask,
                                        struct rng *rng)
{
    struct admission_request request = {.let_through = false};
    return admission_judge(of, &request, ADMISSION_TURN, ask, rng);
}

static void test_a_request_that_would_miss_is_held_while_the_calibration_is_bad(void **state)
{
    (void)state;
    struct rng rng = rng_seeded(11);
    struct admission_class of = distrusted();
    struct admission_request request = {.let_through = false};
    assert_int_equal(admission_judge(&of, &request, ADMISSION_TURN, &crowded, &rng),
                     ADMISSION_HELD);
    assert_true(request.held);
    assert_int_equal(admission_judge(&of, &request, ADMISSION_TURN, &crowded, &rng),
                     ADMISSION_HELD);
    assert_int_equal(of.held, 1);
    struct admission_ask free = crowded; /* no other needs the worker any more */
    free.wait_us = 0;
    free.now_us = 2 * ADMISSION_QUIET_US;
    free.raw = 0.99;
    assert_int_equal(admission_judge(&of, &request, ADMISSION_TURN, &free, &rng), ADMISSION_TAKEN);
    assert_true(request.at[ADMISSION_TURN].raw == 0.99); /* as it was placed at last */
    admission_ended(&of, &request, true);
    assert_true(of.share > ADMISSION_FIRST);
    admission_class_init(&of, false);
    assert_int_equal(judge_new(&of, &crowded, &rng), ADMISSION_TAKEN);
}

/* Requests that are all held calibrate their class: then the next ones are rejected. */
static void test_held_requests_calibrate(void **state)
{
    (void)state;
    struct rng rng = rng_seeded(14);
    struct admission_class of = distrusted();
    int rejected = 0;
    for (int i = 0; i < 20 * CALIBRATION_LEAST; i++) {
        struct admission_request request = {.let_through = false};
        rejected +=
            admission_judge(&of, &request, ADMISSION_TURN, &crowded, &rng) == ADMISSION_REJECTED;
        admission_ended(&of, &request, true);
    }
    assert_true(calibration_is_good(&of.calibrations[ADMISSION_TURN]));
    assert_true(of.share == ADMISSION_MOST && rejected > CALIBRATION_LEAST);
}

/* A class of which too little is known holds none; and the pace of the queue alone holds none. */
static void test_nothing_known_holds_none(void **state)
{
    (void)state;
    struct rng rng = rng_seeded(15);
    struct admission_class of;
    admission_class_init(&of, true);
    for (int i = 0; i < CALIBRATION_LEAST; i++) {
        struct admission_request request = {.let_through = false};
        assert_int_equal(admission_judge(&of, &request, ADMISSION_ARRIVAL, &crowded, &rng),
                         ADMISSION_TAKEN);
        assert_int_equal(admission_judge(&of, &request, ADMISSION_TURN, &crowded, &rng),
                         ADMISSION_TAKEN);
        admission_ended(&of, &request, true);
    }
    assert_true(calibration_is_good(&of.calibrations[ADMISSION_TURN]));
    of = distrusted();
    of.calibrations[ADMISSION_ARRIVAL] = of.calibrations[ADMISSION_TURN];
    struct admission_request waits = {.let_through = false};
    assert_int_equal(admission_judge(&of, &waits, ADMISSION_ARRIVAL, &crowded, &rng),
                     ADMISSION_TAKEN);
    assert_int_equal(admission_judge(&of, &waits, ADMISSION_TURN, &crowded, &rng), ADMISSION_HELD);
    uint64_t known = of.calibrations[ADMISSION_ARRIVAL].requests;
    admission_ended(&of, &waits, true); /* it lost its place in the queue */
    assert_int_equal(of.calibrations[ADMISSION_ARRIVAL].requests, known);
}

/* It isn't placed while others come, though nothing stands before it at the moment. */
static void test_a_held_request_waits_while_others_are_shed(void **state)
{
    (void)state;
    struct rng rng = rng_seeded(12);
    struct admission_class of = distrusted();
    struct admission_request request = {.let_through = false};
    for (int i = 0; i < ADMISSION_REQUESTS; i++)
        (void)judge_new(&of, &crowded, &rng);
    (void)admission_judge(&of, &request, ADMISSION_TURN, &crowded, &rng);
    struct admission_ask first = crowded;
    first.wait_us = 0;
    assert_int_equal(admission_judge(&of, &request, ADMISSION_TURN, &first, &rng), ADMISSION_HELD);
    struct admission_request later = request;
    first.now_us = ADMISSION_QUIET_US + 1;
    assert_int_equal(admission_judge(&of, &request, ADMISSION_TURN, &first, &rng), ADMISSION_TAKEN);
    first.now_us = 0;
    for (int i = 0; i < 5 * ADMISSION_REQUESTS; i++) /* all would miss: no room is kept for them */
        (void)judge_new(&of, &crowded, &rng);
    assert_int_equal(admission_judge(&of, &later, ADMISSION_TURN, &first, &rng), ADMISSION_TAKEN);
}

static void test_misses_of_others_and_of_later_ones_count(void **state)
{
    (void)state;
    struct rng rng = rng_seeded(13);
    struct admission_class of = distrusted();
    struct admission_ask ask = crowded;
    ask.raw = 0.3; /* 10 a second come, each takes 0.1 s: half of them later, with 0.5 s of 1 s */
    assert_int_equal(judge_new(&of, &ask, &rng), ADMISSION_TAKEN);
    ask.rate = 2e-5;
    assert_int_equal(judge_new(&of, &ask, &rng), ADMISSION_HELD);
    ask.wait_us = 300000; /* a shorter queue takes it */
    assert_int_equal(judge_new(&of, &ask, &rng), ADMISSION_TAKEN);
    ask.others = 0.2;
    assert_int_equal(judge_new(&of, &ask, &rng), ADMISSION_HELD);
    ask.others = 0;
    /* KV is such a queue, too. */
    ask.room_us = 1000000, ask.room_each_us = 100000, ask.room_left_us = 4000000;
    ask.drawing_rate = 1e-6;
    assert_int_equal(judge_new(&of, &ask, &rng), ADMISSION_TAKEN);
    ask.drawing_rate = 1e-5;
    assert_int_equal(judge_new(&of, &ask, &rng), ADMISSION_HELD);
    ask.room_left_us = 0; /* no TPOT objective */
    assert_int_equal(judge_new(&of, &ask, &rng), ADMISSION_TAKEN);
}

/* Under overload a long prompt is taken as short ones are, though it takes longer. */
static void test_prompts_of_all_lengths_cost_later_ones_the_same(void **state)
{
    (void)state;
    struct rng rng = rng_seeded(14);
    struct admission_class of = distrusted();
    struct admission_ask ask = crowded;
    ask.raw = 0.3;
    ask.rate = 0; /* the mean prompt is 100 ms of 1,000 tokens */
    for (int i = 0; i < 10 * ADMISSION_REQUESTS; i++)
        assert_int_equal(judge_new(&of, &ask, &rng), ADMISSION_TAKEN);
    for (int twice = 0; twice < 2; twice++) { /* below the bound, and above it */
        for (double length = 0.25; length <= 4; length *= 4) {
            struct admission_ask other = crowded;
            other.raw = 0.3;
            other.rate = twice ? 2e-5 : 1e-5;
            other.prompt_us *= length;
            other.tokens *= length;
            assert_int_equal(judge_new(&of, &other, &rng),
                             twice ? ADMISSION_HELD : ADMISSION_TAKEN);
            other.wait_us = 0; /* room is the same */
            other.room_us = 1000, other.room_each_us = 1e5 * length, other.room_left_us = 4e6;
            other.drawing_rate = twice ? 8e-2 : 1e-2;
            assert_int_equal(judge_new(&of, &other, &rng),
                             twice ? ADMISSION_HELD : ADMISSION_TAKEN);
            other.room_us = 0; /* so are others' misses, up to the mean's */
            other.others = 0.6 * length;
            other.raw = twice ? 0.5 : 0.3;
            assert_int_equal(judge_new(&of, &other, &rng),
                             twice && length >= 1 ? ADMISSION_HELD : ADMISSION_TAKEN);
        }
    }
    struct admission_ask cached = crowded; /* its siblings have computed it */
    cached.raw = 0.3, cached.rate = 2e-5;
    cached.prompt_us = 10000, cached.cached_tokens = 900;
    assert_int_equal(judge_new(&of, &cached, &rng), ADMISSION_TAKEN);
}

/* Few of the ones that should be rejected are let through while all is busy. */
static void test_few_are_let_through_where_others_are_taken(void **state)
{
    (void)state;
    struct rng rng = rng_seeded(15);
    struct admission_class of = calibrated(&rng);
    (void)serve(&of, 3000, true, &rng);
    assert_true(of.share == ADMISSION_MOST);
    uint64_t before = of.let_through, taken = 0;
    for (int i = 0; i < 20000; i++) { /* nine of ten are too many */
        struct admission_ask ask = crowded;
        ask.raw = i % 10 ? SURE_MISS : SURE_HIT;
        enum admission_verdict verdict = judge_new(&of, &ask, &rng);
        taken += verdict == ADMISSION_TAKEN;
        assert_int_not_equal(verdict, ADMISSION_HELD);
    }
    assert_int_equal(taken, 2000);
    assert_in_range(of.let_through - before, 20, 2000 / ADMISSION_EXPLORE + 3);
}

/* After an overload in which all missed, one after another finds an idle cluster. */
static void test_an_idle_cluster_rejects_nothing(void **state)
{
    (void)state;
    struct rng rng = rng_seeded(17);
    struct admission_class of;
    admission_class_init(&of, true);
    struct admission_ask ask = crowded;
    for (int i = 0; i < 2000; i++) {
        struct admission_request request = {.let_through = false};
        ask.now_us += 10000;
        enum admission_verdict verdict = admission_judge(&of, &request, ADMISSION_TURN, &ask, &rng);
        if (verdict == ADMISSION_HELD || i < 600) /* first it isn't known that they miss */
            calibration_note(&of.calibrations[ADMISSION_TURN], SURE_MISS, SURE_MISS, true);
        if (verdict != ADMISSION_REJECTED)
            admission_ended(&of, &request, true);
    }
    assert_true(of.share == ADMISSION_MOST && of.shed > ADMISSION_SHED);
    ask.wait_us = 0; /* an idle worker is not enough: others may need it */
    ask.now_us += 10000;
    assert_int_equal(judge_new(&of, &ask, &rng), ADMISSION_REJECTED);
    ask.is_only = true;
    for (int i = 0; i < 40; i++) {
        struct admission_request request = {.let_through = false};
        ask.now_us += 10000;
        enum admission_verdict verdict = admission_judge(&of, &request, ADMISSION_TURN, &ask, &rng);
        assert_true(verdict == ADMISSION_TAKEN || verdict == ADMISSION_LET_THROUGH);
        admission_ended(&of, &request, false);
    }
    assert_true(of.refuted && of.share < ADMISSION_MOST); /* it has learnt from them */
}

static void test_a_request_is_the_only_one_while_no_other_waits_or_runs(void **state)
{
    (void)state;
    static struct placement placement;
    static struct placement_request requests[2];
    const struct goodput_request asked = {.weight = 1};
    const struct decision_alternative won = {.others = 0};
    assert_int_equal(placement_init(&placement, &(struct placement_config){.model_count = 1}),
                     STATUS_OK);
    for (int i = 0; i < 2; i++)
        placement_arrived(&placement, &requests[i], 0, 0);
    for (int i = 0; i < 2; i++)
        assert_false(admission_ask_of(&placement, &requests[i], &asked, &won, 0).is_only);
    placement_ended(&placement, &requests[0]);
    assert_true(admission_ask_of(&placement, &requests[1], &asked, &won, 0).is_only);
    placement_ended(&placement, &requests[1]);
    placement_deinit(&placement);
}

static void test_the_first_outcome_counts(void **state)
{
    (void)state;
    struct rng rng = rng_seeded(16);
    struct admission_class of;
    admission_class_init(&of, true);
    struct admission_request request = {.let_through = false};
    (void)judge(&of, &request, 0.5, &rng);
    admission_ended(&of, &request, true); /* its TTFT has passed */
    admission_ended(&of, &request, true); /* it has ended */
    assert_int_equal(of.calibrations[ADMISSION_TURN].requests, 1);
}

static void test_either_objective_may_be_missed(void **state)
{
    (void)state;
    const struct goodput_class slo = {.ended = 0};
    const struct slo_objective both = {.ttft_us = 100000, .tpot_us = 10000},
                               first = {.ttft_us = 100000}, none = {0};
    const struct prediction fits = {.ttft_us = 10000, .tpot_us = 1000},
                            late = {.ttft_us = 1000000, .tpot_us = 1000},
                            slow = {.ttft_us = 10000, .tpot_us = 100000},
                            edge = {.ttft_us = 100000, .tpot_us = 10000}, unknown = {0};
    assert_true(admission_miss(&slo, &fits, &both) < 0.1);
    assert_true(admission_miss(&slo, &late, &both) > 0.9);
    assert_true(admission_miss(&slo, &slow, &both) > 0.9);
    assert_true(admission_miss(&slo, &slow, &first) < 0.1);
    assert_true(admission_miss(&slo, &late, &none) == 0);
    double one = admission_miss(&slo, &edge, &first);
    double two = admission_miss(&slo, &edge, &both);
    assert_true(one > 0 && one < 1 && two > one && two < 2 * one);
    assert_true(admission_miss(&slo, &unknown, &both) < 0);
}

static void test_a_wait_against_what_is_left(void **state)
{
    (void)state;
    const struct {
        uint64_t wait_us, left_us;
        double miss;
    } table[] = {{0, 0, 0},      {0, 100, 0},      {100, 200, 0}, {100, 300, 0},
                 {100, 100, .5}, {400, 100, .875}, {100, 0, 1}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        assert_true(admission_wait_miss(table[i].wait_us, table[i].left_us) == table[i].miss);
}

static void test_the_time_to_come_back_is_jittered(void **state)
{
    (void)state;
    struct rng rng = rng_seeded(10);
    uint64_t least = UINT64_MAX, most = 0;
    for (int i = 0; i < 1000; i++) {
        uint64_t us = admission_retry_us(4000000, &rng);
        least = us < least ? us : least;
        most = us > most ? us : most;
    }
    assert_in_range(least, 4000000, 4100000);
    assert_in_range(most, 5900000, 6000000);
    assert_in_range(admission_retry_us(0, &rng), ADMISSION_RETRY_LEAST_US,
                    ADMISSION_RETRY_LEAST_US * 3 / 2);
    assert_in_range(admission_retry_us(UINT64_MAX, &rng), ADMISSION_RETRY_MOST_US,
                    ADMISSION_RETRY_MOST_US * 3 / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_class_without_objectives_rejects_nothing),
        cmocka_unit_test(test_nothing_is_rejected_before_the_class_is_calibrated),
        cmocka_unit_test(test_nothing_is_rejected_on_predictions_that_do_not_come_true),
        cmocka_unit_test(test_rejection_starts_softly),
        cmocka_unit_test(test_what_is_let_through_ends_a_wrong_belief),
        cmocka_unit_test(test_a_request_that_was_let_through_stays_taken),
        cmocka_unit_test(test_the_stages_are_calibrated_apart),
        cmocka_unit_test(test_the_first_prediction_of_a_stage_counts),
        cmocka_unit_test(test_an_uncertain_miss_is_no_reason),
        cmocka_unit_test(test_a_request_that_would_miss_is_held_while_the_calibration_is_bad),
        cmocka_unit_test(test_a_held_request_waits_while_others_are_shed),
        cmocka_unit_test(test_held_requests_calibrate),
        cmocka_unit_test(test_nothing_known_holds_none),
        cmocka_unit_test(test_misses_of_others_and_of_later_ones_count),
        cmocka_unit_test(test_prompts_of_all_lengths_cost_later_ones_the_same),
        cmocka_unit_test(test_few_are_let_through_where_others_are_taken),
        cmocka_unit_test(test_an_idle_cluster_rejects_nothing),
        cmocka_unit_test(test_a_request_is_the_only_one_while_no_other_waits_or_runs),
        cmocka_unit_test(test_the_first_outcome_counts),
        cmocka_unit_test(test_either_objective_may_be_missed),
        cmocka_unit_test(test_a_wait_against_what_is_left),
        cmocka_unit_test(test_the_time_to_come_back_is_jittered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
