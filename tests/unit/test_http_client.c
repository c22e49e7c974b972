/* http_client over TLS: which peers each side trusts and refuses, each refusal with its
 * sentence. */
#include "certificate_fixture.h"
#include "tests/unit/http_fixture.h"

#include "common/base/log.h"
#include "common/net/crypto/certificates.h"

#include <openssl/ssl.h>
#include <signal.h>

#define TIMEOUT_US 20000000u
#define ANSWER     "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

struct world {
    struct authority authority, other;
    struct folder server, client, stranger;
};

static int set_up(void **state)
{
    struct world *world = calloc(1, sizeof *world);
    assert_non_null(world);
    world->authority = authority_create("ours");
    world->other = authority_create("another's");
    folder_create(&world->server);
    folder_create(&world->client);
    folder_create(&world->stranger);
    folder_fill(&world->server,
                &(struct leaf_plan){.by = &world->authority, .names = "DNS:baton,IP:127.0.0.1"});
    folder_fill(&world->client,
                &(struct leaf_plan){.by = &world->authority, .names = "DNS:client"});
    folder_fill(&world->stranger,
                &(struct leaf_plan){.by = &world->other, .names = "DNS:client,IP:127.0.0.1"});
    *state = world;
    return 0;
}

static int tear_down(void **state)
{
    struct world *world = *state;
    folder_remove(&world->server);
    folder_remove(&world->client);
    folder_remove(&world->stranger);
    authority_destroy(&world->authority);
    authority_destroy(&world->other);
    free(world);
    return 0;
}

/* A server directly on OpenSSL, which shows certificates that ours would refuse to show. It takes
 * one connection. */
struct peer {
    const struct folder *shows; /* NULL: it speaks no TLS */
    const struct folder *asks;  /* for a certificate of this CA; NULL: for none */
    int newest;                 /* version; 0: any */
    const char *answers;
    bool cuts; /* ends without having said so */
    int fd;
    char address[32], heard[4096];
    pthread_t thread;
};

static SSL_CTX *context_of(const struct peer *peer)
{
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    assert_non_null(context);
    SSL_CTX_set_security_level(context, 0);
    SSL_CTX_set_min_proto_version(context, TLS1_VERSION);
    SSL_CTX_set_max_proto_version(context, peer->newest);
    SSL_CTX_use_certificate_file(context, peer->shows->cert, SSL_FILETYPE_PEM);
    SSL_CTX_use_PrivateKey_file(context, peer->shows->key, SSL_FILETYPE_PEM);
    if (peer->asks) {
        SSL_CTX_load_verify_locations(context, peer->asks->ca, NULL);
        SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    }
    return context;
}

static void speak_tls(struct peer *peer, int fd)
{
    SSL_CTX *context = context_of(peer);
    SSL *ssl = SSL_new(context);
    SSL_set_fd(ssl, fd);
    if (SSL_accept(ssl) == 1) {
        int got = SSL_read(ssl, peer->heard, sizeof peer->heard - 1);
        peer->heard[got > 0 ? got : 0] = 0;
        SSL_write(ssl, peer->answers, (int)strlen(peer->answers));
        if (!peer->cuts)
            SSL_shutdown(ssl);
    }
    SSL_free(ssl);
    SSL_CTX_free(context);
}

static void *serve_one(void *argument)
{
    struct peer *peer = argument;
    int fd = accept(peer->fd, NULL, NULL);
    if (peer->shows) {
        speak_tls(peer, fd);
    } else {
        ssize_t got = recv(fd, peer->heard, sizeof peer->heard - 1, 0);
        peer->heard[got > 0 ? got : 0] = 0;
        send(fd, peer->answers, strlen(peer->answers), MSG_NOSIGNAL);
    }
    close(fd);
    return NULL;
}

static void peer_start(struct peer *peer)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof at;
    peer->fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(peer->fd, (struct sockaddr *)&at, length) || listen(peer->fd, 4), 0);
    assert_int_equal(getsockname(peer->fd, (struct sockaddr *)&at, &length), 0);
    snprintf(peer->address, sizeof peer->address, "127.0.0.1:%d", ntohs(at.sin_port));
    if (!peer->answers)
        peer->answers = ANSWER;
    assert_int_equal(pthread_create(&peer->thread, NULL, serve_one, peer), 0);
}

static void peer_stop(const struct peer *peer)
{
    pthread_join(peer->thread, NULL);
    close(peer->fd);
}

/* The client's side: the CA of one folder, a certificate of another one. */
struct side {
    const struct folder *trusts, *shows;
    const char *scheme, *name, *key;
};

