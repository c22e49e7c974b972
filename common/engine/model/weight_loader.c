#include "common/engine/model/weight_loader.h"

#include "common/base/clock.h"
#include "common/base/rng.h"
#include "common/base/str.h"
#include "common/engine/model/load_progress.h"
#include "common/engine/model/packed_plan.h"
#include "common/engine/model/safetensors.h"
#include "common/engine/model/weight_convert.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define CHUNK_VALUES       65536               /* one thread converts these at a time */
#define CHUNK_BYTES        ((uint64_t)1 << 20) /* one thread reads these at a time */
#define STANDARD_DEVIATION 0.02f               /* random weights */
#define RANDOM_INPUT_SCALE 0x1p-6f             /* 448 of them are 7 */
#define SCALE_NAME_BYTES   160

/* --- a piece: rows of floats to a layer's type --- */

enum status row_piece_init(struct row_piece *out, struct error *err)
{
    struct row_piece piece = {.floats = malloc(ROW_PIECE_VALUES * sizeof(float)),
                              .numbers = malloc(ROW_PIECE_VALUES),
                              .scales = malloc(ROW_PIECE_VALUES * sizeof(float))};
    if (!piece.floats || !piece.numbers || !piece.scales) {
        row_piece_deinit(&piece);
        return error_set(err, STATUS_LIMIT, "out of memory for a piece of a tensor");
    }
    *out = piece;
    return STATUS_OK;
}

void row_piece_deinit(struct row_piece *piece)
{
    free(piece->floats);
    free(piece->numbers);
    free(piece->scales);
}

uint32_t row_piece_fit(uint32_t rows_left, uint32_t columns)
{
    uint32_t most = (uint32_t)(ROW_PIECE_VALUES / columns);
    return rows_left < most ? rows_left : most;
}

struct conversion { /* a piece, shared by the compute threads */
    const struct row_piece *piece;
    const struct row_source *source;
    enum weight_type type;
    atomic_uint bad_row; /* the first that can't be quantized; UINT32_MAX: none */
};

static void quantize(struct conversion *job, uint32_t first, uint32_t count, const float *floats)
{
    uint32_t columns = job->source->columns, bad;
    uint8_t *numbers = job->piece->numbers + first * weight_row_bytes(job->type, columns);
    float *scales = job->piece->scales + first * (size_t)weight_row_scales(job->type, columns);
    if (weight_quantize(job->type, floats, count, columns, numbers, scales, &bad) == STATUS_OK)
        return;
    unsigned known = atomic_load(&job->bad_row);
    while (first + bad < known && !atomic_compare_exchange_weak(&job->bad_row, &known, first + bad))
        ;
}

static void convert_rows(void *context, uint32_t thread, uint32_t first, uint32_t last)
{
    (void)thread;
    struct conversion *job = context;
    const struct row_source *source = job->source;
    bool quantized = weight_type_is_quantized(job->type);
    enum weight_type floats = quantized ? WEIGHT_F32 : job->type;
    size_t before = (size_t)first * source->columns;
    size_t values = (size_t)(last - first) * source->columns;
    char *converted = (char *)job->piece->floats + before * weight_row_bytes(floats, 1);
    const char *bytes = (const char *)source->bytes + before * float_type_bytes(source->type);
    weight_convert(source->type, bytes, values, floats, converted);
    if (quantized)
        quantize(job, first, last - first, (const float *)converted);
}

enum status row_piece_convert(struct row_piece *piece, struct kernels *kernels,
                              const struct row_source *source, enum weight_type type,
                              uint32_t *bad_row)
{
    struct conversion job = {piece, source, type, UINT32_MAX};
    uint32_t rows = CHUNK_VALUES / source->columns;
    kernels_host_work(kernels, source->row_count, rows ? rows : 1, convert_rows, &job);
    uint32_t bad = atomic_load(&job.bad_row);
    if (bad == UINT32_MAX)
        return STATUS_OK;
    *bad_row = bad;
    return STATUS_INVALID;
}

