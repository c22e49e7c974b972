/* tool_parser: the published formats, text that is no call, and that cuts of the text don't change
 * the result. */
#include "router/doors/openai/tool_parser.h"

#include "common/base/utf8.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* "text|0:name(arguments)|text": the received parts, joined. */
struct heard {
    struct str text;
    enum tool_event_kind last;
    bool any;
    bool characters;    /* the input came in whole ones */
    unsigned arguments; /* events of arguments */
};

static void on_event(void *context, const struct tool_event *event)
{
    struct heard *heard = context;
    bool same = heard->any && heard->last == event->kind && event->kind != TOOL_CALL;
    assert_true(event->length);
    if (heard->characters)
        assert_true(utf8_valid(event->text, event->length, NULL));
    if (event->kind == TOOL_CALL)
        str_addf(&heard->text, "|%u:", event->index);
    else if (event->kind == TOOL_ARGUMENTS)
        str_add(&heard->text, same ? "" : "=");
    else
        str_add(&heard->text, same ? "" : "|");
    heard->arguments += event->kind == TOOL_ARGUMENTS;
    str_append(&heard->text, event->text, event->length);
    heard->last = event->kind;
    heard->any = true;
}

/* Bytes of the next piece: `step`, and with `characters` the rest of the last one. */
static size_t piece_of(const char *text, size_t length, size_t step, bool characters)
{
    size_t count = step && step < length ? step : length;
    while (characters && count < length && (text[count] & 0xc0) == 0x80)
        count++;
    return count;
}

/* In pieces of `step` bytes, or of the characters that these begin; 0: at once. */
static void parse_bytes(enum tool_format format, struct text input, size_t step, bool characters,
                        bool cut, struct heard *heard)
{
    static const char *const names[] = {"get", "put"};
    struct tool_parser_config config = {
        .format = format, .names = names, .name_count = 2, .event = on_event, .context = heard};
    struct tool_parser parser;
    const char *text = input.bytes;
    size_t length = input.length;
    *heard = (struct heard){.characters = characters};
    str_init(&heard->text, 1u << 20);
    tool_parser_init(&parser, &config);
    for (size_t at = 0, count; at < length; at += count) {
        count = piece_of(text + at, length - at, step, characters);
        tool_parser_push(&parser, text + at, count);
    }
    tool_parser_end(&parser, cut);
    tool_parser_deinit(&parser);
}

/* In pieces of bytes: nothing else comes of it than of whole characters. */
static void parse_to(enum tool_format format, const char *text, size_t step, bool cut,
                     struct heard *heard)
{
    struct heard whole;
    parse_bytes(format, text_from(text), step, false, cut, heard);
    parse_bytes(format, text_from(text), step, true, cut, &whole);
    assert_int_equal(heard->text.length, whole.text.length);
    assert_memory_equal(heard->text.data, whole.text.data, whole.text.length);
    str_deinit(&whole.text);
}

static void parse(enum tool_format format, const char *text, size_t step, struct heard *heard)
{
    parse_to(format, text, step, false, heard);
}

#define HERMES  TOOL_FORMAT_HERMES
#define LLAMA   TOOL_FORMAT_LLAMA3
#define MISTRAL TOOL_FORMAT_MISTRAL

#define DEEPSEEK     TOOL_FORMAT_DEEPSEEK
#define CALLS(calls) DEEPSEEK_CALLS_BEGIN calls DEEPSEEK_CALLS_END
#define CALL(name, arguments)                                                                      \
    DEEPSEEK_CALL_BEGIN "function" DEEPSEEK_SEPARATOR name "\n```json\n" arguments                 \
                        "\n```" DEEPSEEK_CALL_END

