/* up_plan: command lines, cores, and per-process environment. */
#include "common/cli/up_plan.h"

#include "common/base/domain/placement_policy.h"
#include "common/base/str.h"
#include "common/engine/engine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

struct fixture {
    struct up_settings settings;
    struct up_cores cores;
    struct arena arena;
    struct up_context context;
};

static struct fixture fixture_of(uint64_t prefill, uint64_t decode, uint32_t cores)
{
    struct fixture fixture = {
        .settings = {.prefill = prefill, .decode = decode, .models = "/m", .pin = true}};
    struct error err;
    assert_int_equal(up_read_models(&fixture.settings, &err), STATUS_OK);
    for (uint32_t i = 0; i < cores; i++)
        fixture.cores.ids[i] = i + 4; /* not from 0: a cpuset */
    fixture.cores.count = cores;
    arena_init(&fixture.arena, 1 << 20);
    return fixture;
}

/* The worker's command line, joined with blanks. */
static const char *command_of(struct fixture *fixture, uint64_t index, char *text, size_t size)
{
    fixture->context = (struct up_context){.settings = &fixture->settings,
                                           .cores = &fixture->cores,
                                           .bin_dir = "/b",
                                           .log_dir = "/l",
                                           .arena = &fixture->arena};
    struct process_plan plan = up_plan_worker(&fixture->context, index, "127.0.0.1:7");
    struct str joined;
    str_init(&joined, size - 1);
    for (size_t i = 0; i < plan.argc; i++)
        str_addf(&joined, "%s%s", i ? " " : "", plan.argv[i]);
    str_copy(text, size, joined.data);
    str_deinit(&joined);
    return text;
}

