/* Appends `text` to `out` as a JSON string with its quotes. Bytes that aren't UTF-8 become U+FFFD.
 */
#ifndef BATON_BASE_JSON_JSON_QUOTE_H
#define BATON_BASE_JSON_JSON_QUOTE_H

#include "common/base/str.h"

void json_quote(struct str *out, const char *text, size_t length);

#endif
