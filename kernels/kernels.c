#include "kernels/kernels.h"

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/u32.h"
#include "kernels/backend.h"
#include "kernels/cpu/host_memory.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/quantize.h"

#include <stddef.h>
#include <stdlib.h>

const char *const isa_names[] = {"auto", "portable", "avx2", "avx512", "avx512bf16", "amx", NULL};

const char *const device_names[] = {"auto", "cpu", "deferred", "deferred-late", NULL};

const char *const weight_type_names[] = {"bf16", "f32", "int8", "int4", NULL};

bool weight_type_is_quantized(enum weight_type type)
{
    return type == WEIGHT_INT8 || type == WEIGHT_INT4;
}

size_t weight_row_bytes(enum weight_type type, uint32_t k)
{
    switch (type) {
    case WEIGHT_BF16: return (size_t)k * 2;
    case WEIGHT_F32: return (size_t)k * 4;
    case WEIGHT_INT8: return k;
    case WEIGHT_INT4: return (size_t)k / 2 + k % 2;
    }
    return 0;
}

uint32_t weight_row_scales(enum weight_type type, uint32_t k)
{
    if (type == WEIGHT_INT4)
        return divide_up(k, WEIGHT_GROUP);
    return type == WEIGHT_INT8;
}

enum status weight_quantize(enum weight_type type, const float *rows, uint32_t row_count,
                            uint32_t k, uint8_t *numbers, float *scales, uint32_t *bad_row)
{
    return quantize_rows(quantizer_best(), type, rows, row_count, k, numbers, scales, bad_row);
}

/* --- open --- */

static const struct kernels_backend *choose(const struct kernels_config *config)
{
    if (config->f32)
        return &kernels_reference;
    if (config->isa == ISA_AMX || (config->isa == ISA_AUTO && isa_allows_amx()))
        return &kernels_cpu_amx;
    bool dot =
        config->isa == ISA_AVX512BF16 || (config->isa == ISA_AUTO && isa_prefers_avx512bf16());
    return dot ? &kernels_cpu_avx512bf16 : &kernels_cpu_portable;
}

enum status kernels_check_isa(bool f32, enum isa isa, struct error *err)
{
    if (!f32 || isa == ISA_AUTO || isa == ISA_PORTABLE)
        return STATUS_OK;
    return error_set(err, STATUS_INVALID,
                     "isa %s is of the fast path: compute f32 is portable code on every CPU",
                     isa_names[isa]);
}

enum status kernels_open(const struct kernels_config *config, struct kernels **kernels,
                         struct error *err)
{
    if (config->threads < 1 || config->threads > KERNELS_MAX_THREADS)
        return error_set(err, STATUS_INVALID, "%u compute threads: expected 1 to %d",
                         config->threads, KERNELS_MAX_THREADS);
    TRY(kernels_check_isa(config->f32, config->isa, err));
    struct kernels *k = calloc(1, sizeof *k);
    if (!k)
        return error_set(err, STATUS_LIMIT, "no memory for a kernel backend");
    k->device = DEVICE_CPU;
    k->threads = config->threads;
    k->placement = placement_find(PLACEMENT_NODES, config->cpus, config->threads);
    k->backend = choose(config);
    enum status status = k->backend->open(k, config, err);
    if (status != STATUS_OK) {
        free(k);
        return status;
    }
    if (config->device == DEVICE_DEFERRED || config->device == DEVICE_DEFERRED_LATE)
        status = kernels_defer(k, config->device == DEVICE_DEFERRED_LATE, &k, err);
    if (status != STATUS_OK) {
        kernels_close(k);
        return status;
    }
    *kernels = k;
    return STATUS_OK;
}

void kernels_close(struct kernels *kernels)
{
    if (!kernels)
        return;
    kernels->backend->close(kernels);
    free(kernels);
}

struct kernels_info kernels_info(const struct kernels *kernels)
{
    const char *quantized_name = kernels->backend->quantized_name;
    return (struct kernels_info){.name = kernels->backend->name,
                                 .quantized_name =
                                     quantized_name ? quantized_name : kernels->backend->name,
                                 .packing = kernels->backend->packing,
                                 .isa = kernels->backend->isa(kernels),
                                 .device = kernels->device,
                                 .weight_type = kernels->backend->weight_type,
                                 .kv_type = kernels->backend->kv_type,
                                 .device_is_host = kernels->backend->device_is_host,
                                 .runs_ahead = kernels->backend->queues != NULL,
                                 .threads = kernels->threads,
                                 .pass_rows = kernels->backend->pass_rows(kernels)};
}

