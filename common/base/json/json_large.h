/* Numbers that no number here holds: integers beyond 64 bits, of which json-c keeps the text
 * (json_text.h). Inside common/base/json only; json_large_number is json.h's. */
#ifndef BATON_BASE_JSON_JSON_LARGE_H
#define BATON_BASE_JSON_JSON_LARGE_H

#include "common/base/json/json.h"

bool json_is_beyond(const struct json_value *value);

#endif
