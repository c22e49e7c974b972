/* chat_forms: how published templates, and small ones, write calls and reasoning; where an answer
 * begins; and calls without arguments in a history. */
#include "common/language/chat/chat_forms.h"

#include "common/base/str.h"
#include "common/language/chat/chat_request.h"
#include "common/language/chat/chat_template.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define PUBLISHED "tests/golden/chat_templates/"
/* As GLM-4.5 writes calls. */
static const char glm[] =
    "{% for m in messages %}<|{{ m.role }}|>\n"
    "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>\n{% endif %}"
    "{{ m.content or '' }}{% for c in m.tool_calls or [] %}\n<tool_call>{{ c.function.name }}\n"
    "{% for k, v in c.function.arguments.items() %}<arg_key>{{ k }}</arg_key>\n"
    "<arg_value>{{ v }}</arg_value>\n{% endfor %}</tool_call>{% endfor %}{% endfor %}";
/* As DeepSeek-R1-Distill: arguments are text, reasoning is dropped, and answers begin in it. */
static const char deepseek[] =
    "{% for m in messages %}{% if m['role'] == 'user' %}{{ '<U>' + m['content'] }}"
    "{% elif m['role'] == 'tool' %}{{ '<R>' + m['content'] }}"
    "{% elif m['content'] is none %}{% for c in m['tool_calls'] %}"
    "{{ '<A>' + c['function']['name'] + '=' + c['function']['arguments'] + ';' }}{% endfor %}"
    "{% else %}{{ '<A>' + m['content'].split('</think>')[-1] }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<A><think>\n' }}{% endif %}";

static char path[64];

