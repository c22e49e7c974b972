/* The "normalizer" of tokenizer.json: what happens to text before it is split. NFC, Sequences of it, or none. */
#ifndef BATON_TEXT_NORMALIZER_H
#define BATON_TEXT_NORMALIZER_H

#include "common/base/str.h"
#include "common/json/json.h"

struct normalizer {
    bool nfc;
};

/* STATUS_UNSUPPORTED with a sentence that names the component. `json` may be NULL: none. */
enum status normalizer_init(struct normalizer *normalizer, const struct json_value *json,
                            struct error *err) WARN_UNUSED;

/* *text and *length (valid UTF-8) are the normalized text afterwards: either untouched, or in `buffer`, which the caller
 * has initialised and cleared. */
void normalizer_apply(const struct normalizer *normalizer, const char **text, size_t *length,
                      struct str *buffer);
/* A limit for `buffer` that the text can't reach. */
size_t normalizer_limit(size_t length);

#endif
