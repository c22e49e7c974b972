/* Shows the progress of a long task on stderr. On a terminal it overwrites one line, elsewhere it
 * writes a line every few seconds. One thread. */
#ifndef BATON_BASE_PROGRESS_LINE_H
#define BATON_BASE_PROGRESS_LINE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct progress_line {
    FILE *terminal; /* NULL: whole lines */
    uint64_t told_us;
    bool drawn;
};

/* `terminal`: the terminal with the line to overwrite, or NULL. Times are CLOCK_MONOTONIC's. */
struct progress_line progress_line_begin(FILE *terminal, uint64_t now_us);
/* Returns whether the next line is due: at most ten times a second on a terminal, elsewhere every 3
 * s. True counts as written. */
bool progress_line_due(struct progress_line *line, uint64_t now_us);
/* Overwrites the last line on a terminal; elsewhere writes a line to stderr. */
void progress_line_tell(struct progress_line *line, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Clears the line, so that later output starts on an empty one. */
void progress_line_end(struct progress_line *line);

/* Returns stderr if it is a terminal, otherwise NULL. */
FILE *progress_line_terminal(void);

#endif
