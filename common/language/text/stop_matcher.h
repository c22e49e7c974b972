/* Looks for stop strings in text that comes in pieces. Bytes that may still become a stop string
 * are held back (less than the longest one has); all text before them is handed on at once.
 *
 * The stop string that is complete first wins; if several end at the same byte, the longest. So the
 * outcome depends only on the text, never on how it is cut (Knuth, Morris, Pratt 1977, one
 * automaton for each stop string). Pieces of whole characters are handed on as whole characters.
 *
 * Pure; owner: one thread. */
#ifndef BATON_LANGUAGE_TEXT_STOP_MATCHER_H
#define BATON_LANGUAGE_TEXT_STOP_MATCHER_H

#include "common/base/str.h"

#define STOP_MATCHER_LIMIT_COUNT 16
#define STOP_MATCHER_LIMIT_BYTES 256
#define STOP_MATCHER_NONE        (-1)

struct stop_matcher;

/* Copies the strings; count 0 is fine. STATUS_LIMIT: more than STOP_MATCHER_LIMIT_COUNT.
 * STATUS_INVALID: a string isn't 1..STOP_MATCHER_LIMIT_BYTES bytes of UTF-8. */
enum status stop_matcher_create(const struct text *stops, size_t count,
                                struct stop_matcher **matcher, struct error *err) WARN_UNUSED;
void stop_matcher_destroy(struct stop_matcher *matcher); /* NULL is fine */

/* Appends to `out` the text that can't become a stop string any more; on a match, the text up to
 * the match. Returns the index of the stop string that was found, or STOP_MATCHER_NONE. After a
 * match further text is ignored, and the same index is returned. */
int stop_matcher_push(struct stop_matcher *matcher, const char *text, size_t length,
                      struct str *out);
/* Ends the text: appends the bytes that are held back, unless there was a match. */
void stop_matcher_flush(struct stop_matcher *matcher, struct str *out);
/* Returns the stop string, for callers that show it. */
struct text stop_matcher_text(const struct stop_matcher *matcher, int index);

#endif
