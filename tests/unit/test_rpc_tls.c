/* rpc over TLS: which peers each side admits and refuses, and certificates that change during
 * calls. */
#include "certificate_fixture.h"
#include "tests/unit/rpc_service.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/net/crypto/certificates.h"
#include "common/net/crypto/tls_server.h"

#include <arpa/inet.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#define LOOK_US 5000u

static bool gated; /* the servers have a frame gate, which ends the TLS */

struct world {
    struct authority authority, other;
    struct folder server_folder, client_folder;
    struct certificates *server_certificates, *client_certificates;
    struct rpc_runtime *server_runtime, *client_runtime;
    struct rpc_server *server;
    struct rpc_channel *channel;
    struct probe client;
    atomic_uint floods; /* ends as FRAME_GATE_TLS_MESSAGES */
};

static void on_ended(void *context, enum frame_gate_end end)
{
    atomic_fetch_add(&((struct world *)context)->floods, end == FRAME_GATE_TLS_MESSAGES);
}

static struct certificates *open_files(const struct folder *folder, bool with_own, bool with_ca)
{
    const struct certificates_config config = {.name = "tls",
                                               .paths = {with_own ? folder->cert : "",
                                                         with_own ? folder->key : "",
                                                         with_ca ? folder->ca : ""},
                                               .watch_interval_us = LOOK_US};
    struct certificates *certificates;
    struct error err;
    if (certificates_open(&config, &certificates, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return certificates;
}

static int set_up_world(void **state)
{
    struct world *world = calloc(1, sizeof *world);
    assert_non_null(world);
    struct error err;
    world->authority = authority_create("ours");
    world->other = authority_create("another's");
    folder_create(&world->server_folder);
    folder_create(&world->client_folder);
    const struct leaf_plan server = {.by = &world->authority,
                                     .names = "DNS:server.baton,DNS:baton,IP:127.0.0.1"};
    const struct leaf_plan client = {.by = &world->authority, .names = "DNS:baton"};
    folder_fill(&world->server_folder, &server);
    folder_fill(&world->client_folder, &client);
    assert_int_equal(rpc_runtime_create(2, &world->server_runtime, &err), STATUS_OK);
    assert_int_equal(rpc_runtime_create(2, &world->client_runtime, &err), STATUS_OK);
    probe_init(&server_probe);
    probe_init(&world->client);
    *state = world;
    return 0;
}

static int set_up_gated_world(void **state)
{
    gated = true;
    return set_up_world(state);
}

static int tear_down_world(void **state)
{
    struct world *world = *state;
    if (world->channel)
        rpc_channel_destroy(world->channel);
    rpc_server_stop(world->server, 0);
    assert_int_equal(server_probe.opened, server_probe.closed);
    rpc_runtime_destroy(world->client_runtime);
    rpc_runtime_destroy(world->server_runtime);
    certificates_close(world->client_certificates);
    certificates_close(world->server_certificates);
    probe_deinit(&world->client);
    probe_deinit(&server_probe);
    folder_remove(&world->server_folder);
    folder_remove(&world->client_folder);
    authority_destroy(&world->authority);
    authority_destroy(&world->other);
    free(world);
    gated = false;
    return 0;
}

static void serve(struct world *world, bool of_clients, const char *peer_name)
{
    methods[CHAT].client_streams = true;
    world->server_certificates = open_files(&world->server_folder, true, of_clients);
    const struct rpc_server_config config = {
        .listen = "127.0.0.1:0",
        .tls = {world->server_certificates, peer_name},
        .gate = {.on = gated, .ended = gated ? on_ended : NULL, .context = world},
        .max_message_bytes = MESSAGE_LIMIT,
        .max_queued_bytes = QUEUE_LIMIT,
        .max_calls = 64,
        .methods = methods,
        .method_count = METHOD_COUNT};
    struct error err;
    if (rpc_server_start(world->server_runtime, &config, &world->server, &err) != STATUS_OK)
        fail_msg("%s", err.text);
}

/* `certificates` NULL: in the clear. */
static void dial(struct world *world, struct certificates *certificates, const char *peer_name)
{
    const struct rpc_channel_config config = {.target = rpc_server_address(world->server),
                                              .tls = {certificates, peer_name},
                                              .max_message_bytes = MESSAGE_LIMIT,
                                              .max_queued_bytes = QUEUE_LIMIT};
    struct error err;
    if (world->channel)
        rpc_channel_destroy(world->channel);
    world->client_certificates = certificates;
    assert_int_equal(rpc_channel_create(world->client_runtime, &config, &world->channel, &err),
                     STATUS_OK);
}

static void echo(struct world *world, enum rpc_code code)
{
    probe_deinit(&world->client);
    probe_init(&world->client);
    probe_unary(&world->client, world->channel, "/test.Test/Echo", "hello", 5);
    if (world->client.end.code != code)
        fail_msg("%s (%s)", rpc_code_name(world->client.end.code), world->client.sentence);
    if (code == RPC_OK)
        assert_string_equal(world->client.last, "hello");
}

/* The server's last call, with a reference. */
static struct rpc_call *server_call(void)
{
    pthread_mutex_lock(&server_probe.lock);
    struct rpc_call *call = server_probe.call;
    rpc_call_ref(call);
    pthread_mutex_unlock(&server_probe.lock);
    return call;
}

static void test_a_server_with_a_certificate(void **state)
{
    struct world *world = *state;
    serve(world, false, NULL);
    dial(world, open_files(&world->client_folder, false, true),
         NULL); /* by the dialled 127.0.0.1 */
    echo(world, RPC_OK);
    struct rpc_call *call = server_call();
    assert_true(!strncmp(rpc_call_peer(call), "127.0.0.1:", 10));
    rpc_call_unref(call);
}

static void test_names_of_servers(void **state)
{
    struct world *world = *state;
    serve(world, false, NULL);
    struct certificates *certificates = open_files(&world->client_folder, false, true);
    dial(world, certificates, "server.baton");
    echo(world, RPC_OK);
    dial(world, certificates, "another.baton");
    echo(world, RPC_UNAVAILABLE);
}

static void test_another_ca_and_no_tls_at_all(void **state)
{
    struct world *world = *state;
    serve(world, false, NULL);
    dial(world, NULL, NULL);
    echo(world, RPC_UNAVAILABLE);
    write_pem(world->client_folder.ca, world->other.cert, NULL);
    dial(world, open_files(&world->client_folder, false, true), NULL);
    echo(world, RPC_UNAVAILABLE);
    assert_int_equal(server_probe.opened, 0);
}

static void test_clients_show_certificates(void **state)
{
    struct world *world = *state;
    serve(world, true, NULL);
    dial(world, open_files(&world->client_folder, true, true), NULL);
    echo(world, RPC_OK);
}

static void test_a_client_without_a_certificate(void **state)
{
    struct world *world = *state;
    serve(world, true, NULL);
    dial(world, open_files(&world->client_folder, false, true), NULL);
    echo(world, RPC_UNAVAILABLE);
    assert_int_equal(server_probe.opened, 0);
}

static void test_a_client_with_anothers_certificate(void **state)
{
    struct world *world = *state;
    serve(world, true, NULL);
    write_leaf(&(struct leaf_plan){.by = &world->other, .names = "DNS:baton"},
               world->client_folder.cert, world->client_folder.key);
    dial(world, open_files(&world->client_folder, true, true), NULL);
    echo(world, RPC_UNAVAILABLE);
    assert_int_equal(server_probe.opened, 0);
}

static void test_names_of_clients(void **state)
{
    struct world *world = *state;
    serve(world, true, "BATON"); /* names of DNS have no case */
    dial(world, open_files(&world->client_folder, true, true), "baton");
    echo(world, RPC_OK);
}

static void test_a_client_of_another_name(void **state)
{
    struct world *world = *state;
    serve(world, true, "baton");
    write_leaf(&(struct leaf_plan){.by = &world->authority, .names = "DNS:baton.example"},
               world->client_folder.cert, world->client_folder.key);
    dial(world, open_files(&world->client_folder, true, true), NULL);
    echo(world, RPC_UNAUTHENTICATED);
    assert_string_equal(world->client.reason, "wrong_peer");
    assert_int_equal(server_probe.opened, 0);
}

/* Both sides change their CA and certificate while a stream runs: it goes on, and new connections
 * use the new ones. */
static void test_certificates_change_under_calls(void **state)
{
    struct world *world = *state;
    serve(world, true, NULL);
    dial(world, open_files(&world->client_folder, true, true), "baton");
    struct probe held;
    probe_init(&held);
    struct rpc_call *running = probe_start(&held, world->channel, "/test.Test/Hold", 0);
    assert_int_equal(rpc_call_send(running, "x", 1), STATUS_OK);
    probe_wait(&server_probe, &server_probe.messages, 1);
    struct rpc_call *serving = server_call();

    const struct leaf_plan plan = {.by = &world->other, .names = "DNS:baton"};
    folder_fill(&world->server_folder, &plan);
    folder_wait(&world->server_folder, world->server_certificates);
    folder_fill(&world->client_folder, &plan);
    folder_wait(&world->client_folder, world->client_certificates);
    echo(world, RPC_OK); /* a new connection */
    assert_int_equal(rpc_call_send(serving, "late", 4), STATUS_OK);
    rpc_call_finish(serving, RPC_OK, NULL, NULL);
    probe_wait(&held, &held.closed, 1);
    assert_int_equal(held.end.code, RPC_OK);
    assert_int_equal(held.messages, 1);
    rpc_call_unref(serving);
    rpc_call_unref(running);
    probe_deinit(&held);

    struct folder old;
    folder_create(&old);
    folder_fill(&old, &(struct leaf_plan){.by = &world->authority, .names = "DNS:baton"});
    struct certificates *current = world->client_certificates,
                        *before = open_files(&old, true, true);
    dial(world, before, "baton");
    echo(world, RPC_UNAVAILABLE); /* the CA of before is none any more */
    rpc_channel_destroy(world->channel);
    world->channel = NULL;
    certificates_close(before);
    folder_remove(&old);
    dial(world, current, "baton");
    echo(world, RPC_OK);
}

/* Each KeyUpdate costs the gate as much as the client, and carries nothing. */
static void test_key_updates_without_end(void **state)
{
    struct world *world = *state;
    static const unsigned char protocol[] = "\x02h2";
    serve(world, false, NULL);
    dial(world, open_files(&world->client_folder, false, true), NULL);
    echo(world, RPC_OK);
    signal(SIGPIPE, SIG_IGN);
    const char *port = strrchr(rpc_server_address(world->server), ':') + 1;
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)atoi(port)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), sent = 0;
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    SSL *flood = SSL_new(context);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    assert_int_equal(SSL_set_alpn_protos(flood, protocol, sizeof protocol - 1), 0);
    assert_true(SSL_set_fd(flood, fd) && SSL_connect(flood) == 1);
    while (!atomic_load(&world->floods) && sent < 100000 &&
           SSL_key_update(flood, SSL_KEY_UPDATE_REQUESTED) == 1 && SSL_do_handshake(flood) == 1)
        sent++;
    assert_in_range(sent, TLS_MAX_MESSAGES, 99999);
    assert_int_equal(atomic_load(&world->floods), 1);
    SSL_free(flood);
    SSL_CTX_free(context);
    close(fd);
    echo(world, RPC_OK);
}

