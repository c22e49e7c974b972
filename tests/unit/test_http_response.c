/* http_response: an answer is the same however it is cut, ends where it says, and is bounded. */
#include "common/net/http/http_response.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LIMIT 32

struct read {
    enum status status; /* of what came, else of the end */
    int code;
    bool whole;
    char body[LIMIT + 1];
    struct error err;
};

static struct read read_in_steps(const char *text, size_t length, size_t step, bool orderly)
{
    struct read read = {.status = STATUS_OK};
    struct http_response response;
    struct str payload;
    str_init(&payload, LIMIT);
    http_response_init(&response, &payload);
    for (size_t at = 0; at < length && read.status == STATUS_OK; at += step)
        read.status = http_response_take(&response, text + at,
                                         length - at < step ? length - at : step, &read.err);
    read.whole = response.whole;
    if (read.status == STATUS_OK)
        read.status = http_response_end(&response, orderly, &read.err);
    read.code = response.status;
    str_copy(read.body, sizeof read.body, payload.data);
    http_response_deinit(&response);
    str_deinit(&payload);
    return read;
}

static struct read read_text(const char *text, bool orderly)
{
    struct read whole = read_in_steps(text, strlen(text), strlen(text) + 1, orderly);
    for (size_t step = 1; step < 9; step++) {
        struct read cut = read_in_steps(text, strlen(text), step, orderly);
        assert_int_equal(cut.status, whole.status);
        if (whole.status == STATUS_OK)
            assert_string_equal(cut.body, whole.body);
        else
            assert_string_equal(cut.err.text, whole.err.text);
    }
    return whole;
}

static void test_answers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int code;
        bool whole;
        const char *body;
    } cases[] = {
        {"HTTP/1.1 200 OK\r\n\r\nuntil the end", 200, false, "until the end"},
        {"HTTP/1.0 200\r\n\r\n", 200, false, ""},
        {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200, true, "hello"},
        {"HTTP/1.1 200 OK\r\ncontent-length:0 \r\n\r\n", 200, true, ""},
        {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello, and more", 200,
         true, "hello"},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: "
         "Chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\n\r\n",
         200, true, "hello"},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: "
         "7\r\n\r\n1\r\na\r\n0\r\n\r\n",
         200, true, "a"},
        {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Wait\r\nX: y\r\n\r\nHTTP/1.1 202 "
         "Accepted\r\nContent-Length: 1\r\n\r\n!",
         202, true, "!"},
        {"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", 204, true, ""},
        {"HTTP/1.1 503 Busy\r\nContent-Length: 200\r\n\r\nno", 503, true, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct read read = read_text(cases[i].text, true);
        if (read.status != STATUS_OK)
            fail_msg("%s: %s", cases[i].text, read.err.text);
        assert_int_equal(read.code, cases[i].code);
        assert_int_equal(read.whole, cases[i].whole);
        assert_string_equal(read.body, cases[i].body);
    }
}

static void test_what_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum status status;
        const char *told;
    } cases[] = {
        {"", STATUS_INVALID, "does not speak HTTP"},
        {"hello", STATUS_INVALID, "does not speak HTTP"},
        {"\x15\x03\x01", STATUS_INVALID, "does not speak HTTP"},
        {"SSH-2.0-x\r\n\r\n", STATUS_INVALID, "does not speak HTTP"},
        {"HTTP/2 200 OK\r\n\r\n", STATUS_INVALID, "does not speak HTTP"},
        {"HTTP/1.1 20 OK\r\n\r\n", STATUS_INVALID, "does not speak HTTP"},
        {"HTTP/1.1 2000 OK\r\n\r\n", STATUS_INVALID, "does not speak HTTP"},
        {"HTTP/1.1 099 OK\r\n\r\n", STATUS_INVALID, "does not speak HTTP"},
        {"HTTP/1.1 200 OK\n\n", STATUS_INVALID, "answers with a broken head"},
        {"HTTP/1.1 200 OK\r\n", STATUS_UNAVAILABLE, "broke off"},
        {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell", STATUS_UNAVAILABLE, "broke off"},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe", STATUS_UNAVAILABLE,
         "broke off"},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx", STATUS_INVALID, "broken chunks"},
        {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", STATUS_INVALID,
         "leaves open where the answer ends"},
        {"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", STATUS_INVALID, "leaves open"},
        {"HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\n", STATUS_INVALID, "leaves open"},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", STATUS_INVALID,
         "leaves open"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct read read = read_text(cases[i].text, true);
        if (read.status != cases[i].status || !strstr(read.err.text, cases[i].told))
            fail_msg("%s: %d %s", cases[i].text, read.status, read.err.text);
    }
}

