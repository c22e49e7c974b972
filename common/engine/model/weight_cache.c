#include "common/engine/model/weight_cache.h"

#include "common/base/clock.h"
#include "common/base/domain/content_hash.h"
#include "common/base/log.h"
#include "common/engine/model/load_progress.h"
#include "common/engine/model/safetensors.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static enum status check_folder(const char *folder, struct error *err)
{
    struct stat info;
    if (stat(folder, &info) != 0)
        return error_set(err, STATUS_INVALID, "weight-cache: %s: %s", folder, strerror(errno));
    if (!S_ISDIR(info.st_mode))
        return error_set(err, STATUS_INVALID, "weight-cache: %s is no folder", folder);
    return STATUS_OK;
}

enum status weight_cache_path(const char *setting, const char *model_dir, const char *packing,
                              struct weight_types types, char path[WEIGHT_CACHE_PATH_BYTES],
                              struct error *err)
{
    char form[128];
    int length;
    path[0] = '\0';
    if (!setting || !strcmp(setting, WEIGHT_CACHE_OFF))
        return STATUS_OK;
    snprintf(form, sizeof form, "%s.%s-%s.packed", packing, weight_type_names[types.layers],
             weight_type_names[types.ends]);
    char *real = realpath(model_dir, NULL);
    if (!real)
        return error_set(err, STATUS_INVALID, "%s: %s", model_dir, strerror(errno));
    enum status status = STATUS_OK;
    if (!strcmp(setting, WEIGHT_CACHE_BESIDE)) {
        length = snprintf(path, WEIGHT_CACHE_PATH_BYTES, "%s/baton.%s", real, form);
    } else {
        status = check_folder(setting, err);
        length = snprintf(path, WEIGHT_CACHE_PATH_BYTES, "%s/%s.%016" PRIx64 ".%s", setting,
                          strrchr(real, '/') + 1, content_hash(real, strlen(real)), form);
    }
    free(real);
    if (status == STATUS_OK && length >= WEIGHT_CACHE_PATH_BYTES)
        status = error_set(err, STATUS_INVALID, "weight-cache: the path is too long");
    return status;
}

struct packed_identity weight_cache_identity(const struct kernels *kernels,
                                             struct safetensors *files)
{
    const uint64_t version = KERNELS_VERSION; /* numbers of another one may be others */
    struct packed_identity identity = {.sources_hash = content_hash(&version, sizeof version),
                                       .model_hash = safetensors_hash(files)};
    snprintf(identity.packing, sizeof identity.packing, "%s", kernels_info(kernels).packing);
    for (size_t i = 0; i < safetensors_file_count(files); i++) {
        struct safetensors_source source = safetensors_source_at(files, i);
        const uint64_t words[] = {identity.sources_hash,
                                  content_hash(source.name, strlen(source.name)), source.bytes,
                                  (uint64_t)source.mtime_ns, source.header_hash};
        identity.sources_hash = content_hash(words, sizeof words);
    }
    return identity;
}

bool weight_cache_map(const char *path, const struct packed_header *header, struct kernels *kernels,
                      struct load_progress *progress, struct packed_map *map)
{
    struct error err;
    enum status status = packed_file_map(path, header, kernels, progress, map, &err);
    if (status != STATUS_OK && status != STATUS_NOT_FOUND) {
        load_progress_end(progress);
        log_warn("weights", "msg=\"kept weights can't be used, they are packed again\" why=\"%s\"",
                 err.text);
    }
    return status == STATUS_OK;
}

void weight_cache_keep(const char *path, const struct packed_header *header, const char *data,
                       struct load_progress *progress)
{
    struct error err;
    uint64_t started_us = clock_now_us();
    enum status status = packed_file_write(path, header, data, progress, &err);
    load_progress_end(progress);
    if (status == STATUS_OK)
        log_info("weights",
                 "msg=\"packed weights are kept\" path=\"%s\" bytes=%" PRIu64 " took_ms=%" PRIu64,
                 path, header->data_bytes, (clock_now_us() - started_us) / 1000);
    else if (status == STATUS_UNAVAILABLE) /* workers that start together pack the same */
        log_info("weights", "msg=\"packed weights are left to another process\" why=\"%s\"",
                 err.text);
    else
        log_warn("weights", "msg=\"packed weights can't be kept\" why=\"%s\"", err.text);
}
