#include "common/engine/model/row_conversion.h"

#include "common/engine/model/weight_convert.h"

#include <stdatomic.h>
#include <stdlib.h>

#define CHUNK_VALUES 65536 /* that one thread converts at a time */

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

struct conversion {
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
