/* Appends a parsed value to `out` as JSON on one line. Members keep their order, and numbers their
 * exact value, except that integers beyond 64 bits saturate. Strings are written as by
 * json_quote.h. `out` may become truncated. */
#ifndef BATON_BASE_JSON_JSON_WRITE_H
#define BATON_BASE_JSON_JSON_WRITE_H

#include "common/base/json/json.h"
#include "common/base/str.h"

void json_write(struct str *out, const struct json_value *value);

#endif
