/* Appends a parsed value to `out` as JSON, on one line: members in their order, numbers as exactly as they were read (integers beyond 64
 * bits saturate), strings as json_quote.h writes them. `out` may become truncated. */
#ifndef BATON_JSON_JSON_WRITE_H
#define BATON_JSON_JSON_WRITE_H

#include "common/base/str.h"
#include "common/json/json.h"

void json_write(struct str *out, const struct json_value *value);

#endif