struct kernels_counts kernels_counts(const struct kernels *kernels)
{
    return kernels->counts;
}

/* Another thread may count transfers beside the step thread. */
#define COUNT(KERNELS, KIND) (void)__atomic_fetch_add(&(KERNELS)->counts.KIND, 1, __ATOMIC_RELAXED)

/* --- memory --- */

static bool range_fits(const struct buffer *buffer, size_t offset, size_t bytes)
{
    return offset <= buffer->bytes && bytes <= buffer->bytes - offset;
}

size_t kernels_available_bytes(const struct kernels *kernels)
{
    return kernels->backend->available_bytes(kernels);
}

size_t kernels_host_available_bytes(const struct kernels *kernels)
{
    return host_memory_available(kernels);
}

enum status kernels_alloc(struct kernels *kernels, size_t bytes, struct buffer *buffer)
{
    COUNT(kernels, allocations);
    return kernels->backend->alloc(kernels, bytes, buffer);
}

void kernels_free(struct kernels *kernels, struct buffer *buffer)
{
    if (buffer->address)
        kernels->backend->free(kernels, buffer);
}

enum status kernels_adopt(struct kernels *kernels, void *address, size_t bytes,
                          struct buffer *buffer)
{
    return kernels->backend->adopt(kernels, address, bytes, buffer);
}

enum status kernels_host_alloc(struct kernels *kernels, size_t bytes, void **memory)
{
    COUNT(kernels, allocations);
    void *made = kernels->backend->host_alloc(bytes);
    if (!made)
        return STATUS_LIMIT;
    *memory = made;
    return STATUS_OK;
}

void kernels_host_free(struct kernels *kernels, void *memory)
{
    if (memory)
        kernels->backend->host_free(memory);
}

size_t kernels_linear_bytes(const struct kernels *kernels, enum weight_type type, uint32_t n,
                            uint32_t k)
{
    return kernels->backend->linear_bytes(type, n, k);
}

static enum status check_linear(const struct kernels *kernels, enum weight_type type, uint32_t n,
                                uint32_t k)
{
    if (n == 0 || k == 0)
        return STATUS_INVALID;
    bool held = weight_type_is_quantized(type) ? k <= WEIGHT_MAX_QUANTIZED_K
                                               : type == kernels->backend->weight_type;
    return held ? STATUS_OK : STATUS_UNSUPPORTED;
}

enum status kernels_linear_create(struct kernels *kernels, enum weight_type type, uint32_t n,
                                  uint32_t k, struct linear *linear)
{
    TRY(check_linear(kernels, type, n, k));
    struct linear made = {.type = type, .n = n, .k = k};
    TRY(kernels_alloc(kernels, kernels->backend->linear_bytes(type, n, k), &made.packed));
    *linear = made;
    return STATUS_OK;
}

enum status kernels_linear_load(struct kernels *kernels, struct linear *linear, uint32_t first_row,
                                uint32_t row_count, const void *rows, const float *scales)
{
    if (first_row > linear->n || row_count > linear->n - first_row ||
        (scales != NULL) != weight_type_is_quantized(linear->type))
        return STATUS_INVALID;
    return kernels->backend->linear_load(kernels, linear, first_row, row_count, rows, scales);
}

void kernels_linear_destroy(struct kernels *kernels, struct linear *linear)
{
    kernels_free(kernels, &linear->packed);
}

enum status kernels_linear_adopt(struct kernels *kernels, const struct buffer *memory,
                                 size_t offset, struct linear *linear)
{
    TRY(check_linear(kernels, linear->type, linear->n, linear->k));
    size_t bytes = kernels_linear_bytes(kernels, linear->type, linear->n, linear->k);
    if (offset % LINEAR_ALIGN_BYTES != 0 || !range_fits(memory, offset, bytes))
        return STATUS_INVALID;
    linear->packed = (struct buffer){.address = (char *)memory->address + offset, .bytes = bytes};
    return STATUS_OK;
}

void kernels_host_work(struct kernels *kernels, uint32_t count, uint32_t grain, kernels_work *work,
                       void *context)
{
    kernels->backend->work(kernels, count, grain, work, context);
}

/* --- streams and events --- */

