/* openai_answer, _logprobs, _error, _models, _tokens: the output, byte for byte. */
#include "router/doors/openai/openai_answer.h"
#include "router/doors/openai/openai_tokens.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct str out;

static int set_up(void **state)
{
    (void)state;
    str_init(&out, 1u << 20);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    str_deinit(&out);
    return 0;
}

static struct openai_answer answer_of(enum openai_kind kind)
{
    return (struct openai_answer){
        .kind = kind, .request_id = "r1", .model = "m\"x", .created_s = 1700000000};
}

#define CHAT_HEAD                                                                                  \
    "data: {\"id\":\"chatcmpl-r1\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,"   \
    "\"model\":\"m\\\"x\",\"choices\":"
#define TEXT_HEAD                                                                                  \
    "data: {\"id\":\"cmpl-r1\",\"object\":\"text_completion\",\"created\":1700000000,"             \
    "\"model\":\"m\\\"x\",\"choices\":"

static struct openai_piece text_piece(const char *text)
{
    return (struct openai_piece){.text = text, .length = strlen(text), .usage = {5, 1}};
}

static void test_a_chat_streams(void **state)
{
    (void)state;
    struct openai_answer answer = answer_of(OPENAI_CHAT);
    struct openai_choice choice = {.index = 1};
    struct openai_piece piece = text_piece("h\xc3\xa9\n");
    openai_chunk(&out, &answer, &choice, &piece);
    piece = text_piece("b");
    openai_chunk(&out, &answer, &choice, &piece);
    openai_chunk_end(&out, &answer, &choice, FINISH_EOS, &piece.usage);
    assert_string_equal(
        out.data,
        CHAT_HEAD "[{\"index\":1,\"delta\":{\"role\":\"assistant\",\"content\":\"h\xc3\xa9\\n\"},"
                  "\"logprobs\":null,\"finish_reason\":null}]}\n\n" CHAT_HEAD
                  "[{\"index\":1,\"delta\":{\"content\":\"b\"},\"logprobs\":null,"
                  "\"finish_reason\":null}]}\n\n" CHAT_HEAD
                  "[{\"index\":1,\"delta\":{},\"logprobs\":null,\"finish_reason\":\"stop\"}]}\n\n");
}

static void test_a_completion_streams_with_usage(void **state)
{
    (void)state;
    struct openai_answer answer = answer_of(OPENAI_COMPLETION);
    struct openai_choice choice = {.index = 0};
    struct openai_piece piece = text_piece("a");
    struct openai_usage usage = {5, 2, 4, 1};
    answer.include_usage = true;
    openai_chunk(&out, &answer, &choice, &piece);
    answer.continuous_usage = true;
    openai_chunk_end(&out, &answer, &choice, FINISH_MAX_TOKENS, &usage);
    openai_chunk_usage(&out, &answer, &usage);
    assert_string_equal(
        out.data,
        TEXT_HEAD "[{\"index\":0,\"text\":\"a\",\"logprobs\":null,\"finish_reason\":null}],"
                  "\"usage\":null}\n\n" TEXT_HEAD
                  "[{\"index\":0,\"text\":\"\",\"logprobs\":null,\"finish_reason\":\"length\"}],"
                  "\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":2,\"total_tokens\":7,"
                  "\"prompt_tokens_details\":{\"cached_tokens\":4},\"completion_tokens_details\":"
                  "{\"reasoning_tokens\":1}}}"
                  "\n\n" TEXT_HEAD
                  "[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":2,\"total_tokens\":7,"
                  "\"prompt_tokens_details\":{\"cached_tokens\":4},\"completion_tokens_details\":"
                  "{\"reasoning_tokens\":1}}}"
                  "\n\n");
    assert_null(strchr(out.data, '\r'));
}

