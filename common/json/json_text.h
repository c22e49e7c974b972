/* Reads over JSON text before json-c does, for what json-c 0.16 lets pass, loses or decodes wrongly: UTF-8 of surrogates, control
 * bytes, a NUL in a key (it cuts the key there), equal keys (it keeps the last), and surrogate pairs, of which it turns
 * every sixty-fourth into U+FFFD. Inside common/json only. */
#ifndef BATON_JSON_JSON_TEXT_H
#define BATON_JSON_JSON_TEXT_H

#include "common/base/status.h"

struct json_text {
    char
        *bytes; /* the caller's text without surrogate escapes: pairs are UTF-8, lone ones U+FFFD */
    size_t length;
    size_t member_count; /* of all objects: a parsed document with fewer lost some to equal keys */
};

enum status json_text_init(struct json_text *text, const char *bytes, size_t length,
                           struct error *err) WARN_UNUSED;
void json_text_deinit(struct json_text *text);

#endif
