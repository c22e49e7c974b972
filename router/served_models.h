/* The models that this router serves, each from its folder, and which of them a request means.
 * Immutable after opening; any thread.
 *
 * All of them are listed and may be asked for, whether workers are there or not: a worker that
 * comes back is no news to a client. What has no folder here isn't served, whatever workers there
 * are: the router could neither count its tokens nor check its requests.
 */
#ifndef BATON_ROUTER_SERVED_MODELS_H
#define BATON_ROUTER_SERVED_MODELS_H

#include "common/language/model_config/model_list.h"
#include "router/served_model.h"

#define SERVED_MODELS_MAX MODEL_LIST_MAX

struct served_models {
    size_t count; /* at least 1 */
    struct served_model
        items[SERVED_MODELS_MAX]; /* stays where it was opened: names lead into it */
};

/* The sentence names the folder, or the two of one name. */
enum status served_models_open(const struct model_list *list, struct served_models *models,
                               struct error *err) WARN_UNUSED;
void served_models_close(struct served_models *models);

/* Index of the model of that name; `count`: none has it. */
size_t served_models_index(const struct served_models *models, const char *name);
/* Index of the model that a request names; "": of the only one. REASON_MODEL_NOT_FOUND and
 * REASON_MISSING_MODEL with the names. */
enum reason served_models_find(const struct served_models *models, const char *name, size_t *index,
                               struct error *err) WARN_UNUSED;
/* Why there is no room for one more request of that model (REASON_OVERLOADED). */
void served_models_say_full(const struct served_models *models, size_t index, struct error *err);
/* "a", "b" and "c", with quotes; as many as go into 300 bytes, and how many more there are. */
void served_models_names(const struct served_models *models, char *text, size_t size);

#endif