static const struct {
    enum tool_format format;
    const char *text, *heard;
} cases[] = {
    {TOOL_FORMAT_NONE, "<tool_call>{}</tool_call>", "|<tool_call>{}</tool_call>"},
    {HERMES, "just text", "|just text"},
    {HERMES, "", ""},
    {HERMES, "  \n", "|  \n"},
    {HERMES, "<tool_call>\n{\"name\": \"get\", \"arguments\": {\"a\": 1}}\n</tool_call>",
     "|0:get={\"a\": 1}"},
    {HERMES, "\n\n<tool_call>{\"name\":\"get\",\"arguments\":{}}</tool_call>\n", "|0:get={}"},
    {HERMES,
     "Let me see.\n<tool_call>{\"name\":\"get\",\"arguments\":{\"s\":\"}\\\"{\"}}</tool_call>",
     "|Let me see.\n|0:get={\"s\":\"}\\\"{\"}"},
    {HERMES,
     "<tool_call>{\"name\":\"get\",\"arguments\":{}}</"
     "tool_call>\n<tool_call>{\"name\":\"other\",\"arguments\":[1]}"
     "</tool_call>",
     "|0:get={}|\n<tool_call>{\"name\":\"other\",\"arguments\":[1]}</tool_call>"},
    {HERMES, "<tool_call>{\"arguments\":{\"a\":[{}]},\"id\":3,\"name\":\"get\"}</tool_call>",
     "|0:get={\"a\":[{}]}"},
    {HERMES, "<tool_call>{\"name\":\"get\"}</tool_call>", "|0:get={}"},
    {HERMES,
     "<tool_call>{\"name\":\"g\\u0065t\",\"parameters\":{\"\xc3\xa9\":\"\xe2\x82\xac\"}}</"
     "tool_call> done",
     "|0:get={\"\xc3\xa9\":\"\xe2\x82\xac\"}|done"},
    {HERMES, "<tool_call>{\"name\":\"get\",\"arguments\":{\"a\":", "|0:get={\"a\":"},
    {HERMES, "<tool_call>{\"name\":\"get\",\"arg", "|0:get={}"},
    {HERMES, "<tool_call>{\"nam", "|<tool_call>{\"nam"},
    {HERMES, "<tool_call>no json</tool_call>", "|<tool_call>no json</tool_call>"},
    {HERMES, "<tool_call>{\"name\":7}</tool_call>", "|<tool_call>{\"name\":7}</tool_call>"},
    {HERMES, "<tool_call>{}</tool_call>", "|<tool_call>{}</tool_call>"},
    {HERMES, "a <tool_cal b <tool", "|a <tool_cal b <tool"},
    /* Arguments are an object, or null, or the text of one of them. */
    {HERMES, "<tool_call>{\"name\":\"get\",\"arguments\":\"x\"}</tool_call>",
     "|<tool_call>{\"name\":\"get\",\"arguments\":\"x\"}</tool_call>"},
    {HERMES, "<tool_call>{\"name\":\"get\",\"arguments\":12 }</tool_call>",
     "|<tool_call>{\"name\":\"get\",\"arguments\":12 }</tool_call>"},
    {HERMES, "<tool_call>{\"name\":\"get\",\"arguments\":null}</tool_call>", "|0:get={}"},
    {HERMES, "<tool_call>{\"name\":\"get\",\"arguments\":\"null\"}</tool_call>", "|0:get={}"},
    {HERMES, "<tool_call>{\"name\":\"get\",\"arguments\":\"{\\\"a\\\": 1}\"}</tool_call>",
     "|0:get={\"a\": 1}"},
    {MISTRAL, "[TOOL_CALLS]get[ARGS]5", "|[TOOL_CALLS]get[ARGS]5"},
    {MISTRAL, "[TOOL_CALLS]get[ARGS] {\"a\":1}", "|0:get={\"a\":1}"},
    /* A wrong end of a call loses no text. */
    {HERMES, "<tool_call>\n{\"name\": \"get\", \"arguments\": {\"a\": 1}\n</tool_call> and more",
     "|0:get={\"a\": 1}|and more"},
    {HERMES, "<tool_call>{\"name\":\"get\",\"arguments\":{\"a\":1}}}</tool_call>\nmore",
     "|0:get={\"a\":1}|more"},
    {HERMES, "<tool_call>{\"name\":\"get\",\"arguments\":{\"a\":1}}\nmore </tool_call>",
     "|0:get={\"a\":1}|more </tool_call>"},
    {HERMES,
     "<tool_call>{\"name\":\"get\",\"arguments\":{}}\n<tool_call>{\"name\":\"put\"}</tool_call>",
     "|0:get={}|1:put={}"},
    {HERMES, "<tool_call>{\"name\":\"get\",\"arguments\":{} this is all", "|0:get={}|this is all"},
    {HERMES, "<tool_call>{\"name\":\"get\" \"arguments\":{}}</tool_call>",
     "|<tool_call>{\"name\":\"get\" \"arguments\":{}}</tool_call>"},
    {HERMES, "<tool_call>get\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n</tool_call>",
     "|<tool_call>get\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n</tool_call>"},
    /* Quotation marks and keys that aren't JSON's, of several bytes. */
    {HERMES, "<tool_call>{\u201cname\u201d: \u201cget\u201d}</tool_call>",
     "|<tool_call>{\u201cname\u201d: \u201cget\u201d}</tool_call>"},
    {HERMES, "<tool_call>{\"name\": \u201cget\u201d, \"arguments\": {}}</tool_call>",
     "|<tool_call>{\"name\": \u201cget\u201d, \"arguments\": {}}</tool_call>"},
    {HERMES, "<tool_call>{\"name\":\"get\",\"arguments\":{}\u3002</tool_call>",
     "|0:get={}|\u3002</tool_call>"},
    {LLAMA, "{\u540d\u79f0: \"get\"}", "|{\u540d\u79f0: \"get\"}"},
    {MISTRAL, "[TOOL_CALLS][\u201cget\u201d]", "|[TOOL_CALLS][\u201cget\u201d]"},
    {LLAMA, "{\"name\": \"get\", \"parameters\": {\"a\": 1}", "|0:get={\"a\": 1}"},
    {LLAMA, "{\"name\": \"get\", \"parameters\": {\"a\": 1} so", "|0:get={\"a\": 1}|so"},
    {LLAMA, "{\"name\":\"get\",\"parameters\":{}; {\"name\":\"put\",\"parameters\":{}}",
     "|0:get={}|1:put={}"},
    {MISTRAL, "[TOOL_CALLS][{\"name\":\"get\",\"arguments\":{\"a\":1}] so", "|0:get={\"a\":1}|so"},
    {DEEPSEEK, CALLS(CALL("get", "{\"a\": {}}")), "|0:get={\"a\": {}}"},
    {DEEPSEEK, "So.\n" CALLS(CALL("get", "{}") "\n" CALL("put", "{\"b\": \"`\"}")) " done",
     "|So.\n|0:get={}|1:put={\"b\": \"`\"}|done"},
    {DEEPSEEK, CALL("get", "{}") CALL("put", "{}"), "|0:get={}|1:put={}"},
    {DEEPSEEK, DEEPSEEK_CALL_BEGIN "function" DEEPSEEK_SEPARATOR "get\n{}" DEEPSEEK_CALL_END,
     "|0:get={}"},
    {DEEPSEEK, DEEPSEEK_CALL_BEGIN "function get {}", "|" DEEPSEEK_CALL_BEGIN "function get {}"},
    {DEEPSEEK, DEEPSEEK_CALLS_BEGIN "none", "|" DEEPSEEK_CALLS_BEGIN "none"},
    {DEEPSEEK, CALLS(CALL("get", "5")), "|" CALLS(CALL("get", "5"))},
    {LLAMA, "{\"name\": \"get\", \"parameters\": {\"a\": 1}}", "|0:get={\"a\": 1}"},
    {LLAMA, "<|python_tag|>{\"name\": \"get\", \"parameters\": {}}", "|0:get={}"},
    {LLAMA, " {\"name\":\"get\",\"parameters\":{}}; {\"name\":\"put\",\"parameters\":{\"b\":2}}",
     "|0:get={}|1:put={\"b\":2}"},
    {LLAMA, "{\"name\": \"nobody\", \"parameters\": {}}",
     "|{\"name\": \"nobody\", \"parameters\": {}}"},
    {LLAMA, "{\"answer\": 42}", "|{\"answer\": 42}"},
    {LLAMA, "I say {\"name\": \"get\", \"parameters\": {}}",
     "|I say {\"name\": \"get\", \"parameters\": {}}"},
    {LLAMA, "<|python_tag|>brave.call(q=\"x\")", "|<|python_tag|>brave.call(q=\"x\")"},
    {LLAMA, "{\"name\":\"get\",\"parameters\":{}} and so on", "|0:get={}|and so on"},
    {MISTRAL, "[TOOL_CALLS][{\"name\": \"get\", \"arguments\": {\"a\": 1}}]", "|0:get={\"a\": 1}"},
    {MISTRAL,
     "[TOOL_CALLS] [{\"name\":\"get\",\"arguments\":{}}, "
     "{\"name\":\"put\",\"arguments\":{\"x\":\"]\"}}]",
     "|0:get={}|1:put={\"x\":\"]\"}"},
    {MISTRAL, "Sure. [TOOL_CALLS]get[ARGS]{\"a\": {}}", "|Sure. |0:get={\"a\": {}}"},
    {MISTRAL, "[TOOL_CALLS]get{\"a\":1}[TOOL_CALLS]put[CALL_ID]abc123xyz[ARGS]{}",
     "|0:get={\"a\":1}|1:put={}"},
    {MISTRAL, "[TOOL_CALLS]get then", "|[TOOL_CALLS]get then"},
    {MISTRAL, "[TOOL_CALLS][]", "|[TOOL_CALLS][]"},
    {MISTRAL, "[TOOL_C", "|[TOOL_C"},
};

