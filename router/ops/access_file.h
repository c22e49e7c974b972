/* Where lines of the access log go: standard error, or a file, also a FIFO, that can be moved away.
 * Whole lines only: what an error has cut is ended before the next one. Blocks while the other end
 * takes nothing, until it is told to hurry.
 *
 * One thread, but for access_file_hurry. */
#ifndef BATON_ROUTER_OPS_ACCESS_FILE_H
#define BATON_ROUTER_OPS_ACCESS_FILE_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stdint.h>

#define ACCESS_FILE_HURRY_US 2000000u /* for all that is still to be written, once it is told to */

struct access_file {
    char path[1024]; /* "": standard error */
    int fd, hurry_fd;
    bool is_socket;
    bool torn;            /* the last line has no end */
    uint64_t deadline_us; /* 0: there is time */
};

/* `where`: "stderr", or a path: appended to, made if it isn't there. STATUS_IO: it can't be
 * written, or is a FIFO that nobody reads. */
enum status access_file_open(struct access_file *file, const char *where,
                             struct error *err) WARN_UNUSED;
void access_file_close(struct access_file *file);

/* The file by its name anew; where it can't be opened, the one that is open goes on: lines under
 * another name are better than none. */
void access_file_open_again(struct access_file *file);
/* A line with its line feed. False: not written, or not to its end. */
bool access_file_put(struct access_file *file, const char *line, size_t length);
/* Any thread: whoever waits for the other end gives up in time. */
void access_file_hurry(struct access_file *file);

#endif