/* --- buffers and layers --- */

enum status weight_loader_init(struct weight_loader *out, struct kernels *kernels,
                               struct safetensors *files, struct weight_types types, bool dry,
                               struct error *err)
{
    struct weight_loader loader = {
        .kernels = kernels, .files = files, .types = types, .dry = dry, .err = err};
    if (!dry)
        TRY(row_piece_init(&loader.piece, err));
    enum status status = STATUS_OK;
    if (!dry && !files) {
        loader.drawn = malloc(ROW_PIECE_VALUES * sizeof(uint16_t));
        status = loader.drawn ? STATUS_OK : STATUS_LIMIT;
    }
    bool staged = !dry && files && !kernels_info(kernels).device_is_host;
    for (int i = 0; staged && i < 2 && status == STATUS_OK; i++)
        status = kernels_host_alloc(kernels, LOAD_HALF_BYTES, &loader.staging.halves[i]);
    if (status != STATUS_OK) {
        weight_loader_deinit(&loader);
        return error_set(err, status, "out of memory for a piece of a tensor");
    }
    *out = loader;
    return STATUS_OK;
}

void weight_loader_deinit(struct weight_loader *loader)
{
    if (loader->staging.halves[0])
        (void)!kernels_sync(loader->kernels); /* after a failure it may still read the halves */
    free(loader->drawn);
    row_piece_deinit(&loader->piece);
    for (int i = 0; i < 2; i++)
        kernels_host_free(loader->kernels, loader->staging.halves[i]);
}

bool weight_loader_is_fp8(const struct weight_loader *loader, const char *name)
{
    const char *dtype =
        loader->types.stored && loader->types.fp8 ? safetensors_dtype(loader->files, name) : NULL;
    return dtype && strncmp(dtype, "F8_", 3) == 0;
}

enum status weight_loader_buffer(struct weight_loader *loader, size_t bytes, struct buffer *buffer)
{
    loader->planned_bytes += bytes;
    if (loader->dry)
        return STATUS_OK;
    enum status status = kernels_alloc(loader->kernels, bytes, buffer);
    return status == STATUS_OK
               ? STATUS_OK
               : error_set(loader->err, status, "no device memory for %zu bytes of weights", bytes);
}

enum status weight_loader_linear(struct weight_loader *loader, const char *name,
                                 enum weight_type type, uint32_t n, uint32_t k,
                                 struct linear *linear)
{
    if (weight_loader_is_fp8(loader, name))
        type = loader->types.layers;
    else if (loader->types.stored && loader->types.fp8)
        type = kernels_info(loader->kernels).weight_type;
    if (weight_type_is_quantized(type) && k > WEIGHT_MAX_QUANTIZED_K)
        return error_set(loader->err, STATUS_UNSUPPORTED,
                         "a linear layer of %u inputs: at most %d can be quantized", k,
                         WEIGHT_MAX_QUANTIZED_K);
    size_t bytes = kernels_linear_bytes(loader->kernels, type, n, k);
    loader->planned_bytes += bytes;
    bool scaled = !loader->files && loader->types.fixed_inputs && weight_type_is_fp8(type);
    *linear = (struct linear){
        .type = type, .n = n, .k = k, .input_scale = scaled ? RANDOM_INPUT_SCALE : 0};
    if (loader->dry) {
        if (!loader->plan || packed_plan_add(loader->plan, type, n, k, bytes) == STATUS_OK)
            return STATUS_OK;
        return error_set(loader->err, STATUS_LIMIT, "more than %d layers, or 2^42 bytes of weights",
                         PACKED_MAX_SECTIONS);
    }
    size_t offset = loader->plan->sections[loader->planned_layers++].offset;
    enum status status = kernels_linear_adopt(loader->kernels, &loader->memory, offset, linear);
    return status == STATUS_OK
               ? STATUS_OK
               : error_set(loader->err, status,
                           "the device takes no linear layer of %u x %u weights", n, k);
}

/* --- matrices --- */

