/* What a model's folder says of chats: its templates, compiled, and its special tokens. Inside
 * common/language/chat only. */
#ifndef BATON_LANGUAGE_CHAT_MODEL_TEMPLATES_H
#define BATON_LANGUAGE_CHAT_MODEL_TEMPLATES_H

#include "common/language/chat/chat_template.h"

#define SPECIAL_TOKENS 7

struct chat_template {
    struct named_template {
        char name[64];
        struct template *template;
        char *source;
    } templates[CHAT_TEMPLATE_LIMIT_NAMED];
    size_t count;
    struct special_token {
        const char *name; /* "bos_token" */
        char *text;       /* NULL: the model has none */
        size_t length;
    } specials[SPECIAL_TOKENS];
};

/* NULL: there is none of that name. */
const struct template *model_templates_find(const struct chat_template *chat, const char *name);

#endif
