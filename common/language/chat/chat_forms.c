#include "common/language/chat/chat_forms.h"

#include "common/base/json/json.h"
#include "common/base/str.h"
#include "common/language/chat/chat_request.h"
#include "common/language/chat/chat_template.h"

#include <ctype.h>
#include <string.h>

#define USER "{\"role\":\"user\",\"content\":\"zquser\"}"
#define NEXT "{\"role\":\"user\",\"content\":\"zqnext\"}"
#define RESULT                                                                                     \
    "{\"role\":\"tool\",\"name\":\"" CHAT_PROBE_NAME                                               \
    "\",\"tool_call_id\":\"zqcallid1\",\"content\":\"zqresult\"}"
#define ANSWER  "{\"role\":\"assistant\",\"content\":\"zqanswer\"}"
#define THOUGHT "\"reasoning_content\":\"zqthought\""
#define CALLS                                                                                      \
    "\"tool_calls\":[{\"type\":\"function\",\"id\":\"zqcallid1\",\"function\":{\"name\":"          \
    "\"" CHAT_PROBE_NAME "\",\"arguments\":{\"" CHAT_PROBE_KEY "\":\"" CHAT_PROBE_VALUE "\"}}}]"
#define CALLING "{\"role\":\"assistant\",\"content\":null," CALLS "}"
#define TOOLS                                                                                      \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"zqother\",\"description\":\"d\","  \
    "\"parameters\":{\"type\":\"object\",\"properties\":{\"zqother\":{\"type\":\"string\","        \
    "\"description\":\"d\"}},\"required\":[\"zqother\"]}}}]"

/* Renders one of our conversations. False: the template fails. The caller frees the prompt. */
static bool render(const struct chat_template *chat, const char *text, bool text_arguments,
                   struct chat_prompt *prompt)
{
    static const struct json_limits limits = {.max_bytes = 1u << 16, .max_depth = 32};
    static const struct template_time now = {.year = 2024, .month = 7, .day = 26};
    struct chat_request request = {.openai = true,
                                   .text_arguments = text_arguments,
                                   .bos = "<bos>", /* some models have none */
                                   .eos = "<eos>",
                                   .now = now};
    struct json *json;
    struct error why;
    if (json_parse(text, strlen(text), limits, &json, &why) != STATUS_OK)
        return false;
    bool fine = chat_request_read(json_root(json), &request, &why) == STATUS_OK &&
                chat_template_render(chat, &request, prompt, NULL, &why) == STATUS_OK;
    json_destroy(json);
    return fine;
}

/* Returns where `part` begins in the text from `from` on; `length`: nowhere. */
static size_t find(const struct chat_prompt *prompt, size_t from, const char *part)
{
    const char *found = memmem(prompt->text + from, prompt->length - from, part, strlen(part));
    return found ? (size_t)(found - prompt->text) : prompt->length;
}

/* --------------------------------------------------------------------------------------- calls */

/* Bytes before an assistant's text in an equal conversation. 0: not known. */
static size_t before_answer(const struct chat_template *chat)
{
    struct chat_prompt prompt;
    if (!render(chat, "{\"messages\":[" USER "," ANSWER "," NEXT "]," TOOLS "}", false, &prompt))
        return 0;
    size_t at = find(&prompt, find(&prompt, 0, "zquser"), "zqanswer");
    at = at < prompt.length ? at : 0;
    chat_prompt_deinit(&prompt);
    return at;
}

/* Copies the assistant's message with the call. False: the conversation fails, or has no call. */
static bool find_calls(const struct chat_template *chat, const char *conversation,
                       struct chat_forms *forms)
{
    struct chat_prompt prompt;
    if (!render(chat, conversation, forms->text_arguments, &prompt))
        return false;
    size_t user = find(&prompt, 0, "zquser"), name = find(&prompt, user, CHAT_PROBE_NAME);
    size_t value = find(&prompt, user, CHAT_PROBE_VALUE), from = before_answer(chat);
    size_t end = find(&prompt, user, "zqresult");
    if (from <= user || from > name)
        from = user < prompt.length ? user + strlen("zquser") : 0;
    bool found =
        name < prompt.length && value < end && name < end && end - from < sizeof forms->calls;
    if (found) {
        memcpy(forms->calls, prompt.text + from, end - from);
        forms->calls[end - from] = 0;
    }
    chat_prompt_deinit(&prompt);
    return found;
}

/* Arguments are a dict to most templates; some concatenate them, and fail unless they are text. */
static void find_all_calls(const struct chat_template *chat, struct chat_forms *forms)
{
    static const char *const conversations[] = {
        "{\"messages\":[" USER "," CALLING "," RESULT "," ANSWER "," NEXT "]," TOOLS "}",
        "{\"messages\":[" USER "," CALLING "," RESULT "]," TOOLS "}",
        "{\"messages\":[" USER "," CALLING "]," TOOLS "}",
    };
    for (size_t i = 0; i < 2; i++) {
        forms->text_arguments = i == 1;
        for (size_t c = 0; c < sizeof conversations / sizeof *conversations; c++)
            if (find_calls(chat, conversations[c], forms))
                return;
    }
    forms->text_arguments = false;
}

/* ------------------------------------------------------------------------------------ reasoning */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* Copies the tags around the text at [from, to): "<x>" or "[X]" before it, and the same with "/"
 * behind it, with any white space between, but none within a tag: a constraint lists the tags.
 * False: there are none. */
