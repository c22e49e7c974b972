/* The books of each worker: the sum over all requests after any event; a token moves the ones that
 * predictions read. */
#include "router/planner/placement.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static unsigned repeats(const char *name, unsigned usual)
{
    const char *set = getenv(name);
    return set ? (unsigned)atoi(set) : usual;
}

static struct route_worker plain(enum worker_role role, uint64_t key)
{
    return (struct route_worker){.key = key,
                                 .role = role,
                                 .ready = true,
                                 .capacity_tokens = 1000,
                                 .unconfirmed_limit_tokens = 500,
                                 .max_requests = 4};
}

/* ---------------------------------------------------------------------------------------- books */

#define REQUESTS 24
#define WORKERS  8

struct life {
    struct rng rng;
    struct placement placement;
    struct placement_request requests[REQUESTS];
    struct placement_use uses[REQUESTS];
    bool lives[REQUESTS];
    uint64_t keys[WORKERS], next_key; /* 0: gone */
};

static void worker_comes(struct life *life, size_t slot)
{
    struct route_worker facts = plain(slot % 2 ? ROLE_DECODE : ROLE_PREFILL, ++life->next_key);
    facts.leaving = rng_below(&life->rng, 8) == 0;
    assert_int_equal(placement_worker_set(&life->placement, 0, &facts), STATUS_OK);
    life->keys[slot] = facts.key;
}

static uint64_t some_key(struct life *life, size_t role)
{
    return rng_below(&life->rng, 4) ? life->keys[2 * rng_below(&life->rng, WORKERS / 2) + role] : 0;
}

static void any_event(struct life *life)
{
    size_t i = rng_below(&life->rng, REQUESTS), slot = rng_below(&life->rng, WORKERS);
    struct placement_use *use = &life->uses[i];
    if (rng_below(&life->rng, 40) == 0) {
        if (life->keys[slot])
            placement_worker_remove(&life->placement, life->keys[slot]);
        life->keys[slot] = 0;
        if (rng_below(&life->rng, 2))
            worker_comes(life, slot);
        return;
    }
    if (!life->lives[i]) {
        placement_arrived(&life->placement, &life->requests[i], 0, i % 3);
        *use = (struct placement_use){0};
        life->lives[i] = true;
        return;
    }
    switch (rng_below(&life->rng, 6)) {
    case 0:
        *use = (struct placement_use){.prefill = some_key(life, 0),
                                      .decode = some_key(life, 1),
                                      .working = rng_below(&life->rng, 5) != 0,
                                      .prompt_tokens = 1 + rng_below(&life->rng, 100)};
        use->longest_tokens = use->prompt_tokens + rng_below(&life->rng, 100);
        use->priority = (enum priority)rng_below(&life->rng, PRIORITIES);
        use->cached_tokens = rng_below(&life->rng, 120);
        use->expected_tokens = rng_below(&life->rng, 300);
        use->variance = rng_below(&life->rng, 1000);
        use->slack_us = (double)rng_below(&life->rng, 4000000) - 1000000;
        use->weight = (uint16_t)rng_below(&life->rng, 3 * BOOKS_WEIGHT_ONE);
        break;
    case 1:
        use->prefilled = true;
        use->drawing = rng_below(&life->rng, 2);
        break;
    case 2: use->confirmed = use->drawing = true; break;
    case 3: /* a token */
        use->prompt_tokens++;
        use->tolerance_us = (double)rng_below(&life->rng, 100000) - 10000;
        break;
    case 4: use->decode = some_key(life, 1); break;
    default:
        placement_ended(&life->placement, &life->requests[i]);
        life->lives[i] = false;
        return;
    }
    placement_track(&life->placement, &life->requests[i], use);
}

/* A worker's books for predictions, as far as they can be said in sums. */
struct sums {
    uint64_t requests[PRIORITIES], rows[PRIORITIES], positions[PRIORITIES], slack, tolerance;
    uint64_t drawing, coming, drawing_context, coming_context, held, promised, variance, left;
    uint64_t moving;
};

