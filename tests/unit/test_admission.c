/* admission: which requests are rejected, how softly that starts, and what it learns. */
#include "admission_fixture.h"

static const struct slo_objective none = {0};

static void test_a_class_without_objectives_rejects_nothing(void **state)
{
    (void)state;
    struct rng rng = rng_seeded(1);
    struct admission_class of;
    admission_class_init(&of, &none);
    assert_true(!serve(&of, 5000, true, &rng) && !of.calibrations[ADMISSION_TURN].requests);
}

static void test_nothing_is_rejected_before_the_class_is_calibrated(void **state)
{
    (void)state;
    struct rng rng = rng_seeded(2);
    struct admission_class of = fresh();
    assert_true(!serve(&of, CALIBRATION_LEAST, true, &rng) && serve(&of, 200, true, &rng) > 0);
}

/* Predictions that don't come true: the map learns it, and the error says so meanwhile. */
static void test_nothing_is_rejected_on_predictions_that_do_not_come_true(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct rng rng = rng_seeded(seed);
        struct admission_class of = fresh();
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
    assert_true(of.refuted > 0 && of.share < ADMISSION_MOST);
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
    assert_true(of.calibrations[ADMISSION_ARRIVAL].requests == 1 &&
                of.calibrations[ADMISSION_TURN].requests == CALIBRATION_LEAST);
}

static void test_the_first_prediction_of_a_stage_counts(void **state)
{
    (void)state;
    struct rng rng = rng_seeded(8);
    struct admission_class of = fresh();
    struct admission_request request = {.let_through = false};
    (void)judge(&of, &request, 0.25, &rng), (void)judge(&of, &request, 0.75, &rng);
    assert_true(request.at[ADMISSION_TURN].raw == 0.25);
}

static void test_an_uncertain_miss_is_no_reason(void **state)
{
    (void)state;
    struct rng rng = rng_seeded(9);
    struct admission_class of = fresh();
    for (int i = 0; i < 4000; i++) { /* two of three miss, as predicted */
        struct admission_request request = {.let_through = false};
        assert_int_equal(judge(&of, &request, 0.6, &rng), ADMISSION_TAKEN);
        admission_ended(&of, &request, rng_below(&rng, 10) < 6);
    }
    assert_true(calibration_is_good(&of.calibrations[ADMISSION_TURN]));
}

static void test_a_request_that_would_miss_is_held_while_the_calibration_is_bad(void **state)
{
    (void)state;
    struct rng rng = rng_seeded(11);
    struct admission_class of = distrusted();
    struct admission_request request = {.let_through = false};
    for (int i = 0; i < 2; i++)
        assert_int_equal(admission_judge(&of, &request, ADMISSION_TURN, &crowded, &rng),
                         ADMISSION_HELD);
    assert_true(request.held && of.held == 1);
    struct admission_ask full = crowded; /* no more may be held: the next one is rejected */
    full.hold_full = true;
    assert_true(judge_new(&of, &full, &rng) == ADMISSION_REJECTED && of.held == 1 &&
                of.rejected == 1);
    full.is_owed = true; /* or placed, in the turn of such requests */
    assert_int_equal(judge_new(&of, &full, &rng), ADMISSION_TAKEN);
    struct admission_class good = calibrated(&rng);
    good.share = ADMISSION_MOST; /* others are rejected by now, it isn't */
    for (int i = 0; i < 100; i++)
        assert_int_equal(admission_judge(&good, &request, ADMISSION_TURN, &crowded, &rng),
                         ADMISSION_HELD);
    struct admission_ask free = crowded; /* no other needs the worker any more */
    free.wait_us = 0;
    free.now_us = 2 * ADMISSION_QUIET_US;
    free.raw = 0.99;
    assert_int_equal(admission_judge(&of, &request, ADMISSION_TURN, &free, &rng), ADMISSION_TAKEN);
    assert_true(request.at[ADMISSION_TURN].raw == 0.99); /* as it was placed at last */
    admission_ended(&of, &request, true);
    assert_true(of.share > ADMISSION_FIRST);
    admission_class_init(&of, &none);
    assert_int_equal(judge_new(&of, &crowded, &rng), ADMISSION_TAKEN);
}

/* A request that is held calibrates by the prediction by which it is placed: one that misses while
 * it waits missed because it was held. */