static enum status asked(const char *address, const struct side *side, struct str *body,
                         struct error *err)
{
    const struct certificates_config config = {.name = "tls",
                                               .paths = {side->shows ? side->shows->cert : "",
                                                         side->shows ? side->shows->key : "",
                                                         side->trusts ? side->trusts->ca : ""}};
    struct http_remote remote = {.peer_name = side->name, .api_key = side->key};
    char url[64];
    snprintf(url, sizeof url, "%s%s", side->scheme ? side->scheme : "", address);
    remote.url = url;
    if (side->trusts || side->shows)
        assert_int_equal(certificates_open(&config, &remote.certificates, err), STATUS_OK);
    enum status status = http_get(&remote, "/", TIMEOUT_US, body, err);
    certificates_close(remote.certificates);
    return status;
}

static enum status asked_of(struct peer *peer, const struct side *side, struct error *err)
{
    struct str body;
    str_init(&body, 64);
    peer_start(peer);
    enum status status = asked(peer->address, side, &body, err);
    peer_stop(peer);
    if (status == STATUS_OK)
        assert_string_equal(body.data, "ok");
    else
        assert_string_equal(body.data, "");
    str_deinit(&body);
    return status;
}

static void expect_refused(struct peer peer, const struct side *side, enum status status,
                           const char *told)
{
    struct error err = {""};
    enum status seen = asked_of(&peer, side, &err);
    if (seen != status || !strstr(err.text, told) || !strstr(err.text, "127.0.0.1:"))
        fail_msg("%d, not %d: \"%s\" doesn't say \"%s\"", seen, status, err.text, told);
}

static void test_a_server_that_is_trusted(void **state)
{
    const struct world *world = *state;
    const struct side sides[] = {
        {.trusts = &world->server},
        {.trusts = &world->server, .scheme = "https://", .key = "baton_1"},
        {.trusts = &world->server, .name = "baton"},
        {.trusts = &world->server, .shows = &world->client},
    };
    for (size_t i = 0; i < sizeof sides / sizeof *sides; i++)
        for (int version = TLS1_2_VERSION; version <= TLS1_3_VERSION; version++) {
            struct peer peer = {.shows = &world->server,
                                .asks = sides[i].shows ? &world->client : NULL,
                                .newest = version};
            struct error err;
            if (asked_of(&peer, &sides[i], &err) != STATUS_OK)
                fail_msg("%zu: %s", i, err.text);
            assert_non_null(strstr(peer.heard, "\r\nHost: 127.0.0.1:"));
            assert_int_equal(strstr(peer.heard, "\r\nAuthorization: Bearer baton_1\r\n") != NULL,
                             sides[i].key != NULL);
        }
}

static void test_servers_that_are_not(void **state)
{
    const struct world *world = *state;
    const struct side trusting = {.trusts = &world->server}, others = {.trusts = &world->stranger},
                      of_the_system = {.scheme = "https://"},
                      elsewhere = {.trusts = &world->server, .name = "elsewhere.example"};
    const struct peer server = {.shows = &world->server};
    expect_refused(server, &others, STATUS_INVALID, "not one to trust: unable to get local issuer");
    expect_refused(server, &others, STATUS_INVALID, "(--tls-ca names the CAs that are trusted)");
    expect_refused(server, &of_the_system, STATUS_INVALID, "not one to trust");
    expect_refused(server, &elsewhere, STATUS_INVALID,
                   "does not hold the name \"elsewhere.example\": call it by a name that it holds");
    write_leaf(&(struct leaf_plan){.by = &world->authority, .names = "DNS:baton"},
               world->server.cert, world->server.key);
    expect_refused(server, &trusting, STATUS_INVALID, "does not hold the name \"127.0.0.1\"");
    write_leaf(
        &(struct leaf_plan){
            .by = &world->authority, .names = "IP:127.0.0.1", .from_s = -2 * DAY_S, .until_s = -60},
        world->server.cert, world->server.key);
    expect_refused(server, &trusting, STATUS_INVALID, "has expired: renew it there");
    write_leaf(
        &(struct leaf_plan){
            .by = &world->authority, .names = "IP:127.0.0.1", .from_s = 3600, .until_s = DAY_S},
        world->server.cert, world->server.key);
    expect_refused(server, &trusting, STATUS_INVALID, "is not valid yet");
}