static void add_prompt_sums(struct sums *sum, const struct placement_use *use)
{
    uint64_t first =
        use->cached_tokens < use->prompt_tokens ? use->cached_tokens : use->prompt_tokens - 1;
    sum->requests[use->priority]++;
    for (uint64_t at = first; at < use->prompt_tokens; at++) {
        sum->rows[use->priority]++;
        sum->positions[use->priority] += at;
    }
    sum->slack += use->slack_us > 0 ? use->weight : 0;
}

static void add_sums(struct sums *sum, const struct placement_use *use, bool decode)
{
    if (!decode) {
        if (use->working && !use->prefilled)
            add_prompt_sums(sum, use);
        sum->held += use->confirmed ? 0 : use->prompt_tokens;
        sum->promised += use->confirmed ? 0 : use->prompt_tokens;
        return;
    }
    if (!use->prefill && !use->prefilled)
        add_prompt_sums(sum, use);
    uint64_t end = use->expected_tokens;
    end = end > use->prompt_tokens ? end : use->prompt_tokens + 1;
    *(use->drawing ? &sum->drawing : &sum->coming) += 1;
    *(use->drawing ? &sum->drawing_context : &sum->coming_context) += use->prompt_tokens;
    sum->held += use->prompt_tokens;
    sum->promised += end;
    sum->variance += use->variance;
    if (use->drawing && end - use->prompt_tokens >= 16 && end - use->prompt_tokens < 32)
        sum->left++;
    sum->tolerance += use->tolerance_us > 0 ? use->weight : 0;
    sum->moving += use->prefill && !use->confirmed ? use->prompt_tokens : 0;
}

/* The set has the buckets that aren't 0. */
static void check_set(const uint32_t weights[BOOKS_TIMES], const uint64_t set[BOOKS_WORDS])
{
    unsigned next = 0;
    for (unsigned b = 0; b < BOOKS_TIMES; b++) {
        if (!weights[b])
            continue;
        assert_int_equal(books_next(set, next), b);
        next = b + 1;
    }
    assert_int_equal(books_next(set, next), BOOKS_TIMES);
}

static void check_sums(const struct sums *sum, const struct worker_books *books)
{
    uint64_t slack = 0, tolerance = 0, prompts = 0;
    for (int p = 0; p < PRIORITIES; p++) {
        assert_int_equal(books->prefill[p].requests, sum->requests[p]);
        assert_int_equal(books->prefill[p].rows, sum->rows[p]);
        assert_int_equal(books->prefill[p].positions, sum->positions[p]);
        for (int b = 0; b < BOOKS_TIMES; b++)
            slack += books->prefill[p].slack[b];
        prompts += sum->requests[p];
        check_set(books->prefill[p].slack, books->prefill[p].slack_set);
    }
    check_set(books->tolerance, books->tolerance_set);
    assert_int_equal(books->prompts, prompts);
    for (int i = 0; i < BOOKS_LENGTHS; i++)
        assert_int_equal(books->left_set >> i & 1, books->left[i].rows > 0);
    for (int b = 0; b < BOOKS_TIMES; b++)
        tolerance += books->tolerance[b];
    assert_int_equal(slack, sum->slack);
    assert_int_equal(tolerance, sum->tolerance);
    assert_int_equal(books->drawing.rows, sum->drawing);
    assert_int_equal(books->drawing.context, sum->drawing_context);
    assert_int_equal(books->coming.rows, sum->coming);
    assert_int_equal(books->coming.context, sum->coming_context);
    assert_int_equal(books->held_tokens, sum->held);
    assert_int_equal(books->promised_tokens, sum->promised);
    assert_int_equal(books->variance, sum->variance);
    assert_int_equal(books->moving_tokens, sum->moving);
    assert_int_equal(books->left[4].rows, sum->left);
}