static void test_formats_however_they_are_cut(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (size_t step = 0; step < 14; step++) {
            struct heard heard;
            parse(cases[i].format, cases[i].text, step, &heard);
            if (strcmp(heard.text.data, cases[i].heard) != 0)
                fail_msg("%s, by %zu: %s", cases[i].text, step, heard.text.data);
            str_deinit(&heard.text);
        }
    }
}

/* Cut off by max_tokens: missing parts aren't made up, and a begun call isn't reported as text. */
static void test_calls_that_are_cut_off(void **state)
{
    (void)state;
    static const struct {
        enum tool_format format;
        const char *text, *heard;
    } rows[] = {
        {HERMES, "<tool_call>{\"name\":\"get\",\"arguments\":{\"a\":", "|0:get={\"a\":"},
        {HERMES, "<tool_call>{\"name\":\"get\",\"arg", "|0:get"},
        {HERMES, "<tool_call>{\"name\":\"get\"", "|0:get"},
        {HERMES, "<tool_call>{\"name\":\"get\"}", "|0:get={}"},
        {HERMES, "So. <tool_call>\n{\"name\": \"ge", "|So. "},
        {HERMES, "<tool_call>", ""},
        {HERMES, "<tool_call>{\"name\":\"get\"}</tool_call>\n<tool_call>{\"na", "|0:get={}"},
        {HERMES, "a <tool", "|a <tool"},
        {LLAMA, "{\"name\": \"ge", "|{\"name\": \"ge"},
        {LLAMA, " {\"answer\": 4", "| {\"answer\": 4"},
        {LLAMA, "<|python_tag|>{\"name\": \"ge", ""},
        {LLAMA, "{\"name\":\"get\",\"parameters\":{}}; {\"name", "|0:get={}"},
        {LLAMA, "{\"name\":\"get\",\"par", "|0:get"},
        {MISTRAL, "[TOOL_CALLS]ge", ""},
        {MISTRAL, "[TOOL_CALLS]get[AR", ""},
        {MISTRAL, "[TOOL_CALLS]get[ARGS]", "|0:get"},
        {MISTRAL, "Sure. [TOOL_CALLS][{\"name\": \"g", "|Sure. "},
        {HERMES, "<tool_call>{\"name\":\"get\",\"arguments\":{\"a\":1}}\n</tool",
         "|0:get={\"a\":1}"},
        {DEEPSEEK, DEEPSEEK_CALLS_BEGIN DEEPSEEK_CALL_BEGIN "func", ""},
        {DEEPSEEK, DEEPSEEK_CALL_BEGIN "function" DEEPSEEK_SEPARATOR "get\n```json\n{\"a\"",
         "|0:get={\"a\""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (size_t step = 0; step < 14; step++) {
            struct heard heard;
            parse_to(rows[i].format, rows[i].text, step, true, &heard);
            if (strcmp(heard.text.data ? heard.text.data : "", rows[i].heard) != 0)
                fail_msg("%s, by %zu: %s", rows[i].text, step, heard.text.data);
            str_deinit(&heard.text);
        }
    }
}

static void test_arguments_stream(void **state)
{
    (void)state;
    struct heard heard;
    parse(HERMES,
          "<tool_call>{\"name\":\"get\",\"arguments\":{\"text\":\"a long one\"}}</tool_call>", 4,
          &heard);
    assert_true(heard.arguments >= 5);
    str_deinit(&heard.text);
}

static void test_what_is_held_is_bounded(void **state)
{
    (void)state;
    static const char begin[] = "<tool_call>{\"x\":\"";
    char *text = malloc(TOOL_MAX_HELD_BYTES + 100);
    assert_non_null(text);
    memset(text, 'a', TOOL_MAX_HELD_BYTES + 99);
    text[TOOL_MAX_HELD_BYTES + 99] = 0;
    memcpy(text, begin, strlen(begin));
    struct heard heard;
    parse(HERMES, text, 1000, &heard);
    assert_string_equal(heard.text.data + 1, text);
    str_deinit(&heard.text);
    free(text);
}

static void test_white_space_behind_a_marker_is_bounded(void **state)
{
    (void)state;
    static const struct {
        enum tool_format format;
        const char *before, *after, *heard;
    } rows[] = {
        {HERMES, "<tool_call>", "{\"name\":\"get\"}</tool_call>", "|0:get={}"},
        {LLAMA, "<|python_tag|>", "{\"name\":\"get\"}", "|0:get={}"},
        {MISTRAL, "[TOOL_CALLS]", "[{\"name\":\"get\"}]", "|0:get={}"},
        {DEEPSEEK, DEEPSEEK_CALLS_BEGIN, CALL("get", "{}"), NULL}, /* has a marker of its own */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (size_t blanks = 50000; blanks <= 70000; blanks += 500) {
            struct str text;
            struct heard heard;
            str_init(&text, 1u << 20);
            str_add(&text, rows[i].before);
            while (text.length < blanks)
                str_add(&text, "\n");
            str_add(&text, rows[i].after);
            parse(rows[i].format, text.data, blanks % 1000 ? 30000 : 999, &heard);
            bool call = rows[i].heard && blanks <= TOOL_MAX_HELD_BYTES - 4096;
            if (call)
                assert_string_equal(heard.text.data, rows[i].heard);
            else if (rows[i].heard)
                assert_string_equal(heard.text.data + 1, text.data);
            else
                assert_true(heard.text.length >= blanks);
            str_deinit(&heard.text);
            str_deinit(&text);
        }
    }
}

/* However many bytes its characters have, and wherever they begin. */
static void test_what_is_held_ends_with_a_character(void **state)
{
    (void)state;
    static const struct {
        enum tool_format format;
        const char *before;
        size_t limit;
    } rows[] = {
        {HERMES, "<tool_call>{\"", TOOL_MAX_NAME},
        {HERMES, "<tool_call>{\"name\":\"get\",\"arguments\":{},\"", TOOL_MAX_NAME},
        {HERMES, "<tool_call>{\"name\":\"", TOOL_MAX_NAME},
        {HERMES, "<tool_call>{\"x\":\"", TOOL_MAX_HELD_BYTES},
        {DEEPSEEK, DEEPSEEK_CALL_BEGIN "function", 512},
    };
    static const char *const characters[] = {"\u00e9", "\u20ac", "\U0001f3ad"};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (size_t n = 0; n < 12; n++) {
            struct str text;
            struct heard heard;
            str_init(&text, 1u << 20);
            str_add(&text, rows[i].before);
            str_append(&text, "aaa", n % 4);
            while (text.length < rows[i].limit + 200)
                str_add(&text, characters[n / 4]);
            parse(rows[i].format, text.data, 1 + 97 * n, &heard);
            if (!strstr(rows[i].before, "arguments"))
                assert_string_equal(heard.text.data + 1, text.data);
            str_deinit(&heard.text);
            str_deinit(&text);
        }
    }
}

