/* route_policy: least work, no mixed pairs, the cap of unconfirmed tokens, workers to avoid. */
#include "router/planner/route_policy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* Returns a worker of one model and layout; a test changes its own field. */
static struct route_worker worker(enum worker_role role, uint64_t key)
{
    return (struct route_worker){.key = key,
                                 .role = role,
                                 .ready = true,
                                 .model_hash = 7,
                                 .layout_hash = 8,
                                 .numerics_id = 9,
                                 .capacity_tokens = 1000,
                                 .unconfirmed_limit_tokens = 500};
}

static const struct route_request small = {.prompt_tokens = 100, .total_tokens = 150};

static void assert_choice(struct route_choice choice, enum route_outcome outcome, uint64_t prefill,
                          uint64_t decode)
{
    assert_int_equal(choice.outcome, outcome);
    assert_int_equal(choice.prefill, prefill);
    assert_int_equal(choice.decode, decode);
}

static void test_least_work_wins(void **state)
{
    (void)state;
    struct route_worker w[] = {worker(ROLE_PREFILL, 1), worker(ROLE_PREFILL, 2),
                               worker(ROLE_DECODE, 3), worker(ROLE_DECODE, 4)};
    w[0].work_tokens = 50;
    w[2].work_tokens = 10;
    w[3].work_tokens = 11;
    assert_choice(route_request(w, COUNT(w), &small), ROUTE_PLACED, 2, 3);
    w[1].work_tokens = 51;
    w[2].work_tokens = 12;
    assert_choice(route_request(w, COUNT(w), &small), ROUTE_PLACED, 1, 4);
}

static void test_ties_go_to_the_longest_unused(void **state)
{
    (void)state;
    struct route_worker w[] = {worker(ROLE_PREFILL, 1), worker(ROLE_DECODE, 2),
                               worker(ROLE_PREFILL, 3), worker(ROLE_DECODE, 4)};
    w[0].placed_at = 2;
    w[2].placed_at = 1;
    w[1].placed_at = 1;
    w[3].placed_at = 2;
    assert_choice(route_request(w, COUNT(w), &small), ROUTE_PLACED, 3, 2);
}

static void test_unlike_workers_are_never_paired(void **state)
{
    (void)state;
    for (int field = 0; field < 3; field++) {
        struct route_worker w[] = {worker(ROLE_PREFILL, 1), worker(ROLE_DECODE, 2),
                                   worker(ROLE_PREFILL, 3), worker(ROLE_DECODE, 4)};
        for (int i = 2; i < 4; i++) {
            w[i].model_hash += field == 0;
            w[i].layout_hash += field == 1;
            w[i].numerics_id += field == 2;
        }
        w[1].work_tokens = 90; /* the two idle ones, 1 and 4, are of different kinds */
        w[2].work_tokens = 80;
        assert_choice(route_request(w, COUNT(w), &small), ROUTE_PLACED, 3, 4);
        w[3].ready = false;
        assert_choice(route_request(w, COUNT(w), &small), ROUTE_PLACED, 1, 2);
        w[1].ready = false;
        assert_choice(route_request(w, COUNT(w), &small), ROUTE_NO_WORKER, 0, 0);
    }
}

