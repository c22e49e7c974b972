/* Lines that are edited in the terminal: arrow keys, history, and what else libedit's users know,
 * by ~/.editrc too. Standard input and output are a terminal that knows escapes. What is pasted is
 * one text, also where it has several lines, and is sent by Enter.
 *
 * Between two lines the terminal is as it was before; while a line is edited, signals come through
 * `signal_fd` (terminal_signals.h), are acted on, and leave the terminal as it was before wherever
 * others get it. One thread. */
#ifndef BATON_CLI_LINE_EDITOR_H
#define BATON_CLI_LINE_EDITOR_H

#include "common/cli/line_history.h"
#include "common/cli/line_reader.h"

/* Of four bytes at most: with its line feed never longer than a line_reader's. */
#define LINE_EDITOR_MAX_CHARACTERS (LINE_READER_MAX_BYTES / 4 - 1)
#define LINE_EDITOR_INVISIBLE      "\001" /* around what of a prompt takes no place */

struct line_editor;

/* Sets LC_CTYPE to a locale of UTF-8: that of the environment, or C.UTF-8. Comes before all else
 * here, and line_history_open. */
void line_editor_locale(void);
/* NULL: it can't be (out of memory, or standard input is no terminal). `prompt` and `typed` outlive
 * it. */
struct line_editor *line_editor_open(const char *prompt, struct line_history *typed, int signal_fd);
/* Gives the terminal back. */
void line_editor_close(struct line_editor *editor);
/* Waits for a line; it is valid until the next call, and may have line feeds inside.
 * LINE_INTERRUPTED: Ctrl-C at an empty line; another line is cleared by it. LINE_END: Ctrl-D at an
 * empty line, or a signal that ends the program. Never LINE_NONE. */
enum line_event line_editor_read(struct line_editor *editor, const char **line);

#endif
