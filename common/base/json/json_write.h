/* Appends a parsed value to `out` as JSON, on one line: members in their order, numbers as exactly
 * as they were read (integers beyond 64 bits saturate), strings as json_quote.h writes them. `out`
 * may become truncated. */
#ifndef BATON_BASE_JSON_JSON_WRITE_H
#define BATON_BASE_JSON_JSON_WRITE_H

#include "common/base/json/json.h"
#include "common/base/str.h"

void json_write(struct str *out, const struct json_value *value);

#endif
