/* The bf16 backend: opening, and the operations that go row by row (embed, rmsnorm, swiglu,
 * rope_append). */
#include "kernels/cpu/cpu.h"

#include "common/base/u32.h"
#include "kernels/cpu/host_memory.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/kv_view.h"
#include "kernels/cpu/sample.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The instruction sets with equal bits, best first. */
static const struct portable {
    const struct inner *inner;
    enum isa isa;
    bool (*reported)(void);
} portables[] = {
#if defined(__x86_64__)
    {&inner_avx512, ISA_AVX512, isa_reports_avx512},
    {&inner_avx2, ISA_AVX2, isa_reports_avx2},
#endif
    {&inner_baseline, ISA_PORTABLE, NULL},
};

static bool is_amx(const struct inner *inner)
{
#if defined(__x86_64__)
    return inner == &inner_amx;
#endif
    (void)inner;
    return false;
}

static enum status open_with(struct kernels *kernels, const struct kernels_config *config,
                             const struct inner *inner, struct error *err)
{
    struct cpu *self = calloc(1, sizeof *self);
    if (!self)
        return error_set(err, STATUS_LIMIT, "no memory for the bf16 backend");
    self->inner = inner;
    self->quantized = quantized_inner_for(inner);
    self->threads = config->threads;
    self->has_near_room = sysconf(_SC_LEVEL1_DCACHE_SIZE) > 32 << 10;
    enum status status =
        pool_create(config->threads, config->cpus, config->may_spin, &self->pool, err);
    if (status != STATUS_OK)
        goto fail_pool;
    self->tiles = host_memory_take(LINEAR_TILES_BYTES);
    self->linear = host_memory_take(sizeof *self->linear * config->threads);
    self->attention = host_memory_take(sizeof *self->attention * config->threads);
    bool amx = is_amx(inner);
    if (amx)
        self->amx = linear_amx_new(config->threads);
    if (!self->tiles || !self->linear || !self->attention || (amx && !self->amx)) {
        status = error_set(err, STATUS_LIMIT, "no memory for the scratch of %u compute threads",
                           config->threads);
        goto fail_scratch;
    }
    kernels->state = self;
    return STATUS_OK;
fail_scratch:
    linear_amx_free(self->amx);
    free(self->tiles);
    free(self->linear);
    free(self->attention);
    pool_destroy(self->pool);
fail_pool:
    free(self);
    return status;
}

static enum status refuse(const char *lack, struct error *err)
{
    char others[80];
    isa_choices_here(others, sizeof others);
    return error_set(err, STATUS_UNSUPPORTED, "%s: use isa %s", lack, others);
}

static enum status open_portable(struct kernels *kernels, const struct kernels_config *config,
                                 struct error *err)
{
    for (size_t i = 0; i < sizeof portables / sizeof *portables; i++) {
        const struct portable *one = &portables[i];
        bool asked = config->isa == ISA_AUTO || config->isa == one->isa;
        if (asked && (!one->reported || one->reported()))
            return open_with(kernels, config, one->inner, err);
    }
    return refuse(config->isa == ISA_AVX2 ? "this CPU has no AVX2 with FMA"
                                          : "this CPU has no AVX-512 (F, BW, VL, DQ)",
                  err);
}

static enum status open_avx512bf16(struct kernels *kernels, const struct kernels_config *config,
                                   struct error *err)
{
#if defined(__x86_64__)
    if (isa_reports_avx512bf16() || isa_executes_avx512bf16())
        return open_with(kernels, config, &inner_avx512bf16, err);
#endif
    return refuse("this CPU has no AVX512-BF16 (vdpbf16ps)", err);
}

static enum status open_amx(struct kernels *kernels, const struct kernels_config *config,
                            struct error *err)
{
#if defined(__x86_64__)
    if (isa_allows_amx())
        return open_with(kernels, config, &inner_amx, err);
#endif
    return refuse("this CPU or its kernel has no AMX (tdpbf16ps)", err);
}

static void cpu_close(struct kernels *kernels)
{
    struct cpu *self = kernels->state;
    pool_destroy(self->pool);
    linear_amx_free(self->amx);
    free(self->tiles);
    free(self->linear);
    free(self->attention);
    free(self);
}

static const char *cpu_isa(const struct kernels *kernels)
{
    const struct cpu *self = kernels->state;
    return self->inner->name;
}

/* Serves both kinds of layers; linear_amx.c takes as many rows as quantized layers by AMX. */
static uint32_t cpu_pass_rows(const struct kernels *kernels)
{
    const struct cpu *self = kernels->state;
    return max_u32(LINEAR_ROWS, self->quantized->pass_rows);
}

static enum status cpu_sync(struct kernels *kernels)
{
    struct cpu *self = kernels->state;
    pool_rest(self->pool);
    return STATUS_OK;
}

