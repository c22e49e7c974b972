/* http_exchange: answers from other threads, in pieces, to clients that go, stall, or come
 * again. */
#include "common/base/failpoint.h"
#include "tests/unit/http_fixture.h"

#include <netinet/tcp.h>
#include <sched.h>

/* Kept by the handler for the test, which is another thread. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct http_exchange *kept[64];
    int kept_count;
    int over_count;
    enum http_outcome outcome; /* outcome of the last ended exchange */
    uint64_t over_us;
} desk = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void on_over(void *context, struct http_exchange *exchange, enum http_outcome outcome)
{
    (void)exchange;
    assert_ptr_equal(context, &desk);
    pthread_mutex_lock(&desk.lock);
    desk.over_count++;
    desk.outcome = outcome;
    desk.over_us = clock_now_us();
    pthread_cond_broadcast(&desk.changed);
    pthread_mutex_unlock(&desk.lock);
}

static void on_keep(void *context, struct http_exchange *exchange)
{
    (void)context;
    http_exchange_keep(exchange);
    assert_true(http_exchange_watch(exchange, on_over, &desk));
    pthread_mutex_lock(&desk.lock);
    desk.kept[desk.kept_count++] = exchange;
    pthread_cond_broadcast(&desk.changed);
    pthread_mutex_unlock(&desk.lock);
}

static void on_now(void *context, struct http_exchange *exchange)
{
    (void)context;
    http_exchange_reply_text(exchange, 200, "now\n");
}

static const struct http_route routes[] = {{"/keep", HTTP_GET | HTTP_POST, on_keep},
                                           {"/now", HTTP_GET, on_now}};

static struct http_exchange *wait_kept(int number)
{
    pthread_mutex_lock(&desk.lock);
    while (desk.kept_count < number)
        pthread_cond_wait(&desk.changed, &desk.lock);
    struct http_exchange *exchange = desk.kept[number - 1];
    pthread_mutex_unlock(&desk.lock);
    return exchange;
}

static enum http_outcome wait_over(int number)
{
    pthread_mutex_lock(&desk.lock);
    while (desk.over_count < number)
        pthread_cond_wait(&desk.changed, &desk.lock);
    enum http_outcome outcome = desk.outcome;
    pthread_mutex_unlock(&desk.lock);
    return outcome;
}

static struct http_server *server;
static const char *address;
static struct str heard; /* bytes that a test's client received */

static void start_server(struct http_server_config config)
{
    struct error err;
    config.listen = "127.0.0.1:0";
    config.routes = routes;
    config.route_count = sizeof routes / sizeof *routes;
    desk.kept_count = desk.over_count = 0;
    assert_int_equal(http_server_start(&config, &server, &err), STATUS_OK);
    address = http_server_address(server);
}

static void restart_server(struct http_server_config config)
{
    http_server_stop(server);
    start_server(config);
}

static int set_up(void **state)
{
    (void)state;
    str_init(&heard, 65536);
    start_server((struct http_server_config){0});
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    http_server_stop(server);
    str_deinit(&heard);
    return 0;
}

static void start_stream(struct http_exchange *exchange)
{
    struct http_reply head;
    http_reply_init(&head, 0);
    head.status = 200;
    head.content_type = "text/event-stream; charset=utf-8";
    (void)http_reply_add_header(&head, "X-Accel-Buffering", "no");
    assert_int_equal(http_exchange_start(exchange, &head), STATUS_OK);
    http_reply_deinit(&head);
}

static enum status write_text(struct http_exchange *exchange, const char *text)
{
    return http_exchange_write(exchange, text, strlen(text));
}

#define ASK     "GET /keep HTTP/1.1\r\nHost: a\r\n\r\n"
#define ASK_NOW "GET /now HTTP/1.1\r\nHost: a\r\n\r\n"

/* Opens a connection with a request that the test answers, the `number`th kept one. */
static struct http_exchange *ask(int *fd, int number)
{
    *fd = connected(address);
    say(*fd, ASK);
    return wait_kept(number);
}

