/* One .safetensors file, mapped: 8 bytes with the length of a JSON header, the header, the data.
 * Outside bytes: a tensor is kept only after its type, shape and offsets were checked against each
 * other and against the file's length. The tensors of a file fill the data without overlap or hole.
 * So no read leaves the mapping, whatever the header says.
 *
 * Owner: one thread. Failures: one sentence that starts with the path. */
#ifndef BATON_ENGINE_MODEL_SAFETENSORS_FILE_H
#define BATON_ENGINE_MODEL_SAFETENSORS_FILE_H

#include "common/base/status.h"

#include <stdint.h>

#define TENSOR_MAX_RANK         8
#define SAFETENSORS_MAX_TENSORS 65536

struct element_type {
    const char *name; /* "BF16" */
    uint32_t bytes;
};

struct tensor {
    char *name;
    const struct element_type *type;
    uint32_t rank;
    uint64_t shape[TENSOR_MAX_RANK]; /* 0 beyond the rank */
    uint64_t begin_bytes, end_bytes; /* in the data section */
};

struct safetensors_file {
    char *path;
    const unsigned char *bytes; /* the mapping */
    int fd;                     /* while it is mapped */
    uint64_t length_bytes;
    int64_t mtime_ns;
    const unsigned char *data; /* the bytes after the header */
    uint64_t data_bytes;
    struct tensor *tensors; /* by ascending offset */
    uint32_t tensor_count;
};

enum status safetensors_file_open(const char *path, struct safetensors_file *file,
                                  struct error *err) WARN_UNUSED;
void safetensors_file_close(struct safetensors_file *file);

const unsigned char *tensor_data(const struct safetensors_file *file, const struct tensor *tensor);

#endif
