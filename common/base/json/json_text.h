/* Reads over JSON text before json-c does, for what json-c 0.16 lets pass, loses or decodes
 * wrongly: UTF-8 of surrogates, control bytes, a NUL in a key (it cuts the key there), equal keys
 * (it keeps the last), surrogate pairs, of which it turns every sixty-fourth into U+FFFD, and
 * integers beyond 64 bits, which it makes the largest. Inside common/base/json only. */
#ifndef BATON_BASE_JSON_JSON_TEXT_H
#define BATON_BASE_JSON_JSON_TEXT_H

#include "common/base/status.h"

/* Behind an integer beyond 64 bits: of such a number, which is the same one, json-c keeps the
 * text. */
#define JSON_TEXT_BEYOND "e0"

struct json_text {
    char *
        /* the caller's text without surrogate escapes: pairs are UTF-8, lone ones U+FFFD; and with
         * JSON_TEXT_BEYOND */
        bytes;
    size_t length;
    size_t member_count; /* of all objects: a parsed document with fewer lost some to equal keys */
};

enum status json_text_init(struct json_text *text, const char *bytes, size_t length,
                           struct error *err) WARN_UNUSED;
void json_text_deinit(struct json_text *text);

#endif