/* Text is no shorter for a NUL in it. */
static void test_a_head_with_a_nul(void **state)
{
    (void)state;
    static const char *const calls[] = {
        "function" DEEPSEEK_SEPARATOR "get\n@x{}", "function" DEEPSEEK_SEPARATOR "get@{}",
        "function" DEEPSEEK_SEPARATOR "g@et\n{}",  "function" DEEPSEEK_SEPARATOR "@{}",
        "func@tion" DEEPSEEK_SEPARATOR "get\n{}", /* one that is a call */
    };
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        for (size_t step = 0; step < 9; step++) {
            char text[200];
            struct heard heard;
            int length = snprintf(text, sizeof text, "%s%s", DEEPSEEK_CALL_BEGIN, calls[i]);
            *strchr(text, '@') = 0;
            parse_bytes(DEEPSEEK, (struct text){text, (size_t)length}, step, true, false, &heard);
            if (i == 4) {
                assert_string_equal(heard.text.data, "|0:get={}");
            } else {
                assert_int_equal(heard.text.length, length + 1);
                assert_memory_equal(heard.text.data + 1, text, (size_t)length);
            }
            str_deinit(&heard.text);
        }
    }
}

static void test_calls_are_bounded(void **state)
{
    (void)state;
    struct str text;
    struct heard heard;
    char last[16];
    str_init(&text, 1u << 20);
    for (int i = 0; i <= TOOL_MAX_CALLS; i++)
        str_add(&text, "<tool_call>{\"name\":\"get\"}</tool_call>");
    parse(HERMES, text.data, 0, &heard);
    snprintf(last, sizeof last, "|%d:", TOOL_MAX_CALLS - 1);
    assert_non_null(strstr(heard.text.data, last));
    assert_non_null(strstr(heard.text.data, "|<tool_call>{\"name\":\"get\"}</tool_call>"));
    str_deinit(&heard.text);
    str_deinit(&text);
}

