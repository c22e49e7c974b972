/* generate: from flags to the server's request, and from the server's messages to the output. */
#include "common/base/str.h"
#include "common/cli/generate.h"
#include "proto/proto_text.h"
#include "proto/proto_unpack.h"

#include <poll.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SECOND_US 1000000u

struct built {
    struct generate_settings settings;
    struct config_result result;
    struct arena arena;
    Baton__V1__GenerateRequest *request;
    struct error err;
    enum status status;
};

static struct built build(const char *prompt, const char *const *arguments)
{
    static struct built built; /* its request points into its settings: good until the next one */
    built = (struct built){0};
    char *argv[64] = {(char *)"generate"};
    int argc = 1;
    while (arguments[argc - 1]) {
        argv[argc] = (char *)arguments[argc - 1];
        argc++;
    }
    struct str mistakes;
    str_init(&mistakes, 4096);
    arena_init(&built.arena, 1 << 20);
    enum status loaded =
        config_load(&generate_program, argc, argv, &built.settings, &built.result, &mistakes);
    assert_string_equal(mistakes.data, "");
    assert_int_equal(loaded, STATUS_OK);
    str_deinit(&mistakes);
    struct text text = prompt ? text_from(prompt) : (struct text){NULL, 0};
    built.status = generate_request_build(&built.settings, &built.result, text, &built.arena,
                                          &built.request, &built.err);
    return built;
}
#define BUILD(prompt, ...) build(prompt, (const char *const[]){__VA_ARGS__ __VA_OPT__(, ) NULL})

static void test_what_is_left_out_stays_out(void **state)
{
    (void)state;
    struct built got = BUILD("Once");
    assert_int_equal(got.status, STATUS_OK);
    const Baton__V1__Sampling *s = got.request->sampling;
    assert_int_equal(got.request->input_case, BATON__V1__GENERATE_REQUEST__INPUT_TEXT);
    assert_int_equal(got.request->text.len, 4);
    assert_memory_equal(got.request->text.data, "Once", 4);
    assert_int_equal(got.request->priority_presence_case, 0);
    assert_string_equal(got.request->slo_class, "");
    assert_int_equal(s->temperature_presence_case + s->top_k_presence_case +
                         s->top_p_presence_case + s->min_p_presence_case + s->seed_presence_case +
                         s->max_tokens_presence_case + s->min_tokens_presence_case +
                         s->ignore_eos_presence_case,
                     0);
    assert_int_equal(got.request->stop->n_strings + got.request->stop->n_token_ids, 0);
    assert_true(got.request->output->return_timing);
    arena_deinit(&got.arena);
}

