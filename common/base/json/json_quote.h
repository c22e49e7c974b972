/* Appends `text` to `out` as a JSON string with its quotes. What isn't UTF-8 in it becomes
 * U+FFFD. */
#ifndef BATON_BASE_JSON_JSON_QUOTE_H
#define BATON_BASE_JSON_JSON_QUOTE_H

#include "common/base/str.h"

void json_quote(struct str *out, const char *text, size_t length);

#endif
