#include "common/engine/model/tensor_sample.h"

#include "common/base/str.h"
#include "common/engine/model/safetensors_file.h"

#include <fcntl.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define WINDOWS      4
#define WINDOW_BYTES 64
#define GROUP        64                       /* tensors whose samples are asked for at once */
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

/* The samples of up to GROUP tensors. */
struct group {
    const struct safetensors *tensors;
    size_t first, count; /* of the tensors */
    unsigned char bytes[GROUP][WINDOWS][WINDOW_BYTES];
    bool held[GROUP][WINDOWS];
};

/* Reads what is in memory, and lets the disk know of all the rest before any of it is waited for.
 * By reads: touching a mapped page brings its neighbourhood along, which for all samples together
 * is the file. */
static void read_what_is_held(struct group *group)
{
    for (size_t i = 0; i < group->count; i++) {
        struct tensor_info info = safetensors_at(group->tensors, group->first + i);
        for (uint64_t w = 0; w < window_count(&info); w++) {
            off_t at = (off_t)(info.file_offset + window_at(&info, w));
            struct iovec window = {group->bytes[i][w], window_bytes(&info, w)};
            ssize_t got = preadv2(info.fd, &window, 1, at, RWF_NOWAIT);
            group->held[i][w] = got == (ssize_t)window.iov_len;
            if (!group->held[i][w])
                (void)posix_fadvise(info.fd, at, (off_t)window.iov_len, POSIX_FADV_WILLNEED);
        }
    }
}

/* A read that ends early leaves it to the mapping, which fails as every use of that file does. */
static uint64_t hash_window(struct group *group, size_t i, const struct tensor_info *info,
                            uint64_t w, uint64_t hash)
{
    unsigned char *bytes = group->bytes[i][w];
    uint64_t at = window_at(info, w), count = window_bytes(info, w);
    if (!group->held[i][w] &&
        pread(info->fd, bytes, count, (off_t)(info->file_offset + at)) != (ssize_t)count)
        return hash_bytes(info->bytes + at, count, hash);
    return hash_bytes(bytes, count, hash);
}

static uint64_t hash_group(struct group *group, uint64_t hash)
{
    for (size_t i = 0; i < group->count; i++) {
        struct tensor_info info = safetensors_at(group->tensors, group->first + i);
        hash = hash_bytes(info.name, strlen(info.name) + 1, hash);
        hash = hash_bytes(info.dtype, strlen(info.dtype) + 1, hash);
        hash = hash_bytes(info.shape, TENSOR_MAX_RANK * sizeof *info.shape, hash);
        for (uint64_t w = 0; w < window_count(&info); w++)
            hash = hash_window(group, i, &info, w, hash);
    }
    return hash;
}

uint64_t tensor_sample_hash(const struct safetensors *tensors)
{
    struct group group = {.tensors = tensors};
    uint64_t hash = HASH_SEED;
    size_t count = safetensors_count(tensors);
    for (; group.first < count; group.first += GROUP) {
        group.count = count - group.first < GROUP ? count - group.first : GROUP;
        read_what_is_held(&group);
        hash = hash_group(&group, hash);
    }
    return hash;
}
