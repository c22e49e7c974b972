#include "common/engine/model/tensor_sample.h"

#include "common/base/str.h"
#include "common/engine/model/safetensors_file.h"
#include "common/engine/model/tensor_pages.h"

#include <string.h>

/* The bytes of a tensor that are hashed: windows, or all of a small one. */
struct sample {
    const unsigned char *first;
    uint64_t windows, window_bytes, stride;
};

static struct sample sample_of(const struct tensor_info *info)
{
    enum { SAMPLES = 16, WINDOW_BYTES = 64 };
    if (info->byte_count <= SAMPLES * WINDOW_BYTES)
        return (struct sample){info->bytes, 1, info->byte_count, 0};
    uint64_t stride = (info->byte_count - WINDOW_BYTES) / (SAMPLES - 1);
    return (struct sample){info->bytes, SAMPLES, WINDOW_BYTES, stride};
}

/* The disk gets to know of all samples at once, and of no more than them: a page that is only touched brings its neighbourhood
 * along, which together is the file. */
static void prefetch_samples(const struct safetensors *tensors)
{
    for (size_t i = 0; i < safetensors_count(tensors); i++) {
        struct tensor_info info = safetensors_at(tensors, i);
        struct sample sample = sample_of(&info);
        for (uint64_t w = 0; w < sample.windows; w++)
            tensor_pages_prefetch(sample.first + w * sample.stride, sample.window_bytes);
    }
}

static uint64_t hash_tensor(const struct tensor_info *info, uint64_t hash)
{
    struct sample sample = sample_of(info);
    hash = hash_bytes(info->name, strlen(info->name) + 1, hash);
    hash = hash_bytes(info->dtype, strlen(info->dtype) + 1, hash);
    hash = hash_bytes(info->shape, TENSOR_MAX_RANK * sizeof *info->shape, hash);
    for (uint64_t w = 0; w < sample.windows; w++)
        hash = hash_bytes(sample.first + w * sample.stride, sample.window_bytes, hash);
    return hash;
}

uint64_t tensor_sample_hash(const struct safetensors *tensors)
{
    uint64_t hash = HASH_SEED;
    prefetch_samples(tensors);
    for (size_t i = 0; i < safetensors_count(tensors); i++) {
        struct tensor_info info = safetensors_at(tensors, i);
        hash = hash_tensor(&info, hash);
        tensor_pages_release(info.bytes, info.byte_count);
    }
    return hash;
}
