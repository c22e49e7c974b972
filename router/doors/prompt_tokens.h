/* A prompt's text to token ids, as every front door does it, on the thread that received the
 * request. */
#ifndef BATON_ROUTER_DOORS_PROMPT_TOKENS_H
#define BATON_ROUTER_DOORS_PROMPT_TOKENS_H

#include "router/served_models.h"

/* More than fit into the context are not made: the list's limit is the caller's. The sentence is
 * for the client. */
enum reason prompt_tokens_make(const struct served_model *model, const char *text, bool add_special,
                               struct token_ids *ids, struct error *err) WARN_UNUSED;

#endif
