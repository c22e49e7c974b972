/* decision_ring: which decisions are kept, what a person is told of them, and the regret. */
#include "router/ops/decision_ring.h"

#include "common/base/json/json.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct decision_ring *ring_of(size_t capacity, uint32_t percent)
{
    struct decision_ring *ring;
    assert_int_equal(decision_ring_create(capacity, percent, &ring), STATUS_OK);
    return ring;
}

/* A decision with two alternatives, of which the first one won. */
static struct decision_entry entry_of(const char *name, double least_miss)
{
    struct decision_entry entry = {.objective = {.ttft_us = 400000}, .used = 0.25, .attempt = 1};
    const struct decision_alternative won = {.prefill = 1,
                                             .decode = 2,
                                             .ttft_us = 120000,
                                             .tpot_us = 30000,
                                             .p_miss = least_miss,
                                             .total = 0.5},
                                      other = {.prefill = 3,
                                               .decode = 2,
                                               .ttft_us = INFINITY,
                                               .p_miss = 1,
                                               .total = 0.75};
    str_copy(entry.name, sizeof entry.name, name);
    str_copy(entry.model, sizeof entry.model, "m");
    str_copy(entry.slo_class, sizeof entry.slo_class, "chat");
    decision_begin(&entry.is, "goodput");
    decision_consider(&entry.is, &won);
    decision_consider(&entry.is, &other);
    decision_choose(&entry.is, &won, DECISION_LEAST);
    str_copy(entry.workers[0].prefill, DECISION_WORKER_BYTES, "prefill-0");
    str_copy(entry.workers[0].decode, DECISION_WORKER_BYTES, "decode-0");
    str_copy(entry.workers[1].prefill, DECISION_WORKER_BYTES, "prefill-1");
    str_copy(entry.workers[1].decode, DECISION_WORKER_BYTES, "decode-0");
    return entry;
}

/* Returns the decisions of the request that the ring tells of. *json owns them. */
static const struct json_value *told(struct decision_ring *ring, const char *name, uint32_t choice,
                                     struct json **json)
{
    struct str out;
    struct error err;
    const struct json_value *list;
    const struct json_limits limits = {.max_bytes = 1 << 20, .max_depth = 8};
    str_init(&out, 1 << 20);
    assert_true(decision_ring_json(ring, name, choice, &out));
    if (json_parse(out.data, out.length, limits, json, &err) != STATUS_OK)
        fail_msg("%s: %s", err.text, out.data);
    assert_int_equal(json_get_array(json_root(*json), "decisions", &list, &err), STATUS_OK);
    str_deinit(&out);
    return list;
}

static size_t count_of(struct decision_ring *ring, const char *name, uint32_t choice)
{
    struct json *json;
    size_t count = json_count(told(ring, name, choice, &json));
    json_destroy(json);
    return count;
}

static double number(const struct json_value *object, const char *key)
{
    double value;
    struct error err;
    assert_int_equal(json_get_double(object, key, -1e300, 1e300, &value, &err), STATUS_OK);
    return value;
}

static void test_a_decision_is_told_with_its_outcome(void **state)
{
    (void)state;
    struct decision_ring *ring = ring_of(4, 100);
    struct decision_entry entry = entry_of("r\"1", 0.1);
    struct json *json;
    uint64_t serial = decision_ring_put(ring, &entry);
    const struct json_value *list = told(ring, "r\"1", 0, &json);
    assert_int_equal(json_count(list), 1);
    const struct json_value *alternatives = json_find(json_at(list, 0), "alternatives");
    assert_int_equal(json_count(alternatives), 2);
    assert_true(number(json_at(alternatives, 0), "ttft_ms") == 120);
    assert_true(number(json_at(alternatives, 1), "ttft_ms") > 1e20); /* JSON has no infinity */
    json_destroy(json);
    const struct decision_outcome outcome = {
        .known = true, .reason = "ok", .ttft_us = 500000, .e2e_us = 900000};
    decision_ring_ended(ring, serial, &outcome);
    list = told(ring, "r\"1", 0, &json);
    const struct json_value *ended = json_find(json_at(list, 0), "outcome");
    assert_true(number(ended, "ttft_ms") == 500 && number(ended, "e2e_ms") == 900);
    json_destroy(json);
    assert_int_equal(count_of(ring, "r\"1", 1), 0); /* its second answer */
    assert_int_equal(count_of(ring, "chatcmpl-r\"1", 0), 1);
    assert_int_equal(count_of(ring, "chatcmpl-cmpl-r\"1", 0), 0);
    assert_int_equal(count_of(ring, "r", 0), 0);
    decision_ring_destroy(ring);
}

