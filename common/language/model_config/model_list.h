/* The models that a program serves, by one setting: "DIR" or "NAME=DIR", several with commas. A
 * name ends at the first equals sign. An entry with a slash before that sign is a folder without a
 * name ("./a=b"). A folder's path can't contain a comma. PURE. */
#ifndef BATON_LANGUAGE_MODEL_CONFIG_MODEL_LIST_H
#define BATON_LANGUAGE_MODEL_CONFIG_MODEL_LIST_H

#include "common/base/status.h"

#include <stddef.h>

#define MODEL_LIST_MAX       16
#define MODEL_LIST_MAX_BYTES 8192 /* the whole text, with its NUL */
#define MODEL_MAX_NAME_BYTES 128  /* with its NUL, as MODEL_MAX_DIR_BYTES */
#define MODEL_MAX_DIR_BYTES  1024

struct model_entry {
    char name[MODEL_MAX_NAME_BYTES]; /* "": the folder's own name */
    char dir[MODEL_MAX_DIR_BYTES];
};

struct model_list {
    size_t count;
    struct model_entry items[MODEL_LIST_MAX];
};

/* STATUS_INVALID: a name or a folder is empty or too long, or two models have the same name.
 * STATUS_LIMIT: more than MODEL_LIST_MAX models. The sentence quotes the entry. */
enum status model_list_parse(const char *text, struct model_list *list,
                             struct error *err) WARN_UNUSED;
/* Names the only model (--model-name). "": changes nothing. STATUS_INVALID: there are several
 * models, the model has another name already, or the name is too long. */
enum status model_list_name(struct model_list *list, const char *name,
                            struct error *err) WARN_UNUSED;
/* Checks the text, as the `check` of a config_setting. */
enum status model_list_check(const char *text, struct error *err);

#endif
