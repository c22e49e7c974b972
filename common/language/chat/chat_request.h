/* A chat request in JSON to what chat_template_render takes: "messages", "tools", "documents",
 * "add_generation_prompt" (true unless the last message is to be continued),
 * "continue_final_message", "chat_template_kwargs". Null is absent; other members are not looked
 * at: they are no matter of the prompt. */
#ifndef BATON_LANGUAGE_CHAT_CHAT_REQUEST_H
#define BATON_LANGUAGE_CHAT_CHAT_REQUEST_H

#include "common/language/chat/chat_template.h"

/* Members of `request` that JSON says nothing of stay as they are. It points into the document. */
enum status chat_request_read(const struct json_value *json, struct chat_request *request,
                              struct error *err) WARN_UNUSED;

#endif
