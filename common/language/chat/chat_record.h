/* A chat request of OpenAI's interface as a record for chat_request_read: one JSON object
 * {"messages", "tools", "documents", "add_generation_prompt", "continue_final_message",
 * "chat_template_kwargs"}. PURE.
 *
 * Members that are null or unknown are left out, since templates ask whether they are there;
 * "developer" is "system"; content is a text, or a list of parts of type "text"; a past tool call
 * has arguments; no tools are no list of them. What isn't as the interface has it is passed on as
 * it is: whoever renders the record refuses it, or takes it. */
#ifndef BATON_LANGUAGE_CHAT_CHAT_RECORD_H
#define BATON_LANGUAGE_CHAT_CHAT_RECORD_H

#include "common/base/str.h"
#include "common/language/chat/chat_template.h"

/* `out` may become truncated. */
void chat_record_write(const struct chat_request *request, struct str *out);

#endif
