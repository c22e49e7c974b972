/* tool_shape: the constraint on an answer that must call, and that the parser reads the answer: for
 * each family, from a body to a constraint to calls. */
#include "router/doors/openai/tool_shape.h"

#include "common/language/constrain/constraint.h"
#include "router/doors/request_constraint.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MAX_BYTES (1u << 20)
#define BODY(more)                                                                                 \
    "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"tools\":["                            \
    "{\"type\":\"function\",\"function\":{\"name\":\"get\",\"parameters\":{\"type\":\"object\","   \
    "\"properties\":{\"n\":{\"type\":\"integer\"}},\"required\":[\"n\"]}}},"                       \
    "{\"type\":\"function\",\"function\":{\"name\":\"put\"}}]," more "}"
#define REQUIRED BODY("\"tool_choice\":\"required\"")
#define SINGLE   BODY("\"tool_choice\":\"required\",\"parallel_tool_calls\":false")
#define NAMED    BODY("\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"put\"}}")

/* Texts that templates write for our call. */
#define ARGUMENTS "{\"zqkey\": \"zqvalue\"}"
static const char hermes[] =
    "<tool_call>\n{\"name\": \"zqname\", \"arguments\": " ARGUMENTS "}\n</tool_call><|im_end|>",
                  llama[] = "{\"name\": \"zqname\", \"parameters\": " ARGUMENTS "}<|eot_id|>",
                  bare[] = "{\"name\": \"zqname\", \"arguments\": " ARGUMENTS "}",
                  mistral[] = "[TOOL_CALLS][{\"name\": \"zqname\", \"arguments\": " ARGUMENTS "}]",
                  spaced[] = "[TOOL_CALLS] [{\"name\": \"zqname\", \"arguments\": " ARGUMENTS "}]",
                  named[] = "[TOOL_CALLS]zqname[ARGS]" ARGUMENTS,
                  ids[] = "[TOOL_CALLS]zqname[CALL_ID]zqcallid1[ARGS]" ARGUMENTS,
                  deepseek[] = DEEPSEEK_CALLS_BEGIN DEEPSEEK_CALL_BEGIN
                  "function" DEEPSEEK_SEPARATOR "zqname\n```json\n" ARGUMENTS
                  "\n```" DEEPSEEK_CALL_END DEEPSEEK_CALLS_END;
#define DEEPSEEK_CALL(name, arguments)                                                             \
    DEEPSEEK_CALL_BEGIN "function" DEEPSEEK_SEPARATOR name "\n```json\n" arguments                 \
                        "\n```" DEEPSEEK_CALL_END

static struct chat_forms forms_of(const char *calls)
{
    struct chat_forms forms = {.text_arguments = false};
    assert_true(str_copy(forms.calls, sizeof forms.calls, calls));
    return forms;
}

static void read_body(struct openai_request *request, const char *body)
{
    struct openai_refusal refusal;
    if (!openai_request_read(request, OPENAI_CHAT, body, strlen(body), MAX_BYTES, &refusal))
        fail_msg("%s: %s", body, refusal.err.text);
}

static struct constraint *compile(const struct openai_request *request)
{
    static const struct request_model model = {.name = "m", .tokens_have_text = true};
    struct constraint_source *source;
    struct constraint *constraint;
    struct error err;
    if (request_constraint_read(NULL, request->message.constraint, &model, &source, &err) ||
        constraint_compile(source->kind, source->text, source->length, &constraint, &err) !=
            STATUS_OK)
        fail_msg("%s", err.text);
    free(source);
    return constraint;
}

static bool takes(const struct constraint *constraint, const char *answer)
{
    struct constraint_state state;
    constraint_state_init(constraint, &state);
    return constraint_state_take(constraint, &state, answer, strlen(answer)) &&
           constraint_state_may_end(constraint, &state);
}

