/* What is said to a conversation, line by line: edited, where there is a terminal to edit in, or as
 * standard input has it. One thread. */
#ifndef BATON_CLI_CHAT_INPUT_H
#define BATON_CLI_CHAT_INPUT_H

#include "common/cli/line_editor.h"

struct chat_input {
    struct line_reader reader;
    struct line_editor *editor; /* NULL: lines come as they are, and `reader` has them */
    struct line_history history;
    const char *prompt; /* "": none is shown */
    int signal_fd;
};

/* `interactive`: standard input and output are a terminal. `keep`: typed lines, for the next start.
 * Signals come through `signal_fd` (of terminal_signals.h). */
void chat_input_open(struct chat_input *input, bool interactive, bool keep, int signal_fd);
/* Says on standard error if typed lines could not be kept. A zeroed one is fine. */
void chat_input_close(struct chat_input *input);
/* Whether lines are edited with keys like arrows. */
bool chat_input_edits(bool interactive);
/* Waits for the next line, which is valid until the next call; LINE_END also where a signal ends
 * the program. Never LINE_NONE. */
enum line_event chat_input_next(struct chat_input *input, const char **line);

#endif