/* The sums, by their own definition. */
static void check_books(struct life *life, uint64_t event)
{
    for (size_t slot = 0; slot < WORKERS; slot++) {
        struct route_worker sum = {0};
        struct sums sums = {0};
        uint64_t key = life->keys[slot];
        size_t listed = 0;
        for (size_t i = 0; i < REQUESTS && key; i++) {
            const struct placement_use *use = &life->uses[i];
            if (!life->lives[i])
                continue;
            if (slot % 2 == 0 && use->prefill == key) {
                listed++;
                add_sums(&sums, use, false);
                sum.requests += !use->confirmed;
                if (use->working && !use->prefilled)
                    sum.work_tokens += use->prompt_tokens;
            } else if (slot % 2 && use->decode == key && use->working) {
                listed++;
                add_sums(&sums, use, true);
                sum.requests++;
                sum.work_tokens += use->longest_tokens;
                if (!use->confirmed)
                    sum.unconfirmed_tokens += use->prompt_tokens;
            }
        }
        const struct candidate *worker = candidates_get(&life->placement.candidates, key);
        if (!worker)
            continue;
        for (struct placement_request *on = placement_first_of(&life->placement, key); on;
             on = placement_next_of(on, key))
            listed--;
        if (listed || worker->is.requests != sum.requests ||
            worker->is.work_tokens != sum.work_tokens ||
            worker->is.unconfirmed_tokens != sum.unconfirmed_tokens)
            fail_msg("event %llu: the books of worker %llu are wrong", (unsigned long long)event,
                     (unsigned long long)key);
        check_sums(&sums, &worker->books);
    }
}

static void test_books_are_the_sum_after_each_event(void **state)
{
    (void)state;
    static struct life life;
    const struct placement_config config = {.model_count = 1};
    assert_int_equal(books_next((const uint64_t[BOOKS_WORDS]){0, 1}, 3), 64);
    memset(&life, 0, sizeof life);
    life.rng = rng_seeded(3);
    assert_int_equal(placement_init(&life.placement, &config), STATUS_OK);
    for (size_t slot = 0; slot < WORKERS; slot++)
        worker_comes(&life, slot);
    for (uint64_t event = 0, events = repeats("EVENTS", 100000); event < events; event++) {
        any_event(&life);
        check_books(&life, event);
        if (event % 64 == 0)
            assert_true(placement_recount(&life.placement));
    }
    candidates_get(&life.placement.candidates, life.keys[0] ? life.keys[0] : life.keys[2])
        ->is.work_tokens++;
    assert_false(placement_recount(&life.placement)); /* it can tell */
    struct candidate *any =
        candidates_get(&life.placement.candidates, life.keys[0] ? life.keys[0] : life.keys[2]);
    any->is.work_tokens--;
    assert_true(placement_recount(&life.placement));
    any->books.tolerance[7]++;
    assert_false(placement_recount(&life.placement));
    any->books.tolerance[7]--;
    placement_deinit(&life.placement);
}

/* --------------------------------------------------------------------------------------- events */

static void test_buckets(void **state)
{
    (void)state;
    assert_int_equal(books_time_bucket(-5), 0);
    assert_int_equal(books_time_bucket(500), 0);
    assert_int_equal(books_time_bucket(1e12), BOOKS_TIMES - 1);
    for (unsigned bucket = 1; bucket < BOOKS_TIMES; bucket++)
        assert_int_equal(books_time_bucket(books_time_us(bucket)), bucket);
    assert_int_equal(books_length_bucket(0), 0);
    assert_int_equal(books_length_bucket(1), 0);
    assert_int_equal(books_length_bucket(2), 1);
    assert_int_equal(books_length_bucket(1023), 9);
    assert_int_equal(books_length_bucket(1024), 10);
    assert_int_equal(books_length_bucket(UINT64_MAX), BOOKS_LENGTHS - 1);
}