/* An answer that has begun goes on with its weights and numerics, or not at all. */
static void test_a_begun_answer_keeps_its_kind(void **state)
{
    (void)state;
    const struct route_kind kind = {.model_hash = 7, .numerics_id = 9};
    struct route_request begun = small;
    begun.kind = &kind;
    for (int field = 0; field < 2; field++) {
        struct route_worker w[] = {worker(ROLE_PREFILL, 1), worker(ROLE_DECODE, 2),
                                   worker(ROLE_PREFILL, 3), worker(ROLE_DECODE, 4)};
        for (int i = 2; i < 4; i++) {
            w[i].model_hash += field == 0;
            w[i].numerics_id += field == 1;
        }
        w[1].work_tokens = 90;
        assert_choice(route_request(w, COUNT(w), &small), ROUTE_PLACED, 3, 4);
        assert_choice(route_request(w, COUNT(w), &begun), ROUTE_PLACED, 1, 2);
        w[1].max_requests = w[1].requests = 1;
        assert_choice(route_request(w, COUNT(w), &begun), ROUTE_FULL, 0, 0);
        w[1].ready = false;
        assert_choice(route_request(w, COUNT(w), &begun), ROUTE_NO_WORKER, 0, 0);
        assert_int_equal(route_request(w, COUNT(w), &begun).lack, ROUTE_LACKS_KIND);
        begun.local = true;
        assert_choice(route_request(w, COUNT(w), &begun), ROUTE_NO_WORKER, 0, 0);
        begun.local = false;
        begun.local_away_us = 100; /* nor alone, when its prefill workers have been away */
        w[2].ready = false;
        w[2].away_since_us = 50;
        assert_choice(route_request(w, COUNT(w), &small), ROUTE_NO_WORKER, 0, 0);
        assert_choice(route_request(w, COUNT(w), &begun), ROUTE_NO_WORKER, 0, 0);
        begun.kind = NULL;
        assert_choice(route_request(w, COUNT(w), &begun), ROUTE_PLACED, 0, 4);
        begun = small;
        begun.kind = &kind;
        /* If another worker is missing, the answer doesn't report a lack of the kind. */
        assert_choice(route_request(w, 3, &begun), ROUTE_NO_WORKER, 0, 0);
        assert_int_equal(route_request(w, 3, &begun).lack, ROUTE_LACKS_DECODE);
    }
}

static void test_unconfirmed_tokens_are_capped(void **state)
{
    (void)state;
    struct route_worker w[] = {worker(ROLE_PREFILL, 1), worker(ROLE_DECODE, 2),
                               worker(ROLE_DECODE, 3)};
    w[1].unconfirmed_tokens = 401;
    w[2].unconfirmed_tokens = 400;
    w[2].work_tokens = 900;
    assert_choice(route_request(w, COUNT(w), &small), ROUTE_PLACED, 1, 3);
    w[2].unconfirmed_tokens = 401;
    assert_choice(route_request(w, COUNT(w), &small), ROUTE_FULL, 0, 0);
    /* A prompt above the cap passes where nothing else is unconfirmed. */
    struct route_request large = {.prompt_tokens = 600, .total_tokens = 700};
    w[1].unconfirmed_tokens = 0;
    assert_choice(route_request(w, COUNT(w), &large), ROUTE_PLACED, 1, 2);
    w[1].unconfirmed_tokens = 1;
    assert_choice(route_request(w, COUNT(w), &large), ROUTE_FULL, 0, 0);
}

static void test_local_only_without_prefill_workers_or_by_force(void **state)
{
    (void)state;
    struct route_worker w[] = {worker(ROLE_DECODE, 1), worker(ROLE_PREFILL, 2)};
    assert_choice(route_request(w, 1, &small), ROUTE_PLACED, 0, 1);
    w[1].ready = false;
    assert_choice(route_request(w, 2, &small), ROUTE_NO_WORKER, 0, 0);
    struct route_request forced = small;
    forced.local = true;
    assert_choice(route_request(w, 2, &forced), ROUTE_PLACED, 0, 1);
    w[0].ready = false;
    assert_choice(route_request(w, 2, &forced), ROUTE_NO_WORKER, 0, 0);
    assert_choice(route_request(w, 0, &small), ROUTE_NO_WORKER, 0, 0);
    assert_choice(route_request(w + 1, 1, &small), ROUTE_NO_WORKER, 0, 0);
}

