/* goodput: which choice has the least score, term by term; and the properties of the score. */
#include "router/planner/goodput.h"

#include "common/base/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

static const struct step_cost COST = {.step_us = 10000,
                                      .prefill_row_us = 100,
                                      .prefill_position_us = 0.01,
                                      .decode_row_us = 200,
                                      .decode_context_us = 0.5};

struct worker {
    struct candidate is;
    struct worker_learnt learnt;
};

static void reset(struct worker *worker, enum worker_role role)
{
    memset(worker, 0, sizeof *worker);
    cost_fit_init(&worker->learnt.steps, &COST, 1e6);
    worker->learnt.chunk_rows = 512;
    worker->is.is = (struct route_worker){
        .key = role, .role = role, .ready = true, .pool_tokens = 100000, .learnt = &worker->learnt};
}

static void holds_prompt(struct worker *worker, enum priority priority, uint64_t rows,
                         double slack_us)
{
    const struct books_part part = {.priority = priority,
                                    .prefill = true,
                                    .rows = rows,
                                    .positions = rows * (rows - 1) / 2,
                                    .slack = books_time_bucket(slack_us),
                                    .slack_weight = BOOKS_WEIGHT_ONE};
    worker_books_add(&worker->is.books, &part);
}

/* `tolerance_us` 0: it has missed. */
static void draws(struct worker *worker, uint32_t rows, double tolerance_us)
{
    const struct books_part part = {.drawing = true,
                                    .context = 500,
                                    .held_tokens = 500,
                                    .promised_tokens = 700,
                                    .left = books_length_bucket(200),
                                    .tolerance = books_time_bucket(tolerance_us),
                                    .tolerance_weight = tolerance_us > 0 ? BOOKS_WEIGHT_ONE : 0};
    for (uint32_t i = 0; i < rows; i++)
        worker_books_add(&worker->is.books, &part);
}

/* A prefill worker, two decode workers, and a request for them. */
struct world {
    struct worker p, d, other;
    struct goodput_config config;
    struct goodput_demand demand;
    struct goodput_pool pool;
    struct goodput_request request;
    struct goodput_class slo;
};

static int setup(void **state)
{
    static struct world w;
    memset(&w, 0, sizeof w);
    reset(&w.p, ROLE_PREFILL);
    reset(&w.d, ROLE_DECODE);
    reset(&w.other, ROLE_DECODE);
    w.pool = (struct goodput_pool){.demand = &w.demand, .prefills = 1, .decodes = 2};
    w.request = (struct goodput_request){.is = {.prompt_tokens = 512,
                                                .answer_tokens = 101,
                                                .answer_p90_tokens = 150,
                                                .objective = {.ttft_us = 400000, .tpot_us = 40000}},
                                         .slo = &w.slo,
                                         .weight = 1};
    *state = &w;
    return 0;
}

static struct goodput_score score(const struct world *w, enum predict_way way,
                                  const struct worker *decode)
{
    struct goodput_score out;
    const struct predict_choice choice = {.way = way, .prefill = &w->p.is, .decode = &decode->is};
    goodput_score(&w->config, &w->pool, &w->request, &choice, &out);
    return out;
}

static struct goodput_score pair(const struct world *w, const struct worker *decode)
{
    return score(w, PREDICT_PAIR, decode);
}

static void assert_near(double value, double expected)
{
    if (fabs(value - expected) > 1e-6 * fabs(expected) + 1e-9)
        fail_msg("%.9g, not %.9g", value, expected);
}

/* ---------------------------------------------------------------------------------- own misses */

static void test_the_choice_that_attains_wins(void **state)
{
    struct world *w = *state;
    struct goodput_score here = pair(w, &w->d);
    assert_true(here.own < 0.01 && here.p_miss < 0.01);
    draws(&w->d, 150, 0); /* steps of 77 ms: TPOT is missed */
    here = pair(w, &w->d);
    assert_true(here.own > 0.9);
    struct goodput_score there = pair(w, &w->other);
    assert_true(goodput_better(&there, &here) && !goodput_better(&here, &there));
    assert_near(here.total, here.own + here.others + here.tardiness + here.price);
    w->request.weight = 3;
    assert_near(pair(w, &w->d).own, 3 * here.own);
    w->request.is.objective = (struct slo_objective){0};
    assert_near(pair(w, &w->d).own, 0);
    assert_near(pair(w, &w->d).p_miss, 0);
}

