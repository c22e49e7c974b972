#include "common/engine/model/whole_file.h"

#include "common/base/assert.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static enum status refused(struct error *err, const char *what)
{
    return error_set(err, STATUS_IO, "%s: %s", what, strerror(errno));
}

/* Locks the file for us alone, and checks that it still has its name: its former writer may have
 * renamed it since we opened it. */
static enum status lock(const struct whole_file *file, struct error *err)
{
    struct stat open_file, named;
    bool locked = flock(file->fd, LOCK_EX | LOCK_NB) == 0;
    if (!locked && errno != EWOULDBLOCK)
        return refused(err, "it can't be locked");
    if (locked && fstat(file->fd, &open_file) == 0 && stat(file->temporary, &named) == 0 &&
        open_file.st_ino == named.st_ino && open_file.st_dev == named.st_dev)
        return STATUS_OK;
    return error_set(err, STATUS_UNAVAILABLE, "another process is writing it");
}

static void sync_folder(const char *path)
{
    char copy[WHOLE_FILE_PATH_BYTES];
    snprintf(copy, sizeof copy, "%s", path);
    int fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    (void)fsync(fd); /* at worst a power cut loses the name, and the file is made again */
    close(fd);
}

enum status whole_file_begin(struct whole_file *file, const char *path, struct error *err)
{
    file->fd = -1;
    if (snprintf(file->temporary, sizeof file->temporary, "%s.tmp", path) >=
        (int)sizeof file->temporary)
        return error_set(err, STATUS_INVALID, "the path is too long");
    snprintf(file->path, sizeof file->path, "%s", path);
    file->fd = open(file->temporary, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
    if (file->fd < 0)
        return error_set(err, STATUS_IO, "%s", strerror(errno));
    enum status status = lock(file, err);
    if (status == STATUS_OK && ftruncate(file->fd, 0) != 0) /* an earlier writer's bytes */
        status = refused(err, "it can't be written");
    if (status != STATUS_OK) {
        close(file->fd);
        file->fd = -1;
    }
    return status;
}

enum status whole_file_put(const struct whole_file *file, const void *bytes, size_t count,
                           uint64_t offset, struct error *err)
{
    const char *at = bytes;
    while (count > 0) {
        ssize_t put = pwrite(file->fd, at, count, (off_t)offset);
        if (put < 0 && errno == EINTR)
            continue;
        if (put == 0)
            errno = ENOSPC;
        if (put <= 0)
            return refused(err, "it can't be written");
        at += put;
        count -= (size_t)put;
        offset += (uint64_t)put;
    }
    return STATUS_OK;
}

enum status whole_file_end(struct whole_file *file, struct error *err)
{
    ASSERT(file->fd >= 0);
    if (fsync(file->fd) != 0 || rename(file->temporary, file->path) != 0) {
        enum status status = refused(err, "it can't be renamed");
        whole_file_drop(file);
        return status;
    }
    sync_folder(file->path);
    close(file->fd);
    file->fd = -1;
    return STATUS_OK;
}

void whole_file_drop(struct whole_file *file)
{
    if (file->fd < 0)
        return;
    unlink(file->temporary);
    close(file->fd);
    file->fd = -1;
}
