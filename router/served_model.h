/* One model that this router serves, from its folder: config.json, generation_config.json and,
 * where there is one, tokenizer.json and a chat template. No weights. Immutable after opening; any
 * thread. */
#ifndef BATON_ROUTER_SERVED_MODEL_H
#define BATON_ROUTER_SERVED_MODEL_H

#include "common/language/chat/chat_template.h"
#include "common/language/text/tokenizer.h"
#include "router/request_parse.h"

struct served_model {
    char name[128];
    struct request_model limits;
    uint64_t config_hash, tokenizer_hash; /* of the files; 0: not there */
    struct tokenizer *tokenizer;          /* NULL: token ids only */
    struct chat_template *chat;           /* NULL: none that can be used */
};

/* `name`: "" for the folder's. The sentence names the file. */
enum status served_model_open(const char *dir, const char *name, struct served_model *model,
                              struct error *err) WARN_UNUSED;
void served_model_close(struct served_model *model);

#endif
