/* What the views know of the terminal that they are shown in. Standard output's, and the
 * environment's. */
#ifndef BATON_CLI_TERMINAL_H
#define BATON_CLI_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>

#define TERMINAL_COLUMNS 80 /* where nothing tells */

/* The window's width, or $COLUMNS. */
unsigned terminal_columns(void);
unsigned terminal_lines(void); /* of the window; 0: not known */
/* Standard output is a terminal that knows escapes, and $NO_COLOR is not set
 * (https://no-color.org). */
bool terminal_color(void);
bool terminal_is_one(void); /* without the question of colours */

/* Copies outside bytes as what may be shown: no control bytes, so no escapes. Cut at a character;
 * size > 0. */
void terminal_word(const char *text, char *target, size_t size);

/* What of outside text may be shown as it stands: line feeds and tabs, but no other control
 * characters, of which a terminal might take orders; they become '?', carriage returns go. `shown`
 * has room for `count` bytes; returns how many there are. */
size_t terminal_plain(const char *text, size_t count, char *shown);
/* To standard output, plain where that is a terminal of any kind, else to the byte. Pieces may be
 * cut anywhere but in characters. */
void terminal_show(const char *text, size_t count);

#endif