static void test_clients_that_are_not_trusted(void **state)
{
    const struct world *world = *state;
    const struct side naked = {.trusts = &world->server},
                      strange = {.trusts = &world->server, .shows = &world->stranger};
    for (int version = TLS1_2_VERSION; version <= TLS1_3_VERSION; version++) {
        const struct peer server = {
            .shows = &world->server, .asks = &world->client, .newest = version};
        expect_refused(server, &naked, STATUS_INVALID, "wants a client's certificate");
        expect_refused(server, &naked, STATUS_INVALID, "(give --tls-cert and --tls-key)");
        expect_refused(server, &strange, STATUS_INVALID,
                       "does not take the certificate of --tls-cert");
    }
}

static void test_versions(void **state)
{
    const struct world *world = *state;
    const struct side trusting = {.trusts = &world->server};
    for (int version = TLS1_VERSION; version <= TLS1_1_VERSION; version++)
        expect_refused((struct peer){.shows = &world->server, .newest = version}, &trusting,
                       STATUS_INVALID, "speaks no TLS of 1.2 or later");
}

static void test_tls_and_none(void **state)
{
    const struct world *world = *state;
    const struct side trusting = {.trusts = &world->server}, plain = {.scheme = NULL},
                      secured = {.trusts = &world->server, .scheme = "http://"};
    const struct peer tls = {.shows = &world->server}, none = {.shows = NULL},
                      silent = {.answers = ""},
                      record = {.answers = "\x15\x03\x03"}; /* an alert without its length */
    expect_refused(none, &trusting, STATUS_INVALID,
                   "answers, but not in TLS: call it with http://");
    expect_refused(silent, &trusting, STATUS_UNAVAILABLE, "in the middle of the TLS handshake");
    expect_refused(tls, &plain, STATUS_UNAVAILABLE,
                   "without an answer: if TLS is what it speaks, call it with https://");
    expect_refused(record, &plain, STATUS_INVALID, "answers in TLS");
    struct str body;
    struct error err;
    str_init(&body, 64);
    assert_int_equal(asked("127.0.0.1:1", &secured, &body, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "is called without TLS, but CAs or a certificate are given"));
    str_deinit(&body);
}

/* An answer without a length must end with a close_notify; a cut is an error. */
static void test_answers_that_end(void **state)
{
    const struct world *world = *state;
    const struct side trusting = {.trusts = &world->server};
    struct error err;
    struct peer uncounted = {.shows = &world->server, .answers = "HTTP/1.1 200 OK\r\n\r\nok"};
    struct peer counted = {.shows = &world->server, .cuts = true};
    assert_int_equal(asked_of(&uncounted, &trusting, &err), STATUS_OK);
    assert_int_equal(asked_of(&counted, &trusting, &err), STATUS_OK);
    uncounted.cuts = true;
    expect_refused(uncounted, &trusting, STATUS_UNAVAILABLE, "broke off in the middle");
    /* For a POST, the head of the answer is enough. */
    struct certificates *certificates;
    const struct certificates_config config = {.name = "tls", .paths = {.ca = world->server.ca}};
    assert_int_equal(certificates_open(&config, &certificates, &err), STATUS_OK);
    struct str body;
    str_init(&body, 64);
    peer_start(&uncounted);
    assert_int_equal(
        http_post(&(struct http_remote){.url = uncounted.address, .certificates = certificates},
                  "/v1/traces", "application/json", &body, TIMEOUT_US, &err),
        STATUS_OK);
    peer_stop(&uncounted);
    certificates_close(certificates);
    str_deinit(&body);
}

/* Returns "HTTP/1.1 200 OK" with `count` header fields of `size` bytes each. Free with free(). */
static char *large_head(size_t count, size_t size)
{
    struct str head;
    str_init(&head, 1u << 20);
    str_add(&head, "HTTP/1.1 200 OK\r\n");
    for (size_t i = 0; i < count; i++) {
        str_add(&head, "X: ");
        for (size_t at = 3; at < size - 2; at++)
            str_add(&head, "x");
        str_add(&head, "\r\n");
    }
    str_add(&head, "Content-Length: 2\r\n\r\nok");
    char *text = strdup(head.data);
    assert_non_null(text);
    str_deinit(&head);
    return text;
}

