/* json.dumps as transformers' tojson calls it: ensure_ascii=False, ", " and ": ", keys in their
 * order. */
#ifndef BATON_LANGUAGE_TEMPLATE_PYTHON_JSON_H
#define BATON_LANGUAGE_TEMPLATE_PYTHON_JSON_H

#include "common/language/template/run.h"

struct python_json {
    struct value indent;         /* NONE: all on one line; an integer of spaces, or a string */
    struct value item_separator; /* strings */
    struct value key_separator;
    bool ensure_ascii, sort_keys;
};

/* Fails with Python's sentence for what JSON doesn't have. */
void python_json(struct run *run, struct text_builder *out, struct value value,
                 const struct python_json *style);

#endif
