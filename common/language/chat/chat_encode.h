/* A chat's prompt to token ids. Special tokens come of what the template writes, never of what the
 * request says: those that a message spells out are encoded as text. (Added tokens that aren't
 * special, such as Qwen's <think>, are found everywhere: models write them themselves, and clients
 * send them back.) The template writes its own begin token, so the tokenizer's is not added. */
#ifndef BATON_LANGUAGE_CHAT_CHAT_ENCODE_H
#define BATON_LANGUAGE_CHAT_CHAT_ENCODE_H

#include "common/language/chat/chat_template.h"
#include "common/language/text/tokenizer.h"

/* As tokenizer_encode. */
enum status chat_encode(const struct tokenizer *tokenizer, const struct chat_prompt *prompt,
                        struct token_ids *ids, struct error *err) WARN_UNUSED;

#endif