static void test_local_where_the_prefill_workers_that_fit_have_been_away(void **state)
{
    (void)state;
    struct route_worker w[] = {worker(ROLE_DECODE, 1), worker(ROLE_PREFILL, 2),
                               worker(ROLE_DECODE, 3)};
    struct route_request waited = small;
    waited.local_away_us = 700;
    w[2].model_hash++; /* other weights under the same name */
    assert_choice(route_request(w, COUNT(w), &waited), ROUTE_PLACED, 2, 1);
    w[1].ready = false;
    w[1].away_since_us = 701;
    assert_choice(route_request(w, COUNT(w), &small), ROUTE_NO_WORKER, 0, 0);
    assert_choice(route_request(w, COUNT(w), &waited), ROUTE_NO_WORKER, 0, 0);
    assert_int_equal(route_request(w, COUNT(w), &waited).away_since_us, 701);
    w[1].away_since_us = 700;
    assert_choice(route_request(w, COUNT(w), &small), ROUTE_NO_WORKER, 0, 0);
    assert_choice(route_request(w, COUNT(w), &waited), ROUTE_PLACED, 0, 1);
    w[0].ready = false;
    assert_choice(route_request(w, COUNT(w), &waited), ROUTE_NO_WORKER, 0, 0);
    assert_int_equal(route_request(w, COUNT(w), &waited).away_since_us, UINT64_MAX);
    w[0].ready = w[1].ready = true; /* full is not away */
    w[0].max_requests = w[0].requests = 1;
    assert_choice(route_request(w, COUNT(w), &waited), ROUTE_FULL, 0, 0);
}

/* For a decode worker the last fitting prefill worker counts, and of several decode workers the one
 * that has waited longest. */
static void test_away_is_who_fits(void **state)
{
    (void)state;
    struct route_worker w[] = {worker(ROLE_DECODE, 1), worker(ROLE_PREFILL, 2),
                               worker(ROLE_PREFILL, 3), worker(ROLE_DECODE, 4),
                               worker(ROLE_PREFILL, 5)};
    for (size_t i = 0; i < COUNT(w); i++)
        w[i].ready = w[i].role == ROLE_DECODE;
    w[3].numerics_id = w[4].numerics_id = 10;
    w[1].away_since_us = 100;
    w[2].away_since_us = 500;
    w[4].away_since_us = 400;
    struct route_request asked = small;
    asked.local_away_us = 300;
    assert_choice(route_request(w, COUNT(w), &asked), ROUTE_NO_WORKER, 0, 0);
    assert_int_equal(route_request(w, COUNT(w), &asked).away_since_us, 400);
    asked.local_away_us = 450;
    assert_choice(route_request(w, COUNT(w), &asked), ROUTE_PLACED, 0, 4);
    w[3].work_tokens = 10;
    asked.local_away_us = 500;
    assert_choice(route_request(w, COUNT(w), &asked), ROUTE_PLACED, 0, 1);
    w[2].capacity_tokens = small.prompt_tokens - 1; /* it could not, if it were there */
    asked.local_away_us = 300;
    assert_choice(route_request(w, COUNT(w), &asked), ROUTE_PLACED, 0, 1);
}

/* The reasons if no worker can be chosen. There are two prefill workers P1, P2 and two decode
 * workers D1, D2, all of one kind and ready, except as the case says. The request has 100 prompt
 * tokens and 150 in all. The wait is over for workers away since 300. */