static void cpu_work(struct kernels *kernels, uint32_t count, uint32_t grain, kernels_work *work,
                     void *context)
{
    struct cpu *self = kernels->state;
    pool_run(self->pool, count, grain, work, context);
    pool_rest(self->pool);
}

/* --- row by row: an item is a row --- */

struct row_job {
    const struct inner *inner;
    const void *in, *weight;
    const uint32_t *rows; /* rmsnorm: row i reads row rows[i] of `in`; NULL: row i */
    float *out;
    double eps;
    size_t width;
};

#define ROW_GRAIN 8

struct embed_job {
    const struct linear *embedding;
    const uint32_t *tokens;
    float *x;
};

static void embed_rows(void *context, uint32_t thread, uint32_t first, uint32_t last)
{
    (void)thread;
    const struct embed_job *job = context;
    for (uint32_t t = first; t < last; t++)
        cpu_linear_row(job->embedding, job->tokens[t], job->x + (size_t)t * job->embedding->k);
}

static enum status cpu_embed(struct kernels *kernels, const struct step_batch *batch,
                             const struct linear *embedding, struct buffer *x)
{
    struct cpu *self = kernels->state;
    struct embed_job job = {embedding, batch->tokens.address, x->address};
    pool_run(self->pool, batch->rows, ROW_GRAIN, embed_rows, &job);
    return STATUS_OK;
}

static void rmsnorm_rows(void *context, uint32_t thread, uint32_t first, uint32_t last)
{
    (void)thread;
    const struct row_job *job = context;
    for (uint32_t t = first; t < last; t++) {
        size_t source = job->rows ? job->rows[t] : t;
        job->inner->rmsnorm((const float *)job->in + source * job->width, job->weight, job->eps,
                            (uint32_t)job->width, job->out + t * job->width);
    }
}

static enum status cpu_rmsnorm(struct kernels *kernels, const struct buffer *x,
                               const struct buffer *weight, double eps, const struct buffer *rows,
                               uint32_t row_count, uint32_t hidden, struct buffer *out)
{
    struct cpu *self = kernels->state;
    struct row_job job = {.inner = self->inner,
                          .in = x->address,
                          .weight = weight->address,
                          .rows = rows ? rows->address : NULL,
                          .out = out->address,
                          .eps = eps,
                          .width = hidden};
    pool_run(self->pool, row_count, ROW_GRAIN, rmsnorm_rows, &job);
    return STATUS_OK;
}

static void swiglu_rows(void *context, uint32_t thread, uint32_t first, uint32_t last)
{
    (void)thread;
    const struct row_job *job = context;
    for (uint32_t t = first; t < last; t++) {
        const float *gate = (const float *)job->in + t * 2 * job->width;
        job->inner->swiglu(gate, gate + job->width, (uint32_t)job->width,
                           job->out + t * job->width);
    }
}

static enum status cpu_swiglu(struct kernels *kernels, const struct buffer *gate_up, uint32_t rows,
                              uint32_t ffn, struct buffer *out)
{
    struct cpu *self = kernels->state;
    struct row_job job = {
        .inner = self->inner, .in = gate_up->address, .out = out->address, .width = ffn};
    pool_run(self->pool, rows, ROW_GRAIN, swiglu_rows, &job);
    return STATUS_OK;
}

/* --- bias, norm of heads, rotation, and append to the pool: an item is a row --- */

struct append_job {
    const struct cpu *cpu;
    const struct step_batch *batch;
    const struct attention_shape *shape;
    struct kv_view kv;
    const struct head_parameters *parameters;
    float *qkv;
};

/* Normalises the queries and keys of one row in place. */
static void normalise_heads(const struct append_job *job, float *row)
{
    const struct head_parameters *p = job->parameters;
    const struct attention_shape *shape = job->shape;
    float normed[KERNELS_MAX_HEAD_DIM];
    for (uint32_t h = 0; h < shape->heads + shape->kv_heads; h++) {
        float *head = row + (size_t)h * shape->head_dim;
        const float *weight = h < shape->heads ? p->q_norm.address : p->k_norm.address;
        job->cpu->inner->rmsnorm(head, weight, p->norm_eps, shape->head_dim, normed);
        memcpy(head, normed, shape->head_dim * sizeof *head);
    }
}

/* Appends one head of a token to the pool. */
static void append(const struct append_job *job, uint32_t row, bool value, uint32_t head,
                   const float *numbers)
{
    uint32_t position = ((const uint32_t *)job->batch->positions.address)[row];
    uint32_t sequence = ((const uint32_t *)job->batch->row_sequence.address)[row];
    void *target = kv_view_at(&job->kv, sequence, position, value, head);
    if (job->kv.type == KV_INT8)
        *kv_view_scale_at(&job->kv, sequence, position, value, head) =
            job->cpu->inner->quantize(numbers, job->shape->head_dim, target);
    else
        job->cpu->inner->round(numbers, job->shape->head_dim, target);
}