static void test_held_requests_calibrate_when_they_are_placed(void **state)
{
    (void)state;
    struct rng rng = rng_seeded(14);
    struct admission_class of = distrusted();
    const struct calibration *turn = &of.calibrations[ADMISSION_TURN];
    uint64_t known = turn->requests;
    struct admission_request waits = {.let_through = false}, placed = waits, later = waits;
    assert_int_equal(admission_judge(&of, &waits, ADMISSION_TURN, &crowded, &rng), ADMISSION_HELD);
    admission_ended(&of, &waits, true); /* late */
    assert_int_equal(turn->requests, known);
    assert_true(of.share > ADMISSION_FIRST); /* but to hold it was right */
    struct admission_ask owed = crowded;
    owed.is_owed = true;
    double raw = waits.at[ADMISSION_TURN].raw;
    owed.raw = 1; /* it is late already: this is no prediction any more */
    assert_int_equal(admission_judge(&of, &waits, ADMISSION_TURN, &owed, &rng), ADMISSION_TAKEN);
    assert_true(waits.at[ADMISSION_TURN].raw == raw && !waits.at[ADMISSION_TURN].known);
    /* Its placement is that of such requests. */
    owed.raw = 0.8;
    assert_int_equal(admission_judge(&of, &placed, ADMISSION_TURN, &owed, &rng), ADMISSION_TAKEN);
    assert_true(placed.held);
    assert_int_equal(admission_judge(&of, &later, ADMISSION_TURN, &crowded, &rng), ADMISSION_HELD);
    assert_int_equal(admission_judge(&of, &later, ADMISSION_TURN, &owed, &rng), ADMISSION_TAKEN);
    assert_true(later.at[ADMISSION_TURN].raw == 0.8);
    admission_ended(&of, &placed, true), admission_ended(&of, &later, true);
    assert_int_equal(turn->requests, known + 2);
}

/* A class of which too little is known holds none but requests that the load has beyond the bound;
 * and the pace of the queue alone holds none. */
