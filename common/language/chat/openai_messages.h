/* Messages as OpenAI's clients send them, made into what templates take. Inside
 * common/language/chat only. */
#ifndef BATON_LANGUAGE_CHAT_OPENAI_MESSAGES_H
#define BATON_LANGUAGE_CHAT_OPENAI_MESSAGES_H

#include "common/base/arena.h"
#include "common/base/status.h"
#include "common/language/template/value.h"

/* What a template knows of content, beside that it is a string. */
struct content_forms {
    bool parts; /* a list */
    bool null;  /* none, of a message that calls tools */
};

/* Changes `messages`, a list in `arena`: arguments of tool calls that are JSON objects in a string
 * become dicts, an assistant's content that is null or not there becomes "" (null, where it calls
 * tools and the template knows that), and content in parts, all of them text, becomes one string
 * where the template doesn't know those. What is of another form stays. */
enum status openai_messages_adapt(struct arena *arena, struct value messages,
                                  struct content_forms takes, struct error *err) WARN_UNUSED;

/* The member, to be read or changed; NULL where `object` is no dict or has none. */
struct value *member_of(struct value object, const char *key);

#endif
