/* The portable fp32 backend: fp32 weights, activations and KV. Written to be read and to be
 * trusted. Its loops (inner/rows.h) have fixed lanes, so that a compiler may vectorise them without
 * changing a bit. */
#include "common/base/assert.h"
#include "common/base/u32.h"
#include "kernels/backend.h"
#include "kernels/cpu/exp_fixed.h"
#include "kernels/cpu/host_memory.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/kv_view.h"
#include "kernels/cpu/limits.h"
#include "kernels/cpu/pool.h"
#include "kernels/cpu/sample.h"
#include "kernels/reference/inner/rows.h"

#include <stdlib.h>
#include <string.h>

/* Scratch of one thread. */
struct reference_scratch {
    float scores[ATTENTION_SEGMENT_TOKENS];
    float partial[KERNELS_MAX_HEAD_DIM];    /* output of one segment */
    float token[KERNELS_MAX_HEAD_DIM];      /* a key or value of a quantized pool, widened */
    int8_t numbers[WEIGHT_MAX_QUANTIZED_K]; /* inputs of one row of a quantized layer */
    float scales[WEIGHT_MAX_QUANTIZED_K / WEIGHT_GROUP]; /* its scales, of FP8 */
};

/* kernels_info.packing. Files keep packed weights: change the number whenever the packed form of
 * any type changes. */
#define REFERENCE_PACKING "reference-1"

struct reference {
    struct pool *pool;
    struct reference_scratch *scratch; /* [threads] */
    const struct reference_loops *loops;
    enum limits_way read_way;
};

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
    self->loops = &reference_loops_baseline;
#if defined(__x86_64__)
    if (isa_reports_avx2())
        self->loops = &reference_loops_avx2;
#endif
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

/* Serves callers that size memory by it only: a panel goes past all rows of a call. */
static uint32_t reference_pass_rows(const struct kernels *kernels)
{
    (void)kernels;
    return 256;
}

/* --- quantized linear layers: rows as they are loaded, then all scales --- */

#define ALIGNMENT 64

static size_t scales_offset(enum weight_type type, uint32_t n, uint32_t k)
{
    return (n * weight_row_bytes(type, k) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static const uint8_t *row_of(const struct linear *linear, uint32_t n)
{
    return (const uint8_t *)linear->packed.address + n * weight_row_bytes(linear->type, linear->k);
}

static float *scales_of(const struct linear *linear, uint32_t n)
{
    char *base = linear->packed.address;
    float *scales = (float *)(base + scales_offset(linear->type, linear->n, linear->k));
    return scales + (size_t)n * weight_row_scales(linear->type, linear->k);
}

struct linear_job {
    const struct linear *linear;
    const float *in;
    float *out;
    struct reference_scratch *scratch; /* [threads] */
    const struct reference_loops *loops;
    uint32_t rows;
    bool accumulate;
};

/* Multiplies rows by a layer of FP8; an item is a row. */
static void multiply_e4m3_rows(void *context, uint32_t thread, uint32_t first, uint32_t last)
{
    const struct linear_job *job = context;
    const struct linear *linear = job->linear;
    struct reference_scratch *scratch = &job->scratch[thread];
    struct reference_e4m3 shape = {.blocks = linear->type == WEIGHT_FP8_BLOCK,
                                   .k = linear->k,
                                   .promotion = WEIGHT_GROUP,
                                   .segment = weight_segment_k(linear->k),
                                   .input_scale = linear->input_scale};
    for (size_t t = first; t < last; t++) {
        uint8_t *numbers = (uint8_t *)scratch->numbers;
        reference_e4m3_quantize(&shape, job->in + t * linear->k, numbers, scratch->scales);
        float *out = job->out + t * linear->n;
        for (uint32_t n = 0; n < linear->n; n++) {
            float value = reference_e4m3(&shape, numbers, scratch->scales, row_of(linear, n),
                                         scales_of(linear, n));
            out[n] = job->accumulate ? out[n] + value : value;
        }
    }
}

/* Multiplies rows by a quantized layer; an item is a row. */
static void multiply_rows(void *context, uint32_t thread, uint32_t first, uint32_t last)
{
    const struct linear_job *job = context;
    const struct linear *linear = job->linear;
    uint32_t k = linear->k;
    int8_t *numbers = job->scratch[thread].numbers;
    for (size_t t = first; t < last; t++) {
        float scale = reference_quantize(job->in + t * k, k, numbers);
        float *out = job->out + t * linear->n;
        for (uint32_t n = 0; n < linear->n; n++) {
            const uint8_t *row = row_of(linear, n);
            const float *scales = scales_of(linear, n);
            float value = linear->type == WEIGHT_INT8
                              ? reference_int8(numbers, scale, k, (const int8_t *)row, scales[0])
                              : reference_int4(numbers, scale, k, row, scales);
            out[n] = job->accumulate ? out[n] + value : value;
        }
    }
}

/* --- linear layers of floats: panels of REFERENCE_PANEL outputs, [k][REFERENCE_PANEL] fp32 --- */

static size_t reference_linear_bytes(enum weight_type type, uint32_t n, uint32_t k)
{
    if (weight_type_is_quantized(type))
        return scales_offset(type, n, k) + (size_t)n * weight_row_scales(type, k) * sizeof(float);
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
        reference_panel_fill(load->rows + i * k, (uint32_t)k, panel);
    }
}

static enum status reference_linear_load(struct kernels *kernels, struct linear *linear,
                                         uint32_t first_row, uint32_t row_count, const void *rows,
                                         const float *scales)
{
    if (weight_type_is_quantized(linear->type)) {
        size_t row_bytes = weight_row_bytes(linear->type, linear->k);
        size_t row_scales = weight_row_scales(linear->type, linear->k);
        memcpy((char *)linear->packed.address + first_row * row_bytes, rows, row_count * row_bytes);
        memcpy(scales_of(linear, first_row), scales, row_count * row_scales * sizeof *scales);
        return STATUS_OK;
    }
    struct reference *self = kernels->state;
    struct load load = {linear, first_row, rows};
    pool_run(self->pool, row_count, 2 * REFERENCE_PANEL, load_rows, &load);
    return STATUS_OK;
}

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
        job->loops->panel_multiply(&panel, job->in, job->rows, job->out + p * REFERENCE_PANEL);
    }
}