static void test_every_objective_can_be_missed(void **state)
{
    struct world *w = *state;
    const struct slo_objective cases[] = {
        {.ttft_us = 20000}, {.tpot_us = 5000}, {.itl_us = 5000}, {.e2e_us = 200000}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        w->request.is.objective = cases[i];
        assert_true(pair(w, &w->d).own > 0.99);
    }
    w->request.is.objective = (struct slo_objective){.e2e_us = 10000000, .itl_us = 100000};
    assert_true(pair(w, &w->d).own < 0.01);
}

/* Choices that all have P = 0, or P = 1, are still ordered. */
static void test_tardiness_orders_sure_choices(void **state)
{
    struct world *w = *state;
    w->config.off = GOODPUT_OFF_ALL & ~(uint32_t)(GOODPUT_OFF_OWN | GOODPUT_OFF_TARDINESS);
    draws(&w->d, 10, 0);
    struct goodput_score busy = pair(w, &w->d), idle = pair(w, &w->other);
    assert_near(busy.own, idle.own);
    assert_true(goodput_better(&idle, &busy));
    w->request.is.objective = (struct slo_objective){.ttft_us = 1000, .tpot_us = 100};
    busy = pair(w, &w->d);
    idle = pair(w, &w->other);
    assert_near(busy.own, 1);
    assert_near(idle.own, 1);
    assert_true(goodput_better(&idle, &busy));
    /* Convex: the same delay costs more where more is missed already. */
    struct goodput_score scores[3];
    for (int i = 0; i < 3; i++) {
        w->request.is.age_us = 500.0 * i;
        scores[i] = pair(w, &w->other);
    }
    assert_true(scores[2].tardiness - scores[1].tardiness >=
                scores[1].tardiness - scores[0].tardiness - 1e-12);
    w->config.off |= GOODPUT_OFF_TARDINESS;
    assert_near(pair(w, &w->d).total, pair(w, &w->other).total);
}

static void test_a_wide_spread_is_not_preferred(void **state)
{
    struct world *w = *state;
    struct rng rng = rng_seeded(2);
    w->config.off = GOODPUT_OFF_ALL & ~(uint32_t)(GOODPUT_OFF_OWN | GOODPUT_OFF_ERRORS);
    w->request.is.objective.ttft_us = 40000; /* 64 ms are predicted */
    struct goodput_class wide = {.ended = 0};
    for (int i = 0; i < 400; i++)
        predict_error_learn(&wide.ttft, 1000, 1000 * exp2(4 * rng_unit(&rng) - 2));
    struct goodput_score narrow_one = pair(w, &w->d);
    w->request.slo = &wide;
    struct goodput_score wide_one = pair(w, &w->d);
    assert_true(wide_one.p_miss < 0.75);               /* honestly, it may come in time */
    assert_true(wide_one.own >= narrow_one.own - 0.1); /* but that is no hope */
    assert_true(wide_one.own > 0.9);
}

/* -------------------------------------------------------------------------------------- others */

static void test_others_whose_slack_is_used_up_count(void **state)
{
    struct world *w = *state;
    draws(&w->d, 40, 22500); /* steps of 28 ms would be 28.5 with it */
    double step_us = pair(w, &w->d).is.step_us;
    reset(&w->d, ROLE_DECODE);
    draws(&w->d, 40, step_us * 1.02);  /* tight */
    draws(&w->other, 40, step_us * 3); /* ahead of their budgets */
    struct goodput_score tight = pair(w, &w->d), banked = pair(w, &w->other);
    assert_near(tight.is.step_us, banked.is.step_us);
    assert_true(tight.others > 0.5);
    assert_true(banked.others < 0.05);
    assert_true(goodput_better(&banked, &tight));
    reset(&w->d, ROLE_DECODE);
    draws(&w->d, 40, 0); /* answers that have missed can't miss again */
    assert_near(pair(w, &w->d).others, 0);
    w->config.off = GOODPUT_OFF_OTHERS;
    assert_near(tight.others - pair(w, &w->d).others, tight.others);
}

