#include "common/engine/model/tensor_sample.h"

#include "common/base/str.h"
#include "common/engine/model/safetensors_file.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define WINDOWS      16
#define WINDOW_BYTES 64
#define SAMPLE_BYTES (WINDOWS * WINDOW_BYTES) /* a tensor that is no longer is hashed whole */

/* Where window w of a tensor begins. */
static uint64_t window_at(const struct tensor_info *info, uint64_t w)
{
    uint64_t last = info->byte_count - WINDOW_BYTES;
    return info->byte_count <= SAMPLE_BYTES ? w * WINDOW_BYTES : last / (WINDOWS - 1) * w;
}

static uint64_t window_bytes(const struct tensor_info *info, uint64_t w)
{
    uint64_t left = info->byte_count - window_at(info, w);
    return left < WINDOW_BYTES ? left : WINDOW_BYTES;
}

static uint64_t window_count(const struct tensor_info *info)
{
    uint64_t count = (info->byte_count + WINDOW_BYTES - 1) / WINDOW_BYTES;
    return count < WINDOWS ? count : WINDOWS;
}

/* The disk gets to know of all samples at once. */
static void prefetch_samples(const struct safetensors *tensors)
{
    for (size_t i = 0; i < safetensors_count(tensors); i++) {
        struct tensor_info info = safetensors_at(tensors, i);
        for (uint64_t w = 0; w < window_count(&info); w++)
            (void)posix_fadvise(info.fd, (off_t)(info.file_offset + window_at(&info, w)),
                                (off_t)window_bytes(&info, w), POSIX_FADV_WILLNEED);
    }
}

/* By reads: touching a mapped page brings its neighbourhood along, which for all samples together is the file. */
static uint64_t hash_window(const struct tensor_info *info, uint64_t w, uint64_t hash)
{
    unsigned char window[WINDOW_BYTES];
    uint64_t at = window_at(info, w), bytes = window_bytes(info, w);
    ssize_t got = pread(info->fd, window, bytes, (off_t)(info->file_offset + at));
    return hash_bytes(got == (ssize_t)bytes ? window : info->bytes + at, bytes, hash);
}

uint64_t tensor_sample_hash(const struct safetensors *tensors)
{
    uint64_t hash = HASH_SEED;
    prefetch_samples(tensors);
    for (size_t i = 0; i < safetensors_count(tensors); i++) {
        struct tensor_info info = safetensors_at(tensors, i);
        hash = hash_bytes(info.name, strlen(info.name) + 1, hash);
        hash = hash_bytes(info.dtype, strlen(info.dtype) + 1, hash);
        hash = hash_bytes(info.shape, TENSOR_MAX_RANK * sizeof *info.shape, hash);
        for (uint64_t w = 0; w < window_count(&info); w++)
            hash = hash_window(&info, w, hash);
    }
    return hash;
}
