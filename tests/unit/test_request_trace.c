/* The trace of a request: its events, the ring that shows it, its JSON, its line of the access log,
 * and the figures of the last minute. */
#include "common/base/json/json.h"
#include "router/ops/access_line.h"
#include "router/ops/router_metrics.h"
#include "router/ops/trace_ring.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define T0 1000000u /* when it arrives */

static struct request_trace begun(const char *name)
{
    struct request_trace trace;
    request_trace_begin(&trace, &(struct trace_arrival){.name = name,
                                                        .model = "llama",
                                                        .peer = "ipv4:127.0.0.1:4242",
                                                        .prompt_tokens = 12,
                                                        .max_tokens = 3,
                                                        .arrival_us = T0});
    return trace;
}

/* Prefilled in two chunks, pulled, and decoded: three tokens. */
static struct request_trace answered(const char *name)
{
    struct request_trace trace = begun(name);
    request_trace_placed(&trace, 1, false, T0 + 100);
    request_trace_prefill_sent(&trace, "prefill-0");
    request_trace_opened(&trace, 1, T0 + 150);
    request_trace_decode_sent(&trace, "decode-0", false, T0 + 160);
    struct trace_prefill prefill = {
        .queued_us = 50, .cached_tokens = 4, .chunk_count = 2, .chunk_end_us = {5000, 9000}};
    request_trace_prefilled(&trace, 1, &prefill);
    request_trace_token(&trace, false, T0 + 9500);
    struct trace_handoff handoff = {.queued_us = 10,
                                    .read_us = 5040,
                                    .done_us = 10040,
                                    .bytes = 4096,
                                    .early_bytes = 2048,
                                    .lane = "shm"};
    request_trace_pulled(&trace, 1, &handoff, T0 + 10300);
    request_trace_token(&trace, true, T0 + 12500);
    request_trace_token(&trace, true, T0 + 13500);
    request_trace_end(&trace, "ok", "max_tokens", 1, T0 + 13600);
    return trace;
}

static void test_a_request_that_is_answered(void **state)
{
    (void)state;
    struct request_trace trace = answered("r1");
    assert_int_equal(trace.tokens, 3);
    assert_int_equal(trace.dispatched_us, T0 + 100);
    assert_int_equal(trace.first_us, T0 + 9500);
    assert_int_equal(trace.second_us, T0 + 12500);
    assert_int_equal(trace.longest_gap_us, 3000);
    assert_int_equal(trace.longest_gap_token, 2);
    assert_true(request_trace_tpot_us(&trace) == 2000);
    const struct trace_attempt *attempt = request_trace_last(&trace);
    assert_non_null(attempt);
    assert_int_equal(attempt->first_us, T0 + 9500);
    assert_int_equal(attempt->decode_first_us, T0 + 12500);
    assert_int_equal(attempt->ended_us, T0 + 13600);
    assert_string_equal(attempt->why, "ok");
}

static void test_attempts_beyond_the_room_for_them(void **state)
{
    (void)state;
    struct request_trace trace = begun("r1");
    for (uint32_t number = 1; number <= TRACE_MAX_ATTEMPTS + 2; number++) {
        char worker[16];
        snprintf(worker, sizeof worker, "prefill-%u", number);
        request_trace_again(&trace, T0 + number * 10);
        request_trace_placed(&trace, number, false, T0 + number * 10);
        request_trace_prefill_sent(&trace, worker);
        request_trace_why(&trace, number, "session_lost");
        request_trace_why(&trace, number + 1, "of another attempt");
    }
    assert_int_equal(trace.attempt_count, TRACE_MAX_ATTEMPTS + 2);
    assert_int_equal(request_trace_shown(&trace), TRACE_MAX_ATTEMPTS);
    assert_string_equal(trace.attempts[0].prefill_worker, "prefill-1");
    assert_string_equal(trace.attempts[0].why, "session_lost");
    const struct trace_attempt *last = request_trace_last(&trace);
    assert_int_equal(last->number, TRACE_MAX_ATTEMPTS + 2);
    assert_int_equal(last->ended_us, 0);
    assert_string_equal(last->why, "session_lost");
}

