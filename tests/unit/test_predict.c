/* predict: TTFT and TPOT by their formulas; what stands before, beside and behind; errors; and the
 * properties that hold for all workers. */
#include "router/planner/predict.h"

#include "common/base/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define EXACT 1e-5 /* as a share */

static const struct step_cost COST = {.step_us = 1000,
                                      .prefill_row_us = 10,
                                      .prefill_position_us = 0.01,
                                      .decode_row_us = 20,
                                      .decode_context_us = 0.1};

/* A worker of known cost, with steps of 256 prompt rows. */
struct worker {
    struct candidate is;
    struct worker_learnt learnt;
};

static struct worker *reset(struct worker *worker, enum worker_role role)
{
    memset(worker, 0, sizeof *worker);
    cost_fit_init(&worker->learnt.steps, &COST, 1e6);
    worker->learnt.chunk_rows = 256;
    worker->is.is =
        (struct route_worker){.key = role, .role = role, .ready = true, .learnt = &worker->learnt};
    return worker;
}

static void holds_prompt(struct worker *worker, enum priority priority, uint64_t rows)
{
    const struct books_part part = {
        .priority = priority, .prefill = true, .rows = rows, .positions = rows * (rows - 1) / 2};
    worker_books_add(&worker->is.books, &part);
}

static void draws(struct worker *worker, uint32_t rows, uint64_t context, uint64_t left)
{
    const struct books_part part = {.drawing = true,
                                    .context = context,
                                    .held_tokens = context,
                                    .promised_tokens = context + left,
                                    .left = books_length_bucket(left)};
    for (uint32_t i = 0; i < rows; i++)
        worker_books_add(&worker->is.books, &part);
}

static void assert_near(double value, double expected)
{
    if (fabs(value - expected) > EXACT * fabs(expected) + 1e-9)
        fail_msg("%.9g, not %.9g", value, expected);
}

static const struct predict_request REQUEST = {
    .age_us = 500, .prompt_tokens = 512, .answer_tokens = 101, .answer_p90_tokens = 200};

static struct prediction of(const struct predict_request *request, struct predict_choice choice)
{
    struct prediction out;
    predict(request, &choice, COST_P50, &out);
    return out;
}

/* ----------------------------------------------------------------------------------------- TTFT */

static double prompt_us(double chunks, double rows, double positions)
{
    return chunks * COST.step_us + rows * COST.prefill_row_us +
           positions * COST.prefill_position_us;
}

static void test_ttft_of_an_idle_worker(void **state)
{
    (void)state;
    struct worker p;
    reset(&p, ROLE_PREFILL);
    struct predict_choice choice = {.way = PREDICT_PREFILL, .prefill = &p.is};
    struct prediction out = of(&REQUEST, choice);
    assert_near(out.prefill_us, prompt_us(2, 512, 512 * 511 / 2.0));
    assert_near(out.ttft_us, 500 + out.prefill_us);
    assert_true(out.known);
    assert_near(out.tpot_us, 0);
    choice.cached_tokens = 400; /* these rows are not computed, and lie before the others */
    assert_near(of(&REQUEST, choice).prefill_us, prompt_us(1, 112, 112 * 400 + 112 * 111 / 2.0));
    choice.cached_tokens = 512; /* the last row is always computed */
    assert_near(of(&REQUEST, choice).prefill_us, prompt_us(1, 1, 511));
    choice.cached_tokens = 0;
    p.learnt.chunk_rows = 2; /* prompts of two tokens have been there: the next isn't 256 steps */
    assert_near(of(&REQUEST, choice).prefill_us, prompt_us(4, 512, 512 * 511 / 2.0));
    p.learnt.chunk_rows = 0; /* not known: the prompt is one step */
    assert_near(of(&REQUEST, choice).prefill_us, prompt_us(1, 512, 512 * 511 / 2.0));
}