static void test_nothing_known_holds_none(void **state)
{
    (void)state;
    struct rng rng = rng_seeded(15);
    struct admission_class of = fresh();
    struct admission_ask first = crowded, likely = crowded, beyond = crowded, hopeless = crowded,
                         costly = crowded;
    first.wait_us = 0;
    enum admission_verdict verdict;
    likely.rate = beyond.rate = 0; /* no other comes */
    costly.raw = 0.3, costly.others = 0.65;
    hopeless.alone = 1; /* it would miss on a worker with nothing else to do */
    for (int i = 0; i < CALIBRATION_LEAST; i++) {
        struct admission_request request = {.let_through = false}, sure = request, alone = request,
                                 lost = request, costs = request;
        assert_int_equal(admission_judge(&of, &request, ADMISSION_ARRIVAL, &crowded, &rng),
                         ADMISSION_TAKEN);
        likely.raw = i < ADMISSION_DOUBTED / 10 ? ADMISSION_SURE - 0.03 : ADMISSION_BOUND - 0.01;
        beyond.raw = i < ADMISSION_DOUBTED ? SURE_MISS : ADMISSION_SURE - 0.01;
        assert_int_equal(admission_judge(&of, &request, ADMISSION_TURN, &likely, &rng),
                         ADMISSION_TAKEN);
        assert_int_equal(admission_judge(&of, &sure, ADMISSION_TURN, &beyond, &rng),
                         ADMISSION_HELD);
        verdict = admission_judge(&of, &costs, ADMISSION_TURN, &costly, &rng);
        if (i < ADMISSION_DOUBTED / 3 || i >= ADMISSION_DOUBTED)
            assert_int_equal(verdict, i < ADMISSION_DOUBTED ? ADMISSION_TAKEN : ADMISSION_HELD);
        assert_int_equal(admission_judge(&of, &alone, ADMISSION_TURN, &first, &rng),
                         ADMISSION_TAKEN);
        assert_int_equal(admission_judge(&of, &lost, ADMISSION_TURN, &hopeless, &rng),
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
    struct admission_ask ask = crowded;
    ask.tokens = 0; /* its length isn't known */
    for (int i = 0; i < ADMISSION_REQUESTS; i++)
        (void)judge_new(&of, &ask, &rng);
    (void)admission_judge(&of, &request, ADMISSION_TURN, &ask, &rng);
    struct admission_ask first = ask;
    first.wait_us = 0;
    assert_int_equal(admission_judge(&of, &request, ADMISSION_TURN, &first, &rng), ADMISSION_HELD);
    struct admission_request later = request;
    first.now_us = ADMISSION_QUIET_US + 1;
    assert_int_equal(admission_judge(&of, &request, ADMISSION_TURN, &first, &rng), ADMISSION_TAKEN);
    first.now_us = 0;
    for (int i = 0; i < 5 * ADMISSION_REQUESTS; i++) /* all would miss: no room is kept for them */
        (void)judge_new(&of, &ask, &rng);
    assert_int_equal(admission_judge(&of, &later, ADMISSION_TURN, &first, &rng), ADMISSION_TAKEN);
    struct admission_ask good = first; /* nearly all are shed, and those that are taken attain */
    good.raw = SURE_HIT;
    for (int i = 0; i < ADMISSION_REQUESTS; i++) {
        struct admission_request taken = {.let_through = false};
        assert_int_equal(admission_judge(&of, &taken, ADMISSION_TURN, &good, &rng),
                         ADMISSION_TAKEN);
        admission_ended(&of, &taken, false);
        for (int k = 0; k < 5 * ADMISSION_REQUESTS && of.shed < ADMISSION_MOST; k++)
            (void)judge_new(&of, &ask, &rng);
    }
    assert_true(of.attained > ADMISSION_WORTH && of.shed >= ADMISSION_MOST);
    assert_int_equal(admission_judge(&of, &later, ADMISSION_TURN, &first, &rng), ADMISSION_HELD);
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
    ask.room_us = 1000000, ask.room_each_us = 100000; /* and 4 s to spare */
    ask.steps = 100, ask.step_us = 10000;
    ask.drawing_rate = 1e-6;
    assert_int_equal(judge_new(&of, &ask, &rng), ADMISSION_TAKEN);
    ask.drawing_rate = 1e-5;
    assert_int_equal(judge_new(&of, &ask, &rng), ADMISSION_HELD);
    of.objective.tpot_us = 0;
    assert_int_equal(judge_new(&of, &ask, &rng), ADMISSION_TAKEN);
}

/* Its own P(miss) came true too seldom: those of others would, too. Under heavy overload that says
 * little. */
static void test_misses_of_others_are_corrected_as_its_own(void **state)
{
    (void)state;
    struct rng rng = rng_seeded(27);
    for (int right = 0; right < 2; right++)
        for (int heavy = 0; heavy < 2; heavy++) {
            struct admission_class of = fresh();
            struct admission_ask ask = crowded;
            for (int i = 0; i < 4 * CALIBRATION_LEAST; i++)
                calibration_note(&of.calibrations[ADMISSION_TURN], 0.3, right ? 0.3 : 0,
                                 right && i % 10 < 3);
            of.share = ADMISSION_MOST;
            of.shed = heavy ? ADMISSION_HEAVY : 0;
            of.prompt_us = ask.prompt_us;
            ask.raw = 0.3, ask.rate = 0, ask.tokens = 0;
            ask.now_us = 2 * ADMISSION_QUIET_US; /* no other came: the coin isn't tossed */
            ask.others = 1.5;
            assert_int_equal(judge_new(&of, &ask, &rng),
                             right || heavy ? ADMISSION_REJECTED : ADMISSION_TAKEN);
        }
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
            of.shed = 0; /* none is given up for another length */
            other.raw = 0.3;
            other.rate = twice ? 2e-5 : 1e-5;
            other.prompt_us *= length;
            other.tokens *= length;
            assert_int_equal(judge_new(&of, &other, &rng),
                             twice ? ADMISSION_HELD : ADMISSION_TAKEN);
            other.wait_us = 0; /* room is the same */
            of.shed = 0;
            other.room_us = 1000, other.room_each_us = 1e5 * length;
            other.steps = 100, other.step_us = 10000;
            other.drawing_rate = twice ? 8e-2 : 1e-2;
            assert_int_equal(judge_new(&of, &other, &rng),
                             twice ? ADMISSION_HELD : ADMISSION_TAKEN);
            other.room_us = 0; /* so are others' misses, up to the mean's */
            other.others = 0.6 * length;
            of.shed = 0;
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
        ask.tokens = 0; /* its length isn't known */
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
    struct admission_class of = fresh();
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

/* A request is the only one while no other waits or runs. One with its own objectives isn't taken
 * at the cost of later ones: these have the class's. */
static void test_the_choice_that_won_tells_of_others(void **state)
{
    (void)state;
    static struct placement placement;
    static struct placement_request requests[2];
    const struct goodput_request asked = {
        .is = {.prompt_tokens = 1000, .answer_tokens = 101, .objective = {7200000000, 7200000000}},
        .weight = 1};
    const struct decision_alternative won = {.others = 0};
    struct rng rng = rng_seeded(26);
    assert_int_equal(placement_init(&placement, &(struct placement_config){.model_count = 1}),
                     STATUS_OK);
    for (int i = 0; i < 2; i++)
        placement_arrived(&placement, &requests[i], 0, 0);
    for (int i = 0; i < 2; i++)
        assert_false(admission_ask_of(&placement, &requests[i], &asked, &won, 0).is_only);
    for (int queue = 0; queue < 3; queue++) { /* KV is such a queue, too, and so is a link */
        struct admission_class of = distrusted();
        requests[0].predicted = (struct prediction){.prefill_us = 100000,
                                                    .step_us = 10000,
                                                    .wait_us = queue ? 0 : 500000,
                                                    .room_us = queue == 1 ? 1000000 : 0,
                                                    .room_each_us = queue == 1 ? 100000 : 0,
                                                    .link_us = queue == 2 ? 1000000 : 0,
                                                    .link_each_us = 100000};
        struct admission_ask ask = admission_ask_of(&placement, &requests[0], &asked, &won, 0.3);
        assert_int_equal(judge_new(&of, &ask, &rng), ADMISSION_TAKEN);
        ask.rate = ask.drawing_rate = 4e-5;
        assert_int_equal(judge_new(&of, &ask, &rng), ADMISSION_HELD);
    }
    placement_ended(&placement, &requests[0]);
    assert_true(admission_ask_of(&placement, &requests[1], &asked, &won, 0).is_only);
    placement_ended(&placement, &requests[1]);
    placement_deinit(&placement);
}

/* A late request is no use to a worker that draws so many answers that all miss their TPOT. */
static void test_answers_that_miss_end_first(void **state)
{
    (void)state;
    struct rng rng = rng_seeded(26);
    struct admission_class of = fresh();
    struct admission_ask late = crowded;
    struct admission_request request = {.let_through = false};
    late.raw = 1;
    assert_int_equal(admission_judge(&of, &request, ADMISSION_TURN, &late, &rng), ADMISSION_HELD);
    late.wait_us = 0;
    late.spoilt = ADMISSION_BOUND + 0.01;
    assert_int_equal(admission_judge(&of, &request, ADMISSION_TURN, &late, &rng), ADMISSION_HELD);
    late.spoilt = ADMISSION_BOUND;
    assert_int_equal(admission_judge(&of, &request, ADMISSION_TURN, &late, &rng), ADMISSION_TAKEN);
}

static void test_the_first_outcome_counts(void **state)
{
    (void)state;
    struct rng rng = rng_seeded(16);
    struct admission_class of = fresh();
    struct admission_request request = {.let_through = false};
    (void)judge(&of, &request, 0.5, &rng);
    for (int i = 0; i < 2; i++) /* its TTFT has passed; it has ended */
        admission_ended(&of, &request, true);
    assert_int_equal(of.calibrations[ADMISSION_TURN].requests, 1);
}

static void test_either_objective_may_be_missed(void **state)
{
    (void)state;
    const struct goodput_class slo = {.ended = 0};
    const struct slo_objective both = {.ttft_us = 100000, .tpot_us = 10000},
                               first = {.ttft_us = 100000};
    const struct prediction fits = {.ttft_us = 10000, .tpot_us = 1000},
                            late = {.ttft_us = 1000000, .tpot_us = 1000},
                            slow = {.ttft_us = 10000, .tpot_us = 100000},
                            edge = {.ttft_us = 100000, .tpot_us = 10000}, unknown = {0};
    assert_true(admission_miss(&slo, &fits, &both) < 0.1);
    assert_true(admission_miss(&slo, &late, &both) > 0.9);
    assert_true(admission_miss(&slo, &slow, &both) > 0.9 &&
                admission_miss(&slo, &slow, &first) < 0.1);
    assert_true(admission_miss(&slo, &late, &none) == 0);
    double one = admission_miss(&slo, &edge, &first), two = admission_miss(&slo, &edge, &both);
    assert_true(one > 0 && one < 1 && two > one && two < 2 * one &&
                admission_miss(&slo, &unknown, &both) < 0);
}

static void test_a_wait_against_what_is_left(void **state)
{
    (void)state;
    assert_true(admission_wait_miss(0, 0) == 0 && admission_wait_miss(0, 100) == 0);
    assert_true(admission_wait_miss(100, 200) == 0 && admission_wait_miss(100, 300) == 0);
    assert_true(admission_wait_miss(100, 100) == .5 && admission_wait_miss(400, 100) == .875 &&
                admission_wait_miss(100, 0) == 1);
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
    assert_true(least >= 4000000 && least <= 4100000 && most >= 5900000 && most <= 6000000);
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
        cmocka_unit_test(test_held_requests_calibrate_when_they_are_placed),
        cmocka_unit_test(test_nothing_known_holds_none),
        cmocka_unit_test(test_misses_of_others_are_corrected_as_its_own),
        cmocka_unit_test(test_misses_of_others_and_of_later_ones_count),
        cmocka_unit_test(test_prompts_of_all_lengths_cost_later_ones_the_same),
        cmocka_unit_test(test_few_are_let_through_where_others_are_taken),
        cmocka_unit_test(test_an_idle_cluster_rejects_nothing),
        cmocka_unit_test(test_the_choice_that_won_tells_of_others),
        cmocka_unit_test(test_answers_that_miss_end_first),
        cmocka_unit_test(test_the_first_outcome_counts),
        cmocka_unit_test(test_either_objective_may_be_missed),
        cmocka_unit_test(test_a_wait_against_what_is_left),
        cmocka_unit_test(test_the_time_to_come_back_is_jittered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
