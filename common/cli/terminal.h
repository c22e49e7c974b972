/* What the views know of the terminal that they are shown in. Standard output's, and the environment's. */
#ifndef BATON_CLI_TERMINAL_H
#define BATON_CLI_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>

#define TERMINAL_COLUMNS 80 /* where nothing tells */

/* The window's width, or $COLUMNS. */
unsigned terminal_columns(void);
unsigned terminal_lines(void); /* of the window; 0: not known */
/* Standard output is a terminal that knows escapes, and $NO_COLOR is not set (https://no-color.org). */
bool terminal_color(void);
bool terminal_is_one(void); /* without the question of colours */

/* Copies outside bytes as what may be shown: no control bytes, so no escapes. Cut at a character; size > 0. */
void terminal_word(const char *text, char *target, size_t size);

#endif