enum status kernels_record(struct kernels *kernels, enum kernels_stream stream,
                           kernels_event *event)
{
    COUNT(kernels, records);
    kernels_event next = kernels->recorded[stream] + 1;
    if (kernels->backend->queues)
        TRY(kernels->backend->queues->record(kernels, stream, next));
    else
        kernels->passed_us[stream][next % KERNELS_TIMED_EVENTS] = clock_now_us();
    kernels->recorded[stream] = *event = next;
    return STATUS_OK;
}

bool kernels_passed(struct kernels *kernels, enum kernels_stream stream, kernels_event event)
{
    ASSERT(event <= kernels->recorded[stream]);
    return !kernels->backend->queues || kernels->backend->queues->passed(kernels, stream, event);
}

enum status kernels_wait(struct kernels *kernels, enum kernels_stream stream, kernels_event event)
{
    ASSERT(event <= kernels->recorded[stream]);
    COUNT(kernels, waits);
    return kernels->backend->queues ? kernels->backend->queues->wait(kernels, stream, event)
                                    : STATUS_OK;
}

enum status kernels_order(struct kernels *kernels, enum kernels_stream behind,
                          enum kernels_stream before, kernels_event event)
{
    ASSERT(event <= kernels->recorded[before] && behind != before);
    return kernels->backend->queues
               ? kernels->backend->queues->order(kernels, behind, before, event)
               : STATUS_OK;
}

uint64_t kernels_event_us(struct kernels *kernels, enum kernels_stream stream, kernels_event begin,
                          kernels_event end)
{
    kernels_event last = kernels->recorded[stream];
    ASSERT(begin >= 1 && begin <= end && end <= last && last - begin < KERNELS_TIMED_EVENTS);
    if (kernels->backend->queues)
        return kernels->backend->queues->event_us(kernels, stream, begin, end);
    return kernels->passed_us[stream][end % KERNELS_TIMED_EVENTS] -
           kernels->passed_us[stream][begin % KERNELS_TIMED_EVENTS];
}

enum status kernels_sync(struct kernels *kernels)
{
    COUNT(kernels, waits);
    return kernels->backend->sync(kernels);
}

/* --- transfers --- */

enum status kernels_upload(struct kernels *kernels, enum kernels_stream stream,
                           struct buffer *target, size_t offset, const void *host, size_t bytes)
{
    if (!range_fits(target, offset, bytes))
        return STATUS_INVALID;
    COUNT(kernels, uploads);
    return kernels->backend->upload(kernels, stream, target, offset, host, bytes);
}

enum status kernels_read_back(struct kernels *kernels, enum kernels_stream stream,
                              const struct buffer *source, size_t offset, void *host, size_t bytes)
{
    if (!range_fits(source, offset, bytes))
        return STATUS_INVALID;
    COUNT(kernels, read_backs);
    return kernels->backend->read_back(kernels, stream, source, offset, host, bytes);
}

enum status kernels_copy(struct kernels *kernels, enum kernels_stream stream,
                         const struct buffer *source, size_t source_offset, struct buffer *target,
                         size_t target_offset, size_t bytes)
{
    if (!range_fits(source, source_offset, bytes) || !range_fits(target, target_offset, bytes))
        return STATUS_INVALID;
    uintptr_t from = (uintptr_t)source->address + source_offset;
    uintptr_t to = (uintptr_t)target->address + target_offset;
    if (from < to + bytes && to < from + bytes)
        return STATUS_INVALID;
    COUNT(kernels, copies);
    return kernels->backend->copy(kernels, stream, source, source_offset, target, target_offset,
                                  bytes);
}

enum status kernels_download(struct kernels *kernels, const struct buffer *source, size_t offset,
                             void *host, size_t bytes)
{
    TRY(kernels_read_back(kernels, KERNELS_STEPS, source, offset, host, bytes));
    return kernels_sync(kernels);
}

enum status kernels_view(struct kernels *kernels, const struct buffer *source, size_t offset,
                         size_t bytes, void *host, const void **seen)
{
    if (!range_fits(source, offset, bytes))
        return STATUS_INVALID;
    bool in_place = kernels->backend->device_is_host;
    ASSERT(in_place || host);
    TRY(in_place ? kernels_sync(kernels) : kernels_download(kernels, source, offset, host, bytes));
    *seen = in_place ? (const char *)source->address + offset : host;
    return STATUS_OK;
}

/* --- operations: shapes are checked here, once for all backends --- */