enum { P1, P2, D1, D2 };
static const struct {
    const char *about;
    struct {
        bool away, other_model;
        uint64_t capacity, since_us;
    } of[4];
    bool local;
    size_t misfit_count;
    enum route_lack lack;
} lacking_cases[] = {
    {"all decode away", {[D1] = {.away = true}, [D2] = {.away = true}}, .lack = ROUTE_LACKS_DECODE},
    {"all decode away, by force",
     {[D1] = {.away = true}, [D2] = {.away = true}},
     .local = true,
     .lack = ROUTE_LACKS_DECODE},
    {"the large decode is away",
     {[D1] = {.capacity = 149}, [D2] = {.away = true}},
     .lack = ROUTE_LACKS_SPACE},
    {"the large decode is away, by force",
     {[D1] = {.capacity = 149}, [D2] = {.away = true}},
     .local = true,
     .lack = ROUTE_LACKS_SPACE},
    {"the large decode is away, and so is prefill",
     {[P1] = {.away = true, .since_us = 500},
      [P2] = {.away = true, .since_us = 500},
      [D1] = {.capacity = 149},
      [D2] = {.away = true}},
     .lack = ROUTE_LACKS_SPACE},
    {"the wait is over, and the decode is too small",
     {[P1] = {.away = true, .since_us = 100},
      [P2] = {.away = true, .since_us = 100},
      [D1] = {.capacity = 149},
      [D2] = {.away = true}},
     .lack = ROUTE_LACKS_SPACE},
    {"the large prefill fits a decode that is away",
     {[P1] = {.capacity = 99},
      [P2] = {.other_model = true},
      [D2] = {.away = true, .other_model = true}},
     .lack = ROUTE_LACKS_SPACE},
    {"the large prefill is away",
     {[P1] = {.capacity = 99}, [P2] = {.away = true, .since_us = 500}},
     .lack = ROUTE_LACKS_PREFILL},
    {"all prefill away",
     {[P1] = {.away = true, .since_us = 500}, [P2] = {.away = true, .since_us = 100}},
     .lack = ROUTE_LACKS_PREFILL},
    {"one decode waits for prefill, the other is too small",
     {[P1] = {.away = true, .since_us = 500},
      [P2] = {.away = true, .since_us = 500},
      [D1] = {.capacity = 149}},
     .lack = ROUTE_LACKS_PREFILL},
    {"prefill of another model",
     {[P1] = {.other_model = true}, [P2] = {.other_model = true}},
     .lack = ROUTE_LACKS_FIT},
    {"the wait is over, and the decode is of another model",
     {[P1] = {.away = true, .since_us = 100},
      [P2] = {.away = true, .since_us = 100},
      [D1] = {.other_model = true},
      [D2] = {.away = true}},
     .lack = ROUTE_LACKS_FIT},
    {"they refused each other",
     {[D2] = {.away = true}},
     .misfit_count = 2,
     .lack = ROUTE_LACKS_FIT},
    {"all full", {[D2] = {.capacity = 149}}, .lack = ROUTE_LACKS_NOTHING},
};

static void test_what_is_lacking(void **state)
{
    (void)state;
    static const struct route_misfit misfits[] = {{1, 3}, {2, 3}};
    for (size_t i = 0; i < COUNT(lacking_cases); i++) {
        struct route_worker w[4];
        for (uint64_t k = 0; k < 4; k++) {
            w[k] = worker(k < D1 ? ROLE_PREFILL : ROLE_DECODE, k + 1);
            w[k].ready = !lacking_cases[i].of[k].away;
            w[k].away_since_us = lacking_cases[i].of[k].since_us;
            w[k].model_hash += lacking_cases[i].of[k].other_model;
            if (lacking_cases[i].of[k].capacity)
                w[k].capacity_tokens = lacking_cases[i].of[k].capacity;
            w[k].requests = w[k].max_requests = lacking_cases[i].lack == ROUTE_LACKS_NOTHING;
        }
        struct route_request asked = small;
        asked.local = lacking_cases[i].local;
        asked.local_away_us = 300;
        asked.misfits = misfits;
        asked.misfit_count = lacking_cases[i].misfit_count;
        struct route_choice choice = route_request(w, 4, &asked);
        enum route_outcome outcome =
            lacking_cases[i].lack == ROUTE_LACKS_NOTHING ? ROUTE_FULL : ROUTE_NO_WORKER;
        if (choice.outcome != outcome || choice.lack != lacking_cases[i].lack)
            fail_msg("%s: outcome %d, lacks %d", lacking_cases[i].about, choice.outcome,
                     choice.lack);
    }
}

static void test_what_a_handle_is_lacking(void **state)
{
    (void)state;
    struct route_worker w[] = {worker(ROLE_PREFILL, 1), worker(ROLE_DECODE, 2),
                               worker(ROLE_DECODE, 3)};
    struct route_handle handle = {
        .prefill = 1, .model_hash = 7, .layout_hash = 8, .numerics_id = 9};
    w[1].ready = false;
    w[2].capacity_tokens = 149;
    assert_int_equal(route_handle(w, COUNT(w), &small, &handle).lack, ROUTE_LACKS_SPACE);
    w[2].numerics_id++;
    assert_int_equal(route_handle(w, COUNT(w), &small, &handle).lack, ROUTE_LACKS_FIT);
    w[2].ready = false;
    assert_int_equal(route_handle(w, COUNT(w), &small, &handle).lack, ROUTE_LACKS_DECODE);
    w[1].ready = true;
    assert_int_equal(route_handle(w, COUNT(w), &small, &handle).lack, ROUTE_LACKS_NOTHING);
}