static void test_a_prompt_waits_for_those_before_it(void **state)
{
    (void)state;
    struct worker p;
    reset(&p, ROLE_PREFILL);
    holds_prompt(&p, PRIORITY_NORMAL, 512);
    holds_prompt(&p, PRIORITY_OFFLINE, 256);
    double normal_us = prompt_us(2, 512, 512 * 511 / 2.0);
    double all_us = prompt_us(3, 768, 512 * 511 / 2.0 + 256 * 255 / 2.0);
    assert_near(predict_wait_us(&p.is, PRIORITY_HIGH, COST_P50), 0);
    assert_near(predict_wait_us(&p.is, PRIORITY_NORMAL, COST_P50), normal_us);
    assert_near(predict_wait_us(&p.is, PRIORITY_OFFLINE, COST_P50), all_us);
    holds_prompt(&p, PRIORITY_HIGH, 256);
    assert_near(predict_wait_us(&p.is, PRIORITY_HIGH, COST_P50),
                prompt_us(1, 256, 256 * 255 / 2.0));
    p.is.computed_rows[PRIORITY_NORMAL] = 256; /* these were begun before the urgent one came */
    assert_near(predict_wait_us(&p.is, PRIORITY_HIGH, COST_P50),
                prompt_us(1, 256, 256 * 255 / 2.0));
    p.is.computed_rows[PRIORITY_NORMAL] = 0;
    p.is.computed_rows[PRIORITY_HIGH] = 256;
    assert_near(predict_wait_us(&p.is, PRIORITY_HIGH, COST_P50), 0);
    struct prediction out =
        of(&REQUEST, (struct predict_choice){.way = PREDICT_PREFILL, .prefill = &p.is});
    assert_near(out.ttft_us, 500 + out.wait_us + out.prefill_us);
    assert_true(out.wait_us > 0.9 * normal_us);
    p.is.is.reported_tokens = 1024 + 256; /* another router's prompts */
    assert_true(predict_wait_us(&p.is, PRIORITY_NORMAL, COST_P50) > out.wait_us + 2500);
}

static void test_a_worker_of_unknown_cost_has_a_nominal_one(void **state)
{
    (void)state;
    struct worker p, other;
    reset(&p, ROLE_PREFILL);
    reset(&other, ROLE_PREFILL);
    cost_fit_init(&p.learnt.steps, NULL, 0);
    other.is.is.learnt = NULL;
    struct predict_choice choice = {.way = PREDICT_PREFILL, .prefill = &p.is};
    struct prediction out = of(&REQUEST, choice);
    assert_false(out.known);
    assert_true(out.ttft_us > REQUEST.age_us);
    choice.prefill = &other.is;
    assert_false(of(&REQUEST, choice).known);
    holds_prompt(&p, PRIORITY_NORMAL, 5000);
    choice.prefill = &p.is;
    assert_true(of(&REQUEST, choice).ttft_us > out.ttft_us); /* work counts all the same */
}

/* ----------------------------------------------------------------------------------------- TPOT */

static void test_the_step_is_that_of_all_rows(void **state)
{
    (void)state;
    struct worker p, d;
    reset(&p, ROLE_PREFILL);
    reset(&d, ROLE_DECODE);
    draws(&d, 10, 100, 3000);
    draws(&d, 20, 500, 2); /* others come for these */
    assert_near(predict_step_us(&d.is, 0, 0, COST_P50),
                1000 + 30 * 20 + 0.1 * (10 * 100 + 20 * 500));
    const struct books_part coming = {.coming = true, .context = 300};
    worker_books_add(&d.is.books, &coming);
    double step_us = 1000 + 32 * 20 + 0.1 * (11000 + 300 + 513);
    assert_near(predict_step_us(&d.is, 1, 513, COST_P50), step_us);
    /* A prefill worker where it would wait for long doesn't make its reader look better. */
    struct predict_choice choice = {.way = PREDICT_PAIR, .prefill = &p.is, .decode = &d.is};
    assert_near(of(&REQUEST, choice).step_us, step_us);
    holds_prompt(&p, PRIORITY_NORMAL, 100000);
    assert_near(of(&REQUEST, choice).step_us, step_us);
}