static void test_prompts_behind_it_are_delayed(void **state)
{
    struct world *w = *state;
    w->request.is.priority = PRIORITY_HIGH;
    holds_prompt(&w->p, PRIORITY_NORMAL, 100, 20000); /* the prompt takes 62 ms */
    assert_near(pair(w, &w->d).others, 1);
    w->request.is.priority = PRIORITY_NORMAL; /* it comes after it */
    assert_near(pair(w, &w->d).others, 0);
    w->request.is.priority = PRIORITY_HIGH;
    reset(&w->p, ROLE_PREFILL);
    holds_prompt(&w->p, PRIORITY_NORMAL, 100, 500000);
    assert_near(pair(w, &w->d).others, 0);
}

static void test_chunks_lengthen_the_steps_of_others(void **state)
{
    struct world *w = *state;
    draws(&w->d, 20, 19800);
    struct goodput_score local = score(w, PREDICT_LOCAL, &w->d), by_pair = pair(w, &w->d);
    assert_true(local.others > by_pair.others);
    assert_true(local.is.beside_us > 50000);
    assert_true(goodput_better(&by_pair, &local));
    holds_prompt(&w->p, PRIORITY_NORMAL, 60000, 0); /* now the prefill worker is the bottleneck */
    local = score(w, PREDICT_LOCAL, &w->other);
    by_pair = pair(w, &w->other);
    assert_true(goodput_better(&local, &by_pair));
}

static void test_answers_that_find_no_room_preempt(void **state)
{
    struct world *w = *state;
    w->d.is.is.pool_tokens = 10000;
    draws(&w->d, 16, 1e6); /* 8,000 tokens, which become 11,200 */
    struct goodput_score full = pair(w, &w->d);
    w->config.off = GOODPUT_OFF_MEMORY;
    assert_true(full.others > pair(w, &w->d).others + 0.2);
}

/* ------------------------------------------------------------------------------------ the price */

static void test_slack_has_a_price_while_requests_arrive(void **state)
{
    struct world *w = *state;
    draws(&w->d, 8, 1e6);
    assert_near(pair(w, &w->d).price, 0);
    for (int i = 0; i < 100; i++)
        goodput_arrived(&w->demand, &w->request.is, 1, 1000000 + 50000 * (uint64_t)i);
    w->pool.now_us = 6000000;
    struct goodput_score once = pair(w, &w->d), local = score(w, PREDICT_LOCAL, &w->d);
    assert_true(once.price > 0);
    assert_true(local.price > 0);
    w->pool.now_us = 100000000; /* they came long ago */
    assert_true(pair(w, &w->d).price < once.price / 1000);
    w->pool.now_us = 6000000;
    w->pool.decodes = 4; /* more workers share what comes */
    assert_true(pair(w, &w->d).price < once.price);
    w->pool.decodes = 2;
    holds_prompt(&w->p, PRIORITY_NORMAL, 2000, 0); /* a backlog makes the prompt dearer */
    assert_true(pair(w, &w->d).price > once.price);
    double backlog = pair(w, &w->d).price;
    w->pool.prefills = 2; /* half of the arrivals, and each is delayed by half */
    assert_true(pair(w, &w->d).price < backlog / 2);
    w->pool.prefills = 1;
    struct predict_choice evicts = {.way = PREDICT_PREFILL, .prefill = &w->p.is};
    struct goodput_score spares, costs;
    goodput_score(&w->config, &w->pool, &w->request, &evicts, &spares);
    evicts.evicted_tokens = 512;
    goodput_score(&w->config, &w->pool, &w->request, &evicts, &costs);
    assert_near(costs.price, spares.price); /* nothing was ever found in a cache */
    goodput_found(&w->demand, 512, 256);
    goodput_score(&w->config, &w->pool, &w->request, &evicts, &costs);
    assert_true(costs.price > spares.price);
    double half = costs.price - spares.price;
    goodput_found(&w->demand, 512, 0);
    goodput_score(&w->config, &w->pool, &w->request, &evicts, &costs);
    assert_near(costs.price - spares.price, half / 2);
    w->config.off = GOODPUT_OFF_PRICE;
    assert_near(pair(w, &w->d).price, 0);
}

