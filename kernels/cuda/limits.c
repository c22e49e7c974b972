/* The limits of a device, for benchmarks and for the rows that fill a step: times of its events. */
#include "common/base/rng.h"
#include "common/base/u32.h"
#include "kernels/cuda/cuda.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define MEMORY_PART   512  /* a measurement takes at most this part of the device's memory */
#define PEAK_SIDE     4096 /* N and K of the layer, at most; half as many rows go through it */
#define PEAK_STEP     64
#define PEAK_LEAST_US 2000 /* shorter runs are repeated: clocks rise under load */
#define PEAK_MOST     64   /* repetitions */
#define BLOCK_ROWS    64   /* rows that are drawn; the layer repeats them */

/* --- arithmetic --- */

struct peak {
    struct linear linear;  /* [side, side] */
    struct buffer in, out; /* f32 [rows, side] */
    uint32_t rows;
};

/* Products of zeros take less power than those of a model: all numbers are drawn. The bytes of
 * weights are finite numbers in every type: bf16 in (1/2, 2). */
static enum status fill(struct kernels *kernels, struct peak *peak)
{
    const uint32_t side = peak->linear.k;
    const size_t row_bytes = weight_row_bytes(peak->linear.type, side);
    const size_t scale_count = (size_t)BLOCK_ROWS * weight_row_scales(peak->linear.type, side);
    struct rng rng = rng_seeded(1);
    uint8_t *weights = malloc(BLOCK_ROWS * row_bytes);
    float *scales = malloc((scale_count + 1) * sizeof *scales);
    float *inputs = malloc((size_t)BLOCK_ROWS * side * sizeof *inputs);
    enum status status = weights && scales && inputs ? STATUS_OK : STATUS_LIMIT;
    for (size_t i = 0; status == STATUS_OK && i < BLOCK_ROWS * row_bytes; i++)
        weights[i] = (uint8_t)((rng_next(&rng) & (i % 2 ? 0x80 : 0xf7)) | (i % 2 ? 0x3f : 0));
    for (size_t i = 0; status == STATUS_OK && i < scale_count; i++)
        scales[i] = 0x1p-7f;
    for (size_t i = 0; status == STATUS_OK && i < (size_t)BLOCK_ROWS * side; i++)
        inputs[i] = (float)(2 * rng_unit(&rng) - 1);
    for (uint32_t row = 0; status == STATUS_OK && row < side; row += BLOCK_ROWS)
        status = kernels_linear_load(kernels, &peak->linear, row, BLOCK_ROWS, weights,
                                     scale_count ? scales : NULL);
    for (uint32_t row = 0; status == STATUS_OK && row < peak->rows; row += BLOCK_ROWS) {
        uint32_t rows = min_u32(BLOCK_ROWS, peak->rows - row);
        status = kernels_upload(kernels, KERNELS_STEPS, &peak->in, row * side * sizeof *inputs,
                                inputs, rows * side * sizeof *inputs);
    }
    if (status == STATUS_OK)
        status = kernels_sync(kernels);
    free(weights);
    free(scales);
    free(inputs);
    return status;
}

/* Gives the device's time for the layer, `runs` times. */
static enum status time_layer(struct kernels *kernels, struct peak *peak, uint32_t runs,
                              uint64_t *us)
{
    kernels_event begin = 0, end = 0;
    TRY(kernels_record(kernels, KERNELS_STEPS, &begin));
    for (uint32_t i = 0; i < runs; i++)
        TRY(kernels_linear(kernels, &peak->linear, &peak->in, peak->rows, false, &peak->out));
    TRY(kernels_record(kernels, KERNELS_STEPS, &end));
    TRY(kernels_wait(kernels, KERNELS_STEPS, end));
    *us = kernels_event_us(kernels, KERNELS_STEPS, begin, end);
    return STATUS_OK;
}

double cuda_measure_peak(struct kernels *kernels, enum weight_type type, const char **instruction)
{
    struct cuda *self = kernels->state;
    /* The largest side that fits: weights of 2 bytes, inputs and results of 4 for half as many
     * rows. */
    const double most = sqrt((double)(cuda_whole_bytes(kernels) / MEMORY_PART) / 6);
    const uint32_t side = most < PEAK_SIDE ? (uint32_t)most / PEAK_STEP * PEAK_STEP : PEAK_SIDE;
    struct peak peak = {.rows = side / 2};
    const size_t activation = (size_t)peak.rows * side * sizeof(float);
    uint64_t us = 0;
    uint32_t runs = 1;
    *instruction = "";
    enum status status =
        side ? kernels_linear_create(kernels, type, side, side, &peak.linear) : STATUS_UNSUPPORTED;
    if (status == STATUS_OK)
        status = kernels_alloc(kernels, activation, &peak.in);
    if (status == STATUS_OK)
        status = kernels_alloc(kernels, activation, &peak.out);
    if (status == STATUS_OK)
        status = fill(kernels, &peak);
    for (; status == STATUS_OK; runs *= 2) {
        status = time_layer(kernels, &peak, runs, &us);
        if (us >= PEAK_LEAST_US || runs >= PEAK_MOST)
            break;
    }
    kernels_free(kernels, &peak.in);
    kernels_free(kernels, &peak.out);
    kernels_linear_destroy(kernels, &peak.linear);
    if (status != STATUS_OK || !us)
        return 0;
    snprintf(self->measured, sizeof self->measured, "%u rows by a layer of %u x %u", peak.rows,
             side, side);
    *instruction = self->measured;
    return 2e-3 * peak.rows * side * side * runs / (double)us;
}

/* --- memory --- */

/* A target in the device's cache would make the copy too fast: it has memory of its own, if some is
 * free. */
uint64_t cuda_measure_read(struct kernels *kernels, const struct buffer *memory)
{
    struct cuda *self = kernels->state;
    const size_t half = memory->bytes / 2, most = cuda_whole_bytes(kernels) / MEMORY_PART;
    struct buffer own = {0}, target = self->staging;
    kernels_event begin = 0, end = 0;
    if (!half)
        return 0;
    if (kernels_alloc(kernels, half < most ? half : most, &own) == STATUS_OK && own.bytes)
        target = own;
    enum status status = kernels_copy(kernels, KERNELS_STEPS, memory, 0, &target, 0,
                                      half < target.bytes ? half : target.bytes);
    if (status == STATUS_OK) /* the first copy has loaded what the driver loads */
        status = kernels_record(kernels, KERNELS_STEPS, &begin);
    if (status == STATUS_OK)
        for (size_t at = 0; status == STATUS_OK && at < half; at += target.bytes) {
            size_t left = half - at, bytes = left < target.bytes ? left : target.bytes;
            status = kernels_copy(kernels, KERNELS_STEPS, memory, at, &target, 0, bytes);
        }
    if (status == STATUS_OK)
        status = kernels_record(kernels, KERNELS_STEPS, &end);
    if (status == STATUS_OK)
        status = kernels_wait(kernels, KERNELS_STEPS, end);
    uint64_t us = status == STATUS_OK ? kernels_event_us(kernels, KERNELS_STEPS, begin, end) : 0;
    kernels_free(kernels, &own);
    return status != STATUS_OK ? 0 : us ? 1000 * us : 1;
}