static void test_an_answer_without_text_still_has_its_role(void **state)
{
    (void)state;
    struct openai_answer answer = answer_of(OPENAI_CHAT);
    struct openai_choice choice = {.index = 0};
    openai_chunk_end(&out, &answer, &choice, FINISH_EOS,
                     &(struct openai_usage){.prompt_tokens = 1, .completion_tokens = 1});
    assert_non_null(strstr(out.data, "\"delta\":{\"role\":\"assistant\",\"content\":\"\"}"));
    /* The same as in a whole object: an answer that ends in reasoning that isn't shown has none. */
    str_clear(&out);
    choice = (struct openai_choice){.index = 0, .reasoned = true};
    openai_chunk_end(&out, &answer, &choice, FINISH_MAX_TOKENS,
                     &(struct openai_usage){.prompt_tokens = 1, .completion_tokens = 1});
    assert_non_null(strstr(out.data, "\"delta\":{\"role\":\"assistant\",\"content\":null},"
                                     "\"logprobs\":null,\"finish_reason\":\"length\"}"));
}

static void test_tool_calls_stream(void **state)
{
    (void)state;
    struct openai_answer answer = answer_of(OPENAI_CHAT);
    struct openai_choice choice = {.index = 0};
    struct tool_event call = {.kind = TOOL_CALL, .index = 0, .text = "get", .length = 3};
    struct tool_event more = {.kind = TOOL_ARGUMENTS, .index = 0, .text = "{\"a\"", .length = 4};
    char id[32], expected[600];
    openai_chunk(&out, &answer, &choice, &(struct openai_piece){.event = &call});
    openai_chunk(&out, &answer, &choice, &(struct openai_piece){.event = &more});
    openai_chunk_end(&out, &answer, &choice, FINISH_EOS,
                     &(struct openai_usage){.prompt_tokens = 1, .completion_tokens = 1});
    openai_call_id(&answer, 0, 0, id);
    snprintf(expected, sizeof expected,
             "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"index\":0,\"id\":\"%s\","
             "\"type\":\"function\",\"function\":{\"name\":\"get\",\"arguments\":\"\"}}]}",
             id);
    assert_non_null(strstr(out.data, expected));
    assert_non_null(strstr(
        out.data, "{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"{\\\"a\\\"\"}}]}"));
    assert_non_null(strstr(out.data, "\"finish_reason\":\"tool_calls\""));
}

static void test_ids_of_calls(void **state)
{
    (void)state;
    struct openai_answer answer = answer_of(OPENAI_CHAT);
    char one[32], same[32], other[32];
    openai_call_id(&answer, 0, 0, one);
    openai_call_id(&answer, 0, 0, same);
    openai_call_id(&answer, 0, 1, other);
    assert_string_equal(one, same);
    assert_string_not_equal(one, other);
    assert_int_equal(strlen(one), 29);
    assert_memory_equal(one, "call_", 5);
    answer.tools = TOOL_FORMAT_MISTRAL;
    openai_call_id(&answer, 0, 0, one);
    assert_int_equal(strlen(one), 9);
    assert_int_equal(strspn(one, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"),
                     9);
}

static void test_one_object(void **state)
{
    (void)state;
    struct openai_answer answer = answer_of(OPENAI_CHAT);
    struct openai_whole whole;
    const struct openai_whole *wholes[] = {&whole};
    char id[32], expected[900];
    openai_whole_init(&whole, 0, 4096);
    openai_whole_event(&whole, &answer, &(struct tool_event){TOOL_TEXT, 0, "so: ", 4});
    openai_whole_event(&whole, &answer, &(struct tool_event){TOOL_CALL, 0, "f", 1});
    openai_whole_event(&whole, &answer, &(struct tool_event){TOOL_ARGUMENTS, 0, "{\"a\":", 5});
    openai_whole_event(&whole, &answer, &(struct tool_event){TOOL_ARGUMENTS, 0, "1}", 2});
    whole.finish = FINISH_STOP_STRING;
    openai_object(&out, &answer, wholes, 1,
                  &(struct openai_usage){.prompt_tokens = 3, .completion_tokens = 4});
    openai_call_id(&answer, 0, 0, id);
    snprintf(expected, sizeof expected,
             "{\"id\":\"chatcmpl-r1\",\"object\":\"chat.completion\",\"created\":1700000000,"
             "\"model\":\"m\\\"x\",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\","
             "\"content\":\"so: \",\"refusal\":null,\"tool_calls\":[{\"id\":\"%s\",\"type\":"
             "\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":1}\"}}]},"
             "\"logprobs\":null,\"finish_reason\":\"tool_calls\"}],\"usage\":{\"prompt_tokens\":3,"
             "\"completion_tokens\":4,\"total_tokens\":7,\"prompt_tokens_details\":{"
             "\"cached_tokens\":0},\"completion_tokens_details\":{\"reasoning_tokens\":0}}}\n",
             id);
    assert_string_equal(out.data, expected);
    openai_whole_deinit(&whole);
}

/* Reasoning has a member of its own, and chunks of its own. */
static void test_reasoning(void **state)
{
    (void)state;
    struct openai_answer answer = answer_of(OPENAI_CHAT);
    struct openai_choice choice = {.index = 0};
    struct openai_piece thought = text_piece("so"), said = text_piece("yes");
    struct openai_whole whole;
    const struct openai_whole *wholes[] = {&whole};
    answer.reasoning = thought.reasoning = true;
    openai_chunk(&out, &answer, &choice, &thought);
    openai_chunk(&out, &answer, &choice, &thought);
    openai_chunk(&out, &answer, &choice, &said);
    assert_non_null(strstr(out.data, "\"delta\":{\"role\":\"assistant\",\"content\":null,"
                                     "\"reasoning_content\":\"so\"},"));
    assert_non_null(strstr(out.data, "\"delta\":{\"reasoning_content\":\"so\"},"));
    assert_non_null(strstr(out.data, "\"delta\":{\"content\":\"yes\"},"));
    static const struct {
        const char *reasoning, *text, *message;
    } rows[] = {
        {"so", "yes", "\"content\":\"yes\",\"reasoning_content\":\"so\",\"refusal\""},
        {"so", "", "\"content\":null,\"reasoning_content\":\"so\",\"refusal\""},
        {"", "yes", "\"content\":\"yes\",\"reasoning_content\":null,\"refusal\""},
        {"", "", "\"content\":\"\",\"reasoning_content\":null,\"refusal\""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        openai_whole_init(&whole, 0, 4096);
        str_add(&whole.reasoning, rows[i].reasoning);
        str_add(&whole.text, rows[i].text);
        whole.choice.reasoned = *rows[i].reasoning;
        whole.finish = FINISH_EOS;
        str_clear(&out);
        openai_object(&out, &answer, wholes, 1,
                      &(struct openai_usage){.prompt_tokens = 2, .completion_tokens = 2});
        assert_non_null(strstr(out.data, rows[i].message));
        openai_whole_deinit(&whole);
    }
    answer.reasoning = false; /* left out: the content is still null */
    openai_whole_init(&whole, 0, 4096);
    whole.choice.reasoned = true;
    str_clear(&out);
    openai_object(&out, &answer, wholes, 1, &(struct openai_usage){.completion_tokens = 2});
    assert_non_null(strstr(out.data, "\"content\":null,\"refusal\""));
    openai_whole_deinit(&whole);
    openai_whole_init(&whole, 0, 4);
    str_add(&whole.reasoning, "12345");
    assert_true(openai_whole_truncated(&whole));
    openai_whole_deinit(&whole);
}

static void test_what_is_too_large_is_told(void **state)
{
    (void)state;
    struct openai_answer answer = answer_of(OPENAI_COMPLETION);
    struct openai_whole whole;
    openai_whole_init(&whole, 0, 4);
    openai_whole_event(&whole, &answer, &(struct tool_event){TOOL_TEXT, 0, "1234", 4});
    assert_false(openai_whole_truncated(&whole));
    openai_whole_event(&whole, &answer, &(struct tool_event){TOOL_TEXT, 0, "5", 1});
    assert_true(openai_whole_truncated(&whole));
    openai_whole_deinit(&whole);
}

static void test_logprobs_in_both_shapes(void **state)
{
    (void)state;
    const struct openai_token top[] = {
        {.id = 5, .bytes = "\xc3\xa9", .length = 2, .logprob = -0.5f, .has_logprob = true},
        {.id = 6, .bytes = "\xc3", .length = 1, .logprob = -9999.0f, .has_logprob = true},
        {.id = 7, .bytes = "\xe2", .length = 1, .logprob = -9999.0f, .has_logprob = true}};
    const struct openai_token tokens[] = {{.id = 5, .bytes = "\xc3\xa9", .length = 2},
                                          {.id = 8,
                                           .bytes = "b",
                                           .length = 1,
                                           .logprob = -0.25f,
                                           .has_logprob = true,
                                           .top_count = 3,
                                           .top = top}};
    size_t offset = 10;
    openai_logprobs_completion(&out, tokens, 2, &offset);
    assert_string_equal(out.data,
                        "{\"tokens\":[\"\xc3\xa9\",\"b\"],\"token_logprobs\":[null,-0.25],"
                        "\"top_logprobs\":[null,{\"\xc3\xa9\":-0.5,\"\xef\xbf\xbd\":-9999,"
                        "\"token_id:7\":-9999,\"b\":-0.25}],\"text_offset\":[10,11]}");
    assert_int_equal(offset, 12);
    struct openai_token likely = top[0], alone = tokens[1];
    likely.top = top; /* which it is one of */
    likely.top_count = 1;
    alone.top_count = 0;
    str_clear(&out);
    openai_logprobs_completion(&out, &likely, 1, &offset);
    assert_non_null(strstr(out.data, "\"top_logprobs\":[{\"\xc3\xa9\":-0.5}]"));
    str_clear(&out);
    openai_logprobs_completion(&out, &alone, 1, &offset);
    assert_non_null(strstr(out.data, "\"top_logprobs\":[{\"b\":-0.25}]"));
    likely.id = 9; /* another token of the same text, drawn */
    str_clear(&out);
    openai_logprobs_completion(&out, &likely, 1, &offset);
    assert_non_null(strstr(out.data, "\"top_logprobs\":[{\"\xc3\xa9\":-0.5,\"token_id:9\":-0.5}]"));
    str_clear(&out);
    openai_logprobs_chat(&out, tokens + 1, 1);
    assert_string_equal(
        out.data,
        "{\"content\":[{\"token\":\"b\",\"logprob\":-0.25,\"bytes\":[98],\"top_logprobs\":["
        "{\"token\":\"\xc3\xa9\",\"logprob\":-0.5,\"bytes\":[195,169]},"
        "{\"token\":\"\xef\xbf\xbd\",\"logprob\":-9999,\"bytes\":[195]},"
        "{\"token\":\"\xef\xbf\xbd\",\"logprob\":-9999,\"bytes\":[226]}]}],"
        "\"refusal\":null}");
}

static void test_token_ids(void **state)
{
    (void)state;
    static const uint32_t said[] = {7, 4000000000u}, asked[] = {1, 2};
    const struct openai_token_ids ids = {said, 2}, prompt = {asked, 2};
    for (int chat = 0; chat < 2; chat++) {
        struct openai_answer answer = answer_of(chat ? OPENAI_CHAT : OPENAI_COMPLETION);
        struct openai_choice choice = {.index = 0};
        struct openai_piece piece = text_piece("a");
        struct openai_whole whole;
        const struct openai_whole *wholes[] = {&whole};
        answer.token_ids = true;
        piece.ids = ids;
        piece.prompt = prompt;
        str_clear(&out);
        openai_chunk(&out, &answer, &choice, &piece);
        assert_non_null(
            strstr(out.data, chat ? "\"finish_reason\":null,\"token_ids\":[7,4000000000]}],"
                                    "\"prompt_token_ids\":[1,2]}\n"
                                  : "\"finish_reason\":null,\"prompt_token_ids\":[1,2],"
                                    "\"token_ids\":[7,4000000000]}]}\n"));
        str_clear(&out);
        piece.ids.count = 0;
        openai_chunk(&out, &answer, &choice, &piece); /* the prompt's once */
        openai_chunk_end(&out, &answer, &choice, FINISH_EOS,
                         &(struct openai_usage){.prompt_tokens = 1, .completion_tokens = 1});
        assert_non_null(strstr(out.data, "\"finish_reason\":null,\"token_ids\":[]}]}\n"));
        assert_non_null(strstr(out.data, "\"finish_reason\":\"stop\"}]}\n"));
        openai_whole_init(&whole, 0, 4096);
        whole.finish = FINISH_EOS;
        openai_whole_ids(&whole, &prompt, &ids);
        str_clear(&out);
        openai_object(&out, &answer, wholes, 1,
                      &(struct openai_usage){.prompt_tokens = 2, .completion_tokens = 2});
        assert_non_null(strstr(out.data, chat ? "\"stop\",\"token_ids\":[7,4000000000]}],"
                                                "\"prompt_token_ids\":[1,2],\"usage\""
                                              : "\"stop\",\"prompt_token_ids\":[1,2],"
                                                "\"token_ids\":[7,4000000000]}],\"usage\""));
        openai_whole_deinit(&whole);
        openai_whole_init(&whole, 0, 12); /* "[7,4000000000" are more */
        openai_whole_ids(&whole, &prompt, &ids);
        assert_true(openai_whole_truncated(&whole));
        openai_whole_deinit(&whole);
    }
}

/* Every reason that a request may end with has a status that the packages of OpenAI treat as it is
 * meant. */
static void test_statuses(void **state)
{
    (void)state;
    static const struct {
        enum reason reason;
        int http;
        const char *type;
        bool retry;
    } rows[] = {
        {REASON_MALFORMED, 400, "invalid_request_error", false},
        {REASON_CONTEXT_LENGTH_EXCEEDED, 400, "invalid_request_error", false},
        {REASON_UNSUPPORTED_PARAMETER, 400, "invalid_request_error", false},
        {REASON_NO_TOKENIZER, 400, "invalid_request_error", false},
        {REASON_MODEL_NOT_FOUND, 404, "not_found_error", false},
        {REASON_TEXT_TOO_LONG, 413, "invalid_request_error", false},
        {REASON_OVERLOADED, 503, "overloaded_error", true},
        {REASON_INVALID_API_KEY, 401, "authentication_error", false},
        {REASON_PRIORITY_NOT_ALLOWED, 403, "permission_error", false},
        {REASON_RATE_LIMITED, 429, "rate_limit_error", true},
        {REASON_SLO_UNATTAINABLE, 429, "rate_limit_error", true},
        {REASON_QUOTA, 429, "rate_limit_error", false},
        {REASON_NO_WORKERS, 503, "service_unavailable", true},
        {REASON_WORKERS_LOST, 503, "service_unavailable", true},
        {REASON_DRAINING, 503, "service_unavailable", true},
        {REASON_DEADLINE, 504, "timeout_error", false},
        {REASON_INTERNAL, 500, "server_error", false},
        {REASON_STEP_FAILED, 500, "server_error", false},
        {REASON_ANSWER_TOO_LARGE, 400, "invalid_request_error", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct openai_status status = openai_status_of(rows[i].reason);
        assert_int_equal(status.http, rows[i].http);
        assert_string_equal(status.type, rows[i].type);
        assert_int_equal(status.should_retry, rows[i].retry);
        assert_int_equal(status.retry_after_ms != 0, rows[i].retry);
    }
    assert_int_equal(openai_status_after(REASON_RATE_LIMITED, 20).retry_after_ms, 20000);
    assert_int_equal(openai_status_after(REASON_RATE_LIMITED, 0).retry_after_ms, 1000);
    for (int reason = REASON_NONE + 1; reason < REASON_COUNT; reason++) {
        struct openai_status status = openai_status_of(reason);
        assert_true(status.http >= 400 && status.http <= 504);
        assert_true(status.http != 408 && status.http != 409 && status.http != 501);
    }
}

static void test_errors(void **state)
{
    (void)state;
    openai_error_json(&out, REASON_MODEL_NOT_FOUND, "model", "no \"x\" here");
    assert_string_equal(out.data, "{\"error\":{\"message\":\"no \\\"x\\\" here\",\"type\":"
                                  "\"not_found_error\",\"param\":\"model\",\"code\":"
                                  "\"model_not_found\"}}");
    str_clear(&out);
    openai_chunk_error(&out, REASON_WORKERS_LOST, "gone");
    assert_string_equal(out.data, "data: {\"error\":{\"message\":\"gone\",\"type\":"
                                  "\"service_unavailable\",\"param\":null,\"code\":"
                                  "\"workers_lost\"}}\n\ndata: [DONE]\n\n");
}

static void test_models(void **state)
{
    (void)state;
    const struct request_model model = {.name = "a/b", .context = 2048};
    const struct request_model *models[] = {&model};
    openai_models_json(&out, models, 1, 7);
    assert_string_equal(out.data,
                        "{\"object\":\"list\",\"data\":[{\"id\":\"a/b\",\"object\":\"model\","
                        "\"created\":7,\"owned_by\":\"baton\",\"root\":\"a/b\",\"parent\":null,"
                        "\"max_model_len\":2048}]}\n");
}

static const char *text_of(const void *context, uint32_t id, size_t *length)
{
    (void)context;
    *length = 1;
    return id == 1 ? "a" : NULL;
}

static void test_tokenizing(void **state)
{
    (void)state;
    static const uint32_t ids[] = {1, 2};
    const struct openai_token_strings strings = {text_of, NULL};
    openai_tokenize_json(&out, ids, 2, 64, NULL);
    openai_tokenize_json(&out, ids, 2, 64, &strings);
    openai_tokenize_json(&out, ids, 0, 64, &strings);
    openai_detokenize_json(&out, "a\"", 2);
    assert_string_equal(
        out.data,
        "{\"count\":2,\"max_model_len\":64,\"tokens\":[1,2],\"token_strs\":null}\n"
        "{\"count\":2,\"max_model_len\":64,\"tokens\":[1,2],\"token_strs\":[\"a\",\"\"]}\n"
        "{\"count\":0,\"max_model_len\":64,\"tokens\":[],\"token_strs\":[]}\n"
        "{\"prompt\":\"a\\\"\"}\n");
}

static void test_what_is_asked_of_tokenizing(void **state)
{
    (void)state;
    static const struct {
        const char *body;
        enum reason reason;
    } rows[] = {
        {"{\"prompt\":\"a\",\"add_special_tokens\":false}", REASON_NONE},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"model\":null}", REASON_NONE},
        {"{\"prompt\":5}", REASON_MALFORMED},
        {"{}", REASON_MISSING_INPUT},
        {"{\"messages\":[]}", REASON_EMPTY_PROMPT},
        {"nothing", REASON_MALFORMED},
        {"[1]", REASON_MALFORMED},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct openai_tokenize asked;
        struct openai_refusal refusal;
        bool fine =
            openai_tokenize_read(&asked, rows[i].body, strlen(rows[i].body), 1000, &refusal);
        if (fine)
            openai_tokenize_deinit(&asked);
        if (refusal.reason != rows[i].reason || fine != !refusal.reason)
            fail_msg("%s: %s", rows[i].body, refusal.err.text);
    }
    struct openai_detokenize asked;
    struct openai_refusal refusal;
    const char body[] = "{\"tokens\":[1,2.0]}", wrong[] = "{\"tokens\":[1,\"2\"]}";
    assert_true(openai_detokenize_read(&asked, body, strlen(body), 1000, &refusal));
    assert_int_equal(asked.id_count, 2);
    assert_int_equal(asked.ids[1], 2);
    openai_detokenize_deinit(&asked);
    assert_false(openai_detokenize_read(&asked, wrong, strlen(wrong), 1000, &refusal));
    assert_int_equal(refusal.reason, REASON_INVALID_TOKEN_ID);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_chat_streams),
        TEST(test_a_completion_streams_with_usage),
        TEST(test_reasoning),
        TEST(test_an_answer_without_text_still_has_its_role),
        TEST(test_tool_calls_stream),
        TEST(test_ids_of_calls),
        TEST(test_one_object),
        TEST(test_what_is_too_large_is_told),
        TEST(test_logprobs_in_both_shapes),
        TEST(test_token_ids),
        TEST(test_statuses),
        TEST(test_errors),
        TEST(test_models),
        TEST(test_tokenizing),
        TEST(test_what_is_asked_of_tokenizing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
