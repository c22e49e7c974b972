#include "common/engine/model/weight_cache.h"

#include "common/base/clock.h"
#include "common/base/domain/content_hash.h"
#include "common/base/failpoint.h"
#include "common/base/log.h"
#include "common/engine/model/load_progress.h"
#include "common/engine/model/safetensors.h"
#include "common/engine/model/whole_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define PIECES_A_TURN 64 /* between two reports of the progress */

/* --- the file of a model --- */

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
        struct stat info;
        if (stat(setting, &info) != 0)
            status =
                error_set(err, STATUS_INVALID, "weight-cache: %s: %s", setting, strerror(errno));
        else if (!S_ISDIR(info.st_mode))
            status = error_set(err, STATUS_INVALID, "weight-cache: %s is no folder", setting);
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
    const uint64_t version = KERNELS_VERSION; /* another version may compute other numbers */
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

static enum status refused(struct error *err, const char *what)
{
    return error_set(err, STATUS_IO, "%s: %s", what, strerror(errno));
}

/* --- mapping a file --- */

/* Reads up to `count` bytes from the start of the file. Returns how many there were. */
static size_t read_start(int fd, char *bytes, size_t count)
{
    size_t done = 0;
    while (done < count) {
        ssize_t got = pread(fd, bytes + done, count - done, (off_t)done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        done += (size_t)got;
    }
    return done;
}

static enum status check_header(int fd, const struct packed_header *expected, char *bytes,
                                struct error *err)
{
    struct stat info;
    if (fstat(fd, &info) != 0)
        return refused(err, "fstat");
    if (!S_ISREG(info.st_mode))
        return error_set(err, STATUS_INVALID, "it is no regular file");
    size_t count = read_start(fd, bytes, expected->header_bytes);
    return packed_header_check(expected, bytes, count, (uint64_t)info.st_size, err);
}

static enum status map_data(int fd, const struct packed_header *header, struct packed_map *map,
                            struct error *err)
{
    struct packed_map made = {.bytes = header->data_bytes,
                              .region_bytes = header->data_bytes + PACKED_ALIGN_BYTES};
    made.region = mmap(NULL, made.region_bytes, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (made.region == MAP_FAILED)
        return refused(err, "mmap");
    uintptr_t first = (uintptr_t)made.region + PACKED_ALIGN_BYTES - 1;
    made.data = (char *)(first / PACKED_ALIGN_BYTES * PACKED_ALIGN_BYTES);
    if (mmap(made.data, made.bytes, PROT_READ, MAP_SHARED | MAP_FIXED, fd,
             (off_t)header->data_offset) == MAP_FAILED) {
        enum status status = refused(err, "mmap");
        munmap(made.region, made.region_bytes);
        return status;
    }
    (void)madvise(made.data, made.bytes, MADV_HUGEPAGE); /* a hint: small pages are slower */
    *map = made;
    return STATUS_OK;
}

/* Reads the file's pages from the disk ahead of the threads that sum them: so the disk never waits
 * for the sums. Skips pages that are in memory: the summing threads map them by a touch, which is
 * cheaper than MADV_POPULATE_READ. */
struct reading {
    const struct packed_map *map;
    int fd;
    uint64_t offset; /* the map's offset in the file */
};

static void *read_ahead(void *argument)
{
    const struct reading *reading = argument;
    const struct packed_map *map = reading->map;
    for (uint64_t at = 0; at < map->bytes; at += PACKED_ALIGN_BYTES) {
        uint64_t left = map->bytes - at;
        size_t count = left < PACKED_ALIGN_BYTES ? left : PACKED_ALIGN_BYTES;
        char byte; /* the last one: a disk is read forwards */
        struct iovec last = {&byte, 1};
        off_t last_at = (off_t)(reading->offset + at + count - 1);
        bool in_memory = preadv2(reading->fd, &last, 1, last_at, RWF_NOWAIT) == 1;
        if (!in_memory && madvise(map->data + at, count, MADV_POPULATE_READ) != 0)
            break; /* a kernel before 5.14: the summing threads wait for the disk */
    }
    return NULL;
}

struct verification {
    const struct packed_header *header;
    const uint64_t *checksums;
    const char *data;
    uint64_t first_piece;
    atomic_uint_fast64_t bad_piece; /* the first bad one; UINT64_MAX: none */
};

static void verify_pieces(void *context, uint32_t thread, uint32_t first, uint32_t last)
{
    (void)thread;
    struct verification *verification = context;
    for (uint64_t i = first; i < last; i++) {
        uint64_t piece = verification->first_piece + i;
        uint64_t found = content_hash(verification->data + piece * PACKED_PIECE_BYTES,
                                      packed_piece_bytes(verification->header, piece));
        uint_fast64_t bad = atomic_load(&verification->bad_piece);
        while (found != verification->checksums[piece] && piece < bad)
            if (atomic_compare_exchange_weak(&verification->bad_piece, &bad, piece))
                break;
    }
}

static enum status verify(const struct packed_header *header, const uint64_t *checksums,
                          const char *data, struct kernels *kernels, struct load_progress *progress,
                          struct error *err)
{
    struct verification verification = {
        .header = header, .checksums = checksums, .data = data, .bad_piece = UINT64_MAX};
    for (uint64_t piece = 0; piece < header->piece_count; piece += PIECES_A_TURN) {
        uint64_t left = header->piece_count - piece;
        uint32_t count = (uint32_t)(left < PIECES_A_TURN ? left : PIECES_A_TURN);
        verification.first_piece = piece;
        kernels_host_work(kernels, count, 1, verify_pieces, &verification);
        load_progress_add(progress, count * PACKED_PIECE_BYTES, clock_now_us());
    }
    uint64_t bad = atomic_load(&verification.bad_piece);
    if (bad == UINT64_MAX)
        return STATUS_OK;
    return error_set(err, STATUS_CORRUPT, "it is damaged from byte %llu on: the checksum is wrong",
                     (unsigned long long)(header->data_offset + bad * PACKED_PIECE_BYTES));
}

static enum status map_open(int fd, const struct packed_header *expected, struct kernels *kernels,
                            struct load_progress *progress, struct packed_map *map,
                            struct error *err)
{
    char *header = malloc(expected->header_bytes);
    if (!header)
        return error_set(err, STATUS_LIMIT, "no memory for its header");
    struct packed_map made = {0};
    enum status status = check_header(fd, expected, header, err);
    if (status == STATUS_OK)
        status = map_data(fd, expected, &made, err);
    if (status == STATUS_OK) {
        struct reading reading = {.map = &made, .fd = fd, .offset = expected->data_offset};
        pthread_t thread;
        bool started = pthread_create(&thread, NULL, read_ahead, &reading) == 0;
        status = verify(expected, (const uint64_t *)(header + sizeof *expected), made.data, kernels,
                        progress, err);
        if (started)
            pthread_join(thread, NULL);
    }
    if (status == STATUS_OK)
        *map = made;
    else
        packed_file_unmap(&made);
    free(header);
    return status;
}

enum status packed_file_map(const char *path, const struct packed_header *expected,
                            struct kernels *kernels, struct load_progress *progress,
                            struct packed_map *map, struct error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        enum status status = errno == ENOENT ? STATUS_NOT_FOUND : STATUS_IO;
        return error_set(err, status, "%s: %s", path, strerror(errno));
    }
    enum status status = map_open(fd, expected, kernels, progress, map, err);
    close(fd);
    return status == STATUS_OK ? status : error_prefix(err, status, "%s", path);
}

void packed_file_unmap(struct packed_map *map)
{
    if (map->data)
        munmap(map->region, map->region_bytes);
    *map = (struct packed_map){0};
}

/* --- writing a file --- */

static enum status write_pieces(const struct whole_file *file, const struct packed_header *header,
                                const char *data, struct load_progress *progress,
                                uint64_t *checksums, struct error *err)
{
    for (uint64_t i = 0; i < header->piece_count; i++) {
        uint64_t bytes = packed_piece_bytes(header, i), begin = i * PACKED_PIECE_BYTES;
        checksums[i] = content_hash(data + begin, bytes);
        TRY(whole_file_put(file, data + begin, bytes, header->data_offset + begin, err));
        load_progress_add(progress, bytes, clock_now_us());
    }
    return STATUS_OK;
}

static enum status write_all(const struct whole_file *file, const struct packed_header *header,
                             const char *data, struct load_progress *progress, struct error *err)
{
    uint64_t bytes = header->data_offset + header->data_bytes;
    char *start = calloc(1, header->header_bytes);
    if (!start)
        return error_set(err, STATUS_LIMIT, "no memory for its header");
    enum status status = STATUS_OK;
    if (fallocate(file->fd, 0, 0, (off_t)bytes) != 0 && errno != EOPNOTSUPP)
        status = refused(err, "there is no room for it");
    if (status == STATUS_OK) {
        uint64_t *checksums = (uint64_t *)(start + sizeof *header);
        memcpy(start, header, sizeof *header);
        status = write_pieces(file, header, data, progress, checksums, err);
        checksums[header->piece_count] = content_hash(start, header->header_bytes - 8);
    }
    if (status == STATUS_OK)
        status = whole_file_put(file, start, header->header_bytes, 0, err);
    free(start);
    return status;
}

enum status packed_file_write(const char *path, const struct packed_header *header,
                              const char *data, struct load_progress *progress, struct error *err)
{
    struct whole_file file;
    enum status status = whole_file_begin(&file, path, err);
    if (status == STATUS_OK)
        status = write_all(&file, header, data, progress, err);
    if (status == STATUS_OK && FAILPOINT_FAILS("weights.keep")) {
        errno = ENOSPC;
        status = refused(err, "it can't be written");
    }
    if (status == STATUS_OK)
        status = whole_file_end(&file, err);
    whole_file_drop(&file);
    return status == STATUS_OK ? status : error_prefix(err, status, "%s", path);
}

/* --- the cache --- */

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
