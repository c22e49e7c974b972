/* Shows a person the progress of a load: on a terminal a bar that is redrawn at most ten times a
 * second, otherwise a log line every few seconds, so that a short load has none. One thread. */
#ifndef BATON_ENGINE_MODEL_LOAD_PROGRESS_H
#define BATON_ENGINE_MODEL_LOAD_PROGRESS_H

#include "common/base/progress_line.h"

struct load_progress {
    struct progress_line line; /* without a terminal: only the time of the next log line */
    const char *what;          /* "loading weights": one or two words, no quotes */
    uint64_t total_bytes, done_bytes;
    uint64_t started_us;
};

/* `terminal`: the bar goes there; NULL: log lines. Times are CLOCK_MONOTONIC's. */
struct load_progress load_progress_begin(const char *what, uint64_t total_bytes, FILE *terminal,
                                         uint64_t now_us);
/* Announces a piece of work that has no parts to count, before it begins. Small ones: nothing. */
void load_progress_announce(struct load_progress *progress);
void load_progress_add(struct load_progress *progress, uint64_t bytes, uint64_t now_us);
/* Removes the bar: the next output starts on an empty line. */
void load_progress_end(struct load_progress *progress);

#endif