static void wait_connections(uint64_t count)
{
    struct http_figures figures;
    uint64_t end_us = clock_now_us() + WAIT_MS * 1000u;
    for (http_server_figures(server, &figures); figures.connections != count;) {
        assert_true(clock_now_us() < end_us);
        poll(NULL, 0, 1);
        http_server_figures(server, &figures);
    }
}

/* The connection serves its next request, and is closed. */
static void expect_kept_alive(int fd)
{
    str_clear(&heard);
    say(fd, ASK_NOW);
    assert_true(hear(fd, &heard, "now\n"));
    close(fd);
}

static void test_an_answer_from_another_thread(void **state)
{
    (void)state;
    int fd = connected(address);
    say(fd, "POST /keep?q HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nX-Y: z\r\n\r\nbody");
    struct http_exchange *exchange = wait_kept(1);
    char peer[HTTP_PEER_BYTES];
    http_exchange_peer(exchange, peer);
    assert_int_equal(strncmp(peer, "127.0.0.1:", 10), 0);
    assert_int_equal(http_exchange_method(exchange), HTTP_POST);
    assert_string_equal(http_exchange_path(exchange), "/keep");
    assert_string_equal(http_exchange_query(exchange), "q");
    assert_string_equal(http_exchange_header(exchange, "x-y"), "z");
    assert_true(http_exchange_arrived_us(exchange) <= clock_now_us());
    struct str body;
    struct http_figures figures;
    http_server_figures(server, &figures);
    assert_int_equal(figures.body_bytes, 4);
    http_exchange_take_body(exchange, &body);
    assert_string_equal(body.data, "body");
    str_deinit(&body);
    http_server_figures(server, &figures);
    assert_int_equal(figures.body_bytes, 0);
    http_exchange_reply_text(exchange, 200, "from there\n");
    assert_true(hear(fd, &heard, "from there\n"));
    assert_int_equal(wait_over(1), HTTP_SENT);
    assert_false(http_exchange_watch(exchange, on_over, &desk));
    http_exchange_drop(exchange);
    expect_kept_alive(fd);
}

static void test_a_stream_comes_piece_by_piece(void **state)
{
    (void)state;
    int fd;
    struct http_exchange *exchange = ask(&fd, 1);
    start_stream(exchange);
    assert_true(hear(fd, &heard, "\r\n\r\n")); /* the head, before any piece */
    assert_non_null(strstr(heard.data, "Transfer-Encoding: chunked\r\n"));
    assert_non_null(strstr(heard.data, "X-Accel-Buffering: no\r\n"));
    for (int i = 0; i < 50; i++) {
        char piece[32], wanted[64];
        snprintf(piece, sizeof piece, "data: %d\n\n", i);
        snprintf(wanted, sizeof wanted, "%zx\r\n%s\r\n", strlen(piece), piece);
        assert_int_equal(write_text(exchange, piece), STATUS_OK);
        assert_int_equal(write_text(exchange, ""), STATUS_OK); /* is not the end */
        str_clear(&heard);
        assert_true(hear(fd, &heard, wanted));
        assert_string_equal(heard.data, wanted);
    }
    str_clear(&heard);
    assert_int_equal(http_exchange_end(exchange), STATUS_OK);
    assert_true(hear(fd, &heard, "0\r\n\r\n"));
    assert_int_equal(wait_over(1), HTTP_SENT);
    assert_int_equal(write_text(exchange, "late"), STATUS_CANCELLED);
    http_exchange_drop(exchange);
    expect_kept_alive(fd);
}

