/* http_server: requests over sockets, as they come in pieces, in rows, too slowly, or in doubt. */
#include "tests/unit/http_fixture.h"

#include <sys/resource.h>

static atomic_int calls;

static void on_echo(void *context, struct http_exchange *exchange)
{
    (void)context;
    struct http_reply reply;
    atomic_fetch_add(&calls, 1);
    http_reply_init(&reply, HTTP_MAX_REPLY_BYTES);
    reply.status = 200;
    (void)http_reply_add_header(&reply, "X-Path", http_exchange_path(exchange));
    (void)http_reply_add_header(&reply, "X-Query", http_exchange_query(exchange));
    const struct str *body = http_exchange_body(exchange);
    str_append(&reply.body, body->data, body->length);
    assert_int_equal(http_exchange_reply(exchange, &reply), STATUS_OK);
    http_reply_deinit(&reply);
}

static void on_evil_header(void *context, struct http_exchange *exchange)
{
    (void)context;
    struct http_reply reply;
    http_reply_init(&reply, 64);
    reply.status = 200;
    static const char *const evil[][2] = {{"X-Request-Id", "a\r\nSet-Cookie: b"},
                                          {"X", "a\nb"},
                                          {"X", "\x7f"},
                                          {"Set-Cookie: b\r\nX", "a"},
                                          {"", "a"},
                                          {"a b", "c"}};
    for (size_t i = 0; i < sizeof evil / sizeof *evil; i++)
        assert_int_equal(http_reply_add_header(&reply, evil[i][0], evil[i][1]), STATUS_INVALID);
    assert_int_equal(http_reply_add_header(&reply, "X-Good", "a"), STATUS_OK);
    assert_int_equal(http_exchange_reply(exchange, &reply), STATUS_OK);
    http_reply_deinit(&reply);
}

static void on_nothing(void *context, struct http_exchange *exchange)
{
    (void)context;
    (void)exchange;
}

static void on_no_content(void *context, struct http_exchange *exchange)
{
    (void)context;
    http_exchange_reply_text(exchange, 204, "");
}

static int thing;
static atomic_int taken, dropped;

static void drop_thing(void *dropped_thing)
{
    assert_ptr_equal(dropped_thing, &thing);
    atomic_fetch_add(&dropped, 1);
}

static void on_take(void *context, struct http_exchange *exchange)
{
    (void)context;
    assert_ptr_equal(http_exchange_take_attached(exchange), &thing);
    assert_null(http_exchange_take_attached(exchange));
    atomic_fetch_add(&taken, 1);
    http_exchange_reply_text(exchange, 200, "taken\n");
}

static const struct http_route routes[] = {
    {"/take", HTTP_GET, on_take},       {"/echo", HTTP_GET | HTTP_POST, on_echo},
    {"/models/*", HTTP_GET, on_echo},   {"/evil", HTTP_GET, on_evil_header},
    {"/nothing", HTTP_GET, on_nothing}, {"/options", HTTP_OPTIONS, on_no_content},
};

static bool admit(void *context, struct http_exchange *exchange, struct http_reply *reply)
{
    (void)context;
    const char *key = http_exchange_header(exchange, "authorization");
    if (http_exchange_header(exchange, "x-attach"))
        http_exchange_attach(exchange, &thing, drop_thing);
    if (!key || strcmp(key, "Bearer wrong"))
        return true;
    char seconds[8] = "7"; /* gone behind this call */
    reply->status = 401;
    (void)http_reply_add_header(reply, "Retry-After", seconds);
    str_add(&reply->body, "no such key\n");
    return false;
}

static void refuse(void *context, struct http_exchange *exchange, const char *peer,
                   const struct http_refusal *refusal, struct http_reply *reply)
{
    (void)context;
    assert_memory_equal(peer, "127.0.0.", 8); /* also of a request that can't be read */
    reply->content_type = "application/json";
    str_addf(&reply->body, "{\"code\": \"%s\", \"path\": \"%s\", \"message\": \"%s\"}",
             refusal->code, exchange ? http_exchange_path(exchange) : "", refusal->why.text);
}

static struct http_server *server;
static const char *address;