/* Seconds of prefill, room in steps, room in the pool and a link each have one. */
static void test_each_kind_of_room_has_a_price(void **state)
{
    struct world *w = *state;
    draws(&w->d, 8, 1e6);
    for (int i = 0; i < 100; i++)
        goodput_arrived(&w->demand, &w->request.is, 1, 1000000 + 50000 * (uint64_t)i);
    w->pool.now_us = 6000000;
    const struct goodput_demand all = w->demand;
    w->demand.tpot = w->demand.tokens = 0;
    assert_true(score(w, PREDICT_PREFILL, &w->d).price > 0);
    assert_near(score(w, PREDICT_READER, &w->d).price, 0);
    w->demand = all;
    w->demand.ttft = w->demand.tpot = 0;
    assert_near(score(w, PREDICT_PREFILL, &w->d).price, 0);
    assert_true(score(w, PREDICT_READER, &w->d).price > 0);
    w->d.is.is.pool_tokens = 0;
    assert_near(score(w, PREDICT_READER, &w->d).price, 0);
    w->demand = all;
    w->demand.ttft = 0;
    double steps = score(w, PREDICT_READER, &w->d).price;
    assert_true(steps > 0);
    const struct books_part moves = {.moving_tokens = 100000};
    w->d.learnt.kv_bytes_per_token = 1000;
    w->d.learnt.lane_bytes_per_second = w->d.learnt.link_bytes_per_second = 1000000000;
    assert_near(score(w, PREDICT_READER, &w->d).price, steps); /* an idle link is free */
    worker_books_add(&w->d.is.books, &moves);
    assert_true(score(w, PREDICT_READER, &w->d).price > 1.001 * steps);
    worker_books_take(&w->d.is.books, &moves);
    /* Its chunks lengthen the steps of answers that arrive. */
    struct predict_choice local = {.way = PREDICT_LOCAL, .decode = &w->d.is};
    struct goodput_score whole, cached;
    goodput_score(&w->config, &w->pool, &w->request, &local, &whole);
    local.cached_tokens = 511;
    goodput_score(&w->config, &w->pool, &w->request, &local, &cached);
    assert_true(whole.price > 1.1 * cached.price);
}

/* An idle decode worker costs arrivals no more than one that draws: a first row adds the step's own
 * cost, which an arrival would have anyway. Far below the objectives nothing costs much. */
static void test_time_to_spare_has_no_price(void **state)
{
    struct world *w = *state;
    draws(&w->d, 4, 1e6);
    w->d.is.is.pool_tokens = w->other.is.is.pool_tokens = 0;
    for (int i = 0; i < 100; i++)
        goodput_arrived(&w->demand, &w->request.is, 1, 1000000 + 50000 * (uint64_t)i);
    w->pool.now_us = 6000000;
    double idle = score(w, PREDICT_READER, &w->other).price;
    assert_true(idle < score(w, PREDICT_READER, &w->d).price);
    double tight = pair(w, &w->d).price;
    w->demand = (struct goodput_demand){0};
    w->request.is.objective = (struct slo_objective){.ttft_us = 4000000, .tpot_us = 400000};
    for (int i = 0; i < 100; i++)
        goodput_arrived(&w->demand, &w->request.is, 1, 1000000 + 50000 * (uint64_t)i);
    assert_true(pair(w, &w->d).price < tight / 50); /* the square of a tenth, or so */
}

