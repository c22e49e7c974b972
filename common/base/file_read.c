#include "common/base/file_read.h"

#include "common/base/assert.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

bool file_is_lfs_pointer(const void *bytes, size_t length)
{
    static const char begin[] = "version https://git-lfs.github.com/spec/";
    return length >= sizeof begin - 1 && !memcmp(bytes, begin, sizeof begin - 1);
}