static enum status reference_linear(struct kernels *kernels, const struct linear *linear,
                                    const struct buffer *in, uint32_t rows, bool accumulate,
                                    struct buffer *out)
{
    struct reference *self = kernels->state;
    struct linear_job job = {.linear = linear,
                             .in = in->address,
                             .out = out->address,
                             .scratch = self->scratch,
                             .loops = self->loops,
                             .rows = rows,
                             .accumulate = accumulate};
    if (weight_type_is_quantized(linear->type)) {
        pool_run(self->pool, rows, 1,
                 weight_type_is_fp8(linear->type) ? multiply_e4m3_rows : multiply_rows, &job);
        return STATUS_OK;
    }
    uint32_t panels = divide_up(linear->n, REFERENCE_PANEL);
    pool_run(self->pool, panels, 4, linear_panels, &job);
    return STATUS_OK;
}

/* --- row by row --- */

static void embed_row(const struct linear *embedding, uint32_t n, float *out)
{
    if (embedding->type == WEIGHT_INT8) {
        reference_widen_int8((const int8_t *)row_of(embedding, n), *scales_of(embedding, n),
                             embedding->k, out);
        return;
    }
    if (embedding->type == WEIGHT_INT4) {
        reference_widen_int4(row_of(embedding, n), scales_of(embedding, n), embedding->k, out);
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
    const struct reference_loops *loops;
    const float *gate_up;
    float *out;
    size_t ffn;
};

static void swiglu_rows(void *context, uint32_t thread, uint32_t first, uint32_t last)
{
    (void)thread;
    const struct swiglu_job *job = context;
    for (size_t t = first; t < last; t++)
        job->loops->swiglu(job->gate_up + t * 2 * job->ffn, (uint32_t)job->ffn,
                           job->out + t * job->ffn);
}

static enum status reference_swiglu_op(struct kernels *kernels, const struct buffer *gate_up,
                                       uint32_t rows, uint32_t ffn, struct buffer *out)
{
    struct reference *self = kernels->state;
    struct swiglu_job job = {
        .loops = self->loops, .gate_up = gate_up->address, .out = out->address, .ffn = ffn};
    pool_run(self->pool, rows, 16, swiglu_rows, &job);
    return STATUS_OK;
}

struct attention_job {
    const struct step_batch *batch;
    const struct attention_shape *shape;
    struct kv_view kv;
    const struct head_parameters *parameters;
    float *qkv;
    float *out;
    struct reference_scratch *scratch;
};

/* --- bias, norm, rope and append: item = row --- */

/* Normalises the queries and keys of one row in place. */
static void normalise_heads(const struct attention_job *job, float *row)
{
    const struct head_parameters *p = job->parameters;
    const struct attention_shape *shape = job->shape;
    float normed[KERNELS_MAX_HEAD_DIM];
    for (uint32_t h = 0; h < shape->heads + shape->kv_heads; h++) {
        float *head = row + (size_t)h * shape->head_dim;
        const float *weight = h < shape->heads ? p->q_norm.address : p->k_norm.address;
        reference_rmsnorm(head, weight, p->norm_eps, shape->head_dim, normed);
        memcpy(head, normed, shape->head_dim * sizeof *head);
    }
}

/* Appends one head of a token to the pool. */
static void append(const struct attention_job *job, uint32_t row, bool value, uint32_t head,
                   const float *numbers)
{
    uint32_t position = ((const uint32_t *)job->batch->positions.address)[row];
    uint32_t sequence = ((const uint32_t *)job->batch->row_sequence.address)[row];
    void *target = kv_view_at(&job->kv, sequence, position, value, head);
    if (job->kv.type == KV_INT8)
        *kv_view_scale_at(&job->kv, sequence, position, value, head) =
            reference_quantize(numbers, job->shape->head_dim, target);
    else
        memcpy(target, numbers, job->shape->head_dim * sizeof *numbers);
}

static void rope_rows(void *context, uint32_t thread, uint32_t first, uint32_t last)
{
    (void)thread;
    const struct attention_job *job = context;
    const struct attention_shape *shape = job->shape;
    const uint32_t *positions = job->batch->positions.address;
    size_t dim = shape->head_dim;
    for (uint32_t t = first; t < last; t++) {
        float *row = job->qkv + t * qkv_width(shape);
        const float *cos_sin = (const float *)job->parameters->rope.address + positions[t] * dim;
        const float *bias = job->parameters->bias.address;
        for (size_t i = 0; bias && i < qkv_width(shape); i++)
            row[i] += bias[i];
        if (job->parameters->q_norm.address)
            normalise_heads(job, row);
        for (uint32_t h = 0; h < shape->heads + shape->kv_heads; h++)
            reference_rope(cos_sin, shape->head_dim, row + h * dim);
        const float *keys = row + shape->heads * dim;
        const float *values = keys + shape->kv_heads * dim;
        for (uint32_t g = 0; g < shape->kv_heads; g++) {
            append(job, t, false, g, keys + g * dim);
            append(job, t, true, g, values + g * dim);
        }
    }
}

static enum status reference_rope_append(struct kernels *kernels, const struct step_batch *batch,
                                         const struct attention_shape *shape,
                                         const struct head_parameters *parameters,
                                         const struct kv_layout *layout, uint32_t layer,
                                         struct buffer *qkv, struct buffer *pool)
{
    struct reference *self = kernels->state;
    struct attention_job job = {.batch = batch,
                                .shape = shape,
                                .kv = kv_view_make(batch, layout, layer, pool),
                                .parameters = parameters,
                                .qkv = qkv->address};
    pool_run(self->pool, batch->rows, 16, rope_rows, &job);
    return STATUS_OK;
}

/* --- attention: item = (row, kv head) --- */

/* Returns the number of tokens from p on, before `end`, that lie behind each other as floats: up to
 * the end of p's block. KV_INT8: 1, since one token is widened at a time. */
static uint32_t run_tokens(const struct attention_job *job, uint32_t p, uint32_t end)
{
    if (job->kv.type == KV_INT8)
        return 1;
    uint32_t left = job->kv.block_tokens - p % job->kv.block_tokens;
    return end - p < left ? end - p : left;
}

static const float *read_tokens(const struct attention_job *job, uint32_t sequence, uint32_t p,
                                bool value, uint32_t head, struct reference_scratch *scratch)
{
    const void *tokens = kv_view_at(&job->kv, sequence, p, value, head);
    if (job->kv.type != KV_INT8)
        return tokens;
    float scale = *kv_view_scale_at(&job->kv, sequence, p, value, head);
    reference_widen_int8(tokens, scale, job->shape->head_dim, scratch->token);
    return scratch->token;
}

/* Computes one query's partial over positions [begin, end) of one segment. Returns the sum of its
 * weights; gives `max`, and the undivided output in scratch->partial. */
static float attend_segment(const struct attention_job *job, uint32_t sequence, uint32_t head,
                            const float *q, uint32_t begin, uint32_t end,
                            struct reference_scratch *scratch, float *max)
{
    uint32_t dim = job->shape->head_dim;
    for (uint32_t p = begin, count; p < end; p += count) {
        count = run_tokens(job, p, end);
        reference_scores(q, read_tokens(job, sequence, p, false, head, scratch), dim, count,
                         job->shape->scale, scratch->scores + (p - begin));
    }
    float sum = reference_softmax(scratch->scores, end - begin, max);
    memset(scratch->partial, 0, dim * sizeof(float));
    for (uint32_t p = begin, count; p < end; p += count) {
        count = run_tokens(job, p, end);
        reference_weigh(scratch->scores + (p - begin),
                        read_tokens(job, sequence, p, true, head, scratch), dim, count,
                        scratch->partial);
    }
    return sum;
}

/* Merges a query's segments in ascending order into out [head_dim]. */
static void attend(const struct attention_job *job, uint32_t row, uint32_t head, const float *q,
                   struct reference_scratch *scratch, float *out)
{
    const uint32_t *positions = job->batch->positions.address;
    const uint32_t *row_sequence = job->batch->row_sequence.address;
    uint32_t context = positions[row] + 1, dim = job->shape->head_dim;
    uint32_t window = job->shape->window;
    uint32_t start = window && context > window ? context - window : 0;
    float max = 0, sum = 0;
    for (uint32_t begin = start, end; begin < context; begin = end) {
        uint32_t segment_end = begin - begin % ATTENTION_SEGMENT_TOKENS + ATTENTION_SEGMENT_TOKENS;
        end = context < segment_end ? context : segment_end;
        float segment_max;
        float segment_sum =
            attend_segment(job, row_sequence[row], head, q, begin, end, scratch, &segment_max);
        if (begin == start) {
            memcpy(out, scratch->partial, dim * sizeof(float));
            max = segment_max;
            sum = segment_sum;
            continue;
        }
        float top = segment_max > max ? segment_max : max;
        float a = exp_fixed(max - top), b = exp_fixed(segment_max - top);
        reference_blend(out, a, scratch->partial, b, dim);
        sum = sum * a + segment_sum * b;
        max = top;
    }
    for (uint32_t d = 0; d < dim; d++)
        out[d] /= sum;
}

static void attention_items(void *context, uint32_t thread, uint32_t first, uint32_t last)
{
    const struct attention_job *job = context;
    const struct attention_shape *shape = job->shape;
    size_t dim = shape->head_dim;
    uint32_t group = shape->heads / shape->kv_heads;
    for (uint32_t item = first; item < last; item++) {
        uint32_t row = item / shape->heads, head = item % shape->heads;
        attend(job, row, head / group, job->qkv + row * qkv_width(shape) + head * dim,
               &job->scratch[thread], job->out + ((size_t)row * shape->heads + head) * dim);
    }
}

static enum status reference_attention(struct kernels *kernels, const struct step_batch *batch,
                                       const struct attention_shape *shape,
                                       const struct kv_layout *layout, uint32_t layer,
                                       const struct buffer *qkv, const struct buffer *pool,
                                       struct buffer *out)
{
    struct reference *self = kernels->state;
    struct attention_job job = {.batch = batch,
                                .shape = shape,
                                .kv = kv_view_make(batch, layout, layer, pool),
                                .qkv = qkv->address,
                                .out = out->address,
                                .scratch = self->scratch};
    pool_run(self->pool, batch->rows * shape->heads, shape->heads, attention_items, &job);
    return STATUS_OK;
}

/* --- for benchmarks --- */

static double reference_measure_peak(struct kernels *kernels, enum weight_type type,
                                     const char **instruction)
{
    struct reference *self = kernels->state;
    *instruction = "";
    if (weight_type_is_fp8(type))
        return 0;
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
    .whole_bytes = host_memory_whole,
    .alloc = host_memory_alloc,
    .free = host_memory_free,
    .host_alloc = host_memory_give,
    .host_free = host_memory_end,
    .adopt = host_memory_adopt,
    .linear_bytes = reference_linear_bytes,
    .linear_load = reference_linear_load,
    .work = reference_work,
    .upload = host_memory_upload,
    .copy = host_memory_copy,
    .read_back = host_memory_read_back,
    .block_sums = host_memory_block_sums,
    .sync = reference_sync,
    .embed = reference_embed,
    .rmsnorm = reference_rmsnorm_op,
    .linear = reference_linear,
    .rope_append = reference_rope_append,
    .attention = reference_attention,
    .swiglu = reference_swiglu_op,
    .sample_bytes = sample_scratch_bytes,
    .sample = sample_rows,
    .take_tokens = sample_take_tokens,
    .measure_peak = reference_measure_peak,
    .measure_read = reference_measure_read,
};
