/* route_policy: least work, no mixed pairs, the cap of unconfirmed tokens, workers to avoid. */
#include "tests/unit/route_fixture.h"

static void test_least_work_wins(void **state)
{
    (void)state;
    struct route_worker w[] = {worker(ROLE_PREFILL, 1), worker(ROLE_PREFILL, 2),
                               worker(ROLE_DECODE, 3), worker(ROLE_DECODE, 4)};
    w[0].work_tokens = 50;
    w[2].work_tokens = 10;
    w[3].work_tokens = 11;
    assert_choice(choose(w, COUNT(w), &small), ROUTE_PLACED, 2, 3);
    w[1].work_tokens = 51;
    w[2].work_tokens = 12;
    assert_choice(choose(w, COUNT(w), &small), ROUTE_PLACED, 1, 4);
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
    assert_choice(choose(w, COUNT(w), &small), ROUTE_PLACED, 3, 2);
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
        assert_choice(choose(w, COUNT(w), &small), ROUTE_PLACED, 3, 4);
        w[3].ready = false;
        assert_choice(choose(w, COUNT(w), &small), ROUTE_PLACED, 1, 2);
        w[1].ready = false;
        assert_choice(choose(w, COUNT(w), &small), ROUTE_NO_WORKER, 0, 0);
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
        assert_choice(choose(w, COUNT(w), &small), ROUTE_PLACED, 3, 4);
        assert_choice(choose(w, COUNT(w), &begun), ROUTE_PLACED, 1, 2);
        w[1].max_requests = w[1].requests = 1;
        assert_choice(choose(w, COUNT(w), &begun), ROUTE_FULL, 0, 0);
        w[1].ready = false;
        assert_choice(choose(w, COUNT(w), &begun), ROUTE_NO_WORKER, 0, 0);
        assert_int_equal(choose(w, COUNT(w), &begun).lack, ROUTE_LACKS_KIND);
        begun.local = true;
        assert_choice(choose(w, COUNT(w), &begun), ROUTE_NO_WORKER, 0, 0);
        begun.local = false;
        begun.local_away_us = 100; /* nor alone, when its prefill workers have been away */
        w[2].ready = false;
        w[2].away_since_us = 50;
        assert_choice(choose(w, COUNT(w), &small), ROUTE_NO_WORKER, 0, 0);
        assert_choice(choose(w, COUNT(w), &begun), ROUTE_NO_WORKER, 0, 0);
        begun.kind = NULL;
        assert_choice(choose(w, COUNT(w), &begun), ROUTE_PLACED, 0, 4);
        begun = small;
        begun.kind = &kind;
        /* If another worker is missing, the answer doesn't report a lack of the kind. */
        assert_choice(choose(w, 3, &begun), ROUTE_NO_WORKER, 0, 0);
        assert_int_equal(choose(w, 3, &begun).lack, ROUTE_LACKS_DECODE);
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
    assert_choice(choose(w, COUNT(w), &small), ROUTE_PLACED, 1, 3);
    w[2].unconfirmed_tokens = 401;
    assert_choice(choose(w, COUNT(w), &small), ROUTE_FULL, 0, 0);
    /* A prompt above the cap passes where nothing else is unconfirmed. */
    struct route_request large = {.prompt_tokens = 600, .total_tokens = 700};
    w[1].unconfirmed_tokens = 0;
    assert_choice(choose(w, COUNT(w), &large), ROUTE_PLACED, 1, 2);
    w[1].unconfirmed_tokens = 1;
    assert_choice(choose(w, COUNT(w), &large), ROUTE_FULL, 0, 0);
}