static void test_a_name_over_its_limit_is_no_call(void **state)
{
    (void)state;
    char text[TOOL_MAX_NAME + 64] = "<tool_call>{\"name\":\"";
    memset(text + strlen(text), 'n', TOOL_MAX_NAME);
    strcpy(text + 20 + TOOL_MAX_NAME, "\"}");
    struct heard heard;
    parse(HERMES, text, 7, &heard);
    assert_string_equal(heard.text.data + 1, text);
    str_deinit(&heard.text);
}

/* However it is cut, too. */
static void test_what_is_far_away_is_no_marker(void **state)
{
    (void)state;
    static const struct {
        enum tool_format format;
        const char *before, *after;
        char between;
    } rows[] = {{MISTRAL, "[TOOL_CALLS]get[CALL_ID]", "[ARGS]{}", 'x'},
                {LLAMA, "", "{\"name\":\"get\",\"parameters\":{}}", ' '}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[500] = "";
        strcpy(text, rows[i].before);
        memset(text + strlen(text), rows[i].between, 300);
        strcat(text, rows[i].after);
        for (size_t step = 0; step < 300; step += 7) {
            struct heard heard;
            parse(rows[i].format, text, step, &heard);
            assert_string_equal(heard.text.data + 1, text);
            str_deinit(&heard.text);
        }
    }
}

