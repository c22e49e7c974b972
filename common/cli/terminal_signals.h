/* What is signalled to a program that talks in a terminal, as something to poll. One thread; one at
 * a time is open in a process. */
#ifndef BATON_CLI_TERMINAL_SIGNALS_H
#define BATON_CLI_TERMINAL_SIGNALS_H

#include "common/base/status.h"

#include <stdbool.h>

enum terminal_signal {
    TERMINAL_NOTHING,
    TERMINAL_INTERRUPT, /* SIGINT: Ctrl-C */
    TERMINAL_END,       /* SIGTERM, SIGHUP, and of an editor SIGQUIT */
    /* Of an editor alone, which sets the terminal to what others must not find it in: */
    TERMINAL_STOP,     /* SIGTSTP: Ctrl-Z; terminal_signals_stop does it */
    TERMINAL_CONTINUE, /* SIGCONT: somebody else had stopped us */
    TERMINAL_RESIZE,   /* SIGWINCH */
};

/* Blocks the signals in this thread, and in those that it starts from now on: call it before any
 * thread starts. *fd is to poll and to close. */
enum status terminal_signals_open(bool edits, int *fd, struct error *err) WARN_UNUSED;
/* The next one, without blocking. */
enum terminal_signal terminal_signals_take(int fd);
/* Stops the process as SIGTSTP does by default; returns when it goes on. */
void terminal_signals_stop(void);

#endif
