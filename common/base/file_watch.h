/* Tells when files were replaced: certificates, keys, lists that a running process takes over.
 * Looks at the files when it is asked, no oftener than each interval; no thread, no descriptor, no
 * signal. One thread; the caller's memory.
 *
 *     struct file_watch watch;
 *     file_watch_init(&watch, 1000000);
 *     TRY(file_watch_add(&watch, config->cert, err));
 *     TRY(file_watch_add(&watch, config->key, err));
 *     TRY(load(config, err));                                 after the adds: what changes while it is read is told
 *     ...
 *     if (file_watch_changed(&watch, clock_now_us()))         on a timer, or before each use
 *         take_over_or_keep_the_old();                        it may be half of a pair: the other half is told, too, when it comes
 *
 * A file is another one when its device, inode, size or time of change is (a path is followed
 * through links, so that a folder swapped behind a link is seen), and one that is gone differs from
 * one that is there. A file that changed less than a moment ago may change again without a trace of
 * that in its times: it is told once more when that moment has passed. So what is told may be the
 * same bytes again, but the last state of a file is always told.
 */
#ifndef BATON_BASE_FILE_WATCH_H
#define BATON_BASE_FILE_WATCH_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FILE_WATCH_MAX_FILES      8
#define FILE_WATCH_MAX_PATH_BYTES 512 /* with the NUL */

/* What a file looked like. */
struct file_mark {
    bool there;
    bool fresh; /* it had changed so shortly before that another change may leave the same mark */
    uint64_t device, inode, size;
    uint64_t modified_ns, changed_ns; /* wall clock */
};

struct file_watch {
    uint64_t interval_us, next_us; /* next_us: when the files are looked at again */
    size_t count;
    char paths[FILE_WATCH_MAX_FILES][FILE_WATCH_MAX_PATH_BYTES];
    struct file_mark marks[FILE_WATCH_MAX_FILES];
};

/* interval_us 0: each time that it is asked. */
void file_watch_init(struct file_watch *watch, uint64_t interval_us);
/* The path is copied, and what lies there now (nothing, too) is what later looks are held against.
 * STATUS_LIMIT: one file too many, or too long a path. */
enum status file_watch_add(struct file_watch *watch, const char *path,
                           struct error *err) WARN_UNUSED;
/* Whether a file isn't what it was at the last call that said so, or when it was added. False
 * without a look before the interval has passed (now_us: clock_now_us). */
bool file_watch_changed(struct file_watch *watch, uint64_t now_us);

#endif
