/* The tensors of a Hugging Face folder, mapped into memory: model.safetensors, or the shards
 * that model.safetensors.index.json names. The files are outside bytes: every length, type,
 * shape and offset is checked against the file's length before a pointer is given out. Tensors
 * cover the data without overlap or hole, and a name may appear once in all files. The format:
 * https://huggingface.co/docs/safetensors.
 *
 * Owner: one thread. Pointers live until safetensors_close. If a file is truncated while it is
 * mapped, the process ends (SIGBUS). Failures: STATUS_NOT_FOUND, STATUS_INVALID,
 * STATUS_UNSUPPORTED, STATUS_LIMIT, STATUS_IO, and a sentence with the file, the tensor, the
 * expected and the found. */
#ifndef BATON_ENGINE_MODEL_SAFETENSORS_H
#define BATON_ENGINE_MODEL_SAFETENSORS_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct safetensors;

enum status safetensors_open(const char *model_dir, struct safetensors **tensors,
                             struct error *err) WARN_UNUSED;
void safetensors_close(struct safetensors *tensors);

enum float_type { FLOAT_BF16, FLOAT_F16, FLOAT_F32 }; /* little endian */

struct tensor_view {
    enum float_type type;
    const unsigned char *bytes; /* row-major, at any byte: old files aren't aligned */
    const char *path;           /* its file, for sentences */
    int fd;                     /* the same bytes for reads, from file_offset on */
    uint64_t file_offset;
};

/* Finds tensor `name`. It must have exactly the shape [rows, columns], or [columns] if rows is
 * 0, and a type of float_type. */
enum status safetensors_find(struct safetensors *tensors, const char *name, uint64_t rows,
                             uint64_t columns, struct tensor_view *view,
                             struct error *err) WARN_UNUSED;
/* Finds a tensor of exactly this dtype ("I8") in the same way. Its bytes are little endian;
 * view->type is set if it is a float. */
enum status safetensors_find_as(struct safetensors *tensors, const char *name, const char *dtype,
                                uint64_t rows, uint64_t columns, struct tensor_view *view,
                                struct error *err) WARN_UNUSED;
bool safetensors_has(const struct safetensors *tensors, const char *name);
/* Returns the dtype ("F8_E4M3"); NULL: there is no such tensor. */
const char *safetensors_dtype(const struct safetensors *tensors, const char *name);

/* Returns true for a table of rotary angles. Old files have one; it is computed here
 * (weights.h). */
bool safetensors_is_rope_table(const char *name);
/* STATUS_UNSUPPORTED: safetensors_find was never called for a tensor: the model would be computed
 * without it. Doesn't count rope tables. The sentence names the first and how many there are. */
enum status safetensors_expect_all_found(const struct safetensors *tensors,
                                         struct error *err) WARN_UNUSED;

/* A tensor of any dtype. Pointers as in a view. */
struct tensor_info {
    const char *name, *dtype;
    uint32_t rank;
    const uint64_t *shape; /* [TENSOR_MAX_RANK], 0 beyond the rank */
    const unsigned char *bytes;
    uint64_t byte_count;
    int fd; /* its file's */
    uint64_t file_offset;
};
/* Finds a tensor of a float type and any shape. */
enum status safetensors_find_any(struct safetensors *tensors, const char *name,
                                 struct tensor_view *view, struct tensor_info *info,
                                 struct error *err) WARN_UNUSED;
size_t safetensors_count(const struct safetensors *tensors);
/* index < safetensors_count, in the order of names. */
struct tensor_info safetensors_at(const struct safetensors *tensors, size_t index);

/* One of the files, which have a fixed order. */
struct safetensors_source {
    const char *name; /* without its folder */
    uint64_t bytes;
    int64_t mtime_ns;
    uint64_t header_hash; /* content_hash of all bytes before the data */
};
size_t safetensors_file_count(const struct safetensors *tensors);
struct safetensors_source safetensors_source_at(const struct safetensors *tensors, size_t index);

/* Returns a hash that tells models apart without reading them: names, types and shapes of all
 * tensors, and evenly spread samples of their bytes. It doesn't depend on the sharding. The first
 * call computes it. */
uint64_t safetensors_hash(struct safetensors *tensors);

#endif
