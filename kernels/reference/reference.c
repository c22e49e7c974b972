/* The portable fp32 backend: fp32 weights, activations and KV. Written to be read and to be
 * trusted; loops have fixed lanes so that a compiler may vectorise them without changing a bit. */
#include "kernels/reference/reference.h"

#include "common/base/assert.h"
#include "common/base/u32.h"
#include "kernels/cpu/host_memory.h"
#include "kernels/cpu/limits.h"
#include "kernels/reference/inner/rows.h"

#include <stdlib.h>
#include <string.h>

static enum status reference_open(struct kernels *kernels, const struct kernels_config *config,
                                  struct error *err)
{
    struct reference *self = calloc(1, sizeof *self);
    if (!self)
        return error_set(err, STATUS_LIMIT, "no memory for the fp32 backend");
    enum status status =
        pool_create(config->threads, config->cpus, config->may_spin, &self->pool, err);
    if (status != STATUS_OK)
        goto fail_pool;
    self->scratch = host_memory_take(sizeof *self->scratch * config->threads);
    if (!self->scratch) {
        status =
            error_set(err, STATUS_LIMIT, "no memory for the fp32 backend's scratch (%u threads)",
                      config->threads);
        goto fail_scratch;
    }
    kernels->state = self;
    return STATUS_OK;
fail_scratch:
    pool_destroy(self->pool);
fail_pool:
    free(self);
    return status;
}

static void reference_close(struct kernels *kernels)
{
    struct reference *self = kernels->state;
    pool_destroy(self->pool);
    free(self->scratch);
    free(self);
}

static enum status reference_sync(struct kernels *kernels)
{
    struct reference *self = kernels->state;
    pool_rest(self->pool);
    return STATUS_OK;
}

static enum status reference_download(struct kernels *kernels, const struct buffer *source,
                                      size_t offset, void *host, size_t bytes)
{
    memcpy(host, (const char *)source->address + offset, bytes);
    return reference_sync(kernels);
}

static void reference_work(struct kernels *kernels, uint32_t count, uint32_t grain,
                           kernels_work *work, void *context)
{
    struct reference *self = kernels->state;
    pool_run(self->pool, count, grain, work, context);
    pool_rest(self->pool);
}

static const char *reference_isa(const struct kernels *kernels)
{
    (void)kernels;
    return isa_names[ISA_PORTABLE];
}

/* Panels go past all rows of a call, however many; so this is for callers' memory alone. */
static uint32_t reference_pass_rows(const struct kernels *kernels)
{
    (void)kernels;
    return 256;
}

/* --- linear: panels of PANEL outputs, [k][PANEL] fp32 --- */

static size_t reference_linear_bytes(enum weight_type type, uint32_t n, uint32_t k)
{
    if (weight_type_is_quantized(type))
        return reference_quantized_bytes(type, n, k);
    size_t panels = ((size_t)n + REFERENCE_PANEL - 1) / REFERENCE_PANEL;
    return panels * REFERENCE_PANEL * k * sizeof(float);
}

struct load {
    struct linear *linear;
    uint32_t first_row;
    const float *rows;
};

static void load_rows(void *context, uint32_t thread, uint32_t first, uint32_t last)
{
    (void)thread;
    const struct load *load = context;
    size_t k = load->linear->k;
    for (uint32_t i = first; i < last; i++) {
        uint32_t n = load->first_row + i;
        float *panel = (float *)load->linear->packed.address +
                       n / REFERENCE_PANEL * (k * REFERENCE_PANEL) + n % REFERENCE_PANEL;
        for (size_t j = 0; j < k; j++)
            panel[j * REFERENCE_PANEL] = load->rows[i * k + j];
    }
}

static enum status reference_linear_load(struct kernels *kernels, struct linear *linear,
                                         uint32_t first_row, uint32_t row_count, const void *rows,
                                         const float *scales)
{
    if (weight_type_is_quantized(linear->type)) {
        reference_quantized_load(linear, first_row, row_count, rows, scales);
        return STATUS_OK;
    }
    struct reference *self = kernels->state;
    struct load load = {linear, first_row, rows};
    pool_run(self->pool, row_count, 2 * REFERENCE_PANEL, load_rows, &load);
    return STATUS_OK;
}

struct linear_job {
    const struct linear *linear;
    const float *in;
    float *out;
    uint32_t rows;
    bool accumulate;
};

static void linear_panels(void *context, uint32_t thread, uint32_t first, uint32_t last)
{
    (void)thread;
    const struct linear_job *job = context;
    const struct linear *linear = job->linear;
    for (uint32_t p = first; p < last; p++) {
        struct reference_panel panel = {.weights = (const float *)linear->packed.address +
                                                   (size_t)p * linear->k * REFERENCE_PANEL,
                                        .k = linear->k,
                                        .out_stride = linear->n,
                                        .outputs = linear->n - p * REFERENCE_PANEL < REFERENCE_PANEL
                                                       ? linear->n - p * REFERENCE_PANEL
                                                       : REFERENCE_PANEL,
                                        .accumulate = job->accumulate};
        reference_panel_multiply(&panel, job->in, job->rows, job->out + p * REFERENCE_PANEL);
    }
}

