/* http_streams: hundreds of answers at once, piece by piece, on the caller's thread, with kept
 * connections, refusals, broken answers and a server that isn't there. */
#include "common/net/http/http_streams.h"
#include "tests/unit/http_fixture.h"

#include <dirent.h>

enum { MANY = 300 };

/* Answers that the test continues. */
static struct {
    pthread_mutex_t lock;
    struct http_exchange *kept[MANY];
    int count;
} desk = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void on_stream(void *context, struct http_exchange *exchange)
{
    struct http_reply head;
    (void)context;
    http_reply_init(&head, 0);
    head.status = 200;
    head.content_type = "text/event-stream";
    http_exchange_keep(exchange);
    assert_int_equal(http_exchange_start(exchange, &head), STATUS_OK);
    http_reply_deinit(&head);
    pthread_mutex_lock(&desk.lock); /* until all is done here: the client may be ahead */
    desk.kept[desk.count++] = exchange;
    const struct str *body = http_exchange_body(exchange);
    assert_int_equal(http_exchange_write(exchange, body->data, body->length), STATUS_OK);
    pthread_mutex_unlock(&desk.lock);
}

static void on_refuse(void *context, struct http_exchange *exchange)
{
    (void)context;
    http_exchange_reply_text(exchange, 429, http_exchange_header(exchange, "x-note"));
}

static const struct http_route routes[] = {{"/stream", HTTP_POST, on_stream},
                                           {"/refuse", HTTP_POST, on_refuse}};

/* The outcome of one exchange. */
struct seen {
    struct str text;
    int status, ends;
    enum status outcome;
    struct error err;
};

static int started, ended;

static void on_bytes(void *context, int status, const char *bytes, size_t count)
{
    struct seen *seen = context;
    started += !seen->text.length;
    seen->status = status;
    str_append(&seen->text, bytes, count);
}

static void on_ended(void *context, int status, enum status outcome, const struct error *err)
{
    struct seen *seen = context;
    seen->status = status;
    seen->outcome = outcome;
    seen->err = *err;
    seen->ends++;
    ended++;
}

static const struct http_stream_handlers handlers = {on_bytes, on_ended};

