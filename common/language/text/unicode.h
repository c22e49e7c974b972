/* Unicode beyond UTF-8, for the tokenizer and templates. unicode.c is the only file that knows
 * utf8proc. Pure; any thread. */
#ifndef BATON_LANGUAGE_TEXT_UNICODE_H
#define BATON_LANGUAGE_TEXT_UNICODE_H

#include "common/base/str.h"

/* Returns true only if normalization form C changes nothing. A quick test, which may return false
 * also then. */
bool unicode_is_surely_nfc(const char *text, size_t length);

/* Appends the text in normalization form C. `text` is valid UTF-8. O(n log n) for any text. */
void unicode_add_nfc(struct str *out, const char *text, size_t length);

bool unicode_is_space(uint32_t code); /* White_Space */
/* \w of Rust's regular expressions: Alphabetic, marks, decimal numbers, connectors, joiners. */
bool unicode_is_word(uint32_t code);
bool unicode_is_numeric(uint32_t code);     /* numbers of all kinds: N* */
bool unicode_is_punctuation(uint32_t code); /* P*, and ASCII's symbols */

/* As Python's str methods have it. Case is mapped one character to one. */
bool unicode_is_letter(uint32_t code);  /* L* */
bool unicode_is_decimal(uint32_t code); /* Nd */
bool unicode_is_upper(uint32_t code);
bool unicode_is_lower(uint32_t code);
bool unicode_has_case(uint32_t code);
uint32_t unicode_upper(uint32_t code);
uint32_t unicode_lower(uint32_t code);
bool unicode_is_printable(uint32_t code); /* str.isprintable: repr doesn't escape it */

#endif