/* A message about an ended attempt, or about another one, changes nothing. */
static void test_stale_messages(void **state)
{
    (void)state;
    struct request_trace trace = begun("r1");
    struct trace_prefill prefill = {.queued_us = 50};
    struct trace_handoff handoff = {.bytes = 1};
    request_trace_prefilled(&trace, 1, &prefill);
    request_trace_pulled(&trace, 1, &handoff, T0);
    request_trace_opened(&trace, 1, T0);
    assert_int_equal(trace.attempt_count, 0);
    assert_null(request_trace_last(&trace));
    request_trace_placed(&trace, 1, false, T0 + 1);
    request_trace_placed(&trace, 2, true, T0 + 2);
    request_trace_prefilled(&trace, 1, &prefill);
    request_trace_pulled(&trace, 1, &handoff, T0 + 3);
    assert_false(trace.attempts[0].prefill.known);
    assert_false(trace.attempts[1].prefill.known || trace.attempts[1].handoff.known);
}

static void test_a_regiven_handle_keeps_its_prefill_worker(void **state)
{
    (void)state;
    struct request_trace trace = begun("r1");
    request_trace_placed(&trace, 1, false, T0 + 1);
    request_trace_prefill_sent(&trace, "prefill-7");
    request_trace_placed(&trace, 2, true, T0 + 2);
    request_trace_decode_sent(&trace, "decode-1", false, T0 + 3);
    const struct trace_attempt *last = request_trace_last(&trace);
    assert_string_equal(last->prefill_worker, "prefill-7");
    assert_string_equal(last->decode_worker, "decode-1");
    assert_true(last->regiven);
}

static void test_long_names_are_cut(void **state)
{
    (void)state;
    char name[400];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = 0;
    struct request_trace trace;
    request_trace_begin(&trace, &(struct trace_arrival){.name = name, .tenant = name});
    assert_int_equal(strlen(trace.name), sizeof trace.name - 1);
    assert_int_equal(strlen(trace.tenant), sizeof trace.tenant - 1);
    assert_string_equal(trace.model, "");
}

/* --- the ring --- */

static void test_the_ring_keeps_the_newest(void **state)
{
    (void)state;
    struct trace_ring *ring;
    struct request_trace found, newest[8];
    assert_int_equal(trace_ring_create(3, &ring), STATUS_OK);
    assert_int_equal(trace_ring_newest(ring, newest, 8), 0);
    assert_false(trace_ring_find(ring, "r1", 0, &found));
    for (int i = 1; i <= 4; i++) {
        char name[16];
        snprintf(name, sizeof name, "r%d", i);
        struct request_trace trace = begun(name);
        trace_ring_put(ring, &trace);
    }
    assert_false(trace_ring_find(ring, "r1", 0, &found));
    assert_true(trace_ring_find(ring, "r2", 0, &found));
    assert_int_equal(trace_ring_newest(ring, newest, 8), 3);
    assert_string_equal(newest[0].name, "r4");
    assert_string_equal(newest[2].name, "r2");
    assert_int_equal(trace_ring_newest(ring, newest, 2), 2);
    struct request_trace other = begun("r4");
    other.choice = 1;
    trace_ring_put(ring, &other);
    assert_true(trace_ring_find(ring, "r4", 0, &found));
    assert_int_equal(found.choice, 0);
    assert_true(trace_ring_find(ring, "r4", 1, &found));
    assert_true(trace_ring_find(ring, "chatcmpl-r4", 1, &found));
    assert_false(trace_ring_find(ring, "cmpl-cmpl-r4", 1, &found));
    assert_int_equal(found.choice, 1);
    assert_false(trace_ring_find(ring, "r4", 2, &found));
    trace_ring_destroy(ring);
}

