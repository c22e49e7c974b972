#include "common/engine/model/weight_loader.h"

#include "common/base/clock.h"
#include "common/base/rng.h"
#include "common/base/str.h"
#include "common/engine/model/load_progress.h"
#include "common/engine/model/packed_plan.h"
#include "common/engine/model/safetensors.h"
#include "common/engine/model/weight_convert.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define CHUNK_VALUES       65536 /* one thread converts these at a time */
#define STANDARD_DEVIATION 0.02f /* random weights */
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
                               struct safetensors *files, bool stored, bool dry, struct error *err)
{
    struct weight_loader loader = {
        .kernels = kernels, .files = files, .stored = stored, .dry = dry, .err = err};
    if (!dry)
        TRY(row_piece_init(&loader.piece, err));
    if (!dry && !files) {
        loader.drawn = malloc(ROW_PIECE_VALUES * sizeof(uint16_t));
        if (!loader.drawn) {
            weight_loader_deinit(&loader);
            return error_set(err, STATUS_LIMIT, "out of memory for a piece of a tensor");
        }
    }
    *out = loader;
    return STATUS_OK;
}

void weight_loader_deinit(struct weight_loader *loader)
{
    free(loader->drawn);
    row_piece_deinit(&loader->piece);
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

enum status weight_loader_linear(struct weight_loader *loader, enum weight_type type, uint32_t n,
                                 uint32_t k, struct linear *linear)
{
    if (weight_type_is_quantized(type) && k > WEIGHT_MAX_QUANTIZED_K)
        return error_set(loader->err, STATUS_UNSUPPORTED,
                         "a linear layer of %u inputs: at most %d can be quantized", k,
                         WEIGHT_MAX_QUANTIZED_K);
    size_t bytes = kernels_linear_bytes(loader->kernels, type, n, k);
    loader->planned_bytes += bytes;
    *linear = (struct linear){.type = type, .n = n, .k = k};
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

static enum status put_rows(struct weight_loader *loader, const struct matrix *matrix, uint32_t row,
                            uint32_t rows, const void *values, const float *scales)
{
    enum status status = kernels_linear_load(loader->kernels, matrix->target.linear,
                                             matrix->target.first_row + row, rows, values, scales);
    if (status == STATUS_OK)
        status = kernels_sync(loader->kernels); /* the next rows overwrite the piece */
    const struct linear *linear = matrix->target.linear;
    load_progress_add(loader->progress, linear->packed.bytes / linear->n * rows, clock_now_us());
    if (status == STATUS_OK)
        return STATUS_OK;
    return error_set(loader->err, status, "tensor %s: the device did not take it", matrix->name);
}

/* Loads `count` rows of floats as the layer's type. */
static enum status put_floats(struct weight_loader *loader, const struct matrix *matrix,
                              uint32_t row, uint32_t count, enum float_type from,
                              const void *source)
{
    enum weight_type type = matrix->target.linear->type;
    bool quantized = weight_type_is_quantized(type);
    if (!quantized && weight_is_ready(from, source, type))
        return put_rows(loader, matrix, row, count, source, NULL);
    struct row_source rows = {from, source, count, matrix->columns};
    uint32_t bad_row;
    if (row_piece_convert(&loader->piece, loader->kernels, &rows, type, &bad_row) != STATUS_OK)
        return error_set(loader->err, STATUS_INVALID,
                         "%s: tensor %s: row %u has a number that isn't finite, or is beyond "
                         "2^100: it can't be quantized",
                         matrix->floats ? matrix->floats->path : "random", matrix->name,
                         row + bad_row);
    if (!quantized)
        return put_rows(loader, matrix, row, count, loader->piece.floats, NULL);
    return put_rows(loader, matrix, row, count, loader->piece.numbers, loader->piece.scales);
}

/* Fills the next `count` values in bf16: bell-shaped (the sum of four uniforms), mean 0. */
static void draw_weights(struct rng *rng, uint16_t *values, size_t count)
{
    /* Four uniforms of 16 bits: mean 2 * 65535, standard deviation 65536 * sqrt(4 / 12). */
    const float scale = STANDARD_DEVIATION / (65536.0f * 0.57735027f);
    for (size_t i = 0; i < count; i++) {
        uint64_t draw = rng_next(rng);
        int32_t sum = (int32_t)((draw & 0xffff) + (draw >> 16 & 0xffff) + (draw >> 32 & 0xffff) +
                                (draw >> 48));
        float value = (float)(sum - 2 * 65535) * scale;
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        values[i] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
}

/* Pages that were read leave this process's memory, not the machine's cache. */
static void release_pages(const void *bytes, size_t count)
{
    const uintptr_t page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t first = (uintptr_t)bytes / page_bytes * page_bytes;
    (void)madvise((void *)first, (uintptr_t)bytes + count - first, MADV_DONTNEED);
}

/* Loads a matrix row by row, through the piece. */
static enum status put_matrix(struct weight_loader *loader, const struct matrix *matrix)
{
    const struct tensor_view *view = matrix->floats;
    enum float_type type = view ? view->type : FLOAT_BF16;
    /* Random values depend on the name alone: a tied lm_head gets the embedding's. */
    struct rng rng = rng_seeded(hash_bytes(matrix->name, strlen(matrix->name), HASH_SEED));
    for (uint32_t row = 0, count; row < matrix->rows; row += count) {
        count = row_piece_fit(matrix->rows - row, matrix->columns);
        const void *source = loader->drawn;
        size_t values = (size_t)count * matrix->columns;
        if (view)
            source = view->bytes + (size_t)row * matrix->columns * float_type_bytes(type);
        else
            draw_weights(&rng, loader->drawn, values);
        TRY(put_floats(loader, matrix, row, count, type, source));
        if (view)
            release_pages(source, values * float_type_bytes(type));
    }
    return STATUS_OK;
}

/* Numbers and scales as they are in the files. */
struct stored_matrix {
    struct tensor_view numbers, scales;
    uint32_t row_scales;
};

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
        const unsigned char *numbers = stored->numbers.bytes + row * row_bytes;
        TRY(put_rows(loader, matrix, row, count, numbers, loader->piece.scales));
        release_pages(numbers, count * row_bytes);
    }
    return STATUS_OK;
}

enum status weight_loader_matrix(struct weight_loader *loader, const char *name, uint32_t rows,
                                 uint32_t columns, struct weight_target target)
{
    struct tensor_view view;
    struct stored_matrix stored;
    if (loader->filled)
        return STATUS_OK;
    struct matrix matrix = {.name = name, .rows = rows, .columns = columns, .target = target};
    if (loader->stored) {
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
