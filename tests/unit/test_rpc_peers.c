/* rpc: servers and channels that end with live calls, and peers that are not there, killed or
 * frozen. */
#include "tests/unit/rpc_service.h"

#include "common/base/clock.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

static void start_held_calls(struct fixture *f, struct rpc_call *calls[], size_t count)
{
    for (size_t i = 0; i < count; i++) {
        calls[i] = probe_start(&f->client, f->channel, "/test.Test/Hold", 0);
        assert_int_equal(rpc_call_send(calls[i], "x", 1), STATUS_OK);
    }
    probe_wait(&server_probe, &server_probe.messages, count);
}

static void test_stopping_a_server_ends_live_calls(void **state)
{
    struct fixture *f = *state;
    enum { COUNT = 5 };
    struct rpc_call *calls[COUNT];
    start_held_calls(f, calls, COUNT);
    stop_server(f, 0);
    assert_int_equal(server_probe.closed, COUNT); /* before stop returned */
    probe_wait(&f->client, &f->client.closed, COUNT);
    assert_int_equal(f->client.end.code, RPC_UNAVAILABLE);
    for (int i = 0; i < COUNT; i++)
        rpc_call_unref(calls[i]);
    assert_int_equal(f->client.closed, COUNT);
}

static void *stop_with_grace(void *argument)
{
    stop_server(argument, 20000000);
    return NULL;
}

static void test_stopping_a_server_waits_for_calls(void **state)
{
    struct fixture *f = *state;
    struct rpc_call *call;
    start_held_calls(f, &call, 1);
    struct probe watch;
    probe_init(&watch);
    struct rpc_call *watching = probe_start(&watch, f->channel, "/grpc.health.v1.Health/Watch", 0);
    assert_int_equal(rpc_call_send(watching, "", 0), STATUS_OK);
    probe_wait(&watch, &watch.messages, 1);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, stop_with_grace, f), 0);
    probe_wait(&watch, &watch.closed, 1); /* watches end at once */
    assert_int_equal(watch.end.code, RPC_UNAVAILABLE);
    assert_string_equal(watch.reason, "shutting_down");
    assert_int_equal(server_probe.closed, 0);
    assert_int_equal(rpc_call_send(server_probe.call, "late", 4), STATUS_OK);
    rpc_call_finish(server_probe.call, RPC_OK, NULL, NULL);
    probe_wait(&f->client, &f->client.closed, 1);
    assert_int_equal(f->client.end.code, RPC_OK);
    assert_string_equal(f->client.last, "late");
    pthread_join(thread, NULL);
    rpc_call_unref(watching);
    rpc_call_unref(call);
    probe_deinit(&watch);
}

static void test_destroying_a_channel_ends_its_calls(void **state)
{
    struct fixture *f = *state;
    enum { COUNT = 5 };
    struct rpc_call *calls[COUNT];
    start_held_calls(f, calls, COUNT);
    rpc_channel_destroy(f->channel);
    f->channel = NULL;
    assert_int_equal(f->client.closed, COUNT);
    assert_int_equal(f->client.end.code, RPC_CANCELLED);
    probe_wait(&server_probe, &server_probe.closed, COUNT);
    for (int i = 0; i < COUNT; i++)
        rpc_call_unref(calls[i]);
}

static void test_nobody_listens(void **state)
{
    struct fixture *f = *state;
    char address[64];
    snprintf(address, sizeof address, "%s", rpc_server_address(f->server));
    stop_server(f, 0);
    struct rpc_channel *channel = open_channel(f, address, 0);
    probe_unary(&f->client, channel, "/test.Test/Echo", "x", 1);
    assert_int_equal(f->client.end.code, RPC_UNAVAILABLE);
    assert_true(f->client.end.refused);

    /* wait_for_ready waits until a server listens. */
    struct rpc_call *call;
    assert_int_equal(rpc_call_start(channel, "/test.Test/Echo", &probe_handlers, &f->client,
                                    20000000, true, &call),
                     STATUS_OK);
    assert_int_equal(rpc_call_send(call, "back", 4), STATUS_OK);
    rpc_call_half_close(call);
    f->server = start_server(f->server_runtime, address);
    probe_wait(&f->client, &f->client.closed, 2);
    assert_int_equal(f->client.end.code, RPC_OK);
    assert_string_equal(f->client.last, "back");
    rpc_call_unref(call);
    rpc_channel_destroy(channel);
}

/* A status that the peer sends isn't an answer of the machine. */
static void test_a_peer_that_speaks_of_a_refusal(void **state)
{
    struct fixture *f = *state;
    for (size_t size = 0; size < 2; size++) {
        f->client.closed = 0;
        probe_unary(&f->client, f->channel, "/test.Test/Proxy", "x", size);
        assert_int_equal(f->client.end.code, RPC_UNAVAILABLE);
        assert_non_null(strstr(f->client.sentence, "Connection refused"));
        assert_false(f->client.end.refused);
    }
}

static void test_a_second_server_on_the_port_fails(void **state)
{
    struct fixture *f = *state;
    struct rpc_server *second;
    struct error err;
    struct rpc_server_config config = {.listen = rpc_server_address(f->server)};
    assert_int_equal(rpc_server_start(f->server_runtime, &config, &second, &err), STATUS_IO);
    assert_non_null(strstr(err.text, "Address already in use: give another port, or 0 for any"));
    assert_non_null(strstr(err.text, rpc_server_address(f->server)));
    static const char *const bad[] = {"127.0.0.1", "127.0.0.1:x", "127.0.0.1:65536", "::1:0"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        config.listen = bad[i];
        assert_int_equal(rpc_server_start(f->server_runtime, &config, &second, &err),
                         STATUS_INVALID);
    }
    config.listen = "192.0.2.1:0"; /* reserved for documentation (RFC 5737) */
    assert_int_equal(rpc_server_start(f->server_runtime, &config, &second, &err), STATUS_IO);
    assert_non_null(strstr(err.text, "Cannot assign requested address"));
}