/* A token moves the books for predictions, and gives no waiting request a place. */
static void test_a_token_moves_the_books_and_frees_no_place(void **state)
{
    (void)state;
    static struct placement placement;
    struct placement_request request;
    const struct placement_config config = {.model_count = 1};
    const struct route_worker decode = plain(ROLE_DECODE, 2);
    assert_int_equal(placement_init(&placement, &config), STATUS_OK);
    assert_int_equal(placement_worker_set(&placement, 0, &decode), STATUS_OK);
    placement_arrived(&placement, &request, 0, 0);
    struct placement_use use = {.prefill = 1,
                                .decode = 2,
                                .working = true,
                                .prefilled = true,
                                .confirmed = true,
                                .drawing = true,
                                .prompt_tokens = 100,
                                .longest_tokens = 200,
                                .expected_tokens = 110,
                                .tolerance_us = 40000,
                                .weight = BOOKS_WEIGHT_ONE};
    placement_track(&placement, &request, &use);
    const struct worker_books *books = &candidates_get(&placement.candidates, 2)->books;
    assert_int_equal(books->left[books_length_bucket(10)].rows, 1);
    assert_int_equal(books->tolerance[books_time_bucket(40000)], BOOKS_WEIGHT_ONE);
    uint64_t version = placement.candidates.version;
    use.prompt_tokens = 107;
    use.tolerance_us = 35000;
    placement_track(&placement, &request, &use);
    assert_int_equal(books->drawing.context, 107);
    assert_int_equal(books->left[books_length_bucket(3)].rows, 1);
    assert_int_equal(books->tolerance[books_time_bucket(35000)], BOOKS_WEIGHT_ONE);
    assert_int_equal(placement.candidates.version, version);
    use.tolerance_us = -1; /* it has missed: it tolerates anything now */
    placement_track(&placement, &request, &use);
    assert_int_equal(books->tolerance[0], 0);
    assert_int_equal(books->tolerance[books_time_bucket(35000)], 0);
    placement_ended(&placement, &request);
    assert_int_equal(books->held_tokens + books->drawing.rows + books->promised_tokens, 0);
    assert_true(placement.candidates.version > version);
    placement_deinit(&placement);
}

/* Reported rows are those of prompts that the books still hold. */
static void test_rows_that_were_computed_are_waited_for_no_more(void **state)
{
    (void)state;
    static struct placement placement;
    struct placement_request requests[2];
    const struct placement_config config = {.model_count = 1};
    const struct route_worker prefill = plain(ROLE_PREFILL, 1);
    assert_int_equal(placement_init(&placement, &config), STATUS_OK);
    assert_int_equal(placement_worker_set(&placement, 0, &prefill), STATUS_OK);
    struct placement_use use = {.prefill = 1, .working = true, .prompt_tokens = 100};
    const struct candidate *worker = candidates_get(&placement.candidates, 1);
    placement_worker_stepped(&placement, 1, 50); /* others' */
    assert_int_equal(worker->computed_rows[PRIORITY_NORMAL], 0);
    for (int i = 0; i < 2; i++) {
        placement_arrived(&placement, &requests[i], 0, 0);
        placement_track(&placement, &requests[i], &use);
    }
    double all_us = predict_wait_us(worker, PRIORITY_NORMAL, COST_P50);
    placement_worker_stepped(&placement, 1, 70);
    assert_int_equal(worker->computed_rows[PRIORITY_NORMAL], 70);
    assert_true(predict_wait_us(worker, PRIORITY_NORMAL, COST_P50) < all_us);
    placement_worker_stepped(&placement, 1, 70);
    assert_int_equal(worker->computed_rows[PRIORITY_NORMAL], 140);
    use.prefilled = true;
    placement_track(&placement, &requests[0], &use);
    assert_int_equal(worker->computed_rows[PRIORITY_NORMAL], 40);
    /* The router believed that 90 tokens of the next one were cached. The worker found none. */
    use = (struct placement_use){
        .prefill = 1, .working = true, .prompt_tokens = 100, .cached_tokens = 90};
    placement_track(&placement, &requests[0], &use);
    placement_found_cached(&placement, &requests[0], 0);
    assert_int_equal(requests[0].cached_tokens, 0);
    assert_true(fabs(placement.demands[0].prompt_tokens - 100) < 1e-9 &&
                placement.demands[0].cached_tokens < 1e-9);
    placement_worker_stepped(&placement, 1, 100);
    assert_int_equal(worker->computed_rows[PRIORITY_NORMAL], 140);
    use.cached_tokens = 0;
    use.prefilled = true;
    placement_track(&placement, &requests[0], &use);
    assert_int_equal(worker->computed_rows[PRIORITY_NORMAL], 40); /* its 100, and not 10 */
    placement_ended(&placement, &requests[1]);                    /* cancelled */
    assert_int_equal(worker->computed_rows[PRIORITY_NORMAL], 0);
    placement_ended(&placement, &requests[0]);
    placement_deinit(&placement);
}