/* A class that none attains, of a TTFT and a TPOT of 1 us. An arrival can't miss more than once. */
static void test_an_arrival_misses_once(void **state)
{
    struct world *w = *state;
    draws(&w->d, 8, 1e6);
    w->d.is.is.pool_tokens = 0;
    w->request.is.objective = (struct slo_objective){.ttft_us = 1, .tpot_us = 1};
    for (int i = 0; i < 100; i++)
        goodput_arrived(&w->demand, &w->request.is, 1, 1000000 + 50000 * (uint64_t)i);
    w->pool.now_us = 6000000;
    double rate = goodput_arrival_rate(&w->demand, w->pool.now_us);
    struct goodput_score by_pair = pair(w, &w->d), local = score(w, PREDICT_LOCAL, &w->d);
    struct prediction is = by_pair.is;
    double lives_us = (w->request.is.answer_tokens - 1) * is.step_us; /* on one of two workers */
    assert_near(by_pair.price, rate * (is.wait_us + is.prefill_us + lives_us / 4));
    lives_us = (w->request.is.answer_tokens - 1) * local.is.step_us;
    assert_near(local.price, rate * (local.is.prefill_us / 2 + lives_us / 4));
    struct predict_choice evicts = {.way = PREDICT_PREFILL, .prefill = &w->p.is};
    struct goodput_score spares, costs;
    goodput_found(&w->demand, 512, 512);
    goodput_score(&w->config, &w->pool, &w->request, &evicts, &spares);
    evicts.evicted_tokens = 512;
    goodput_score(&w->config, &w->pool, &w->request, &evicts, &costs);
    assert_near(costs.price - spares.price, 0.25); /* how likely a block is found again */
}

/* All terms of a score grow with the weight of a miss alike. */
static void test_the_price_is_in_the_weight_of_a_miss(void **state)
{
    struct world *w = *state;
    double price[2];
    draws(&w->d, 8, 1e6);
    holds_prompt(&w->p, PRIORITY_NORMAL, 2000, 0);
    for (int heavy = 0; heavy < 2; heavy++) {
        w->demand = (struct goodput_demand){0};
        for (int i = 0; i < 100; i++)
            goodput_arrived(&w->demand, &w->request.is, heavy ? 20 : 1,
                            1000000 + 50000 * (uint64_t)i);
        w->pool.now_us = 6000000;
        w->d.is.is.pool_tokens = 0;
        price[heavy] = pair(w, &w->d).price;
    }
    assert_true(price[0] > 0);
    assert_near(price[1], 20 * price[0]);
}

/* --------------------------------------------------------------------------- weights, the floor */

static void test_weights_follow_the_error_budget(void **state)
{
    struct world *w = *state;
    assert_near(goodput_weight(NULL, 90), 1);
    assert_near(goodput_weight(NULL, 99), 10);
    assert_near(goodput_weight(NULL, 99.99), 20);
    assert_true(goodput_weight(NULL, 50) < 1);
    const struct slo_outcome ok = {.ok = true, .ttft_us = 1000, .e2e_us = 5000, .answer_tokens = 5};
    const struct prediction predicted = {.ttft_us = 900, .tpot_us = 1100};
    for (int i = 0; i < 100; i++)
        goodput_ended(&w->slo, &predicted, &ok, i % 20 != 0);
    assert_true(fabs(w->slo.missed - 0.05) < 0.01);
    assert_true(fabs(goodput_weight(&w->slo, 90) - 2) < 0.3);
    assert_true(goodput_weight(&w->slo, 95) > 15); /* nothing is left */
    assert_int_equal(w->slo.ttft.count, 100);
    assert_true(predict_error_median(&w->slo.ttft) > 1 && predict_error_median(&w->slo.tpot) < 1);
    const struct slo_outcome failed = {.ok = false, .ttft_us = 1, .e2e_us = 2, .answer_tokens = 5};
    goodput_ended(&w->slo, &predicted, &failed, false);
    assert_int_equal(w->slo.ttft.count, 100); /* its times tell nothing */
    w->request.weight = 10;
    draws(&w->d, 150, 0);
    double own = pair(w, &w->d).own;
    w->config.off = GOODPUT_OFF_WEIGHTS;
    assert_near(pair(w, &w->d).own, own / 10);
}