/* Without a name: the request and the choice of the newest decision. */
static void test_the_newest_of_all(void **state)
{
    (void)state;
    struct decision_ring *ring = ring_of(2, 100), *none = ring_of(0, 100);
    assert_int_equal(count_of(ring, NULL, 0), 0);
    assert_int_equal(count_of(none, NULL, 0), 0);
    const char *const names[] = {"a", "b", "cmpl-b"};
    for (size_t i = 0; i < 3; i++) {
        struct decision_entry entry = entry_of(names[i], 0.1);
        struct str out;
        char wanted[64];
        entry.choice = 2;
        (void)decision_ring_put(ring, &entry);
        str_init(&out, 1 << 20);
        assert_true(decision_ring_json(ring, NULL, 0, &out));
        snprintf(wanted, sizeof wanted, "{\"request\": \"%s\", \"choice\": 2, ", names[i]);
        assert_ptr_equal(strstr(out.data, wanted), out.data);
        str_deinit(&out);
    }
    assert_int_equal(count_of(ring, "cmpl-b", 2), 1); /* it is a request's own id */
    decision_ring_destroy(ring);
    decision_ring_destroy(none);
}

static void test_the_newest_decisions_are_kept(void **state)
{
    (void)state;
    struct decision_ring *ring = ring_of(DECISION_RING_MAX_SHOWN + 2, 100);
    struct decision_entry entry = entry_of("many", 0.1), old = entry_of("old", 0.1);
    uint64_t first = decision_ring_put(ring, &old);
    for (uint32_t i = 0; i <= DECISION_RING_MAX_SHOWN; i++) {
        entry.attempt = i + 1;
        (void)decision_ring_put(ring, &entry);
    }
    struct json *json;
    const struct json_value *list = told(ring, "many", 0, &json);
    assert_int_equal(json_count(list), DECISION_RING_MAX_SHOWN); /* the last ones, in order */
    for (uint32_t i = 0; i < DECISION_RING_MAX_SHOWN; i++)
        assert_true(number(json_at(list, i), "attempt") == i + 2);
    json_destroy(json);
    assert_int_equal(count_of(ring, "old", 0), 1);
    (void)decision_ring_put(ring, &entry);
    assert_int_equal(count_of(ring, "old", 0), 0);
    decision_ring_ended(ring, first, &(struct decision_outcome){.known = true}); /* forgotten */
    assert_int_equal(decision_ring_regret(ring).requests, 0);
    decision_ring_destroy(ring);
}

static void test_a_sample_of_the_requests_is_kept(void **state)
{
    (void)state;
    const struct {
        size_t capacity;
        uint32_t percent, least, most;
    } table[] = {{10, 0, 0, 0}, {10, 100, 4000, 4000}, {10, 10, 300, 500}, {0, 100, 0, 0}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct decision_ring *ring = ring_of(table[i].capacity, table[i].percent);
        uint32_t sampled = 0;
        for (uint64_t id = 1; id <= 4000; id++) {
            sampled += decision_ring_samples(ring, id);
            assert_true(decision_ring_samples(ring, id) == decision_ring_samples(ring, id));
        }
        assert_in_range(sampled, table[i].least, table[i].most);
        decision_ring_destroy(ring);
    }
    struct decision_ring *none = ring_of(0, 100);
    struct decision_entry entry = entry_of("r", 0.1);
    assert_int_equal(decision_ring_put(none, &entry), 0);
    decision_ring_ended(none, 0, &(struct decision_outcome){.known = true});
    assert_int_equal(count_of(none, "r", 0), 0);
    decision_ring_destroy(none);
}

/* Predicted to miss in 1 of 10, and misses in 3 of 10: 0.2 misses of a request. */
static void test_regret_is_what_missed_beyond_the_best_prediction(void **state)
{
    (void)state;
    struct decision_ring *ring = ring_of(8, 100);
    struct decision_entry entry = entry_of("r", 0.1);
    for (int i = 0; i < 2000; i++) {
        uint64_t serial = decision_ring_put(ring, &entry);
        decision_ring_ended(
            ring, serial,
            &(struct decision_outcome){.known = i % 20 != 0, .attained = i % 10 >= 3});
    }
    struct decision_regret regret = decision_ring_regret(ring);
    assert_int_equal(regret.requests, 1900);
    assert_true(fabs(regret.mean - (0.25 / 0.95 - 0.1)) < 0.02);
    entry.is.alternatives[0].p_miss = entry.is.alternatives[1].p_miss = -1; /* not predicted */
    decision_ring_ended(ring, decision_ring_put(ring, &entry),
                        &(struct decision_outcome){.known = true});
    entry = entry_of("r", 0.1);
    entry.objective = (struct slo_objective){0};
    decision_ring_ended(ring, decision_ring_put(ring, &entry),
                        &(struct decision_outcome){.known = true});
    assert_int_equal(decision_ring_regret(ring).requests, 1900);
    decision_ring_destroy(ring);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_decision_is_told_with_its_outcome),
        cmocka_unit_test(test_the_newest_of_all),
        cmocka_unit_test(test_the_newest_decisions_are_kept),
        cmocka_unit_test(test_a_sample_of_the_requests_is_kept),
        cmocka_unit_test(test_regret_is_what_missed_beyond_the_best_prediction),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
