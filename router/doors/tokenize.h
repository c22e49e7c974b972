/* Text to tokens and back, on the thread that received a call: prompts of both doors, and what
 * Tokenize and Detokenize answer. Sentences in `err` are for the client. */
#ifndef BATON_ROUTER_DOORS_TOKENIZE_H
#define BATON_ROUTER_DOORS_TOKENIZE_H

#include "common/base/str.h"
#include "router/served_models.h"

/* Makes the tokens of a prompt's text. The caller has set the limit of `ids` to one more than the
 * model's context. */
enum reason prompt_tokens_make(const struct served_model *model, struct text text, bool add_special,
                               struct token_ids *ids, struct error *err) WARN_UNUSED;

/* Returns the most tokens that any text within the router's limits can have, with those that a
 * template or tokenizer adds: the limit of a list. */
size_t tokenize_most_tokens(const struct served_model *model);
/* Makes the tokens of a text, which need not fit into the model's context. The caller has set the
 * limit of `ids`. */
enum reason tokenize_text(const struct served_model *model, struct text text, bool add_special,
                          struct token_ids *ids, struct error *err) WARN_UNUSED;
/* REASON_ANSWER_TOO_LARGE: over the limit of `text`. */
enum reason detokenize_ids(const struct served_model *model, const uint32_t *ids, size_t count,
                           bool skip_special, struct str *text, struct error *err) WARN_UNUSED;

#endif
