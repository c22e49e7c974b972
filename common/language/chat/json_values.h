/* Values for a template from JSON, as Python's json.loads makes them, and from messages of OpenAI's
 * clients. Strings come from the request, so they are marked as input. They point into the
 * document, which must outlive the values, unless they are copied. */
#ifndef BATON_LANGUAGE_CHAT_JSON_VALUES_H
#define BATON_LANGUAGE_CHAT_JSON_VALUES_H

#include "common/base/json/json.h"
#include "common/language/template/value.h"

struct json_values {
    struct arena *arena;
    bool copies; /* copies strings into the arena, too */
};

/* STATUS_INVALID: an unsupported number, which is an integer beyond int64 (or its smallest) or
 * isn't finite. STATUS_LIMIT: the arena is full, or nesting is deeper than JSON_VALUES_LIMIT_DEPTH.
 * The sentence has the path. */
#define JSON_VALUES_LIMIT_DEPTH 100
enum status json_values_make(const struct json_values *values, const struct json_value *json,
                             struct value *out, struct error *err) WARN_UNUSED;

/* The forms of content that a template supports besides a string, and of arguments. */
struct content_forms {
    bool parts;          /* a list */
    bool null;           /* none, in a message that calls tools */
    bool text_arguments; /* arguments of calls are strings of JSON, not objects */
};

/* Changes `messages`, a list in `arena` that was made of `json`. Arguments of tool calls that are
 * JSON objects in a string become dicts; with takes.text_arguments dicts become strings. An
 * assistant's content that is null or missing becomes "" (null if it calls tools and takes.null).
 * Content in parts, all of them text, becomes one string unless takes.parts. Other forms stay. */
enum status openai_messages_adapt(struct arena *arena, const struct json_value *json,
                                  struct value messages, struct content_forms takes,
                                  struct error *err) WARN_UNUSED;

/* Returns the member, for reading or changing. NULL: `object` isn't a dict, or has no such key. */
struct value *member_of(struct value object, const char *key);

#endif