/* With TLS one can know: an end that was not said may have been made by somebody else. */
static void test_an_end_that_nobody_said(void **state)
{
    (void)state;
    static const char until[] = "HTTP/1.1 200 OK\r\n\r\nhell";
    static const char counted[] = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhell";
    assert_int_equal(read_text(until, true).status, STATUS_OK);
    assert_int_equal(read_text(until, false).status, STATUS_UNAVAILABLE);
    assert_int_equal(read_text(counted, false).status, STATUS_OK);
}

static void test_limits_and_one_more(void **state)
{
    (void)state;
    char text[200];
    for (int more = 0; more < 2; more++) {
        snprintf(text, sizeof text, "HTTP/1.1 200 OK\r\n\r\n%0*d", LIMIT + more, 7);
        assert_int_equal(read_text(text, true).status, more ? STATUS_LIMIT : STATUS_OK);
        snprintf(text, sizeof text, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%0*d",
                 LIMIT + more, LIMIT + more, 7);
        assert_int_equal(read_text(text, true).status, more ? STATUS_LIMIT : STATUS_OK);
        snprintf(text, sizeof text,
                 "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%0*d\r\n0\r\n\r\n",
                 (unsigned)LIMIT + (unsigned)more, LIMIT + more, 7);
        assert_int_equal(read_text(text, true).status, more ? STATUS_LIMIT : STATUS_OK);
    }
}

static void test_a_head_of_any_length(void **state)
{
    (void)state;
    struct str text;
    str_init(&text, 1u << 20);
    str_add(&text, "HTTP/1.1 200 OK\r\n");
    while (text.length < HTTP_MAX_HEAD_BYTES)
        str_add(&text, "X: y\r\n");
    struct read read = read_in_steps(text.data, text.length, 100, true);
    assert_int_equal(read.status, STATUS_LIMIT);
    assert_non_null(strstr(read.err.text, "a head that is too large"));
    str_deinit(&text);
}

static void test_interim_answers_and_one_more(void **state)
{
    (void)state;
    for (int more = 0; more < 2; more++) {
        struct str text;
        str_init(&text, 4096);
        for (int i = 0; i < HTTP_MAX_INTERIM + more; i++)
            str_add(&text, "HTTP/1.1 100 Continue\r\n\r\n");
        str_add(&text, "HTTP/1.1 200 OK\r\n\r\n");
        assert_int_equal(read_text(text.data, true).status, more ? STATUS_LIMIT : STATUS_OK);
        str_deinit(&text);
    }
}

/* A terminal may be what shows them. */
static void test_words_of_others_are_made_legible(void **state)
{
    (void)state;
    struct read read = read_text("HTTP/1.1 200 OK\r\nContent-Length: 5\xc2\x9b\r\n\r\n", false);
    assert_int_equal(read.status, STATUS_INVALID);
    assert_non_null(strstr(read.err.text, "\"Content-Length: 5??\""));
    struct http_response response;
    struct str payload;
    struct error err;
    static const char head[] = "HTTP/1.1 404 \xc2\x9b"
                               "31m\r\n\r\n";
    str_init(&payload, LIMIT);
    http_response_init(&response, &payload);
    assert_int_equal(http_response_take(&response, head, sizeof head - 1, &err), STATUS_OK);
    assert_string_equal(response.reason, "404 ??31m");
    http_response_deinit(&response);
    str_deinit(&payload);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_what_is_refused),
        cmocka_unit_test(test_an_end_that_nobody_said),
        cmocka_unit_test(test_limits_and_one_more),
        cmocka_unit_test(test_a_head_of_any_length),
        cmocka_unit_test(test_interim_answers_and_one_more),
        cmocka_unit_test(test_words_of_others_are_made_legible),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