/* Prompts beside answers: a step has no more of them than ever, and they take the answers' time. */
static void test_prompts_share_the_steps_of_answers(void **state)
{
    (void)state;
    struct worker d;
    reset(&d, ROLE_DECODE);
    d.learnt.chunk_us = 1000;
    d.learnt.answers_us = 4000;
    d.learnt.prompts_us = 1000;
    struct predict_choice local = {.way = PREDICT_LOCAL, .decode = &d.is};
    /* Nothing is beside it: steps may have 256 rows. */
    assert_near(of(&REQUEST, local).prefill_us, prompt_us(2, 512, 512 * 511 / 2.0));
    assert_near(of(&REQUEST, local).tpot_us, of(&REQUEST, local).step_us / 0.75);
    draws(&d, 4, 100, 3000);
    double all_us = prompt_us(0, 512, 512 * 511 / 2.0);
    double shared_us = all_us + all_us / 1000 * (1000 + 4 * 20 + 40); /* rows are rounded up */
    assert_true(fabs(of(&REQUEST, local).prefill_us - shared_us) < 0.01 * shared_us);
}

static void test_the_handoff_is_a_gap_of_the_bytes_that_are_left(void **state)
{
    (void)state;
    struct worker p, d;
    reset(&p, ROLE_PREFILL);
    reset(&d, ROLE_DECODE);
    struct predict_choice choice = {.way = PREDICT_PAIR, .prefill = &p.is, .decode = &d.is};
    struct prediction out = of(&REQUEST, choice);
    double step_us = 1000 + 20 + 0.1 * 513, compute_us = out.prefill_us;
    assert_near(out.gap_us, step_us); /* no speed is known */
    assert_near(out.tpot_us, step_us);
    d.learnt.kv_bytes_per_token = 1000;
    d.learnt.lane_bytes_per_second = 1000000000; /* 1 us a token */
    out = of(&REQUEST, choice);
    assert_near(out.gap_us, 256 + step_us); /* the last chunk's */
    assert_near(out.tpot_us, step_us + 256 / 100.0);
    assert_near(out.ttft_us, 500 + compute_us); /* the first token doesn't wait for it */
    p.learnt.lane_bytes_per_second = 10000000;  /* 100 us a token: the slower end counts */
    assert_near(predict_lane_rate(&p.is, &d.is), 10000000);
    out = of(&REQUEST, choice);
    assert_near(out.gap_us, 51200 - compute_us + step_us); /* most couldn't move meanwhile */
    assert_near(out.link_us, 0);                           /* it waits for no other */
    struct predict_choice reader = {
        .way = PREDICT_READER, .prefill = &p.is, .decode = &d.is, .ready_us = compute_us};
    assert_near(of(&REQUEST, reader).gap_us, out.gap_us);
}

/* Handoffs to one reader have bytes to move before it, from whichever worker. */
static void test_handoffs_share_the_link_of_their_reader(void **state)
{
    (void)state;
    struct worker p, d;
    reset(&p, ROLE_PREFILL);
    reset(&d, ROLE_DECODE);
    d.learnt.kv_bytes_per_token = 1000;
    d.learnt.lane_bytes_per_second = 500000000;  /* two pairings share it: 2 us a token */
    d.learnt.link_bytes_per_second = 1000000000; /* 1 us a token */
    struct predict_choice choice = {.way = PREDICT_PAIR, .prefill = &p.is, .decode = &d.is};
    struct prediction alone = of(&REQUEST, choice);
    assert_near(alone.link_us, 0);
    assert_near(alone.link_each_us, 512);
    const struct books_part moves = {.coming = true, .context = 2000, .moving_tokens = 2000};
    for (int i = 0; i < 20; i++)
        worker_books_add(&d.is.books, &moves);
    double ready_us = alone.prefill_us, all_us = 40000 + 512;
    struct prediction out = of(&REQUEST, choice);
    assert_near(out.link_us, all_us - ready_us - 512); /* its last chunk's 256 rows need as long */
    assert_near(out.gap_us, all_us - ready_us + out.step_us);
    assert_near(out.tpot_us, out.step_us + (all_us - ready_us) / 100);
    assert_near(out.ttft_us, alone.ttft_us);
    /* The time that it takes on idle workers stays the same. */
    struct predict_times times = predict_times(&REQUEST, &choice, &out, 101);
    assert_near(times.alone_us, predict_times(&REQUEST, &choice, &alone, 101).alone_us);
    assert_near(times.token_us, out.tpot_us);
    struct predict_choice reader = {
        .way = PREDICT_READER, .prefill = &p.is, .decode = &d.is, .ready_us = 1000};
    assert_near(of(&REQUEST, reader).gap_us, all_us - 1000 + out.step_us);
    struct predict_choice local = {.way = PREDICT_LOCAL, .decode = &d.is};
    assert_near(of(&REQUEST, local).link_us, 0);
    struct predict_request one_token = REQUEST; /* its prefill worker draws it */
    one_token.answer_tokens = 1;
    assert_near(of(&one_token, choice).link_us, 0);
    holds_prompt(&p, PRIORITY_NORMAL, 256); /* bytes move while it waits, too */
    struct prediction later = of(&REQUEST, choice);
    assert_near(later.link_us, out.link_us - later.wait_us);
    d.is.is.pool_tokens = 1000; /* and while it waits for KV */
    draws(&d, 1, 512, 20);
    struct prediction crowded = of(&REQUEST, choice);
    assert_true(crowded.room_us > later.wait_us + later.prefill_us);
    assert_near(crowded.link_us, all_us - crowded.room_us - 512);
    d.is.is.pool_tokens = 0;
    later = of(&REQUEST, choice);
    out.step_us = later.step_us;
    d.learnt.link_bytes_per_second = 0; /* a reader that doesn't tell: as the lane */
    assert_near(of(&REQUEST, choice).gap_us, 2 * all_us - later.wait_us - ready_us + out.step_us);
    d.learnt.link_bytes_per_second = 1000; /* others' reads were slow: at least as the lane */
    assert_near(of(&REQUEST, choice).gap_us, 2 * all_us - later.wait_us - ready_us + out.step_us);
}

