/* Which models a program serves, as one setting says it: "DIR", or "NAME=DIR", several with commas.
 * A name ends at the first equals sign, and what has a slash before that is a folder without a name
 * ("./a=b"); a folder's path can't hold a comma. PURE.
 */
#ifndef BATON_LANGUAGE_MODEL_CONFIG_MODEL_LIST_H
#define BATON_LANGUAGE_MODEL_CONFIG_MODEL_LIST_H

#include "common/base/status.h"

#include <stddef.h>

#define MODEL_LIST_MAX       16
#define MODEL_LIST_MAX_BYTES 8192 /* of the whole text, with its end */
#define MODEL_MAX_NAME_BYTES 128  /* each with its end */
#define MODEL_MAX_DIR_BYTES  1024

struct model_entry {
    char name[MODEL_MAX_NAME_BYTES]; /* "": the folder's own */
    char dir[MODEL_MAX_DIR_BYTES];
};

struct model_list {
    size_t count;
    struct model_entry items[MODEL_LIST_MAX];
};

/* STATUS_INVALID: nothing where a name or a folder should be, or one too long; the same name twice.
 * STATUS_LIMIT: one model more than there may be. The sentence quotes the entry. */
enum status model_list_parse(const char *text, struct model_list *list,
                             struct error *err) WARN_UNUSED;
/* The name that a setting of its own (--model-name; "": none) gives the only model. STATUS_INVALID:
 * there are several, or it has another one already, or the name is too long. */
enum status model_list_name(struct model_list *list, const char *name,
                            struct error *err) WARN_UNUSED;
/* A config_setting's check. */
enum status model_list_check(const char *text, struct error *err);

#endif
