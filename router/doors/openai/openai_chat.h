/* A chat: its messages and tools are read from a body (PURE), and become the token ids of a prompt
 * by the model's chat template (any thread). */
#ifndef BATON_ROUTER_DOORS_OPENAI_OPENAI_CHAT_H
#define BATON_ROUTER_DOORS_OPENAI_OPENAI_CHAT_H

#include "common/language/chat/chat_template.h"
#include "router/doors/openai/openai_request.h"
#include "router/doors/openai/tool_parser.h"
#include "router/served_models.h"

/* Checks messages and tools, and keeps them in `request`; fields->refusal has a failure. */
void openai_read_chat(const struct openai_fields *fields, struct openai_request *request);

/* The input of the chat template, for chat_record_write. Points into the body. */
struct chat_request openai_chat_request(const struct openai_request *request);

struct openai_rendered {
    struct token_ids *ids;         /* the prompt's are appended; the caller sets its limit */
    enum chat_reasoning reasoning; /* the answer's beginning */
};

/* Renders the prompt. REASON_NO_TOKENIZER,
 * REASON_NO_CHAT_TEMPLATE, REASON_CHAT_REFUSED with the template's own sentence,
 * REASON_UNSUPPORTED_PARAMETER: the model's way to write calls isn't known, or a reason of
 * prompt_tokens_make. */
enum reason openai_render(const struct served_model *model, const struct openai_request *request,
                          struct openai_rendered *rendered, struct error *err) WARN_UNUSED;

/* Sets request->reasoning, unless the request wants the answer whole. A constraint then starts
 * behind the reasoning. */
void openai_begin_reasoning(const struct served_model *model, enum chat_reasoning reasoning,
                            struct openai_request *request);

/* If tool_choice asks for calls, constrains the answer to them. False:
 * REASON_UNSUPPORTED_PARAMETER, as the model's way to write calls isn't known. */
bool openai_constrain_tools(const struct served_model *model, struct openai_request *request,
                            struct openai_refusal *refusal);

#endif
