/* A file that is there whole or not at all: PATH.tmp, under a lock, is given its name after all of
 * it is on the disk. A writer that is killed leaves PATH.tmp, which the next one writes over; a
 * file of that name that was there before stays until then.
 *
 * Owner: one thread. Failures: one sentence without the path, which the caller knows. */
#ifndef BATON_ENGINE_MODEL_WHOLE_FILE_H
#define BATON_ENGINE_MODEL_WHOLE_FILE_H

#include "common/base/status.h"

#include <stddef.h>
#include <stdint.h>

#define WHOLE_FILE_PATH_BYTES 4096

struct whole_file {
    int fd; /* locked; -1: nothing is begun */
    char path[WHOLE_FILE_PATH_BYTES], temporary[WHOLE_FILE_PATH_BYTES];
};

/* An empty file. STATUS_UNAVAILABLE: another process writes it just now; STATUS_INVALID: the path
 * is too long. */
enum status whole_file_begin(struct whole_file *file, const char *path,
                             struct error *err) WARN_UNUSED;
enum status whole_file_put(const struct whole_file *file, const void *bytes, size_t count,
                           uint64_t offset, struct error *err) WARN_UNUSED;
/* On the disk, and under its name. STATUS_IO: it is dropped. */
enum status whole_file_end(struct whole_file *file, struct error *err) WARN_UNUSED;
/* Removes what was written, where something was begun and hasn't ended. */
void whole_file_drop(struct whole_file *file);

#endif
