#include "common/engine/model/safetensors.h"

#include "common/base/domain/content_hash.h"
#include "common/base/json/json.h"
#include "common/base/str.h"
#include "common/engine/model/safetensors_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define MAX_FILES    1024
#define PATH_BYTES   4096
#define INDEX_NAME   "model.safetensors.index.json"
#define SINGLE_NAME  "model.safetensors"
#define WINDOWS      4
#define WINDOW_BYTES 64
#define GROUP        64                       /* tensors with samples that are read together */
#define SAMPLE_BYTES (WINDOWS * WINDOW_BYTES) /* a tensor of at most these bytes is hashed whole */

static const struct json_limits LIMITS = {.max_bytes = 32 << 20, .max_depth = 16};

/* A tensor of any of the files. */
struct entry {
    const struct tensor *tensor;
    const struct safetensors_file *file;
    bool found; /* it was asked for */
};

struct safetensors {
    struct safetensors_file files[MAX_FILES];
    uint32_t file_count;
    struct entry *entries; /* by name */
    size_t entry_count;
    uint64_t hash; /* 0: not computed yet */
};

static enum status add_file(struct safetensors *tensors, const char *model_dir, const char *name,
                            struct error *err)
{
    char path[PATH_BYTES];
    if (tensors->file_count == MAX_FILES)
        return error_set(err, STATUS_LIMIT, "%s: more than %d files", model_dir, MAX_FILES);
    if (snprintf(path, sizeof path, "%s/%s", model_dir, name) >= (int)sizeof path)
        return error_set(err, STATUS_LIMIT, "the path of %.200s is too long", name);
    TRY(safetensors_file_open(path, &tensors->files[tensors->file_count], err));
    tensors->file_count++;
    return STATUS_OK;
}

/* Only plain file names: an index must not point outside its folder. */
static bool is_shard_name(const char *name)
{
    const char *end = strrchr(name, '.');
    return name[0] != '.' && !strchr(name, '/') && end && strcmp(end, ".safetensors") == 0;
}

static const char *base_name(const char *path)
{
    return strrchr(path, '/') + 1;
}

static int compare_name(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    return strcmp(x->tensor->name, y->tensor->name);
}

/* Sorts equal names by their files, so that the sentence about them is always the same. */
static int compare_place(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    int order = compare_name(a, b);
    return order ? order : (x->file > y->file) - (x->file < y->file);
}

static struct entry *find_entry(const struct safetensors *tensors, const char *name)
{
    struct tensor named = {.name = (char *)name};
    struct entry key = {.tensor = &named};
    return bsearch(&key, tensors->entries, tensors->entry_count, sizeof key, compare_name);
}

/* Opens each file that weight_map names, once. */
static enum status add_shards(struct safetensors *tensors, const char *model_dir,
                              const char *index_path, const struct json_value *weight_map,
                              struct error *err)
{
    for (struct json_member m = {0}; json_next(weight_map, &m);) {
        const char *name = "";
        if (json_kind(m.value) != JSON_STRING)
            return error_set(
                err, STATUS_INVALID,
                "%s: tensor %.100s: expected the name of a .safetensors file, found %s", index_path,
                m.key, json_kind_name(m.value));
        if (json_as_string(m.value, &name, NULL, NULL) != STATUS_OK || !is_shard_name(name))
            return error_set(err, STATUS_INVALID,
                             "%s: tensor %.100s: expected the name of a .safetensors file, found "
                             "\"%.100s\"",
                             index_path, m.key, name);
        bool known = false;
        for (uint32_t i = 0; i < tensors->file_count; i++)
            known |= strcmp(base_name(tensors->files[i].path), name) == 0;
        if (!known)
            TRY(add_file(tensors, model_dir, name, err));
    }
    return STATUS_OK;
}

