/* Writes a file whole or not at all: PATH.tmp, under a lock, gets its name after all of it is on
 * the disk. A writer that is killed leaves PATH.tmp, which the next writer overwrites. An older
 * file of the name stays until then.
 *
 * Owner: one thread. Failures: one sentence without the path, which the caller knows. */
#ifndef BATON_ENGINE_MODEL_WHOLE_FILE_H
#define BATON_ENGINE_MODEL_WHOLE_FILE_H

#include "common/base/status.h"

#include <stddef.h>
#include <stdint.h>

#define WHOLE_FILE_PATH_BYTES 4096

struct whole_file {
    int fd; /* locked; -1: no file is begun */
    char path[WHOLE_FILE_PATH_BYTES], temporary[WHOLE_FILE_PATH_BYTES];
};

/* Begins an empty file. STATUS_UNAVAILABLE: another process is writing it. STATUS_INVALID: the path
 * is too long. */
enum status whole_file_begin(struct whole_file *file, const char *path,
                             struct error *err) WARN_UNUSED;
enum status whole_file_put(const struct whole_file *file, const void *bytes, size_t count,
                           uint64_t offset, struct error *err) WARN_UNUSED;
/* Brings it to the disk, under its name. STATUS_IO: failed, and the file is dropped. */
enum status whole_file_end(struct whole_file *file, struct error *err) WARN_UNUSED;
/* Removes a file that was begun and hasn't ended; otherwise does nothing. */
void whole_file_drop(struct whole_file *file);

#endif