static void test_local_only_without_prefill_workers_or_by_force(void **state)
{
    (void)state;
    struct route_worker w[] = {worker(ROLE_DECODE, 1), worker(ROLE_PREFILL, 2)};
    assert_choice(choose(w, 1, &small), ROUTE_PLACED, 0, 1);
    w[1].ready = false;
    assert_choice(choose(w, 2, &small), ROUTE_NO_WORKER, 0, 0);
    struct route_request forced = small;
    forced.local = true;
    assert_choice(choose(w, 2, &forced), ROUTE_PLACED, 0, 1);
    w[0].ready = false;
    assert_choice(choose(w, 2, &forced), ROUTE_NO_WORKER, 0, 0);
    assert_choice(choose(w, 0, &small), ROUTE_NO_WORKER, 0, 0);
    assert_choice(choose(w + 1, 1, &small), ROUTE_NO_WORKER, 0, 0);
}

static void test_local_where_the_prefill_workers_that_fit_have_been_away(void **state)
{
    (void)state;
    struct route_worker w[] = {worker(ROLE_DECODE, 1), worker(ROLE_PREFILL, 2),
                               worker(ROLE_DECODE, 3)};
    struct route_request waited = small;
    waited.local_away_us = 700;
    w[2].model_hash++; /* other weights under the same name */
    assert_choice(choose(w, COUNT(w), &waited), ROUTE_PLACED, 2, 1);
    w[1].ready = w[2].ready = false;
    w[1].away_since_us = 701;
    assert_choice(choose(w, COUNT(w), &small), ROUTE_NO_WORKER, 0, 0);
    assert_choice(choose(w, COUNT(w), &waited), ROUTE_NO_WORKER, 0, 0);
    assert_int_equal(choose(w, COUNT(w), &waited).away_since_us, 701);
    w[1].away_since_us = 700;
    assert_choice(choose(w, COUNT(w), &small), ROUTE_NO_WORKER, 0, 0);
    assert_choice(choose(w, COUNT(w), &waited), ROUTE_PLACED, 0, 1);
    w[0].ready = false;
    assert_choice(choose(w, COUNT(w), &waited), ROUTE_NO_WORKER, 0, 0);
    assert_int_equal(choose(w, COUNT(w), &waited).away_since_us, UINT64_MAX);
    w[0].ready = w[1].ready = true; /* full is not away */
    w[0].max_requests = w[0].requests = 1;
    assert_choice(choose(w, COUNT(w), &waited), ROUTE_FULL, 0, 0);
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
    assert_choice(choose(w, COUNT(w), &asked), ROUTE_NO_WORKER, 0, 0);
    assert_int_equal(choose(w, COUNT(w), &asked).away_since_us, 400);
    asked.local_away_us = 450;
    assert_choice(choose(w, COUNT(w), &asked), ROUTE_PLACED, 0, 4);
    w[3].work_tokens = 10;
    asked.local_away_us = 500;
    assert_choice(choose(w, COUNT(w), &asked), ROUTE_PLACED, 0, 1);
    w[2].capacity_tokens = small.prompt_tokens - 1; /* it could not, if it were there */
    asked.local_away_us = 300;
    assert_choice(choose(w, COUNT(w), &asked), ROUTE_PLACED, 0, 1);
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
    {"all full", {[D2] = {.capacity = 149}}, .lack = ROUTE_LACKS_NOTHING},
};

static void test_what_is_lacking(void **state)
{
    (void)state;
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
        struct route_choice choice = choose(w, 4, &asked);
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
    assert_int_equal(choose_reader(w, COUNT(w), &small, &handle).lack, ROUTE_LACKS_SPACE);
    w[2].numerics_id++;
    assert_int_equal(choose_reader(w, COUNT(w), &small, &handle).lack, ROUTE_LACKS_FIT);
    w[2].ready = false;
    assert_int_equal(choose_reader(w, COUNT(w), &small, &handle).lack, ROUTE_LACKS_DECODE);
    w[1].ready = true;
    assert_int_equal(choose_reader(w, COUNT(w), &small, &handle).lack, ROUTE_LACKS_NOTHING);
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
    assert_choice(choose(w, COUNT(w), &retry), ROUTE_PLACED, 2, 3);
    retry.avoid_decode = 3;
    assert_choice(choose(w, COUNT(w), &retry), ROUTE_PLACED, 2, 4);
    w[1].ready = w[3].ready = false;
    assert_choice(choose(w, COUNT(w), &retry), ROUTE_PLACED, 1, 3);
}