static const char *own_path;

/* Runs this program again, as a server that prints its address and lives until it is killed. */
static int serve(void)
{
    struct rpc_runtime *runtime;
    struct error err;
    probe_init(&server_probe);
    if (rpc_runtime_create(1, &runtime, &err) != STATUS_OK)
        return 1;
    struct rpc_server *server = start_server(runtime, "127.0.0.1:0");
    dprintf(STDOUT_FILENO, "%s\n", rpc_server_address(server));
    for (;;)
        pause();
}

/* This program again, as a client that holds one call open. */
static int hold(const char *address)
{
    struct fixture f = {0};
    struct error err;
    probe_init(&f.client);
    if (rpc_runtime_create(1, &f.client_runtime, &err) != STATUS_OK)
        return 1;
    struct rpc_call *call =
        probe_start(&f.client, open_channel(&f, address, 0), "/test.Test/Hold", 0);
    if (rpc_call_send(call, "x", 1) != STATUS_OK)
        return 1;
    for (;;)
        pause();
}

static pid_t spawn_self(const char *mode, const char *address, int output)
{
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    char *const arguments[] = {(char *)own_path, (char *)mode, (char *)address, NULL};
    pid_t pid;
    assert_int_equal(posix_spawn(&pid, own_path, &actions, NULL, arguments, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    return pid;
}

static pid_t spawn_server(char *address, size_t size)
{
    int pipe_fds[2];
    assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
    pid_t pid = spawn_self("serve", NULL, pipe_fds[1]);
    close(pipe_fds[1]);
    FILE *output = fdopen(pipe_fds[0], "r");
    assert_non_null(fgets(address, (int)size, output));
    address[strcspn(address, "\n")] = 0;
    fclose(output);
    return pid;
}

static void end_process(pid_t pid)
{
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void test_a_killed_peer_is_seen_at_once(void **state)
{
    struct fixture *f = *state;
    char address[64];
    pid_t pid = spawn_server(address, sizeof address);
    struct rpc_channel *channel = open_channel(f, address, 0);
    uint32_t one = 1;
    probe_unary(&f->client, channel, "/test.Test/Count", &one, sizeof one); /* connected */
    struct rpc_call *call = probe_start(&f->client, channel, "/test.Test/Hold", 0);
    assert_int_equal(rpc_call_send(call, "x", 1), STATUS_OK);
    uint64_t killed_us = clock_now_us();
    end_process(pid);
    probe_wait(&f->client, &f->client.closed, 2);
    assert_int_equal(f->client.end.code, RPC_UNAVAILABLE);
    assert_true(clock_now_us() - killed_us < 2000000);
    assert_false(f->client.end.refused); /* it was there when the call began */
    rpc_call_unref(call);
    rpc_channel_destroy(channel);
}

static void test_a_frozen_peer_is_found_by_keepalive(void **state)
{
    struct fixture *f = *state;
    char address[64];
    pid_t pid = spawn_server(address, sizeof address);
    struct rpc_channel *channel = open_channel(f, address, 100000);
    struct rpc_call *call = start_counting(channel, &f->client, "/test.Test/Chat");
    uint32_t zero = 0;
    assert_int_equal(rpc_call_send(call, &zero, sizeof zero), STATUS_OK);
    probe_wait(&f->client, &f->client.messages, 1);
    assert_int_equal(kill(pid, SIGSTOP), 0);
    probe_wait(&f->client, &f->client.closed, 1);
    assert_int_equal(f->client.end.code, RPC_UNAVAILABLE);
    assert_false(f->client.end.refused);
    end_process(pid);
    rpc_call_unref(call);
    rpc_channel_destroy(channel);
}

static void test_a_killed_client_is_seen_at_once(void **state)
{
    struct fixture *f = *state;
    pid_t pid = spawn_self("hold", rpc_server_address(f->server), STDERR_FILENO);
    probe_wait(&server_probe, &server_probe.messages, 1);
    uint64_t killed_us = clock_now_us();
    end_process(pid);
    probe_wait(&server_probe, &server_probe.closed, 1);
    assert_int_equal(server_probe.end.code, RPC_CANCELLED);
    assert_true(clock_now_us() - killed_us < 2000000);
}

#define WITH_FIXTURE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(int argc, char **argv)
{
    own_path = argv[0];
    if (argc > 1 && !strcmp(argv[1], "serve"))
        return serve();
    if (argc > 2 && !strcmp(argv[1], "hold"))
        return hold(argv[2]);
    const struct CMUnitTest tests[] = {
        WITH_FIXTURE(test_stopping_a_server_ends_live_calls),
        WITH_FIXTURE(test_stopping_a_server_waits_for_calls),
        WITH_FIXTURE(test_destroying_a_channel_ends_its_calls),
        WITH_FIXTURE(test_nobody_listens),
        WITH_FIXTURE(test_a_peer_that_speaks_of_a_refusal),
        WITH_FIXTURE(test_a_second_server_on_the_port_fails),
        WITH_FIXTURE(test_a_killed_peer_is_seen_at_once),
        WITH_FIXTURE(test_a_killed_client_is_seen_at_once),
        WITH_FIXTURE(test_a_frozen_peer_is_found_by_keepalive),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