/* A prompt that is taken away takes along what was computed of it: the first one, and not the ones
 * that wait behind it. Prompts of high priority are computed first. */
static void test_a_cancelled_prompt_takes_its_computed_rows_along(void **state)
{
    (void)state;
    static struct placement placement;
    struct placement_request requests[5];
    const struct placement_config config = {.model_count = 1};
    const struct route_worker prefill = plain(ROLE_PREFILL, 1);
    assert_int_equal(placement_init(&placement, &config), STATUS_OK);
    assert_int_equal(placement_worker_set(&placement, 0, &prefill), STATUS_OK);
    struct placement_use use = {.prefill = 1, .working = true, .prompt_tokens = 100};
    const struct candidate *worker = candidates_get(&placement.candidates, 1);
    const uint64_t *computed = worker->computed_rows;
    for (int i = 0; i < 5; i++) {
        use.priority = i ? PRIORITY_NORMAL : PRIORITY_HIGH;
        placement_arrived(&placement, &requests[i], 0, 0);
        placement_track(&placement, &requests[i], &use);
    }
    placement_worker_stepped(&placement, 1, 60);
    assert_true(computed[PRIORITY_HIGH] == 60 && computed[PRIORITY_NORMAL] == 0);
    placement_worker_stepped(&placement, 1, 170);
    assert_true(computed[PRIORITY_HIGH] == 100 && computed[PRIORITY_NORMAL] == 130);
    placement_ended(&placement, &requests[4]); /* it waits behind the others */
    assert_int_equal(computed[PRIORITY_NORMAL], 130);
    placement_ended(&placement, &requests[2]); /* 30 of its rows were computed */
    assert_int_equal(computed[PRIORITY_NORMAL], 100);
    placement_ended(&placement, &requests[0]);
    assert_int_equal(computed[PRIORITY_HIGH], 0);
    placement_ended(&placement, &requests[1]);
    assert_int_equal(computed[PRIORITY_NORMAL], 0);
    placement_found_cached(&placement, &requests[3], 90); /* fewer rows than were reported */
    use.priority = PRIORITY_NORMAL;
    placement_track(&placement, &requests[3], &use);
    placement_worker_stepped(&placement, 1, 100);
    placement_found_cached(&placement, &requests[3], 90);
    assert_int_equal(computed[PRIORITY_NORMAL], 10);
    /* It is computed again elsewhere: only what was found at first tells of the caches. */
    assert_true(fabs(placement.demands[0].prompt_tokens - 100) < 1e-9);
    placement_ended(&placement, &requests[3]);
    placement_deinit(&placement);
}

