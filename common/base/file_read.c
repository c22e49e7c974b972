#include "common/base/file_read.h"

#include "common/base/assert.h"
#include "common/base/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum status file_read(const char *path, size_t limit_bytes, char **bytes, size_t *length,
                      struct error *err)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return error_set(err, STATUS_IO, "cannot read %s: %s", path, strerror(errno));
    char *read = malloc(limit_bytes + 1);
    ASSERT(read);
    size_t size = fread(read, 1, limit_bytes + 1, file);
    bool failed = ferror(file);
    int why = errno;
    fclose(file);
    if (!failed && size <= limit_bytes) {
        read[size] = 0;
        *bytes = read;
        *length = size;
        return STATUS_OK;
    }
    free(read);
    if (failed)
        return error_set(err, STATUS_IO, "cannot read %s: %s", path, strerror(why));
    return error_set(err, STATUS_LIMIT, "%s has over %zu bytes", path, limit_bytes);
}

bool file_is_open_to_others(const char *path, char mode[8])
{
    struct stat found;
    *mode = 0;
    if (stat(path, &found) != 0)
        return false;
    snprintf(mode, 8, "%04o", (unsigned)(found.st_mode & 07777));
    return (found.st_mode & (S_IWGRP | S_IROTH | S_IWOTH)) != 0;
}

void file_warn_if_open(const char *module, const char *what, const char *path)
{
    char mode[8], quoted[600];
    if (file_is_open_to_others(path, mode))
        log_warn(
            module,
            "path=%s mode=%s msg=\"%s can be read or written by other users: chmod 600, or 640 "
            "with a group of its own\"",
            log_quote(path, quoted, sizeof quoted), mode, what);
}

bool file_is_lfs_pointer(const void *bytes, size_t length)
{
    static const char begin[] = "version https://git-lfs.github.com/spec/";
    return length >= sizeof begin - 1 && !memcmp(bytes, begin, sizeof begin - 1);
}
