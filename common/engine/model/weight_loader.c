#include "common/engine/model/weight_loader.h"

#include "common/engine/model/random_weights.h"
#include "common/engine/model/safetensors.h"
#include "common/engine/model/weight_convert.h"

#include <stdlib.h>

/* Converted, or drawn, at a time; far longer than a row of any model that config.json may describe. */
#define PIECE_VALUES ((size_t)4 << 20)

enum status weight_loader_init(struct weight_loader *out, struct kernels *kernels,
                               struct safetensors *files, bool dry, struct error *err)
{
    struct weight_loader loader = {.kernels = kernels, .files = files, .dry = dry, .err = err};
    if (!dry) {
        loader.drawn = files ? NULL : malloc(PIECE_VALUES * sizeof(uint16_t));
        loader.converted = malloc(PIECE_VALUES * sizeof(float));
        if (!loader.converted || (!files && !loader.drawn)) {
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
    free(loader->converted);
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

enum status weight_loader_linear(struct weight_loader *loader, uint32_t n, uint32_t k,
                                 struct linear *linear)
{
    enum weight_type type = kernels_info(loader->kernels).weight_type;
    loader->planned_bytes += kernels_linear_bytes(loader->kernels, type, n, k);
    if (loader->dry)
        return STATUS_OK;
    enum status status = kernels_linear_create(loader->kernels, type, n, k, linear);
    return status == STATUS_OK
               ? STATUS_OK
               : error_set(loader->err, status,
                           "no device memory for a linear layer of %u x %u weights", n, k);
}

static enum status put_rows(struct weight_loader *loader, const struct weight_target *target,
                            uint32_t row, uint32_t rows, const void *values)
{
    return kernels_linear_load(loader->kernels, target->linear, target->first_row + row, rows,
                               values, NULL);
}

/* Row by row through the pieces; `view` NULL: random. */
static enum status put_pieces(struct weight_loader *loader, const char *name,
                              const struct tensor_view *view, uint32_t rows, uint32_t columns,
                              const struct weight_target *target)
{
    enum weight_type wanted = kernels_info(loader->kernels).weight_type;
    enum float_type type = view ? view->type : FLOAT_BF16;
    struct random_weights random = random_weights_of(name);
    uint32_t piece_rows = (uint32_t)(PIECE_VALUES / columns);
    for (uint32_t row = 0, count; row < rows; row += count) {
        count = rows - row < piece_rows ? rows - row : piece_rows;
        size_t values = (size_t)count * columns;
        const void *source = loader->drawn;
        if (view)
            source = view->bytes + (size_t)row * columns * float_type_bytes(type);
        else
            random_weights_take(&random, loader->drawn, values);
        if (!weight_is_ready(type, source, wanted)) {
            weight_convert(type, source, values, wanted, loader->converted);
            source = loader->converted;
        }
        TRY(put_rows(loader, target, row, count, source));
        TRY(kernels_sync(loader->kernels)); /* the piece is written again */
    }
    return STATUS_OK;
}

enum status weight_loader_matrix(struct weight_loader *loader, const char *name, uint32_t rows,
                                 uint32_t columns, struct weight_target target)
{
    struct tensor_view view;
    const struct tensor_view *found = loader->files ? &view : NULL;
    if (found)
        TRY(safetensors_find(loader->files, name, rows, columns, &view, loader->err));
    if (loader->dry)
        return STATUS_OK;
    enum weight_type wanted = kernels_info(loader->kernels).weight_type;
    enum status status = found && weight_is_ready(view.type, view.bytes, wanted)
                             ? put_rows(loader, &target, 0, rows, view.bytes)
                             : put_pieces(loader, name, found, rows, columns, &target);
    return status == STATUS_OK
               ? STATUS_OK
               : error_set(loader->err, status, "tensor %s: the device did not take it", name);
}

enum status weight_loader_vector(struct weight_loader *loader, const char *name, uint32_t count,
                                 float constant, uint32_t first, struct buffer *buffer)
{
    struct tensor_view view;
    if (loader->files)
        TRY(safetensors_find(loader->files, name, 0, count, &view, loader->err));
    if (loader->dry)
        return STATUS_OK;
    float *values = loader->converted;
    if (loader->files)
        weight_convert(view.type, view.bytes, count, WEIGHT_F32, values);
    for (uint32_t i = 0; !loader->files && i < count; i++)
        values[i] = constant;
    enum status status = kernels_upload(loader->kernels, buffer, first * sizeof *values, values,
                                        count * sizeof *values);
    if (status == STATUS_OK)
        status = kernels_sync(loader->kernels);
    return status == STATUS_OK ? STATUS_OK
                               : error_set(loader->err, status, "tensor %s: upload failed", name);
}
