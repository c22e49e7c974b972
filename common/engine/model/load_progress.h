/* How far a load has come, told to a person: a bar that is drawn again on a terminal, ten times a
 * second at most; elsewhere a log line every few seconds, so that a short load has none. One
 * thread. */
#ifndef BATON_ENGINE_MODEL_LOAD_PROGRESS_H
#define BATON_ENGINE_MODEL_LOAD_PROGRESS_H

#include "common/base/progress_line.h"

struct load_progress {
    struct progress_line line; /* without a terminal: only when to log */
    const char *what;          /* "loading weights": a word or two, no quotes */
    uint64_t total_bytes, done_bytes;
    uint64_t started_us;
};

/* `terminal`: where a bar goes, or NULL. Times are CLOCK_MONOTONIC's. */
struct load_progress load_progress_begin(const char *what, uint64_t total_bytes, FILE *terminal,
                                         uint64_t now_us);
/* What has no parts that could be counted, as it begins; nothing where it is small. */
void load_progress_announce(struct load_progress *progress);
void load_progress_add(struct load_progress *progress, uint64_t bytes, uint64_t now_us);
/* Takes the bar away: what comes next writes on an empty line. */
void load_progress_end(struct load_progress *progress);

#endif
