#include "common/engine/model/safetensors_file.h"

#include "common/base/file_read.h"
#include "common/base/json/json.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_HEADER_BYTES   (32 << 20)
#define HEADER_START_BYTES 8 /* u64, little endian: length of the JSON header that follows */

static const struct json_limits LIMITS = {.max_bytes = MAX_HEADER_BYTES, .max_depth = 16};

static const struct element_type ELEMENT_TYPES[] = {
    {"BF16", 2}, {"F16", 2}, {"F32", 4},  {"F64", 8},     {"I8", 1},
    {"I16", 2},  {"I32", 4}, {"I64", 8},  {"U8", 1},      {"U16", 2},
    {"U32", 4},  {"U64", 8}, {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1},
};

static enum status map_file(struct safetensors_file *file, struct error *err)
{
    int fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return error_set(err, errno == ENOENT ? STATUS_NOT_FOUND : STATUS_IO, "%s",
                         strerror(errno));
    struct stat info;
    enum status status = STATUS_OK;
    if (fstat(fd, &info) != 0)
        status = error_set(err, STATUS_IO, "%s", strerror(errno));
    else if (!S_ISREG(info.st_mode) || info.st_size < HEADER_START_BYTES)
        status = error_set(err, STATUS_INVALID,
                           "expected a regular file of at least %d bytes, found %lld bytes",
                           HEADER_START_BYTES, (long long)info.st_size);
    if (status == STATUS_OK) {
        void *bytes = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (bytes == MAP_FAILED) {
            status = error_set(err, STATUS_IO, "mmap: %s", strerror(errno));
        } else {
            file->bytes = bytes;
            file->length_bytes = (uint64_t)info.st_size;
            file->mtime_ns = info.st_mtim.tv_sec * INT64_C(1000000000) + info.st_mtim.tv_nsec;
            file->fd = fd;
            return STATUS_OK;
        }
    }
    close(fd);
    return status;
}

static enum status parse_type(const struct json_value *entry, struct tensor *tensor,
                              struct error *err)
{
    const char *name;
    TRY(json_get_string(entry, "dtype", &name, NULL, err));
    for (size_t i = 0; i < sizeof ELEMENT_TYPES / sizeof *ELEMENT_TYPES; i++)
        if (strcmp(ELEMENT_TYPES[i].name, name) == 0) {
            tensor->type = &ELEMENT_TYPES[i];
            return STATUS_OK;
        }
    return error_set(err, STATUS_UNSUPPORTED, "unknown dtype \"%.40s\"", name);
}

/* Reads the shape, and computes the bytes that it needs. */
static enum status parse_shape(const struct json_value *entry, struct tensor *tensor,
                               uint64_t *bytes, struct error *err)
{
    const struct json_value *shape;
    TRY(json_get_array(entry, "shape", &shape, err));
    if (json_count(shape) > TENSOR_MAX_RANK)
        return error_set(err, STATUS_INVALID, "at most %d dimensions, found %zu", TENSOR_MAX_RANK,
                         json_count(shape));
    tensor->rank = (uint32_t)json_count(shape);
    *bytes = tensor->type->bytes;
    for (uint32_t i = 0; i < tensor->rank; i++) {
        int64_t dimension;
        TRY(json_as_i64(json_at(shape, i), 0, INT64_MAX, &dimension, err));
        tensor->shape[i] = (uint64_t)dimension;
        if (__builtin_mul_overflow(*bytes, (uint64_t)dimension, bytes))
            return error_set(err, STATUS_INVALID, "the shape needs more than 2^64 bytes");
    }
    return STATUS_OK;
}

static enum status parse_tensor(const struct json_value *entry, const struct safetensors_file *file,
                                struct tensor *tensor, struct error *err)
{
    uint64_t bytes = 0;
    int64_t begin, end;
    const struct json_value *offsets;
    TRY(parse_type(entry, tensor, err));
    TRY(parse_shape(entry, tensor, &bytes, err));
    TRY(json_get_array(entry, "data_offsets", &offsets, err));
    if (json_count(offsets) != 2)
        return error_set(err, STATUS_INVALID, "data_offsets: expected 2 numbers, found %zu",
                         json_count(offsets));
    TRY(json_as_i64(json_at(offsets, 0), 0, INT64_MAX, &begin, err));
    TRY(json_as_i64(json_at(offsets, 1), 0, INT64_MAX, &end, err));
    if (begin > end || (uint64_t)(end - begin) != bytes)
        return error_set(
            err, STATUS_INVALID,
            "expected %llu bytes for its dtype and shape, found data_offsets %lld..%lld",
            (unsigned long long)bytes, (long long)begin, (long long)end);
    if ((uint64_t)end > file->data_bytes)
        return error_set(err, STATUS_INVALID,
                         "ends at byte %lld of the data, but the file has only %llu (cut short?)",
                         (long long)end, (unsigned long long)file->data_bytes);
    tensor->begin_bytes = (uint64_t)begin;
    tensor->end_bytes = (uint64_t)end;
    return STATUS_OK;
}

