/* Looks for stop strings in text that comes in pieces. What may still become a stop string is held
 * back (less than the longest one is long), everything before it is handed on at once.
 *
 * The stop string that is complete first wins; of several that end at the same byte, the longest.
 * So the outcome depends on the text alone, never on how it is cut (Knuth, Morris, Pratt 1977, one
 * automaton a stop string). Pieces of whole characters go out as whole characters.
 *
 * Pure; owner: one thread. stop_matcher_create copies the strings. */
#ifndef BATON_LANGUAGE_TEXT_STOP_MATCHER_H
#define BATON_LANGUAGE_TEXT_STOP_MATCHER_H

#include "common/base/str.h"

#define STOP_MATCHER_LIMIT_COUNT 16
#define STOP_MATCHER_LIMIT_BYTES 256
#define STOP_MATCHER_NONE        (-1)

struct stop_matcher;

/* STATUS_LIMIT for more than 16 strings; STATUS_INVALID for one that isn't 1..256 bytes of UTF-8.
 * count 0 is fine. */
enum status stop_matcher_create(const char *const *stops, const size_t *lengths, size_t count,
                                struct stop_matcher **matcher, struct error *err) WARN_UNUSED;
void stop_matcher_destroy(struct stop_matcher *matcher); /* NULL is fine */

/* Appends to `out` what is decided: the text up to the match, without it, when one is found.
 * Returns the index of the stop string found, or STOP_MATCHER_NONE. After a match more text is
 * ignored and the same index is returned. */
int stop_matcher_push(struct stop_matcher *matcher, const char *text, size_t length,
                      struct str *out);
/* At the end: appends what is held back, unless there was a match. */
void stop_matcher_flush(struct stop_matcher *matcher, struct str *out);
/* The stop string's bytes, for callers that show it (include_stop). */
const char *stop_matcher_text(const struct stop_matcher *matcher, int index, size_t *length);

#endif