static void test_a_request_keeps_its_place_or_gets_a_new_one(void **state)
{
    (void)state;
    struct trace_ring *ring;
    struct request_trace found, newest[4];
    assert_int_equal(trace_ring_create(2, &ring), STATUS_OK);
    struct request_trace first = begun("long"), second = begun("same"), third = begun("same");
    trace_ring_put(ring, &first);
    trace_ring_put(ring, &second);
    first.tokens = 5;
    trace_ring_put(ring, &first);
    assert_int_equal(trace_ring_newest(ring, newest, 4), 2);
    assert_string_equal(newest[0].name, "same"); /* its place is the older one still */
    assert_true(trace_ring_find(ring, "long", 0, &found));
    assert_int_equal(found.tokens, 5);
    third.tokens = 9;
    trace_ring_put(ring, &third); /* in the place of the first */
    assert_false(trace_ring_find(ring, "long", 0, &found));
    assert_true(trace_ring_find(ring, "same", 0, &found));
    assert_int_equal(found.tokens, 9); /* the newest of two with one name */
    trace_ring_put(ring, &first);      /* it ends at last */
    assert_true(trace_ring_find(ring, "long", 0, &found));
    assert_int_equal(trace_ring_newest(ring, newest, 4), 2);
    assert_string_equal(newest[0].name, "long");
    trace_ring_destroy(ring);
}

static void test_a_ring_of_nothing(void **state)
{
    (void)state;
    struct trace_ring *ring;
    struct request_trace trace = begun("r1"), found;
    assert_int_equal(trace_ring_create(0, &ring), STATUS_OK);
    trace_ring_put(ring, &trace);
    assert_false(trace_ring_find(ring, "r1", 0, &found));
    assert_int_equal(trace_ring_newest(ring, &found, 1), 0);
    trace_ring_destroy(ring);
}

/* --- JSON --- */

static struct json *parsed(const struct str *text)
{
    struct json *json;
    struct error err;
    struct json_limits limits = {.max_bytes = 1u << 20, .max_depth = 8};
    if (json_parse(text->data, text->length, limits, &json, &err) != STATUS_OK)
        fail_msg("%s in %s", err.text, text->data);
    return json;
}