static void test_what_failed_is_avoided_unless_alone(void **state)
{
    (void)state;
    struct route_worker w[] = {worker(ROLE_PREFILL, 1), worker(ROLE_PREFILL, 2),
                               worker(ROLE_DECODE, 3), worker(ROLE_DECODE, 4)};
    w[1].work_tokens = 500;
    w[3].work_tokens = 500;
    struct route_request retry = small;
    retry.avoid_prefill = 1;
    assert_choice(route_request(w, COUNT(w), &retry), ROUTE_PLACED, 2, 3);
    retry.avoid_decode = 3;
    assert_choice(route_request(w, COUNT(w), &retry), ROUTE_PLACED, 2, 4);
    w[1].ready = w[3].ready = false;
    assert_choice(route_request(w, COUNT(w), &retry), ROUTE_PLACED, 1, 3);
}

static void test_too_long_is_said_only_when_nobody_could(void **state)
{
    (void)state;
    struct route_worker w[] = {worker(ROLE_PREFILL, 1), worker(ROLE_DECODE, 2),
                               worker(ROLE_DECODE, 3)};
    struct route_request edge = {.prompt_tokens = 1000, .total_tokens = 1000};
    assert_choice(route_request(w, COUNT(w), &edge), ROUTE_PLACED, 1, 2);
    edge.total_tokens = 1001;
    assert_choice(route_request(w, COUNT(w), &edge), ROUTE_TOO_LONG, 0, 0);
    w[2].capacity_tokens = 1001;
    w[2].ready = false;
    assert_choice(route_request(w, COUNT(w), &edge), ROUTE_NO_WORKER, 0, 0);
    edge.prompt_tokens = 1001; /* too long for the prefill worker */
    assert_choice(route_request(w, COUNT(w), &edge), ROUTE_TOO_LONG, 0, 0);
}

static void test_a_handle_goes_to_another_decode_worker(void **state)
{
    (void)state;
    struct route_worker w[] = {worker(ROLE_DECODE, 2), worker(ROLE_DECODE, 3),
                               worker(ROLE_DECODE, 4), worker(ROLE_PREFILL, 1)};
    struct route_handle handle = {1, 7, 8, 9};
    struct route_request again = small;
    again.avoid_decode = 2;
    w[1].numerics_id++;
    w[2].unconfirmed_tokens = 10000; /* no cap: the lease runs */
    assert_choice(route_handle(w, COUNT(w), &again, &handle), ROUTE_PLACED, 0, 4);
    w[2].ready = false;
    assert_choice(route_handle(w, COUNT(w), &again, &handle), ROUTE_PLACED, 0, 2);
    w[0].ready = false;
    assert_choice(route_handle(w, COUNT(w), &again, &handle), ROUTE_NO_WORKER, 0, 0);
}

/* A burst without any report spreads, because work is counted when it is placed. */
static void test_a_burst_spreads(void **state)
{
    (void)state;
    struct route_worker w[] = {worker(ROLE_PREFILL, 1), worker(ROLE_PREFILL, 2),
                               worker(ROLE_PREFILL, 3), worker(ROLE_DECODE, 4),
                               worker(ROLE_DECODE, 5)};
    w[3].unconfirmed_limit_tokens = w[4].unconfirmed_limit_tokens = 1000000;
    int placed[6] = {0};
    for (uint64_t i = 1; i <= 60; i++) {
        struct route_choice choice = route_request(w, COUNT(w), &small);
        assert_int_equal(choice.outcome, ROUTE_PLACED);
        for (size_t k = 0; k < COUNT(w); k++) {
            if (w[k].key != choice.prefill && w[k].key != choice.decode)
                continue;
            placed[w[k].key]++;
            w[k].work_tokens += w[k].role == ROLE_PREFILL ? 100 : 150;
            w[k].placed_at = i;
        }
    }
    for (int key = 1; key <= 5; key++)
        assert_int_equal(placed[key], key <= 3 ? 20 : 30);
}