/* Errors of prediction are those of the reader that the request is bound to. */
static void test_the_bound_reader_is_what_was_predicted(void **state)
{
    (void)state;
    static struct placement placement;
    struct placement_request request;
    const struct placement_config config = {
        .model_count = 1, .policy = PLACEMENT_GOODPUT, .has_classes = true};
    struct route_worker workers[] = {plain(ROLE_PREFILL, 1), plain(ROLE_DECODE, 2)};
    static const struct worker_learnt learnt = {
        .chunk_rows = 2, .lane_bytes_per_second = 1000000, .kv_bytes_per_token = 1000};
    struct decision decision;
    const struct books_part draws = {.drawing = true, .context = 100, .left = 10};
    const struct route_handle handle = {.prefill = 1};
    struct placement_ask ask = {.request = {.prompt_tokens = 10, .total_tokens = 20},
                                .predict = {.prompt_tokens = 10,
                                            .answer_tokens = 100,
                                            .answer_p90_tokens = 200,
                                            .objective = {.tpot_us = 40000}},
                                .percentile = 90};
    uint64_t tokens;
    assert_int_equal(placement_init(&placement, &config), STATUS_OK);
    for (size_t i = 0; i < sizeof workers / sizeof *workers; i++) {
        workers[i].learnt = &learnt;
        assert_int_equal(placement_worker_set(&placement, 0, &workers[i]), STATUS_OK);
    }
    placement_arrived(&placement, &request, 0, 0);
    double before_us = 0;
    for (int binds = 0; binds < 3; binds++) {
        placement_wait(&placement, &request, binds ? PLACEMENT_REGIVE : PLACEMENT_NEW, 1);
        placement_begin(&placement, 0, 1);
        assert_ptr_equal(placement_next(&placement), &request);
        ask.handle = binds ? &handle : NULL;
        ask.ready_us = binds == 1 ? 1000 : 0; /* then its reader failed, with its answer begun */
        decision_begin(&decision, "");
        ask.request.decision = &decision;
        struct route_choice choice = placement_choose(&placement, &request, &ask, &tokens);
        assert_int_equal(choice.outcome, ROUTE_PLACED);
        placement_stop_waiting(&placement, &request);
        assert_true(binds == 1 ? request.predicted.tpot_us > before_us + 1000
                               : request.predicted.tpot_us >= before_us);
        assert_true(binds < 2 || request.predicted.tpot_us <= before_us);
        assert_true(request.predicted.ttft_us > 0);
        /* Bytes move until the prompt is computed: it was scored so, too. */
        assert_true(binds == 2 || fabs(request.predicted.tpot_us -
                                       decision.alternatives[decision.chosen].tpot_us) < 1e-3);
        before_us = request.predicted.tpot_us;
        for (int i = 0; i < 100; i++) /* others come before it is bound */
            worker_books_add(&candidates_get(&placement.candidates, 2)->books, &draws);
    }
    placement_ended(&placement, &request);
    placement_deinit(&placement);
}

static void expect_here(const struct placement *placement, size_t known, size_t waiting,
                        uint64_t running, uint64_t most)
{
    struct placement_tenants_here here = placement_tenants_here(placement, 0);
    assert_int_equal(here.known, known);
    assert_int_equal(here.waiting, waiting);
    assert_int_equal(here.running, running);
    assert_int_equal(here.most, most);
}

static void test_tenants_are_counted_by_what_waits_and_runs(void **state)
{
    (void)state;
    static struct placement placement;
    struct placement_request requests[4];
    const struct placement_config config = {.model_count = 1};
    const struct placement_use at_prefill = {.prefill = 1}, at_both = {.prefill = 1, .decode = 2},
                               nowhere = {.prefill = 0};
    assert_int_equal(placement_init(&placement, &config), STATUS_OK);
    expect_here(&placement, 0, 0, 0, 0);
    for (size_t i = 0; i < 4; i++) /* three of tenant 7, one of tenant 0 */
        placement_arrived(&placement, &requests[i], 0, i < 3 ? 7 : 0);
    expect_here(&placement, 2, 2, 0, 0);
    for (size_t i = 0; i < 4; i++) {
        placement_track(&placement, &requests[i], &at_prefill);
        placement_track(&placement, &requests[i], &at_both); /* it runs already */
    }
    expect_here(&placement, 2, 0, 4, 3);
    placement_track(&placement, &requests[0], &nowhere); /* its worker is lost */
    expect_here(&placement, 2, 1, 3, 2);
    placement_ended(&placement, &requests[0]);
    placement_ended(&placement, &requests[3]);
    expect_here(&placement, 1, 0, 2, 2);
    for (size_t i = 1; i < 3; i++)
        placement_ended(&placement, &requests[i]);
    expect_here(&placement, 0, 0, 0, 0);
    placement_deinit(&placement);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_books_are_the_sum_after_each_event),
        cmocka_unit_test(test_buckets),
        cmocka_unit_test(test_tenants_are_counted_by_what_waits_and_runs),
        cmocka_unit_test(test_a_token_moves_the_books_and_frees_no_place),
        cmocka_unit_test(test_the_bound_reader_is_what_was_predicted),
        cmocka_unit_test(test_rows_that_were_computed_are_waited_for_no_more),
        cmocka_unit_test(test_a_cancelled_prompt_takes_its_computed_rows_along),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