/* A matrix that is being loaded. */
struct matrix {
    const char *name;
    const struct tensor_view *floats; /* NULL: random */
    uint32_t rows, columns;
    struct weight_target target;
};

/* `half`: the rows lie in that half of the staging memory, and nothing else does; -1: elsewhere. */
static enum status put_rows(struct weight_loader *loader, const struct matrix *matrix, uint32_t row,
                            uint32_t rows, const void *values, const float *scales, int half)
{
    enum status status = kernels_linear_load(loader->kernels, matrix->target.linear,
                                             matrix->target.first_row + row, rows, values, scales);
    if (status == STATUS_OK && half >= 0)
        status = kernels_record(loader->kernels, KERNELS_STEPS, &loader->staging.behind[half]);
    else if (status == STATUS_OK)
        status = kernels_sync(loader->kernels); /* the next rows overwrite the piece */
    const struct linear *linear = matrix->target.linear;
    load_progress_add(loader->progress, linear->packed.bytes / linear->n * rows, clock_now_us());
    if (status == STATUS_OK)
        return STATUS_OK;
    return error_set(loader->err, status, "tensor %s: the device did not take it", matrix->name);
}

/* Loads `count` rows of floats as the layer's type. `half`: as in put_rows. */
static enum status put_floats(struct weight_loader *loader, const struct matrix *matrix,
                              uint32_t row, uint32_t count, enum float_type from,
                              const void *source, int half)
{
    enum weight_type type = matrix->target.linear->type;
    bool quantized = weight_type_is_quantized(type);
    if (!quantized && weight_is_ready(from, source, type))
        return put_rows(loader, matrix, row, count, source, NULL, half);
    struct row_source rows = {from, source, count, matrix->columns};
    uint32_t bad_row;
    if (row_piece_convert(&loader->piece, loader->kernels, &rows, type, &bad_row) != STATUS_OK)
        return error_set(loader->err, STATUS_INVALID,
                         "%s: tensor %s: row %u has a number that isn't finite, or is beyond "
                         "2^100: it can't be quantized",
                         matrix->floats ? matrix->floats->path : "random", matrix->name,
                         row + bad_row);
    if (!quantized)
        return put_rows(loader, matrix, row, count, loader->piece.floats, NULL, -1);
    return put_rows(loader, matrix, row, count, loader->piece.numbers, loader->piece.scales, -1);
}

struct drawing { /* a piece, shared by the compute threads */
    struct rng rng;
    uint16_t *values;
};

/* Fills rows of CHUNK_VALUES values in bf16: bell-shaped (the sum of four uniforms), mean 0. The
 * last row may hold more than is used. */
