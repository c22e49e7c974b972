/* http_body: bodies in both framings, cut anywhere, and invalid ones. */
#include "common/net/http/http_request.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LIMIT 64

/* The status of the refusal, 0 if it is whole, -1 if more must come. *used: of all bytes. */
static int take(const struct http_head *head, const char *bytes, size_t count, size_t step,
                struct str *payload, size_t *used)
{
    struct http_body body;
    struct http_refusal why;
    *used = 0;
    if (http_body_begin(&body, head, LIMIT, &why) != STATUS_OK)
        return why.status;
    while (*used < count && body.part != BODY_WHOLE) {
        size_t taken, piece = count - *used < step ? count - *used : step;
        if (http_body_take(&body, bytes + *used, piece, &taken, payload, &why) != STATUS_OK)
            return why.status;
        assert_true(taken == piece || body.part == BODY_WHOLE);
        *used += taken;
    }
    return body.part == BODY_WHOLE ? 0 : -1;
}

static int take_text(const struct http_head *head, const char *text, struct str *payload,
                     size_t *used)
{
    struct str other;
    size_t other_used;
    str_clear(payload);
    str_init(&other, LIMIT);
    int status = take(head, text, strlen(text), strlen(text), payload, used);
    assert_int_equal(take(head, text, strlen(text), 1, &other, &other_used), status);
    if (status <= 0) {
        assert_int_equal(other_used, *used);
        assert_string_equal(other.data, payload->data);
    }
    str_deinit(&other);
    return status;
}

static const struct http_head chunked = {.chunked = true};

static void test_chunks(void **state)
{
    (void)state;
    static const struct {
        const char *text, *payload;
        int status;
        size_t behind; /* bytes that aren't its */
    } cases[] = {
        {"0\r\n\r\n", "", 0, 0},
        {"3\r\nabc\r\n0\r\n\r\n", "abc", 0, 0},
        {"3\r\nabc\r\n0\r\n\r\nGET /", "abc", 0, 5},
        {"00003\r\nabc\r\n2\r\nde\r\n000\r\n\r\n", "abcde", 0, 0},
        {"a;name=\"val ue\"\r\n0123456789\r\n0;x\r\n\r\n", "0123456789", 0, 0},
        {"1\r\n\n\r\n0\r\nTrailer: x\r\nAnother: y\r\n\r\n", "\n", 0, 0},
        {"3\r\nabc\r\n", "abc", -1, 0},
        {"3\r\nabc\r\n0\r\n", "abc", -1, 0},
        {"\r\n", "", 400, 0},
        {";x\r\n", "", 400, 0},
        {"g\r\n", "", 400, 0},
        {"-1\r\n", "", 400, 0},
        {"+1\r\n", "", 400, 0},
        {"0x1\r\na\r\n", "", 400, 0},
        {" 1\r\na\r\n", "", 400, 0},
        {"1 \r\na\r\n", "", 400, 0},
        {"1\na\r\n", "", 400, 0},
        {"1\r\rna", "", 400, 0},
        {"1;\x01\r\na\r\n", "", 400, 0},
        {"1;\n\r\na\r\n", "", 400, 0},
        {"3\r\nabcd\r\n", "", 400, 0},
        {"3\r\nabc\n0\r\n\r\n", "", 400, 0},
        {"3\r\nabc0\r\n\r\n", "", 400, 0},
        {"ffffffffffffffff\r\n", "", 400, 0},
        {"0000000000000000000001\r\na\r\n0\r\n\r\n", "", 400, 0},
        {"fffffffffffffff\r\n", "", 413, 0},
        {"41\r\n", "", 413, 0},
        {"3\r\nabc\r\n3e\r\n", "", 413, 0},
        {"0\r\nTrailer: x\n\r\n", "", 400, 0},
        {"0\r\n folded\r\n\r\n", "", 400, 0},
        {"0\r\nX: \x02\r\n\r\n", "", 400, 0},
    };
    struct str payload;
    str_init(&payload, LIMIT);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t used;
        int status = take_text(&chunked, cases[i].text, &payload, &used);
        if (status != cases[i].status)
            fail_msg("%d, not %d: %s", status, cases[i].status, cases[i].text);
        if (status <= 0) {
            assert_string_equal(payload.data, cases[i].payload);
            assert_int_equal(used + cases[i].behind, strlen(cases[i].text));
        }
    }
    str_deinit(&payload);
}

static void test_limits_of_chunks(void **state)
{
    (void)state;
    char text[16384];
    struct str payload;
    size_t used;
    str_init(&payload, LIMIT);
    for (int more = 0; more < 2; more++) { /* a size's line, with its end */
        memset(text, 'x', sizeof text);
        text[0] = '0';
        text[1] = ';';
        strcpy(text + HTTP_MAX_CHUNK_LINE_BYTES - 2 + more, "\r\n\r\n");
        assert_int_equal(take_text(&chunked, text, &payload, &used), more ? 400 : 0);
    }
    for (int more = 0; more < 2; more++) { /* fields after the chunks */
        int length = sprintf(text, "0\r\nX: ");
        memset(text + length, 'x', sizeof text - (size_t)length);
        strcpy(text + 3 + HTTP_MAX_TRAILER_BYTES - 4 + more, "\r\n\r\n");
        assert_int_equal(take_text(&chunked, text, &payload, &used), more ? 400 : 0);
    }
    /* The largest body, in one chunk and in many. */
    sprintf(text, "%x\r\n%0*d\r\n0\r\n\r\n", LIMIT, LIMIT, 0);
    assert_int_equal(take_text(&chunked, text, &payload, &used), 0);
    assert_int_equal(payload.length, LIMIT);
    *text = 0;
    for (int i = 0; i < LIMIT; i++)
        strcat(text, "1\r\na\r\n");
    strcat(text, "1\r\n");
    assert_int_equal(take_text(&chunked, text, &payload, &used), 413);
    str_deinit(&payload);
}

static void test_lengths(void **state)
{
    (void)state;
    struct str payload;
    size_t used;
    str_init(&payload, LIMIT);
    assert_int_equal(take_text(&(struct http_head){.length = 0}, "GET /", &payload, &used), 0);
    assert_int_equal(used, 0);
    assert_int_equal(take_text(&(struct http_head){.length = 3}, "abcGET /", &payload, &used), 0);
    assert_int_equal(used, 3);
    assert_string_equal(payload.data, "abc");
    assert_int_equal(take_text(&(struct http_head){.length = 3}, "ab", &payload, &used), -1);
    assert_int_equal(take_text(&(struct http_head){.length = LIMIT}, "ab", &payload, &used), -1);
    assert_int_equal(take_text(&(struct http_head){.length = LIMIT + 1}, "", &payload, &used), 413);
    str_deinit(&payload);
}

static void test_a_dropped_body_is_not_kept(void **state)
{
    (void)state;
    struct http_body body;
    struct http_refusal why;
    struct str payload;
    size_t used;
    str_init(&payload, 0);
    assert_int_equal(http_body_begin(&body, &chunked, LIMIT, &why), STATUS_OK);
    body.dropped = true;
    static const char text[] = "3\r\nabc\r\n0\r\n\r\n";
    assert_int_equal(http_body_take(&body, text, strlen(text), &used, &payload, &why), STATUS_OK);
    assert_int_equal(used, strlen(text));
    assert_int_equal(body.part, BODY_WHOLE);
    assert_int_equal(body.received_bytes, 3);
    assert_int_equal(payload.length, 0);
    str_deinit(&payload);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_limits_of_chunks),
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_a_dropped_body_is_not_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
