/* Lines that were typed, to be had again with the arrow keys, also at the next start: in
 * $XDG_STATE_HOME/baton/chat_history or ~/.local/state/baton/chat_history, which nobody else may
 * read. Bounded; the oldest goes first. Of two programs at a time, the one that ends last leaves
 * its lines. libedit's, and its format of the file. One thread. */
#ifndef BATON_CLI_LINE_HISTORY_H
#define BATON_CLI_LINE_HISTORY_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stddef.h>

#define LINE_HISTORY_MAX_LINES      500
#define LINE_HISTORY_MAX_LINE_BYTES 4096
/* Of the file: a byte is up to four there. One that is longer is not ours, and not read. */
#define LINE_HISTORY_MAX_FILE_BYTES (LINE_HISTORY_MAX_LINES * (4 * LINE_HISTORY_MAX_LINE_BYTES + 2))

struct line_history {
    struct history *lines; /* libedit's; NULL: out of memory, and nothing is kept */
    bool changed;
    char path[4096]; /* "": no file */
};

/* `keep`: in the file, which is read now; it need not be there. After setlocale. */
void line_history_open(struct line_history *typed, bool keep);
/* An empty line, the last one again, and one over the limit are left out. */
void line_history_add(struct line_history *typed, const char *line);
/* The newest is 1 back. NULL: none is so far back. Valid until the next call of another
 * function. */
const char *line_history_back(struct line_history *typed, size_t back);
/* Writes the file, atomically, where there is one to be kept and lines came. Frees in any case. */
enum status line_history_close(struct line_history *typed, struct error *err) WARN_UNUSED;

#endif
