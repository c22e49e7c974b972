#include "common/cli/chat_input.h"

#include "common/cli/terminal.h"
#include "common/cli/terminal_signals.h"

#include <poll.h>
#include <stdio.h>
#include <unistd.h>

bool chat_input_edits(bool interactive)
{
    return interactive && terminal_is_one();
}

void chat_input_open(struct chat_input *input, bool interactive, bool keep, int signal_fd)
{
    *input = (struct chat_input){.prompt = interactive ? "> " : "", .signal_fd = signal_fd};
    line_reader_init(&input->reader, STDIN_FILENO);
    if (!chat_input_edits(interactive))
        return;
    if (terminal_color())
        input->prompt =
            LINE_EDITOR_INVISIBLE "\033[1m" LINE_EDITOR_INVISIBLE ">" LINE_EDITOR_INVISIBLE
                                  "\033[0m" LINE_EDITOR_INVISIBLE " ";
    line_editor_locale();
    line_history_open(&input->history, keep);
    input->editor = line_editor_open(input->prompt, &input->history, signal_fd);
}

void chat_input_close(struct chat_input *input)
{
    struct error err;
    line_editor_close(input->editor);
    if (line_history_close(&input->history, &err) != STATUS_OK)
        fprintf(stderr, "baton chat: %s\n", err.text);
    line_reader_deinit(&input->reader);
}

enum line_event chat_input_next(struct chat_input *input, const char **line)
{
    if (input->editor)
        return line_editor_read(input->editor, line);
    fputs(input->prompt, stdout);
    fflush(stdout);
    for (enum line_event event;;) {
        if ((event = line_reader_next(&input->reader, line)) != LINE_NONE)
            return event;
        struct pollfd fds[2] = {{.fd = input->reader.fd, .events = POLLIN},
                                {.fd = input->signal_fd, .events = POLLIN}};
        poll(fds, 2, -1);
        enum terminal_signal signal =
            fds[1].revents ? terminal_signals_take(input->signal_fd) : TERMINAL_NOTHING;
        if (signal == TERMINAL_INTERRUPT || signal == TERMINAL_END)
            return signal == TERMINAL_END ? LINE_END : LINE_INTERRUPTED;
        if (fds[0].revents)
            line_reader_fill(&input->reader);
    }
}
