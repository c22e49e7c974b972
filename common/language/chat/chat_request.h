/* Chat requests in JSON: reads and writes them for chat_template_render. */
#ifndef BATON_LANGUAGE_CHAT_CHAT_REQUEST_H
#define BATON_LANGUAGE_CHAT_CHAT_REQUEST_H

#include "common/base/str.h"
#include "common/language/chat/chat_template.h"

/* Reads "messages", "tools", "documents", "add_generation_prompt" (true unless the last message is
 * to be continued), "continue_final_message" and "chat_template_kwargs". Null is absent. Other
 * members don't concern the prompt and are ignored. Keeps `request`'s bos, eos, openai and now.
 * `request` points into the document. */
enum status chat_request_read(const struct json_value *json, struct chat_request *request,
                              struct error *err) WARN_UNUSED;

/* Returns the local time, for chat_request.now. */
struct template_time chat_time_now(void);

/* The arguments of a past call, as a client sends them. */
enum chat_arguments {
    CHAT_ARGUMENTS_NONE,   /* absent, null, a blank text, or the text "null": a call without any */
    CHAT_ARGUMENTS_OBJECT, /* an object, or its text */
    CHAT_ARGUMENTS_TEXT,   /* a text that isn't JSON, as of a call that was cut off */
    CHAT_ARGUMENTS_WRONG,  /* any other value, or its text: no function takes it */
};
/* For CHAT_ARGUMENTS_WRONG sets *found to the value's kind, for sentences ("an array"). */
enum chat_arguments chat_arguments_kind(const struct json_value *arguments, const char **found);

/* Writes a chat request of OpenAI's interface as a record for chat_request_read, one JSON object.
 * `out` may become truncated.
 *
 * Null and unknown members are left out, because templates test whether they are there. "developer"
 * becomes "system". Content is a text, or a list of parts of type "text". A past tool call has
 * arguments: {} for CHAT_ARGUMENTS_NONE. "reasoning" becomes "reasoning_content", unless the
 * message has both. An empty list of tools becomes null. Members of a wrong form are passed on
 * unchanged: chat_template_render accepts or refuses them. */
void chat_record_write(const struct chat_request *request, struct str *out);

#endif
