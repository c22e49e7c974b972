/* http_server: strangers without a key, with all places, or behind a page in a browser. */
#include "tests/unit/http_fixture.h"

#include "certificate_fixture.h"
#include "common/net/crypto/tls_server.h"

#include <openssl/ssl.h>
#include <signal.h>

#define CLOSE_ "Host: a\r\nConnection: close\r\n"

static atomic_int calls;

static void on_echo(void *context, struct http_exchange *exchange)
{
    (void)context;
    struct http_reply reply;
    atomic_fetch_add(&calls, 1);
    http_reply_init(&reply, HTTP_MAX_REPLY_BYTES);
    reply.status = 200;
    (void)http_reply_add_header(&reply, "X-Query", http_exchange_query(exchange));
    assert_int_equal(http_exchange_reply(exchange, &reply), STATUS_OK);
    http_reply_deinit(&reply);
}

static const struct http_route routes[] = {
    {"/echo", HTTP_GET | HTTP_POST, on_echo},
    {"/json", HTTP_GET | HTTP_POST | HTTP_TAKES_JSON, on_echo},
};

static bool admit(void *context, struct http_exchange *exchange, struct http_reply *reply)
{
    (void)context;
    const char *key = http_exchange_header(exchange, "authorization");
    if (!key || strcmp(key, "Bearer wrong"))
        return true;
    reply->status = 401;
    str_add(&reply->body, "no such key\n");
    return false;
}

static void refuse(void *context, struct http_exchange *exchange, const char *peer,
                   const struct http_refusal *refusal, struct http_reply *reply)
{
    (void)context;
    (void)exchange;
    assert_memory_equal(peer, "127.0.0.", 8); /* also of a connection without a request */
    str_addf(&reply->body, "{\"code\": \"%s\", \"message\": \"%s\"}", refusal->code,
             refusal->why.text);
}

static struct http_server *server;
static const char *address;

