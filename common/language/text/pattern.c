#include "common/language/text/pattern.h"

#include "common/base/assert.h"
#include "common/base/utf8.h"
#include "common/language/text/piece.h"

#include <stdlib.h>
#include <string.h>

enum status pattern_from_regex(struct pattern *pattern, const char *regex, size_t length,
                               struct error *err)
{
    *pattern = (struct pattern){0};
    return regex_create(regex, length, &pattern->regex, err);
}

enum status pattern_read(struct pattern *pattern, const struct json_value *json, struct error *err)
{
    const char *text;
    size_t length;
    *pattern = (struct pattern){0};
    if (json_find(json, "Regex")) {
        TRY(json_get_string(json, "Regex", &text, &length, err));
        return pattern_from_regex(pattern, text, length, err);
    }
    TRY(json_get_string(json, "String", &text, &length, err));
    if (length == 0) /* matches between any two characters, as a regular expression does */
        return pattern_from_regex(pattern, "", 0, err);
    if (length > PATTERN_LIMIT_STRING)
        return error_set(err, STATUS_LIMIT, "a string of %zu bytes is over the limit of %d", length,
                         PATTERN_LIMIT_STRING);
    pattern->string = malloc(length);
    ASSERT(pattern->string);
    memcpy(pattern->string, text, length);
    pattern->string_length = length;
    return STATUS_OK;
}

void pattern_deinit(struct pattern *pattern)
{
    regex_destroy(pattern->regex);
    free(pattern->string);
    *pattern = (struct pattern){0};
}

static struct regex_match find_string(const struct pattern *pattern,
                                      const struct pattern_search *search)
{
    const char *from = search->text + search->from;
    const char *found =
        memmem(from, search->length - search->from, pattern->string, pattern->string_length);
    if (!found)
        return (struct regex_match){.start = search->length, .end = search->length};
    size_t start = (size_t)(found - search->text);
    return (struct regex_match){true, start, start + pattern->string_length};
}

static struct regex_match find_character(const struct pattern *pattern,
                                         const struct pattern_search *search)
{
    for (size_t at = search->from; at < search->length;) {
        struct utf8_char next = utf8_next(search->text + at, search->length - at);
        if (pattern->has(next.code))
            return (struct regex_match){true, at, at + next.length};
        at += next.length;
    }
    return (struct regex_match){.start = search->length, .end = search->length};
}

enum status pattern_next(const struct pattern *pattern, struct pattern_search *search,
                         struct regex_match *match, struct error *err)
{
    *match = (struct regex_match){.start = search->length, .end = search->length};
    while (search->from <= search->length) {
        struct regex_match found;
        if (pattern->string)
            found = find_string(pattern, search);
        else if (pattern->has)
            found = find_character(pattern, search);
        else
            TRY(regex_find(pattern->regex, search->scratch, search->text, search->length,
                           search->from, &found, err));
        if (!found.found)
            break;
        if (found.start < found.end || !search->has_last || search->last_end != found.end) {
            search->from = search->last_end = found.end;
            search->has_last = true;
            *match = found;
            return STATUS_OK;
        }
        search->from +=
            search->from < search->length
                ? utf8_next(search->text + search->from, search->length - search->from).length
                : 1;
    }
    search->from = search->length + 1;
    return STATUS_OK;
}

enum status pattern_replace(const struct pattern *pattern, struct pattern_search *search,
                            const char *content, size_t content_length, struct str *out,
                            struct error *err)
{
    struct regex_match match = {.found = true};
    size_t head = 0;
    for (size_t at = 0; match.found && !out->truncated; at = match.end) {
        TRY(pattern_next(pattern, search, &match, err));
        str_append(out, search->text + at, match.start - at);
        head += head_of_part(search->head, at, match.start);
        if (match.found) {
            str_append(out, content, content_length);
            head += match.end <= search->head ? content_length : 0;
        }
    }
    search->head = head;
    return STATUS_OK;
}