static void test_prompts_beside_an_answer_lengthen_its_steps(void **state)
{
    (void)state;
    struct worker p, d;
    reset(&p, ROLE_PREFILL);
    reset(&d, ROLE_DECODE);
    draws(&d, 4, 100, 3000);
    struct predict_choice local = {.way = PREDICT_LOCAL, .decode = &d.is};
    struct prediction out = of(&REQUEST, local);
    double draws_us = 4 * 20 + 0.1 * 400;
    assert_near(out.ttft_us, 500 + prompt_us(2, 512, 512 * 511 / 2.0) + 2 * draws_us);
    /* Others pay for the rows; the steps are theirs anyway. */
    assert_near(out.beside_us, prompt_us(0, 512, 512 * 511 / 2.0));
    assert_near(out.gap_us, out.step_us);
    assert_near(out.tpot_us, out.step_us);
    struct predict_choice pair = {.way = PREDICT_PAIR, .prefill = &p.is, .decode = &d.is};
    double steps_us = 100 * (out.step_us - out.step_before_us);     /* 101 tokens */
    assert_near(out.device_us, 1.0625 * out.prefill_us + steps_us); /* no part is given to others */
    struct prediction apart = of(&REQUEST, pair);
    assert_near(apart.device_us, apart.prefill_us + steps_us);
    double before_us = of(&REQUEST, pair).tpot_us;
    holds_prompt(&d, PRIORITY_NORMAL, 256); /* a prompt of its own */
    out = of(&REQUEST, pair);
    assert_near(out.tpot_us, before_us + prompt_us(0, 256, 256 * 255 / 2.0) / 100);
    struct predict_choice mirror = {.way = PREDICT_MIRROR, .prefill = &d.is};
    assert_near(of(&REQUEST, mirror).ttft_us, of(&REQUEST, local).ttft_us);
    struct predict_request one_token = REQUEST;
    one_token.answer_tokens = 1;
    assert_near(of(&one_token, pair).tpot_us, 0);
}

static void test_tpot_is_a_budget(void **state)
{
    (void)state;
    assert_true(isinf(predict_tolerance_us(0, 100, 5, 100)));
    assert_near(predict_tolerance_us(40000, 101, 0, 0), 40000); /* it hasn't begun */
    /* 100 gaps of 40 ms: 4 s. 50 came in 1 s, so 51 have 3 s. */
    assert_near(predict_tolerance_us(40000, 101, 50, 1000000), 3000000 / 51.0);
    assert_near(predict_tolerance_us(40000, 101, 50, 49 * 40000), 40000);
    assert_true(predict_tolerance_us(40000, 101, 50, 5000000) < 0); /* it has missed */
    /* Longer than expected: each further token may take as long as it brings. */
    assert_near(predict_tolerance_us(40000, 101, 200, 199 * 30000), 200 * 40000 - 199 * 30000);
}