static void test_late_requests_have_a_floor(void **state)
{
    struct world *w = *state;
    w->request.is.age_us = 500000;
    assert_true(goodput_is_late(&w->request.is));
    draws(&w->d, 40, 28500);
    struct goodput_score free = pair(w, &w->d);
    assert_near(free.own, 1);
    assert_near(free.p_miss, 1);
    assert_near(free.others, 0); /* it may disturb: nothing late was done yet */
    goodput_floor_note(&w->d.is.floor, 1000, false);
    goodput_floor_note(&w->d.is.floor, 100, true);
    assert_false(goodput_floor_due(&w->d.is.floor, &w->config));
    assert_true(pair(w, &w->d).others > 0); /* its share is used up */
    goodput_floor_note(&w->d.is.floor, 2000, false);
    assert_true(goodput_floor_due(&w->d.is.floor, &w->config));
    w->config.floor_share = 0.01;
    assert_false(goodput_floor_due(&w->d.is.floor, &w->config));
    w->config.off = GOODPUT_OFF_FLOOR;
    assert_near(pair(w, &w->d).others, 0);
    w->config.off = 0;
    w->request.is.age_us = 0; /* in time: others count, whatever the floor */
    assert_true(pair(w, &w->d).others > 0);
}

/* --------------------------------------------------------------------------------- ties, terms */

static void test_ties_go_to_the_least_device_time(void **state)
{
    (void)state;
    struct goodput_score a = {.total = 0.5, .is = {.device_us = 10, .ttft_us = 2}}, b = a;
    b.total += 1e-8;
    b.is.device_us = 9;
    assert_true(goodput_better(&b, &a) && !goodput_better(&a, &b));
    b.is.device_us = 10;
    b.is.ttft_us = 1;
    assert_true(goodput_better(&b, &a) && !goodput_better(&a, &b));
    b.total = 0.6;
    assert_true(goodput_better(&a, &b));
    assert_false(goodput_better(&a, &a));
}

/* With time to spare nothing else tells them apart: a prompt beside answers holds these up. */
static void test_a_pair_wins_ties_against_a_prompt_beside_answers(void **state)
{
    struct world *w = *state;
    w->request.is.objective = (struct slo_objective){.ttft_us = 10000000, .tpot_us = 1000000};
    w->config.off = GOODPUT_OFF_TARDINESS;
    for (uint32_t rows = 0; rows < 8; rows += 4) {
        draws(&w->d, rows, 1e6);
        struct goodput_score apart = pair(w, &w->d), local = score(w, PREDICT_LOCAL, &w->d);
        assert_near(apart.total, local.total);
        assert_true(goodput_better(&apart, &local) && !goodput_better(&local, &apart));
        /* Its time isn't worth more than that: most of the prompt is cached there. */
        struct predict_choice choice = {
            .way = PREDICT_LOCAL, .decode = &w->d.is, .cached_tokens = 400};
        goodput_score(&w->config, &w->pool, &w->request, &choice, &local);
        assert_true(goodput_better(&local, &apart));
    }
}

/* Each term can be left out. */
static void test_every_term_changes_some_score(void **state)
{
    struct world *w = *state;
    draws(&w->d, 60, 45000);
    draws(&w->d, 30, 60000);
    const struct books_part leaves = {.drawing = true, .context = 500, .promised_tokens = 501};
    worker_books_add(&w->d.is.books, &leaves);
    holds_prompt(&w->p, PRIORITY_OFFLINE, 3000, 30000);
    w->d.is.is.pool_tokens = 54600;
    w->request.weight = 3;
    w->d.learnt.kv_bytes_per_token = 100000;
    w->d.learnt.lane_bytes_per_second = 100000000;
    for (int i = 0; i < 100; i++)
        goodput_arrived(&w->demand, &w->request.is, 1, 1000000 + 20000 * (uint64_t)i);
    w->pool.now_us = 3000000;
    goodput_floor_note(&w->d.is.floor, 1000, true);
    for (uint32_t off = 1; off < GOODPUT_OFF_ALL; off *= 2) {
        w->request.is.age_us = off == GOODPUT_OFF_FLOOR ? 500000 : 0;
        w->config.off = 0;
        double with = pair(w, &w->d).total;
        w->config.off = off;
        double without = pair(w, &w->d).total;
        if (fabs(with - without) <= 1e-9)
            fail_msg("without term %u the score is %.9g too", off, with);
    }
}

