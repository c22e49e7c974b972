/* What a component of tokenizer.json searches for: {"Regex": ...}, {"String": ...}, or a class of
 * characters. Immutable once made and shared by threads. */
#ifndef BATON_LANGUAGE_TEXT_PATTERN_H
#define BATON_LANGUAGE_TEXT_PATTERN_H

#include "common/base/json/json.h"
#include "common/base/str.h"
#include "common/language/text/regex.h"

#define PATTERN_LIMIT_STRING 4096 /* bytes of a {"String": ...} */

struct pattern {
    struct regex *regex; /* or */
    char *string;        /* or */
    size_t string_length;
    bool (*has)(uint32_t code); /* each character is a match of its own */
};

/* `json` is {"Regex": ...} or {"String": ...}. STATUS_NOT_FOUND, STATUS_INVALID, STATUS_LIMIT,
 * STATUS_UNSUPPORTED. */
enum status pattern_read(struct pattern *pattern, const struct json_value *json,
                         struct error *err) WARN_UNUSED;
enum status pattern_from_regex(struct pattern *pattern, const char *regex, size_t length,
                               struct error *err) WARN_UNUSED;
void pattern_deinit(struct pattern *pattern);

/* A search through text[0..length), valid UTF-8. Set the first three and zero the rest. */
struct pattern_search {
    struct regex_scratch *scratch;
    const char *text;
    size_t length;
    size_t from;   /* where to look next */
    bool has_last; /* there was a match, which ended at: */
    size_t last_end;
    size_t head; /* of pattern_replace, see there */
};

/* The next match, in the order and with the empty ones that Oniguruma's find_iter gives (none right
 * behind another match). match->found is false where there is none: start and end are the text's
 * end then. */
enum status pattern_next(const struct pattern *pattern, struct pattern_search *search,
                         struct regex_match *match, struct error *err) WARN_UNUSED;

/* Appends the text with `content` for each match; `search` has its first three. Ends early where
 * `out` is full. search->head: how many leading bytes stand for the first character of a text whose
 * form this one is; the same of `out` afterwards. What is put in stands for what the last byte that
 * it replaces stood for, as `tokenizers` aligns it. */
enum status pattern_replace(const struct pattern *pattern, struct pattern_search *search,
                            const char *content, size_t content_length, struct str *out,
                            struct error *err) WARN_UNUSED;

#endif