static enum status add_tensor(struct safetensors_file *file, const struct json_member *member,
                              struct error *err)
{
    struct tensor tensor = {0};
    enum status status = parse_tensor(member->value, file, &tensor, err);
    if (status != STATUS_OK)
        return error_prefix(err, status, "tensor %.150s", member->key);
    tensor.name = strdup(member->key);
    if (!tensor.name)
        return error_set(err, STATUS_LIMIT, "out of memory");
    file->tensors[file->tensor_count++] = tensor;
    return STATUS_OK;
}

static int compare_begin(const void *a, const void *b)
{
    const struct tensor *x = a, *y = b;
    if (x->begin_bytes != y->begin_bytes)
        return x->begin_bytes < y->begin_bytes ? -1 : 1;
    return (x->end_bytes > y->end_bytes) - (x->end_bytes < y->end_bytes);
}

/* Checks that the tensors fill the data without overlap or hole, as the format demands. */
static enum status check_places(const struct safetensors_file *file, struct error *err)
{
    const struct tensor *tensors = file->tensors;
    uint64_t end = 0;
    qsort(file->tensors, file->tensor_count, sizeof *tensors, compare_begin);
    for (uint32_t i = 0; i < file->tensor_count; i++) {
        unsigned long long begin = tensors[i].begin_bytes;
        if (begin < end)
            return error_set(err, STATUS_INVALID,
                             "tensor %.150s starts at byte %llu, inside tensor %.150s",
                             tensors[i].name, begin, tensors[i - 1].name);
        if (begin > end)
            return error_set(err, STATUS_INVALID,
                             "tensor %.150s starts at byte %llu of the data: the bytes from "
                             "%llu on belong to no tensor",
                             tensors[i].name, begin, (unsigned long long)end);
        end = tensors[i].end_bytes;
    }
    if (end < file->data_bytes)
        return error_set(err, STATUS_INVALID,
                         "%llu bytes after the last tensor, which ends at byte %llu of the data",
                         (unsigned long long)(file->data_bytes - end), (unsigned long long)end);
    return STATUS_OK;
}

static enum status add_tensors(struct safetensors_file *file, const struct json_value *root,
                               struct error *err)
{
    if (json_kind(root) != JSON_OBJECT)
        return error_set(err, STATUS_INVALID, "header: expected an object, found %s",
                         json_kind_name(root));
    if (json_count(root) > SAFETENSORS_MAX_TENSORS)
        return error_set(err, STATUS_LIMIT, "at most %d tensors, found %zu",
                         SAFETENSORS_MAX_TENSORS, json_count(root));
    file->tensors = calloc(json_count(root) + 1, sizeof *file->tensors);
    if (!file->tensors)
        return error_set(err, STATUS_LIMIT, "out of memory");
    for (struct json_member m = {0}; json_next(root, &m);)
        if (strcmp(m.key, "__metadata__") != 0)
            TRY(add_tensor(file, &m, err));
    return check_places(file, err);
}

static enum status parse_header(struct safetensors_file *file, struct error *err)
{
    uint64_t header_bytes;
    if (file_is_lfs_pointer(file->bytes, file->length_bytes))
        return error_set(err, STATUS_INVALID, FILE_LFS_SENTENCE);
    memcpy(&header_bytes, file->bytes, sizeof header_bytes);
    header_bytes = le64toh(header_bytes);
    uint64_t rest = file->length_bytes - HEADER_START_BYTES;
    if (header_bytes > rest || header_bytes > MAX_HEADER_BYTES)
        return error_set(err, STATUS_INVALID,
                         "expected a header of at most %llu bytes, found a length of %llu: this is "
                         "no safetensors file, or it was cut off",
                         (unsigned long long)(rest < MAX_HEADER_BYTES ? rest : MAX_HEADER_BYTES),
                         (unsigned long long)header_bytes);
    file->data = file->bytes + HEADER_START_BYTES + header_bytes;
    file->data_bytes = rest - header_bytes;

    struct json *json;
    TRY(json_parse((const char *)file->bytes + HEADER_START_BYTES, header_bytes, LIMITS, &json,
                   err));
    enum status status = add_tensors(file, json_root(json), err);
    json_destroy(json);
    return status;
}

enum status safetensors_file_open(const char *path, struct safetensors_file *out, struct error *err)
{
    struct safetensors_file file = {.path = strdup(path)};
    enum status status = file.path ? STATUS_OK : error_set(err, STATUS_LIMIT, "out of memory");
    if (status == STATUS_OK)
        status = map_file(&file, err);
    if (status == STATUS_OK)
        status = parse_header(&file, err);
    if (status != STATUS_OK) {
        safetensors_file_close(&file);
        return error_prefix(err, status, "%s", path);
    }
    *out = file;
    return STATUS_OK;
}

void safetensors_file_close(struct safetensors_file *file)
{
    for (uint32_t i = 0; i < file->tensor_count; i++)
        free(file->tensors[i].name);
    free(file->tensors);
    if (file->bytes) {
        munmap((void *)file->bytes, file->length_bytes);
        close(file->fd);
    }
    free(file->path);
    *file = (struct safetensors_file){0};
}

const unsigned char *tensor_data(const struct safetensors_file *file, const struct tensor *tensor)
{
    return file->data + tensor->begin_bytes;
}