static void on_event(void *context, const struct tool_event *event)
{
    struct str *heard = context;
    static const char *const marks[] = {
        [TOOL_TEXT] = " text:", [TOOL_CALL] = " ", [TOOL_ARGUMENTS] = "="};
    str_addf(heard, "%s%.*s", marks[event->kind], (int)event->length, event->text);
}

static void check_heard(enum tool_format format, const char *answer, const char *want)
{
    static const char *const names[] = {"get", "put"};
    struct str heard;
    str_init(&heard, MAX_BYTES);
    struct tool_parser parser;
    struct tool_parser_config config = {
        .format = format, .names = names, .name_count = 2, .event = on_event, .context = &heard};
    tool_parser_init(&parser, &config);
    tool_parser_push(&parser, answer, strlen(answer));
    tool_parser_end(&parser, false);
    assert_string_equal(heard.data, want);
    tool_parser_deinit(&parser);
    str_deinit(&heard);
}

static const struct {
    const char *source, *body, *answer;
    const char *heard; /* NULL: not taken */
} rows[] = {
    {hermes, REQUIRED, "<tool_call>\n{\"name\": \"get\", \"arguments\": {\"n\": 1}}\n</tool_call>",
     " get={\"n\": 1}"},
    {hermes, REQUIRED,
     "<tool_call>\n{\"name\": \"get\", \"arguments\": {\"n\": 1}}\n</tool_call>\n"
     "<tool_call>\n{\"name\": \"put\", \"arguments\": {}}\n</tool_call>",
     " get={\"n\": 1} put={}"},
    {hermes, SINGLE,
     "<tool_call>\n{\"name\": \"put\", \"arguments\": {}}\n</tool_call>\n"
     "<tool_call>\n{\"name\": \"put\", \"arguments\": {}}\n</tool_call>",
     NULL},
    {hermes, REQUIRED, "<tool_call>\n{\"name\": \"get\", \"arguments\": {}}\n</tool_call>", NULL},
    {hermes, REQUIRED, "<tool_call>\n{\"name\": \"ge\", \"arguments\": {}}\n</tool_call>", NULL},
    {hermes, REQUIRED, "Sure.", NULL},
    {hermes, NAMED, "<tool_call>\n{\"name\": \"put\", \"arguments\": {}}\n</tool_call>", " put={}"},
    {hermes, NAMED, "<tool_call>\n{\"name\": \"put\", \"arguments\": {\"a\":1}}\n</tool_call>",
     NULL},
    {hermes, NAMED, "<tool_call>\n{\"name\": \"get\", \"arguments\": {\"n\": 1}}\n</tool_call>",
     NULL},
    {llama, REQUIRED, "{\"name\": \"get\", \"parameters\": {\"n\":-5}}", " get={\"n\":-5}"},
    {llama, REQUIRED,
     "{\"name\": \"put\", \"parameters\": {}};{\"name\": \"put\", \"parameters\": {}}", NULL},
    {llama, NAMED, "{\"name\": \"put\", \"parameters\": {}}", " put={}"},
    {mistral, REQUIRED,
     "[TOOL_CALLS][{\"name\": \"get\", \"arguments\": {\"n\": 1}}, {\"name\": \"put\", "
     "\"arguments\": {}}]",
     " get={\"n\": 1} put={}"},
    {mistral, SINGLE, "[TOOL_CALLS][{\"name\": \"put\", \"arguments\": {}}]", " put={}"},
    {mistral, NAMED,
     "[TOOL_CALLS][{\"name\": \"put\", \"arguments\": {}}, {\"name\": \"put\", \"arguments\": {}}]",
     NULL},
    {spaced, REQUIRED, "[TOOL_CALLS] [{\"name\": \"put\", \"arguments\": {}}]", " put={}"},
    {named, REQUIRED, "[TOOL_CALLS]get[ARGS]{\"n\": 1}[TOOL_CALLS]put[ARGS]{}",
     " get={\"n\": 1} put={}"},
    {named, SINGLE, "[TOOL_CALLS]put[ARGS]{}[TOOL_CALLS]put[ARGS]{}", NULL},
    {bare, REQUIRED, "{\"name\": \"get\", \"arguments\": {\"n\":-5}}", " get={\"n\":-5}"},
    {deepseek, REQUIRED,
     DEEPSEEK_CALLS_BEGIN DEEPSEEK_CALL("get", "{\"n\": 1}") "\n" DEEPSEEK_CALL("put", "{}")
         DEEPSEEK_CALLS_END,
     " get={\"n\": 1} put={}"},
    {deepseek, SINGLE,
     DEEPSEEK_CALLS_BEGIN DEEPSEEK_CALL("put", "{}") "\n" DEEPSEEK_CALL("put", "{}")
         DEEPSEEK_CALLS_END,
     NULL},
};

