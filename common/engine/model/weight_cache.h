/* Keeps the packed weights of a model in a file from one start to the next. All processes of a
 * machine that serve the model map one copy of it. If anything is wrong with a file or its
 * folder, that costs time, never an answer: the weights are packed again, or not kept, and one
 * log line says why.
 *
 * A file is written whole or not at all (whole_file.h). It is outside bytes: its header is
 * compared with the expected one (packed_plan.h), never followed, and every byte of the data
 * must match its checksum before any is used. If anyone truncates a mapped file, the process
 * ends (SIGBUS). We never do: a new file takes the place of the old one by its name.
 *
 * Owner: the step thread. Failures of packed_file_*: one sentence that starts with the path. */
#ifndef BATON_ENGINE_MODEL_WEIGHT_CACHE_H
#define BATON_ENGINE_MODEL_WEIGHT_CACHE_H

#include "common/engine/model/packed_plan.h"
#include "common/engine/model/weight_types.h"

struct load_progress;
struct safetensors;

#define WEIGHT_CACHE_OFF        "off"
#define WEIGHT_CACHE_BESIDE     "beside"
#define WEIGHT_CACHE_PATH_BYTES 4096

/* Writes the path of the file for a model: one for each packing and types of weights, so there
 * are never more than those. `setting`: "off" or NULL gives an empty path; "beside" a file in
 * the model's folder; anything else is a folder, and the file's name there begins with the
 * model's name and a hash of its path. STATUS_INVALID: no such folder, or the path is too long. */
enum status weight_cache_path(const char *setting, const char *model_dir, const char *packing,
                              struct weight_types types, char path[WEIGHT_CACHE_PATH_BYTES],
                              struct error *err) WARN_UNUSED;

/* Returns the identity of packed weights: the backend's packing, KERNELS_VERSION, and size, mtime,
 * header and samples of the model's files. */
struct packed_identity weight_cache_identity(const struct kernels *kernels,
                                             struct safetensors *files);

struct packed_map {
    char *data; /* read only, at a 2 MiB boundary; NULL: nothing is mapped */
    uint64_t bytes;
    void *region; /* the mapping, larger for the alignment */
    size_t region_bytes;
};

/* Maps the kept weights. False: there are none that can be used; logs why. */
bool weight_cache_map(const char *path, const struct packed_header *header, struct kernels *kernels,
                      struct load_progress *progress, struct packed_map *map);
/* Keeps the packed weights `data` of header->data_bytes. Logs whether it could. */
void weight_cache_keep(const char *path, const struct packed_header *header, const char *data,
                       struct load_progress *progress);

/* Maps a file, after reading its data once with all compute threads of `kernels`.
 * STATUS_NOT_FOUND: there is none. STATUS_CORRUPT, STATUS_INVALID: it differs from the expected
 * (packed_header_check), or a piece doesn't match its checksum. */
enum status packed_file_map(const char *path, const struct packed_header *expected,
                            struct kernels *kernels, struct load_progress *progress,
                            struct packed_map *map, struct error *err) WARN_UNUSED;
void packed_file_unmap(struct packed_map *map);

/* Writes a file. data: header->data_bytes, as the plan lays it out. STATUS_UNAVAILABLE: another
 * process is writing it. On failure the old file, if there is one, stays, and no other. */
enum status packed_file_write(const char *path, const struct packed_header *header,
                              const char *data, struct load_progress *progress,
                              struct error *err) WARN_UNUSED;

#endif
