/* deadline_estimate: the least time of a request, and which ones surely miss their deadlines; which
 * ones placement holds back, as they likely miss them. */
#include "router/planner/deadline_estimate.h"
#include "router/planner/placement.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static const struct step_cost COST = {.step_us = 8000,
                                      .prefill_row_us = 20,
                                      .prefill_position_us = 0.01,
                                      .decode_row_us = 30,
                                      .decode_context_us = 0.5};

static void test_the_least_time_has_the_prompt_and_the_steps(void **state)
{
    (void)state;
    const struct deadline_work work = {.prompt_rows = 100, .answer_tokens = 11, .context = 100};
    /* 8000 + 100 x 20 + 4950 x 0.01, and 10 steps of 8000 + 30 + 0.5 x (100 .. 109) */
    const uint64_t prompt_us = 10049, answer_us = 10 * 8030 + 522;
    assert_int_equal(deadline_least_us(&COST, NULL, &work), prompt_us);
    assert_int_equal(deadline_least_us(NULL, &COST, &work), answer_us);
    uint64_t us = deadline_least_us(&COST, &COST, &work);
    assert_true(us >= prompt_us + answer_us && us <= prompt_us + answer_us + 1);
    assert_int_equal(deadline_least_us(NULL, NULL, &work), 0);
    /* The answer's first token comes with the prompt. */
    assert_int_equal(deadline_least_us(NULL, &COST, &(struct deadline_work){5, 1, 5}), 0);
    assert_int_equal(deadline_least_us(&COST, &COST, &(struct deadline_work){0, 1, 5}), 0);
}

static void test_the_largest_numbers_do_not_overflow(void **state)
{
    (void)state;
    const struct step_cost slow = {1e9, 1e9, 1e9, 1e9, 1e9};
    const struct deadline_work work = {UINT32_MAX, UINT32_MAX, UINT64_MAX};
    uint64_t us = deadline_least_us(&slow, &slow, &work);
    assert_int_equal(us, UINT64_MAX / 2);
    assert_true(deadline_is_missed(0, UINT64_MAX / 4, us));
    assert_false(deadline_is_missed(UINT64_MAX - 1, UINT64_MAX, us));
}

static void test_only_a_length_that_is_sure_counts(void **state)
{
    (void)state;
    assert_int_equal(deadline_least_tokens(true, 100, 0, 0), 100);
    assert_int_equal(deadline_least_tokens(true, 100, 0, 99), 1);
    assert_int_equal(deadline_least_tokens(true, 100, 0, 100), 1);
    assert_int_equal(deadline_least_tokens(false, 100, 0, 0), 1);
    assert_int_equal(deadline_least_tokens(false, 100, 30, 10), 20);
}

static void test_only_certain_misses_are_misses(void **state)
{
    (void)state;
    assert_false(deadline_is_missed(1000, 2000, 1333)); /* three quarters fit */
    assert_true(deadline_is_missed(1000, 2000, 1400));
    assert_false(deadline_is_missed(1000, UINT64_MAX, UINT64_MAX / 2));
    assert_false(deadline_is_missed(1000, 1001, 0));
    assert_true(deadline_is_missed(1001, 1001, 0)); /* it has passed */
}

static void test_only_others_make_one_unlikely(void **state)
{
    (void)state;
    assert_false(deadline_is_unlikely(1000, 800, 100)); /* five quarters fit */
    assert_true(deadline_is_unlikely(1000, 801, 100));
    assert_true(deadline_is_unlikely(1000, 1200, 1090));
    assert_false(deadline_is_unlikely(1000, 1200, 1091)); /* it needs them by itself */
}

static void test_a_prompt_is_due_before_its_answer(void **state)
{
    (void)state;
    struct deadline_prompt due = deadline_of_prompt(10000, 4000, 4000);
    assert_int_equal(due.left_us, 7000);
    assert_int_equal(due.due_us, 5000);
    due = deadline_of_prompt(3000, 4000, 4000);
    assert_true(due.left_us == 1 && due.due_us == 1);
    due = deadline_of_prompt(UINT64_MAX / 2, UINT64_MAX / 2, 1e30);
    assert_true(due.left_us > 1 && due.due_us == 1);
}

/* ------------------------------------------------------------------------------------ placement */

#define MS    1000
#define QUEUE 16

/* One prefill worker of 1 ms a row, and one decode worker of 10 ms a step. */
struct world {
    struct placement placement;
    struct worker_learnt learnt[2];
    struct placement_request requests[QUEUE];
    struct placement_ask asks[QUEUE];
    size_t count;
    uint64_t now_us;
};

