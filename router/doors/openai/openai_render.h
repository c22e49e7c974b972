/* A conversation to its prompt's token ids, by the model's chat template. Any thread. */
#ifndef BATON_ROUTER_DOORS_OPENAI_OPENAI_RENDER_H
#define BATON_ROUTER_DOORS_OPENAI_OPENAI_RENDER_H

#include "router/doors/openai/openai_request.h"
#include "router/doors/openai/tool_parser.h"
#include "router/served_model.h"

/* Appends the ids; the list's limit is the caller's. NO_TOKENIZER, NO_CHAT_TEMPLATE, CHAT_REFUSED
 * with the template's own sentence, and what prompt_tokens_make may say. */
enum reason openai_render(const struct served_model *model, const struct openai_request *request,
                          struct token_ids *ids, struct error *err) WARN_UNUSED;

/* How this model writes calls. */
enum tool_format openai_tool_format(const struct served_model *model);
/* Keeps the answer to the calls that its tool_choice asks for, where it asks.
 * UNSUPPORTED_PARAMETER: how this model writes them isn't known. */
bool openai_constrain_tools(const struct served_model *model, struct openai_request *request,
                            struct openai_refusal *refusal);

#endif
