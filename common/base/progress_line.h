/* How far something is, told to a person before stderr: on a terminal one line that is written
 * over, elsewhere a line every few seconds. One thread. */
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

/* `terminal`: whose line is written over, or NULL. Times are CLOCK_MONOTONIC's. */
struct progress_line progress_line_begin(FILE *terminal, uint64_t now_us);
/* Whether it is time to tell again: ten times a second at most, elsewhere every 3 s. Then that
 * counts as told. */
bool progress_line_due(struct progress_line *line, uint64_t now_us);
/* Over the last on a terminal, else as a line of its own on stderr. */
void progress_line_tell(struct progress_line *line, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Takes it away: what comes next writes on an empty line. */
void progress_line_end(struct progress_line *line);

/* stderr, where somebody sits before it; else NULL. */
FILE *progress_line_terminal(void);

#endif
