/* Finds regular expressions and other patterns of tokenizer.json in text. regex.c is the only file
 * that knows PCRE2.
 *
 * A regex or pattern is immutable once made and shared by threads. A search also needs a
 * regex_scratch, one for each caller. Searching is bounded: a pattern that backtracks without end
 * fails with STATUS_LIMIT. */
#ifndef BATON_LANGUAGE_TEXT_REGEX_H
#define BATON_LANGUAGE_TEXT_REGEX_H

#include "common/base/json/json.h"
#include "common/base/status.h"
#include "common/base/str.h"

#include <stdbool.h>

/* A piece of a text on its way from the normalizer to the model. */
struct piece {
    const char *text; /* valid UTF-8 */
    size_t length;
    /* The piece's first `head` bytes stand for the first character of the whole text, whatever
     * steps made of that. 0: the whole text doesn't start here. Metaspace's "first" needs it. As
     * `tokenizers` aligns texts, inserted text counts as made of the last byte that it replaces. So
     * a piece with its first two letters made one doesn't start the text. */
    size_t head;
};

/* Returns how many of `head` leading bytes are in [start, end). */
static inline size_t head_of_part(size_t head, size_t start, size_t end)
{
    return head <= start ? 0 : (head < end ? head : end) - start;
}

static inline struct piece piece_part(struct piece piece, size_t start, size_t end)
{
    return (struct piece){piece.text + start, end - start, head_of_part(piece.head, start, end)};
}

struct regex;
struct regex_scratch;

/* Patterns of tokenizer.json are in Oniguruma's syntax (Ruby's). This appends the pattern in
 * PCRE2's syntax, for the differences: \s is Unicode's White_Space (PCRE2 adds U+180E), \h a
 * hexadecimal digit, \p{Han} the script itself (PCRE2: its extensions). Compile options make `^`
 * and `$` match at every line. STATUS_UNSUPPORTED: a set inside a set, or an intersection of sets.
 * Pure. */
enum status regex_syntax_translate(const char *pattern, size_t length, struct str *out,
                                   struct error *err) WARN_UNUSED;

/* `pattern` is in Oniguruma's syntax. STATUS_LIMIT: too long. STATUS_UNSUPPORTED: PCRE2 can't use
 * it, or as regex_syntax_translate. */
enum status regex_create(const char *pattern, size_t length, struct regex **regex,
                         struct error *err) WARN_UNUSED;
void regex_destroy(struct regex *regex); /* NULL is fine */

struct regex_scratch *regex_scratch_create(void);
void regex_scratch_destroy(struct regex_scratch *scratch);

struct regex_match {
    bool found;
    size_t start, end; /* equal for an empty match; the text's end if nothing is found */
};

/* Finds the first match, maybe an empty one, at or behind `from` (<= length). The text must be
 * valid UTF-8; it isn't checked again. */
enum status regex_find(const struct regex *regex, struct regex_scratch *scratch, const char *text,
                       size_t length, size_t from, struct regex_match *match,
                       struct error *err) WARN_UNUSED;

#define PATTERN_LIMIT_STRING 4096 /* bytes of a {"String": ...} */

/* One of {"Regex": ...}, {"String": ...}, or a class of characters. */
struct pattern {
    struct regex *regex;
    char *string; /* not NUL-terminated */
    size_t string_length;
    bool (*has)(uint32_t code); /* the class; each character is a match of its own */
};

/* `json` is {"Regex": ...} or {"String": ...}. STATUS_NOT_FOUND, STATUS_INVALID, STATUS_LIMIT,
 * STATUS_UNSUPPORTED. */
enum status pattern_read(struct pattern *pattern, const struct json_value *json,
                         struct error *err) WARN_UNUSED;
void pattern_deinit(struct pattern *pattern);

/* A search through text[0..length), valid UTF-8. Set the first three fields and zero the others. */
struct pattern_search {
    struct regex_scratch *scratch;
    const char *text;
    size_t length;
    size_t from;   /* the next match starts here or later */
    bool has_last; /* there was a match, which ended at last_end */
    size_t last_end;
    size_t head; /* the text's head, for pattern_replace */
};

/* Finds the next match, in the order of Oniguruma's find_iter: with empty matches, except right
 * behind another match. */
enum status pattern_next(const struct pattern *pattern, struct pattern_search *search,
                         struct regex_match *match, struct error *err) WARN_UNUSED;

/* Appends the text with `content` in place of each match. Ends early if `out` is full. Set also
 * search->head to the text's head (struct piece); afterwards it is the head of `out`. */
enum status pattern_replace(const struct pattern *pattern, struct pattern_search *search,
                            const char *content, size_t content_length, struct str *out,
                            struct error *err) WARN_UNUSED;

#endif
