/* Patterns of tokenizer.json are written for Oniguruma (Ruby's syntax). This turns one into what
 * PCRE2 reads the same way, where the two differ: \s is Unicode's White_Space (PCRE2 adds U+180E),
 * \h a hexadecimal digit, \p{Han} the script itself (PCRE2: its extensions). `^` and `$` meaning
 * every line is left to the compile options. Pure. */
#ifndef BATON_LANGUAGE_TEXT_REGEX_SYNTAX_H
#define BATON_LANGUAGE_TEXT_REGEX_SYNTAX_H

#include "common/base/str.h"

/* Appends the translation. STATUS_UNSUPPORTED for a set inside a set, or an intersection of
 * sets. */
enum status regex_syntax_translate(const char *pattern, size_t length, struct str *out,
                                   struct error *err) WARN_UNUSED;

#endif