/* Makes the table by name. Each name may be there once. */
static enum status index_names(struct safetensors *tensors, const char *path, struct error *err)
{
    size_t count = 0;
    for (uint32_t f = 0; f < tensors->file_count; f++)
        count += tensors->files[f].tensor_count;
    if (!count)
        return error_set(err, STATUS_INVALID, "%s: no tensor in it", path);
    tensors->entries = calloc(count, sizeof *tensors->entries);
    if (!tensors->entries)
        return error_set(err, STATUS_LIMIT, "out of memory");
    for (uint32_t f = 0; f < tensors->file_count; f++)
        for (uint32_t i = 0; i < tensors->files[f].tensor_count; i++)
            tensors->entries[tensors->entry_count++] =
                (struct entry){&tensors->files[f].tensors[i], &tensors->files[f], false};
    qsort(tensors->entries, count, sizeof *tensors->entries, compare_place);
    for (size_t i = 1; i < count; i++) {
        const struct entry *a = &tensors->entries[i - 1], *b = &tensors->entries[i];
        if (strcmp(a->tensor->name, b->tensor->name) == 0)
            return error_set(err, STATUS_INVALID, "%s: tensor %.150s: found in %s too",
                             a->file->path, a->tensor->name, base_name(b->file->path));
    }
    return STATUS_OK;
}

/* Checks that each tensor is in the file that the index names. */
static enum status check_index(const struct safetensors *tensors, const char *index_path,
                               const struct json_value *weight_map, struct error *err)
{
    for (struct json_member m = {0}; json_next(weight_map, &m);) {
        const char *name = "";
        TRY(json_as_string(m.value, &name, NULL, err));
        const struct entry *entry = find_entry(tensors, m.key);
        const char *found = entry ? base_name(entry->file->path) : "no file";
        if (strcmp(found, name) != 0)
            return error_set(err, entry ? STATUS_INVALID : STATUS_NOT_FOUND,
                             "%s: tensor %.100s: expected in %.100s, found in %.100s", index_path,
                             m.key, name, found);
    }
    return STATUS_OK;
}

static enum status open_sharded(struct safetensors *tensors, const char *model_dir,
                                const char *index_path, struct error *err)
{
    struct json *json;
    const struct json_value *weight_map;
    TRY(json_read_file(index_path, LIMITS, &json, err));
    enum status status = json_get_object(json_root(json), "weight_map", &weight_map, err);
    if (status != STATUS_OK)
        error_prefix(err, status, "%s", index_path);
    if (status == STATUS_OK)
        status = add_shards(tensors, model_dir, index_path, weight_map, err);
    if (status == STATUS_OK)
        status = index_names(tensors, index_path, err);
    if (status == STATUS_OK)
        status = check_index(tensors, index_path, weight_map, err);
    json_destroy(json);
    return status;
}

static enum status open_files(struct safetensors *tensors, const char *model_dir, struct error *err)
{
    char single[PATH_BYTES], index[PATH_BYTES];
    if (snprintf(single, sizeof single, "%s/" SINGLE_NAME, model_dir) >= (int)sizeof single ||
        snprintf(index, sizeof index, "%s/" INDEX_NAME, model_dir) >= (int)sizeof index)
        return error_set(err, STATUS_LIMIT, "the model folder's path is too long");
    if (access(single, F_OK) == 0) {
        TRY(add_file(tensors, model_dir, SINGLE_NAME, err));
        return index_names(tensors, single, err);
    }
    if (access(index, F_OK) == 0)
        return open_sharded(tensors, model_dir, index, err);
    return error_set(err, STATUS_NOT_FOUND,
                     "%s: expected " SINGLE_NAME " or " INDEX_NAME
                     ", found neither (*.bin and *.gguf aren't read)",
                     model_dir);
}

enum status safetensors_open(const char *model_dir, struct safetensors **out, struct error *err)
{
    struct safetensors *tensors = calloc(1, sizeof *tensors);
    if (!tensors)
        return error_set(err, STATUS_LIMIT, "out of memory");
    enum status status = open_files(tensors, model_dir, err);
    if (status != STATUS_OK) {
        safetensors_close(tensors);
        return status;
    }
    *out = tensors;
    return STATUS_OK;
}

void safetensors_close(struct safetensors *tensors)
{
    if (!tensors)
        return;
    for (uint32_t i = 0; i < tensors->file_count; i++)
        safetensors_file_close(&tensors->files[i]);
    free(tensors->entries);
    free(tensors);
}

