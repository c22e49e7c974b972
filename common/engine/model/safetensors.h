/* The tensors of a Hugging Face folder: model.safetensors, or the shards that
 * model.safetensors.index.json names, mapped into memory. The files are outside bytes: every
 * length, type, shape and offset is checked against the file's length before a pointer is given
 * out; tensors cover the data without overlap or hole, and a name may appear once in all files. The
 * format: https://huggingface.co/docs/safetensors.
 *
 * Owner: one thread. Pointers live until safetensors_close. A file that somebody truncates while it
 * is mapped ends the process (SIGBUS), as with any mapped file. Failures: STATUS_NOT_FOUND,
 * STATUS_INVALID, STATUS_UNSUPPORTED, STATUS_LIMIT, STATUS_IO and one sentence: which file, which
 * tensor, expected, found. */
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
    const unsigned char *bytes; /* row-major; may lie at any byte: old files aren't aligned */
    const char *path;           /* of its file, for sentences */
};

/* Tensor `name`, which must have exactly this shape: [rows, columns], or [columns] if rows is 0;
 * and a type of float_type. */
enum status safetensors_find(struct safetensors *tensors, const char *name, uint64_t rows,
                             uint64_t columns, struct tensor_view *view,
                             struct error *err) WARN_UNUSED;
/* The same for a tensor of exactly this dtype ("I8"): its bytes, little endian; view->type where it
 * is a float. */
enum status safetensors_find_as(struct safetensors *tensors, const char *name, const char *dtype,
                                uint64_t rows, uint64_t columns, struct tensor_view *view,
                                struct error *err) WARN_UNUSED;
bool safetensors_has(const struct safetensors *tensors, const char *name);

/* A table of rotary angles, which old files carry along: it is computed here (rope.h). */
bool safetensors_is_rope_table(const char *name);
/* STATUS_UNSUPPORTED where a tensor was never found by safetensors_find: it would have taken part
 * in what the model computes. Rope tables aren't counted. The sentence names the first and how many
 * there are. */
enum status safetensors_expect_all_found(const struct safetensors *tensors,
                                         struct error *err) WARN_UNUSED;

/* All tensors, by name: tensor `index` < safetensors_count. Pointers as in a view. */
struct tensor_info {
    const char *name, *dtype;
    uint32_t rank;
    const uint64_t *shape; /* [TENSOR_MAX_RANK], 0 behind the rank */
    const unsigned char *bytes;
    uint64_t byte_count;
    int fd;               /* of its file, */
    uint64_t file_offset; /* where it begins */
};
size_t safetensors_count(const struct safetensors *tensors);
struct tensor_info safetensors_at(const struct safetensors *tensors, size_t index);

/* The files themselves, in a fixed order. */
struct safetensors_source {
    const char *name; /* without its folder */
    uint64_t bytes;
    int64_t mtime_ns;
    uint64_t header_hash; /* content_hash of all before the data */
};
size_t safetensors_file_count(const struct safetensors *tensors);
struct safetensors_source safetensors_source_at(const struct safetensors *tensors, size_t index);

/* Which model it is (tensor_sample.h): computed by the first call. */
uint64_t safetensors_hash(struct safetensors *tensors);

#endif