static void expect_ms(const struct json_value *object, const char *key, double expected)
{
    double value;
    struct error err;
    if (json_get_double(object, key, 0, 1e15, &value, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    if (value != expected)
        fail_msg("%s is %f, not %f", key, value, expected);
}

static void test_json(void **state)
{
    (void)state;
    struct request_trace trace = answered("r\"1</script>");
    struct str text;
    str_init(&text, 1u << 20);
    trace_json(&trace, T0 + 20000, 1700000000000000u, &text);
    struct json *json = parsed(&text);
    const struct json_value *root = json_root(json);
    expect_ms(root, "arrived_unix_ms", 1700000000000.0 - 20);
    expect_ms(root, "first_token_ms", 9.5);
    expect_ms(root, "tpot_ms", 2);
    const struct json_value *attempt = json_at(json_find(root, "attempts"), 0);
    const struct json_value *prefill = json_find(attempt, "prefill");
    expect_ms(prefill, "begin_ms", 0.15);
    expect_ms(prefill, "end_ms", 9.1);
    assert_int_equal(json_count(json_find(prefill, "chunk_end_ms")), 2);
    const struct json_value *handoff = json_find(attempt, "handoff");
    expect_ms(handoff, "begin_ms", 5.2);
    expect_ms(handoff, "end_ms", 10.2);
    json_destroy(json);
    str_deinit(&text);
}

/* How it counts for its class, and the predictions, in JSON and in the access log. */
static void test_the_class(void **state)
{
    (void)state;
    static const struct {
        struct slo_verdict verdict;
        const char *json, *line;
    } rows[] = {
        {{true, 1 << SLO_TTFT | 1 << SLO_E2E},
         "\"slo_class\": \"chat\", \"slo\": \"missed\", \"missed_by\": \"ttft,e2e\", "
         "\"predicted_ttft_ms\": 8.500, ",
         " status=ok finish=max_tokens slo_class=chat slo=missed missed_by=ttft,e2e "
         "prompt_tokens="},
        {{true, 0},
         "\"slo\": \"attained\", \"missed_by\": \"\", ",
         " slo_class=chat slo=attained prompt_tokens="},
        {{false, 1 << SLO_TTFT},
         "\"slo\": \"uncounted\", \"missed_by\": \"\", ",
         " slo_class=chat slo=uncounted prompt_tokens="},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct request_trace trace = answered("r1");
        struct str text;
        strcpy(trace.slo_class, "chat");
        trace.slo = rows[i].verdict;
        trace.predicted.ttft_us = 8500;
        str_init(&text, 1u << 20);
        trace_json(&trace, T0 + 20000, 1700000000000000u, &text);
        json_destroy(parsed(&text));
        assert_non_null(strstr(text.data, rows[i].json));
        assert_null(strstr(text.data, "predicted_tpot_ms"));
        str_clear(&text);
        access_line_ended(&trace, 0, &text);
        assert_non_null(strstr(text.data, rows[i].line));
        str_deinit(&text);
    }
}

static void test_json_of_one_that_waits(void **state)
{
    (void)state;
    struct request_trace trace = begun("r1");
    struct str text;
    str_init(&text, 1u << 20);
    trace_json(&trace, T0 + 20000, 5000, &text); /* a clock that is not set */
    struct json *json = parsed(&text);
    const char *status;
    struct error err;
    assert_int_equal(json_get_string(json_root(json), "status", &status, NULL, &err), STATUS_OK);
    assert_string_equal(status, "running");
    assert_null(json_find(json_root(json), "first_token_ms"));
    assert_int_equal(json_count(json_find(json_root(json), "attempts")), 0);
    json_destroy(json);
    str_deinit(&text);
}

/* --- the access log --- */

static void test_a_line(void **state)
{
    (void)state;
    struct request_trace trace = answered("r1");
    trace.choice = 2;
    struct str line;
    str_init(&line, ACCESS_LINE_MAX_BYTES);
    access_line_ended(&trace, 1709210096789000u, &line); /* a leap day */
    assert_string_equal(
        line.data,
        "ts=2024-02-29T12:34:56.789Z req=r1 choice=2 model=llama tenant= key= "
        "peer=ipv4:127.0.0.1:4242 "
        "status=ok "
        "finish=max_tokens prompt_tokens=12 tokens=3 queue_ms=0.100 prefill_ms=9.400 ttft_ms=9.500 "
        "tpot_ms=2.000 token_1_to_2_ms=3.000 longest_gap_ms=3.000 decode_ms=4.000 total_ms=13.600 "
        "attempts=1 prefills=1 cached_tokens=4 chunks=2 handoff_ms=5.000 lane=shm kv_bytes=4096 "
        "kv_bytes_early=2048 prefill=prefill-0 decode=decode-0\n");
    str_deinit(&line);
}

static void test_a_line_of_one_that_was_never_placed(void **state)
{
    (void)state;
    struct request_trace trace = begun("r\"1 x\n");
    struct str line;
    str_init(&line, ACCESS_LINE_MAX_BYTES);
    request_trace_end(&trace, "no_workers", "", 0, T0 + 3000000);
    access_line_ended(&trace, 0, &line);
    assert_string_equal(line.data,
                        "ts=1970-01-01T00:00:00.000Z req=r?1?x? model=llama tenant= key= "
                        "peer=ipv4:127.0.0.1:4242 status=no_workers prompt_tokens=12 tokens=0 "
                        "total_ms=3000.000 attempts=0 prefills=0\n");
    str_clear(&line);
    access_line_brief(
        &(struct access_line_brief){.status = "malformed", .name = "", .peer = "ipv4:1.2.3.4:5"},
        1000000, &line);
    assert_string_equal(line.data,
                        "ts=1970-01-01T00:00:01.000Z peer=ipv4:1.2.3.4:5 status=malformed\n");
    str_clear(&line);
    access_line_brief(&(struct access_line_brief){.status = "overloaded",
                                                  .name = "r 1",
                                                  .model = "llama",
                                                  .tenant = "a",
                                                  .key = "k1",
                                                  .peer = "1.2.3.4:5"},
                      1000000, &line);
    assert_string_equal(line.data,
                        "ts=1970-01-01T00:00:01.000Z req=r?1 model=llama tenant=a key=k1 "
                        "peer=1.2.3.4:5 status=overloaded\n");
    str_deinit(&line);
}

/* With every field as long as it can be: one line, cut. */
static void test_a_line_that_is_too_long(void **state)
{
    (void)state;
    char peer[4000];
    memset(peer, 'x', sizeof peer - 1);
    peer[sizeof peer - 1] = 0;
    struct str line;
    str_init(&line, ACCESS_LINE_MAX_BYTES);
    access_line_brief(&(struct access_line_brief){.status = "malformed", .peer = peer}, 1000000,
                      &line);
    assert_int_equal(line.length, ACCESS_LINE_MAX_BYTES);
    assert_ptr_equal(strchr(line.data, '\n'), line.data + line.length - 1);
    str_deinit(&line);
}

/* --- the last minute --- */

static void test_the_last_minute(void **state)
{
    (void)state;
    struct recent_times *times;
    struct recent_figure figures[RECENT_KINDS];
    assert_int_equal(recent_times_create(&times), STATUS_OK);
    assert_true(recent_times_read(times, 5, figures));
    assert_int_equal(figures[RECENT_TTFT].count, 0);
    assert_true(figures[RECENT_TTFT].p99_us == 0);
    for (int i = 0; i <= 100; i++) { /* the first is too old when they are looked at */
        struct recent_sample sample = {.ended_us = i ? RECENT_TIMES_WINDOW_US : 1,
                                       .us = {1, i, i % 2 ? i : -1, 7}};
        recent_times_note(times, &sample);
    }
    assert_true(recent_times_read(times, RECENT_TIMES_WINDOW_US + 2, figures));
    assert_int_equal(figures[RECENT_TTFT].count, 100);
    assert_true(figures[RECENT_TTFT].p50_us == 50 && figures[RECENT_TTFT].p99_us == 99);
    assert_int_equal(figures[RECENT_TPOT].count, 50);
    assert_true(figures[RECENT_REQUEST].p50_us == 7);
    recent_times_destroy(times);
}

static void test_more_than_the_minute_has_room_for(void **state)
{
    (void)state;
    struct recent_times *times;
    struct recent_figure figures[RECENT_KINDS];
    assert_int_equal(recent_times_create(&times), STATUS_OK);
    for (int i = 0; i <= RECENT_TIMES_CAPACITY; i++) {
        struct recent_sample sample = {.ended_us = 100, .us = {i ? 2 : 1, 0, 0, 0}};
        recent_times_note(times, &sample);
    }
    assert_true(recent_times_read(times, 100, figures));
    assert_int_equal(figures[RECENT_QUEUE].count, RECENT_TIMES_CAPACITY);
    assert_true(figures[RECENT_QUEUE].p50_us == 2);
    recent_times_destroy(times);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_request_that_is_answered),
        cmocka_unit_test(test_attempts_beyond_the_room_for_them),
        cmocka_unit_test(test_stale_messages),
        cmocka_unit_test(test_a_regiven_handle_keeps_its_prefill_worker),
        cmocka_unit_test(test_long_names_are_cut),
        cmocka_unit_test(test_the_ring_keeps_the_newest),
        cmocka_unit_test(test_a_request_keeps_its_place_or_gets_a_new_one),
        cmocka_unit_test(test_a_ring_of_nothing),
        cmocka_unit_test(test_the_class),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_json_of_one_that_waits),
        cmocka_unit_test(test_a_line),
        cmocka_unit_test(test_a_line_of_one_that_was_never_placed),
        cmocka_unit_test(test_a_line_that_is_too_long),
        cmocka_unit_test(test_the_last_minute),
        cmocka_unit_test(test_more_than_the_minute_has_room_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
