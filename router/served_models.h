/* The models that this router serves, each from its folder: config.json, generation_config.json
 * and, if present, tokenizer.json and a chat template. No weights. Immutable after opening; any
 * thread.
 *
 * Every model is listed and may be asked for, even while it has no workers. A model without a
 * folder isn't served, even if it has workers: the router could neither count its tokens nor check
 * its requests. */
#ifndef BATON_ROUTER_SERVED_MODELS_H
#define BATON_ROUTER_SERVED_MODELS_H

#include "common/language/chat/chat_template.h"
#include "common/language/model_config/model_list.h"
#include "common/language/text/tokenizer.h"
#include "router/doors/openai/tool_parser.h"
#include "router/request_parse.h"

#define SERVED_MODELS_MAX MODEL_LIST_MAX

struct served_model {
    char name[128];
    struct request_model limits;
    uint64_t config_hash, tokenizer_hash; /* the files'; 0: no such file */
    struct tokenizer *tokenizer;          /* NULL: token ids only */
    struct chat_template *chat;           /* NULL: none, or an invalid one */
    enum tool_format tools;               /* how the template writes calls */
};

/* It may not move after opening: limits.name points into the items. */
struct served_models {
    size_t count; /* at least 1 */
    struct served_model items[SERVED_MODELS_MAX];
};

/* On failure *err names the folder or the file, or the name that two folders have. */
enum status served_models_open(const struct model_list *list, struct served_models *models,
                               struct error *err) WARN_UNUSED;
void served_models_close(struct served_models *models);

/* Returns the index of the model of that name; `count`: none has it. */
size_t served_models_index(const struct served_models *models, const char *name);
/* Finds the model that a request names; "" means the only one. REASON_MODEL_NOT_FOUND,
 * REASON_MISSING_MODEL: *err lists the names. */
enum reason served_models_find(const struct served_models *models, const char *name, size_t *index,
                               struct error *err) WARN_UNUSED;
/* Writes the sentence for REASON_OVERLOADED: there is no place for one more request of the
 * model. */
void served_models_say_full(const struct served_models *models, size_t index, struct error *err);
/* Writes "a", "b" and "c", with quotes: the names that fit into 300 bytes, and the count of
 * others. */
void served_models_names(const struct served_models *models, char *text, size_t size);

#endif
