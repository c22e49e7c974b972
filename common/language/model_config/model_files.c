#include "common/language/model_config/model_files.h"

#include "common/base/str.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PART_BYTES 65536

enum status model_folder_name(const char *dir, char *name, size_t size, struct error *err)
{
    char path[PATH_MAX];
    if (!realpath(dir, path))
        return error_set(err, STATUS_NOT_FOUND,
                         "%s: no such model folder (nothing is downloaded: give the folder of a "
                         "model that is here%s)",
                         dir,
                         strchr(dir, '=') ? "; a name with a slash in it can't stand before the "
                                            "equals sign: --model-name gives it"
                                          : "");
    const char *slash = strrchr(path, '/');
    if (!slash[1] || !str_copy(name, size, slash + 1))
        return error_set(err, STATUS_INVALID,
                         "%s: give the model a name, NAME=DIR or with --model-name", dir);
    return STATUS_OK;
}

uint64_t model_file_hash(const char *dir, const char *name)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/%s", dir, name) >= (int)sizeof path)
        return 0;
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    uint64_t hash = HASH_SEED;
    char part[PART_BYTES];
    for (size_t count; (count = fread(part, 1, sizeof part, file)) > 0;)
        hash = hash_bytes(part, count, hash);
    uint64_t result = ferror(file) ? 0 : hash ? hash : 1;
    fclose(file);
    return result;
}
