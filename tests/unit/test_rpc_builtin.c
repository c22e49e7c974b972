/* rpc: the services of every server, health and reflection. */
#include "tests/unit/rpc_probe.h"

#include "common/net/rpc/grpc/builtin.h"
#include "common/net/rpc/grpc/listener.h"
#include "common/net/rpc/message.h"
#include "proto/descriptors.h"
#include "proto/health.pb-c.h"
#include "proto/reflection.pb-c.h"

#include <poll.h>

struct fixture {
    struct rpc_runtime *runtime;
    struct rpc_server *server;
    struct rpc_channel *channel;
};

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    struct error err;
    assert_int_equal(rpc_runtime_create(2, &f->runtime, &err), STATUS_OK);
    static const char *const services[] = {"baton.v1.Baton"};
    const struct rpc_bytes descriptors[] = {{baton_descriptors, baton_descriptors_size},
                                            {worker_descriptors, worker_descriptors_size}};
    const struct rpc_server_config config = {.listen = "127.0.0.1:0",
                                             .services = services,
                                             .service_count = 1,
                                             .descriptors = descriptors,
                                             .descriptor_count = 2};
    if (rpc_server_start(f->runtime, &config, &f->server, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    const struct rpc_channel_config channel = {.target = rpc_server_address(f->server)};
    assert_int_equal(rpc_channel_create(f->runtime, &channel, &f->channel, &err), STATUS_OK);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    rpc_channel_destroy(f->channel);
    rpc_server_stop(f->server, 0);
    rpc_runtime_destroy(f->runtime);
    free(f);
    return 0;
}

/* --- health --- */

/* A refusal may come before the message is sent. */
static void check_sent(enum status status)
{
    assert_true(status == STATUS_OK || status == STATUS_CANCELLED);
}

static void send_health_request(struct rpc_call *call, const char *service)
{
    Grpc__Health__V1__HealthCheckRequest request = GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;
    request.service = (char *)service;
    check_sent(rpc_call_send_message(call, &request.base));
    rpc_call_half_close(call);
}

static int last_health(struct probe *probe)
{
    Grpc__Health__V1__HealthCheckResponse *response =
        grpc__health__v1__health_check_response__unpack(NULL, probe->last_size,
                                                        (const uint8_t *)probe->last);
    assert_non_null(response);
    int status = (int)response->status;
    grpc__health__v1__health_check_response__free_unpacked(response, NULL);
    return status;
}

enum { SERVING = 1, NOT_SERVING = 2, SERVICE_UNKNOWN = 3 };

/* The state that Check answers; fails unless the call ends with `code`. */
static int check(struct fixture *f, const char *service, enum rpc_code code)
{
    struct probe probe;
    probe_init(&probe);
    struct rpc_call *call =
        probe_start(&probe, f->channel, "/grpc.health.v1.Health/Check", 20000000);
    send_health_request(call, service);
    probe_wait(&probe, &probe.closed, 1);
    assert_int_equal(probe.end.code, code);
    int status = code == RPC_OK ? last_health(&probe) : 0;
    rpc_call_unref(call);
    probe_deinit(&probe);
    return status;
}

static void test_health_check(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(check(f, "", RPC_OK), NOT_SERVING);
    rpc_server_set_serving(f->server, true);
    assert_int_equal(check(f, "", RPC_OK), SERVING);
    assert_int_equal(check(f, "baton.v1.Baton", RPC_OK), SERVING);
    check(f, "baton.v1.Other", RPC_NOT_FOUND);
    rpc_server_set_serving(f->server, false);
    assert_int_equal(check(f, "baton.v1.Baton", RPC_OK), NOT_SERVING);
}

static void test_health_watch_follows_the_state(void **state)
{
    struct fixture *f = *state;
    struct probe probes[3];
    static const char *const services[] = {"baton.v1.Baton", "", "no.such.Service"};
    struct rpc_call *calls[3];
    for (int i = 0; i < 3; i++) {
        probe_init(&probes[i]);
        calls[i] = probe_start(&probes[i], f->channel, "/grpc.health.v1.Health/Watch", 0);
        send_health_request(calls[i], services[i]);
        probe_wait(&probes[i], &probes[i].messages, 1);
    }
    assert_int_equal(last_health(&probes[0]), NOT_SERVING);
    assert_int_equal(last_health(&probes[2]), SERVICE_UNKNOWN);
    rpc_server_set_serving(f->server, true);
    rpc_server_set_serving(f->server, true); /* no news: no message */
    for (int i = 0; i < 2; i++) {
        probe_wait(&probes[i], &probes[i].messages, 2);
        assert_int_equal(last_health(&probes[i]), SERVING);
    }
    rpc_call_cancel(calls[1]);
    probe_wait(&probes[1], &probes[1].closed, 1);
    rpc_server_set_serving(f->server, false);
    probe_wait(&probes[0], &probes[0].messages, 3);
    assert_int_equal(last_health(&probes[0]), NOT_SERVING);
    assert_int_equal(probes[2].messages, 1);
    for (int i = 0; i < 3; i++) {
        rpc_call_cancel(calls[i]);
        probe_wait(&probes[i], &probes[i].closed, 1);
        rpc_call_unref(calls[i]);
        probe_deinit(&probes[i]);
    }
}

static struct rpc_call *start_stream(struct probe *probe, struct fixture *f, int kind)
{
    static const char *const paths[] = {
        "/grpc.health.v1.Health/Watch", "/grpc.health.v1.Health/Watch",
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"};
    probe_init(probe);
    struct rpc_call *call = probe_start(probe, f->channel, paths[kind], 0);
    if (kind < 2)
        send_health_request(call, kind ? "no.such.Service" : "");
    else
        check_sent(rpc_call_send(call, "", 0));
    return call;
}

static void end_stream(struct probe *probe, struct rpc_call *call)
{
    rpc_call_cancel(call);
    probe_wait(probe, &probe->closed, 1);
    rpc_call_unref(call);
    probe_deinit(probe);
}

/* Returns whether there is room for a stream of that kind. */
static bool has_room(struct fixture *f, int kind)
{
    struct probe probe;
    struct rpc_call *call = start_stream(&probe, f, kind);
    pthread_mutex_lock(&probe.lock);
    while (!probe.messages && !probe.closed)
        pthread_cond_wait(&probe.changed, &probe.lock);
    bool room = probe.messages > 0;
    pthread_mutex_unlock(&probe.lock);
    if (!room) {
        assert_int_equal(probe.end.code, RPC_RESOURCE_EXHAUSTED);
        assert_string_equal(probe.reason, "too_many_watches");
        assert_string_equal(probe.sentence, "1024 streams of health watches and reflection are "
                                            "open at this server, which is its limit");
    }
    end_stream(&probe, call);
    return room;
}

/* Watches, also of services that aren't there, and reflection count together. */
static void test_streams_without_a_key_are_limited(void **state)
{
    struct fixture *f = *state;
    struct probe *probes = calloc(BUILTIN_MAX_STREAMS, sizeof *probes);
    struct rpc_call *calls[BUILTIN_MAX_STREAMS];
    assert_non_null(probes);
    for (int i = 0; i < BUILTIN_MAX_STREAMS; i++) {
        calls[i] = start_stream(&probes[i], f, i % 4);
        probe_wait(&probes[i], &probes[i].messages, 1);
    }
    for (int kind = 0; kind < 4; kind++)
        assert_false(has_room(f, kind));
    check(f, "", RPC_OK); /* no stream */
    for (int kind = 0; kind < 4; kind++) {
        end_stream(&probes[kind], calls[kind]);
        for (int try = 0; !has_room(f, kind); try++) { /* the server learns it a bit later */
            assert_true(try < 5000);
            poll(NULL, 0, 1);
        }
    }
    for (int i = 4; i < BUILTIN_MAX_STREAMS; i++)
        end_stream(&probes[i], calls[i]);
    free(probes);
}

static void test_malformed_requests(void **state)
{
    struct fixture *f = *state;
    static const char *const paths[] = {
        "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch",
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"};
    for (int i = 0; i < 3; i++) {
        struct probe probe;
        probe_init(&probe);
        probe_unary(&probe, f->channel, paths[i],
                    "\x0a\x05"
                    "ab",
                    4); /* shorter than it says */
        assert_int_equal(probe.end.code, RPC_INVALID_ARGUMENT);
        assert_string_equal(probe.reason, "malformed_request");
        probe_deinit(&probe);
    }
}

/* A name of `length` bytes; true: it was looked for, in vain or not. */
static bool is_read(struct fixture *f, const char *path, uint32_t length)
{
    uint8_t wire[1 << 15] = {1 << 3 | 2, (uint8_t)(length | 0x80), (uint8_t)(length >> 7 | 0x80),
                             (uint8_t)(length >> 14)};
    struct probe probe;
    memset(wire + 4, 'x', length);
    probe_init(&probe);
    probe_unary(&probe, f->channel, path, wire, 4 + length);
    bool refused = !strcmp(probe.reason, "malformed_request");
    assert_true(!refused || probe.end.code == RPC_INVALID_ARGUMENT);
    probe_deinit(&probe);
    return !refused;
}

static void test_requests_that_are_too_large(void **state)
{
    struct fixture *f = *state;
    static const char health[] = "/grpc.health.v1.Health/Check";
    static const char reflection[] = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
    assert_true(is_read(f, health, 3 << 10));
    assert_false(is_read(f, health, 4 << 10));
    assert_true(is_read(f, reflection, 8 << 10));
    assert_false(is_read(f, reflection, 16 << 10));
}

/* --- reflection --- */

/* Kept by the client below: all answers of one stream. */
struct answers {
    struct probe probe;
    Grpc__Reflection__V1__ServerReflectionResponse *items[16];
};

static void keep_answer(struct rpc_call *call, struct rpc_bytes bytes)
{
    struct answers *answers = rpc_call_context(call);
    answers->items[answers->probe.messages] =
        grpc__reflection__v1__server_reflection_response__unpack(NULL, bytes.size, bytes.data);
    assert_non_null(answers->items[answers->probe.messages]);
    probe_message(&answers->probe, bytes);
}

static void answers_closed(struct rpc_call *call, const struct rpc_end *end)
{
    struct answers *answers = rpc_call_context(call);
    probe_closed(&answers->probe, end);
}

#define ASK(name)    GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_##name
#define ANSWER(name) GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_##name

static const struct {
    int kind;
    const char *text;
    int answer;
} questions[] = {
    {ASK(LIST_SERVICES), "", ANSWER(LIST_SERVICES_RESPONSE)},
    {ASK(FILE_BY_FILENAME), "baton.proto", ANSWER(FILE_DESCRIPTOR_RESPONSE)},
    {ASK(FILE_BY_FILENAME), "no.proto", ANSWER(ERROR_RESPONSE)},
    {ASK(FILE_CONTAINING_SYMBOL), "baton.v1.Baton.Generate", ANSWER(FILE_DESCRIPTOR_RESPONSE)},
    {ASK(FILE_CONTAINING_SYMBOL), "baton.v1.Nothing", ANSWER(ERROR_RESPONSE)},
    {ASK(ALL_EXTENSION_NUMBERS_OF_TYPE), "baton.v1.Sampling",
     ANSWER(ALL_EXTENSION_NUMBERS_RESPONSE)},
    {ASK(ALL_EXTENSION_NUMBERS_OF_TYPE), "baton.v1.Nothing", ANSWER(ERROR_RESPONSE)},
    {ASK(_NOT_SET), "", ANSWER(ERROR_RESPONSE)},
};
enum { QUESTIONS = sizeof questions / sizeof *questions };

static void ask(struct rpc_call *call, int kind, const char *text)
{
    Grpc__Reflection__V1__ServerReflectionRequest request =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__INIT;
    request.message_request_case =
        (Grpc__Reflection__V1__ServerReflectionRequest__MessageRequestCase)kind;
    request.list_services = (char *)text; /* one union */
    request.host = "h";
    assert_int_equal(rpc_call_send_message(call, &request.base), STATUS_OK);
}

static void check_answers(struct answers *answers)
{
    for (int i = 0; i < QUESTIONS; i++) {
        assert_int_equal(answers->items[i]->message_response_case, questions[i].answer);
        assert_string_equal(answers->items[i]->valid_host, "h");
        assert_int_equal(answers->items[i]->original_request->message_request_case,
                         questions[i].kind);
    }
    static const char *const services[] = {"baton.v1.Baton", "grpc.health.v1.Health",
                                           "grpc.reflection.v1.ServerReflection",
                                           "grpc.reflection.v1alpha.ServerReflection"};
    assert_int_equal(answers->items[0]->list_services_response->n_service, 4);
    for (int i = 0; i < 4; i++)
        assert_string_equal(answers->items[0]->list_services_response->service[i]->name,
                            services[i]);
    assert_int_equal(answers->items[1]->file_descriptor_response->n_file_descriptor_proto, 1);
    assert_int_equal(answers->items[2]->error_response->error_code, RPC_NOT_FOUND);
    assert_string_equal(answers->items[2]->error_response->error_message, "unknown file no.proto");
    assert_int_equal(answers->items[4]->error_response->error_code, RPC_NOT_FOUND);
    assert_int_equal(answers->items[7]->error_response->error_code, RPC_INVALID_ARGUMENT);
}

static void test_reflection_in_both_versions(void **state)
{
    struct fixture *f = *state;
    static const char *const paths[] = {
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"};
    for (int version = 0; version < 2; version++) {
        struct answers answers = {0};
        probe_init(&answers.probe);
        const struct rpc_handlers handlers = {.message = keep_answer, .closed = answers_closed};
        struct rpc_call *call;
        assert_int_equal(
            rpc_call_start(f->channel, paths[version], &handlers, &answers, 20000000, false, &call),
            STATUS_OK);
        for (int i = 0; i < QUESTIONS; i++)
            ask(call, questions[i].kind, questions[i].text);
        rpc_call_half_close(call);
        probe_wait(&answers.probe, &answers.probe.closed, 1);
        assert_int_equal(answers.probe.end.code, RPC_OK);
        assert_int_equal(answers.probe.messages, QUESTIONS);
        check_answers(&answers);
        for (int i = 0; i < QUESTIONS; i++)
            grpc__reflection__v1__server_reflection_response__free_unpacked(answers.items[i], NULL);
        rpc_call_unref(call);
        probe_deinit(&answers.probe);
    }
}

/* FileDescriptorSet of a.proto (package p: message M { nested N { field f }, enum E { V } },
 * service S { rpc R }), which imports b.proto (no package: message B), which imports a.proto. */
/* clang-format off */
static const char sample_set[] =
    "\x0a\x42" "\x0a\x07" "a.proto" "\x12\x01" "p" "\x1a\x07" "b.proto"
        "\x22\x1b" "\x0a\x01" "M"
            "\x1a\x0a" "\x0a\x01" "N" "\x12\x05" "\x0a\x01" "f" "\x18\x01"
            "\x22\x0a" "\x0a\x01" "E" "\x12\x05" "\x0a\x01" "V" "\x10\x00"
        "\x32\x0a" "\x0a\x01" "S" "\x12\x05" "\x0a\x01" "R" "\x20\x01"
        "\x18\x00\x18\x00" /* not descriptors: skipped */
    "\x0a\x17" "\x0a\x07" "b.proto" "\x1a\x07" "a.proto" "\x22\x03" "\x0a\x01" "B";
/* clang-format on */

static void test_symbols_of_every_kind(void **state)
{
    (void)state;
    static struct descriptor_files files;
    struct rpc_bytes set = {sample_set, sizeof sample_set - 1};
    descriptor_files_add_set(&files, set);
    descriptor_files_add_set(&files, set); /* names are unique */
    assert_int_equal(files.count, 2);
    assert_int_equal(descriptor_files_by_name(&files, "b.proto"), 1);
    assert_int_equal(descriptor_files_by_name(&files, "b.prot"), 2);
    static const char *const in_a[] = {"p.M", "p.M.N", "p.M.N.f", "p.M.E", "p.M.V", "p.S", "p.S.R"};
    for (size_t i = 0; i < sizeof in_a / sizeof *in_a; i++)
        if (descriptor_files_by_symbol(&files, in_a[i]) != 0)
            fail_msg("%s was not found", in_a[i]);
    assert_int_equal(descriptor_files_by_symbol(&files, "B"), 1);
    static const char *const nowhere[] = {"",        "p",       "p.",    "M",   ".p.M",
                                          "p.M.",    "p.M.E.V", "p.M.X", "q.M", "p.M.N.f.g",
                                          "p.S.R.x", "pxM",     "p..M"};
    for (size_t i = 0; i < sizeof nowhere / sizeof *nowhere; i++)
        if (descriptor_files_by_symbol(&files, nowhere[i]) != 2)
            fail_msg("%s was found", nowhere[i]);
    struct rpc_bytes closure[DESCRIPTOR_FILES_MAX];
    assert_int_equal(descriptor_files_closure(&files, 1, closure), 2); /* a circle ends */
    assert_ptr_equal(closure[0].data, files.items[1].data);
    for (size_t cut = 0; cut < set.size; cut++) { /* no byte past the end is read (ASan) */
        char *copy = malloc(cut + 1);
        memcpy(copy, sample_set, cut);
        char *exact = realloc(copy, cut ? cut : 1);
        static struct descriptor_files part;
        part.count = 0;
        descriptor_files_add_set(&part, (struct rpc_bytes){exact, cut});
        descriptor_files_by_symbol(&part, "p.M.N.f");
        free(exact);
    }
}

/* --- addresses --- */

static void test_addresses(void **state)
{
    (void)state;
    static const struct {
        const char *text, *host, *port;
        bool loopback;
    } good[] = {
        {"127.0.0.1:0", "127.0.0.1", "0", true},
        {"localhost:65535", "localhost", "65535", true},
        {"[::1]:7000", "::1", "7000", true},
        {"0.0.0.0:80", "0.0.0.0", "80", false},
        {"[::]:80", "::", "80", false},
        {":80", "", "80", false},
        {"node-3.lan:80", "node-3.lan", "80", false},
    };
    struct address address;
    struct error err;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(address_parse(good[i].text, &address, &err), STATUS_OK);
        assert_string_equal(address.host, good[i].host);
        assert_string_equal(address.port, good[i].port);
        assert_int_equal(address_is_loopback(&address), good[i].loopback);
    }
    static const char *const bad[] = {"",        "host",   "host:",   "host:65536",
                                      "host:-1", "::1:80", "[::1:80", "[:80"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(address_parse(bad[i], &address, &err), STATUS_INVALID);
}

static void test_how_core_writes_them(void **state)
{
    (void)state;
    static const struct {
        const char *core, *text;
    } cases[] = {
        {"ipv4:127.0.0.1:4321", "127.0.0.1:4321"},
        {"ipv6:%5B::1%5D:4321", "[::1]:4321"},
        {"ipv6:[::1]:4321", "[::1]:4321"},
        {"unix:/run/a%20b", "unix:/run/a%20b"},
        {"ipv6:%5B%5", "[%5"},
        {"", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[32];
        address_from_core(cases[i].core, text, sizeof text);
        assert_string_equal(text, cases[i].text);
    }
    char small[8];
    address_from_core("ipv4:127.0.0.1:4321", small, sizeof small);
    assert_string_equal(small, "127.0.0");
}

#define WITH_FIXTURE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_how_core_writes_them),
        WITH_FIXTURE(test_health_check),
        WITH_FIXTURE(test_health_watch_follows_the_state),
        WITH_FIXTURE(test_streams_without_a_key_are_limited),
        WITH_FIXTURE(test_malformed_requests),
        WITH_FIXTURE(test_requests_that_are_too_large),
        WITH_FIXTURE(test_reflection_in_both_versions),
        cmocka_unit_test(test_symbols_of_every_kind),
        cmocka_unit_test(test_addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