static void start(struct world *w, uint64_t pool_tokens)
{
    const struct step_cost costs[] = {{.prefill_row_us = MS}, {.step_us = 10 * MS}};
    const struct placement_config config = {.model_count = 1};
    *w = (struct world){.now_us = MS};
    assert_int_equal(placement_init(&w->placement, &config), STATUS_OK);
    for (size_t i = 0; i < 2; i++) {
        cost_fit_init(&w->learnt[i].steps, &costs[i], 1);
        w->learnt[i].chunk_rows = 512;
        const struct route_worker worker = {.key = i + 1,
                                            .role = i ? ROLE_DECODE : ROLE_PREFILL,
                                            .ready = true,
                                            .capacity_tokens = 10000,
                                            .unconfirmed_limit_tokens = 1000000,
                                            .pool_tokens = pool_tokens,
                                            .learnt = &w->learnt[i]};
        assert_int_equal(placement_worker_set(&w->placement, 0, &worker), STATUS_OK);
        candidates_get(&w->placement.candidates, i + 1)->proven = CANDIDATE_PROVEN;
    }
}

static void stop(struct world *w)
{
    for (size_t i = 0; i < w->count; i++)
        placement_ended(&w->placement, &w->requests[i]);
    placement_deinit(&w->placement);
}

/* A request of `prompt` rows and `answer` tokens, which must be whole in left_us. 0: no deadline */
static size_t arrives(struct world *w, uint64_t prompt, uint64_t answer, uint64_t left_us)
{
    size_t i = w->count++;
    placement_arrived(&w->placement, &w->requests[i], 0, 0);
    w->asks[i] = (struct placement_ask){
        .request = {.prompt_tokens = prompt, .total_tokens = prompt + answer},
        .predict = {.prompt_tokens = prompt,
                    .answer_tokens = (double)answer,
                    .answer_p90_tokens = (double)answer},
        .deadline_us = left_us ? w->now_us + left_us : UINT64_MAX,
        .likely_tokens = (double)answer,
        .slo_class = SLO_NONE};
    placement_wait(&w->placement, &w->requests[i], PLACEMENT_NEW, w->now_us);
    return i;
}

static void track(struct world *w, size_t i, bool working)
{
    const struct placement_ask *ask = &w->asks[i];
    struct placement_use use = {.prefill = 1,
                                .decode = 2,
                                .working = working,
                                .prompt_tokens = ask->request.prompt_tokens,
                                .longest_tokens = ask->request.total_tokens,
                                .expected_tokens = ask->request.total_tokens,
                                .now_us = w->now_us};
    placement_track(&w->placement, &w->requests[i],
                    working ? &use : &(struct placement_use){.prefill = 0});
}

/* Tries all that the pass has. Returns how many were tried; sets bits of the ones that were
 * placed. */
static unsigned pass(struct world *w, unsigned *placed)
{
    unsigned tried = 0;
    *placed = 0;
    placement_begin(&w->placement, 0, w->now_us);
    for (struct placement_request *next; (next = placement_next(&w->placement)); tried++) {
        size_t i = (size_t)(next - w->requests);
        uint64_t tokens;
        struct route_choice choice = placement_choose(&w->placement, next, &w->asks[i], &tokens);
        if (choice.outcome != ROUTE_PLACED)
            continue;
        *placed |= 1u << i;
        placement_stop_waiting(&w->placement, next);
        track(w, i, true);
        placement_placed(&w->placement, next, choice.prefill, choice.decode);
    }
    return tried;
}

/* A second of prompts stands before. One that has time for it is placed behind one that has none,
 * which has its turn when the workers are idle, though it came first. */
static void test_one_that_others_make_late_is_held_back(void **state)
{
    (void)state;
    struct world w;
    unsigned placed;
    start(&w, 0);
    arrives(&w, 1000, 2, 0);
    pass(&w, &placed);
    assert_int_equal(placed, 1);
    size_t late = arrives(&w, 100, 11, 1300 * MS); /* 1000 + 100 + 100 ms, and a quarter */
    size_t whole = arrives(&w, 100, 11, 1510 * MS);
    pass(&w, &placed);
    assert_int_equal(placed, 1u << whole);
    assert_true(w.requests[late].late && w.requests[late].waiting);
    track(&w, 0, false);
    track(&w, whole, false);
    pass(&w, &placed);
    assert_int_equal(placed, 1u << late);
    stop(&w);
}

