/* The terminal: its size and colours, text that may be shown in it, the signals that it sends, and
 * single keys. */
#ifndef BATON_CLI_TERMINAL_H
#define BATON_CLI_TERMINAL_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stddef.h>

#define TERMINAL_COLUMNS 80 /* if neither the window nor $COLUMNS has a width */

/* Returns the width of standard output's window, or $COLUMNS. */
unsigned terminal_columns(void);
/* Returns the lines of the window. 0: not known. */
unsigned terminal_lines(void);
/* True: standard output is a terminal that knows escapes, and $NO_COLOR is not set
 * (https://no-color.org). */
bool terminal_color(void);
/* True: standard output is a terminal that knows escapes. */
bool terminal_is_one(void);

/* Copies outside bytes without control bytes, and so without escapes. Cuts between characters.
 * size > 0. */
void terminal_word(const char *text, char *target, size_t size);

/* Copies outside text without control characters, from which a terminal might take orders: they
 * become '?', except line feeds and tabs. Carriage returns are left out. `shown` has room for
 * `count` bytes. Returns the bytes written. */
size_t terminal_plain(const char *text, size_t count, char *shown);
/* Writes text to standard output: as terminal_plain to a terminal of any kind, unchanged to
 * anything else. A piece may be cut anywhere except inside a character. */
void terminal_show(const char *text, size_t count);

/* --- signals ---
 *
 * Signals to a program that talks in a terminal, as a descriptor to poll. One thread. Only one may
 * be open in a process. */
enum terminal_signal {
    TERMINAL_NOTHING,
    TERMINAL_INTERRUPT, /* SIGINT: Ctrl-C */
    TERMINAL_END,       /* SIGTERM, SIGHUP, and SIGQUIT if `edits` */
    /* Only if `edits`: an editor must put the terminal back for others. */
    TERMINAL_STOP,     /* SIGTSTP: Ctrl-Z; terminal_signals_stop obeys it */
    TERMINAL_CONTINUE, /* SIGCONT after another process stopped this one */
    TERMINAL_RESIZE,   /* SIGWINCH */
};

/* Blocks the signals in this thread and in the threads that it starts later: call it before any
 * thread starts. The caller polls and closes *fd. */
enum status terminal_signals_open(bool edits, int *fd, struct error *err) WARN_UNUSED;
/* Returns the next signal, without blocking. */
enum terminal_signal terminal_signals_take(int fd);
/* Stops the process as SIGTSTP does by default, and returns when it continues. */
void terminal_signals_stop(void);

/* --- keys ---
 *
 * Single keys of the terminal that is standard input, without Enter and without an echo. Ctrl-C and
 * the like stay signals. While Ctrl-Z has stopped the process the terminal is as it was before. No
 * key comes if standard input is no terminal, or belongs to another program (this one runs in the
 * background). Only one may be open in a process. One thread. */
struct key_input {
    int fd;       /* to poll; -1: no key comes (any more) */
    bool changed; /* the terminal's mode */
};

void key_input_open(struct key_input *input);
/* Puts the terminal back as it was. A zeroed input is fine. */
void key_input_close(struct key_input *input);
/* Returns a key that was typed, without blocking. 0: none. */
char key_input_take(struct key_input *input);

#endif