static void coming(struct worker *worker, uint32_t rows, uint64_t context, uint64_t left)
{
    const struct books_part part = {.coming = true,
                                    .context = context,
                                    .held_tokens = context,
                                    .promised_tokens = context + left};
    for (uint32_t i = 0; i < rows; i++)
        worker_books_add(&worker->is.books, &part);
}

/* An answer waits for room behind all that hold more than the pool, in steps of a full pool. */
static void test_an_answer_waits_for_room(void **state)
{
    (void)state;
    struct worker p, d;
    const struct predict_choice pair = {.prefill = &reset(&p, ROLE_PREFILL)->is,
                                        .decode = &reset(&d, ROLE_DECODE)->is};
    const struct prediction idle = of(&REQUEST, pair);
    struct predict_times times = predict_times(&REQUEST, &pair, &idle, 101);
    assert_near(times.prompt_us, idle.prefill_us);
    assert_near(times.room_us, 0);
    assert_near(times.token_us, idle.tpot_us);
    /* Its steps alone have the answer's own tokens, half of them in the mean. */
    assert_near(times.alone_us, idle.prefill_us + 100 * (1020 + (512 + 50) * 0.1));
    assert_near(predict_times(&REQUEST, &pair, &idle, 1).alone_us, idle.prefill_us);
    d.is.is.pool_tokens = 10000;
    draws(&d, 8, 1000, 128);
    double left = worker_books_mean_left(&d.is.books), area = 8 * left * (1000 + left / 2);
    assert_near(predict_room_steps(&d.is), 0); /* they end in 100 steps or so */
    coming(&d, 20, 500, 200);
    double each = (8 * 128 + 20 * 200 - 8 * left) / 20;
    area += 20 * each * (500 + each / 2);
    double steps = area / 10000 - fmax(left, each / 2);
    assert_true(steps > 100);
    assert_near(predict_room_steps(&d.is), steps);
    const struct prediction busy = of(&REQUEST, pair);
    times = predict_times(&REQUEST, &pair, &busy, 101);
    assert_true(times.room_us < steps * busy.step_us && times.room_us > steps * idle.step_us);
    /* The prediction has that wait in its TPOT, too, or in its TTFT: it counts once. */
    const struct predict_choice local = {.way = PREDICT_LOCAL, .decode = &d.is};
    const struct prediction alone = of(&REQUEST, local);
    assert_true(busy.room_us > busy.prefill_us && times.token_us <= busy.step_us);
    assert_near(times.alone_us, idle.prefill_us + 100 * (1020 + (512 + 50) * 0.1));
    assert_true(alone.wait_us > 0);
    assert_near(predict_times(&REQUEST, &local, &alone, 101).prompt_us, alone.prefill_us);
}

/* --------------------------------------------------------------------------------------- memory */

static void test_an_answer_that_has_begun_has_what_is_left(void **state)
{
    (void)state;
    const struct slo_objective objective = {.ttft_us = 400000, .tpot_us = 40000};
    struct predict_request is = {.answer_tokens = 51, .objective = objective};
    predict_begun(&is, 300000, 50, 1000000);
    assert_int_equal(is.objective.ttft_us, 0); /* attained */
    assert_int_equal(is.objective.tpot_us, 58823);
    is = (struct predict_request){.answer_tokens = 51, .objective = objective};
    predict_begun(&is, 500000, 50, 9000000);
    assert_true(is.age_us > (double)is.objective.ttft_us); /* late for good */
    assert_int_equal(is.objective.tpot_us, 1);
    is = (struct predict_request){.answer_tokens = 51};
    predict_begun(&is, 500000, 50, 9000000);
    assert_int_equal(is.objective.tpot_us, 0);
}

static void test_preemption(void **state)
{
    (void)state;
    struct worker d;
    struct predict_request request = REQUEST;
    reset(&d, ROLE_DECODE);
    assert_near(predict_preemption(&d.is, &request), 0); /* the pool isn't known */
    d.is.is.pool_tokens = 10000;
    assert_near(predict_preemption(&d.is, &request), 0);
    draws(&d, 10, 700, 400); /* 7,000 now, 11,000 in the end */
    double likely = predict_preemption(&d.is, &request);
    assert_true(likely > 0 && likely < 1);
    struct predict_request longer = request;
    longer.answer_p90_tokens = 1500; /* it may become much longer */
    assert_true(predict_preemption(&d.is, &longer) > likely);
    d.is.is.pool_tokens = 7500;
    assert_true(predict_preemption(&d.is, &request) > likely);
    reset(&d, ROLE_DECODE);
    d.is.is.pool_tokens = 10000;
    d.is.is.pool_tokens = 9600;
    draws(&d, 10, 900, 1); /* they leave before it grows */
    assert_true(predict_preemption(&d.is, &request) < 0.01);
}

