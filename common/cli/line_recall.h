/* Puts lines that were typed in the place of the one that is edited. libedit's own keys for that
 * copy no more than the first 1024 characters of the line that is left, and its search writes
 * behind its buffer. One thread. */
#ifndef BATON_CLI_LINE_RECALL_H
#define BATON_CLI_LINE_RECALL_H

#include "common/base/str.h"
#include "common/cli/line_editor.h"

#include <wchar.h>

struct editline; /* libedit's EditLine */

struct line_recall {
    struct line_history *typed;
    size_t back; /* of the line that is shown; 0: the one that is being written */
    wchar_t written[LINE_EDITOR_MAX_CHARACTERS + 1]; /* kept while another is shown; 0 behind it */
    struct str sought, search_prompt;
    bool
        /* the last Escape of those that were read: more has come behind it, as one key */
        escape_begins;
};

/* `typed` outlives it. */
void line_recall_init(struct line_recall *recall, struct line_history *typed);
void line_recall_deinit(struct line_recall *recall);

/* The line that far back, with the cursor at its end. False: there is none, or the one that is
 * being written is over the limit; nothing is changed. */
bool line_recall_show(struct line_recall *recall, struct editline *edit, size_t back);
/* Shows the newest line with what is typed from here on; Ctrl-R goes on to an older one. The key
 * that ends it does what it does elsewhere; Ctrl-G brings back the line from which it began, Escape
 * ends it. `prompt`: what libedit shows, another one meanwhile. What libedit is to do now: CC_NORM,
 * or CC_EOF. */
unsigned char line_recall_search(struct line_recall *recall, struct editline *edit,
                                 const char **prompt);

#endif
