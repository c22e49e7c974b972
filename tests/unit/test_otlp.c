/* otlp: a request's trace as spans, and lost spans if no collector takes them. */
#include "router/ops/otlp.h"

#include "common/base/clock.h"
#include "common/base/json/json.h"
#include "common/base/log.h"
#include "common/net/http/http_client.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "hung_lookup.h"

#define T0     1000000u
#define PARENT "00-0123456789abcdef0123456789abcdee-00f067aa0ba902b7-01"

static void test_traceparents(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        bool good;
    } cases[] = {
        {PARENT, true},
        {"cc-0123456789abcdef0123456789abcdee-00f067aa0ba902b7-01-what-the-future-has", true},
        {"00-0123456789abcdef0123456789abcdee-00f067aa0ba902b7-01-x", false},
        {"cc-0123456789abcdef0123456789abcdee-00f067aa0ba902b7-01x", false},
        {"ff-0123456789abcdef0123456789abcdee-00f067aa0ba902b7-01", false},
        {"00-0123456789ABCDEF0123456789abcdee-00f067aa0ba902b7-01", false},
        {"00-00000000000000000000000000000000-00f067aa0ba902b7-01", false},
        {"00-0123456789abcdef0123456789abcdee-0000000000000000-01", false},
        {"00-0123456789abcdef0123456789abcdee-00f067aa0ba902b7-0", false},
        {"00-0123456789abcdef0123456789abcdee_00f067aa0ba902b7-01", false},
        {"00-", false},
        {"", false},
        {NULL, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct trace_parent parent = {1, 2, 3};
        if (trace_parent_parse(cases[i].header, &parent) != cases[i].good)
            fail_msg("%s", cases[i].header ? cases[i].header : "(none)");
        assert_true(cases[i].good ? parent.span == 0x00f067aa0ba902b7u : parent.span == 3);
    }
}

static struct request_trace answered(const char *traceparent)
{
    struct request_trace trace;
    request_trace_begin(&trace, &(struct trace_arrival){.name = "r\"1",
                                                        .model = "llama",
                                                        .traceparent = traceparent,
                                                        .arrival_us = T0});
    request_trace_placed(&trace, 1, false, T0 + 100);
    request_trace_prefill_sent(&trace, "prefill-0");
    request_trace_decode_sent(&trace, "decode-0", false, T0 + 160);
    request_trace_prefilled(
        &trace, 1,
        &(struct trace_prefill){.queued_us = 50, .chunk_count = 1, .chunk_end_us = {9000}});
    request_trace_token(&trace, false, T0 + 9500);
    request_trace_pulled(&trace, 1,
                         &(struct trace_handoff){.read_us = 5040, .done_us = 10040, .lane = "shm"},
                         T0 + 10300);
    request_trace_token(&trace, true, T0 + 12500);
    request_trace_end(&trace, "ok", "eos", 1, T0 + 12600);
    return trace;
}

static struct json *spans_of(const struct request_trace *trace, struct str *text,
                             const struct json_value **spans)
{
    struct json *json;
    struct error err;
    struct json_limits limits = {.max_bytes = 1u << 20, .max_depth = 16};
    str_init(text, 1u << 20);
    otlp_json_begin(text);
    otlp_json_spans(trace, 42, 5000000, text);
    otlp_json_end(text);
    if (json_parse(text->data, text->length, limits, &json, &err) != STATUS_OK)
        fail_msg("%s in %s", err.text, text->data);
    const struct json_value *resource = json_at(json_find(json_root(json), "resourceSpans"), 0);
    *spans = json_find(json_at(json_find(resource, "scopeSpans"), 0), "spans");
    return json;
}