/* A prompt waits until answers have left KV for it. */
static void test_room(void **state)
{
    (void)state;
    struct worker d;
    reset(&d, ROLE_DECODE);
    assert_near(predict_room_us(&d.is, 512, COST_P50), 0); /* the pool isn't known */
    d.is.is.pool_tokens = 10000;
    draws(&d, 10, 900, 40);
    assert_near(predict_room_us(&d.is, 1000, COST_P50), 0);
    double step_us = predict_step_us(&d.is, 0, 0, COST_P50), before_us = 0;
    double one_us = predict_room_us(&d.is, 1100, COST_P50);
    assert_true(one_us > 31 * step_us && one_us < 64 * step_us); /* the first ones leave */
    for (double tokens = 1100; tokens < 30000; tokens += 500) {
        double us = predict_room_us(&d.is, tokens, COST_P50);
        assert_true(us >= before_us);
        before_us = us;
    }
    const struct books_part coming = {
        .coming = true, .context = 3000, .held_tokens = 3000, .promised_tokens = 3001};
    worker_books_add(&d.is.books, &coming); /* it comes before it */
    assert_true(predict_room_us(&d.is, 1100, COST_P50) > one_us);
}

/* Sequences that share half of their KV have room as if there were twice as much. */
static void test_shared_kv_is_room(void **state)
{
    (void)state;
    struct worker shares, twice;
    struct predict_request request = REQUEST;
    reset(&shares, ROLE_DECODE), reset(&twice, ROLE_DECODE);
    shares.is.is.pool_tokens = 5000, twice.is.is.pool_tokens = 10000;
    shares.is.kv_shared = 1;
    draws(&shares, 10, 700, 400), draws(&twice, 10, 700, 400);
    assert_near(predict_pool_tokens(&shares.is), 10000);
    assert_near(predict_preemption(&shares.is, &request), predict_preemption(&twice.is, &request));
    assert_near(predict_room_us(&shares.is, 4000, COST_P50),
                predict_room_us(&twice.is, 4000, COST_P50));
    assert_near(predict_room_steps(&shares.is), predict_room_steps(&twice.is));
    assert_true(predict_room_us(&shares.is, 4000, COST_P50) > 0);
}

/* Before the handoff it costs nothing that the prompt is computed meanwhile. One that computes its
 * prompt where it is drawn waits for that, too. */
static void test_room_delays_the_second_token_or_the_first(void **state)
{
    (void)state;
    struct worker p, d;
    reset(&p, ROLE_PREFILL);
    reset(&d, ROLE_DECODE);
    draws(&d, 10, 900, 40);
    const struct predict_choice pair = {.way = PREDICT_PAIR, .prefill = &p.is, .decode = &d.is},
                                local = {.way = PREDICT_LOCAL, .decode = &d.is};
    struct prediction free = of(&REQUEST, pair), free_local = of(&REQUEST, local);
    assert_near(free.room_us, 0);
    d.is.is.pool_tokens = 9100;
    struct prediction full = of(&REQUEST, pair), full_local = of(&REQUEST, local);
    double late_us = full.room_us - full.wait_us - full.prefill_us;
    assert_true(full.room_us > 0 && full.room_each_us > 0 && late_us > 0);
    assert_near(full.ttft_us, free.ttft_us);
    assert_near(full.gap_us, free.gap_us + late_us);
    assert_near(full.tpot_us, free.tpot_us + late_us / (REQUEST.answer_tokens - 1));
    assert_near(full_local.ttft_us, free_local.ttft_us + full_local.room_us);
}

/* --------------------------------------------------------------------------------------- errors */

static double normal(struct rng *rng)
{
    double sum = 0;
    for (int i = 0; i < 12; i++)
        sum += rng_unit(rng);
    return sum - 6;
}