/* A worker that holds all it can would refuse: the request waits in the router's queue. */
static void test_a_worker_takes_no_more_than_it_holds(void **state)
{
    (void)state;
    struct route_worker w[] = {worker(ROLE_PREFILL, 1), worker(ROLE_PREFILL, 2),
                               worker(ROLE_DECODE, 3), worker(ROLE_DECODE, 4)};
    for (size_t i = 0; i < COUNT(w); i++)
        w[i].max_requests = 2;
    w[0].requests = w[2].requests = 2;
    w[1].requests = w[3].requests = 1;
    w[1].work_tokens = w[3].work_tokens = 400;
    assert_choice(route_request(w, COUNT(w), &small), ROUTE_PLACED, 2, 4);
    w[1].requests = 2;
    assert_choice(route_request(w, COUNT(w), &small), ROUTE_FULL, 0, 0);
    struct route_handle handle = {.model_hash = 7, .layout_hash = 8, .numerics_id = 9};
    assert_choice(route_handle(w, COUNT(w), &small, &handle), ROUTE_PLACED, 0, 4);
    w[3].requests = 2;
    assert_choice(route_handle(w, COUNT(w), &small, &handle), ROUTE_FULL, 0, 0);
    w[2].max_requests = 0; /* it doesn't say */
    assert_choice(route_handle(w, COUNT(w), &small, &handle), ROUTE_PLACED, 0, 3);
}

/* The decode worker's load doesn't matter: it never gets the request. */
static void test_a_prompt_alone_needs_but_a_prefill_worker(void **state)
{
    (void)state;
    struct route_worker w[] = {worker(ROLE_PREFILL, 1), worker(ROLE_PREFILL, 2),
                               worker(ROLE_DECODE, 3)};
    struct route_request alone = small;
    alone.ends_at_prefill = true;
    for (size_t i = 0; i < COUNT(w); i++)
        w[i].max_requests = 2;
    w[2].requests = 2;
    w[2].unconfirmed_tokens = 450;
    w[0].work_tokens = 10;
    assert_choice(route_request(w, COUNT(w), &small), ROUTE_FULL, 0, 0);
    assert_choice(route_request(w, COUNT(w), &alone), ROUTE_PLACED, 2, 3);
    w[1].requests = 2;
    assert_choice(route_request(w, COUNT(w), &alone), ROUTE_PLACED, 1, 3);
    w[0].requests = 2;
    assert_choice(route_request(w, COUNT(w), &alone), ROUTE_FULL, 0, 0);
    alone.local = true; /* if a decode worker does it all, it counts */
    assert_choice(route_request(w, COUNT(w), &alone), ROUTE_FULL, 0, 0);
}

/* Two that refused each other are not paired again; a handle that only misfits could read has no
 * reader. */
static void test_misfits_are_not_paired(void **state)
{
    (void)state;
    struct route_worker w[] = {worker(ROLE_PREFILL, 1), worker(ROLE_PREFILL, 2),
                               worker(ROLE_DECODE, 3), worker(ROLE_DECODE, 4)};
    struct route_misfit misfits[] = {{1, 3}, {2, 4}, {1, 4}, {2, 3}};
    struct route_handle handle = {
        .prefill = 1, .model_hash = 7, .layout_hash = 8, .numerics_id = 9};
    struct route_request asked = small;
    asked.misfits = misfits;
    w[1].work_tokens = 30; /* 1 and 3 would be best, then 1 and 4 */
    w[3].work_tokens = 10;
    asked.misfit_count = 1;
    assert_choice(route_request(w, COUNT(w), &asked), ROUTE_PLACED, 1, 4);
    assert_choice(route_handle(w, COUNT(w), &asked, &handle), ROUTE_PLACED, 0, 4);
    asked.misfit_count = 3;
    assert_choice(route_request(w, COUNT(w), &asked), ROUTE_PLACED, 2, 3);
    assert_choice(route_handle(w, COUNT(w), &asked, &handle), ROUTE_NO_READER, 0, 0);
    w[2].ready = w[3].ready = false; /* no misfit stands in the way */
    assert_choice(route_handle(w, COUNT(w), &asked, &handle), ROUTE_NO_WORKER, 0, 0);
    w[2].ready = w[3].ready = true;
    asked.misfit_count = 4;
    assert_choice(route_request(w, COUNT(w), &asked), ROUTE_NO_WORKER, 0, 0);
    asked.local = true;
    assert_choice(route_request(w, COUNT(w), &asked), ROUTE_PLACED, 0, 3);
}