static int threads_now(void)
{
    DIR *folder = opendir("/proc/self/task");
    int count = 0;
    assert_non_null(folder);
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

static void run_until(struct http_streams *streams, const int *count, int wanted)
{
    while (*count < wanted) {
        struct pollfd ready = {.fd = http_streams_fd(streams), .events = POLLIN};
        assert_int_equal(poll(&ready, 1, WAIT_MS), 1);
        http_streams_run(streams);
    }
    assert_int_equal(*count, wanted);
}

static void post(struct http_streams *streams, const char *path, const struct str *body,
                 struct seen *seen)
{
    static const struct http_header note = {"X-Note", "later, please"};
    struct error err;
    const struct http_stream_post asked = {.path = path,
                                           .headers = &note,
                                           .header_count = 1,
                                           .body = body,
                                           .timeout_us = 20 * SECOND_US,
                                           .context = seen};
    str_init(&seen->text, 4096);
    seen->ends = 0;
    assert_int_equal(http_streams_post(streams, &asked, &err), STATUS_OK);
}

struct world {
    struct http_server *server;
    struct http_streams *streams;
    struct http_remote remote;
    struct str bodies[MANY];
    struct seen seen[MANY];
};

static int set_up(void **state)
{
    static struct world world;
    const struct http_server_config config = {
        .listen = "127.0.0.1:0", .routes = routes, .route_count = 2, .max_connections = 8 * MANY};
    struct error err;
    assert_int_equal(http_server_start(&config, &world.server, &err), STATUS_OK);
    world.remote = (struct http_remote){.url = http_server_address(world.server)};
    assert_int_equal(http_streams_open(&world.remote, &handlers, &world.streams, &err), STATUS_OK);
    for (int i = 0; i < MANY; i++) {
        str_init(&world.bodies[i], 64);
        str_addf(&world.bodies[i], "\"%d\"", i);
    }
    started = ended = desk.count = 0;
    *state = &world;
    return 0;
}

static int tear_down(void **state)
{
    struct world *world = *state;
    http_streams_close(world->streams);
    http_server_stop(world->server);
    for (int i = 0; i < MANY; i++)
        str_deinit(&world->bodies[i]);
    return 0;
}

static void finish_kept(const char *text)
{
    pthread_mutex_lock(&desk.lock);
    for (int i = 0; i < desk.count; i++) {
        if (text) {
            assert_int_equal(http_exchange_write(desk.kept[i], text, strlen(text)), STATUS_OK);
            assert_int_equal(http_exchange_end(desk.kept[i]), STATUS_OK);
        } else {
            http_exchange_abort(desk.kept[i]);
        }
        http_exchange_drop(desk.kept[i]);
    }
    desk.count = 0;
    pthread_mutex_unlock(&desk.lock);
}

static void test_many_at_once_on_one_thread(void **state)
{
    struct world *world = *state;
    struct http_figures figures;
    int threads = threads_now();
    for (int round = 0; round < 2; round++) { /* the second one uses the first one's connections */
        started = ended = 0;
        for (int i = 0; i < MANY; i++)
            post(world->streams, "/stream", &world->bodies[i], &world->seen[i]);
        run_until(world->streams, &started, MANY); /* all are open now */
        assert_int_equal(ended, 0);
        assert_int_equal(threads_now(), threads);
        http_server_figures(world->server, &figures);
        assert_int_equal(figures.connections, MANY);
        finish_kept(" end");
        run_until(world->streams, &ended, MANY);
        for (int i = 0; i < MANY; i++) {
            char wanted[32];
            snprintf(wanted, sizeof wanted, "\"%d\" end", i);
            assert_string_equal(world->seen[i].text.data, wanted);
            assert_int_equal(world->seen[i].status, 200);
            assert_int_equal(world->seen[i].outcome, STATUS_OK);
            assert_int_equal(world->seen[i].ends, 1);
            str_deinit(&world->seen[i].text);
        }
    }
}

static void test_a_refusal_comes_with_its_body(void **state)
{
    struct world *world = *state;
    struct seen *seen = &world->seen[0];
    post(world->streams, "/refuse", &world->bodies[0], seen);
    run_until(world->streams, &ended, 1);
    assert_int_equal(seen->status, 429);
    assert_int_equal(seen->outcome, STATUS_OK);
    assert_string_equal(seen->text.data, "later, please");
    str_deinit(&seen->text);
}

static void test_a_broken_answer_is_none(void **state)
{
    struct world *world = *state;
    struct seen *seen = &world->seen[0];
    post(world->streams, "/stream", &world->bodies[0], seen);
    run_until(world->streams, &started, 1);
    finish_kept(NULL);
    run_until(world->streams, &ended, 1);
    assert_int_equal(seen->status, 200);
    assert_int_equal(seen->outcome, STATUS_UNAVAILABLE);
    assert_non_null(strstr(seen->err.text, "broke off in the middle"));
    str_deinit(&seen->text);
}

static void test_nothing_listens(void **state)
{
    struct world *world = *state;
    const struct http_remote nowhere = {.url = "127.0.0.1:1"};
    struct http_streams *streams;
    struct seen *seen = &world->seen[0];
    struct error err;
    assert_int_equal(http_streams_open(&nowhere, &handlers, &streams, &err), STATUS_OK);
    post(streams, "/stream", &world->bodies[0], seen);
    run_until(streams, &ended, 1);
    assert_int_equal(seen->status, 0);
    assert_int_equal(seen->outcome, STATUS_UNAVAILABLE);
    assert_non_null(strstr(seen->err.text, "cannot connect to 127.0.0.1:1: Connection refused"));
    str_deinit(&seen->text);
    http_streams_close(streams);
    assert_int_equal(
        http_streams_open(&(struct http_remote){.url = "ftp://a"}, &handlers, &streams, &err),
        STATUS_INVALID);
}

static void test_open_ones_are_cut_off(void **state)
{
    struct world *world = *state;
    for (int i = 0; i < 3; i++)
        post(world->streams, "/stream", &world->bodies[i], &world->seen[i]);
    run_until(world->streams, &started, 3);
    struct error err;
    http_streams_close(world->streams);
    assert_int_equal(ended, 0);
    assert_int_equal(http_streams_open(&world->remote, &handlers, &world->streams, &err),
                     STATUS_OK);
    for (int i = 0; i < 3; i++)
        str_deinit(&world->seen[i].text);
    finish_kept(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_many_at_once_on_one_thread, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_refusal_comes_with_its_body, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_broken_answer_is_none, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_nothing_listens, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_open_ones_are_cut_off, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
