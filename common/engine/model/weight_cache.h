/* Where packed weights of a model are kept from one start to the next, and when they may be used:
 * packed_file.h says how. Whatever is wrong with a file, or with its folder, costs time, never an
 * answer: it is made again, or not kept, and one log line says why.
 *
 * Owner: the step thread. */
#ifndef BATON_ENGINE_MODEL_WEIGHT_CACHE_H
#define BATON_ENGINE_MODEL_WEIGHT_CACHE_H

#include "common/engine/model/packed_file.h"
#include "common/engine/model/weight_types.h"

struct load_progress;
struct safetensors;

#define WEIGHT_CACHE_OFF        "off"
#define WEIGHT_CACHE_BESIDE     "beside"
#define WEIGHT_CACHE_PATH_BYTES 4096

/* The file for a model in this form: one for each packing and types of weights, so that there are
 * never more than those. `setting`: "off" or NULL gives an empty path; "beside" a file in the
 * model's folder; else a folder, where the file's name begins with the model's and a hash of its
 * path. STATUS_INVALID: no such folder, or a path too long. */
enum status weight_cache_path(const char *setting, const char *model_dir, const char *packing,
                              struct weight_types types, char path[WEIGHT_CACHE_PATH_BYTES],
                              struct error *err) WARN_UNUSED;

/* Whose weights: by the backend's packing, KERNELS_VERSION, and size, mtime, header and samples of
 * the model's files. */
struct packed_identity weight_cache_identity(const struct kernels *kernels,
                                             struct safetensors *files);

/* Maps what is kept; false: nothing that can be used. */
bool weight_cache_map(const char *path, const struct packed_header *header, struct kernels *kernels,
                      struct load_progress *progress, struct packed_map *map);
/* Keeps it, if it can. */
void weight_cache_keep(const char *path, const struct packed_header *header, const char *data,
                       struct load_progress *progress);

#endif