static void test_too_long_is_said_only_when_nobody_could(void **state)
{
    (void)state;
    struct route_worker w[] = {worker(ROLE_PREFILL, 1), worker(ROLE_DECODE, 2),
                               worker(ROLE_DECODE, 3)};
    struct route_request edge = {.prompt_tokens = 1000, .total_tokens = 1000};
    assert_choice(choose(w, COUNT(w), &edge), ROUTE_PLACED, 1, 2);
    edge.total_tokens = 1001;
    assert_choice(choose(w, COUNT(w), &edge), ROUTE_TOO_LONG, 0, 0);
    w[2].capacity_tokens = 1001;
    w[2].ready = false;
    assert_choice(choose(w, COUNT(w), &edge), ROUTE_NO_WORKER, 0, 0);
    edge.prompt_tokens = 1001; /* too long for the prefill worker */
    assert_choice(choose(w, COUNT(w), &edge), ROUTE_TOO_LONG, 0, 0);
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
    assert_choice(choose_reader(w, COUNT(w), &again, &handle), ROUTE_PLACED, 0, 4);
    w[2].ready = false;
    assert_choice(choose_reader(w, COUNT(w), &again, &handle), ROUTE_PLACED, 0, 2);
    w[0].ready = false; /* worker 3 can't read it, but could begin it again */
    assert_choice(choose_reader(w, COUNT(w), &again, &handle), ROUTE_NO_READER, 0, 0);
    again.kind = &(struct route_kind){.model_hash = 7, .numerics_id = 9};
    assert_choice(choose_reader(w, COUNT(w), &again, &handle), ROUTE_NO_WORKER, 0, 0);
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
        struct route_choice choice = choose(w, COUNT(w), &small);
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
    assert_choice(choose(w, COUNT(w), &small), ROUTE_PLACED, 2, 4);
    w[1].requests = 2;
    assert_choice(choose(w, COUNT(w), &small), ROUTE_FULL, 0, 0);
    struct route_handle handle = {.model_hash = 7, .layout_hash = 8, .numerics_id = 9};
    assert_choice(choose_reader(w, COUNT(w), &small, &handle), ROUTE_PLACED, 0, 4);
    w[3].requests = 2;
    assert_choice(choose_reader(w, COUNT(w), &small, &handle), ROUTE_FULL, 0, 0);
    w[2].max_requests = 0; /* it doesn't say */
    assert_choice(choose_reader(w, COUNT(w), &small, &handle), ROUTE_PLACED, 0, 3);
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
    assert_choice(choose(w, COUNT(w), &small), ROUTE_FULL, 0, 0);
    assert_choice(choose(w, COUNT(w), &alone), ROUTE_PLACED, 2, 3);
    w[1].requests = 2;
    assert_choice(choose(w, COUNT(w), &alone), ROUTE_PLACED, 1, 3);
    w[0].requests = 2;
    assert_choice(choose(w, COUNT(w), &alone), ROUTE_FULL, 0, 0);
    alone.local = true; /* if a decode worker does it all, it counts */
    assert_choice(choose(w, COUNT(w), &alone), ROUTE_FULL, 0, 0);
}

/* Two that refused each other are not paired again; a handle that only misfits could read has no
 * reader. */