static void test_malformed_answers(void **state)
{
    (void)state;
    char *many_fields = large_head(170, 100), *fits = large_head(160, 100),
         *long_line = large_head(1, 200000);
    const struct {
        const char *answer;
        enum status get, post;
        const char *words; /* unless both are STATUS_OK */
    } rows[] = {
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\nok\r\n", STATUS_INVALID,
         STATUS_INVALID, "answers in broken chunks"},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok!\r\n0\r\n\r\n",
         STATUS_INVALID, STATUS_INVALID, "answers in broken chunks"},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n", STATUS_UNAVAILABLE,
         STATUS_OK, "broke off in the middle of its answer"},
        {"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok", STATUS_UNAVAILABLE, STATUS_OK,
         "broke off in the middle of its answer"},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nok", STATUS_INVALID, STATUS_INVALID,
         "answers in an encoding that can't be read"},
        {"HTTP/1.1 abc OK\r\nContent-Length: 2\r\n\r\nok", STATUS_INVALID, STATUS_INVALID,
         "does not speak HTTP"},
        {"HTTP/1.1 000 OK\r\nContent-Length: 2\r\n\r\nok", STATUS_INVALID, STATUS_INVALID,
         "does not speak HTTP"},
        {"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nok", STATUS_INVALID, STATUS_INVALID,
         "does not speak HTTP"},
        {"HTTP/1.1 500 \x1b[31mred\x07\r\n\r\n", STATUS_INVALID, STATUS_INVALID,
         "answered 500 ?[31mred?"},
        {many_fields, STATUS_LIMIT, STATUS_LIMIT, "answers with a head that is too large"},
        {long_line, STATUS_LIMIT, STATUS_LIMIT, "answers with a head that is too large"},
        {fits, STATUS_OK, STATUS_OK, ""},
        {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" ANSWER,
         STATUS_OK, STATUS_OK, ""},
        {"HTTP/1.1 100 Continue\r\n\r\n", STATUS_UNAVAILABLE, STATUS_UNAVAILABLE,
         "broke off in the middle of its answer"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int posts = 0; posts <= 1; posts++) {
            struct peer peer = {.answers = rows[i].answer};
            struct str body;
            struct error err = {""};
            enum status wanted = posts ? rows[i].post : rows[i].get, seen;
            str_init(&body, 64);
            if (posts) {
                peer_start(&peer);
                seen = http_post(&(struct http_remote){.url = peer.address}, "/", "text/plain",
                                 &body, TIMEOUT_US, &err);
                peer_stop(&peer);
            } else {
                seen = asked_of(&peer, &(struct side){.scheme = NULL}, &err);
            }
            if (seen != wanted || (seen != STATUS_OK && !strstr(err.text, rows[i].words)))
                fail_msg("%zu, %d: %d, not %d: \"%s\"", i, posts, seen, wanted, err.text);
            str_deinit(&body);
        }
    free(many_fields);
    free(fits);
    free(long_line);
}

/* A Transfer-Encoding that isn't chunked, or that an interim head holds, doesn't say where the
 * answer ends. */
static void test_encodings_without_an_end(void **state)
{
    const struct world *world = *state;
    const struct side trusting = {.trusts = &world->server};
    static const char *const answers[] = {
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\nok",
        "HTTP/1.1 103 Early Hints\r\nTransfer-Encoding: chunked\r\n\r\n"
        "HTTP/1.1 200 OK\r\n\r\nok",
    };
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++)
        expect_refused((struct peer){.shows = &world->server, .answers = answers[i], .cuts = true},
                       &trusting, STATUS_UNAVAILABLE, "broke off in the middle");
    struct peer chunked = {
        .shows = &world->server,
        .answers = "HTTP/1.1 200 OK\r\ntransfer-encoding:Chunked \r\n\r\n2\r\nok\r\n0\r\n\r\n",
        .cuts = true};
    struct error err = {""};
    if (asked_of(&chunked, &trusting, &err) != STATUS_OK)
        fail_msg("%s", err.text);
}

static void test_refusals_of_a_server(void **state)
{
    const struct world *world = *state;
    const struct side nobody = {.trusts = &world->server},
                      somebody = {.trusts = &world->server, .key = "k"};
    struct peer server = {.shows = &world->server,
                          .answers = "HTTP/1.1 401 Unauthorized\r\nContent-Length: 900\r\n\r\nno"};
    expect_refused(server, &nobody, STATUS_INVALID, "answered 401 Unauthorized: it asks for an");
    expect_refused(server, &somebody, STATUS_INVALID, "Unauthorized: it doesn't know this API key");
    server.answers = "HTTP/1.1 404 Not Found\r\n\r\n";
    expect_refused(server, &nobody, STATUS_NOT_FOUND, "answered 404 Not Found");
}

