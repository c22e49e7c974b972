/* http_request, http_route: valid and invalid heads and targets. */
#include "common/net/http/http_request.h"
#include "common/net/http/http_route.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Reads pieces of `step` bytes. 0: a whole head with nothing after it; -1: the head isn't whole;
 * otherwise the refusal's status. */
static int read_in_steps(const char *bytes, size_t count, size_t step, char *copy,
                         struct http_head *head, struct http_refusal *why)
{
    struct http_scan scan = {0};
    for (size_t at = 0; at < count;) {
        size_t used, piece = count - at < step ? count - at : step;
        if (http_scan_take(&scan, bytes + at, piece, &used, why) != STATUS_OK)
            return why->status;
        at += used;
        if (scan.whole && at < count)
            return -2;
        assert_true(scan.whole || used == piece);
    }
    if (!scan.whole)
        return -1;
    memcpy(copy, bytes, count);
    return http_head_read(copy, count, head, why) == STATUS_OK ? 0 : why->status;
}

static int read_bytes(const char *bytes, size_t count, char *copy, struct http_head *head,
                      struct http_refusal *why)
{
    struct http_refusal other;
    int status = read_in_steps(bytes, count, 1, copy, head, &other);
    int whole = read_in_steps(bytes, count, count, copy, head, why);
    assert_int_equal(status, whole);
    if (status > 0)
        assert_string_equal(why->why.text, other.why.text);
    return whole;
}

static char copy[2 * HTTP_MAX_HEAD_BYTES];

static int status_of(const char *text, struct http_head *head)
{
    struct http_refusal why;
    int status = read_bytes(text, strlen(text), copy, head, &why);
    if (status > 0)
        assert_true(*why.why.text && *why.code);
    return status;
}

#define GET_  "GET / HTTP/1.1\r\n"
#define HOST_ "Host: a\r\n"
#define POST_ "POST / HTTP/1.1\r\nHost: a\r\n"