static void start(struct http_server_config config)
{
    struct error err;
    if (!config.listen)
        config.listen = "127.0.0.1:0";
    config.routes = routes;
    config.route_count = sizeof routes / sizeof *routes;
    config.admit = admit;
    config.refuse = refuse;
    atomic_store(&calls, 0);
    if (http_server_start(&config, &server, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    address = http_server_address(server);
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
        fail_msg("no '%s' in '%s'", part, answer);
}

/* A stranger is answered when its head is there: no body is waited for, whatever its frame. */
static void test_a_refusal_comes_before_the_body(void **state)
{
    (void)state;
    start((struct http_server_config){.max_body_bytes = 1u << 20, .idle_us = 60 * SECOND_US});
    static const struct {
        const char *frame;
        bool kept;
    } cases[] = {{"Content-Length: 4\r\n", true},
                 {"Content-Length: 262144\r\n", true},
                 {"Content-Length: 262145\r\n", false},
                 {"Transfer-Encoding: chunked\r\n", true},
                 {"Content-Length: 4\r\nExpect: 100-continue\r\n", false}};
    static char body[262144 + 1];
    struct http_figures figures;
    struct str heard;
    str_init(&heard, 65536);
    memset(body, 'b', sizeof body);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char head[256];
        int fd = connected(address);
        str_clear(&heard);
        snprintf(head, sizeof head,
                 "POST /echo HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer wrong\r\n%s\r\n",
                 cases[i].frame);
        say(fd, head);
        assert_true(hear(fd, &heard, "no such key\n"));
        assert_int_equal(strstr(heard.data, "Connection: close") == NULL, cases[i].kept);
        http_server_figures(server, &figures);
        assert_int_equal(figures.body_bytes, 0);
        if (i < 2)
            say_bytes(fd, body, i ? 262144 : 4);
        else if (cases[i].kept)
            say(fd, "3\r\nabc\r\n0\r\n\r\n");
        if (cases[i].kept) {
            say(fd, "GET /echo?next HTTP/1.1\r\n" CLOSE_ "\r\n");
            (void)hear(fd, &heard, NULL);
            expect(heard.data, "X-Query: next\r\n");
        }
        close(fd);
    }
    assert_int_equal(atomic_load(&calls), 3);
    str_deinit(&heard);
}

/* Chunks without end behind a refusal end the connection, and never become a request. */
static void test_what_is_skipped_is_bounded(void **state)
{
    (void)state;
    start((struct http_server_config){0});
    static char chunks[1u << 20];
    for (size_t i = 0; i < sizeof chunks; i += 8)
        memcpy(chunks + i, "1;a\r\nb\r\n", 8);
    int fd = connected(address);
    say(fd, "POST /none HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    struct str heard;
    str_init(&heard, 65536);
    assert_true(hear(fd, &heard, "not_found"));
    for (ssize_t sent = 0; sent >= 0;)
        sent = send(fd, chunks, sizeof chunks, MSG_NOSIGNAL);
    close(fd);
    struct http_figures figures;
    http_server_figures(server, &figures);
    assert_int_equal(figures.requests, 0);
    str_deinit(&heard);
}

static int connected_from(const char *from)
{
    struct sockaddr_in to = socket_address(address), own = {.sin_family = AF_INET};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(inet_pton(AF_INET, from, &own.sin_addr), 1);
    assert_int_equal(bind(fd, (struct sockaddr *)&own, sizeof own), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

/* One address takes all that it may: others come in. Its own idle connections make room for it. */
static void test_a_share_for_each_address(void **state)
{
    (void)state;
    enum { SHARE = 3, TOLD = 4 };
    start((struct http_server_config){.max_connections = 16,
                                      .max_per_address = SHARE,
                                      .uncounted = "127.0.0.1",
                                      .turns_away = true});
    struct str heard;
    int held[SHARE + TOLD + 2];
    size_t count = 0;
    str_init(&heard, 65536);
    for (; count < SHARE + TOLD; count++) {
        held[count] = connected_from("127.0.0.2");
        str_clear(&heard);
        if (count < SHARE) {
            say(held[count], "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\na");
            continue;
        }
        assert_true(hear(held[count], &heard, "too_many_connections"));
        expect(heard.data, "HTTP/1.1 503 ");
        expect(heard.data, "that one address may have");
    }
    for (; count < SHARE + TOLD + 2; count++) { /* not even told */
        held[count] = connected_from("127.0.0.2");
        str_clear(&heard);
        assert_false(hear(held[count], &heard, NULL));
        assert_int_equal(heard.length, 0);
    }
    struct http_figures figures;
    http_server_figures(server, &figures);
    assert_int_equal(figures.turned_away, TOLD);
    assert_int_equal(figures.closed, 2);
    for (int i = 0; i < 3; i++) { /* another address, and one that isn't counted */
        int other = connected_from(i ? "127.0.0.1" : "127.0.0.3");
        str_clear(&heard);
        say(other, "GET /echo HTTP/1.1\r\n" CLOSE_ "\r\n");
        (void)hear(other, &heard, NULL);
        expect(heard.data, " 200 OK");
        close(other);
    }
    str_clear(&heard);
    say(held[0], "b");
    assert_true(hear(held[0], &heard, " 200 OK")); /* and is idle from now on */
    for (count = SHARE; count < SHARE + TOLD + 2; count++)
        close(held[count]);
    for (uint64_t end_us = clock_now_us() + WAIT_MS * 1000u;;) {
        int next = connected_from("127.0.0.2");
        str_clear(&heard);
        static const char get[] = "GET /echo HTTP/1.1\r\n" CLOSE_ "\r\n";
        (void)!send(next, get, sizeof get - 1, MSG_NOSIGNAL);
        (void)hear(next, &heard, NULL);
        close(next);
        if (strstr(heard.data, " 200 OK"))
            break;
        assert_true(clock_now_us() < end_us);
        poll(NULL, 0, 10);
    }
    http_server_figures(server, &figures);
    assert_int_equal(figures.made_room, 1);
    for (count = 0; count < SHARE; count++)
        close(held[count]);
    str_deinit(&heard);
}

/* A page in a browser may be behind a request that names another host, or that a page sends. */
static void test_names_that_a_page_may_have_chosen(void **state)
{
    (void)state;
    start((struct http_server_config){.allowed_hosts = "api.example, fd00::1",
                                      .cors_origins = "https://app.example"});
    static const struct {
        const char *fields, *status;
    } cases[] = {
        {"Host: localhost", "200"},
        {"Host: 127.0.0.1:8000", "200"},
        {"Host: [::1]:8000", "200"},
        {"Host: api.example:8000", "200"},
        {"Host: [fd00::1]:8000", "200"},
        {"Host: evil.example", "403"},
        {"Host: localhost\r\nOrigin: http://localhost:3000", "200"},
        {"Host: localhost\r\nOrigin: https://app.example", "200"},
        {"Host: localhost\r\nOrigin: https://evil.example", "403"},
        {"Host: localhost\r\nOrigin: null", "403"},
        {"Host: evil.example\r\nOrigin: https://app.example", "403"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char request[256];
        snprintf(request, sizeof request, "GET /echo HTTP/1.1\r\n%s\r\nConnection: close\r\n\r\n",
                 cases[i].fields);
        const char *answer = exchange_raw(address, request);
        if (strncmp(answer + strlen("HTTP/1.1 "), cases[i].status, 3) != 0)
            fail_msg("%s: %s", cases[i].fields, answer);
    }
    const char *refused = exchange_raw(address, "GET /echo HTTP/1.1\r\nHost: evil.example\r\n"
                                                "Connection: close\r\n\r\n");
    expect(refused, "\"host_not_allowed\"");
    expect(refused, "the setting allowed-hosts lets it answer to others");
    expect(exchange_raw(address, "GET /echo HTTP/1.1\r\n" CLOSE_ "Origin: null\r\n\r\n"),
           "\"host_not_allowed\"");
    expect(exchange_raw(address, "GET /echo HTTP/1.0\r\n\r\n"), " 200 OK"); /* names none */
    /* A preflight of such a page is refused, too. */
    expect(exchange_raw(address, "OPTIONS /echo HTTP/1.1\r\nHost: evil.example\r\n"
                                 "Origin: https://app.example\r\n"
                                 "Access-Control-Request-Method: POST\r\n"
                                 "Connection: close\r\n\r\n"),
           "HTTP/1.1 403 ");
    /* A server that other machines reach has other names. */
    http_server_stop(server);
    start((struct http_server_config){.listen = "0.0.0.0:0", .allowed_hosts = ""});
    expect(exchange_raw(address, "GET /echo HTTP/1.1\r\n" CLOSE_ "\r\n"), " 200 OK");
}

static void test_a_body_must_say_that_it_is_json(void **state)
{
    (void)state;
    start((struct http_server_config){0});
    static const struct {
        const char *type, *status;
    } cases[] = {
        {"Content-Type: application/json\r\n", "200"},
        {"Content-Type: application/json; charset=utf-8\r\n", "200"},
        {"Content-Type: text/plain\r\n", "415"},
        {"Content-Type: application/x-www-form-urlencoded\r\n", "415"},
        {"", "415"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char request[256];
        snprintf(request, sizeof request,
                 "POST /json HTTP/1.1\r\n" CLOSE_ "%sContent-Length: 2\r\n\r\n{}", cases[i].type);
        const char *answer = exchange_raw(address, request);
        if (strncmp(answer + strlen("HTTP/1.1 "), cases[i].status, 3) != 0)
            fail_msg("%s: %s", cases[i].type, answer);
    }
    expect(exchange_raw(address, "GET /json HTTP/1.1\r\n" CLOSE_ "\r\n"), " 200 OK");
    const char *refused = exchange_raw(address, "POST /json HTTP/1.1\r\n" CLOSE_
                                                "Content-Type: a/b\r\nContent-Length: 0\r\n\r\n");
    expect(refused, "\"unsupported_media_type\"");
    expect(refused, "'Content-Type: application/json'; found 'a/b'");
}

static uint64_t owner_of(struct http_exchange *exchange)
{
    return strtoull(http_exchange_header(exchange, "x-owner"), NULL, 10);
}

/* Sends the first 18000 of 20000 bytes of a body. */
static int begin_body_of(int owner)
{
    char text[20000];
    int fd = connected(address);
    snprintf(
        text, sizeof text,
        "POST /echo HTTP/1.1\r\nHost: a\r\nX-Owner: %d\r\nContent-Length: 20000\r\n\r\n%018000d",
        owner, 0);
    say(fd, text);
    return fd;
}

static void wait_for_bodies(uint64_t bytes)
{
    struct http_figures figures = {.body_bytes = ~bytes};
    while (figures.body_bytes != bytes)
        http_server_figures(server, &figures);
}

/* One owner's large bodies leave as much free as they take, so that another's still come. */
static void test_an_owner_has_a_share_of_bodies(void **state)
{
    (void)state;
    start((struct http_server_config){
        .max_body_bytes = 20000, .max_bodies_bytes = 80000, .owner = owner_of});
    struct str heard;
    str_init(&heard, 65536);
    int greedy[2];
    for (unsigned i = 0; i < 2; i++) {
        greedy[i] = begin_body_of(1);
        wait_for_bodies(18000u * (i + 1));
    }
    int third = begin_body_of(1);
    assert_false(hear(third, &heard, NULL));
    expect(heard.data, "HTTP/1.1 503 ");
    expect(heard.data, "the bodies of this client's requests together are too large");
    close(third);
    wait_for_bodies(36000);
    int other = begin_body_of(2);
    wait_for_bodies(54000);
    char rest[2001];
    snprintf(rest, sizeof rest, "%02000d", 0);
    say(other, rest);
    str_clear(&heard);
    assert_true(hear(other, &heard, " 200 "));
    close(other);
    wait_for_bodies(36000);
    int small = connected(address);
    say(small, "POST /echo HTTP/1.1\r\nX-Owner: 1\r\n" CLOSE_ "Content-Length: 5\r\n\r\nsmall");
    str_clear(&heard);
    assert_true(hear(small, &heard, " 200 "));
    close(small);
    close(greedy[0]); /* gives its part back */
    wait_for_bodies(18000);
    greedy[0] = begin_body_of(1);
    wait_for_bodies(36000);
    say(greedy[0], rest);
    str_clear(&heard);
    assert_true(hear(greedy[0], &heard, " 200 "));
    close(greedy[0]);
    close(greedy[1]);
    wait_for_bodies(0);
    str_deinit(&heard);
}

/* Each KeyUpdate costs the server as much as the client, and carries nothing. */
static void test_key_updates_without_end(void **state)
{
    (void)state;
    struct authority authority = authority_create("ours");
    struct folder folder;
    struct certificates *certificates;
    struct error err;
    folder_create(&folder);
    folder_fill(&folder, &(struct leaf_plan){.by = &authority, .names = "DNS:localhost"});
    const struct certificates_config files = {
        .name = "tls", .paths = {folder.cert, folder.key, ""}, .watch_interval_us = SECOND_US};
    assert_int_equal(certificates_open(&files, &certificates, &err), STATUS_OK);
    start((struct http_server_config){.certificates = certificates});
    signal(SIGPIPE, SIG_IGN);
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    SSL *flood = SSL_new(context), *other = SSL_new(context);
    int fds[2] = {connected(address), connected(address)};
    char answer[64] = "";
    static const char ask[] = "GET /echo HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_true(SSL_set_fd(flood, fds[0]) && SSL_connect(flood) == 1);
    assert_true(SSL_set_fd(other, fds[1]) && SSL_connect(other) == 1);
    int sent = 0;
    while (sent < 100000 && SSL_key_update(flood, SSL_KEY_UPDATE_REQUESTED) == 1 &&
           SSL_do_handshake(flood) == 1)
        sent++;
    assert_in_range(sent, TLS_MAX_MESSAGES, 99999);
    struct http_figures figures = {.refused = 0};
    while (!figures.refused)
        http_server_figures(server, &figures);
    assert_int_equal(SSL_key_update(other, SSL_KEY_UPDATE_REQUESTED), 1); /* one is fine */
    assert_int_equal(SSL_write(other, ask, sizeof ask - 1), sizeof ask - 1);
    assert_true(SSL_read(other, answer, sizeof answer - 1) > 12);
    expect(answer, "HTTP/1.1 200 ");
    SSL_free(flood);
    SSL_free(other);
    SSL_CTX_free(context);
    close(fds[0]);
    close(fds[1]);
    http_server_stop(server);
    server = NULL;
    certificates_close(certificates);
    folder_remove(&folder);
    authority_destroy(&authority);
}

int main(void)
{
#define CASE(test) cmocka_unit_test_teardown(test, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(test_a_refusal_comes_before_the_body), CASE(test_what_is_skipped_is_bounded),
        CASE(test_a_share_for_each_address),        CASE(test_names_that_a_page_may_have_chosen),
        CASE(test_a_body_must_say_that_it_is_json), CASE(test_an_owner_has_a_share_of_bodies),
        CASE(test_key_updates_without_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