static void test_every_flag_reaches_the_request(void **state)
{
    (void)state;
    struct built got =
        BUILD(NULL, "--prompt-ids", "1,2,3", "--prompt-ids=4", "--temperature=0", "--top-k=5",
              "--top-p=0.5", "--min-p=0.25", "--seed=18446744073709551615", "--max-tokens=7",
              "--min-tokens=2", "--ignore-eos", "--stop=a", "--stop=b", "--stop-id=9,8",
              "--logits-hash", "--json", "--model=m", "--request-id=r", "--priority=offline",
              "--slo-class=chat", "--presence-penalty=0.5", "--frequency-penalty=-1",
              "--repetition-penalty=1.5", "--logit-bias=7:-100", "--logit-bias=8:2.5",
              "--logprobs=3", "--prompt-logprobs=0", "--echo", "--choices=4");
    assert_int_equal(got.status, STATUS_OK);
    const Baton__V1__Sampling *s = got.request->sampling;
    assert_int_equal(got.request->token_ids->n_ids, 4);
    assert_int_equal(got.request->token_ids->ids[3], 4);
    assert_true(s->temperature_presence_case && s->temperature == 0);
    assert_true(s->top_k == 5 && s->top_p == 0.5f && s->min_p == 0.25f && s->seed == UINT64_MAX);
    assert_true(s->max_tokens == 7 && s->min_tokens == 2 && s->ignore_eos);
    assert_int_equal(got.request->stop->n_strings, 2);
    assert_int_equal(got.request->stop->strings[1].len, 1);
    assert_memory_equal(got.request->stop->strings[1].data, "b", 1);
    assert_int_equal(got.request->stop->n_token_ids, 2);
    assert_int_equal(got.request->stop->token_ids[1], 8);
    assert_true(got.request->output->return_logits_hash);
    assert_true(s->presence_penalty == 0.5f && s->frequency_penalty == -1 && s->n == 4);
    assert_true(s->repetition_penalty == 1.5f && s->n_logit_bias == 2);
    assert_true(s->logit_bias[0]->key == 7 && s->logit_bias[0]->value == -100);
    assert_true(s->logit_bias[1]->key == 8 && s->logit_bias[1]->value == 2.5f);
    const Baton__V1__Output *output = got.request->output;
    assert_true(output->logprobs_presence_case && output->logprobs == 3 && output->echo);
    assert_true(output->prompt_logprobs_presence_case && output->prompt_logprobs == 0);
    assert_string_equal(got.request->model, "m");
    assert_int_equal(got.request->priority_presence_case,
                     BATON__V1__GENERATE_REQUEST__PRIORITY_PRESENCE_PRIORITY);
    assert_int_equal(got.request->priority, BATON__V1__PRIORITY__PRIORITY_OFFLINE);
    assert_string_equal(got.request->slo_class, "chat");
    assert_string_equal(got.request->request_id, "r");
    arena_deinit(&got.arena);
}