/* Alone it needs nearly all of its time, or more: others are not to blame. */
static void test_one_that_needs_its_time_by_itself_is_placed(void **state)
{
    (void)state;
    struct world w;
    unsigned placed;
    start(&w, 0);
    arrives(&w, 100, 11, 210 * MS);
    pass(&w, &placed);
    assert_int_equal(placed, 1);
    stop(&w);
}

/* A pass tries some of those that were held back, each in turn, and places none. */
static void test_held_back_ones_have_turns(void **state)
{
    (void)state;
    struct world w;
    unsigned placed;
    start(&w, 0);
    arrives(&w, 5000, 2, 0);
    pass(&w, &placed);
    for (int i = 0; i < 10; i++)
        arrives(&w, 100, 11, 1000 * MS);
    assert_int_equal(pass(&w, &placed), 10 + PLACEMENT_LATE_TRIES);
    assert_int_equal(placed, 0);
    w.placement.config.held_limit = 1; /* they take no room from those that admission holds */
    assert_true(placement_may_hold(&w.placement, &w.requests[0]));
    w.asks[5].deadline_us = UINT64_MAX; /* the first that comes after those that were tried */
    assert_int_equal(pass(&w, &placed), 1 + PLACEMENT_LATE_TRIES);
    assert_int_equal(placed, 1u << 5);
    stop(&w);
}

/* One that was held back is owed a place, and can't use it: the next rank that is owed one can. */
static void test_held_back_ones_take_no_share(void **state)
{
    (void)state;
    struct world w;
    unsigned placed;
    start(&w, 0);
    candidates_get(&w.placement.candidates, 2)->is.max_requests = 2;
    arrives(&w, 5000, 2, 0);
    size_t late = arrives(&w, 100, 11, 1000 * MS);
    pass(&w, &placed);
    assert_true(placed == 1 && w.requests[late].late);
    size_t low = arrives(&w, 100, 11, 0);
    placement_stop_waiting(&w.placement, &w.requests[low]);
    w.requests[low].priority = PRIORITY_OFFLINE;
    placement_wait(&w.placement, &w.requests[low], PLACEMENT_NEW, w.now_us);
    size_t normal = arrives(&w, 100, 11, 0);
    for (uint32_t rank = PRIORITY_OFFLINE; rank < PLACEMENT_RANKS; rank++)
        w.placement.queues[0].passed[rank] = PLACEMENT_FLOOR_EVERY;
    pass(&w, &placed);
    assert_int_equal(placed, 1u << low);
    assert_true(w.requests[late].waiting && w.requests[normal].waiting);
    stop(&w);
}

/* A prompt is due by what its reader's steps took, and not by a guess. */
static void test_a_guess_makes_no_prompt_due(void **state)
{
    (void)state;
    struct world w;
    unsigned placed;
    start(&w, 0);
    size_t known = arrives(&w, 100, 11, 1000 * MS);
    pass(&w, &placed);
    assert_true(w.requests[known].answer_us > 90 * MS);
    candidates_get(&w.placement.candidates, 2)->is.learnt = NULL;
    size_t guessed = arrives(&w, 100, 11, 1000 * MS);
    pass(&w, &placed);
    assert_int_equal(placed, 1u << guessed);
    assert_true(w.requests[guessed].answer_us <= 0);
    stop(&w);
}

/* The answers there draw 4,000 tokens in a pool of 1,000: the next one waits for seconds. */
static void test_no_prompt_is_computed_long_before_there_is_room(void **state)
{
    (void)state;
    struct world w;
    unsigned placed;
    start(&w, 1000);
    for (int i = 0; i < 4; i++)
        arrives(&w, 10, 1000, 0);
    pass(&w, &placed);
    size_t early = arrives(&w, 10, 11, 40000 * MS);
    size_t open = arrives(&w, 9, 10, 0); /* smaller: it isn't known to be too large */
    size_t patient = arrives(&w, 8, 10, 400000 * MS);
    pass(&w, &placed);
    assert_int_equal(placed, 1u << open | 1u << patient);
    assert_false(w.requests[early].late);
    for (size_t i = 0; i < 4; i++)
        track(&w, i, false);
    pass(&w, &placed);
    assert_int_equal(placed, 1u << early);
    stop(&w);
}

/* One that is too early leaves the place to one without a deadline, though that is larger. Others
 * like it aren't searched for again. */
