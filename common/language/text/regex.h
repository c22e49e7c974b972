/* Finding a pattern in text. The only file that knows PCRE2.
 *
 * A regex is immutable once compiled and shared by threads; what a search needs besides is a
 * regex_scratch, one for each caller. Patterns are Oniguruma's (regex_syntax.h). Searching is
 * bounded: a pattern that backtracks without end fails with STATUS_LIMIT instead of stopping the
 * caller. */
#ifndef BATON_LANGUAGE_TEXT_REGEX_H
#define BATON_LANGUAGE_TEXT_REGEX_H

#include "common/base/status.h"

#include <stdbool.h>

struct regex;
struct regex_scratch;

enum status regex_create(const char *pattern, size_t length, struct regex **regex,
                         struct error *err) WARN_UNUSED;
void regex_destroy(struct regex *regex); /* NULL is fine */

struct regex_scratch *regex_scratch_create(void);
void regex_scratch_destroy(struct regex_scratch *scratch);

struct regex_match {
    bool found;
    size_t start, end; /* equal for an empty match; the text's end where there is none */
};

/* The first match, maybe an empty one, at or behind `from` (<= length) in text[0..length), which
 * must be valid UTF-8 (it isn't checked again). */
enum status regex_find(const struct regex *regex, struct regex_scratch *scratch, const char *text,
                       size_t length, size_t from, struct regex_match *match,
                       struct error *err) WARN_UNUSED;

#endif