static void describe(const struct tensor *tensor, struct str *out)
{
    str_add(out, "[");
    for (uint32_t i = 0; i < tensor->rank; i++)
        str_addf(out, "%s%llu", i ? ", " : "", (unsigned long long)tensor->shape[i]);
    str_add(out, "]");
}

static enum status wrong_shape(const struct entry *found, const struct tensor *expected,
                               struct error *err)
{
    struct str want, have;
    str_init(&want, 256);
    str_init(&have, 256);
    describe(expected, &want);
    describe(found->tensor, &have);
    enum status status = error_set(
        err, STATUS_INVALID, "%s: tensor %.150s: expected the shape %s by config.json, found %s",
        found->file->path, found->tensor->name, want.data, have.data);
    str_deinit(&want);
    str_deinit(&have);
    return status;
}

static const struct {
    const char *name;
    enum float_type type;
} FLOAT_TYPES[] = {{"BF16", FLOAT_BF16}, {"F16", FLOAT_F16}, {"F32", FLOAT_F32}};

static bool float_type_of(const struct tensor *tensor, enum float_type *type)
{
    for (size_t i = 0; i < sizeof FLOAT_TYPES / sizeof *FLOAT_TYPES; i++)
        if (strcmp(FLOAT_TYPES[i].name, tensor->type->name) == 0) {
            *type = FLOAT_TYPES[i].type;
            return true;
        }
    return false;
}

/* Finds a tensor by name, of any dtype and shape. */
static enum status find(struct safetensors *tensors, const char *name, struct entry **found,
                        struct error *err)
{
    *found = find_entry(tensors, name);
    if (*found)
        return STATUS_OK;
    return error_set(err, STATUS_NOT_FOUND, "%s%s: tensor %s: expected, but not found",
                     tensors->files[0].path, tensors->file_count > 1 ? " and its other shards" : "",
                     name);
}

static enum status wrong_dtype(const struct entry *entry, const char *expected, struct error *err)
{
    return error_set(err, STATUS_UNSUPPORTED, "%s: tensor %.150s: expected %s, found %s",
                     entry->file->path, entry->tensor->name, expected, entry->tensor->type->name);
}

/* Checks the shape, and marks the tensor as found. */
static enum status view_entry(struct entry *entry, uint64_t rows, uint64_t columns,
                              enum float_type type, struct tensor_view *view, struct error *err)
{
    struct tensor expected = {.rank = rows ? 2 : 1};
    expected.shape[0] = rows ? rows : columns;
    expected.shape[1] = rows ? columns : 0;
    if (entry->tensor->rank != expected.rank ||
        memcmp(entry->tensor->shape, expected.shape, sizeof expected.shape) != 0)
        return wrong_shape(entry, &expected, err);
    entry->found = true;
    const unsigned char *bytes = tensor_data(entry->file, entry->tensor);
    *view = (struct tensor_view){.type = type,
                                 .bytes = bytes,
                                 .path = entry->file->path,
                                 .fd = entry->file->fd,
                                 .file_offset = (uint64_t)(bytes - entry->file->bytes)};
    return STATUS_OK;
}

enum status safetensors_find(struct safetensors *tensors, const char *name, uint64_t rows,
                             uint64_t columns, struct tensor_view *view, struct error *err)
{
    struct entry *entry;
    enum float_type type;
    TRY(find(tensors, name, &entry, err));
    if (!float_type_of(entry->tensor, &type))
        return wrong_dtype(entry, "BF16, F16 or F32", err);
    return view_entry(entry, rows, columns, type, view, err);
}

enum status safetensors_find_as(struct safetensors *tensors, const char *name, const char *dtype,
                                uint64_t rows, uint64_t columns, struct tensor_view *view,
                                struct error *err)
{
    struct entry *entry;
    enum float_type type = FLOAT_F32;
    TRY(find(tensors, name, &entry, err));
    if (strcmp(entry->tensor->type->name, dtype) != 0)
        return wrong_dtype(entry, dtype, err);
    (void)float_type_of(entry->tensor, &type);
    return view_entry(entry, rows, columns, type, view, err);
}

bool safetensors_has(const struct safetensors *tensors, const char *name)
{
    return find_entry(tensors, name) != NULL;
}