static void test_one_that_is_too_early_leaves_its_place(void **state)
{
    (void)state;
    struct world w;
    unsigned placed;
    start(&w, 1000);
    struct route_worker *decode = &candidates_get(&w.placement.candidates, 2)->is;
    decode->max_requests = 4;
    for (int i = 0; i < 4; i++)
        arrives(&w, 10, 1000, 0);
    pass(&w, &placed);
    size_t early = arrives(&w, 10, 11, 40000 * MS);
    size_t second = arrives(&w, 10, 11, 40001 * MS);
    size_t open = arrives(&w, 12, 12, 0);
    pass(&w, &placed);
    assert_int_equal(placed, 0);
    track(&w, 0, false);
    pass(&w, &placed);
    assert_int_equal(placed, 1u << open);
    assert_true(w.requests[early].waiting && w.requests[second].likely_us <= 0);
    stop(&w);
}

/* One that has been too early for a second isn't overtaken by ones that would wait for such room,
 * too. It stops none that needs no room. */
static void test_none_runs_ahead_of_one_that_waits_for_room(void **state)
{
    (void)state;
    struct world w;
    unsigned placed;
    start(&w, 1000);
    for (int i = 0; i < 4; i++)
        arrives(&w, 10, 1000, 0);
    pass(&w, &placed);
    size_t early = arrives(&w, 10, 11, 40000 * MS);
    pass(&w, &placed);
    w.now_us += PLACEMENT_OVERTAKE_US;
    size_t open = arrives(&w, 9, 10, 0), brief = arrives(&w, 8, 1, 0);
    w.asks[brief].request.ends_at_prefill = true;
    w.asks[brief].likely_tokens = 10;
    for (int again = 0; again < 2; again++) { /* the second time it is known to be too early */
        pass(&w, &placed);
        assert_int_equal(placed, again ? 0 : 1u << brief);
    }
    assert_true(w.requests[open].waiting && w.requests[early].waiting);
    while (w.count < QUEUE)
        arrives(&w, 9, 10, 0);
    assert_int_equal(pass(&w, &placed), 1 + QUEUE - (early + 1) - 1);
    assert_int_equal(placed, 0); /* all have heard that there are workers */
    w.placement.candidates.version++;
    assert_int_equal(pass(&w, &placed), 1 + PLACEMENT_LATE_TRIES);
    for (size_t i = 0; i < 4; i++)
        track(&w, i, false);
    pass(&w, &placed);
    assert_true(placed & 1u << early && placed & 1u << open);
    stop(&w);
}

/* Answers take twice as long as predicted: that is learnt, and later ones have less time. */
static void test_errors_of_predictions_count(void **state)
{
    (void)state;
    struct world w;
    unsigned placed;
    start(&w, 0);
    arrives(&w, 1000, 2, 0);
    size_t taught = arrives(&w, 100, 101, 0);
    pass(&w, &placed);
    assert_int_equal(placed, 3);
    for (int i = 0; i < 100; i++)
        placement_learn_times(&w.placement, &w.requests[taught],
                              w.requests[taught].chosen_us + 1100 * MS,
                              w.requests[taught].chosen_us + 3100 * MS, 101);
    track(&w, taught, false);
    size_t whole = arrives(&w, 100, 101, 1250 * 3300);
    size_t late = arrives(&w, 100, 101, 1250 * 2500);
    pass(&w, &placed);
    assert_int_equal(placed, 1u << whole);
    assert_true(w.requests[late].late);
    assert_true(w.requests[whole].answer_us > 1850 * MS && w.requests[whole].answer_us < 2150 * MS);
    stop(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_least_time_has_the_prompt_and_the_steps),
        cmocka_unit_test(test_the_largest_numbers_do_not_overflow),
        cmocka_unit_test(test_only_a_length_that_is_sure_counts),
        cmocka_unit_test(test_only_certain_misses_are_misses),
        cmocka_unit_test(test_only_others_make_one_unlikely),
        cmocka_unit_test(test_a_prompt_is_due_before_its_answer),
        cmocka_unit_test(test_one_that_others_make_late_is_held_back),
        cmocka_unit_test(test_one_that_needs_its_time_by_itself_is_placed),
        cmocka_unit_test(test_held_back_ones_have_turns),
        cmocka_unit_test(test_held_back_ones_take_no_share),
        cmocka_unit_test(test_a_guess_makes_no_prompt_due),
        cmocka_unit_test(test_no_prompt_is_computed_long_before_there_is_room),
        cmocka_unit_test(test_one_that_is_too_early_leaves_its_place),
        cmocka_unit_test(test_none_runs_ahead_of_one_that_waits_for_room),
        cmocka_unit_test(test_errors_of_predictions_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
