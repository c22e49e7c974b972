/* Renders a conversation to the prompt of a chat model: its messages, through the template in the
 * model's folder, to token ids. */
#ifndef BATON_CLI_CHAT_RENDER_H
#define BATON_CLI_CHAT_RENDER_H

#include "common/cli/chat.h"
#include "common/language/chat/chat_template.h"
#include "common/language/text/tokenizer.h"

#define CHAT_RENDER_MAX_IDS (1u << 20)

struct chat_render {
    struct chat_template *template; /* NULL: none is open */
    struct tokenizer *tokenizer;
};

/* STATUS_NOT_FOUND: the folder has no chat template. The sentence names the file. */
enum status chat_render_open(const char *folder, struct chat_render *render,
                             struct error *err) WARN_UNUSED;
/* A zeroed one is fine. */
void chat_render_close(struct chat_render *render);

/* Writes the prompt for the next answer to `ids`. STATUS_LIMIT: too many ids. Other failures are
 * the template's refusals of this conversation. */
enum status chat_render_prompt(const struct chat_render *render, const struct chat *chat,
                               struct token_ids *ids, struct error *err) WARN_UNUSED;

#endif