static void test_cores_are_shared_out(void **state)
{
    (void)state;
    static const struct {
        uint64_t prefill, decode;
        uint32_t cores;
        uint64_t threads_asked, threads;
        const char *first, *last; /* flags on the first and last worker's command line */
    } cases[] = {
        {1, 1, 2, 0, 1, "--threads 1 --cpus 4 --spin", "--threads 1 --cpus 5 --spin"},
        {1, 1, 8, 0, 4, "--cpus 4,5,6,7 --spin", "--cpus 8,9,10,11 --spin"},
        {1, 2, 8, 0, 2, "--cpus 4,5 --spin", "--cpus 8,9 --spin"},
        {2, 2, 2, 0, 1, "--threads 1 --no-spin", "--threads 1 --no-spin"},
        {1, 1, 2, 2, 2, "--threads 2 --no-spin", "--threads 2 --no-spin"},
        {0, 1, 2, 0, 2, "--cpus 4,5 --spin", "--cpus 4,5 --spin"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture fixture = fixture_of(cases[i].prefill, cases[i].decode, cases[i].cores);
        fixture.settings.threads = cases[i].threads_asked;
        assert_int_equal(up_threads(&fixture.settings, &fixture.cores), cases[i].threads);
        char text[1024];
        uint64_t last = cases[i].prefill + cases[i].decode - 1;
        assert_non_null(strstr(command_of(&fixture, 0, text, sizeof text), cases[i].first));
        assert_non_null(strstr(command_of(&fixture, last, text, sizeof text), cases[i].last));
        assert_true(strstr(text, "--cpus") == NULL || strstr(text, "--no-spin") == NULL);
        arena_deinit(&fixture.arena);
    }
}

static void test_a_workers_command_line(void **state)
{
    (void)state;
    struct fixture fixture = fixture_of(1, 1, 2);
    fixture.settings.compute = 1;
    fixture.settings.transport = 2;
    strcpy(fixture.settings.weight_cache, "beside");
    fixture.settings.log_level = 1;
    fixture.settings.drain_timeout_us = 30000000;
    char text[1024];
    assert_string_equal(
        command_of(&fixture, 1, text, sizeof text),
        "/b/baton-decode --model /m --metrics-listen 127.0.0.1:0 --log-level info "
        "--drain-timeout 30000000us "
        "--name decode-0 --router 127.0.0.1:7 --listen 127.0.0.1:0 --compute f32 --weights "
        "auto --weight-cache beside --kv auto --isa auto --transport tcp --threads 1 --cpus 5 "
        "--spin");
    strcpy(fixture.settings.passed.chunk_tokens, "64");
    strcpy(fixture.settings.passed.chunk_time, "50ms");
    assert_non_null(strstr(command_of(&fixture, 0, text, sizeof text),
                           "--spin --chunk-tokens 64 --chunk-time 50ms"));
    fixture.settings.pin = false;
    assert_non_null(strstr(command_of(&fixture, 1, text, sizeof text), "--threads 1 --no-spin"));
    fixture.settings.port = 80;
    struct process_plan router = up_plan_router(&fixture.context);
    /* no HTTP door was requested, whatever the environment says */
    assert_int_equal(router.front_at, 0);
    assert_string_equal(router.argv[router.argc - 4], "--http-listen");
    assert_string_equal(router.argv[router.argc - 3], "");
    strcpy(fixture.settings.http_listen, "127.0.0.1:8000");
    fixture.settings.placement_policy = PLACEMENT_GOODPUT;
    fixture.settings.decision_percent = 50;
    fixture.settings.decisions = 7;
    router = up_plan_router(&fixture.context);
    assert_string_equal(router.argv[router.front_at], "127.0.0.1:8000");
    assert_string_equal(router.argv[0], "/b/baton-router");
    assert_string_equal(router.argv[router.argc - 1], "127.0.0.1:80");
    assert_string_equal(router.log_path, "/l/router.log");
    size_t at = 0;
    while (at < router.argc && strcmp(router.argv[at], "--placement-policy"))
        at++;
    assert_string_equal(router.argv[at + 1], "goodput");
    while (at < router.argc && strcmp(router.argv[at], "--decision-sample"))
        at++;
    assert_string_equal(router.argv[at + 1], "50");
    assert_string_equal(router.argv[at + 3], "7"); /* --decisions */
    strcpy(fixture.settings.passed.http_cors_origins, "*");
    router = up_plan_router(&fixture.context);
    assert_string_equal(router.argv[router.argc - 2], "--http-cors-origins");
    assert_string_equal(router.argv[router.argc - 1], "*");
    strcpy(fixture.settings.passed.allowed_hosts, "api.example");
    router = up_plan_router(&fixture.context);
    assert_string_equal(router.argv[router.argc - 2], "--allowed-hosts");
    assert_string_equal(router.argv[router.argc - 1], "api.example");
    arena_deinit(&fixture.arena);
}

static void test_each_device_of_a_list_is_checked(void **state)
{
    (void)state;
    static const struct {
        const char *devices, *mistake;
    } cases[] = {{"cuda:0,cpu,auto", NULL}, {"cuda:0,gpu", "'gpu' is none of"}, {"cpu,", "'' is"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static struct up_settings settings;
        char *argv[] = {(char *)"up", (char *)"--model", (char *)"/m", (char *)"--device",
                        (char *)cases[i].devices};
        struct config_result result;
        struct str mistakes;
        str_init(&mistakes, 4096);
        enum status status = config_load(&up_program, 5, argv, &settings, &result, &mistakes);
        assert_int_equal(status, cases[i].mistake ? STATUS_INVALID : STATUS_OK);
        assert_true(!cases[i].mistake || strstr(mistakes.data, cases[i].mistake));
        str_deinit(&mistakes);
    }
}

static void test_devices_are_taken_in_turns(void **state)
{
    (void)state;
    struct fixture fixture = fixture_of(1, 3, 2);
    struct error err;
    strcpy(fixture.settings.passed.devices, "cuda:0,cpu,cuda:12");
    static const char *const devices[] = {"cuda:0", "cpu", "cuda:12", "cuda:0"};
    for (uint64_t worker = 0; worker < 4; worker++) {
        char wanted[64], text[1024];
        command_of(&fixture, worker, text, sizeof text);
        struct process_plan plan = up_plan_worker(&fixture.context, worker, "127.0.0.1:7");
        snprintf(wanted, sizeof wanted, "BATON_DEVICE=%s", devices[worker]);
        assert_int_equal(plan.environment_count, 1);
        assert_string_equal(plan.environment[0], wanted);
    }
    strcat(fixture.settings.passed.devices, ",deferred");
    assert_int_equal(up_check(&fixture.settings, &err), STATUS_OK);
    strcat(fixture.settings.passed.devices, ",cuda:1");
    assert_int_equal(up_check(&fixture.settings, &err), STATUS_INVALID);
    assert_string_equal(err.text, "--device names 5 devices for 4 workers: leave cuda:1 out, or "
                                  "start more workers");
    fixture.settings.engine = ENGINE_MOCK;
    assert_int_equal(up_check(&fixture.settings, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "--engine mock computes on none"));
    arena_deinit(&fixture.arena);
}

static void test_certificates_go_to_whom_they_are_for(void **state)
{
    (void)state;
    struct fixture fixture = fixture_of(1, 1, 2);
    struct up_settings *settings = &fixture.settings;
    char text[1024];
    command_of(&fixture, 0, text, sizeof text);
    assert_int_equal(up_plan_router(&fixture.context).registry_at, 0);
    strcpy(settings->tls.cert, "c");
    strcpy(settings->tls.key, "k");
    strcpy(settings->internal_tls.cert, "ic");
    strcpy(settings->internal_tls.key, "ik");
    strcpy(settings->internal_tls.ca, "ia");
    strcpy(settings->internal_tls.name, "in");
    static const char internal[] =
        "--internal-tls-cert ic --internal-tls-key ik --internal-tls-ca ia --internal-tls-name in";
    command_of(&fixture, 0, text, sizeof text);
    assert_non_null(strstr(text, internal));
    assert_null(strstr(text, "--tls-cert"));
    struct process_plan router = up_plan_router(&fixture.context);
    assert_string_equal(router.argv[router.registry_at - 1], "--registry-listen");
    size_t given = 0;
    for (size_t i = 0; i + 1 < router.argc; i++)
        given += !strcmp(router.argv[i], "--tls-cert") && !strcmp(router.argv[i + 1], "c");
    assert_int_equal(given, 1);
    settings->internal_tls = (struct link_tls_settings){.name = ""};
    *settings->tls.cert = *settings->tls.key = 0;
    strcpy(settings->api_keys, "keys"); /* a worker that needs no key must not register */
    router = up_plan_router(&fixture.context);
    assert_string_equal(router.argv[router.registry_at - 1], "--registry-listen");
    assert_null(strstr(command_of(&fixture, 0, text, sizeof text), "keys"));
    arena_deinit(&fixture.arena);
}

/* Keys for clients bring certificates for the links, unless there are some, or that is off. */
static void test_when_a_run_makes_certificates(void **state)
{
    (void)state;
    struct fixture fixture = fixture_of(1, 1, 2);
    struct up_settings *settings = &fixture.settings;
    struct error err;
    char text[2048];
    assert_false(up_makes_certificates(settings));
    strcpy(settings->tls.cert, "c");
    assert_false(up_makes_certificates(settings)); /* every caller may ask anyway */
    strcpy(settings->api_keys, "keys");
    assert_true(up_makes_certificates(settings));
    settings->internal_tls_mode = UP_INTERNAL_OFF;
    assert_false(up_makes_certificates(settings));
    settings->internal_tls_mode = UP_INTERNAL_AUTO;
    strcpy(settings->internal_tls.cert, "given");
    assert_false(up_makes_certificates(settings));
    *settings->internal_tls.cert = 0;
    assert_int_equal(up_use_certificates(settings, "/run/1.tls", &err), STATUS_OK);
    assert_false(up_makes_certificates(settings));
    assert_non_null(strstr(command_of(&fixture, 0, text, sizeof text),
                           "--internal-tls-cert /run/1.tls/cert.pem --internal-tls-key "
                           "/run/1.tls/key.pem --internal-tls-ca /run/1.tls/ca.pem "
                           "--internal-tls-name baton.internal"));
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = 0;
    assert_int_equal(up_use_certificates(settings, text, &err), STATUS_LIMIT);
    arena_deinit(&fixture.arena);
}

static void test_environment_goes_to_the_process_it_names(void **state)
{
    (void)state;
    struct fixture fixture = fixture_of(2, 1, 2);
    struct error err;
    char text[1024];
    fixture.settings.environment =
        (struct config_list){{"prefill-1:A=1", "decode-0:B=x:y=z", "prefill-1:C="}, 3};
    assert_int_equal(up_check(&fixture.settings, &err), STATUS_OK);
    command_of(&fixture, 0, text, sizeof text);
    assert_int_equal(up_plan_worker(&fixture.context, 0, "r").environment_count, 0);
    struct process_plan plan = up_plan_worker(&fixture.context, 1, "r");
    assert_int_equal(plan.environment_count, 2);
    assert_string_equal(plan.environment[1], "C=");
    assert_string_equal(up_plan_worker(&fixture.context, 2, "r").environment[0], "B=x:y=z");
    static const char *const bad[] = {"A=1",          "prefill-2:A=1", "decode:A=1",
                                      "prefill-0:=1", "prefill-0:A",   ""};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fixture.settings.environment = (struct config_list){{bad[i]}, 1};
        assert_int_equal(up_check(&fixture.settings, &err), STATUS_INVALID);
    }
    arena_deinit(&fixture.arena);
}

static void test_a_variable_of_a_process_is_given_once(void **state)
{
    (void)state;
    struct fixture fixture = fixture_of(2, 1, 2);
    struct error err;
    fixture.settings.environment =
        (struct config_list){{"prefill-0:A=1", "prefill-1:A=2", "prefill-0:AB=3"}, 3};
    assert_int_equal(up_check(&fixture.settings, &err), STATUS_OK);
    fixture.settings.environment =
        (struct config_list){{"prefill-0:A=1", "decode-0:A=2", "prefill-0:A=1"}, 3};
    assert_int_equal(up_check(&fixture.settings, &err), STATUS_INVALID);
    assert_string_equal(err.text, "--env sets A of prefill-0 more than once: leave one of them");
    arena_deinit(&fixture.arena);
}

static void test_numbers_of_workers(void **state)
{
    (void)state;
    struct error err;
    struct fixture fixture = fixture_of(0, 0, 1);
    assert_int_equal(up_check(&fixture.settings, &err), STATUS_INVALID);
    fixture.settings.prefill = 1;
    assert_int_equal(up_check(&fixture.settings, &err), STATUS_INVALID);
    fixture.settings.decode = CLUSTER_MAX_PROCESSES - 2;
    assert_int_equal(up_check(&fixture.settings, &err), STATUS_OK);
    fixture.settings.decode++;
    assert_int_equal(up_check(&fixture.settings, &err), STATUS_LIMIT);
}

/* Each model has its own workers, numbered through, and all share the cores. */
static void test_two_models(void **state)
{
    (void)state;
    struct fixture fixture = fixture_of(2, 1, 6);
    struct error err;
    char text[1024];
    strcpy(fixture.settings.models, "/m,other=/n");
    assert_int_equal(up_read_models(&fixture.settings, &err), STATUS_OK);
    assert_int_equal(up_check(&fixture.settings, &err), STATUS_OK);
    assert_int_equal(up_worker_count(&fixture.settings), 6);
    assert_int_equal(up_threads(&fixture.settings, &fixture.cores), 1);
    static const char *const begins[] = {
        "/b/baton-prefill --model /m --metrics-listen",
        "/b/baton-prefill --model /m --metrics-listen",
        "/b/baton-prefill --model /n --model-name other --metrics-listen",
        "/b/baton-prefill --model /n --model-name other --metrics-listen",
        "/b/baton-decode --model /m --metrics-listen",
        "/b/baton-decode --model /n --model-name other --metrics-listen"};
    static const char *const names[] = {"--name prefill-0 ", "--name prefill-1 ",
                                        "--name prefill-2 ", "--name prefill-3 ",
                                        "--name decode-0 ",  "--name decode-1 "};
    for (uint64_t i = 0; i < 6; i++) {
        assert_ptr_equal(strstr(command_of(&fixture, i, text, sizeof text), begins[i]), text);
        assert_non_null(strstr(text, names[i]));
    }
    assert_non_null(strstr(text, "--threads 1 --cpus 9 --spin"));
    struct process_plan router = up_plan_router(&fixture.context);
    assert_string_equal(router.argv[2], "/m,other=/n");
    fixture.settings.environment = (struct config_list){{"decode-1:A=1"}, 1};
    assert_int_equal(up_check(&fixture.settings, &err), STATUS_OK);
    fixture.settings.environment = (struct config_list){{"decode-2:A=1"}, 1};
    assert_int_equal(up_check(&fixture.settings, &err), STATUS_INVALID);
    strcpy(fixture.settings.model_name, "one");
    assert_int_equal(up_read_models(&fixture.settings, &err), STATUS_INVALID);
    arena_deinit(&fixture.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cores_are_shared_out),
        cmocka_unit_test(test_a_workers_command_line),
        cmocka_unit_test(test_devices_are_taken_in_turns),
        cmocka_unit_test(test_each_device_of_a_list_is_checked),
        cmocka_unit_test(test_certificates_go_to_whom_they_are_for),
        cmocka_unit_test(test_when_a_run_makes_certificates),
        cmocka_unit_test(test_environment_goes_to_the_process_it_names),
        cmocka_unit_test(test_a_variable_of_a_process_is_given_once),
        cmocka_unit_test(test_numbers_of_workers),
        cmocka_unit_test(test_two_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