static const char *text_at(const struct json_value *span, const char *key)
{
    const char *text;
    struct error err;
    if (json_get_string(span, key, &text, NULL, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return text;
}

static void test_spans(void **state)
{
    (void)state;
    static const struct {
        const char *name, *begin, *end;
    } expected[] = {{"request", "6000000000", "6012600000"},
                    {"queue", "6000000000", "6000100000"},
                    {"prefill", "6000150000", "6009100000"},
                    {"handoff", "6005200000", "6010200000"},
                    {"decode", "6009500000", "6012500000"}};
    struct request_trace trace = answered(PARENT);
    struct str text;
    const struct json_value *spans;
    struct json *json = spans_of(&trace, &text, &spans);
    assert_int_equal(json_count(spans), 5);
    const char *root = text_at(json_at(spans, 0), "spanId");
    for (size_t i = 0; i < 5; i++) {
        const struct json_value *span = json_at(spans, i);
        assert_string_equal(text_at(span, "name"), expected[i].name);
        assert_string_equal(text_at(span, "startTimeUnixNano"), expected[i].begin);
        assert_string_equal(text_at(span, "endTimeUnixNano"), expected[i].end);
        assert_string_equal(text_at(span, "traceId"), "0123456789abcdef0123456789abcdee");
        assert_string_equal(text_at(span, "parentSpanId"), i ? root : "00f067aa0ba902b7");
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(text_at(span, "spanId"), text_at(json_at(spans, j), "spanId"));
    }
    json_destroy(json);
    str_deinit(&text);
}

static void test_spans_of_one_that_failed(void **state)
{
    (void)state;
    struct request_trace trace;
    request_trace_begin(&trace, &(struct trace_arrival){.name = "r1", .arrival_us = T0});
    request_trace_end(&trace, "no_workers", "", 0, T0 + 50);
    struct str text;
    const struct json_value *spans;
    struct json *json = spans_of(&trace, &text, &spans);
    assert_int_equal(json_count(spans), 2);
    assert_null(json_find(json_at(spans, 0), "parentSpanId"));
    assert_string_equal(text_at(json_find(json_at(spans, 0), "status"), "message"), "no_workers");
    assert_int_equal(strlen(text_at(json_at(spans, 1), "traceId")), 32);
    json_destroy(json);
    str_deinit(&text);
}

/* As long as they can be, and as many as are sent at once: they fit. */
static void test_a_batch_fits(void **state)
{
    (void)state;
    char name[200];
    memset(name, '\1', sizeof name - 1); /* six bytes each in JSON */
    name[sizeof name - 1] = 0;
    struct request_trace trace;
    request_trace_begin(&trace,
                        &(struct trace_arrival){.name = name, .model = name, .arrival_us = T0});
    for (uint32_t i = 1; i <= TRACE_MAX_ATTEMPTS; i++) {
        request_trace_placed(&trace, i, false, T0 + i);
        request_trace_prefill_sent(&trace, name);
        request_trace_decode_sent(&trace, name, false, T0 + i);
        request_trace_prefilled(&trace, i, &(struct trace_prefill){.queued_us = 1});
        request_trace_pulled(&trace, i, &(struct trace_handoff){.read_us = 1, .done_us = 2}, T0);
        request_trace_token(&trace, true, T0 + i);
        request_trace_why(&trace, i, name);
        request_trace_again(&trace, T0 + i);
    }
    request_trace_end(&trace, name, name, 1, UINT64_MAX / 2);
    struct str text;
    str_init(&text, OTLP_MAX_POST_BYTES);
    otlp_json_begin(&text);
    for (int i = 0; i < OTLP_MAX_BATCH; i++)
        otlp_json_spans(&trace, 7, 0, &text);
    otlp_json_end(&text);
    assert_false(text.truncated);
    str_deinit(&text);
}

/* Opens a listener that never answers; its buffers still take bytes. */
static int listen_somewhere(char address[64])
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, length) || listen(fd, 16), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &length), 0);
    snprintf(address, 64, "127.0.0.1:%d", ntohs(at.sin_port));
    return fd;
}

static void test_more_requests_than_wait(void **state)
{
    (void)state;
    char address[64];
    int fd = listen_somewhere(address);
    struct metrics *metrics = metrics_create();
    struct counter *dropped = metrics_counter(metrics, "dropped", "Dropped", NULL);
    struct otlp *otlp;
    struct error err;
    struct request_trace trace = answered("");
    assert_int_equal(otlp_start(&(struct http_remote){.url = address}, dropped, &otlp, &err),
                     STATUS_OK);
    for (int i = 0; i < OTLP_MAX_WAITING + OTLP_MAX_BATCH + 10; i++)
        otlp_ended(otlp, &trace);
    assert_true(counter_value(dropped) >= 10); /* one post is in hand, the queue is full */
    close(fd);                                 /* which ends the post */
    otlp_stop(otlp);
    assert_int_equal(counter_value(dropped), OTLP_MAX_WAITING + OTLP_MAX_BATCH + 10);
    metrics_destroy(metrics);
}