static void draw_weights(void *context, uint32_t thread, uint32_t first, uint32_t last)
{
    const struct drawing *drawing = context;
    /* Four uniforms of 16 bits: mean 2 * 65535, standard deviation 65536 * sqrt(4 / 12). */
    const float scale = STANDARD_DEVIATION / (65536.0f * 0.57735027f);
    struct rng rng = drawing->rng;
    (void)thread;
    rng_skip(&rng, (uint64_t)first * CHUNK_VALUES);
    for (size_t i = (size_t)first * CHUNK_VALUES; i < (size_t)last * CHUNK_VALUES; i++) {
        uint64_t draw = rng_next(&rng);
        int32_t sum = (int32_t)((draw & 0xffff) + (draw >> 16 & 0xffff) + (draw >> 32 & 0xffff) +
                                (draw >> 48));
        float value = (float)(sum - 2 * 65535) * scale;
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        drawing->values[i] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
}

/* Pages that were read leave this process's memory, not the machine's cache. */
static void release_pages(const void *bytes, size_t count)
{
    const uintptr_t page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t first = (uintptr_t)bytes / page_bytes * page_bytes;
    (void)madvise((void *)first, (uintptr_t)bytes + count - first, MADV_DONTNEED);
}

/* --- reading ahead --- */

struct reading { /* a piece, shared by the compute threads */
    const struct tensor_view *view;
    uint64_t at, bytes; /* a range of the tensor */
    char *half;
    atomic_int failed; /* errno of a failed read; -1: the file ended; 0: none */
};

static void read_chunks(void *context, uint32_t thread, uint32_t first, uint32_t last)
{
    struct reading *job = context;
    uint64_t done = first * CHUNK_BYTES, end = last * CHUNK_BYTES;
    (void)thread;
    if (end > job->bytes)
        end = job->bytes;
    while (done < end && !atomic_load(&job->failed)) {
        off_t place = (off_t)(job->view->file_offset + job->at + done);
        ssize_t got = pread(job->view->fd, job->half + done, end - done, place);
        if (got > 0)
            done += (uint64_t)got;
        else if (got == 0 || errno != EINTR)
            atomic_store(&job->failed, got == 0 ? -1 : errno);
    }
}

/* Gives bytes [at, at + bytes) of a tensor, at most LOAD_HALF_BYTES: in a half of the staging
 * memory, or mapped. *half: as in put_rows. */
static enum status bring(struct weight_loader *loader, const char *name,
                         const struct tensor_view *view, uint64_t at, uint64_t bytes,
                         const void **source, int *half)
{
    struct load_staging *staging = &loader->staging;
    /* The disk is asked for the bytes behind the piece, at a tensor's beginning for it, too. */
    uint64_t from = view->file_offset + at + (at ? LOAD_AHEAD_BYTES : 0);
    (void)posix_fadvise(view->fd, (off_t)from, (off_t)(at ? bytes : bytes + LOAD_AHEAD_BYTES),
                        POSIX_FADV_WILLNEED);
    loader->read_bytes += bytes;
    *source = view->bytes + at;
    *half = -1;
    if (!staging->halves[0])
        return STATUS_OK;
    *half = (int)staging->turn;
    staging->turn = !staging->turn;
    struct reading job = {.view = view, .at = at, .bytes = bytes, .half = staging->halves[*half]};
    enum status status = kernels_wait(loader->kernels, KERNELS_STEPS, staging->behind[*half]);
    if (status != STATUS_OK)
        return error_set(loader->err, status, "tensor %s: the device did not take it", name);
    kernels_host_work(loader->kernels, (uint32_t)((bytes + CHUNK_BYTES - 1) / CHUNK_BYTES), 1,
                      read_chunks, &job);
    *source = job.half;
    int failed = atomic_load(&job.failed);
    return !failed ? STATUS_OK
                   : error_set(loader->err, STATUS_IO, "%s: tensor %s: %s", view->path, name,
                               failed > 0 ? strerror(failed) : "the file became shorter");
}

/* Loads a matrix row by row, through the piece. */
static enum status put_matrix(struct weight_loader *loader, const struct matrix *matrix)
{
    const struct tensor_view *view = matrix->floats;
    enum float_type type = view ? view->type : FLOAT_BF16;
    /* Random values depend on the name alone: a tied lm_head gets the embedding's. */
    struct drawing drawing = {rng_seeded(hash_bytes(matrix->name, strlen(matrix->name), HASH_SEED)),
                              loader->drawn};
    size_t row_bytes = matrix->columns * (size_t)float_type_bytes(type);
    for (uint32_t row = 0, count; row < matrix->rows; row += count) {
        count = row_piece_fit(matrix->rows - row, matrix->columns);
        const void *source = loader->drawn;
        size_t values = (size_t)count * matrix->columns;
        int half = -1;
        if (view) {
            TRY(bring(loader, matrix->name, view, row * row_bytes, count * row_bytes, &source,
                      &half));
        } else {
            kernels_host_work(loader->kernels,
                              (uint32_t)((values + CHUNK_VALUES - 1) / CHUNK_VALUES), 1,
                              draw_weights, &drawing);
            rng_skip(&drawing.rng, values);
        }
        TRY(put_floats(loader, matrix, row, count, type, source, half));
        if (view && half < 0)
            release_pages(source, count * row_bytes);
    }
    return STATUS_OK;
}

/* Numbers and scales as they are in the files. */
struct stored_matrix {
    struct tensor_view numbers, scales;
    uint32_t row_scales;
    uint32_t scale_rows, row_step; /* fp8: rows of scales, and rows of the matrix that share one */
    float input_scale;             /* fp8: 0: none */
};

/* --- fp8 --- */

/* Adds a code to the sentence of a failure. */
static enum status with_code(struct weight_loader *loader, enum status status, const char *code)
{
    struct error found = *loader->err;
    return status == STATUS_OK ? status
                               : error_set(loader->err, status, "%s (%s)", found.text, code);
}

/* Reads scale i, as the file has it. */
static float scale_at(const struct tensor_view *scales, size_t i)
{
    float value;
    weight_convert(scales->type, scales->bytes + i * float_type_bytes(scales->type), 1, WEIGHT_F32,
                   &value);
    return value;
}

/* Finds [rows, columns] scales. One scale, of any rank, is a tensor's; [rows] is [rows, 1]. */
static enum status find_scales(struct weight_loader *loader, const char *name, uint32_t rows,
                               uint32_t columns, struct tensor_view *scales, uint32_t *found_rows)
{
    struct tensor_info info;
    TRY(with_code(loader, safetensors_find_any(loader->files, name, scales, &info, loader->err),
                  "fp8_scale_missing"));
    size_t count = info.byte_count / float_type_bytes(scales->type);
    bool one = columns == 1 && count == 1;
    bool whole = (info.rank == 2 || (info.rank == 1 && columns == 1)) && info.shape[0] == rows &&
                 count == (size_t)rows * columns;
    if (!one && !whole)
        return error_set(loader->err, STATUS_INVALID,
                         "%s: tensor %s: expected %s%u x %u scales, found %zu in %u dimensions "
                         "(fp8_scale_shape)",
                         scales->path, name, columns == 1 ? "one scale, or " : "", rows, columns,
                         count, info.rank);
    for (size_t i = 0; i < count; i++) {
        float value = scale_at(scales, i);
        if (!(value >= 0 && value <= WEIGHT_MAX_QUANTIZED))
            return error_set(loader->err, STATUS_INVALID,
                             "%s: tensor %s: scale %zu is %g, and a scale is a finite number from "
                             "0 to 2^100 (fp8_scale_value)",
                             scales->path, name, i, (double)value);
    }
    *found_rows = one ? 1 : rows;
    return STATUS_OK;
}

/* Finds a matrix of e4m3 and its scales; name: "....weight". */
static enum status find_fp8(struct weight_loader *loader, const char *name, uint32_t rows,
                            uint32_t columns, struct stored_matrix *found)
{
    char scale_name[SCALE_NAME_BYTES];
    const int base = (int)(strlen(name) - strlen("weight"));
    bool blocks = loader->types.blocks;
    found->row_scales = blocks ? (columns + WEIGHT_GROUP - 1) / WEIGHT_GROUP : 1;
    found->row_step = blocks ? WEIGHT_GROUP : 1;
    TRY(with_code(loader,
                  safetensors_find_as(loader->files, name, "F8_E4M3", rows, columns,
                                      &found->numbers, loader->err),
                  "fp8_weight"));
    snprintf(scale_name, sizeof scale_name, "%.*sweight_scale_inv", base, name);
    if (!blocks || !safetensors_has(loader->files, scale_name))
        snprintf(scale_name, sizeof scale_name, "%.*sweight_scale", base, name);
    TRY(find_scales(loader, scale_name, (rows + found->row_step - 1) / found->row_step,
                    found->row_scales, &found->scales, &found->scale_rows));
    if (!loader->types.fixed_inputs)
        return STATUS_OK;
    struct tensor_view input;
    uint32_t one;
    snprintf(scale_name, sizeof scale_name, "%.*sinput_scale", base, name);
    TRY(find_scales(loader, scale_name, 1, 1, &input, &one));
    found->input_scale = scale_at(&input, 0);
    return found->input_scale >= WEIGHT_LEAST_INPUT_SCALE
               ? STATUS_OK
               : error_set(
                     loader->err, STATUS_INVALID,
                     "%s: tensor %s: the scale of inputs is 0, or below 2^-90 (fp8_scale_value)",
                     input.path, scale_name);
}

/* Rows of e4m3 on their way to floats. */
struct widening {
    const void *numbers;
    const float *scales;
    enum weight_type from, to;
    uint32_t columns;
    char *floats;
};
#define WIDENED_VALUES (8 * WEIGHT_GROUP) /* at a time */

static void widen_rows(void *context, uint32_t thread, uint32_t first, uint32_t last)
{
    (void)thread;
    const struct widening *job = context;
    float wide[WIDENED_VALUES];
    for (size_t row = first; row < last; row++) {
        const float *scales = job->scales + row * weight_row_scales(job->from, job->columns);
        for (uint32_t at = 0; at < job->columns; at += WIDENED_VALUES) {
            uint32_t left = job->columns - at,
                     count = left < WIDENED_VALUES ? left : WIDENED_VALUES;
            weight_widen(job->from, (const uint8_t *)job->numbers + row * job->columns + at,
                         scales + (job->from == WEIGHT_FP8_BLOCK ? at / WEIGHT_GROUP : 0), 1, count,
                         wide);
            weight_convert(FLOAT_F32, wide, count, job->to,
                           job->floats + weight_row_bytes(job->to, 1) * (row * job->columns + at));
        }
    }
}

/* Loads rows of e4m3, or of floats that they are widened to. */
static enum status put_fp8(struct weight_loader *loader, const struct matrix *matrix,
                           const struct stored_matrix *stored)
{
    enum weight_type type = matrix->target.linear->type;
    struct widening job = {.scales = loader->piece.scales,
                           .from = loader->types.blocks ? WEIGHT_FP8_BLOCK : WEIGHT_FP8,
                           .to = type,
                           .columns = matrix->columns,
                           .floats = loader->piece.floats};
    uint32_t grain = CHUNK_VALUES / matrix->columns;
    for (uint32_t row = 0, count; row < matrix->rows; row += count) {
        count = row_piece_fit(matrix->rows - row, matrix->columns);
        for (uint32_t i = 0; i < count; i++)
            for (uint32_t s = 0; s < stored->row_scales; s++) {
                size_t of = stored->scale_rows == 1 ? 0 : (row + i) / stored->row_step;
                loader->piece.scales[(size_t)i * stored->row_scales + s] =
                    scale_at(&stored->scales, of * stored->row_scales + s);
            }
        int half;
        uint64_t bytes = (uint64_t)count * matrix->columns;
        TRY(bring(loader, matrix->name, &stored->numbers, (uint64_t)row * matrix->columns, bytes,
                  &job.numbers, &half));
        if (weight_type_is_fp8(type)) {
            TRY(put_rows(loader, matrix, row, count, job.numbers, loader->piece.scales, -1));
        } else {
            kernels_host_work(loader->kernels, count, grain ? grain : 1, widen_rows, &job);
            TRY(put_rows(loader, matrix, row, count, loader->piece.floats, NULL, -1));
        }
        if (half < 0)
            release_pages(job.numbers, bytes);
    }
    return STATUS_OK;
}

/* --- matrices by name --- */

static enum status find_stored(struct weight_loader *loader, const char *name,
                               enum weight_type type, uint32_t rows, uint32_t columns,
                               struct stored_matrix *found)
{
    char scale_name[SCALE_NAME_BYTES];
    bool int8 = type == WEIGHT_INT8;
    found->row_scales = weight_row_scales(type, columns);
    snprintf(scale_name, sizeof scale_name, "%s.scale", name);
    TRY(safetensors_find_as(loader->files, name, int8 ? "I8" : "U8", rows,
                            weight_row_bytes(type, columns), &found->numbers, loader->err));
    return safetensors_find_as(loader->files, scale_name, int8 ? "F32" : "BF16", int8 ? 0 : rows,
                               int8 ? rows : found->row_scales, &found->scales, loader->err);
}

static enum status put_stored(struct weight_loader *loader, const struct matrix *matrix,
                              const struct stored_matrix *stored)
{
    size_t row_bytes = weight_row_bytes(matrix->target.linear->type, matrix->columns);
    size_t scale_bytes = stored->row_scales * (size_t)float_type_bytes(stored->scales.type);
    for (uint32_t row = 0, count; row < matrix->rows; row += count) {
        count = row_piece_fit(matrix->rows - row, matrix->columns);
        size_t scales = (size_t)count * stored->row_scales;
        weight_convert(stored->scales.type, stored->scales.bytes + row * scale_bytes, scales,
                       WEIGHT_F32, loader->piece.scales);
        for (size_t i = 0; i < scales; i++)
            if (!(fabsf(loader->piece.scales[i]) <= WEIGHT_MAX_QUANTIZED))
                return error_set(loader->err, STATUS_INVALID,
                                 "%s: tensor %s.scale: the scale of row %zu isn't finite, or is "
                                 "beyond 2^100",
                                 stored->scales.path, matrix->name, row + i / stored->row_scales);
        const void *numbers;
        int half;
        TRY(bring(loader, matrix->name, &stored->numbers, row * row_bytes, count * row_bytes,
                  &numbers, &half));
        TRY(put_rows(loader, matrix, row, count, numbers, loader->piece.scales, -1));
        if (half < 0)
            release_pages(numbers, count * row_bytes);
    }
    return STATUS_OK;
}

enum status weight_loader_matrix(struct weight_loader *loader, const char *name, uint32_t rows,
                                 uint32_t columns, struct weight_target target)
{
    struct tensor_view view;
    struct stored_matrix stored;
    if (loader->filled && !loader->types.fixed_inputs)
        return STATUS_OK;
    struct matrix matrix = {.name = name, .rows = rows, .columns = columns, .target = target};
    if (weight_loader_is_fp8(loader, name)) {
        stored.input_scale = 0;
        TRY(find_fp8(loader, name, rows, columns, &stored));
        if (weight_type_is_fp8(target.linear->type))
            target.linear->input_scale = fmaxf(target.linear->input_scale, stored.input_scale);
        return loader->dry || loader->filled ? STATUS_OK : put_fp8(loader, &matrix, &stored);
    }
    if (loader->filled)
        return STATUS_OK;
    if (loader->types.stored && !loader->types.fp8) {
        TRY(find_stored(loader, name, target.linear->type, rows, columns, &stored));
        return loader->dry ? STATUS_OK : put_stored(loader, &matrix, &stored);
    }
    if (loader->files) {
        TRY(safetensors_find(loader->files, name, rows, columns, &view, loader->err));
        matrix.floats = &view;
    }
    return loader->dry ? STATUS_OK : put_matrix(loader, &matrix);
}

enum status weight_loader_vector(struct weight_loader *loader, const char *name, uint32_t count,
                                 float constant, uint32_t first, struct buffer *buffer)
{
    struct tensor_view view;
    if (loader->files)
        TRY(safetensors_find(loader->files, name, 0, count, &view, loader->err));
    if (loader->dry)
        return STATUS_OK;
    float *values = loader->piece.floats;
    if (loader->files)
        weight_convert(view.type, view.bytes, count, WEIGHT_F32, values);
    for (uint32_t i = 0; !loader->files && i < count; i++)
        values[i] = constant;
    enum status status = kernels_upload(loader->kernels, KERNELS_STEPS, buffer,
                                        first * sizeof *values, values, count * sizeof *values);
    if (status == STATUS_OK)
        status = kernels_sync(loader->kernels);
    return status == STATUS_OK ? STATUS_OK
                               : error_set(loader->err, status, "tensor %s: upload failed", name);
}
