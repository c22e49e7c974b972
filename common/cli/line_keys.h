/* Which keys do what in a line that is edited: libedit's, those of a user's ~/.editrc, and the line
 * editor's own ("take-paste", "search" and so on), which it has added before. One thread. */
#ifndef BATON_CLI_LINE_KEYS_H
#define BATON_CLI_LINE_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <wchar.h>

struct editline; /* libedit's EditLine */

/* Reads ~/.editrc. True: the keys are vi's, and Escape is one by itself that ends a mode; then a
 * key that terminals send as several characters from Escape on is to be read by line_keys_begin. */
bool line_keys_bind(struct editline *edit);
/* Do these characters behind Escape begin such a key? *whole is set where they are one: what
 * libedit is given for it. */
bool line_keys_begin(const wchar_t *taken, size_t count, const wchar_t **whole);

#endif
