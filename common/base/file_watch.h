/* Reports that files were replaced: certificates, keys, lists that a running process takes over. It
 * looks at the files when it is called, at most once an interval. It has no thread, no descriptor
 * and no signal. One thread; the caller's memory.
 *
 *      struct file_watch watch;
 *      file_watch_init(&watch, 1000000);
 *      TRY(file_watch_add(&watch, config->cert, err));
 *      TRY(file_watch_add(&watch, config->key, err));
 *      TRY(load(config, err));                    after the adds: later changes are reported
 *      ...
 *      if (file_watch_changed(&watch, clock_now_us()))   on a timer, or before each use
 *          take_over_or_keep_the_old();                  the other half of a pair is reported, too
 *
 * A file has changed when its device, inode, size or time of change differs, or when it appears or
 * disappears. Paths are followed through links, so that a folder swapped behind a link is seen. A
 * file that changed a moment ago may change again and keep the same times. It is therefore reported
 * once more when that moment has passed. A report may be about the same bytes again, but the last
 * state of a file is always reported. */
#ifndef BATON_BASE_FILE_WATCH_H
#define BATON_BASE_FILE_WATCH_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FILE_WATCH_MAX_FILES      8
#define FILE_WATCH_MAX_PATH_BYTES 512 /* with the NUL */

/* The state of a file at one look. */
struct file_mark {
    bool there;
    bool fresh; /* it changed so shortly before that another change may leave the same mark */
    uint64_t device, inode, size;
    uint64_t modified_ns, changed_ns; /* wall clock */
};

struct file_watch {
    uint64_t interval_us, next_us; /* next_us: time of the next look */
    size_t count;
    char paths[FILE_WATCH_MAX_FILES][FILE_WATCH_MAX_PATH_BYTES];
    struct file_mark marks[FILE_WATCH_MAX_FILES];
};

/* Looks at most once in interval_us; 0: at each call. */
void file_watch_init(struct file_watch *watch, uint64_t interval_us);
/* Copies the path and compares later looks with the file's present state, which may be "missing".
 * STATUS_LIMIT: one file too many, or too long a path. */
enum status file_watch_add(struct file_watch *watch, const char *path,
                           struct error *err) WARN_UNUSED;
/* Returns whether a file differs from its state at the last call that returned true, or at
 * file_watch_add. Returns false without a look before the interval has passed (now_us:
 * clock_now_us). */
bool file_watch_changed(struct file_watch *watch, uint64_t now_us);

#endif