static struct predict_error learnt(struct rng *rng, double bias, double sigma, int count)
{
    struct predict_error error = {.total = 0};
    for (int i = 0; i < count; i++)
        predict_error_learn(&error, 1000, 1000 * bias * exp(sigma * normal(rng)));
    return error;
}

static void test_errors_tell_how_likely_a_miss_is(void **state)
{
    (void)state;
    struct rng rng = rng_seeded(5);
    const struct predict_error none = {.total = 0};
    assert_near(predict_miss(&none, 1000, 0), 0); /* no objective */
    assert_near(predict_miss(&none, 1000, 1000), 0.5);
    assert_true(predict_miss(&none, 1000, 2000) < 0.01);
    for (double sigma = 0.1; sigma < 0.6; sigma += 0.2)
        for (double bias = 0.7; bias < 1.6; bias += 0.4) {
            struct predict_error error = learnt(&rng, bias, sigma, 4000);
            assert_true(fabs(predict_error_median(&error) / bias - 1) < 0.12);
            for (double objective = 500; objective < 4000; objective *= 1.3) {
                double truth = erfc(log(objective / 1000 / bias) / sigma / sqrt(2)) / 2;
                double said = predict_miss(&error, 1000, objective);
                if (fabs(said - truth) > 0.12)
                    fail_msg("sigma %.1f, bias %.1f, objective %.0f: %.3f, not %.3f", sigma, bias,
                             objective, said, truth);
            }
        }
    struct predict_error error = learnt(&rng, 1, 0.2, 4000);
    for (int i = 0; i < 600; i++) /* the device is 1.5 times slower now */
        predict_error_learn(&error, 1000, 1500 * exp(0.2 * normal(&rng)));
    assert_true(fabs(predict_error_median(&error) / 1.5 - 1) < 0.1);
}

/* Errors that lie as far above 1 as below it. */
static struct predict_error spread(double octaves)
{
    struct predict_error error = {.total = 0};
    for (int i = -20; i <= 20; i++)
        predict_error_learn(&error, 1000, 1000 * exp2(octaves * i / 20));
    return error;
}

static void test_a_wide_spread_is_no_hope(void **state)
{
    (void)state;
    struct rng rng = rng_seeded(6);
    for (int i = 0; i < 2000; i++) {
        double octaves = 0.05 + 0.8 * rng_unit(&rng), objective = 200 + 4000 * rng_unit(&rng);
        struct predict_error narrow = spread(octaves), wide = spread(2 * octaves);
        double beyond = exp2(4 * rng_unit(&rng) - 2); /* the likeliest time, in objectives */
        double by_narrow = objective * beyond / predict_error_median(&narrow);
        double by_wide = objective * beyond / predict_error_median(&wide);
        double a = predict_miss_hopeless(&narrow, by_narrow, objective);
        double b = predict_miss_hopeless(&wide, by_wide, objective);
        assert_true(b >= a - (beyond >= 1 ? 1e-5 : 0.03)); /* bins round a little */
        assert_true(beyond < 1 ? a <= 0.5 : b >= 0.5 - 1e-5);
        assert_true(predict_miss_hopeless(&wide, by_wide * 1.1, objective) >= b);
        /* The honest one falls with the spread, which is why decisions don't use it. */
        if (beyond > 1.24 && beyond < 1.36 && octaves > 0.35 && octaves < 0.45)
            assert_true(predict_miss(&wide, by_wide, objective) <
                        predict_miss(&narrow, by_narrow, objective) - 0.02);
    }
}

/* ----------------------------------------------------------------------------------- properties */

static void learn_steps(struct rng *rng, struct worker *worker)
{
    uint32_t chunk = 1 + (uint32_t)rng_below(rng, 600);
    cost_fit_init(&worker->learnt.steps, rng_below(rng, 2) ? &COST : NULL, 10);
    worker->learnt.chunk_rows = rng_below(rng, 5) ? chunk : 0;
    for (size_t i = rng_below(rng, 120); i > 0; i--) {
        uint32_t rows = worker->learnt.chunk_rows ? (uint32_t)rng_below(rng, chunk + 1) : 0,
                 n = (uint32_t)rng_below(rng, 60);
        struct step_shape shape = {rows, (uint64_t)rows * rng_below(rng, 900), n,
                                   (uint64_t)n * rng_below(rng, 900)};
        struct step_shape stairs = shape;
        stairs.decode_rows = (n + 7) / 8 * 8; /* graphs */
        cost_fit_learn(&worker->learnt.steps, &shape,
                       step_cost_predict(&COST, &stairs) * exp(0.2 * normal(rng)));
    }
}