static void test_inputs_that_are_wrong(void **state)
{
    (void)state;
    static const struct {
        const char *prompt, *flag, *told;
    } cases[] = {
        {NULL, "--json", "either PROMPT or --prompt-ids"},
        {"a", "--prompt-ids=1", "either PROMPT or --prompt-ids"},
        {NULL, "--prompt-ids=", "'' is not a token id"},
        {NULL, "--prompt-ids=1,,2", "'' is not a token id"},
        {NULL, "--prompt-ids=1,x", "'x' is not a token id"},
        {NULL, "--prompt-ids=4294967296", "is not a token id"},
        {"a", "--stop-id=-1", "--stop-id: '-1' is not a token id"},
        {"a", "--logit-bias=5", "--logit-bias: '5' is not ID:BIAS"},
        {"a", "--logit-bias=x:1", "'x:1' is not ID:BIAS"},
        {"a", "--logit-bias=5:", "'5:' is not ID:BIAS"},
        {"a", "--logit-bias=5:1x", "'5:1x' is not ID:BIAS"},
        {"a", "--logprobs=1", "need --json"},
        {"a", "--choices=2", "--choices above 1 need --json"},
        {"a", "--presence-penalty=3", "presence_penalty must be between -2 and 2"},
        {"a", "--max-tokens=0", "--max-tokens must be in 1 .. 1048576, but is '0'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct built got = BUILD(cases[i].prompt, cases[i].flag);
        assert_int_equal(got.status, STATUS_INVALID);
        assert_non_null(strstr(got.err.text, cases[i].told));
        arena_deinit(&got.arena);
    }
}

/* --- against a server --- */

static void send_event(struct rpc_call *call, const Baton__V1__GenerateResponse *response)
{
    uint8_t bytes[4096];
    size_t size = baton__v1__generate_response__pack(response, bytes);
    enum status sent = rpc_call_send(call, bytes, size);
    assert_true(sent == STATUS_OK || sent == STATUS_CANCELLED); /* the client may be faster */
}

static void send_delta(struct rpc_call *call, uint32_t first, struct text text, uint32_t id)
{
    Baton__V1__Delta delta = BATON__V1__DELTA__INIT;
    uint64_t hash = 0xab00 + id;
    delta.first_index = first;
    delta.text = proto_bytes(text);
    delta.n_token_ids = delta.n_logits_hashes = 1;
    delta.token_ids = &id;
    delta.logits_hashes = &hash;
    Baton__V1__GenerateResponse response = BATON__V1__GENERATE_RESPONSE__INIT;
    response.event_case = BATON__V1__GENERATE_RESPONSE__EVENT_DELTA;
    response.delta = &delta;
    send_event(call, &response);
}

static bool says(struct text text, const char *word)
{
    return text.length == strlen(word) && !memcmp(text.bytes, word, text.length);
}

#define FLOOD 9000
static sem_t flood_ended;

/* Answers by the prompt: "ok" a whole answer, "gap" a wrong index, "fail" an error, "flood" token
 * after token, any other prompt nothing at all. */
static void on_message(struct rpc_call *call, struct rpc_bytes bytes)
{
    Baton__V1__GenerateRequest *request =
        baton__v1__generate_request__unpack(NULL, bytes.size, bytes.data);
    struct text prompt = proto_text(request->text);
    if (says(prompt, "fail")) {
        rpc_call_finish(call, RPC_UNAVAILABLE, "no_workers", "no decode worker is there");
    } else if (says(prompt, "flood")) {
        for (uint32_t i = 0; i < FLOOD; i++)
            send_delta(call, i, text_from("x"), 5);
    } else if (says(prompt, "ok") || says(prompt, "gap")) {
        send_delta(call, 0, (struct text){"H\0i \"", 5}, 5);
        send_delta(call, *prompt.bytes == 'g' ? 2 : 1, text_from("\n"), 6);
        Baton__V1__Finished finished = BATON__V1__FINISHED__INIT;
        finished.reason = BATON__V1__FINISH_REASON__FINISH_REASON_STOP_STRING;
        finished.matched_case = BATON__V1__FINISHED__MATCHED_STOP_STRING;
        finished.stop_string = proto_bytes((struct text){"EN\0D", 4});
        Baton__V1__GenerateResponse response = BATON__V1__GENERATE_RESPONSE__INIT;
        response.event_case = BATON__V1__GENERATE_RESPONSE__EVENT_FINISHED;
        response.finished = &finished;
        send_event(call, &response);
        Baton__V1__Usage usage = BATON__V1__USAGE__INIT;
        usage.prompt_tokens = 3;
        usage.completion_tokens = 2;
        response.event_case = BATON__V1__GENERATE_RESPONSE__EVENT_USAGE;
        response.usage = &usage;
        send_event(call, &response);
        Baton__V1__Timing timing = BATON__V1__TIMING__INIT;
        timing.ttft_us = 1500;
        timing.tpot_us = 250;
        timing.prefill_worker = (char *)"prefill-0";
        timing.decode_worker = (char *)"decode-0";
        timing.lane = (char *)"shm";
        timing.kv_bytes = 2048;
        timing.prefills = 2;
        timing.seed = UINT64_MAX;
        response.event_case = BATON__V1__GENERATE_RESPONSE__EVENT_TIMING;
        response.timing = &timing;
        send_event(call, &response);
        rpc_call_finish(call, RPC_OK, NULL, NULL);
    }
    baton__v1__generate_request__free_unpacked(request, NULL);
}

static void on_closed(struct rpc_call *call, const struct rpc_end *end)
{
    (void)call;
    (void)end;
    sem_post(&flood_ended);
}

static struct rpc_runtime *runtime;
static struct rpc_server *server;

static int start_server(void **state)
{
    (void)state;
    static const struct rpc_method method = {
        .path = "/baton.v1.Baton/Generate",
        .handlers = {.message = on_message, .closed = on_closed}};
    struct rpc_server_config config = {
        .listen = "127.0.0.1:0", .methods = &method, .method_count = 1};
    struct error err;
    sem_init(&flood_ended, 0, 0);
    if (rpc_runtime_create(1, &runtime, &err) != STATUS_OK)
        return -1;
    return rpc_server_start(runtime, &config, &server, &err) == STATUS_OK ? 0 : -1;
}

static int stop_server(void **state)
{
    (void)state;
    rpc_server_stop(server, 0);
    rpc_runtime_destroy(runtime);
    return 0;
}

struct outcome {
    enum rpc_code code;
    char reason[64];
    enum status taken; /* the first message that could not be taken */
    struct generate_answer answer;
};

static void take_message(struct outcome *outcome, const struct generate_event *event)
{
    struct arena arena;
    struct error err;
    ProtobufCMessage *message;
    arena_init(&arena, proto_arena_bytes(event->size));
    assert_int_equal(proto_unpack(&baton__v1__generate_response__descriptor, event->data,
                                  event->size, &arena, &message, &err),
                     STATUS_OK);
    if (outcome->taken == STATUS_OK)
        outcome->taken =
            generate_answer_take(&outcome->answer, (Baton__V1__GenerateResponse *)message, &err);
    arena_deinit(&arena);
}

static struct outcome ask(const char *prompt, bool cancel)
{
    struct outcome outcome = {0};
    struct built got = BUILD(prompt);
    struct generate_call *call;
    struct error err;
    generate_answer_init(&outcome.answer);
    assert_int_equal(
        generate_call_open(&(struct generate_target){.server = rpc_server_address(server)},
                           got.request, 20 * SECOND_US, &call, &err),
        STATUS_OK);
    if (cancel)
        generate_call_cancel(call);
    for (bool ended = false; !ended;) {
        struct pollfd fd = {.fd = generate_call_fd(call), .events = POLLIN};
        poll(&fd, 1, -1);
        struct generate_event *event = generate_call_next(call);
        if (event && !event->ended)
            take_message(&outcome, event);
        if (event && event->ended) {
            ended = true;
            outcome.code = event->code;
            str_copy(outcome.reason, sizeof outcome.reason, event->reason);
        }
        free(event);
    }
    generate_call_close(call);
    arena_deinit(&got.arena);
    return outcome;
}

static void test_no_answer_to_a_prompt_that_is_told(void **state)
{
    (void)state;
    static const char *const tells[] = {"--echo", "--prompt-logprobs=2"};
    for (size_t i = 0; i < sizeof tells / sizeof *tells; i++) {
        struct built got = BUILD("a", "--json", "--max-tokens=0", tells[i]);
        assert_int_equal(got.status, STATUS_OK);
        assert_true(got.request->sampling->max_tokens_presence_case);
        assert_int_equal(got.request->sampling->max_tokens, 0);
        arena_deinit(&got.arena);
        got = BUILD("a", "--json", "--max-tokens=0", tells[i], "--min-tokens=1");
        assert_int_equal(got.status, STATUS_INVALID);
        assert_non_null(strstr(got.err.text,
                               "--max-tokens must be in 1 .. 1048576, but is '0', which is for "));
        arena_deinit(&got.arena);
    }
}

static void test_a_whole_answer(void **state)
{
    (void)state;
    struct outcome outcome = ask("ok", false);
    assert_int_equal(outcome.code, RPC_OK);
    assert_int_equal(outcome.taken, STATUS_OK);
    struct str out;
    str_init(&out, 8192);
    outcome.answer.request_id = "r\"1";
    generate_answer_json(&outcome.answer, &out);
    assert_non_null(strstr(out.data, ", \"request_id\": \"r\\\"1\", \"token_ids\": "));
    static const char *const parts[] = {
        "\"text\": \"H\\u0000i \\\"\\n\"",
        "\"token_ids\": [5, 6]",
        "\"finish_reason\": \"stop_string\"",
        "\"matched\": \"EN\\u0000D\"",
        "\"logits_hashes\": [\"000000000000ab05\", \"000000000000ab06\"]",
        "\"ttft_ms\": 1.500",
        "\"tpot_ms\": 0.250",
        "\"prefill_worker\": \"prefill-0\"",
        "\"lane\": \"shm\"",
        "\"kv_bytes\": 2048",
        "\"prefills\": 2",
        "\"seed\": 18446744073709551615",
        "\"usage\": {\"prompt_tokens\": 3, \"completion_tokens\": 2}"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!strstr(out.data, parts[i]))
            fail_msg("no %s in %s", parts[i], out.data);
    str_clear(&out);
    generate_answer_figures(&outcome.answer, &out);
    assert_string_equal(
        out.data, "3 + 2 tokens (stop_string), TTFT 1.5 ms, TPOT 0.25 ms, prefill-0 -> decode-0 "
                  "over shm (2.0 KiB of KV), 2 prefills");
    str_deinit(&out);
    generate_answer_deinit(&outcome.answer);
}

static void test_a_token_that_is_missing(void **state)
{
    (void)state;
    struct outcome outcome = ask("gap", false);
    assert_int_equal(outcome.taken, STATUS_INTERNAL);
    generate_answer_deinit(&outcome.answer);
}

static void test_an_error_has_code_and_reason(void **state)
{
    (void)state;
    struct outcome outcome = ask("fail", false);
    assert_int_equal(outcome.code, RPC_UNAVAILABLE);
    assert_string_equal(outcome.reason, "no_workers");
    generate_answer_deinit(&outcome.answer);
}

static void test_cancel_ends_the_call(void **state)
{
    (void)state;
    struct outcome outcome = ask("never", true);
    assert_int_equal(outcome.code, RPC_CANCELLED);
    generate_answer_deinit(&outcome.answer);
}

/* Nothing is taken until the call has ended: the first tokens are there, and the end has the
 * reason. */
static void test_an_answer_that_is_not_taken(void **state)
{
    (void)state;
    struct built got = BUILD("flood");
    struct generate_call *call;
    struct error err;
    unsigned messages = 0;
    assert_int_equal(
        generate_call_open(&(struct generate_target){.server = rpc_server_address(server)},
                           got.request, 60 * SECOND_US, &call, &err),
        STATUS_OK);
    sem_wait(&flood_ended);
    for (bool ended = false; !ended;) {
        struct pollfd fd = {.fd = generate_call_fd(call), .events = POLLIN};
        poll(&fd, 1, -1);
        struct generate_event *event = generate_call_next(call);
        messages += event && !event->ended;
        if (event && event->ended) {
            ended = true;
            assert_int_equal(event->code, RPC_CANCELLED);
            assert_true(event->overflow);
        }
        free(event);
    }
    assert_int_equal(messages, 8191); /* and the end */
    generate_call_close(call);
    arena_deinit(&got.arena);
}

/* The longest text that a server takes by default, in its message. */
static void test_the_longest_text_is_sent(void **state)
{
    (void)state;
    static char text[(4u << 20) + 1];
    memset(text, 'a', sizeof text - 1);
    struct built got = BUILD(text, "--request-id=r");
    assert_int_equal(got.status, STATUS_OK);
    struct generate_call *call;
    struct error err = {""};
    if (generate_call_open(&(struct generate_target){.server = "127.0.0.1:1"}, got.request,
                           SECOND_US, &call, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    generate_call_close(call);
    arena_deinit(&got.arena);
}

static void test_a_connection_that_broke_is_not_one_that_never_was(void **state)
{
    (void)state;
    static const struct {
        const char *message;
        bool answered;
        const char *told;
    } cases[] = {
        {"failed to connect to all addresses; last error: UNKNOWN: ipv4:1.2.3.4:5: Failed to "
         "connect to remote host: Connection refused",
         false,
         "cannot reach a router at h:1: Connection refused (`baton status` shows the cluster that "
         "runs here)"},
        {"failed to connect to all addresses; last error: UNAVAILABLE: ipv4:1.2.3.4:5: Socket "
         "closed",
         false,
         "cannot reach a router at h:1: Socket closed (a server listens there: if it speaks TLS, "
         "give --tls-ca)"},
        {"failed to connect to all addresses; last error: UNKNOWN: ipv4:1.2.3.4:5: "
         "error:0A00010B:SSL routines::wrong version number",
         false,
         "cannot reach a router at h:1: error:0A00010B:SSL routines::wrong version number (does "
         "it speak TLS at all? --tls-ca says that it does)"},
        {"failed to connect to all addresses; last error: UNKNOWN: ipv4:1.2.3.4:5: "
         "error:0A000086:SSL routines::certificate verify failed",
         false,
         "cannot reach a router at h:1: error:0A000086:SSL routines::certificate verify failed "
         "(--tls-ca names the CAs that may have signed the router's certificate)"},
        {"failed to connect to all addresses; last error: UNAVAILABLE: ipv4:1.2.3.4:5: Failed "
         "parsing HTTP/2",
         false,
         "cannot reach a router at h:1: Failed parsing HTTP/2 (something else than gRPC answers "
         "there: `baton up` prints the address of gRPC beside those of HTTP)"},
        {"failed to connect to all addresses; last error: INTERNAL: ipv4:1.2.3.4:5: Trying to "
         "connect an http1.x server (HTTP status 400)",
         false,
         "cannot reach a router at h:1: Trying to connect an http1.x server (HTTP status 400) "
         "(something else than gRPC answers there: `baton up` prints the address of gRPC beside "
         "those of HTTP)"},
        {"recvmsg:Connection reset by peer", true,
         "the connection to the router at h:1 broke in the middle of the answer: "
         "recvmsg:Connection "
         "reset by peer"},
        {"Socket closed", false, "the connection to the router at h:1 broke: Socket closed"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct generate_event event = {.ended = true, .code = RPC_UNAVAILABLE};
        struct error why;
        str_copy(event.message, sizeof event.message, cases[i].message);
        generate_event_explain(&event, "h:1", SECOND_US, cases[i].answered, &why);
        assert_string_equal(why.text, cases[i].told);
    }
}

/* Figures name the workers. With a prompt alone no decode worker takes part, and there is no time
 * between tokens. */
static void test_figures_name_the_workers(void **state)
{
    (void)state;
    static const struct {
        const char *prefill, *decode, *told;
    } cases[] = {{"prefill-0", "decode-0", ", TTFT 0.0 ms, prefill-0 -> decode-0"},
                 {"", "decode-0", ", TTFT 0.0 ms, decode-0"},
                 {"prefill-0", "", ", TTFT 0.0 ms, prefill-0"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct generate_answer answer;
        struct str out;
        str_init(&out, 1024);
        generate_answer_init(&answer);
        answer.timed = true;
        strcpy(answer.prefill_worker, cases[i].prefill);
        strcpy(answer.decode_worker, cases[i].decode);
        generate_answer_figures(&answer, &out);
        size_t told = strlen(cases[i].told);
        assert_true(out.length >= told);
        assert_string_equal(out.data + out.length - told, cases[i].told);
        str_deinit(&out);
        generate_answer_deinit(&answer);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_figures_name_the_workers),
        cmocka_unit_test(test_what_is_left_out_stays_out),
        cmocka_unit_test(test_every_flag_reaches_the_request),
        cmocka_unit_test(test_inputs_that_are_wrong),
        cmocka_unit_test(test_no_answer_to_a_prompt_that_is_told),
        cmocka_unit_test_setup_teardown(test_a_whole_answer, start_server, stop_server),
        cmocka_unit_test_setup_teardown(test_a_token_that_is_missing, start_server, stop_server),
        cmocka_unit_test(test_the_longest_text_is_sent),
        cmocka_unit_test(test_a_connection_that_broke_is_not_one_that_never_was),
        cmocka_unit_test_setup_teardown(test_an_error_has_code_and_reason, start_server,
                                        stop_server),
        cmocka_unit_test_setup_teardown(test_cancel_ends_the_call, start_server, stop_server),
        cmocka_unit_test_setup_teardown(test_an_answer_that_is_not_taken, start_server,
                                        stop_server),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
