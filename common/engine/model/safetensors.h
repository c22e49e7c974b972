/* The tensors of a Hugging Face folder: model.safetensors, or the shards that model.safetensors.index.json names, mapped into
 * memory. The files are outside bytes: every length, type, shape and offset is checked against the file's length before a
 * pointer is given out; tensors may neither overlap nor reach beyond the data, and a name may appear once in all files. The
 * format: https://huggingface.co/docs/safetensors.
 *
 * Owner: one thread. Pointers live until safetensors_close. A file that somebody truncates while it is mapped ends the process
 * (SIGBUS), as with any mapped file. Failures: STATUS_NOT_FOUND, STATUS_INVALID, STATUS_UNSUPPORTED, STATUS_LIMIT, STATUS_IO
 * and one sentence: which file, which tensor, expected, found. */
#ifndef BATON_ENGINE_MODEL_SAFETENSORS_H
#define BATON_ENGINE_MODEL_SAFETENSORS_H

#include "common/base/status.h"

#include <stdint.h>

struct safetensors;

enum status safetensors_open(const char *model_dir, struct safetensors **tensors,
                             struct error *err) WARN_UNUSED;
void safetensors_close(struct safetensors *tensors);

/* The bf16 values of tensor `name`, row-major, which must have exactly this shape: [rows, columns], or [columns] if rows is
 * 0. `values` is aligned to 2 bytes. */
enum status safetensors_find(const struct safetensors *tensors, const char *name, uint64_t rows,
                             uint64_t columns, const uint16_t **values,
                             struct error *err) WARN_UNUSED;

/* Names, types, shapes and a sample of the bytes of all tensors; the same however they are sharded. */
uint64_t safetensors_hash(const struct safetensors *tensors);

#endif