static void test_misfits_are_not_paired(void **state)
{
    (void)state;
    struct route_worker w[] = {worker(ROLE_PREFILL, 1), worker(ROLE_PREFILL, 2),
                               worker(ROLE_DECODE, 3), worker(ROLE_DECODE, 4)};
    const struct refusal all[] = {{1, 3}, {2, 4}, {1, 4}, {2, 3}};
    memcpy(refusals, all, sizeof all);
    struct route_handle handle = {
        .prefill = 1, .model_hash = 7, .layout_hash = 8, .numerics_id = 9};
    struct route_request asked = small;
    w[1].work_tokens = 30; /* 1 and 3 would be best, then 1 and 4 */
    w[3].work_tokens = 10;
    refusal_count = 1;
    assert_choice(choose(w, COUNT(w), &asked), ROUTE_PLACED, 1, 4);
    assert_choice(choose_reader(w, COUNT(w), &asked, &handle), ROUTE_PLACED, 0, 4);
    refusal_count = 3;
    assert_choice(choose(w, COUNT(w), &asked), ROUTE_PLACED, 2, 3);
    assert_choice(choose_reader(w, COUNT(w), &asked, &handle), ROUTE_NO_READER, 0, 0);
    w[2].ready = w[3].ready = false; /* no misfit stands in the way */
    assert_choice(choose_reader(w, COUNT(w), &asked, &handle), ROUTE_NO_WORKER, 0, 0);
    w[2].ready = w[3].ready = true;
    refusal_count = 4;
    assert_choice(choose(w, COUNT(w), &asked), ROUTE_PLACED, 0,
                  3); /* as if there were no prefill */
    asked.local = true;
    assert_choice(choose(w, COUNT(w), &asked), ROUTE_PLACED, 0, 3);
}

/* A handle of a worker that came back with another layout: waiting for a reader is useless. If one
 * is only away, it is useful unless the request could begin again at once, on another kind. */
static void test_handle_that_no_worker_fits_has_no_reader(void **state)
{
    (void)state;
    struct route_worker w[] = {worker(ROLE_PREFILL, 1), worker(ROLE_DECODE, 3),
                               worker(ROLE_DECODE, 4)};
    struct route_handle handle = {
        .prefill = 1, .model_hash = 7, .layout_hash = 88, .numerics_id = 9};
    assert_choice(choose_reader(w, COUNT(w), &small, &handle), ROUTE_NO_READER, 0, 0);
    w[1].layout_hash = 88;
    w[1].ready = false;
    assert_choice(choose_reader(w, COUNT(w), &small, &handle), ROUTE_NO_READER, 0, 0);
    struct route_request begun = small; /* its answer must go on with other weights than 4 has */
    begun.kind = &(struct route_kind){.model_hash = 77, .numerics_id = 9};
    assert_choice(choose_reader(w, COUNT(w), &begun, &handle), ROUTE_NO_WORKER, 0, 0);
    w[1].ready = true;
    assert_choice(choose_reader(w, COUNT(w), &small, &handle), ROUTE_PLACED, 0, 3);
    w[1].ready = w[2].ready = false;
    w[1].layout_hash = 8;
    assert_choice(choose_reader(w, COUNT(w), &small, &handle), ROUTE_NO_WORKER, 0, 0);
}

/* Pairs that refused each other are kept while both live, however many there are, and whatever else
 * joins or leaves. */
static void test_misfits_are_forgotten_with_a_worker(void **state)
{
    (void)state;
    struct candidates all;
    struct route_worker prefill = worker(ROLE_PREFILL, 1), decode = worker(ROLE_DECODE, 2);
    const struct route_worker others[] = {prefill, decode};
    make(&all, others, COUNT(others));
    assert_int_equal(candidates_misfit(&all, 1, 2), STATUS_OK);
    assert_int_equal(candidates_misfit(&all, 1, 2), STATUS_OK); /* once more */
    for (uint64_t key = 1000; key < 1400; key++) {
        prefill.key = key;
        assert_int_equal(candidates_set(&all, 0, &prefill), STATUS_OK);
        assert_int_equal(candidates_misfit(&all, key, 2), STATUS_OK);
    }
    assert_int_equal(candidates_get(&all, 2)->misfit_count, 401);
    assert_choice(route_request(&all, 0, &small, NULL), ROUTE_PLACED, 0, 2); /* by itself */
    for (uint64_t key = 1000; key < 1399; key++)
        candidates_remove(&all, key);
    assert_int_equal(candidates_get(&all, 2)->misfit_count, 2);
    assert_true(candidate_misfits(candidates_get(&all, 2), 1));
    candidates_remove(&all, 1);
    assert_true(candidate_misfits(candidates_get(&all, 2), 1399));
    candidates_remove(&all, 2);
    decode.key = 3; /* its next life */
    assert_int_equal(candidates_set(&all, 0, &decode), STATUS_OK);
    assert_choice(route_request(&all, 0, &small, NULL), ROUTE_PLACED, 1399, 3);
    assert_int_equal(candidates_misfit(&all, 1, 3), STATUS_OK); /* one is gone: nothing to note */
    assert_int_equal(candidates_get(&all, 3)->misfit_count, 0);
    candidates_deinit(&all);
}

