/* Where a measurement's figures go: a file, "-" (standard output), a pipe or a device, or ""
 * (nowhere). Opened before it begins, since an hour of it must not end in a place that can't be
 * written to; a file keeps what it held until new figures are whole. SIGINT, SIGTERM, SIGQUIT and
 * SIGPIPE, where they end the program, leave no more than that file.
 *
 * Owner: one thread, one file at a time. Failures: one sentence with the path. */
#ifndef BATON_CLI_FIGURES_FILE_H
#define BATON_CLI_FIGURES_FILE_H

#include "common/base/str.h"
#include "common/engine/model/whole_file.h"

#include <limits.h>
#include <stdio.h>

struct figures_file {
    const char *path;        /* as it was given */
    char target[PATH_MAX];   /* behind links */
    struct whole_file whole; /* begun: what is put into a file next */
    bool is_file;
    FILE *stream; /* not NULL: standard output, a pipe, a device */
};

/* `path` is the caller's until the file is closed. */
enum status figures_file_open(struct figures_file *file, const char *path,
                              struct error *err) WARN_UNUSED;
/* What there is so far: a file holds it from now on. Others wait for all. Any number of times. */
enum status figures_file_put_so_far(struct figures_file *file, const struct str *text,
                                    struct error *err) WARN_UNUSED;
/* All. Once. */
enum status figures_file_put(struct figures_file *file, const struct str *text,
                             struct error *err) WARN_UNUSED;
/* Where nothing was put, what was there before stays in a file. */
void figures_file_close(struct figures_file *file);

#endif