/* Adds some work. */
static void more_work(struct rng *rng, struct worker *worker)
{
    uint64_t rows = 1 + rng_below(rng, 2000), left = 1 + rng_below(rng, 500);
    if (rng_below(rng, 2) && worker->is.is.role == ROLE_PREFILL) {
        worker->is.is.reported_tokens += rows;
        return;
    }
    if (worker->is.is.reported_tokens) /* its reports have the prompts of this router, too */
        worker->is.is.reported_tokens += rows;
    if (rng_below(rng, 2) || worker->is.is.role == ROLE_PREFILL)
        holds_prompt(worker, (enum priority)rng_below(rng, PRIORITIES), rows);
    else
        draws(worker, 1, rows, left);
}

static void test_more_work_never_lowers_a_prediction(void **state)
{
    (void)state;
    struct rng rng = rng_seeded(7);
    const char *cases = getenv("SEEDS");
    for (int i = cases ? atoi(cases) : 3000; i > 0; i--) {
        struct worker p, d;
        reset(&p, ROLE_PREFILL);
        reset(&d, ROLE_DECODE);
        learn_steps(&rng, &p);
        learn_steps(&rng, &d);
        struct predict_request request = {.priority = (enum priority)rng_below(&rng, PRIORITIES),
                                          .prompt_tokens = 1 + rng_below(&rng, 3000),
                                          .answer_tokens = 1 + (double)rng_below(&rng, 500)};
        struct predict_choice choice = {.way = PREDICT_PAIR, .prefill = &p.is, .decode = &d.is};
        struct predict_choice local = {.way = PREDICT_LOCAL, .decode = &d.is};
        for (int k = 0; k < 4; k++) {
            struct prediction before = of(&request, choice), alone = of(&request, local);
            more_work(&rng, &p);
            struct prediction after = of(&request, choice);
            assert_true(after.ttft_us >= before.ttft_us * (1 - EXACT));
            more_work(&rng, &d);
            after = of(&request, local);
            assert_true(after.wait_us >= alone.wait_us * 0.99); /* stairs round */
            assert_true(after.step_us >= after.step_before_us);
        }
        struct predict_request more = request;
        more.prompt_tokens += 1 + rng_below(&rng, 100);
        assert_true(of(&more, choice).prefill_us >= of(&request, choice).prefill_us * (1 - EXACT));
        choice.cached_tokens = rng_below(&rng, request.prompt_tokens);
        double cached_us = of(&request, choice).ttft_us;
        choice.cached_tokens = 0;
        assert_true(cached_us <= of(&request, choice).ttft_us * 1.1); /* stairs may be steep */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ttft_of_an_idle_worker),
        cmocka_unit_test(test_a_prompt_waits_for_those_before_it),
        cmocka_unit_test(test_a_worker_of_unknown_cost_has_a_nominal_one),
        cmocka_unit_test(test_the_step_is_that_of_all_rows),
        cmocka_unit_test(test_prompts_share_the_steps_of_answers),
        cmocka_unit_test(test_the_handoff_is_a_gap_of_the_bytes_that_are_left),
        cmocka_unit_test(test_handoffs_share_the_link_of_their_reader),
        cmocka_unit_test(test_prompts_beside_an_answer_lengthen_its_steps),
        cmocka_unit_test(test_tpot_is_a_budget),
        cmocka_unit_test(test_an_answer_that_has_begun_has_what_is_left),
        cmocka_unit_test(test_an_answer_waits_for_room),
        cmocka_unit_test(test_preemption),
        cmocka_unit_test(test_room),
        cmocka_unit_test(test_shared_kv_is_room),
        cmocka_unit_test(test_room_delays_the_second_token_or_the_first),
        cmocka_unit_test(test_errors_tell_how_likely_a_miss_is),
        cmocka_unit_test(test_a_wide_spread_is_no_hope),
        cmocka_unit_test(test_more_work_never_lowers_a_prediction),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