/* A prefill worker that fits no decode worker doesn't turn any off, by its registration or by what
 * it refused. */
static void test_a_worker_that_does_not_fit_counts_as_absent(void **state)
{
    (void)state;
    for (int field = 0; field < 4; field++) {
        struct route_worker w[] = {worker(ROLE_DECODE, 1), worker(ROLE_PREFILL, 2),
                                   worker(ROLE_DECODE, 3), worker(ROLE_PREFILL, 4)};
        w[1].model_hash += field == 0;
        w[1].layout_hash += field == 1;
        w[1].numerics_id += field == 2;
        refusals[0] = (struct refusal){2, 1};
        refusal_count = field == 3;
        assert_choice(choose(w, 2, &small), ROUTE_PLACED, 0, 1);
        w[1].ready = false; /* nor does it when it is away */
        assert_choice(choose(w, 2, &small), ROUTE_PLACED, 0, 1);
        w[0].ready = false;
        assert_int_equal(choose(w, 2, &small).lack, ROUTE_LACKS_DECODE);
        /* A pair comes first, until it is full or has failed. */
        refusal_count = 0;
        w[0].ready = true;
        w[2].numerics_id = w[3].numerics_id = 99;
        w[2].work_tokens = 1000;
        assert_choice(choose(w, 4, &small), ROUTE_PLACED, 4, 3);
        struct route_request again = small;
        again.avoid_prefill = 4;
        again.avoid_decode = 3;
        if (field < 3)
            assert_choice(choose(w, 4, &again), ROUTE_PLACED, 0, 1);
        w[2].requests = w[2].max_requests = 1;
        if (field < 3)
            assert_choice(choose(w, 4, &small), ROUTE_PLACED, 0, 1);
        assert_int_equal(room_on(w, 4, &small, NULL), 1000);
        w[0].capacity_tokens = 2000; /* so the room is that of the pair */
        assert_int_equal(room_on(w, 4, &small, NULL), 1000);
        w[2].ready = false;
        assert_int_equal(room_on(w, 4, &small, NULL), 2000);
    }
}

/* Only workers that could take it give it room. Prefill workers that are away count only if there
 * are no others. */
static void test_room(void **state)
{
    (void)state;
    struct route_worker w[] = {worker(ROLE_PREFILL, 1), worker(ROLE_DECODE, 2),
                               worker(ROLE_DECODE, 3), worker(ROLE_PREFILL, 4)};
    const struct route_kind kind = {7, 9};
    struct route_request asked = {.prompt_tokens = 100, .total_tokens = 101};
    w[2].capacity_tokens = 2000;
    w[3].numerics_id = 10;
    w[3].ready = false;
    assert_int_equal(room_on(w, COUNT(w), &asked, NULL), 2000);
    refusals[0] = (struct refusal){1, 3};
    refusal_count = 1;
    assert_int_equal(room_on(w, COUNT(w), &asked, NULL), 1000);
    w[2].numerics_id = 10; /* its prefill worker is away */
    assert_int_equal(room_on(w, COUNT(w), &asked, NULL), 1000);
    w[1].requests = w[1].max_requests = 1; /* full, for now */
    assert_int_equal(room_on(w, COUNT(w), &asked, NULL), 1000);
    asked.total_tokens = 1001;
    assert_int_equal(room_on(w, COUNT(w), &asked, NULL), 2000);
    asked.total_tokens = 2001;
    assert_int_equal(room_on(w, COUNT(w), &asked, NULL), 0);
    asked.total_tokens = 101;
    w[3].ready = true;
    assert_int_equal(room_on(w, COUNT(w), &asked, NULL), 2000);
    asked.kind = &kind;
    assert_int_equal(room_on(w, COUNT(w), &asked, NULL), 1000);
    asked.kind = NULL;
    w[3].capacity_tokens = 99; /* too small for the prompt */
    assert_int_equal(room_on(w, COUNT(w), &asked, NULL), 1000);
    asked.local = true;
    assert_int_equal(room_on(w, COUNT(w), &asked, NULL), 2000);
    w[2].ready = false;
    assert_int_equal(room_on(w, COUNT(w), &asked, NULL), 1000);
}