static void test_answers_are_kept_to_calls_that_are_read(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct chat_forms forms = forms_of(rows[i].source);
        enum tool_format format = tool_format_of(&forms);
        struct openai_request request;
        struct openai_refusal refusal = {.reason = REASON_NONE};
        read_body(&request, rows[i].body);
        assert_true(tool_shape_constrain(tool_shape_of(format, &forms), &request, &refusal));
        struct constraint *constraint = compile(&request);
        if (takes(constraint, rows[i].answer) != (rows[i].heard != NULL))
            fail_msg("row %zu: %s", i, rows[i].answer);
        if (rows[i].heard)
            check_heard(format, rows[i].answer, rows[i].heard);
        constraint_destroy(constraint);
        openai_request_deinit(&request);
    }
}

static void check_refused(const char *source, const char *body, enum reason reason,
                          const char *param)
{
    struct openai_request request;
    struct openai_refusal refusal = {.reason = REASON_NONE};
    struct chat_forms forms = forms_of(source);
    read_body(&request, body);
    assert_false(
        tool_shape_constrain(tool_shape_of(tool_format_of(&forms), &forms), &request, &refusal));
    assert_int_equal(refusal.reason, reason);
    assert_string_equal(refusal.param, param);
    openai_request_deinit(&request);
}

static void test_what_is_refused(void **state)
{
    (void)state;
    struct chat_forms none = forms_of(""), with_ids = forms_of(ids);
    assert_null(tool_shape_of(TOOL_FORMAT_NONE, &none));
    assert_int_equal(tool_format_of(&with_ids), TOOL_FORMAT_MISTRAL);
    assert_null(tool_shape_of(TOOL_FORMAT_MISTRAL, &with_ids));
    check_refused(hermes, BODY("\"tool_choice\":\"required\",\"guided_regex\":\"a\""),
                  REASON_MALFORMED, "guided_regex");
    static const char odd[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"tool_choice\":\"required\","
        "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a b\"}}]}";
    check_refused(named, odd, REASON_INVALID_CONSTRAINT, "tools");
}

/* A response format is for text, and there is no text. */
static void test_a_response_format_gives_way(void **state)
{
    (void)state;
    struct openai_request request;
    struct openai_refusal refusal = {.reason = REASON_NONE};
    struct chat_forms forms = forms_of(llama);
    read_body(&request, BODY("\"tool_choice\":\"required\",\"skip_special_tokens\":true,"
                             "\"response_format\":{\"type\":\"json_object\"}"));
    assert_true(
        tool_shape_constrain(tool_shape_of(TOOL_FORMAT_LLAMA3, &forms), &request, &refusal));
    assert_int_equal(request.message.constraint->kind_case, BATON__V1__CONSTRAINT__KIND_TOOL_CALLS);
    assert_string_equal(request.constraint_param, "tools");
    assert_false(request.output.skip_special_tokens);
    openai_request_deinit(&request);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers_are_kept_to_calls_that_are_read),
        cmocka_unit_test(test_what_is_refused),
        cmocka_unit_test(test_a_response_format_gives_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
