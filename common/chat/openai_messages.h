/* Messages as OpenAI's clients send them, made into what templates take. Inside common/chat only. */
#ifndef BATON_CHAT_OPENAI_MESSAGES_H
#define BATON_CHAT_OPENAI_MESSAGES_H

#include "common/base/arena.h"
#include "common/base/status.h"
#include "common/template/value.h"

/* Changes `messages`, a list in `arena`: arguments of tool calls that are JSON objects in a string become dicts, and without
 * `takes_parts` content in parts, all of them text, becomes one string. What is of another form stays. */
enum status openai_messages_adapt(struct arena *arena, struct value messages, bool takes_parts,
                                  struct error *err) WARN_UNUSED;

/* The member, to be read or changed; NULL where `object` is no dict or has none. */
struct value *member_of(struct value object, const char *key);

#endif
