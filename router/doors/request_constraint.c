#include "router/doors/request_constraint.h"

#include "common/base/assert.h"
#include "common/base/json/json_quote.h"
#include "common/base/str.h"
#include "common/language/chat/chat_forms.h"
#include "common/language/constrain/constraint.h"
#include "common/language/text/reasoning_splitter.h"
#include "proto/proto_text.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(REASONING_TAG_BYTES == CHAT_TAG_BYTES &&
                   REASONING_TAG_BYTES == CONSTRAINT_TAG_BYTES + 1,
               "a template's tags fit where an answer is split and where it is constrained");
_Static_assert(REASONING_NEWLINES_BEHIND == CONSTRAINT_NEWLINES_BEHIND,
               "an answer is split where its constraint starts");

/* Writes {"key":"text" or ,"key":"text". Writes nothing for an empty text after a comma. */
static void add_text(struct str *out, char before, const char *key, const char *text)
{
    if (before == ',' && !*text)
        return;
    str_addf(out, "%c\"%s\":", before, key);
    json_quote(out, text, strlen(text));
}

static void add_tool(struct str *out, const Baton__V1__ToolCalls__Tool *tool)
{
    add_text(out, '{', "name", tool->name);
    add_text(out, ',', "begin", tool->begin);
    add_text(out, ',', "schema", *tool->json_schema ? tool->json_schema : "true");
    add_text(out, ',', "end", tool->end);
    str_add(out, "}");
}

void tool_calls_write(const Baton__V1__ToolCalls *calls, struct str *text)
{
    add_text(text, '{', "begin", calls->begin);
    for (size_t i = 0; i < calls->n_tools; i++) {
        str_add(text, i ? "," : ",\"tools\":[");
        add_tool(text, calls->tools[i]);
    }
    str_add(text, calls->n_tools ? "]" : "");
    add_text(text, ',', "separator", calls->separator);
    add_text(text, ',', "end", calls->end);
    for (size_t i = 0; i < calls->n_special_tokens; i++) {
        str_add(text, i ? "," : ",\"special_tokens\":[");
        json_quote(text, calls->special_tokens[i], strlen(calls->special_tokens[i]));
    }
    str_add(text, calls->n_special_tokens ? "]" : "");
    str_add(text, calls->parallel ? ",\"parallel\":true}" : "}");
}

static enum reason refuse(struct error *err, const char *what)
{
    error_prefix(err, STATUS_INVALID, "%s", what);
    return REASON_INVALID_CONSTRAINT;
}

/* Writes a JSON array. */
static void add_choices(const Baton__V1__Choices *choices, struct str *text)
{
    str_add(text, "[");
    for (size_t i = 0; i < choices->n_texts; i++) {
        if (i)
            str_add(text, ",");
        struct text one = proto_text(choices->texts[i]);
        json_quote(text, one.bytes, one.length);
    }
    str_add(text, "]");
}

/* False: the message is no constraint; err. */
static bool read_kind(const Baton__V1__Constraint *message, enum constraint_kind *kind,
                      struct str *text, struct error *err)
{
    switch (message->kind_case) {
    case BATON__V1__CONSTRAINT__KIND_JSON_OBJECT:
        *kind = CONSTRAINT_JSON_OBJECT;
        if (!message->json_object)
            error_set(err, STATUS_INVALID, "json_object can only be true");
        return message->json_object;
    case BATON__V1__CONSTRAINT__KIND_JSON_SCHEMA:
        *kind = CONSTRAINT_JSON_SCHEMA;
        str_add(text, message->json_schema);
        return true;
    case BATON__V1__CONSTRAINT__KIND_REGEX:
        *kind = CONSTRAINT_REGEX;
        str_add(text, message->regex);
        return true;
    case BATON__V1__CONSTRAINT__KIND_CHOICE:
        *kind = CONSTRAINT_CHOICE;
        add_choices(message->choice, text);
        return true;
    case BATON__V1__CONSTRAINT__KIND_TOOL_CALLS:
        *kind = CONSTRAINT_TOOL_CALLS;
        tool_calls_write(message->tool_calls, text);
        return true;
    default:
        error_set(err, STATUS_INVALID,
                  "it has none of json_object, json_schema, regex, choice and tool_calls");
        return false;
    }
}

static bool is_tag(const char *tag)
{
    size_t length = strlen(tag);
    return length && length < REASONING_TAG_BYTES && strcspn(tag, " \t\r\n\v\f") == length;
}

/* Puts the line of CONSTRAINT_BEHIND_REASONING before the text. False: a tag is wrong; err. */
static bool add_reasoning(const Baton__V1__Reasoning *behind, enum constraint_kind *kind,
                          struct str *text, struct error *err)
{
    struct str whole;
    if (!is_tag(behind->begin) || !is_tag(behind->end)) {
        error_set(err, STATUS_INVALID,
                  "behind: begin and end must have 1 to %d bytes, without white space",
                  REASONING_TAG_BYTES - 1);
        return false;
    }
    str_init(&whole, text->limit + CONSTRAINT_MAX_LINE_BYTES);
    str_addf(&whole, "%s %s %s %s\n", constraint_kind_names[*kind],
             behind->inside ? "inside" : "outside", behind->begin, behind->end);
    ASSERT(whole.length <= CONSTRAINT_MAX_LINE_BYTES);
    str_append(&whole, text->data, text->length);
    str_deinit(text);
    *text = whole;
    *kind = CONSTRAINT_BEHIND_REASONING;
    return true;
}

static enum reason read_text(struct constraint_checks *checks, const Baton__V1__Constraint *message,
                             struct str *text, struct constraint_source **source, struct error *err)
{
    enum constraint_kind kind;
    if (!read_kind(message, &kind, text, err))
        return refuse(err, "constraint");
    if (text->truncated) {
        error_set(err, STATUS_LIMIT, "it has more than %u bytes", CONSTRAINT_MAX_TEXT_BYTES);
        return refuse(err, constraint_kind_names[kind]);
    }
    if (message->behind && !add_reasoning(message->behind, &kind, text, err))
        return refuse(err, "constraint");
    struct constraint_source *made = constraint_source_create(kind, text->data, text->length);
    ASSERT(made);
    if (checks && constraint_checks_find(checks, made, err) == CONSTRAINT_REFUSED) {
        free(made);
        return REASON_INVALID_CONSTRAINT;
    }
    *source = made;
    return REASON_NONE;
}

enum reason request_constraint_read(struct constraint_checks *checks,
                                    const Baton__V1__Constraint *message,
                                    const struct request_model *model,
                                    struct constraint_source **source, struct error *err)
{
    struct str text;
    *source = NULL;
    if (!message)
        return REASON_NONE;
    if (!model->tokens_have_text) {
        error_set(
            err, STATUS_INVALID,
            "model \"%s\" has no tokenizer.json with a decoder, so tokens have no text that a "
            "constraint could be kept for",
            model->name);
        return REASON_NO_TOKENIZER;
    }
    str_init(&text, CONSTRAINT_MAX_TEXT_BYTES);
    enum reason reason = read_text(checks, message, &text, source, err);
    str_deinit(&text);
    return reason;
}