/* ----------------------------------------------------------------------------------- properties */

static void add_any(struct rng *rng, struct worker *worker)
{
    if (rng_below(rng, 2))
        holds_prompt(worker, (enum priority)rng_below(rng, PRIORITIES), 1 + rng_below(rng, 2000),
                     (double)rng_below(rng, 1000000));
    else
        draws(worker, 1 + (uint32_t)rng_below(rng, 20), (double)rng_below(rng, 100000));
}

/* Adding a request never lowers the misses of others, and no term is negative or not a number. */
static void test_terms_are_never_negative(void **state)
{
    struct world *w = *state;
    struct rng rng = rng_seeded(4);
    const char *cases = getenv("SEEDS");
    for (int i = cases ? atoi(cases) : 5000; i > 0; i--) {
        setup(state);
        for (size_t k = rng_below(&rng, 8); k > 0; k--) {
            add_any(&rng, &w->p);
            add_any(&rng, &w->d);
            goodput_arrived(&w->demand, &w->request.is, 1, 1 + rng_below(&rng, 100000000));
        }
        w->pool.now_us = rng_below(&rng, 200000000);
        w->d.is.is.pool_tokens = rng_below(&rng, 30000);
        w->request.is.priority = (enum priority)rng_below(&rng, PRIORITIES);
        w->request.is.age_us = (double)rng_below(&rng, 600000);
        w->request.is.answer_tokens = 1 + (double)rng_below(&rng, 300);
        w->config.off = (uint32_t)rng_below(&rng, GOODPUT_OFF_ALL + 1);
        struct goodput_score s = score(w, (enum predict_way)rng_below(&rng, 5), &w->d);
        const double terms[] = {s.own, s.others, s.tardiness, s.price, s.p_miss};
        for (size_t k = 0; k < COUNT(terms); k++)
            if (!(terms[k] >= 0) || !isfinite(terms[k]))
                fail_msg("term %zu is %g", k, terms[k]);
        assert_true(s.own <= w->request.weight && s.p_miss <= 1);
    }
}

/* More work on a worker never makes it the better choice for the request itself. */
static void test_more_work_never_raises_attainment(void **state)
{
    struct world *w = *state;
    struct rng rng = rng_seeded(8);
    w->config.off = GOODPUT_OFF_OTHERS | GOODPUT_OFF_PRICE;
    for (int i = 0; i < 1000; i++) {
        setup(state);
        w->request.is.objective.ttft_us = 1000 + rng_below(&rng, 400000);
        w->request.is.objective.tpot_us = 1000 + rng_below(&rng, 40000);
        double before = pair(w, &w->d).own;
        for (int k = 0; k < 5; k++) {
            holds_prompt(&w->p, PRIORITY_NORMAL, 1 + rng_below(&rng, 1000), 0);
            draws(&w->d, 1, 0);
            double after = pair(w, &w->d).own;
            assert_true(after >= before - 1e-9);
            before = after;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup(name, setup)
        T(test_the_choice_that_attains_wins),
        T(test_every_objective_can_be_missed),
        T(test_tardiness_orders_sure_choices),
        T(test_a_wide_spread_is_not_preferred),
        T(test_others_whose_slack_is_used_up_count),
        T(test_prompts_behind_it_are_delayed),
        T(test_chunks_lengthen_the_steps_of_others),
        T(test_answers_that_find_no_room_preempt),
        T(test_slack_has_a_price_while_requests_arrive),
        T(test_each_kind_of_room_has_a_price),
        T(test_the_price_is_in_the_weight_of_a_miss),
        T(test_time_to_spare_has_no_price),
        T(test_an_arrival_misses_once),
        T(test_weights_follow_the_error_budget),
        T(test_late_requests_have_a_floor),
        T(test_ties_go_to_the_least_device_time),
        T(test_a_pair_wins_ties_against_a_prompt_beside_answers),
        T(test_every_term_changes_some_score),
        T(test_terms_are_never_negative),
        T(test_more_work_never_raises_attainment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