static const struct {
    const char *text;
    int status;
} refused[] = {
    /* Lines. */
    {"GET / HTTP/1.1\nHost: a\n\n", 400},
    {GET_ "Host: a\n\r\n", 400},
    {GET_ HOST_ "\n", 400},
    {GET_ "Host: a\r\rX: b\r\n\r\n", 400},
    {GET_ "Host: a\rX: b\r\n\r\n", 400},
    {GET_ HOST_ "X: a\r\n b\r\n\r\n", 400},
    {GET_ HOST_ "X: a\r\n\tb\r\n\r\n", 400},
    {GET_ " Host: a\r\n\r\n", 400},
    {"\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
    {"\n" GET_ HOST_ "\r\n", 400},
    /* Control bytes. */
    {GET_ HOST_ "X: a\x01"
                "b\r\n\r\n",
     400},
    {GET_ HOST_ "X: a\x7f\r\n\r\n", 400},
    {GET_ HOST_ "X: a\x0b\r\n\r\n", 400},
    {"GET /\x1b HTTP/1.1\r\n" HOST_ "\r\n", 400},
    {"\x16\x03\x01\x02", 400},
    /* The request line. */
    {"GET /\r\n" HOST_ "\r\n", 400},
    {"GET  / HTTP/1.1\r\n" HOST_ "\r\n", 400},
    {"GET /  HTTP/1.1\r\n" HOST_ "\r\n", 400},
    {"GET / HTTP/1.1 \r\n" HOST_ "\r\n", 400},
    {" GET / HTTP/1.1\r\n" HOST_ "\r\n", 400},
    {"GET\t/ HTTP/1.1\r\n" HOST_ "\r\n", 400},
    {"G@T / HTTP/1.1\r\n" HOST_ "\r\n", 400},
    {"nonsense\r\n\r\n", 400},
    {"AVERYLONGMETHODTHATNOBODYHASEVERHEARDOF / HTTP/1.1\r\n" HOST_ "\r\n", 400},
    {"GET / http/1.1\r\n" HOST_ "\r\n", 400},
    {"GET / HTTP/1.10\r\n" HOST_ "\r\n", 400},
    {"GET / HTTP/11\r\n" HOST_ "\r\n", 400},
    {"GET / HTTP/2.0\r\n" HOST_ "\r\n", 505},
    {"GET / HTTP/0.9\r\n" HOST_ "\r\n", 505},
    {"GET / HTTP/1.2\r\n" HOST_ "\r\n", 505},
    {"PRI * HTTP/2.0\r\n\r\n", 505},
    /* Targets. */
    {"GET a HTTP/1.1\r\n" HOST_ "\r\n", 400},
    {"GET a:80 HTTP/1.1\r\n" HOST_ "\r\n", 400},
    {"CONNECT a:80 HTTP/1.1\r\n" HOST_ "\r\n", 400},
    {"GET * HTTP/1.1\r\n" HOST_ "\r\n", 400},
    {"GET /a b HTTP/1.1\r\n" HOST_ "\r\n", 400},
    {"GET /a#b HTTP/1.1\r\n" HOST_ "\r\n", 400},
    {"GET /a\\b HTTP/1.1\r\n" HOST_ "\r\n", 400},
    {"GET /\xc3\xa4 HTTP/1.1\r\n" HOST_ "\r\n", 400},
    {"GET /%0a HTTP/1.1\r\n" HOST_ "\r\n", 400},
    {"GET /%00 HTTP/1.1\r\n" HOST_ "\r\n", 400},
    {"GET /%7F HTTP/1.1\r\n" HOST_ "\r\n", 400},
    {"GET /%zz HTTP/1.1\r\n" HOST_ "\r\n", 400},
    {"GET /%4 HTTP/1.1\r\n" HOST_ "\r\n", 400},
    {"GET /% HTTP/1.1\r\n" HOST_ "\r\n", 400},
    {"GET /%c3%28 HTTP/1.1\r\n" HOST_ "\r\n", 400},
    {"GET ftp://a/ HTTP/1.1\r\n" HOST_ "\r\n", 400},
    {"GET http://a HTTP/1.1\r\n" HOST_ "\r\n", 400},
    /* Names. */
    {GET_ "Host : a\r\n\r\n", 400},
    {GET_ "Host\t: a\r\n\r\n", 400},
    {GET_ HOST_ ": b\r\n\r\n", 400},
    {GET_ HOST_ "X\r\n\r\n", 400},
    {GET_ HOST_ "X y: b\r\n\r\n", 400},
    {GET_ HOST_ "X(: b\r\n\r\n", 400},
    {GET_ HOST_ "X\xc3\xa4: b\r\n\r\n", 400},
    /* Hosts. */
    {GET_ "\r\n", 400},
    {GET_ "Host:\r\n\r\n", 400},
    {GET_ "Host: a\r\nHost: a\r\n\r\n", 400},
    {GET_ "Host: a\r\nhost: b\r\n\r\n", 400},
    {GET_ "Host: a b\r\n\r\n", 400},
    {GET_ "Host: a/b\r\n\r\n", 400},
    {GET_ "Host: a@b\r\n\r\n", 400},
    /* Two readers, two bodies. */
    {POST_ "Content-Length: 5\r\nContent-Length: 5\r\n\r\n", 400},
    {POST_ "Content-Length: 5\r\nContent-Length: 6\r\n\r\n", 400},
    {POST_ "Content-Length: 5, 5\r\n\r\n", 400},
    {POST_ "Content-Length: +5\r\n\r\n", 400},
    {POST_ "Content-Length: -5\r\n\r\n", 400},
    {POST_ "Content-Length: 5 5\r\n\r\n", 400},
    {POST_ "Content-Length: 0x5\r\n\r\n", 400},
    {POST_ "Content-Length: 5a\r\n\r\n", 400},
    {POST_ "Content-Length: 5.0\r\n\r\n", 400},
    {POST_ "Content-Length:\r\n\r\n", 400},
    {POST_ "Content-Length: 18446744073709551621\r\n\r\n", 413},
    {POST_ "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
    {POST_ "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n", 400},
    {POST_ "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
    {POST_ "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n", 400},
    {POST_ "Transfer-Encoding: identity\r\n\r\n", 400},
    {POST_ "Transfer-Encoding: gzip, chunked\r\n\r\n", 400},
    {POST_ "Transfer-Encoding: chunked, gzip\r\n\r\n", 400},
    {POST_ "Transfer-Encoding: chunked;q=1\r\n\r\n", 400},
    {POST_ "Transfer-Encoding: xchunked\r\n\r\n", 400},
    {POST_ "Transfer-Encoding: \"chunked\"\r\n\r\n", 400},
    {POST_ "Transfer-Encoding:\r\n\r\n", 400},
    {POST_ "Transfer-Encoding : chunked\r\n\r\n", 400},
    {POST_ "Transfer-Encoding: chunked\x0b\r\n\r\n", 400},
    {"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
    /* Others that there may be one of. */
    {POST_ "Authorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n", 400},
    {POST_ "Content-Type: a/b\r\nContent-Type: c/d\r\n\r\n", 400},
    {POST_ "Expect: 100-continue\r\nExpect: 100-continue\r\n\r\n", 400},
    {POST_ "Expect: a miracle\r\n\r\n", 417},
};

static void test_heads_that_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct http_head head;
        int status = status_of(refused[i].text, &head);
        if (status != refused[i].status)
            fail_msg("%d, not %d: %s", status, refused[i].status, refused[i].text);
    }
    assert_true(sizeof refused / sizeof *refused >= 40);
}

/* The same places, with a NUL, which no text of C can hold. */
static void test_a_nul_is_refused_everywhere(void **state)
{
    (void)state;
    static const char whole[] = "POST /a?b HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n";
    for (size_t at = 0; at < sizeof whole - 1; at++) {
        char bytes[sizeof whole];
        struct http_head head;
        struct http_refusal why;
        memcpy(bytes, whole, sizeof whole);
        bytes[at] = 0;
        assert_int_equal(read_bytes(bytes, sizeof whole - 1, copy, &head, &why), 400);
    }
}

/* Every byte of a good head replaced by every other: it is still one, or refused, and never two
 * understandings of the body. */
static void test_any_byte_replaced(void **state)
{
    (void)state;
    static const char whole[] = "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n";
    for (size_t at = 0; at < sizeof whole - 1; at++)
        for (int c = 0; c < 256; c++) {
            char bytes[sizeof whole];
            struct http_head head;
            struct http_refusal why;
            memcpy(bytes, whole, sizeof whole);
            bytes[at] = (char)c;
            int status = read_bytes(bytes, sizeof whole - 1, copy, &head, &why);
            assert_true(status == 0 || status == -1 || (status >= 400 && status <= 505));
            if (status == 0)
                assert_true(!head.chunked && head.length <= 95);
        }
}

static void test_limits_of_heads(void **state)
{
    (void)state;
    static char text[HTTP_MAX_HEAD_BYTES + 4096];
    struct http_head head;
    for (int more = 0; more < 2; more++) { /* bytes in the request line */
        int a = HTTP_MAX_LINE_BYTES - (int)strlen("GET / HTTP/1.1") + more;
        memset(text, 'a', sizeof text);
        memcpy(text, "GET /", 5);
        strcpy(text + 5 + a, " HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_int_equal(status_of(text, &head), more ? 414 : 0);
    }
    for (int more = 0; more < 2; more++) { /* bytes in a field */
        size_t used = (size_t)sprintf(text, GET_ HOST_ "X:");
        memset(text + used, 'a', HTTP_MAX_LINE_BYTES);
        strcpy(text + used + HTTP_MAX_LINE_BYTES - 2 + more, "\r\n\r\n");
        assert_int_equal(status_of(text, &head), more ? 431 : 0);
    }
    for (int more = 0; more < 2; more++) { /* number of fields */
        size_t used = (size_t)sprintf(text, GET_ HOST_);
        for (int i = 1; i < HTTP_MAX_FIELDS + more; i++)
            used += (size_t)sprintf(text + used, "X: %d\r\n", i);
        strcpy(text + used, "\r\n");
        assert_int_equal(status_of(text, &head), more ? 431 : 0);
        if (!more)
            assert_int_equal(head.field_count, HTTP_MAX_FIELDS);
    }
    for (int more = 0; more < 2; more++) { /* bytes in all */
        size_t used = (size_t)sprintf(text, GET_ HOST_);
        while (used < HTTP_MAX_HEAD_BYTES - 1000)
            used += (size_t)sprintf(text + used, "X: %0900d\r\n", 1);
        used += (size_t)sprintf(text + used, "Y: ");
        memset(text + used, 'a', sizeof text - used);
        strcpy(text + HTTP_MAX_HEAD_BYTES - 4 + more, "\r\n\r\n");
        assert_int_equal(status_of(text, &head), more ? 431 : 0);
    }
}

static void test_what_a_head_says(void **state)
{
    (void)state;
    struct http_head head;
    assert_int_equal(status_of("POST /v1/%63hat%20%C3%A4?a=%20&b HTTP/1.1\r\nHost: [::1]:80\r\n"
                               "CONTENT-length:   007 \t\r\nX-Request-Id:\tabc\r\nX-Empty:\r\n"
                               "Expect: 100-Continue\r\n\r\n",
                               &head),
                     0);
    assert_int_equal(head.method, HTTP_POST);
    assert_string_equal(head.path, "/v1/chat \xc3\xa4");
    assert_string_equal(head.query, "a=%20&b");
    assert_int_equal(head.length, 7);
    assert_true(head.keep_alive && head.expects_continue && !head.chunked && !head.is_1_0);
    assert_string_equal(http_head_field(&head, "x-request-id"), "abc");
    assert_string_equal(http_head_field(&head, "x-empty"), "");
    assert_null(http_head_field(&head, "x-none"));
}

static void test_sound_heads(void **state)
{
    (void)state;
    static const struct {
        const char *text, *path;
        int method;
        bool keep_alive, chunked;
    } cases[] = {
        {GET_ HOST_ "\r\n", "/", HTTP_GET, true, false},
        {"\r\n" GET_ HOST_ "\r\n", "/", HTTP_GET, true, false},
        {"GET / HTTP/1.0\r\n\r\n", "/", HTTP_GET, false, false},
        {"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", "/", HTTP_GET, true, false},
        {GET_ HOST_ "Connection: close\r\n\r\n", "/", HTTP_GET, false, false},
        {GET_ HOST_ "Connection: x, Close\r\n\r\n", "/", HTTP_GET, false, false},
        {GET_ HOST_ "Connection: keep-alive\r\nConnection: close\r\n\r\n", "/", HTTP_GET, false,
         false},
        {GET_ HOST_ "Connection: closed\r\n\r\n", "/", HTTP_GET, true, false},
        {GET_ HOST_ "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\r\n", "/", HTTP_GET,
         true, false},
        {POST_ "Transfer-Encoding: Chunked\r\n\r\n", "/", HTTP_POST, true, true},
        {"GET http://h:1/p?q HTTP/1.1\r\n" HOST_ "\r\n", "/p", HTTP_GET, true, false},
        {"OPTIONS * HTTP/1.1\r\n" HOST_ "\r\n", "*", HTTP_OPTIONS, true, false},
        {"HEAD /a/../b HTTP/1.1\r\n" HOST_ "\r\n", "/a/../b", HTTP_HEAD, true, false},
        {"DELETE /%2e%2e/%2F HTTP/1.1\r\n" HOST_ "\r\n", "/..//", HTTP_OTHER, true, false},
        {"get / HTTP/1.1\r\n" HOST_ "\r\n", "/", HTTP_OTHER, true, false},
        {GET_ HOST_ "X: \xe4\xf6 obs-text\r\n\r\n", "/", HTTP_GET, true, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct http_head head;
        if (status_of(cases[i].text, &head) != 0)
            fail_msg("%s", cases[i].text);
        assert_string_equal(head.path, cases[i].path);
        assert_int_equal(head.method, cases[i].method);
        assert_int_equal(head.keep_alive, cases[i].keep_alive);
        assert_int_equal(head.chunked, cases[i].chunked);
    }
}

static void nothing(void *context, struct http_exchange *exchange)
{
    (void)context;
    (void)exchange;
}

static void test_routes(void **state)
{
    (void)state;
    static const struct http_route routes[] = {{"/v1/models", HTTP_GET, nothing},
                                               {"/v1/models/*", HTTP_GET, nothing},
                                               {"/v1/chat", HTTP_POST, nothing},
                                               {"/v1/chat", HTTP_OPTIONS, nothing}};
    static const struct {
        const char *path;
        int method;
        int found; /* -1: none */
        const char *allow;
    } cases[] = {
        {"/v1/models", HTTP_GET, 0, "GET, HEAD"},
        {"/v1/models", HTTP_HEAD, 0, "GET, HEAD"},
        {"/v1/models", HTTP_POST, -1, "GET, HEAD"},
        {"/v1/models/", HTTP_GET, -1, ""},
        {"/v1/models/a/b", HTTP_GET, 1, "GET, HEAD"},
        {"/v1/chat", HTTP_OPTIONS, 3, "POST, OPTIONS"},
        {"/v1/chat", HTTP_OTHER, -1, "POST, OPTIONS"},
        {"/v1/cha", HTTP_POST, -1, ""},
        {"/v1/chats", HTTP_POST, -1, ""},
        {"*", HTTP_OPTIONS, -1, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        unsigned allowed;
        char allow[HTTP_ALLOW_BYTES];
        const struct http_route *found =
            http_route_find(routes, sizeof routes / sizeof *routes,
                            (enum http_method)cases[i].method, cases[i].path, &allowed);
        if (found != (cases[i].found < 0 ? NULL : &routes[cases[i].found]))
            fail_msg("%s", cases[i].path);
        if (!found) {
            http_route_allow(allowed, allow);
            assert_string_equal(allow, cases[i].allow);
        }
    }
}

static void test_the_path_that_was_meant(void **state)
{
    (void)state;
    static const struct http_route routes[] = {{"/", HTTP_GET, nothing},
                                               {"/v1/models", HTTP_GET, nothing},
                                               {"/v1/models/*", HTTP_GET, nothing},
                                               {"/v1/chat/completions", HTTP_POST, nothing},
                                               {"/v1/completions", HTTP_POST, nothing}};
    static const struct {
        const char *path, *meant;
    } cases[] = {
        {"/chat/completions", "/v1/chat/completions"},
        {"/v1/v1/chat/completions", "/v1/chat/completions"},
        {"/completions", "/v1/completions"},
        {"/v1/v1/completions", "/v1/completions"},
        {"/v1/completion", "/v1/completions"},
        {"/v1/chat/completions/v1/models", "/v1/models"},
        {"/models", "/v1/models"},
        {"models", NULL},
        {"/v1/model", "/v1/models"},
        {"/v1/models/", "/v1/models"},
        {"/v1/models//", "/v1/models"},
        {"/v1/chat/completion", "/v1/chat/completions"},
        {"/v1/chat/completions/", "/v1/chat/completions"},
        {"/v1/chat/completionss", "/v1/chat/completions"},
        {"/v1/chat/completionx", NULL},
        {"/v1/mode", NULL},
        {"//", NULL},
        {"/s", NULL},
        {"/", NULL},
        {"/*", NULL},
        {"*", NULL},
        {"", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *meant = http_route_meant(routes, sizeof routes / sizeof *routes, cases[i].path);
        assert_true(!meant == !cases[i].meant);
        if (meant)
            assert_string_equal(meant, cases[i].meant);
    }
    assert_null(http_route_meant(routes, 0, "/models"));
}

static void test_content_types(void **state)
{
    (void)state;
    static const struct {
        const char *type;
        bool json;
    } cases[] = {
        {"application/json", true},
        {"Application/JSON", true},
        {"application/json; charset=utf-8", true},
        {"application/json;charset=utf-8", true},
        {"application/json ; charset=utf-8", true},
        {"application/vnd.api+json", true},
        {"application/problem+json; a=b", true},
        {NULL, false},
        {"", false},
        {"json", false},
        {"text/json", false},
        {"text/plain", false},
        {"text/plain; application/json", false},
        {"application/x-www-form-urlencoded", false},
        {"multipart/form-data; boundary=application/json", false},
        {"application/jsonp", false},
        {"application/xjson", false},
        {"application/+json", false},
        {"application/json text/plain", false},
        {"application/json, text/plain", false},
        {"application/json text/plain; charset=utf-8", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (http_is_json(cases[i].type) != cases[i].json)
            fail_msg("%s", cases[i].type);
}

static void test_names_of_this_machine(void **state)
{
    (void)state;
    static const struct {
        const char *host, *hosts;
        bool own;
    } cases[] = {
        {"localhost", "", true},
        {"LocalHost:8000", NULL, true},
        {"localhost.", "", true},
        {"a.localhost:80", "", true},
        {"127.0.0.1", "", true},
        {"127.255.255.254:1", "", true},
        {"[::1]", "", true},
        {"[::1]:8000", "", true},
        {"[0:0:0:0:0:0:0:1]", "", true},
        {"[::ffff:127.0.0.1]:80", "", true},
        {"", "", false},
        {"evil.example", "", false},
        {"localhost.evil.example", "", false},
        {"evillocalhost", "", false},
        {"127.0.0.1.evil.example", "", false},
        {"127.0.0.1@evil.example", "", false},
        {"127.1", "", false}, /* some read it as 127.0.0.1; no browser sends it */
        {"128.0.0.1", "", false},
        {"0.0.0.0:80", "", false},
        {"192.168.0.1", "", false},
        {"[::2]", "", false},
        {"[::1", "", false},
        {"[::1]evil", "", false},
        {"localhost:80evil", "", false},
        {"localhost:80:90", "", false},
        {"api.example", "a.example, API.example", true},
        {"api.example:8000", "a.example,api.example", true},
        {"b.example", "a.example,api.example", false},
        {"evil-api.example", "api.example", false},
        {"[fd00::1]:80", "fd00::1", true},
        {"evil.example", "*", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (http_host_is_own(cases[i].host, cases[i].hosts) != cases[i].own)
            fail_msg("%s of %s", cases[i].host, cases[i].hosts);
    assert_true(http_origin_is_own("http://localhost:3000", "", NULL));
    assert_true(http_origin_is_own("https://[::1]:3000", "", ""));
    assert_true(http_origin_is_own("https://a.example", "a.example", ""));
    assert_true(http_origin_is_own("https://a.example", "", "https://a.example"));
    assert_true(http_origin_is_own("null", "", "*"));
    assert_false(http_origin_is_own("null", "", ""));
    assert_false(http_origin_is_own("https://a.example", "", "https://b.example"));
    assert_false(http_origin_is_own("https://evil.example/://localhost", "", ""));
}

static void test_lists_of_names(void **state)
{
    (void)state;
    static const struct {
        const char *hosts;
        bool fine;
    } cases[] = {{"", true},
                 {"*", true},
                 {"a.example, b.example", true},
                 {"10.0.0.1", true},
                 {"fd00::1", true},
                 {"a.example:80", false},
                 {"http://a", false},
                 {"[fd00::1]", false},
                 {"a b", false},
                 {"a.example/", false},
                 {"a.example.", false}};
    struct error err;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if ((http_check_hosts(cases[i].hosts, &err) == STATUS_OK) != cases[i].fine)
            fail_msg("%s", cases[i].hosts);
    assert_int_equal(http_check_hosts("a.example, b.example:80", &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "'b.example:80' is no host"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_heads_that_are_refused),
        cmocka_unit_test(test_a_nul_is_refused_everywhere),
        cmocka_unit_test(test_any_byte_replaced),
        cmocka_unit_test(test_limits_of_heads),
        cmocka_unit_test(test_what_a_head_says),
        cmocka_unit_test(test_sound_heads),
        cmocka_unit_test(test_routes),
        cmocka_unit_test(test_the_path_that_was_meant),
        cmocka_unit_test(test_content_types),
        cmocka_unit_test(test_names_of_this_machine),
        cmocka_unit_test(test_lists_of_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
