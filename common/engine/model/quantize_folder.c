#include "common/engine/model/quantize_folder.h"

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/failpoint.h"
#include "common/base/json/json_quote.h"
#include "common/base/str.h"
#include "common/engine/model/load_progress.h"
#include "common/engine/model/safetensors.h"
#include "common/engine/model/weight_convert.h"
#include "common/engine/model/weight_loader.h"
#include "common/engine/model/weights.h"
#include "common/engine/model/whole_file.h"
#include "common/language/model_config/model_config.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME_BYTES       512
#define PATH_BYTES       4096
#define HEADER_LIMIT     ((size_t)32 << 20)
#define CONFIG_LIMIT     ((size_t)1 << 20)
#define SMALL_FILE_LIMIT ((size_t)256 << 20)

/* --- the plan: the tensors of the new file, in its order --- */

enum part { COPIED, NUMBERS, SCALES };

struct output {
    char name[NAME_BYTES];
    const char *dtype;
    uint32_t element_bytes, rank;
    uint64_t shape[2];
    uint64_t byte_count, offset; /* offset in the data */
    size_t source;               /* index for safetensors_at */
    enum part part;
};

struct folder {
    const char *model_dir, *out_dir;
    struct model_config config;
    struct weight_types types;
    struct safetensors *files;
    struct output *outputs;
    size_t output_count;
    uint64_t data_begin, data_bytes; /* in the new file */
    struct whole_file config_file, weights_file;
    struct kernels *kernels; /* its threads convert */
    struct row_piece piece;
    struct load_progress progress;
    struct quantize_report report;
    struct error *err;
};

static enum weight_type type_of(const struct folder *folder, const char *name)
{
    bool end =
        strcmp(name, "lm_head.weight") == 0 || strcmp(name, "model.embed_tokens.weight") == 0;
    return end ? folder->types.ends : folder->types.layers;
}

static enum status add_output(struct folder *folder, struct output output, const char *name,
                              const char *suffix)
{
    if (snprintf(output.name, sizeof output.name, "%s%s", name, suffix) >= (int)sizeof output.name)
        return error_set(folder->err, STATUS_LIMIT, "tensor %.100s...: its name is too long", name);
    output.byte_count = output.element_bytes;
    for (uint32_t i = 0; i < output.rank; i++)
        output.byte_count *= output.shape[i];
    folder->outputs[folder->output_count++] = output;
    return STATUS_OK;
}

static enum status add_matrix(struct folder *folder, size_t source, const struct tensor_info *info)
{
    uint32_t columns = (uint32_t)info->shape[1]; /* checked by config.json */
    enum weight_type type = type_of(folder, info->name);
    bool int8 = type == WEIGHT_INT8;
    struct output numbers = {.dtype = int8 ? "I8" : "U8",
                             .element_bytes = 1,
                             .rank = 2,
                             .shape = {info->shape[0], weight_row_bytes(type, columns)},
                             .source = source,
                             .part = NUMBERS};
    struct output scales = {.dtype = int8 ? "F32" : "BF16",
                            .element_bytes = int8 ? 4 : 2,
                            .rank = int8 ? 1 : 2,
                            .shape = {info->shape[0], weight_row_scales(type, columns)},
                            .source = source,
                            .part = SCALES};
    folder->report.matrices++;
    TRY(add_output(folder, numbers, info->name, ""));
    return add_output(folder, scales, info->name, ".scale");
}