static enum status reference_linear(struct kernels *kernels, const struct linear *linear,
                                    const struct buffer *in, uint32_t rows, bool accumulate,
                                    struct buffer *out)
{
    struct reference *self = kernels->state;
    if (weight_type_is_quantized(linear->type)) {
        reference_quantized(self, linear, in->address, rows, accumulate, out->address);
        return STATUS_OK;
    }
    struct linear_job job = {.linear = linear,
                             .in = in->address,
                             .out = out->address,
                             .rows = rows,
                             .accumulate = accumulate};
    uint32_t panels = divide_up(linear->n, REFERENCE_PANEL);
    pool_run(self->pool, panels, 4, linear_panels, &job);
    return STATUS_OK;
}

/* --- row by row --- */

static void embed_row(const struct linear *embedding, uint32_t n, float *out)
{
    if (weight_type_is_quantized(embedding->type)) {
        reference_quantized_row(embedding, n, out);
        return;
    }
    const float *panel = (const float *)embedding->packed.address +
                         n / REFERENCE_PANEL * ((size_t)embedding->k * REFERENCE_PANEL);
    for (size_t k = 0; k < embedding->k; k++)
        out[k] = panel[k * REFERENCE_PANEL + n % REFERENCE_PANEL];
}

static enum status reference_embed(struct kernels *kernels, const struct step_batch *batch,
                                   const struct linear *embedding, struct buffer *x)
{
    (void)kernels;
    const uint32_t *tokens = batch->tokens.address;
    float *out = x->address;
    for (size_t t = 0; t < batch->rows; t++)
        embed_row(embedding, tokens[t], out + t * embedding->k);
    return STATUS_OK;
}

struct rmsnorm_job {
    const float *x, *weight;
    const uint32_t *rows;
    float *out;
    double eps;
    size_t hidden;
};

static void rmsnorm_rows(void *context, uint32_t thread, uint32_t first, uint32_t last)
{
    (void)thread;
    const struct rmsnorm_job *job = context;
    for (size_t i = first; i < last; i++) {
        size_t source = job->rows ? job->rows[i] : i;
        reference_rmsnorm(job->x + source * job->hidden, job->weight, job->eps,
                          (uint32_t)job->hidden, job->out + i * job->hidden);
    }
}

static enum status reference_rmsnorm_op(struct kernels *kernels, const struct buffer *x,
                                        const struct buffer *weight, double eps,
                                        const struct buffer *rows, uint32_t row_count,
                                        uint32_t hidden, struct buffer *out)
{
    struct reference *self = kernels->state;
    struct rmsnorm_job job = {.x = x->address,
                              .weight = weight->address,
                              .rows = rows ? rows->address : NULL,
                              .out = out->address,
                              .eps = eps,
                              .hidden = hidden};
    pool_run(self->pool, row_count, 16, rmsnorm_rows, &job);
    return STATUS_OK;
}

struct swiglu_job {
    const float *gate_up;
    float *out;
    size_t ffn;
};

static void swiglu_rows(void *context, uint32_t thread, uint32_t first, uint32_t last)
{
    (void)thread;
    const struct swiglu_job *job = context;
    for (size_t t = first; t < last; t++)
        reference_swiglu(job->gate_up + t * 2 * job->ffn, (uint32_t)job->ffn,
                         job->out + t * job->ffn);
}

static enum status reference_swiglu_op(struct kernels *kernels, const struct buffer *gate_up,
                                       uint32_t rows, uint32_t ffn, struct buffer *out)
{
    struct reference *self = kernels->state;
    struct swiglu_job job = {.gate_up = gate_up->address, .out = out->address, .ffn = ffn};
    pool_run(self->pool, rows, 16, swiglu_rows, &job);
    return STATUS_OK;
}

static double reference_measure_peak(struct kernels *kernels, enum weight_type type,
                                     const char **instruction)
{
    struct reference *self = kernels->state;
    return limits_peak(self->pool, kernels->threads,
                       weight_type_is_quantized(type) ? limits_quantized(NULL, type == WEIGHT_INT4)
                                                      : limits_linear(NULL),
                       instruction);
}

static uint64_t reference_measure_read(struct kernels *kernels, const struct buffer *memory)
{
    struct reference *self = kernels->state;
    return limits_read(self->pool, kernels->threads, &self->read_way, memory->address,
                       memory->bytes);
}

const struct kernels_backend kernels_reference = {
    .name = "f32",
    .packing = REFERENCE_PACKING,
    .weight_type = WEIGHT_F32,
    .kv_type = KV_F32,
    .device_is_host = true,
    .open = reference_open,
    .close = reference_close,
    .isa = reference_isa,
    .pass_rows = reference_pass_rows,
    .available_bytes = host_memory_available,
    .alloc = host_memory_alloc,
    .free = host_memory_free,
    .adopt = host_memory_adopt,
    .linear_bytes = reference_linear_bytes,
    .linear_load = reference_linear_load,
    .work = reference_work,
    .upload = host_memory_upload,
    .copy = host_memory_copy,
    .download = reference_download,
    .sync = reference_sync,
    .embed = reference_embed,
    .rmsnorm = reference_rmsnorm_op,
    .linear = reference_linear,
    .rope_append = reference_rope_append,
    .attention = reference_attention,
    .swiglu = reference_swiglu_op,
    .measure_peak = reference_measure_peak,
    .measure_read = reference_measure_read,
};
