/* UTF-8, one character at a time. Pure; any thread. Malformed bytes are cut into "maximal subparts"
 * (Unicode 15, section 3.9). Repairing text replaces each by one U+FFFD, as Rust's
 * String::from_utf8_lossy and Python's errors="replace" do. */
#ifndef BATON_BASE_UTF8_H
#define BATON_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define UTF8_REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

enum utf8_kind {
    UTF8_WHOLE,  /* a well-formed character: code and length (1..4) */
    UTF8_BROKEN, /* malformed: length (1..3) bytes that never become a character */
    UTF8_CUT,    /* the bytes end inside a character that may still become whole: length (1..3) */
};

struct utf8_char {
    enum utf8_kind kind;
    uint32_t code; /* 0 unless UTF8_WHOLE */
    size_t length; /* length in bytes, >= 1 */
};

/* Reads the character at bytes[0]; count >= 1. */
struct utf8_char utf8_next(const char *bytes, size_t count);

/* Returns whether the text is well-formed. Otherwise *bad_offset (may be NULL) is where the first
 * malformed character starts. */
bool utf8_valid(const char *bytes, size_t count, size_t *bad_offset);

/* Writes the character and returns its length (1..4); `code` is a Unicode scalar value. */
size_t utf8_put(uint32_t code, char out[4]);

/* Replaces, in place, each byte of a control character and each malformed byte by '?'. */
void utf8_make_printable(char *text);

#endif