static void start(struct http_server_config config)
{
    struct error err;
    config.listen = "127.0.0.1:0";
    config.routes = routes;
    config.route_count = sizeof routes / sizeof *routes;
    config.admit = admit;
    config.refuse = refuse;
    atomic_store(&calls, 0);
    assert_int_equal(http_server_start(&config, &server, &err), STATUS_OK);
    address = http_server_address(server);
}

static int set_up(void **state)
{
    (void)state;
    start((struct http_server_config){0});
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    http_server_stop(server);
    return 0;
}

static void expect(const char *answer, const char *part)
{
    if (!strstr(answer, part))
        fail_msg("no '%s' in: %s", part, answer);
}

#define CLOSE_ "Host: a\r\nConnection: close\r\n"
#define BEHIND "GET /echo?smuggled HTTP/1.1\r\nHost: a\r\n\r\n"

/* Each ends its connection with one refusal, and later bytes are never taken for a request. */
static void test_what_could_smuggle_a_request_ends_the_connection(void **state)
{
    (void)state;
#define POST_ "POST /echo HTTP/1.1\r\nHost: a\r\n"
    static const char *const cases[] = {
        "GET /echo HTTP/1.1\nHost: a\n\n" BEHIND,
        "GET /echo HTTP/1.1\r\nHost: a\n\r\n" BEHIND,
        "GET /echo HTTP/1.1\r\nHost: a\r\n\n" BEHIND,
        "GET /echo HTTP/1.1\r\nHost: a\r\nX: y\rGET /echo HTTP/1.1\r\n\r\n",
        POST_ "Content-Length: 0\r\nContent-Length: 46\r\n\r\n" BEHIND,
        POST_ "Content-Length: 0\r\nContent-Length: 0\r\n\r\n" BEHIND,
        POST_ "Content-Length: 0,46\r\n\r\n" BEHIND,
        POST_ "Content-Length: +0\r\n\r\n" BEHIND,
        POST_ "Content-Length: 0 \x0b\r\n\r\n" BEHIND,
        POST_ "Content-Length : 0\r\n\r\n" BEHIND,
        POST_ "Content-Length\r\n : 0\r\n\r\n" BEHIND,
        POST_ "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" BEHIND,
        POST_ "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" BEHIND,
        POST_ "Transfer-Encoding: chunked\r\nTransfer-Encoding: cow\r\n\r\n0\r\n\r\n" BEHIND,
        POST_ "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" BEHIND,
        POST_ "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" BEHIND,
        POST_ "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" BEHIND,
        POST_ "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n" BEHIND,
        POST_ " Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" BEHIND,
        POST_ "X: y\r\n\tTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" BEHIND,
        "POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" BEHIND,
        POST_ "Transfer-Encoding: chunked\r\n\r\n0\n\n" BEHIND,
        POST_ "Transfer-Encoding: chunked\r\n\r\n0x0\r\n\r\n" BEHIND,
        POST_ "Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n" BEHIND,
        POST_ "Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n" BEHIND,
        POST_ "Transfer-Encoding: chunked\r\n\r\n1 \r\na\r\n0\r\n\r\n" BEHIND,
        POST_ "Transfer-Encoding: chunked\r\n\r\n1;\nGET / HTTP/1.1\r\n\r\n",
        POST_ "Transfer-Encoding: chunked\r\n\r\n0\r\nX: y\n\r\n" BEHIND,
        POST_ "Transfer-Encoding: chunked\r\n\r\n100000000\r\na\r\n" BEHIND,
        POST_ "Transfer-Encoding: chunked\r\n\r\n10000000000000001\r\na\r\n0\r\n\r\n" BEHIND,
        "GET /echo HTTP/1.1\r\nX: y\r\n\r\n" BEHIND,
        "GET /echo HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n" BEHIND,
        "GET /echo HTTP/1.1\r\nHost: a\r\nX y: z\r\n\r\n" BEHIND,
        "GET /echo HTTP/1.1\r\nHost: a\r\nno colon\r\n\r\n" BEHIND,
        "GET /echo\r\nHost: a\r\n\r\n" BEHIND,
        "GET /echo HTTP/1.1 x\r\nHost: a\r\n\r\n" BEHIND,
        "GET /echo HTTP/2.0\r\nHost: a\r\n\r\n" BEHIND,
        "GET /a b HTTP/1.1\r\nHost: a\r\n\r\n" BEHIND,
        "GET echo HTTP/1.1\r\nHost: a\r\n\r\n" BEHIND,
        "CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n" BEHIND,
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" BEHIND,
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc" BEHIND,
        POST_ "Expect: 200-ok\r\nContent-Length: 46\r\n\r\n" BEHIND,
    };
#undef POST_
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *answer = exchange_raw(address, cases[i]);
        bool refused = !strncmp(answer, "HTTP/1.1 4", 10) || !strncmp(answer, "HTTP/1.1 505", 12);
        if (!refused || count_of(answer, "\r\nDate: ") != 1 || !strstr(answer, "{\"code\": \"") ||
            !strstr(answer, "Connection: close\r\n"))
            fail_msg("%s\n--- was answered\n%s", cases[i], answer);
    }
    assert_true(sizeof cases / sizeof *cases >= 40);
    assert_int_equal(atomic_load(&calls), 0);
    struct http_figures figures;
    http_server_figures(server, &figures);
    assert_int_equal(figures.refused, sizeof cases / sizeof *cases);
    assert_int_equal(figures.requests, 0);
}