/* Name servers that are silent don't keep the end waiting. */
static void test_an_end_while_a_name_is_looked_up(void **state)
{
    (void)state;
    struct metrics *metrics = metrics_create();
    struct counter *dropped = metrics_counter(metrics, "dropped", "Dropped", NULL);
    struct request_trace trace = answered("");
    struct otlp *otlp;
    struct error err;
    hung_lookup_set(true);
    assert_int_equal(otlp_start(&(struct http_remote){.url = HUNG_NAME ":1"}, dropped, &otlp, &err),
                     STATUS_OK);
    otlp_ended(otlp, &trace);
    uint64_t begin_us = clock_now_us();
    otlp_stop(otlp);
    assert_true(clock_now_us() - begin_us < 2 * OTLP_TIMEOUT_US + 5000000);
    assert_int_equal(counter_value(dropped), 1);
    hung_lookup_set(false);
    metrics_destroy(metrics);
}

/* Takes one connection, and answers with `text` and `more` bytes behind it once all of the post is
 * here. */
struct answering {
    int fd;
    const char *text;
    size_t more;
};

static void *answer_once(void *argument)
{
    const struct answering *answering = argument;
    char bytes[4096] = "";
    size_t used = 0;
    int fd = accept(answering->fd, NULL, NULL);
    while (!strstr(bytes, "{\"spans\"}") && used < sizeof bytes - 1) {
        ssize_t now = recv(fd, bytes + used, sizeof bytes - 1 - used, 0);
        if (now <= 0)
            break;
        bytes[used += (size_t)now] = 0;
    }
    send(fd, answering->text, strlen(answering->text), MSG_NOSIGNAL);
    char *more = calloc(1, answering->more + 1);
    if (more && answering->more)
        send(fd, more, answering->more, MSG_NOSIGNAL);
    free(more);
    close(fd);
    return NULL;
}

static enum status posted_to(const char *text, size_t more, struct error *err)
{
    char address[64];
    struct answering answering = {.fd = listen_somewhere(address), .text = text, .more = more};
    pthread_t thread;
    struct str body;
    str_init(&body, 100);
    str_add(&body, "{\"spans\"}");
    assert_int_equal(pthread_create(&thread, NULL, answer_once, &answering), 0);
    enum status status = http_post(&(struct http_remote){.url = address}, "/v1/traces",
                                   "application/json", &body, 20000000, err);
    pthread_join(thread, NULL);
    close(answering.fd);
    str_deinit(&body);
    return status;
}

static void test_answers_to_a_post(void **state)
{
    (void)state;
    struct error err;
    assert_int_equal(posted_to("HTTP/1.1 200 OK\r\n\r\n{}", 0, &err), STATUS_OK);
    assert_int_equal(posted_to("HTTP/1.1 202 Accepted\r\n\r\n", 0, &err), STATUS_OK);
    assert_int_equal(posted_to("HTTP/1.1 503 Busy\r\n\r\n", 0, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "answered 503 Busy"));
    assert_int_equal(posted_to("hello", 0, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "does not speak HTTP"));
}

static void test_an_answer_to_a_post_that_is_too_large(void **state)
{
    (void)state;
    struct error err;
    assert_int_equal(posted_to("HTTP/1.1 200 OK\r\n\r\n", 65537, &err), STATUS_LIMIT);
}

int main(void)
{
    log_init("test", LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_traceparents),
        cmocka_unit_test(test_spans),
        cmocka_unit_test(test_spans_of_one_that_failed),
        cmocka_unit_test(test_a_batch_fits),
        cmocka_unit_test(test_more_requests_than_wait),
        cmocka_unit_test(test_answers_to_a_post),
        cmocka_unit_test(test_an_answer_to_a_post_that_is_too_large),
        cmocka_unit_test(test_an_end_while_a_name_is_looked_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