static bool take_tags(const struct chat_prompt *prompt, size_t from, size_t to,
                      struct chat_forms *forms)
{
    const char *text = prompt->text;
    while (from && is_blank(text[from - 1]))
        from--;
    while (to < prompt->length && is_blank(text[to]))
        to++;
    size_t begin = from, size;
    while (begin && from - begin < CHAT_TAG_BYTES - 2 && text[begin] != '<' && text[begin] != '[')
        begin--;
    size = from - begin;
    if (size < 3 || size + 2 > CHAT_TAG_BYTES || (text[begin] != '<' && text[begin] != '[') ||
        text[from - 1] != (text[begin] == '<' ? '>' : ']') || to + size + 1 > prompt->length ||
        text[to] != text[begin] || text[to + 1] != '/' ||
        memcmp(text + to + 2, text + begin + 1, size - 1) != 0)
        return false;
    for (size_t i = begin; i < from; i++)
        if (isspace((unsigned char)text[i]))
            return false;
    memcpy(forms->reasoning_begin, text + begin, size);
    memcpy(forms->reasoning_end, text + to, size + 1);
    forms->reasoning_begin[size] = forms->reasoning_end[size + 1] = 0;
    return true;
}

static bool find_tags(const struct chat_template *chat, const char *conversation,
                      struct chat_forms *forms)
{
    struct chat_prompt prompt;
    if (!render(chat, conversation, forms->text_arguments, &prompt))
        return false;
    size_t at = find(&prompt, 0, "zqthought");
    bool found = at < prompt.length && take_tags(&prompt, at, at + strlen("zqthought"), forms);
    chat_prompt_deinit(&prompt);
    return found;
}

/* A template that drops earlier reasoning still has the tags, where it drops them or opens an
 * answer. */
static void find_reasoning(const struct chat_template *chat, struct chat_forms *forms)
{
    static const char *const conversations[] = {
        "{\"messages\":[" USER ",{\"role\":\"assistant\",\"content\":\"zqanswer\"," THOUGHT
        "}],\"add_generation_prompt\":false}",
        "{\"messages\":[" USER ",{\"role\":\"assistant\",\"content\":\"zqanswer\"," THOUGHT
        "}," NEXT "]}",
        "{\"messages\":[" USER ",{\"role\":\"assistant\",\"content\":null," THOUGHT "," CALLS
        "}," RESULT "]," TOOLS "}",
    };
    static const char *const known[][2] = {
        {"<think>", "</think>"}, {"[THINK]", "[/THINK]"}, {"<seed:think>", "</seed:think>"}};
    for (size_t i = 0; i < sizeof conversations / sizeof *conversations; i++)
        if (find_tags(chat, conversations[i], forms))
            return;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (!chat_template_mentions(chat, known[i][1]))
            continue;
        str_copy(forms->reasoning_begin, CHAT_TAG_BYTES, known[i][0]);
        str_copy(forms->reasoning_end, CHAT_TAG_BYTES, known[i][1]);
        return;
    }
}

void chat_forms_find(const struct chat_template *chat, struct chat_forms *forms)
{
    *forms = (struct chat_forms){.text_arguments = false};
    find_all_calls(chat, forms);
    find_reasoning(chat, forms);
}

/* ------------------------------------------------------------------------------------- a prompt */

/* Returns the place behind the last `tag` in the text; 0: it has none. */
static size_t behind_last(const char *text, size_t length, const char *tag)
{
    size_t size = strlen(tag), behind = 0;
    for (size_t at = 0; at + size <= length; at++)
        if (!memcmp(text + at, tag, size))
            behind = at + size;
    return behind;
}

static bool ends_with(const char *text, size_t length, const char *tag)
{
    size_t size = strlen(tag);
    return length >= size && !memcmp(text + length - size, tag, size);
}

enum chat_reasoning chat_prompt_reasoning(const struct chat_forms *forms,
                                          const struct chat_prompt *prompt, bool continued)
{
    const struct byte_range *last =
        prompt->input_count ? &prompt->inputs[prompt->input_count - 1] : NULL;
    size_t inputs_end = last ? last->to : 0, length = prompt->length;
    if (!*forms->reasoning_begin)
        return CHAT_REASONING_NONE;
    if (continued) { /* the message's own text has the tags, or what the template put before it */
        size_t from = last && inputs_end == length ? last->from : length;
        size_t begun = behind_last(prompt->text + from, length - from, forms->reasoning_begin);
        size_t ended = behind_last(prompt->text + from, length - from, forms->reasoning_end);
        if (begun || ended)
            return begun > ended ? CHAT_REASONING_INSIDE : CHAT_REASONING_NONE;
        length = from;
        inputs_end = 0;
    }
    while (length > inputs_end && is_blank(prompt->text[length - 1]))
        length--;
    bool own = length >= inputs_end + strlen(forms->reasoning_begin); /* the template's text */
    if (own && ends_with(prompt->text, length, forms->reasoning_end))
        return CHAT_REASONING_NONE;
    if (own && ends_with(prompt->text, length, forms->reasoning_begin))
        return CHAT_REASONING_INSIDE;
    return continued ? CHAT_REASONING_NONE : CHAT_REASONING_MAYBE;
}