static void test_the_right_status(void **state)
{
    (void)state;
    static char text[20000];
    expect(exchange_raw(address, "GET / HTTP/1.1\r\n\r\n"), "HTTP/1.1 400 ");
    expect(exchange_raw(address, "GET /none HTTP/1.1\r\n" CLOSE_ "\r\n"),
           "{\"code\": \"not_found\", \"path\": \"/none\"");
    expect(exchange_raw(address, "PUT /echo HTTP/1.1\r\n" CLOSE_ "\r\n"),
           "\r\nAllow: GET, HEAD, POST\r\n");
    expect(exchange_raw(address, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 8193\r\n\r\n"),
           "HTTP/1.1 413 ");
    snprintf(text, sizeof text, "GET /%09000d HTTP/1.1\r\nHost: a\r\n\r\n", 0);
    expect(exchange_raw(address, text), "HTTP/1.1 414 ");
    snprintf(text, sizeof text, "GET / HTTP/1.1\r\nX: %09000d\r\n\r\n", 0);
    expect(exchange_raw(address, text), "HTTP/1.1 431 ");
    expect(exchange_raw(address, "GET /models/ HTTP/1.1\r\n" CLOSE_ "\r\n"), "HTTP/1.1 404 ");
    expect(exchange_raw(address, "GET /models/a%2fb?c=d HTTP/1.1\r\n" CLOSE_ "\r\n"),
           "X-Path: /models/a/b\r\nX-Query: c=d\r\n");
    expect(exchange_raw(address, "OPTIONS /options HTTP/1.1\r\n" CLOSE_ "\r\n"),
           "HTTP/1.1 204 No Content\r\n");
    expect(exchange_raw(address, "GET /evil HTTP/1.1\r\n" CLOSE_ "\r\n"), "\r\nX-Good: a\r\n\r\n");
    expect(exchange_raw(address, "GET /nothing HTTP/1.1\r\n" CLOSE_ "\r\n"),
           "HTTP/1.1 500 Internal Server Error\r\n");
    assert_null(
        strstr(exchange_raw(address, "GET /evil HTTP/1.1\r\n" CLOSE_ "\r\n"), "Set-Cookie"));
}

static void test_bodies_in_both_frames(void **state)
{
    (void)state;
    static char text[10000];
    expect(exchange_raw(address, "POST /echo HTTP/1.1\r\n" CLOSE_ "Content-Length: 5\r\n\r\nhello"),
           "\r\nContent-Length: 5\r\n");
    expect(exchange_raw(
               address,
               "POST /echo HTTP/1.1\r\n" CLOSE_
               "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x\r\nde\r\n0\r\nT: x\r\n\r\n"),
           "\r\n\r\nabcde");
    int used = snprintf(text, sizeof text,
                        "POST /echo HTTP/1.1\r\n" CLOSE_ "Content-Length: 8192\r\n\r\n%08192d", 7);
    assert_int_equal(strlen(strstr(exchange_bytes(address, text, (size_t)used), "\r\n\r\n")), 8196);
}

/* One byte at a time, with others' turns between. */
static void test_a_request_in_single_bytes(void **state)
{
    (void)state;
    static const char request[] = "POST /echo HTTP/1.1\r\n" CLOSE_ "Content-Length: 3\r\n\r\nabc";
    struct str heard;
    int fd = connected(address);
    for (const char *c = request; *c; c++)
        say_bytes(fd, c, 1);
    str_init(&heard, 65536);
    assert_false(hear(fd, &heard, NULL));
    expect(heard.data, "\r\n\r\nabc");
    str_deinit(&heard);
    close(fd);
}

static void test_a_connection_serves_many_requests(void **state)
{
    (void)state;
    struct str heard;
    int fd = connected(address);
    for (int i = 0; i < 100; i++) {
        char request[128], wanted[32];
        str_init(&heard, 65536);
        snprintf(request, sizeof request,
                 "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n%05d", i);
        snprintf(wanted, sizeof wanted, "\r\n\r\n%05d", i);
        say(fd, request);
        assert_true(hear(fd, &heard, wanted));
        str_deinit(&heard);
    }
    assert_int_equal(atomic_load(&calls), 100);
    struct http_figures figures;
    http_server_figures(server, &figures);
    assert_int_equal(figures.accepted, 1);
    assert_int_equal(figures.requests, 100);
    close(fd);
}

/* A refusal that leaves no doubt about where the next request begins keeps the connection. */
static void test_refused_requests_keep_the_connection_where_they_can(void **state)
{
    (void)state;
    const char *answer =
        exchange_raw(address, "GET /none HTTP/1.1\r\nHost: a\r\n\r\n"
                              "POST /none HTTP/1.1\r\nHost: a\r\nContent-Length: 40\r\n\r\n" BEHIND
                              "POST /echo HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer wrong\r\n"
                              "Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n"
                              "GET /echo?last HTTP/1.1\r\n" CLOSE_ "\r\n");
    assert_int_equal(count_of(answer, "HTTP/1.1 404"), 2);
    expect(answer, "HTTP/1.1 401 Unauthorized\r\n");
    expect(answer, "\r\nRetry-After: 7\r\n");
    expect(answer, "no such key\n");
    expect(answer, "X-Query: last\r\n");
    assert_int_equal(atomic_load(&calls), 1);
}

static void test_pipelined_requests_are_answered_in_order(void **state)
{
    (void)state;
    enum { REQUESTS = 2000 }; /* more bytes than wait at a time */
    static char text[REQUESTS * 64];
    size_t used = 0;
    for (int i = 0; i < REQUESTS; i++)
        used += (size_t)sprintf(text + used, "GET /echo?%d HTTP/1.1\r\nHost: a\r\n%s\r\n", i,
                                i == REQUESTS - 1 ? "Connection: close\r\n" : "");
    const char *at = exchange_bytes(address, text, used);
    for (int i = 0; i < REQUESTS; i++) {
        char wanted[32];
        snprintf(wanted, sizeof wanted, "X-Query: %d\r\n", i);
        at = strstr(at, "X-Query: ");
        assert_non_null(at);
        assert_memory_equal(at, wanted, strlen(wanted));
        at += strlen(wanted);
    }
    assert_null(strstr(at, "X-Query: "));
}

static void test_head_and_old_versions(void **state)
{
    (void)state;
    const char *answer = exchange_raw(address, "HEAD /echo HTTP/1.1\r\n" CLOSE_ "\r\n");
    expect(answer, "\r\nContent-Length: 0\r\n");
    answer = exchange_raw(address, "HEAD /none HTTP/1.1\r\n" CLOSE_ "\r\n");
    expect(answer, "HTTP/1.1 404 ");
    assert_string_equal(strstr(answer, "\r\n\r\n"), "\r\n\r\n");
    answer = exchange_raw(address, "GET /echo HTTP/1.0\r\n\r\n");
    expect(answer, "Connection: close\r\n");
    answer = exchange_raw(address, "GET /echo HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"
                                   "GET /echo HTTP/1.0\r\n\r\n");
    assert_int_equal(count_of(answer, "HTTP/1.1 200"), 2);
    expect(answer, "Connection: keep-alive\r\n");
}

static void test_expectations(void **state)
{
    (void)state;
    struct str heard;
    str_init(&heard, 65536);
    int fd = connected(address);
    say(fd, "POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
    assert_true(hear(fd, &heard, "HTTP/1.1 100 Continue\r\n\r\n"));
    assert_null(strstr(heard.data, "200"));
    say(fd, "abc");
    assert_true(hear(fd, &heard, "\r\n\r\nabc"));
    /* A client that would be refused isn't asked for its body, and has to open its next request
     * anew. */
    str_clear(&heard);
    say(fd, "POST /none HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
    assert_false(hear(fd, &heard, NULL));
    expect(heard.data, "HTTP/1.1 404 ");
    assert_null(strstr(heard.data, "100 Continue"));
    str_deinit(&heard);
    close(fd);
}

/* All bodies under way together are bounded, too. */
static void test_bodies_of_all_are_limited(void **state)
{
    (void)state;
    http_server_stop(server);
    start((struct http_server_config){.max_body_bytes = 20000, .max_bodies_bytes = 40000});
    int fds[3];
    for (int i = 0; i < 3; i++) {
        char text[20000];
        struct http_figures figures = {0};
        fds[i] = connected(address);
        snprintf(text, sizeof text,
                 "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 20000\r\n\r\n%018000d", 0);
        say(fds[i], text);
        while (i < 2 && figures.body_bytes != 18000u * ((unsigned)i + 1))
            http_server_figures(server, &figures);
    }
    struct str heard;
    str_init(&heard, 65536);
    assert_false(hear(fds[2], &heard, NULL));
    expect(heard.data, "HTTP/1.1 503 ");
    expect(heard.data, "\"overloaded\"");
    expect(heard.data, "\r\nRetry-After: 1\r\n");
    /* Few bytes are taken all the same. */
    int small = connected(address);
    str_clear(&heard);
    say(small, "POST /echo HTTP/1.1\r\n" CLOSE_ "Content-Length: 5\r\n\r\nsmall");
    assert_true(hear(small, &heard, "\r\n\r\nsmall"));
    close(small);
    str_clear(&heard);
    char rest[2001];
    snprintf(rest, sizeof rest, "%02000d", 0);
    say(fds[0], rest);
    assert_true(hear(fds[0], &heard, " 200 "));
    for (int i = 0; i < 3; i++)
        close(fds[i]);
    struct http_figures figures = {.body_bytes = 1};
    while (figures.body_bytes)
        http_server_figures(server, &figures);
    str_deinit(&heard);
}

/* Returns the time from `begin_us` until the server has closed, and its bytes. */
static uint64_t until_closed(int fd, uint64_t begin_us, struct str *heard)
{
    str_clear(heard);
    (void)hear(fd, heard, NULL);
    close(fd);
    return clock_now_us() - begin_us;
}

/* A preflight comes without a key: its body is skipped, and counts nowhere. */
static void test_a_preflights_body_is_dropped(void **state)
{
    (void)state;
    http_server_stop(server);
    start((struct http_server_config){
        .max_body_bytes = 20000, .max_bodies_bytes = 500, .cors_origins = "https://a.example"});
    static char text[20480];
    snprintf(text, sizeof text,
             "OPTIONS /echo HTTP/1.1\r\n" CLOSE_ "Origin: https://a.example\r\n"
             "Access-Control-Request-Method: POST\r\nContent-Length: 18000\r\n\r\n%018000d",
             0);
    expect(exchange_raw(address, text), "HTTP/1.1 204 ");
    snprintf(text, sizeof text,
             "POST /echo HTTP/1.1\r\n" CLOSE_ "Content-Length: 18000\r\n\r\n%018000d", 0);
    const char *refused = exchange_raw(address, text);
    expect(refused, "HTTP/1.1 503 ");
    expect(refused, "\r\nVary: Origin\r\n");
}

#define SHORT_US 300000u

static void test_slow_clients_are_sent_away(void **state)
{
    (void)state;
    http_server_stop(server);
    start((struct http_server_config){.head_us = SHORT_US,
                                      .idle_us = SHORT_US,
                                      .body_us = SHORT_US,
                                      .body_bytes_per_second = 1000});
    struct str heard;
    str_init(&heard, 65536);
    uint64_t begin_us = clock_now_us();
    int silent = connected(address), half = connected(address), idle = connected(address),
        body = connected(address);
    say(half, "GET /echo HTTP/1.1\r\nHo");
    say(idle, "GET /echo HTTP/1.1\r\nHost: a\r\n\r\n");
    say(body, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 8000\r\n\r\nabc");
    assert_true(until_closed(silent, begin_us, &heard) >= SHORT_US);
    assert_int_equal(heard.length, 0);
    assert_true(until_closed(half, begin_us, &heard) >= SHORT_US);
    expect(heard.data, "HTTP/1.1 408 ");
    assert_true(until_closed(idle, begin_us, &heard) >= SHORT_US);
    assert_int_equal(count_of(heard.data, "HTTP/1.1 "), 1);
    assert_true(until_closed(body, begin_us, &heard) >= SHORT_US);
    expect(heard.data, "{\"code\": \"request_timeout\", \"path\": \"/echo\"");
    struct http_figures figures;
    http_server_figures(server, &figures);
    assert_int_equal(figures.slow, 2);
    str_deinit(&heard);
}

/* A trickle doesn't keep a head alive, however steady; a body lives as long as it comes at the
 * rate. */
static void test_a_trickle_ends_and_a_steady_body_does_not(void **state)
{
    (void)state;
    http_server_stop(server);
    start((struct http_server_config){
        .head_us = SHORT_US, .body_us = SHORT_US, .body_bytes_per_second = 1000});
    int trickle = connected(address), steady = connected(address);
    struct pollfd ends[] = {{.fd = trickle, .events = POLLIN}, {.fd = steady, .events = POLLIN}};
    uint64_t begin_us = clock_now_us();
    say(steady, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 2000\r\n\r\n");
    say(trickle, "GET /echo HTTP/1.1\r\nX: ");
    char piece[101];
    snprintf(piece, sizeof piece, "%0100d", 0);
    for (int i = 0; i < 20; i++) { /* 2000 bytes in 1 s */
        say(steady, piece);
        if (!(ends[0].revents & POLLIN)) {
            say(trickle, "x");
            poll(&ends[0], 1, 0);
        }
        poll(&ends[1], 1, 50);
    }
    assert_true(clock_now_us() - begin_us > 2 * SHORT_US);
    struct str heard;
    str_init(&heard, 65536);
    assert_true(hear(steady, &heard, " 200 OK"));
    str_clear(&heard);
    assert_false(hear(trickle, &heard, NULL));
    expect(heard.data, "HTTP/1.1 408 ");
    str_deinit(&heard);
    close(steady);
    close(trickle);
}

/* Idle clients have all connections. For a second none is evicted, then the one that was idle
 * longest. */
static void test_who_is_idle_makes_room(void **state)
{
    (void)state;
    http_server_stop(server);
    start((struct http_server_config){.max_connections = 2, .turns_away = true});
    struct str heard;
    str_init(&heard, 65536);
    int first = connected(address), second = connected(address);
    uint64_t idle_us = clock_now_us(); /* at the earliest */
    say(first, "GET /echo HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_true(hear(first, &heard, " 200 OK"));
    say(second, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\na");
    const char *answer;
    do { /* until it is taken: 503, or closed */
        answer = exchange_raw(address, "GET /echo HTTP/1.1\r\n" CLOSE_ "\r\n");
        assert_true(clock_now_us() - idle_us < WAIT_MS * 1000u);
    } while (!strstr(answer, " 200 OK"));
    assert_true(clock_now_us() - idle_us >= SECOND_US);
    str_clear(&heard);
    assert_false(hear(first, &heard, NULL));
    assert_int_equal(heard.length, 0);
    say(second, "b");
    assert_true(hear(second, &heard, " 200 OK"));
    struct http_figures figures;
    http_server_figures(server, &figures);
    assert_int_equal(figures.made_room, 1);
    assert_true(figures.turned_away > 0);
    close(first);
    close(second);
    str_deinit(&heard);
}

static void test_surplus_connections_are_turned_away(void **state)
{
    (void)state;
    http_server_stop(server);
    start((struct http_server_config){.max_connections = 2, .turns_away = true});
    struct str heard;
    str_init(&heard, 65536);
    int first = connected(address), second = connected(address);
    say(first, "GET /echo HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_true(hear(first, &heard, " 200 OK"));
    say(second, "GET /echo HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_true(hear(second, &heard, " 200 OK"));
    expect(exchange_raw(address, "GET /echo HTTP/1.1\r\nHost: a\r\n\r\n"),
           "\"too_many_connections\"");
    struct http_figures figures;
    http_server_figures(server, &figures);
    assert_int_equal(figures.turned_away, 1);
    close(first);
    for (uint64_t end_us = clock_now_us() + WAIT_MS * 1000u; figures.connections > 1;) {
        assert_true(clock_now_us() < end_us);
        poll(NULL, 0, 1);
        http_server_figures(server, &figures);
    }
    expect(exchange_raw(address, "GET /echo HTTP/1.1\r\n" CLOSE_ "\r\n"), " 200 OK");
    close(second);
    str_deinit(&heard);
}

/* Out of descriptors, a door that turns away closes at once, and opens again later. */
static void test_a_door_without_descriptors_closes_at_once(void **state)
{
    (void)state;
    enum { DESCRIPTORS = 200, VISITORS = 3 };
    http_server_stop(server);
    start((struct http_server_config){.turns_away = true});
    struct rlimit before, few;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = (struct rlimit){DESCRIPTORS, before.rlim_max};
    int visitors[VISITORS], fds[DESCRIPTORS], count = 0;
    for (int i = 0; i < VISITORS; i++)
        visitors[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    while ((fds[count] = dup(visitors[0])) >= 0)
        count++;
    struct sockaddr_in to = socket_address(address);
    for (int i = 0; i < VISITORS; i++) {
        char byte;
        struct pollfd ended = {.fd = visitors[i], .events = POLLIN};
        assert_int_equal(connect(visitors[i], (struct sockaddr *)&to, sizeof to), 0);
        assert_int_equal(poll(&ended, 1, WAIT_MS), 1);
        assert_true(recv(visitors[i], &byte, 1, 0) <= 0);
    }
    struct http_figures figures;
    uint64_t end_us = clock_now_us() + WAIT_MS * 1000u;
    do {
        assert_true(clock_now_us() < end_us);
        http_server_figures(server, &figures);
    } while (figures.turned_away != VISITORS);
    while (count > 0)
        close(fds[--count]);
    for (int i = 0; i < VISITORS; i++)
        close(visitors[i]);
    expect(exchange_raw(address, "GET /echo HTTP/1.1\r\n" CLOSE_ "\r\n"), " 200 OK");
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

/* If a client goes on sending after its refusal, the server reads for a limited time, so that the
 * client sees the refusal. */
static void test_what_still_comes_behind_an_answer_is_bounded(void **state)
{
    (void)state;
    static char much[1u << 20];
    int fd = connected(address);
    uint64_t begin_us = clock_now_us(), sent_bytes = 0;
    say(fd, "nonsense\r\n\r\n");
    for (ssize_t sent = 0; sent >= 0 && sent_bytes < 1u << 30;) {
        sent = send(fd, much, sizeof much, MSG_NOSIGNAL);
        sent_bytes += sent > 0 ? (uint64_t)sent : 0;
    }
    assert_true(sent_bytes < 1u << 30);
    assert_true(clock_now_us() - begin_us < 10 * SECOND_US);
    close(fd);
}

static void test_headers_of_a_reply_are_limited(void **state)
{
    (void)state;
    struct http_reply reply;
    http_reply_init(&reply, 0);
    for (int i = 0; i < HTTP_REPLY_MAX_FIELDS_BYTES / 8; i++)
        assert_int_equal(http_reply_add_header(&reply, "ab", "yz"), STATUS_OK);
    assert_int_equal(http_reply_add_header(&reply, "", ""), STATUS_INVALID);
    assert_int_equal(http_reply_add_header(&reply, "a", ""), STATUS_LIMIT);
    assert_int_equal(reply.fields.length, HTTP_REPLY_MAX_FIELDS_BYTES);
    http_reply_deinit(&reply);
}

static void test_several_threads(void **state)
{
    (void)state;
    http_server_stop(server);
    start((struct http_server_config){.threads = HTTP_MAX_THREADS});
    for (int i = 0; i < 3 * HTTP_MAX_THREADS; i++)
        expect(exchange_raw(address, "GET /echo HTTP/1.1\r\n" CLOSE_ "\r\n"), " 200 OK");
    assert_int_equal(atomic_load(&calls), 3 * HTTP_MAX_THREADS);
}

static void wait_dropped(int count)
{
    uint64_t end_us = clock_now_us() + WAIT_MS * 1000u;
    while (atomic_load(&dropped) != count) {
        assert_true(clock_now_us() < end_us);
        poll(NULL, 0, 1);
    }
}

/* An object that the admit hook attaches goes to the handler, or is dropped with the exchange:
 * after its answer, its refusal, or its client's end. */
static void test_what_is_attached_is_taken_or_dropped(void **state)
{
    (void)state;
#define ATTACH_ CLOSE_ "X-Attach: 1\r\n"
    expect(exchange_raw(address, "GET /take HTTP/1.1\r\n" ATTACH_ "\r\n"), "taken");
    assert_int_equal(atomic_load(&taken), 1);
    expect(exchange_raw(address, "GET /echo HTTP/1.1\r\n" ATTACH_ "\r\n"), " 200 OK");
    wait_dropped(1);
    expect(exchange_raw(address, "POST /echo HTTP/1.1\r\n" ATTACH_
                                 "Transfer-Encoding: chunked\r\n\r\nnonsense\r\n"),
           " 400 ");
    wait_dropped(2);
    int fd = connected(address);
    struct str heard;
    str_init(&heard, 4096);
    say(fd, "POST /echo HTTP/1.1\r\n" ATTACH_ "Content-Length: 9\r\nExpect: 100-continue\r\n\r\n");
    assert_true(hear(fd, &heard, "100 Continue"));
    assert_int_equal(atomic_load(&dropped), 2);
    close(fd);
    wait_dropped(3);
    assert_int_equal(atomic_load(&taken), 1);
    str_deinit(&heard);
}

static void test_where_it_may_listen(void **state)
{
    (void)state;
    static const struct {
        const char *listen;
        bool fine;
    } rows[] = {{"127.0.0.1:8000", true}, {"0.0.0.0:1", true},    {"[::]:0", true},
                {"localhost:8000", true}, {":8000", false},       {"localhost", false},
                {"localhost:", false},    {"here:8000", false},   {"*:8000", false},
                {"127.0.0.1", false},     {"localhost:a", false}, {"", false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct error err = {""};
        bool fine = http_check_listen(rows[i].listen, &err) == STATUS_OK;
        if (fine != rows[i].fine || (!fine && !strstr(err.text, "or localhost, and a port")))
            fail_msg("%s: %s", rows[i].listen, err.text);
    }
    struct http_server *local;
    struct http_server_config config = {.listen = "localhost:0"};
    struct error err;
    assert_int_equal(http_server_start(&config, &local, &err), STATUS_OK);
    assert_memory_equal(http_server_address(local), "127.0.0.1:", 10);
    http_server_stop(local);
}

int main(void)
{
#define CASE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_where_it_may_listen),
        CASE(test_what_could_smuggle_a_request_ends_the_connection),
        CASE(test_the_right_status),
        CASE(test_bodies_in_both_frames),
        CASE(test_a_request_in_single_bytes),
        CASE(test_a_connection_serves_many_requests),
        CASE(test_refused_requests_keep_the_connection_where_they_can),
        CASE(test_pipelined_requests_are_answered_in_order),
        CASE(test_head_and_old_versions),
        CASE(test_expectations),
        CASE(test_bodies_of_all_are_limited),
        CASE(test_a_preflights_body_is_dropped),
        CASE(test_slow_clients_are_sent_away),
        CASE(test_a_trickle_ends_and_a_steady_body_does_not),
        CASE(test_surplus_connections_are_turned_away),
        CASE(test_who_is_idle_makes_room),
        CASE(test_a_door_without_descriptors_closes_at_once),
        CASE(test_what_still_comes_behind_an_answer_is_bounded),
        CASE(test_headers_of_a_reply_are_limited),
        CASE(test_several_threads),
        CASE(test_what_is_attached_is_taken_or_dropped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