const char *safetensors_dtype(const struct safetensors *tensors, const char *name)
{
    const struct entry *entry = find_entry(tensors, name);
    return entry ? entry->tensor->type->name : NULL;
}

bool safetensors_is_rope_table(const char *name)
{
    static const char ending[] = "rotary_emb.inv_freq";
    size_t length = strlen(name), tail = sizeof ending - 1;
    return length >= tail && strcmp(name + length - tail, ending) == 0;
}

enum status safetensors_expect_all_found(const struct safetensors *tensors, struct error *err)
{
    const struct entry *first = NULL;
    size_t count = 0;
    for (size_t i = 0; i < tensors->entry_count; i++) {
        const struct entry *entry = &tensors->entries[i];
        if (entry->found || safetensors_is_rope_table(entry->tensor->name))
            continue;
        first = first ? first : entry;
        count++;
    }
    if (!count)
        return STATUS_OK;
    return error_set(err, STATUS_UNSUPPORTED,
                     "%s: tensor %.150s: there is no place for it in this model by config.json, "
                     "nor for %zu others: tensors are never left out silently",
                     first->file->path, first->tensor->name, count - 1);
}

enum status safetensors_find_any(struct safetensors *tensors, const char *name,
                                 struct tensor_view *view, struct tensor_info *info,
                                 struct error *err)
{
    struct entry *entry;
    enum float_type type;
    TRY(find(tensors, name, &entry, err));
    if (!float_type_of(entry->tensor, &type))
        return wrong_dtype(entry, "BF16, F16 or F32", err);
    entry->found = true;
    *info = safetensors_at(tensors, (size_t)(entry - tensors->entries));
    *view = (struct tensor_view){.type = type,
                                 .bytes = info->bytes,
                                 .path = entry->file->path,
                                 .fd = info->fd,
                                 .file_offset = info->file_offset};
    return STATUS_OK;
}

size_t safetensors_count(const struct safetensors *tensors)
{
    return tensors->entry_count;
}

struct tensor_info safetensors_at(const struct safetensors *tensors, size_t index)
{
    const struct entry *entry = &tensors->entries[index];
    const unsigned char *data = tensor_data(entry->file, entry->tensor);
    return (struct tensor_info){.name = entry->tensor->name,
                                .dtype = entry->tensor->type->name,
                                .rank = entry->tensor->rank,
                                .shape = entry->tensor->shape,
                                .bytes = data,
                                .byte_count = entry->tensor->end_bytes - entry->tensor->begin_bytes,
                                .fd = entry->file->fd,
                                .file_offset = (uint64_t)(data - entry->file->bytes)};
}

size_t safetensors_file_count(const struct safetensors *tensors)
{
    return tensors->file_count;
}

struct safetensors_source safetensors_source_at(const struct safetensors *tensors, size_t index)
{
    const struct safetensors_file *file = &tensors->files[index];
    size_t header_bytes = (size_t)(file->data - file->bytes);
    return (struct safetensors_source){.name = base_name(file->path),
                                       .bytes = file->length_bytes,
                                       .mtime_ns = file->mtime_ns,
                                       .header_hash = content_hash(file->bytes, header_bytes)};
}

/* --- the hash: samples of all tensors --- */

/* Returns the offset of window w of a tensor. */
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
    size_t first, count; /* tensors */
    unsigned char bytes[GROUP][WINDOWS][WINDOW_BYTES];
    bool held[GROUP][WINDOWS];
};

/* Reads the samples that are in memory, and asks the disk for all others before waiting for any.
 * Uses reads: touching a mapped page brings its neighbours along, and for all samples together
 * that is the whole file. */
static void read_samples_in_memory(struct group *group)
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

/* If a read ends early, the mapping is used, which then fails like every use of that file. */
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

uint64_t safetensors_hash(struct safetensors *tensors)
{
    if (tensors->hash)
        return tensors->hash;
    struct group group = {.tensors = tensors};
    uint64_t hash = HASH_SEED;
    for (; group.first < tensors->entry_count; group.first += GROUP) {
        group.count = tensors->entry_count - group.first;
        if (group.count > GROUP)
            group.count = GROUP;
        read_samples_in_memory(&group);
        hash = hash_group(&group, hash);
    }
    tensors->hash = hash;
    return hash;
}
