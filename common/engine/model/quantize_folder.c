#include "common/engine/model/quantize_folder.h"

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/failpoint.h"
#include "common/base/json/json_quote.h"
#include "common/base/str.h"
#include "common/engine/model/load_progress.h"
#include "common/engine/model/quantize_files.h"
#include "common/engine/model/row_conversion.h"
#include "common/engine/model/safetensors.h"
#include "common/engine/model/weight_convert.h"
#include "common/engine/model/weights.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_BYTES   512
#define HEADER_LIMIT ((size_t)32 << 20)

/* --- what is written: the tensors of the new file, in its order --- */

enum part { COPIED, NUMBERS, SCALES };

struct output {
    char name[NAME_BYTES];
    const char *dtype;
    uint32_t element_bytes, rank;
    uint64_t shape[2];
    uint64_t byte_count, offset; /* in the data */
    size_t source;               /* safetensors_at */
    enum part part;
};

struct folder {
    const char *model_dir, *out_dir;
    struct model_config config;
    struct weight_types types;
    struct safetensors *files;
    struct output *outputs;
    size_t output_count;
    uint64_t data_begin, data_bytes; /* of the new file */
    struct whole_file config_file, weights_file;
    struct kernels *kernels; /* whose threads convert */
    struct row_piece piece;
    struct load_progress progress;
    struct quantize_report report;
    struct error *err;
};

/* A head that is tied was found equal to the embedding. */
static bool is_left_out(const struct folder *folder, const char *name)
{
    return safetensors_is_rope_table(name) ||
           (folder->config.shape.tied_embeddings && strcmp(name, "lm_head.weight") == 0);
}

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

/* Large elements first, as the format's own library writes them: then every tensor is aligned. */
static int compare_outputs(const void *a, const void *b)
{
    const struct output *x = a, *y = b;
    if (x->element_bytes != y->element_bytes)
        return x->element_bytes > y->element_bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* Float matrices are quantized, all other tensors (vectors) stay. */
static enum status plan_outputs(struct folder *folder)
{
    size_t count = safetensors_count(folder->files);
    folder->outputs = calloc(2 * count, sizeof *folder->outputs);
    if (!folder->outputs)
        return error_set(folder->err, STATUS_LIMIT, "out of memory");
    for (size_t i = 0; i < count; i++) {
        struct tensor_info info = safetensors_at(folder->files, i);
        folder->report.source_bytes += info.byte_count;
        if (is_left_out(folder, info.name))
            continue;
        if (info.rank == 2) {
            TRY(add_matrix(folder, i, &info));
            continue;
        }
        ASSERT(info.rank == 1); /* all that a model of config.json has: weights_check */
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

/* --- writing --- */

static enum status begin_file(const struct folder *folder, const char *name,
                              struct whole_file *file)
{
    char path[WHOLE_FILE_PATH_BYTES];
    if (snprintf(path, sizeof path, "%s/%s", folder->out_dir, name) >= (int)sizeof path)
        return error_set(folder->err, STATUS_LIMIT, "%.100s...: the path is too long",
                         folder->out_dir);
    enum status status = whole_file_begin(file, path, folder->err);
    return status == STATUS_OK ? status : error_prefix(folder->err, status, "%s", path);
}

static enum status end_file(const struct folder *folder, struct whole_file *file)
{
    enum status status = whole_file_end(file, folder->err);
    return status == STATUS_OK ? status : error_prefix(folder->err, status, "%s", file->path);
}

static enum status write_at(const struct folder *folder, uint64_t offset, const void *bytes,
                            size_t count)
{
    const struct whole_file *file = &folder->weights_file;
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
        status = write_at(folder, 0, &length, sizeof length);
    if (status == STATUS_OK)
        status = write_at(folder, sizeof length, header.data, header.length);
    folder->data_begin = sizeof length + length;
    str_deinit(&header);
    return status;
}

static const struct output *find_output(const struct folder *folder, size_t source, enum part part)
{
    for (size_t i = 0; i < folder->output_count; i++)
        if (folder->outputs[i].source == source && folder->outputs[i].part == part)
            return &folder->outputs[i];
    ASSERT(false);
    return NULL;
}

/* Rows [row, row + count) of a matrix, quantized, to their places. */
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
    TRY(write_at(folder, folder->data_begin + numbers->offset + row * row_bytes, piece->numbers,
                 count * row_bytes));
    if (type == WEIGHT_INT4) /* bf16 holds them exactly; the floats aren't needed any more */
        weight_convert(FLOAT_F32, piece->scales, count * row_scales, WEIGHT_BF16, piece->floats);
    size_t scale_bytes = row_scales * scales->element_bytes;
    TRY(write_at(folder, folder->data_begin + scales->offset + row * scale_bytes,
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
            TRY(write_at(folder, folder->data_begin + out->offset, info.bytes, info.byte_count));
        if (out->part != NUMBERS)
            continue;
        FAILPOINT("quantize.matrix");
        const struct output *scales = find_output(folder, out->source, SCALES);
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

/* --- the whole --- */

/* One for each CPU that this process may run on. */
static uint32_t thread_count(void)
{
    cpu_set_t set;
    uint32_t count = sched_getaffinity(0, sizeof set, &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 1;
    return count < KERNELS_MAX_THREADS ? count : KERNELS_MAX_THREADS;
}

static enum status check_source(struct folder *folder)
{
    const struct kernels_config config = {.f32 = true, .threads = thread_count()};
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
    struct quantize_files files = {folder->model_dir, folder->out_dir, folder->types.layers,
                                   &folder->config_file};
    TRY(quantize_files_copy(&files, folder->err));
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
        status = quantize_files_make_target(model_dir, out_dir, err);
    if (status == STATUS_OK) /* begun first and ended last: its lock is that of the folder */
        status = begin_file(&folder, "config.json", &folder.config_file);
    if (status == STATUS_OK) {
        status = write_all(&folder);
        if (status != STATUS_OK)
            quantize_files_remove(model_dir, out_dir);
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