static uint64_t begin(struct kernels *kernels)
{
    COUNT(kernels, operations);
    return kernels->profile ? clock_now_ns() : 0;
}

/* Adds the time since begun_ns to a field of the profile; `kind` is its offset. */
static void end(struct kernels *kernels, size_t kind, uint64_t begun_ns)
{
    if (kernels->profile)
        *(uint64_t *)((char *)kernels->profile + kind) += clock_now_ns() - begun_ns;
}

#define KIND(NAME) offsetof(struct kernels_profile, NAME)

/* Returns whether the buffer holds [rows, width] elements of `size` bytes. */
static bool holds(const struct buffer *buffer, size_t rows, size_t width, size_t size)
{
    size_t count, bytes;
    return !__builtin_mul_overflow(rows, width, &count) &&
           !__builtin_mul_overflow(count, size, &bytes) && bytes <= buffer->bytes;
}

static bool batch_is_whole(const struct step_batch *batch)
{
    return holds(&batch->tokens, batch->rows, 1, sizeof(uint32_t)) &&
           holds(&batch->positions, batch->rows, 1, sizeof(uint32_t)) &&
           holds(&batch->row_sequence, batch->rows, 1, sizeof(uint32_t)) &&
           holds(&batch->sequence_rows, (size_t)batch->sequences + 1, 1, sizeof(uint32_t)) &&
           holds(&batch->block_tables, batch->sequences, batch->table_stride, sizeof(uint32_t));
}

static enum status check_attention(const struct kernels *kernels, const struct step_batch *batch,
                                   const struct attention_shape *shape,
                                   const struct kv_layout *layout, uint32_t layer,
                                   const struct buffer *qkv)
{
    if (shape->head_dim > KERNELS_MAX_HEAD_DIM)
        return STATUS_UNSUPPORTED;
    bool shape_is_sound = shape->kv_heads > 0 && shape->heads > 0 && shape->head_dim > 0 &&
                          shape->heads % shape->kv_heads == 0 && shape->head_dim % 2 == 0;
    bool layout_matches = (layout->type == kernels->backend->kv_type || layout->type == KV_INT8) &&
                          layout->head_dim == shape->head_dim &&
                          layout->head_end - layout->head_begin == shape->kv_heads &&
                          layer >= layout->layer_begin && layer < layout->layer_end &&
                          layout->block_tokens > 0 &&
                          ATTENTION_SEGMENT_TOKENS % layout->block_tokens == 0;
    if (!shape_is_sound || !layout_matches || !batch_is_whole(batch) ||
        !holds(qkv, batch->rows, qkv_width(shape), sizeof(float)))
        return STATUS_INVALID;
    return STATUS_OK;
}

enum status kernels_embed(struct kernels *kernels, const struct step_batch *batch,
                          const struct linear *embedding, struct buffer *x)
{
    if (!batch_is_whole(batch) || !embedding->packed.address ||
        !holds(x, batch->rows, embedding->k, sizeof(float)))
        return STATUS_INVALID;
    uint64_t begun_ns = begin(kernels);
    enum status status = kernels->backend->embed(kernels, batch, embedding, x);
    end(kernels, KIND(embed), begun_ns);
    return status;
}

enum status kernels_rmsnorm(struct kernels *kernels, const struct buffer *x,
                            const struct buffer *weight, double eps, const struct buffer *rows,
                            uint32_t row_count, uint32_t hidden, struct buffer *out)
{
    if (hidden == 0 || !holds(weight, 1, hidden, sizeof(float)) ||
        !holds(out, row_count, hidden, sizeof(float)) ||
        !holds(x, rows ? 1 : row_count, hidden, sizeof(float)) ||
        (rows && !holds(rows, row_count, 1, sizeof(uint32_t))))
        return STATUS_INVALID;
    uint64_t begun_ns = begin(kernels);
    enum status status =
        kernels->backend->rmsnorm(kernels, x, weight, eps, rows, row_count, hidden, out);
    end(kernels, KIND(rmsnorm), begun_ns);
    return status;
}

enum status kernels_linear(struct kernels *kernels, const struct linear *linear,
                           const struct buffer *in, uint32_t rows, bool accumulate,
                           struct buffer *out)
{
    if (!holds(in, rows, linear->k, sizeof(float)) || !holds(out, rows, linear->n, sizeof(float)))
        return STATUS_INVALID;
    uint64_t begun_ns = begin(kernels);
    enum status status = kernels->backend->linear(kernels, linear, in, rows, accumulate, out);
    end(kernels, KIND(linear), begun_ns);
    return status;
}