static void test_formats_of_templates(void **state)
{
    (void)state;
#define ARGUMENTS "{\"zqkey\": \"zqvalue\"}"
    static const struct {
        struct chat_forms forms;
        enum tool_format format;
    } rows[] = {
        {{.calls = "<tool_call>\n{\"name\": \"zqname\", \"arguments\": " ARGUMENTS
                   "}\n</tool_call><eos>"},
         HERMES},
        {{.calls = "<think>\n\n</think>\n<tool_call>{\"arguments\": " ARGUMENTS
                   ", \"name\": \"zqname\"}</tool_call>"},
         HERMES},
        {{.calls = "[TOOL_CALLS] [{\"name\": \"zqname\", \"arguments\": " ARGUMENTS "}]"}, MISTRAL},
        {{.calls = "[TOOL_CALLS]zqname[CALL_ID]zqcallid1[ARGS]" ARGUMENTS}, MISTRAL},
        {{.calls = "{\"name\": \"zqname\", \"parameters\": " ARGUMENTS "}<|eot_id|>"}, LLAMA},
        {{.calls = CALLS(CALL("zqname", ARGUMENTS))}, DEEPSEEK},
        /* Qwen3-Coder, GLM-4.5, another name, other arguments, and no call. */
        {{.calls = "<tool_call>\n<function=zqname>\n<parameter=zqkey>\nzqvalue\n</parameter>\n</"
                   "function>"
                   "\n</tool_call>"},
         TOOL_FORMAT_NONE},
        {{.calls = "<tool_call>zqname\n<arg_key>zqkey</arg_key>\n<arg_value>zqvalue</arg_value>\n"
                   "</tool_call>"},
         TOOL_FORMAT_NONE},
        {{.calls = "<tool_call>{\"name\": \"zq\", \"arguments\": " ARGUMENTS "}</tool_call>"},
         TOOL_FORMAT_NONE},
        {{.calls = "<tool_call>{\"name\": \"zqname\", \"arguments\": {}}</tool_call>"},
         TOOL_FORMAT_NONE},
        {{.calls = ""}, TOOL_FORMAT_NONE},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (tool_format_of(&rows[i].forms) != rows[i].format)
            fail_msg("%s", rows[i].forms.calls);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_formats_however_they_are_cut),
        cmocka_unit_test(test_calls_that_are_cut_off),
        cmocka_unit_test(test_arguments_stream),
        cmocka_unit_test(test_what_is_held_is_bounded),
        cmocka_unit_test(test_white_space_behind_a_marker_is_bounded),
        cmocka_unit_test(test_what_is_held_ends_with_a_character),
        cmocka_unit_test(test_a_head_with_a_nul),
        cmocka_unit_test(test_calls_are_bounded),
        cmocka_unit_test(test_a_name_over_its_limit_is_no_call),
        cmocka_unit_test(test_what_is_far_away_is_no_marker),
        cmocka_unit_test(test_formats_of_templates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
