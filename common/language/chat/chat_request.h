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

/* Writes a chat request of OpenAI's interface as a record for chat_request_read, one JSON object.
 * `out` may become truncated.
 *
 * Null and unknown members are left out, because templates test whether they are there. "developer"
 * becomes "system". Content is a text, or a list of parts of type "text". A past tool call has
 * arguments. An empty list of tools becomes null. Members of a wrong form are passed on unchanged:
 * chat_template_render accepts or refuses them. */
void chat_record_write(const struct chat_request *request, struct str *out);

#endif