static void test_many_connections_while_certificates_change(void **state)
{
    struct world *world = *state;
    enum { ROUNDS = 30 };
    serve(world, true, "baton");
    dial(world, open_files(&world->client_folder, true, true), "baton");
    const struct leaf_plan plan = {.by = &world->authority, .names = "DNS:baton"};
    for (int i = 0; i < ROUNDS; i++) {
        if (i % 3 == 0)
            write_leaf(&plan, world->server_folder.cert, world->server_folder.key);
        if (i % 3 == 1)
            write_leaf(&plan, world->client_folder.cert, world->client_folder.key);
        dial(world, world->client_certificates, "baton");
        echo(world, RPC_OK);
    }
    /* All changes within a few looks of the watch: the last ones take effect, too. */
    uint64_t server = certificates_version(world->server_certificates);
    write_leaf(&plan, world->server_folder.cert, world->server_folder.key);
    uint64_t end_us = clock_now_us() + 20000000;
    while (certificates_version(world->server_certificates) == server)
        assert_true(clock_now_us() < end_us && poll(NULL, 0, 1) == 0);
    echo(world, RPC_OK);
}

int main(void)
{
    log_init("test", LOG_ERROR + 1);
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up_world, tear_down_world)
    const struct CMUnitTest tests[] = {
        CASE(test_a_server_with_a_certificate),
        CASE(test_names_of_servers),
        CASE(test_another_ca_and_no_tls_at_all),
        CASE(test_clients_show_certificates),
        CASE(test_a_client_without_a_certificate),
        CASE(test_a_client_with_anothers_certificate),
        CASE(test_names_of_clients),
        CASE(test_a_client_of_another_name),
        CASE(test_certificates_change_under_calls),
        CASE(test_many_connections_while_certificates_change),
    };
    /* The same with the TLS of the frame gate, which knows no names. */
#define GATED(name) cmocka_unit_test_setup_teardown(name, set_up_gated_world, tear_down_world)
    const struct CMUnitTest gated_tests[] = {
        GATED(test_a_server_with_a_certificate),
        GATED(test_another_ca_and_no_tls_at_all),
        GATED(test_clients_show_certificates),
        GATED(test_a_client_without_a_certificate),
        GATED(test_a_client_with_anothers_certificate),
        GATED(test_certificates_change_under_calls),
        GATED(test_key_updates_without_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) +
           cmocka_run_group_tests(gated_tests, NULL, NULL);
}
