/* What a chat template is given of a chat request: one JSON object {"messages", "tools", "add_generation_prompt", "continue_final_message",
 * "chat_template_kwargs"} for common/chat/chat_request.h. PURE.
 *
 * Members that are null or unknown are left out, since templates ask whether they are there; "developer" is "system"; content is a text, or a
 * list of parts of type "text"; the arguments of a past tool call are an object where their text is one. */
#ifndef BATON_ROUTER_OPENAI_OPENAI_RECORD_H
#define BATON_ROUTER_OPENAI_OPENAI_RECORD_H

#include "common/base/str.h"
#include "router/openai/openai_request.h"

/* Of a chat that openai_request_read has read. `out` may become truncated. */
void openai_record_write(const struct openai_request *request, struct str *out);

#endif
