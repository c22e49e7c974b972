/* Puts lines that were typed in the place of the one that is edited. libedit's own keys for that copy no more than the first 1024
 * characters of the line that is left, and its search writes behind its buffer. One thread. */
#ifndef BATON_CLI_LINE_RECALL_H
#define BATON_CLI_LINE_RECALL_H

#include "common/cli/line_editor.h"

#include <wchar.h>

struct editline; /* libedit's EditLine */

struct line_recall {
    struct line_history *typed;
    size_t back; /* of the line that is shown; 0: the one that is being written */
    wchar_t written[LINE_EDITOR_MAX_CHARACTERS + 1]; /* kept while another is shown; 0 behind it */
};

/* The line that far back, with the cursor at its end. False: there is none, or the one that is being written is over the limit;
 * nothing is changed. */
bool line_recall_show(struct line_recall *recall, struct editline *edit, size_t back);
/* How far back the nearest line with `part` in it is, at least `back` (1 at least); 0: there is none. */
size_t line_recall_find(const struct line_recall *recall, const char *part, size_t back);

#endif