/* Sorts large elements first, like the format's own library: then every tensor is aligned. */
static int compare_outputs(const void *a, const void *b)
{
    const struct output *x = a, *y = b;
    if (x->element_bytes != y->element_bytes)
        return x->element_bytes > y->element_bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* Plans to quantize float matrices and to copy all other tensors, which are vectors. */
static enum status plan_outputs(struct folder *folder)
{
    size_t count = safetensors_count(folder->files);
    folder->outputs = calloc(2 * count, sizeof *folder->outputs);
    if (!folder->outputs)
        return error_set(folder->err, STATUS_LIMIT, "out of memory");
    for (size_t i = 0; i < count; i++) {
        struct tensor_info info = safetensors_at(folder->files, i);
        folder->report.source_bytes += info.byte_count;
        bool tied_head = /* equal to the embedding: weights_check */
            folder->config.shape.tied_embeddings && strcmp(info.name, "lm_head.weight") == 0;
        if (tied_head || safetensors_is_rope_table(info.name))
            continue;
        if (info.rank == 2) {
            TRY(add_matrix(folder, i, &info));
            continue;
        }
        ASSERT(info.rank == 1); /* a model of config.json has no others: weights_check */
        struct output copy = {.dtype = info.dtype,
                              .element_bytes = strcmp(info.dtype, "F32") == 0 ? 4 : 2,
                              .rank = 1,
                              .shape = {info.shape[0]},
                              .source = i,
                              .part = COPIED};
        TRY(add_output(folder, copy, info.name, ""));
    }
    qsort(folder->outputs, folder->output_count, sizeof *folder->outputs, compare_outputs);
    for (size_t i = 0; i < folder->output_count; i++) {
        folder->outputs[i].offset = folder->data_bytes;
        folder->data_bytes += folder->outputs[i].byte_count;
    }
    folder->report.written_bytes = folder->data_bytes;
    return STATUS_OK;
}

/* --- the new folder --- */

static const char *const SMALL_FILES[] = {
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "added_tokens.json",
    "special_tokens_map.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
};
#define SMALL_FILE_COUNT (sizeof SMALL_FILES / sizeof *SMALL_FILES)

static enum status path_of(const char *dir, const char *name, char path[PATH_BYTES],
                           struct error *err)
{
    if (snprintf(path, PATH_BYTES, "%s/%s", dir, name) < PATH_BYTES)
        return STATUS_OK;
    return error_set(err, STATUS_LIMIT, "the path of %s is too long", name);
}

static enum status find(const char *dir, const char *name, char path[PATH_BYTES], bool *found,
                        struct error *err)
{
    TRY(path_of(dir, name, path, err));
    *found = access(path, F_OK) == 0;
    return STATUS_OK;
}

static enum status make_folder(const char *path, struct error *err)
{
    struct stat found;
    if (mkdir(path, 0755) != 0 && errno != EEXIST)
        return error_set(err, STATUS_IO, "cannot make the folder %s: %s%s", path, strerror(errno),
                         errno == ENOENT ? ": the folder above it must be there already" : "");
    if (stat(path, &found) == 0 && !S_ISDIR(found.st_mode))
        return error_set(err, STATUS_INVALID, "%s is a file: a folder without a model is wanted",
                         path);
    return STATUS_OK;
}

static enum status refuse(const char *path, struct error *err)
{
    return error_set(err, STATUS_INVALID,
                     "%s: it is there already: a folder without a model is wanted", path);
}

/* Makes the new folder if there is none. STATUS_INVALID: a model is in it already, or a file
 * that would be overwritten. A run that was stopped leaves no model: config.json.tmp shows that
 * the files beside it are of such a run, even model.safetensors under its name. */
static enum status make_target(const char *model_dir, const char *out_dir, struct error *err)
{
    static const char *const model_files[] = {"config.json", "model.safetensors.index.json",
                                              "model.safetensors"};
    char path[PATH_BYTES];
    bool stopped, found;
    TRY(make_folder(out_dir, err));
    TRY(find(out_dir, "config.json.tmp", path, &stopped, err));
    for (size_t i = 0; i < sizeof model_files / sizeof *model_files; i++) {
        TRY(find(out_dir, model_files[i], path, &found, err));
        if (found && !(stopped && strcmp(model_files[i], "model.safetensors") == 0))
            return refuse(path, err);
    }
    for (size_t i = 0; i < SMALL_FILE_COUNT && !stopped; i++) { /* a copy would overwrite it */
        bool copied;
        TRY(find(model_dir, SMALL_FILES[i], path, &copied, err));
        TRY(find(out_dir, SMALL_FILES[i], path, &found, err));
        if (copied && found)
            return refuse(path, err);
    }
    return STATUS_OK;
}

static void remove_file(const char *dir, const char *name)
{
    char path[PATH_BYTES];
    if (path_of(dir, name, path, NULL) == STATUS_OK)
        (void)unlink(path);
}

/* After a failure: removes all that was written. make_target found the place free. */
static void remove_written(const char *model_dir, const char *out_dir)
{
    char source[PATH_BYTES];
    bool copied;
    remove_file(out_dir, "config.json");
    remove_file(out_dir, "model.safetensors");
    for (size_t i = 0; i < SMALL_FILE_COUNT; i++)
        if (find(model_dir, SMALL_FILES[i], source, &copied, NULL) == STATUS_OK && copied)
            remove_file(out_dir, SMALL_FILES[i]);
}

/* --- writing weights --- */

static enum status begin_file(const struct folder *folder, const char *name,
                              struct whole_file *file)
{
    char path[PATH_BYTES];
    TRY(path_of(folder->out_dir, name, path, folder->err));
    enum status status = whole_file_begin(file, path, folder->err);
    return status == STATUS_OK ? status : error_prefix(folder->err, status, "%s", path);
}

static enum status end_file(const struct folder *folder, struct whole_file *file)
{
    enum status status = whole_file_end(file, folder->err);
    return status == STATUS_OK ? status : error_prefix(folder->err, status, "%s", file->path);
}

static enum status write_at(const struct folder *folder, const struct whole_file *file,
                            uint64_t offset, const void *bytes, size_t count)
{
    enum status status = whole_file_put(file, bytes, count, offset, folder->err);
    return status == STATUS_OK ? status : error_prefix(folder->err, status, "%s", file->path);
}

static enum status write_header(struct folder *folder)
{
    struct str header;
    str_init(&header, HEADER_LIMIT);
    str_add(&header, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (size_t i = 0; i < folder->output_count; i++) {
        const struct output *out = &folder->outputs[i];
        str_add(&header, ",");
        json_quote(&header, out->name, strlen(out->name));
        str_addf(&header, ":{\"dtype\":\"%s\",\"shape\":[%" PRIu64, out->dtype, out->shape[0]);
        if (out->rank == 2)
            str_addf(&header, ",%" PRIu64, out->shape[1]);
        str_addf(&header, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", out->offset,
                 out->offset + out->byte_count);
    }
    str_add(&header, "}");
    while (header.length % 8)
        str_add(&header, " ");
    uint64_t length = header.length; /* little endian, like every machine that runs this */
    enum status status = STATUS_OK;
    if (header.truncated)
        status =
            error_set(folder->err, STATUS_LIMIT, "a header of more than %zu bytes", HEADER_LIMIT);
    if (status == STATUS_OK)
        status = write_at(folder, &folder->weights_file, 0, &length, sizeof length);
    if (status == STATUS_OK)
        status = write_at(folder, &folder->weights_file, sizeof length, header.data, header.length);
    folder->data_begin = sizeof length + length;
    str_deinit(&header);
    return status;
}

/* Quantizes rows [row, row + count) of a matrix and writes them to their places. */
static enum status write_rows(struct folder *folder, const struct output *numbers,
                              const struct output *scales, uint64_t row, uint32_t count)
{
    struct tensor_info info = safetensors_at(folder->files, numbers->source);
    enum weight_type type = type_of(folder, info.name);
    struct row_piece *piece = &folder->piece;
    uint32_t columns = (uint32_t)info.shape[1], bad_row;
    enum float_type from = strcmp(info.dtype, "F32") == 0   ? FLOAT_F32
                           : strcmp(info.dtype, "F16") == 0 ? FLOAT_F16
                                                            : FLOAT_BF16;
    size_t row_scales = weight_row_scales(type, columns), row_bytes = numbers->shape[1];
    const struct row_source rows = {from, info.bytes + row * columns * float_type_bytes(from),
                                    count, columns};
    if (row_piece_convert(piece, folder->kernels, &rows, type, &bad_row) != STATUS_OK)
        return error_set(folder->err, STATUS_INVALID,
                         "%s: tensor %s: row %" PRIu64 " has a number that isn't finite, or is "
                         "beyond 2^100: it can't be quantized",
                         folder->model_dir, info.name, row + bad_row);
    TRY(write_at(folder, &folder->weights_file,
                 folder->data_begin + numbers->offset + row * row_bytes, piece->numbers,
                 count * row_bytes));
    if (type == WEIGHT_INT4) /* bf16 holds them exactly; the piece's floats are free now */
        weight_convert(FLOAT_F32, piece->scales, count * row_scales, WEIGHT_BF16, piece->floats);
    size_t scale_bytes = row_scales * scales->element_bytes;
    TRY(write_at(folder, &folder->weights_file,
                 folder->data_begin + scales->offset + row * scale_bytes,
                 type == WEIGHT_INT4 ? piece->floats : piece->scales, count * scale_bytes));
    load_progress_add(&folder->progress, (uint64_t)count * columns * float_type_bytes(from),
                      clock_now_us());
    return STATUS_OK;
}

static enum status write_tensors(struct folder *folder)
{
    for (size_t i = 0; i < folder->output_count; i++) {
        const struct output *out = &folder->outputs[i];
        struct tensor_info info = safetensors_at(folder->files, out->source);
        if (out->part == COPIED)
            TRY(write_at(folder, &folder->weights_file, folder->data_begin + out->offset,
                         info.bytes, info.byte_count));
        if (out->part != NUMBERS)
            continue;
        FAILPOINT("quantize.matrix");
        const struct output *scales = folder->outputs;
        while (scales->source != out->source || scales->part != SCALES)
            scales++;
        uint32_t rows = (uint32_t)info.shape[0], columns = (uint32_t)info.shape[1];
        for (uint32_t row = 0, count; row < rows; row += count) {
            count = row_piece_fit(rows - row, columns);
            TRY(write_rows(folder, out, scales, row, count));
        }
    }
    return STATUS_OK;
}

static enum status write_weights(struct folder *folder)
{
    TRY(row_piece_init(&folder->piece, folder->err));
    TRY(begin_file(folder, "model.safetensors", &folder->weights_file));
    folder->progress = load_progress_begin("quantizing weights", folder->report.source_bytes,
                                           progress_line_terminal(), clock_now_us());
    enum status status = write_header(folder);
    if (status == STATUS_OK)
        status = write_tensors(folder);
    load_progress_end(&folder->progress);
    return status;
}

/* --- writing the small files --- */

/* Reads all of a file, NUL-terminated. STATUS_NOT_FOUND: there is none. */
static enum status read_file(const char *path, struct str *text, struct error *err)
{
    char bytes[65536];
    FILE *file = fopen(path, "rb");
    if (!file)
        return error_set(err, errno == ENOENT ? STATUS_NOT_FOUND : STATUS_IO, "%s: %s", path,
                         strerror(errno));
    for (size_t got; (got = fread(bytes, 1, sizeof bytes, file)) > 0;)
        str_append(text, bytes, got);
    bool failed = ferror(file) != 0;
    fclose(file);
    if (failed)
        return error_set(err, STATUS_IO, "%s: it can't be read", path);
    if (text->truncated)
        return error_set(err, STATUS_LIMIT, "%s: more than %zu bytes", path, text->limit);
    return STATUS_OK;
}

static enum status copy_small_file(const struct folder *folder, const char *name)
{
    char source[PATH_BYTES], target[PATH_BYTES];
    struct str text;
    TRY(path_of(folder->model_dir, name, source, folder->err));
    TRY(path_of(folder->out_dir, name, target, folder->err));
    str_init(&text, SMALL_FILE_LIMIT);
    enum status status = read_file(source, &text, folder->err);
    if (status == STATUS_OK) {
        FILE *file = fopen(target, "wb");
        bool done = file && fwrite(text.data, 1, text.length, file) == text.length;
        if (file && fclose(file) != 0)
            done = false;
        if (!done)
            status = error_set(folder->err, STATUS_IO, "%s: %s", target, strerror(errno));
    }
    str_deinit(&text);
    return status == STATUS_NOT_FOUND ? STATUS_OK : status;
}

/* Writes the source's config.json with one more member, before its last brace. */
static enum status write_config(struct folder *folder)
{
    char source[PATH_BYTES];
    struct str text;
    TRY(path_of(folder->model_dir, "config.json", source, folder->err));
    str_init(&text, CONFIG_LIMIT);
    enum status status = read_file(source, &text, folder->err);
    char *brace = status == STATUS_OK ? strrchr(text.data, '}') : NULL;
    if (brace) { /* always: the file was parsed */
        while (brace > text.data && strchr(" \t\r\n", brace[-1]))
            brace--;
        struct str whole;
        str_init(&whole, CONFIG_LIMIT);
        str_append(&whole, text.data, (size_t)(brace - text.data));
        str_addf(&whole,
                 ",\n  \"quantization_config\": {\n    \"quant_method\": \"%s\",\n    \"version\": "
                 "%d,\n    \"weights\": \"%s\"",
                 QUANTIZATION_METHOD, QUANTIZATION_VERSION,
                 weight_type_names[folder->types.layers]);
        if (folder->types.layers == WEIGHT_INT4)
            str_addf(&whole, ",\n    \"group_size\": %d", QUANTIZATION_GROUP_SIZE);
        str_add(&whole, "\n  }\n}\n");
        status = write_at(folder, &folder->config_file, 0, whole.data, whole.length);
        str_deinit(&whole);
    }
    str_deinit(&text);
    return status;
}

/* --- the whole --- */

static enum status check_source(struct folder *folder)
{
    cpu_set_t set;
    uint32_t cpus = sched_getaffinity(0, sizeof set, &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 1;
    const struct kernels_config config = {
        .f32 = true, .threads = cpus < KERNELS_MAX_THREADS ? cpus : KERNELS_MAX_THREADS};
    uint64_t bytes;
    TRY(model_config_read(folder->model_dir, &folder->config, folder->err));
    if (folder->config.quantization != MODEL_FLOAT)
        return error_set(folder->err, STATUS_INVALID, "%s: it is quantized already",
                         folder->model_dir);
    TRY(safetensors_open(folder->model_dir, &folder->files, folder->err));
    TRY(kernels_open(&config, &folder->kernels, folder->err));
    return weights_check(folder->kernels, &folder->config.shape, folder->types, 1, folder->files,
                         &bytes, folder->err);
}

static enum status write_all(struct folder *folder)
{
    struct model_config written;
    TRY(write_weights(folder));
    for (size_t i = 0; i < SMALL_FILE_COUNT; i++)
        TRY(copy_small_file(folder, SMALL_FILES[i]));
    TRY(write_config(folder));
    TRY(end_file(folder, &folder->weights_file));
    FAILPOINT("quantize.named");
    TRY(end_file(folder, &folder->config_file));
    return model_config_read(folder->out_dir, &written, folder->err);
}

enum status quantize_folder(const char *model_dir, enum model_quantization quantization,
                            const char *out_dir, struct quantize_report *report, struct error *err)
{
    struct folder folder = {.model_dir = model_dir,
                            .out_dir = out_dir,
                            .types = weight_types_of(quantization, WEIGHT_F32),
                            .config_file = {.fd = -1},
                            .weights_file = {.fd = -1},
                            .err = err};
    ASSERT(quantization != MODEL_FLOAT);
    enum status status = check_source(&folder);
    if (status == STATUS_OK)
        status = plan_outputs(&folder);
    if (status == STATUS_OK)
        status = make_target(model_dir, out_dir, err);
    if (status == STATUS_OK) /* begun first and ended last: its lock is the folder's */
        status = begin_file(&folder, "config.json", &folder.config_file);
    if (status == STATUS_OK) {
        status = write_all(&folder);
        if (status != STATUS_OK)
            remove_written(model_dir, out_dir);
        whole_file_drop(&folder.weights_file);
        whole_file_drop(&folder.config_file);
    }
    safetensors_close(folder.files);
    free(folder.outputs);
    row_piece_deinit(&folder.piece);
    kernels_close(folder.kernels);
    if (status == STATUS_OK)
        *report = folder.report;
    return status;
}