/* A handle of a worker that came back with another layout: waiting for a reader is useless, unless
 * one is only away. */
static void test_handle_that_no_worker_fits_has_no_reader(void **state)
{
    (void)state;
    struct route_worker w[] = {worker(ROLE_PREFILL, 1), worker(ROLE_DECODE, 3),
                               worker(ROLE_DECODE, 4)};
    struct route_handle handle = {
        .prefill = 1, .model_hash = 7, .layout_hash = 88, .numerics_id = 9};
    assert_choice(route_handle(w, COUNT(w), &small, &handle), ROUTE_NO_READER, 0, 0);
    w[1].layout_hash = 88;
    w[1].ready = false;
    assert_choice(route_handle(w, COUNT(w), &small, &handle), ROUTE_NO_WORKER, 0, 0);
    w[1].ready = true;
    assert_choice(route_handle(w, COUNT(w), &small, &handle), ROUTE_PLACED, 0, 3);
    w[1].ready = w[2].ready = false;
    w[1].layout_hash = 8;
    assert_choice(route_handle(w, COUNT(w), &small, &handle), ROUTE_NO_WORKER, 0, 0);
}

static void test_the_oldest_misfit_is_forgotten(void **state)
{
    (void)state;
    static struct route_misfits misfits;
    struct route_worker w[] = {worker(ROLE_PREFILL, 1), worker(ROLE_DECODE, 2)};
    struct route_request asked = small;
    asked.misfits = misfits.items;
    route_misfits_note(&misfits, (struct route_misfit){1, 2});
    for (uint64_t i = 1; i < ROUTE_MAX_MISFITS; i++)
        route_misfits_note(&misfits, (struct route_misfit){1, 1000 + i});
    asked.misfit_count = misfits.count;
    assert_int_equal(misfits.count, ROUTE_MAX_MISFITS);
    assert_choice(route_request(w, COUNT(w), &asked), ROUTE_NO_WORKER, 0, 0);
    route_misfits_note(&misfits, (struct route_misfit){1, 2000});
    assert_int_equal(misfits.count, ROUTE_MAX_MISFITS);
    assert_choice(route_request(w, COUNT(w), &asked), ROUTE_PLACED, 1, 2); /* and asked again */
    route_misfits_note(&misfits, (struct route_misfit){1, 2});
    assert_choice(route_request(w, COUNT(w), &asked), ROUTE_NO_WORKER, 0, 0);
    route_misfits_forget(&misfits);
    asked.misfit_count = misfits.count;
    assert_choice(route_request(w, COUNT(w), &asked), ROUTE_PLACED, 1, 2);
}

/* Only workers that could take it give it room. Prefill workers that are away count only if there
 * are no others. */