static void test_streams_to_head_and_to_old_clients(void **state)
{
    (void)state;
    int fd = connected(address);
    say(fd, "HEAD /keep HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    struct http_exchange *exchange = wait_kept(1);
    start_stream(exchange);
    assert_int_equal(write_text(exchange, "unseen"), STATUS_OK);
    assert_int_equal(http_exchange_end(exchange), STATUS_OK);
    http_exchange_drop(exchange);
    assert_false(hear(fd, &heard, NULL));
    assert_string_equal(strstr(heard.data, "\r\n\r\n"), "\r\n\r\n");
    close(fd);
    str_clear(&heard);
    fd = connected(address);
    say(fd, "GET /keep HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    exchange = wait_kept(2);
    start_stream(exchange);
    assert_int_equal(write_text(exchange, "to the end"), STATUS_OK);
    assert_int_equal(http_exchange_end(exchange), STATUS_OK);
    http_exchange_drop(exchange);
    assert_false(hear(fd, &heard, NULL));
    assert_string_equal(strstr(heard.data, "\r\n\r\n"), "\r\n\r\nto the end");
    assert_non_null(strstr(heard.data, "Connection: close\r\n"));
    close(fd);
}

#define SOON_US 500000u /* takes milliseconds on a quiet machine; the promise is 1 s */

/* In `how`: 0 closes, 1 its half, 2 resets. `streaming`: the answer has begun. */
static void leave(int fd, int how)
{
    struct linger reset = {1, 0};
    if (how == 1) {
        shutdown(fd, SHUT_WR);
        return;
    }
    if (how == 2)
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    close(fd);
}

static void test_a_client_that_goes_is_noticed(void **state)
{
    (void)state;
    int number = 0;
    for (int how = 0; how < 3; how++)
        for (int streaming = 0; streaming < 2; streaming++) {
            str_clear(&heard);
            int fd;
            struct http_exchange *exchange = ask(&fd, ++number);
            if (streaming) {
                start_stream(exchange);
                assert_true(hear(fd, &heard, "\r\n\r\n"));
            }
            uint64_t begin_us = clock_now_us();
            leave(fd, how);
            assert_int_equal(wait_over(number), HTTP_GONE);
            assert_true(desk.over_us - begin_us < SOON_US);
            if (streaming) {
                assert_int_equal(write_text(exchange, "x"), STATUS_CANCELLED);
                assert_int_equal(http_exchange_end(exchange), STATUS_CANCELLED);
            } else {
                struct http_reply reply;
                http_reply_init(&reply, 0);
                assert_int_equal(http_exchange_reply(exchange, &reply), STATUS_CANCELLED);
                http_reply_deinit(&reply);
            }
            http_exchange_drop(exchange);
            if (how == 1)
                close(fd);
        }
    struct http_figures figures;
    http_server_figures(server, &figures);
    assert_int_equal(figures.gone, 6);
}

/* Behind more further requests than are read: its end is found, too. */
static void test_a_client_that_goes_behind_unread_requests_is_noticed(void **state)
{
    (void)state;
    static char much[60000]; /* fits into the socket: unsent bytes would delay the end, too */
    int fd = connected(address);
    memset(much, 'x', sizeof much);
    say(fd, ASK);
    struct http_exchange *exchange = wait_kept(1);
    say_bytes(fd, much, sizeof much);
    uint64_t begin_us = clock_now_us();
    leave(fd, 0);
    assert_int_equal(wait_over(1), HTTP_GONE);
    assert_true(desk.over_us - begin_us < SECOND_US);
    http_exchange_drop(exchange);
}

/* A client that sends its request, and closes its half at once, still gets an immediate answer. */
static void test_a_half_closed_client_reads_what_is_ready(void **state)
{
    (void)state;
    int fd = connected(address);
    say(fd, ASK_NOW);
    shutdown(fd, SHUT_WR);
    assert_false(hear(fd, &heard, NULL));
    assert_non_null(strstr(heard.data, "now\n"));
    close(fd);
}

static void hear_more(int fd, struct str *all)
{
    char bytes[65536];
    struct pollfd readable = {.fd = fd, .events = POLLIN};
    if (poll(&readable, 1, 10) == 0)
        return; /* it has gone to the system, and not come out of it */
    ssize_t got = recv(fd, bytes, sizeof bytes, 0);
    assert_true(got > 0);
    str_append(all, bytes, (size_t)got);
}

/* Until nothing more is taken, also after the loop has had its turn. */
static size_t write_until_full(struct http_exchange *exchange, const char *piece, size_t count)
{
    size_t written = 0;
    for (int full = 0; full < 20;) {
        enum status status = http_exchange_write(exchange, piece, count);
        full = status == STATUS_OK ? 0 : full + 1;
        written += status == STATUS_OK ? count : 0;
        assert_true(status == STATUS_OK || status == STATUS_LIMIT);
        if (full)
            poll(NULL, 0, 2);
    }
    return written;
}

static void test_a_slow_reader_reaches_its_limit(void **state)
{
    (void)state;
    enum { LIMIT = 1000000, PIECE = 1000 };
    restart_server((struct http_server_config){.max_unsent_bytes = LIMIT});
    static char piece[PIECE];
    memset(piece, 'x', sizeof piece);
    int fd;
    struct http_exchange *exchange = ask(&fd, 1);
    start_stream(exchange);
    size_t written = write_until_full(exchange, piece, sizeof piece);
    size_t unsent = http_exchange_unsent(exchange);
    assert_true(unsent > LIMIT - 2 * PIECE && unsent <= LIMIT + 32);
    assert_false(http_exchange_has_room(exchange, PIECE));
    struct http_figures figures;
    http_server_figures(server, &figures);
    assert_true(figures.unsent_bytes <= LIMIT + 32);
    /* It reads again: there is room again, and none of the accepted bytes is lost. */
    struct str all;
    str_init(&all, 200u << 20);
    while (http_exchange_unsent(exchange) > LIMIT / 2)
        hear_more(fd, &all);
    assert_true(http_exchange_has_room(exchange, PIECE));
    assert_false(http_exchange_has_room(exchange, LIMIT + 1));
    assert_int_equal(http_exchange_write(exchange, "last", 4), STATUS_OK);
    assert_int_equal(http_exchange_end(exchange), STATUS_OK);
    while (all.length < 12 || memcmp(all.data + all.length - 11, "last\r\n0\r\n\r\n", 11))
        hear_more(fd, &all);
    size_t received = 0;
    for (char *at = all.data; (at = strstr(at, "\r\n3e8\r\nx")); at += 7)
        received += PIECE;
    assert_int_equal(received, written);
    assert_int_equal(wait_over(1), HTTP_SENT);
    http_exchange_drop(exchange);
    str_deinit(&all);
    close(fd);
}

static void test_unsent_answers_of_all_are_limited(void **state)
{
    (void)state;
    enum { READERS = 4, PIECE = 10000 };
    restart_server((struct http_server_config){.max_all_unsent_bytes = 1000000});
    static char piece[PIECE];
    memset(piece, 'x', sizeof piece);
    int fds[READERS];
    struct http_exchange *exchanges[READERS];
    for (int i = 0; i < READERS; i++) {
        exchanges[i] = ask(&fds[i], i + 1);
        start_stream(exchanges[i]);
        (void)write_until_full(exchanges[i], piece, sizeof piece);
    }
    struct http_figures figures;
    http_server_figures(server, &figures);
    assert_true(figures.unsent_bytes <= 1000000 + READERS * (HTTP_FAIR_UNSENT_BYTES + PIECE));
    for (int i = 0; i < READERS; i++) {
        http_exchange_abort(exchanges[i]);
        http_exchange_drop(exchanges[i]);
        close(fds[i]);
    }
    wait_over(READERS);
    http_server_figures(server, &figures);
    assert_int_equal(figures.unsent_bytes, 0);
}

static void test_a_reader_that_stalls_is_ended(void **state)
{
    (void)state;
    restart_server((struct http_server_config){.stall_us = 200000});
    static char piece[100000];
    int fd;
    struct http_exchange *exchange = ask(&fd, 1);
    start_stream(exchange);
    while (http_exchange_write(exchange, piece, sizeof piece) == STATUS_OK)
        ;
    assert_int_equal(wait_over(1), HTTP_STALLED);
    assert_int_equal(http_exchange_write(exchange, "x", 1), STATUS_CANCELLED);
    http_exchange_drop(exchange);
    close(fd);
}

/* Opens a connection with a small window and a request that the test answers. A small part of an
 * answer is on its way, the rest waits at the server. */
static struct http_exchange *ask_narrowly(int *fd, int number)
{
    static const int room = 4096, segment = 1460;
    struct sockaddr_in to = socket_address(address);
    *fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(setsockopt(*fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof room), 0);
    assert_int_equal(setsockopt(*fd, IPPROTO_TCP, TCP_MAXSEG, &segment, sizeof segment), 0);
    assert_int_equal(connect(*fd, (struct sockaddr *)&to, sizeof to), 0);
    say(*fd, ASK);
    return wait_kept(number);
}

static void read_bytes(int fd, size_t count)
{
    char bytes[256];
    for (size_t want; count > 0; count -= want) {
        want = count < sizeof bytes ? count : sizeof bytes;
        assert_int_equal(recv(fd, bytes, want, MSG_WAITALL), want);
    }
}

/* A client that reads 256 bytes a second isn't taken for one that reads nothing: the server sees
 * its progress within the router's 60 s. No test waits that long. */
static void test_a_slow_readers_progress_is_seen(void **state)
{
    (void)state;
    enum { SEEN_BYTES = 256 * 60, ROUNDS = 8 };
    static char piece[SEEN_BYTES * ROUNDS * 4];
    int fd;
    struct http_exchange *exchange = ask_narrowly(&fd, 1);
    start_stream(exchange);
    assert_int_equal(http_exchange_write(exchange, piece, sizeof piece), STATUS_OK);
    for (int round = 0; round < ROUNDS; round++) {
        size_t before = http_exchange_unsent(exchange);
        read_bytes(fd, SEEN_BYTES);
        uint64_t end_us = clock_now_us() + WAIT_MS * 1000u;
        while (http_exchange_unsent(exchange) == before) {
            assert_true(clock_now_us() < end_us);
            poll(NULL, 0, 1);
        }
    }
    http_exchange_abort(exchange);
    http_exchange_drop(exchange);
    assert_int_equal(wait_over(1), HTTP_ABORTED);
    close(fd);
}

/* An answer that was broken off must not look whole: the connection is reset, and the last chunk is
 * missing. */
static void test_an_answer_broken_off_does_not_look_whole(void **state)
{
    (void)state;
    for (int how = 0; how < 2; how++) {
        str_clear(&heard);
        int fd;
        struct http_exchange *exchange = ask(&fd, how + 1);
        start_stream(exchange);
        assert_int_equal(write_text(exchange, "begun"), STATUS_OK);
        assert_true(hear(fd, &heard, "begun\r\n"));
        if (how)
            http_exchange_abort(exchange);
        http_exchange_drop(exchange); /* the last reference that could have ended it */
        assert_false(hear(fd, &heard, NULL));
        assert_null(strstr(heard.data, "\r\n0\r\n"));
        assert_int_equal(wait_over(how + 1), HTTP_ABORTED);
        close(fd);
    }
}

static void test_a_request_that_nobody_answers_is_a_500(void **state)
{
    (void)state;
    int fd;
    http_exchange_drop(ask(&fd, 1));
    assert_false(hear(fd, &heard, NULL));
    assert_non_null(strstr(heard.data, "HTTP/1.1 500 "));
    assert_int_equal(wait_over(1), HTTP_ABORTED);
    close(fd);
}

/* Further requests wait until the one under way is answered, and are answered in order. */
static void test_requests_behind_one_under_way_wait(void **state)
{
    (void)state;
    int fd = connected(address);
    say(fd, ASK ASK_NOW ASK);
    struct http_exchange *first = wait_kept(1);
    http_exchange_reply_text(first, 200, "first\n");
    struct http_exchange *second = wait_kept(2);
    http_exchange_reply_text(second, 200, "second\n");
    assert_true(hear(fd, &heard, "second\n"));
    const char *at = strstr(heard.data, "first\n");
    assert_non_null(at);
    at = strstr(at, "now\n");
    assert_non_null(at);
    assert_non_null(strstr(at, "second\n"));
    http_exchange_drop(first);
    http_exchange_drop(second);
    close(fd);
}

/* Many threads and streams at once: every stream is whole, and in order. */
enum { WRITERS = 8, STREAM_PIECES = 400 };

static void *write_stream(void *context)
{
    struct http_exchange *exchange = context;
    start_stream(exchange);
    for (int i = 0; i < STREAM_PIECES; i++) {
        char piece[32];
        snprintf(piece, sizeof piece, "data: %d\n\n", i);
        while (write_text(exchange, piece) == STATUS_LIMIT)
            sched_yield();
    }
    http_exchange_end(exchange);
    http_exchange_drop(exchange);
    return NULL;
}

static void test_many_threads_write_at_once(void **state)
{
    (void)state;
    restart_server((struct http_server_config){.threads = 3});
    pthread_t threads[WRITERS];
    int fds[WRITERS];
    for (int i = 0; i < WRITERS; i++) {
        pthread_create(&threads[i], NULL, write_stream, ask(&fds[i], i + 1));
    }
    for (int i = 0; i < WRITERS; i++) {
        struct str all;
        str_init(&all, 1u << 20);
        assert_true(hear(fds[i], &all, "\r\n0\r\n\r\n"));
        const char *at = all.data;
        for (int piece = 0; piece < STREAM_PIECES; piece++) {
            char wanted[32];
            snprintf(wanted, sizeof wanted, "data: %d\n\n", piece);
            at = strstr(at, "data: ");
            assert_non_null(at);
            assert_memory_equal(at, wanted, strlen(wanted));
            at += strlen(wanted);
        }
        pthread_join(threads[i], NULL);
        str_deinit(&all);
        close(fds[i]);
    }
}

/* --- the end of the server --- */

struct drained {
    uint64_t grace_us;
    bool whole;
};

static void *drain(void *context)
{
    struct drained *drained = context;
    drained->whole = http_server_drain(server, drained->grace_us);
    return NULL;
}

static void test_draining_ends_the_idle_and_finishes_what_is_under_way(void **state)
{
    (void)state;
    int idle = connected(address), busy = connected(address);
    say(idle, ASK_NOW);
    assert_true(hear(idle, &heard, "now\n"));
    str_clear(&heard);
    say(busy, ASK);
    struct http_exchange *exchange = wait_kept(1);
    struct drained drained = {.grace_us = 20 * SECOND_US};
    pthread_t thread;
    pthread_create(&thread, NULL, drain, &drained);
    assert_false(hear(idle, &heard, NULL));
    assert_int_equal(heard.length, 0);
    close(idle);
    int late = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in to = socket_address(address);
    assert_int_equal(connect(late, (struct sockaddr *)&to, sizeof to), -1);
    close(late);
    http_exchange_reply_text(exchange, 200, "still answered\n");
    http_exchange_drop(exchange);
    assert_false(hear(busy, &heard, NULL));
    assert_non_null(strstr(heard.data, "still answered\n"));
    assert_non_null(strstr(heard.data, "Connection: close\r\n"));
    close(busy);
    pthread_join(thread, NULL);
    assert_true(drained.whole);
}

static void test_draining_has_an_end(void **state)
{
    (void)state;
    int busy;
    struct http_exchange *exchange = ask(&busy, 1);
    struct drained drained = {.grace_us = 100000};
    drain(&drained);
    assert_false(drained.whole);
    /* And the handle outlives the server. */
    start_stream(exchange);
    http_server_stop(server);
    assert_int_equal(wait_over(1), HTTP_STOPPED);
    assert_int_equal(write_text(exchange, "x"), STATUS_CANCELLED);
    http_exchange_drop(exchange);
    close(busy);
    start_server((struct http_server_config){0});
}

/* --- faults --- */

static void arm(const char *spec)
{
    struct error err;
    setenv("BATON_FAILPOINTS_ALLOW", "1", 1);
    setenv("BATON_FAILPOINTS", spec, 1);
    assert_int_equal(failpoint_init("http", &err), STATUS_OK);
    unsetenv("BATON_FAILPOINTS");
}

static int disarm(void **state)
{
    int done = tear_down(state);
    arm("");
    return done;
}

static void test_faults_end_one_connection_and_no_other(void **state)
{
    (void)state;
    static const char *const faults[] = {"http.accept=fail", "http.receive=fail", "http.send=fail"};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        str_clear(&heard);
        http_server_stop(server); /* an armed failpoint belongs to one thread at a time */
        arm(faults[i]);
        start_server((struct http_server_config){0});
        int fd = connected(address);
        (void)!send(fd, ASK_NOW, strlen(ASK_NOW), MSG_NOSIGNAL);
        assert_false(hear(fd, &heard, NULL));
        assert_int_equal(heard.length, 0);
        close(fd);
        fd = connected(address);
        say(fd, ASK_NOW);
        assert_true(hear(fd, &heard, "now\n"));
        close(fd);
    }
}

/* A client that another thread has answered is idle from then on, and not only after the loop has
 * cleaned up. A second later it makes room for the first newcomer. */
static void test_who_was_answered_directly_makes_room_in_time(void **state)
{
    (void)state;
    restart_server((struct http_server_config){.max_connections = 1, .turns_away = true});
    for (int round = 1; round <= 3; round++) {
        int fd;
        struct http_exchange *exchange = ask(&fd, round);
        poll(NULL, 0,
             20); /* the loop is done with it, and waits: it won't tidy up before its next tick */
        http_exchange_reply_text(exchange, 200, "kept\n");
        str_clear(&heard);
        assert_true(hear(fd, &heard, "kept\n"));
        uint64_t idle_us = clock_now_us(); /* at the latest */
        http_exchange_drop(exchange);
        while (clock_now_us() - idle_us < SECOND_US)
            poll(NULL, 0, 1);
        int next = connected(address);
        str_clear(&heard);
        say(next, ASK_NOW);
        assert_true(hear(next, &heard, "now\n")); /* and not that all are taken */
        str_clear(&heard);
        assert_false(hear(fd, &heard, NULL));
        assert_int_equal(heard.length, 0);
        close(fd);
        close(next);
        wait_connections(0);
    }
    struct http_figures figures;
    http_server_figures(server, &figures);
    assert_int_equal(figures.made_room, 3);
    assert_int_equal(figures.turned_away, 0);
}

int main(void)
{
#define CASE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(test_an_answer_from_another_thread),
        CASE(test_a_stream_comes_piece_by_piece),
        CASE(test_streams_to_head_and_to_old_clients),
        CASE(test_a_client_that_goes_is_noticed),
        CASE(test_a_client_that_goes_behind_unread_requests_is_noticed),
        CASE(test_a_half_closed_client_reads_what_is_ready),
        CASE(test_a_slow_reader_reaches_its_limit),
        CASE(test_unsent_answers_of_all_are_limited),
        CASE(test_a_reader_that_stalls_is_ended),
        CASE(test_a_slow_readers_progress_is_seen),
        CASE(test_an_answer_broken_off_does_not_look_whole),
        CASE(test_a_request_that_nobody_answers_is_a_500),
        CASE(test_requests_behind_one_under_way_wait),
        CASE(test_many_threads_write_at_once),
        CASE(test_who_was_answered_directly_makes_room_in_time),
        CASE(test_draining_ends_the_idle_and_finishes_what_is_under_way),
        CASE(test_draining_has_an_end),
        cmocka_unit_test_setup_teardown(test_faults_end_one_connection_and_no_other, set_up,
                                        disarm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