static void test_keys_that_no_header_can_hold(void **state)
{
    (void)state;
    struct str body;
    struct error err;
    str_init(&body, 64);
    static const char *const keys[] = {"a b", "a\r\nX: y", "\xc3\xa4", "\x7f"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const struct side side = {.key = keys[i]};
        assert_int_equal(asked("127.0.0.1:1", &side, &body, &err), STATUS_INVALID);
        assert_non_null(strstr(err.text, "the API key holds what no header can"));
    }
    char longest[2100];
    memset(longest, 'k', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    const struct side too_long = {.key = longest};
    assert_int_equal(asked("127.0.0.1:1", &too_long, &body, &err), STATUS_LIMIT);
    str_deinit(&body);
}

/* Neither the answer nor the environment leads elsewhere: to another server, a proxy, other CAs. */
static void test_only_the_server_that_is_named(void **state)
{
    const struct world *world = *state;
    struct peer redirects = {.answers =
                                 "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\n\r\n"};
    expect_refused(redirects, &(struct side){.scheme = NULL}, STATUS_INVALID, "answered 302 Found");
    setenv("http_proxy", "http://127.0.0.1:1", 1);
    setenv("SSL_CERT_FILE", world->server.ca, 1);
    struct peer plain = {.shows = NULL};
    struct error err = {""};
    if (asked_of(&plain, &(struct side){.scheme = "http://"}, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    const struct side others = {.trusts = &world->stranger}, system = {.scheme = "https://"};
    struct peer server = {.shows = &world->server};
    expect_refused(server, &others, STATUS_INVALID, "not one to trust");
    if (asked_of(&server, &system, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    unsetenv("SSL_CERT_FILE");
    unsetenv("http_proxy");
}

/* A handshake that never comes ends in time. */
static void test_a_silent_server(void **state)
{
    const struct world *world = *state;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, length) || listen(fd, 4), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &length), 0);
    char url[64];
    snprintf(url, sizeof url, "https://127.0.0.1:%d", ntohs(at.sin_port));
    struct http_remote remote = {.url = url};
    struct str body;
    struct error err;
    (void)world;
    str_init(&body, 64);
    assert_int_equal(http_get(&remote, "/", 30000, &body, &err), STATUS_TIMEOUT);
    assert_non_null(strstr(err.text, "did not answer in time"));
    str_deinit(&body);
    close(fd);
}

static void on_echo(void *context, struct http_exchange *exchange)
{
    (void)context;
    http_exchange_reply_text(exchange, 200, "fine\n");
}

/* Our own server, with a client's certificate, and a post that takes many records. */
static void test_our_own_server(void **state)
{
    const struct world *world = *state;
    static const struct http_route routes[] = {{"/v1/traces", HTTP_POST, on_echo}};
    const struct certificates_config of_server = {
        .name = "tls",
        .paths = {world->server.cert, world->server.key, world->client.ca},
        .required = true};
    const struct certificates_config of_client = {
        .name = "otlp-tls", .paths = {world->client.cert, world->client.key, world->server.ca}};
    struct http_server_config config = {
        .listen = "127.0.0.1:0", .routes = routes, .route_count = 1, .max_body_bytes = 4u << 20};
    struct http_server *server;
    struct http_remote remote = {.url = ""};
    struct error err;
    struct str body;
    str_init(&body, 4u << 20);
    while (body.length < (4u << 20) - 100)
        str_add(&body, "spans, and more spans, and more spans");
    assert_int_equal(certificates_open(&of_server, &config.certificates, &err), STATUS_OK);
    assert_int_equal(certificates_open(&of_client, &remote.certificates, &err), STATUS_OK);
    assert_int_equal(http_server_start(&config, &server, &err), STATUS_OK);
    remote.url = http_server_address(server);
    if (http_post(&remote, "/v1/traces", "application/json", &body, TIMEOUT_US, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    struct http_remote stranger = {.url = remote.url};
    assert_int_equal(
        http_post(&stranger, "/v1/traces", "application/json", &body, TIMEOUT_US, &err),
        STATUS_UNAVAILABLE);
    assert_non_null(strstr(err.text, "call it with https://"));
    http_server_stop(server);
    certificates_close(remote.certificates);
    certificates_close(config.certificates);
    str_deinit(&body);
}

int main(void)
{
    log_init("test", LOG_ERROR);
    signal(SIGPIPE, SIG_IGN); /* the servers' here: clients raise none */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_server_that_is_trusted, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_servers_that_are_not, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_clients_that_are_not_trusted, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_versions, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_tls_and_none, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_answers_that_end, set_up, tear_down),
        cmocka_unit_test(test_malformed_answers),
        cmocka_unit_test_setup_teardown(test_encodings_without_an_end, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_refusals_of_a_server, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_keys_that_no_header_can_hold, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_only_the_server_that_is_named, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_silent_server, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_our_own_server, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