/* `name`: a published template's, or a template. */
static struct chat_template *opened(const char *name)
{
    struct chat_template *chat = NULL;
    struct error err = {""};
    char file[128];
    bool source = strchr(name, '{') != NULL;
    snprintf(file, sizeof file, PUBLISHED "%.64s.jinja", name);
    if (source) {
        strcpy(path, "/tmp/test_chat_forms_XXXXXX");
        int fd = mkstemp(path);
        assert_true(fd >= 0);
        assert_int_equal(write(fd, name, strlen(name)), (ssize_t)strlen(name));
        close(fd);
    }
    if (chat_template_open_file(source ? path : file, &chat, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    if (source)
        unlink(path);
    return chat;
}

static void test_forms_of_templates(void **state)
{
    (void)state;
    static const struct {
        const char *name, *calls; /* its beginning */
        const char *reasoning;
        bool text_arguments;
    } rows[] = {
        {"Qwen-Qwen3-0.6B",
         "<tool_call>\n{\"name\": \"zqname\", \"arguments\": {\"zqkey\": \"zqvalue\"}}\n"
         "</tool_call>",
         "<think>", false},
        {"Qwen-Qwen2.5-7B-Instruct", "<tool_call>\n{\"name\": \"zqname\", \"arguments\": ", "",
         false},
        {"meta-llama-Llama-3.1-8B-Instruct",
         "{\"name\": \"zqname\", \"parameters\": {\"zqkey\": \"zqvalue\"}}<|eot_id|>", "", false},
        {"meta-llama-Llama-3.2-3B-Instruct", "{\"name\": \"zqname\", \"parameters\": ", "", false},
        {"mistralai-Mistral-Nemo-Instruct-2407",
         "[TOOL_CALLS][{\"name\": \"zqname\", \"arguments\": {\"zqkey\": \"zqvalue\"}, \"id\": "
         "\"zqcallid1\"}]",
         "", false},
        {"HuggingFaceTB-SmolLM3-3B", "", "<think>", false},
        {"google-gemma-2-2b-it", "", "", false},
        {"microsoft-Phi-3.5-mini-instruct", "", "", false},
        {glm, "<tool_call>zqname\n<arg_key>zqkey</arg_key>", "<think>", false},
        {deepseek, "zqname={\"zqkey\":\"zqvalue\"};", "<think>", true},
        {"{% for m in messages %}{% if m.reasoning_content %}[THINK]{{ m.reasoning_content }}"
         "[/THINK]{% endif %}{{ m.content }}{% endfor %}",
         "", "[THINK]", false},
        {"{% for m in messages %}{% if m.reasoning_content %}<my thoughts>{{ m.reasoning_content }}"
         "</my thoughts>{% endif %}{{ m.content }}{% endfor %}",
         "", "", false},
        {"{{ raise_exception('never') }}", "", "", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct chat_template *chat = opened(rows[i].name);
        const struct chat_forms *forms = chat_template_forms(chat);
        size_t length = strlen(rows[i].calls);
        if (strncmp(forms->calls, rows[i].calls, length) != 0 || !length != !*forms->calls)
            fail_msg("%s: calls: %s", rows[i].name, forms->calls);
        if (strcmp(forms->reasoning_begin, rows[i].reasoning) != 0 ||
            !*forms->reasoning_begin != !*forms->reasoning_end)
            fail_msg("%s: reasoning: %s", rows[i].name, forms->reasoning_begin);
        if (forms->text_arguments != rows[i].text_arguments)
            fail_msg("%s: text arguments", rows[i].name);
        chat_template_close(chat);
    }
}

/* Renders a body as the server does. False: refused. */
static bool render(const struct chat_template *chat, const char *body, struct chat_prompt *prompt,
                   bool *continued)
{
    static const struct json_limits limits = {.max_bytes = 1u << 20, .max_depth = 64};
    struct chat_request request = {.openai = true}, record_request = {.openai = true};
    struct json *json, *record = NULL;
    struct error err;
    struct str text;
    str_init(&text, 1u << 20);
    assert_int_equal(json_parse(body, strlen(body), limits, &json, &err), STATUS_OK);
    assert_int_equal(chat_request_read(json_root(json), &request, &err), STATUS_OK);
    chat_record_write(&request, &text);
    assert_int_equal(json_parse(text.data, text.length, limits, &record, &err), STATUS_OK);
    assert_int_equal(chat_request_read(json_root(record), &record_request, &err), STATUS_OK);
    bool fine = chat_template_render(chat, &record_request, prompt, NULL, &err) == STATUS_OK;
    if (continued)
        *continued = record_request.continue_final_message;
    json_destroy(record);
    json_destroy(json);
    str_deinit(&text);
    return fine;
}

/* Equal prompts for arguments that are none (vllm#33268, vllm#43851). */
static void test_calls_without_arguments(void **state)
{
    (void)state;
    static const char *const names[] = {"Qwen-Qwen3-0.6B", "meta-llama-Llama-3.1-8B-Instruct", glm,
                                        deepseek};
    static const char *const arguments[] = {"{}", "\"\"", "\" \\n\"", "null", "\"null\"", "\"{}\""};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct chat_template *chat = opened(names[i]);
        struct chat_prompt first = {.text = NULL}, prompt;
        for (size_t a = 0; a < sizeof arguments / sizeof *arguments; a++) {
            char body[512];
            snprintf(body, sizeof body,
                     "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\","
                     "\"content\":null,\"tool_calls\":[{\"id\":\"c1\",\"type\":\"function\","
                     "\"function\":{\"name\":\"ping\",\"arguments\":%s}}]},{\"role\":\"tool\","
                     "\"tool_call_id\":\"c1\",\"content\":\"pong\"}]}",
                     arguments[a]);
            if (!render(chat, body, &prompt, NULL))
                fail_msg("%s: %s", names[i], body);
            if (!a) {
                first = prompt;
                continue;
            }
            assert_int_equal(prompt.length, first.length);
            assert_memory_equal(prompt.text, first.text, first.length);
            chat_prompt_deinit(&prompt);
        }
        assert_non_null(memmem(first.text, first.length, "ping", 4));
        chat_prompt_deinit(&first);
        chat_template_close(chat);
    }
}

static void test_where_answers_begin(void **state)
{
    (void)state;
#define ASK(more)  "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}]" more "}"
#define SAID(text) "{\"role\":\"assistant\",\"content\":\"" text "\"}"
#define GO_ON(text)                                                                                \
    "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}," SAID(                                  \
        text) "],\"continue_final_message\":true}"
    static const struct {
        const char *name, *body;
        enum chat_reasoning reasoning;
    } rows[] = {
        {"Qwen-Qwen3-0.6B", ASK(""), CHAT_REASONING_MAYBE},
        {"Qwen-Qwen3-0.6B", ASK(",\"chat_template_kwargs\":{\"enable_thinking\":false}"),
         CHAT_REASONING_NONE},
        {"Qwen-Qwen2.5-7B-Instruct", ASK(""), CHAT_REASONING_NONE},
        {"HuggingFaceTB-SmolLM3-3B", ASK(""), CHAT_REASONING_MAYBE},
        {"HuggingFaceTB-SmolLM3-3B", ASK(",\"chat_template_kwargs\":{\"enable_thinking\":false}"),
         CHAT_REASONING_NONE},
        {deepseek, ASK(""), CHAT_REASONING_INSIDE},
        {deepseek, ASK(",\"add_generation_prompt\":false"), CHAT_REASONING_MAYBE},
        {"{% for m in messages %}{{ m.content }}{% endfor %}{% if false %}</think>{% endif %}",
         "{\"messages\":[{\"role\":\"user\",\"content\":\"say <think>\"}]}", CHAT_REASONING_MAYBE},
        {"HuggingFaceTB-SmolLM3-3B", GO_ON("<think>\\nso"), CHAT_REASONING_INSIDE},
        {"HuggingFaceTB-SmolLM3-3B", GO_ON("<think>so</think>Well"), CHAT_REASONING_NONE},
        {"HuggingFaceTB-SmolLM3-3B", GO_ON("Well"), CHAT_REASONING_NONE},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct chat_template *chat = opened(rows[i].name);
        struct chat_prompt prompt;
        bool continued;
        if (!render(chat, rows[i].body, &prompt, &continued))
            fail_msg("%s: %s", rows[i].name, rows[i].body);
        if (chat_prompt_reasoning(chat_template_forms(chat), &prompt, continued) !=
            rows[i].reasoning)
            fail_msg("%s: %s", rows[i].name, rows[i].body);
        chat_prompt_deinit(&prompt);
        chat_template_close(chat);
    }
}

/* By either name it goes back to the template. */
static void test_reasoning_in_a_history(void **state)
{
    (void)state;
    static const char *const members[] = {"\"reasoning_content\":\"so\"", "\"reasoning\":\"so\"",
                                          "\"reasoning\":\"no\",\"reasoning_content\":\"so\""};
    struct chat_template *chat = opened("Qwen-Qwen3-0.6B");
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        struct chat_prompt prompt;
        char body[300];
        snprintf(body, sizeof body,
                 "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\","
                 "\"content\":\"a\",%s}]}",
                 members[i]);
        assert_true(render(chat, body, &prompt, NULL));
        static const char want[] = "assistant\n<think>\nso\n</think>\n\na<|im_end|>";
        if (!memmem(prompt.text, prompt.length, want, strlen(want)))
            fail_msg("%.*s", (int)prompt.length, prompt.text);
        chat_prompt_deinit(&prompt);
    }
    chat_template_close(chat);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forms_of_templates),
        cmocka_unit_test(test_calls_without_arguments),
        cmocka_unit_test(test_where_answers_begin),
        cmocka_unit_test(test_reasoning_in_a_history),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