static void append_rows(void *context, uint32_t thread, uint32_t first, uint32_t last)
{
    (void)thread;
    const struct append_job *job = context;
    const struct attention_shape *shape = job->shape;
    const struct inner *inner = job->cpu->inner;
    const uint32_t *positions = job->batch->positions.address;
    uint32_t dim = shape->head_dim;
    for (uint32_t t = first; t < last; t++) {
        float *row = job->qkv + t * qkv_width(shape);
        const float *rope =
            (const float *)job->parameters->rope.address + (size_t)positions[t] * dim;
        if (job->parameters->bias.address)
            inner->blend(row, 1, job->parameters->bias.address, 1, (uint32_t)qkv_width(shape));
        if (job->parameters->q_norm.address)
            normalise_heads(job, row);
        for (uint32_t h = 0; h < shape->heads + shape->kv_heads; h++)
            inner->rope(rope, dim, row + (size_t)h * dim);
        const float *key = row + (size_t)shape->heads * dim;
        const float *value = key + (size_t)shape->kv_heads * dim;
        for (uint32_t g = 0; g < shape->kv_heads; g++) {
            append(job, t, false, g, key + (size_t)g * dim);
            append(job, t, true, g, value + (size_t)g * dim);
        }
    }
}

static enum status cpu_rope_append(struct kernels *kernels, const struct step_batch *batch,
                                   const struct attention_shape *shape,
                                   const struct head_parameters *parameters,
                                   const struct kv_layout *layout, uint32_t layer,
                                   struct buffer *qkv, struct buffer *pool)
{
    struct cpu *self = kernels->state;
    struct append_job job = {.cpu = self,
                             .batch = batch,
                             .shape = shape,
                             .kv = kv_view_make(batch, layout, layer, pool),
                             .parameters = parameters,
                             .qkv = qkv->address};
    pool_run(self->pool, batch->rows, ROW_GRAIN, append_rows, &job);
    return STATUS_OK;
}

static enum status cpu_lacks(const struct kernels *kernels, enum weight_type type,
                             uint32_t head_dim, struct error *err)
{
    (void)kernels;
    (void)head_dim;
    return !weight_type_is_fp8(type)
               ? STATUS_OK
               : error_set(err, STATUS_UNSUPPORTED,
                           "device cpu: fp8 weights are computed by compute f32 and by GPUs: take "
                           "weights auto or bf16, which widens them (cpu_no_fp8)");
}

static double cpu_measure_peak(struct kernels *kernels, enum weight_type type,
                               const char **instruction)
{
    struct cpu *self = kernels->state;
    return limits_peak(self->pool, self->threads,
                       weight_type_is_quantized(type)
                           ? limits_quantized(self->quantized, type == WEIGHT_INT4)
                           : limits_linear(self->inner),
                       instruction);
}

static uint64_t cpu_measure_read(struct kernels *kernels, const struct buffer *memory)
{
    struct cpu *self = kernels->state;
    return limits_read(self->pool, self->threads, &self->read_way, memory->address, memory->bytes);
}

#define CPU_BACKEND(NAME, QUANTIZED, OPEN)                                                         \
    {                                                                                              \
        .name = NAME, .quantized_name = QUANTIZED, .packing = CPU_PACKING,                         \
        .weight_type = WEIGHT_BF16, .kv_type = KV_BF16, .device_is_host = true, .open = OPEN,      \
        .close = cpu_close, .isa = cpu_isa, .pass_rows = cpu_pass_rows,                            \
        .available_bytes = host_memory_available, .whole_bytes = host_memory_whole,                \
        .lacks = cpu_lacks, .alloc = host_memory_alloc, .free = host_memory_free,                  \
        .host_alloc = host_memory_give, .host_free = host_memory_end, .adopt = host_memory_adopt,  \
        .linear_bytes = cpu_linear_bytes, .linear_load = cpu_linear_load, .work = cpu_work,        \
        .upload = host_memory_upload, .read_back = host_memory_read_back,                          \
        .copy = host_memory_copy, .block_sums = host_memory_block_sums, .sync = cpu_sync,          \
        .embed = cpu_embed, .rmsnorm = cpu_rmsnorm, .linear = cpu_linear,                          \
        .rope_append = cpu_rope_append, .attention = cpu_attention, .swiglu = cpu_swiglu,          \
        .sample_bytes = sample_scratch_bytes, .sample = sample_rows,                               \
        .take_tokens = sample_take_tokens, .measure_peak = cpu_measure_peak,                       \
        .measure_read = cpu_measure_read,                                                          \
    }

#define PORTABLE "bf16-portable"
const struct kernels_backend kernels_cpu_portable = CPU_BACKEND(PORTABLE, NULL, open_portable);
const struct kernels_backend kernels_cpu_avx512bf16 =
    CPU_BACKEND("bf16-avx512bf16", NULL, open_avx512bf16);
/* All but layers of floats is the same as in the portable sets. */
const struct kernels_backend kernels_cpu_amx = CPU_BACKEND("bf16-amx", PORTABLE, open_amx);