static void test_room(void **state)
{
    (void)state;
    struct route_worker w[] = {worker(ROLE_PREFILL, 1), worker(ROLE_DECODE, 2),
                               worker(ROLE_DECODE, 3), worker(ROLE_PREFILL, 4)};
    const struct route_misfit misfit = {1, 3};
    const struct route_kind kind = {7, 9};
    struct route_request asked = {.prompt_tokens = 100, .total_tokens = 101};
    w[2].capacity_tokens = 2000;
    w[3].numerics_id = 10;
    w[3].ready = false;
    assert_int_equal(route_room(w, COUNT(w), &asked, NULL), 2000);
    asked.misfits = &misfit;
    asked.misfit_count = 1;
    assert_int_equal(route_room(w, COUNT(w), &asked, NULL), 1000);
    w[2].numerics_id = 10; /* its prefill worker is away */
    assert_int_equal(route_room(w, COUNT(w), &asked, NULL), 1000);
    w[1].requests = w[1].max_requests = 1; /* full, for now */
    assert_int_equal(route_room(w, COUNT(w), &asked, NULL), 1000);
    asked.total_tokens = 1001;
    assert_int_equal(route_room(w, COUNT(w), &asked, NULL), 2000);
    asked.total_tokens = 2001;
    assert_int_equal(route_room(w, COUNT(w), &asked, NULL), 0);
    asked.total_tokens = 101;
    w[3].ready = true;
    assert_int_equal(route_room(w, COUNT(w), &asked, NULL), 2000);
    asked.kind = &kind;
    assert_int_equal(route_room(w, COUNT(w), &asked, NULL), 1000);
    asked.kind = NULL;
    w[3].capacity_tokens = 99; /* too small for the prompt */
    assert_int_equal(route_room(w, COUNT(w), &asked, NULL), 1000);
    asked.local = true;
    assert_int_equal(route_room(w, COUNT(w), &asked, NULL), 2000);
    w[2].ready = false;
    assert_int_equal(route_room(w, COUNT(w), &asked, NULL), 1000);
}

static void test_room_of_a_handle(void **state)
{
    (void)state;
    struct route_worker w[] = {worker(ROLE_DECODE, 2), worker(ROLE_DECODE, 3)};
    const struct route_misfit misfit = {1, 3};
    const struct route_request asked = {
        .prompt_tokens = 100, .total_tokens = 101, .misfits = &misfit, .misfit_count = 1};
    struct route_handle handle = {
        .prefill = 1, .model_hash = 7, .layout_hash = 8, .numerics_id = 9};
    w[1].capacity_tokens = 2000;
    assert_int_equal(route_room(w, COUNT(w), &asked, NULL), 2000); /* there is no prefill worker */
    assert_int_equal(route_room(w, COUNT(w), &asked, &handle), 1000);
    handle.prefill = 5;
    assert_int_equal(route_room(w, COUNT(w), &asked, &handle), 2000);
    w[1].layout_hash = 10;
    assert_int_equal(route_room(w, COUNT(w), &asked, &handle), 1000);
    handle.numerics_id = 10;
    assert_int_equal(route_room(w, COUNT(w), &asked, &handle), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_room),
        cmocka_unit_test(test_room_of_a_handle),
        cmocka_unit_test(test_least_work_wins),
        cmocka_unit_test(test_ties_go_to_the_longest_unused),
        cmocka_unit_test(test_unlike_workers_are_never_paired),
        cmocka_unit_test(test_a_begun_answer_keeps_its_kind),
        cmocka_unit_test(test_unconfirmed_tokens_are_capped),
        cmocka_unit_test(test_local_only_without_prefill_workers_or_by_force),
        cmocka_unit_test(test_local_where_the_prefill_workers_that_fit_have_been_away),
        cmocka_unit_test(test_away_is_who_fits),
        cmocka_unit_test(test_what_is_lacking),
        cmocka_unit_test(test_what_a_handle_is_lacking),
        cmocka_unit_test(test_what_failed_is_avoided_unless_alone),
        cmocka_unit_test(test_too_long_is_said_only_when_nobody_could),
        cmocka_unit_test(test_a_handle_goes_to_another_decode_worker),
        cmocka_unit_test(test_a_burst_spreads),
        cmocka_unit_test(test_a_worker_takes_no_more_than_it_holds),
        cmocka_unit_test(test_a_prompt_alone_needs_but_a_prefill_worker),
        cmocka_unit_test(test_misfits_are_not_paired),
        cmocka_unit_test(test_the_oldest_misfit_is_forgotten),
        cmocka_unit_test(test_handle_that_no_worker_fits_has_no_reader),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
