/* Text to tokens and back, asked for as such: what Tokenize and Detokenize answer over every front
 * door, on the thread that received the call. No request is made of it, so nothing has to fit into
 * the model's context. Sentences are for the client. */
#ifndef BATON_ROUTER_DOORS_TOKENIZE_H
#define BATON_ROUTER_DOORS_TOKENIZE_H

#include "common/base/str.h"
#include "router/served_models.h"

/* Tokens that any text which the router takes can have, whatever its template or tokenizer puts
 * around it: the limit of a list. */
size_t tokenize_most_tokens(const struct served_model *model);
/* `ids`: its limit is the caller's. */
enum reason tokenize_text(const struct served_model *model, const char *text, bool add_special,
                          struct token_ids *ids, struct error *err) WARN_UNUSED;
/* REASON_ANSWER_TOO_LARGE: over the limit of `text`. */
enum reason detokenize_ids(const struct served_model *model, const uint32_t *ids, size_t count,
                           bool skip_special, struct str *text, struct error *err) WARN_UNUSED;

#endif
