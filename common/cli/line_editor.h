/* A line editor in the terminal, by libedit: arrow keys, history, and the other keys that its users
 * know, also from ~/.editrc. Standard input and output are a terminal that knows escapes. A paste
 * is one text, even with several lines, and Enter sends it.
 *
 * Between two lines the terminal is as it was before. While a line is edited, signals come through
 * `signal_fd` (terminal.h). The editor obeys them, and puts the terminal back whenever others get
 * it. One thread. */
#ifndef BATON_CLI_LINE_EDITOR_H
#define BATON_CLI_LINE_EDITOR_H

#include "common/base/status.h"
#include "common/base/str.h"
#include "common/cli/input_lines.h"

#include <stdbool.h>
#include <stddef.h>
#include <wchar.h>

/* A character has at most four bytes: with its line feed a line fits a line_reader too. */
#define LINE_EDITOR_MAX_CHARACTERS (LINE_READER_MAX_BYTES / 4 - 1)
#define LINE_EDITOR_INVISIBLE      "\001" /* around parts of a prompt that take no columns */

struct line_editor;
struct line_history;
struct editline; /* libedit's EditLine */

/* Sets LC_CTYPE to a locale of UTF-8: the environment's, or C.UTF-8. Comes before all other calls
 * here, and before line_history_open. */
void line_editor_locale(void);
/* NULL: out of memory, or standard input is no terminal. `prompt` and `typed` outlive it. */
struct line_editor *line_editor_open(const char *prompt, struct line_history *typed, int signal_fd);
/* Puts the terminal back. NULL is fine. */
void line_editor_close(struct line_editor *editor);
/* Waits for a line, which may have line feeds inside and is valid until the next call.
 * LINE_INTERRUPTED: Ctrl-C at an empty line (in another line it clears the line). LINE_END: Ctrl-D
 * at an empty line, or a signal that ends the program. Never LINE_NONE. */
enum line_event line_editor_read(struct line_editor *editor, const char **line);

/* The rest is line_recall.c: typed lines for the editor. */

/* --- history ---
 *
 * Kept for the next start in $XDG_STATE_HOME/baton/chat_history or
 * ~/.local/state/baton/chat_history, which other users may not read. Bounded: the oldest line goes
 * first. With two programs at a time, the one that ends last leaves its lines. In libedit's file
 * format. */
#define LINE_HISTORY_MAX_LINES      500
#define LINE_HISTORY_MAX_LINE_BYTES 4096
/* A byte takes up to four in the file. A longer file is not ours, and not read. */
#define LINE_HISTORY_MAX_FILE_BYTES (LINE_HISTORY_MAX_LINES * (4 * LINE_HISTORY_MAX_LINE_BYTES + 2))

struct line_history {
    struct history *lines; /* libedit's; NULL: out of memory, and nothing is kept */
    bool changed;
    char path[4096]; /* "": no file */
};

/* `keep`: in the file, which is read now and may be missing. Call it after setlocale. */
void line_history_open(struct line_history *typed, bool keep);
/* Leaves out an empty line, a repetition of the last line, and a line over the limit. */
void line_history_add(struct line_history *typed, const char *line);
/* Returns the line that is `back` lines back; the newest is 1 back. NULL: there is none. It is
 * valid until the next call of another function. */
const char *line_history_back(struct line_history *typed, size_t back);
/* Writes the file atomically, if one is kept and lines were added. Frees in any case. */
enum status line_history_close(struct line_history *typed, struct error *err) WARN_UNUSED;

/* --- recall ---
 *
 * Replaces the edited line by a typed one. libedit's own functions for that copy only the first
 * 1024 characters of the line that is left, and its search writes past its buffer. */
struct line_recall {
    struct line_history *typed;
    size_t back; /* how far back the shown line is; 0: the one that is being written */
    wchar_t written[LINE_EDITOR_MAX_CHARACTERS + 1]; /* kept while another is shown; ends with 0 */
    struct str sought, search_prompt;
    bool escape_begins; /* more came behind the last Escape that was read, as one key */
};

/* `typed` outlives it. */
void line_recall_init(struct line_recall *recall, struct line_history *typed);
void line_recall_deinit(struct line_recall *recall);

/* Shows the line that is `back` lines back, with the cursor at its end. False: there is none, or
 * the line being written is over the limit; nothing has changed. */
bool line_recall_show(struct line_recall *recall, struct editline *edit, size_t back);
/* Shows the newest line that contains the text typed from here on. Ctrl-R goes to an older one,
 * Ctrl-G brings back the first line, Escape ends the search, and any other key ends it and acts as
 * usual. *prompt is what libedit shows; it is another one meanwhile. Returns libedit's next step:
 * CC_NORM or CC_EOF. */
unsigned char line_recall_search(struct line_recall *recall, struct editline *edit,
                                 const char **prompt);

/* --- screen ---
 *
 * `prompt` is the one that libedit has drawn. If the terminal's width has changed since, rows are
 * counted by the new width. */

/* Returns the rows from the prompt's row to that of the line's character `end`. */
size_t line_screen_rows(struct editline *edit, const char *prompt, const wchar_t *end);
/* Clears the screen from the prompt's row on, and leaves the cursor there. */
void line_screen_clear(struct editline *edit, const char *prompt);
/* True: a key without text. */
static inline bool line_is_control(wchar_t character)
{
    return character < 0x20 || (character >= 0x7f && character < 0xa0);
}

#endif