static void test_room_of_a_handle(void **state)
{
    (void)state;
    struct route_worker w[] = {worker(ROLE_DECODE, 2), worker(ROLE_DECODE, 3),
                               worker(ROLE_PREFILL, 1)};
    const struct route_request asked = {.prompt_tokens = 100, .total_tokens = 101};
    struct route_handle handle = {
        .prefill = 1, .model_hash = 7, .layout_hash = 8, .numerics_id = 9};
    refusals[0] = (struct refusal){1, 3};
    refusal_count = 1;
    w[1].capacity_tokens = 2000;
    assert_int_equal(room_on(w, 2, &asked, NULL), 2000); /* there is no prefill worker */
    assert_int_equal(room_on(w, 3, &asked, &handle), 1000);
    handle.prefill = 5;
    assert_int_equal(room_on(w, 3, &asked, &handle), 2000);
    w[1].layout_hash = 10;
    assert_int_equal(room_on(w, 3, &asked, &handle), 1000);
    handle.numerics_id = 10;
    assert_int_equal(room_on(w, 3, &asked, &handle), 0);
}
int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_room, forget_refusals),
        cmocka_unit_test_setup(test_room_of_a_handle, forget_refusals),
        cmocka_unit_test_setup(test_least_work_wins, forget_refusals),
        cmocka_unit_test_setup(test_ties_go_to_the_longest_unused, forget_refusals),
        cmocka_unit_test_setup(test_unlike_workers_are_never_paired, forget_refusals),
        cmocka_unit_test_setup(test_a_begun_answer_keeps_its_kind, forget_refusals),
        cmocka_unit_test_setup(test_unconfirmed_tokens_are_capped, forget_refusals),
        cmocka_unit_test_setup(test_local_only_without_prefill_workers_or_by_force,
                               forget_refusals),
        cmocka_unit_test_setup(test_local_where_the_prefill_workers_that_fit_have_been_away,
                               forget_refusals),
        cmocka_unit_test_setup(test_away_is_who_fits, forget_refusals),
        cmocka_unit_test_setup(test_what_is_lacking, forget_refusals),
        cmocka_unit_test_setup(test_what_a_handle_is_lacking, forget_refusals),
        cmocka_unit_test_setup(test_what_failed_is_avoided_unless_alone, forget_refusals),
        cmocka_unit_test_setup(test_too_long_is_said_only_when_nobody_could, forget_refusals),
        cmocka_unit_test_setup(test_a_handle_goes_to_another_decode_worker, forget_refusals),
        cmocka_unit_test_setup(test_a_burst_spreads, forget_refusals),
        cmocka_unit_test_setup(test_a_worker_takes_no_more_than_it_holds, forget_refusals),
        cmocka_unit_test_setup(test_a_prompt_alone_needs_but_a_prefill_worker, forget_refusals),
        cmocka_unit_test_setup(test_misfits_are_not_paired, forget_refusals),
        cmocka_unit_test_setup(test_misfits_are_forgotten_with_a_worker, forget_refusals),
        cmocka_unit_test_setup(test_a_worker_that_does_not_fit_counts_as_absent, forget_refusals),
        cmocka_unit_test_setup(test_handle_that_no_worker_fits_has_no_reader, forget_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