enum status kernels_rope_append(struct kernels *kernels, const struct step_batch *batch,
                                const struct attention_shape *shape,
                                const struct head_parameters *parameters,
                                const struct kv_layout *layout, uint32_t layer, struct buffer *qkv,
                                struct buffer *pool)
{
    const struct head_parameters *p = parameters;
    TRY(check_attention(kernels, batch, shape, layout, layer, qkv));
    bool normed = p->q_norm.address || p->k_norm.address;
    if (!holds(&p->rope, 1, shape->head_dim, sizeof(float)) ||
        (p->bias.address && !holds(&p->bias, 1, qkv_width(shape), sizeof(float))) ||
        (normed && (!holds(&p->q_norm, 1, shape->head_dim, sizeof(float)) ||
                    !holds(&p->k_norm, 1, shape->head_dim, sizeof(float)))))
        return STATUS_INVALID;
    uint64_t begun_ns = begin(kernels);
    enum status status =
        kernels->backend->rope_append(kernels, batch, shape, p, layout, layer, qkv, pool);
    end(kernels, KIND(rope_append), begun_ns);
    return status;
}

enum status kernels_attention(struct kernels *kernels, const struct step_batch *batch,
                              const struct attention_shape *shape, const struct kv_layout *layout,
                              uint32_t layer, const struct buffer *qkv, const struct buffer *pool,
                              struct buffer *out)
{
    TRY(check_attention(kernels, batch, shape, layout, layer, qkv));
    if (!holds(out, batch->rows, (size_t)shape->heads * shape->head_dim, sizeof(float)))
        return STATUS_INVALID;
    uint64_t begun_ns = begin(kernels);
    enum status status =
        kernels->backend->attention(kernels, batch, shape, layout, layer, qkv, pool, out);
    end(kernels, KIND(attention), begun_ns);
    return status;
}

enum status kernels_swiglu(struct kernels *kernels, const struct buffer *gate_up, uint32_t rows,
                           uint32_t ffn, struct buffer *out)
{
    if (!holds(gate_up, rows, 2 * (size_t)ffn, sizeof(float)) ||
        !holds(out, rows, ffn, sizeof(float)))
        return STATUS_INVALID;
    uint64_t begun_ns = begin(kernels);
    enum status status = kernels->backend->swiglu(kernels, gate_up, rows, ffn, out);
    end(kernels, KIND(swiglu), begun_ns);
    return status;
}

/* --- drawing tokens --- */

size_t kernels_sample_bytes(const struct kernels *kernels, uint32_t vocab)
{
    return kernels->backend->sample_bytes(kernels, vocab);
}

enum status kernels_sample(struct kernels *kernels, const struct buffer *logits, uint32_t rows,
                           uint32_t vocab, const struct buffer *draws, struct buffer *scratch,
                           struct buffer *drawn)
{
    if (vocab == 0 || !holds(logits, rows, vocab, sizeof(float)) ||
        !holds(draws, rows, 1, sizeof(struct kernels_draw)) ||
        !holds(drawn, rows, 1, sizeof(struct kernels_drawn)) ||
        scratch->bytes < kernels_sample_bytes(kernels, vocab))
        return STATUS_INVALID;
    COUNT(kernels, operations);
    return kernels->backend->sample(kernels, logits, rows, vocab, draws, scratch, drawn);
}

enum status kernels_take_tokens(struct kernels *kernels, const struct buffer *from, uint32_t rows,
                                const struct buffer *drawn, struct buffer *tokens)
{
    if (!holds(from, rows, 1, sizeof(uint32_t)) || !holds(tokens, rows, 1, sizeof(uint32_t)))
        return STATUS_INVALID;
    COUNT(kernels, operations);
    return kernels->backend->take_tokens(kernels, from, rows, drawn, tokens);
}

/* --- for benchmarks --- */

void kernels_profile_to(struct kernels *kernels, struct kernels_profile *profile)
{
    kernels->profile = profile;
}

double kernels_measure_peak(struct kernels *kernels, enum weight_type type,
                            const char **instruction)
{
    return kernels->backend->measure_peak(kernels, type, instruction);
}

uint64_t kernels_measure_read(struct kernels *kernels, const struct buffer *memory)
{
    return kernels->backend->measure_read(kernels, memory);
}
