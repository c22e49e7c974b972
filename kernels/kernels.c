#include "kernels/kernels.h"

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "kernels/backend.h"
#include "kernels/cpu/host_memory.h"
#include "kernels/cpu/isa.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

const char *const device_names[] = {"auto", "cpu", "deferred", "deferred-late", "cuda", NULL};

enum status device_parse(const char *text, enum device *device, uint32_t *ordinal,
                         struct error *err)
{
    size_t length = strcspn(text, ":");
    uint32_t number = 0, digits = 0;
    const char *rest = text + length;
    if (*rest == ':')
        for (rest++; digits < 4 && *rest >= '0' && *rest <= '9'; rest++, digits++)
            number = 10 * number + (uint32_t)(*rest - '0');
    for (int i = 0; device_names[i]; i++) {
        bool named = strlen(device_names[i]) == length && !memcmp(text, device_names[i], length);
        if (!named || *rest || (text[length] == ':' && (i != DEVICE_CUDA || !digits)))
            continue;
        *device = (enum device)i;
        *ordinal = number;
        return STATUS_OK;
    }
    return error_set(err, STATUS_INVALID, "'%s' is none of " DEVICE_FORMS, text);
}

/* --- open --- */

/* Settles AUTO, and says why a GPU isn't taken. */
static enum device choose_device(const struct kernels_config *config)
{
    struct error why;
    if (config->device != DEVICE_AUTO)
        return config->device;
    if (config->f32 || config->isa != ISA_AUTO)
        return DEVICE_CPU;
    if (kernels_cuda_usable(&why))
        return DEVICE_CUDA;
    log_info("kernels", "msg=\"device auto takes the CPU\" why=\"%s\"", why.text);
    return DEVICE_CPU;
}

static const struct kernels_backend *choose(const struct kernels_config *config, enum device device)
{
    if (device == DEVICE_CUDA)
        return &kernels_cuda;
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
    enum device device = choose_device(config);
    if (device == DEVICE_CUDA && (config->f32 || config->isa != ISA_AUTO))
        return error_set(err, STATUS_INVALID,
                         "%s is of the CPU, and device cuda computes bf16: use device cpu, or "
                         "leave it out",
                         config->f32 ? "compute f32" : "an isa");
    struct kernels *k = calloc(1, sizeof *k);
    if (!k)
        return error_set(err, STATUS_LIMIT, "no memory for a kernel backend");
    k->device = device == DEVICE_CUDA ? DEVICE_CUDA : DEVICE_CPU;
    k->threads = config->threads;
    k->placement = placement_find(PLACEMENT_NODES, config->cpus, config->threads);
    k->backend = choose(config, device);
    enum status status = k->backend->open(k, config, err);
    if (status != STATUS_OK) {
        free(k);
        return status;
    }
    if (device == DEVICE_DEFERRED || device == DEVICE_DEFERRED_LATE)
        status = kernels_defer(k, device == DEVICE_DEFERRED_LATE, &k, err);
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
    const struct kernels_backend *backend = kernels->backend;
    const char *name = kernels->name ? kernels->name : backend->name;
    const char *quantized_name =
        kernels->quantized_name ? kernels->quantized_name : backend->quantized_name;
    return (struct kernels_info){.name = name,
                                 .quantized_name = quantized_name ? quantized_name : name,
                                 .packing = kernels->backend->packing,
                                 .isa = kernels->backend->isa(kernels),
                                 .device = kernels->device,
                                 .weight_type = kernels->backend->weight_type,
                                 .kv_type = kernels->backend->kv_type,
                                 .device_is_host = kernels->backend->device_is_host,
                                 .takes_host_memory = kernels->device != DEVICE_CUDA,
                                 .runs_ahead = kernels->backend->queues != NULL,
                                 .fuses = kernels->backend->fusion != NULL,
                                 .records = kernels->backend->passes != NULL,
                                 .threads = kernels->threads,
                                 .pass_rows = kernels->backend->pass_rows(kernels)};
}

enum status kernels_check_model(const struct kernels *kernels, enum weight_type type,
                                uint32_t head_dim, struct error *err)
{
    return kernels->backend->lacks ? kernels->backend->lacks(kernels, type, head_dim, err)
                                   : STATUS_OK;
}

size_t kernels_own_bytes(const struct kernels *kernels)
{
    return kernels->backend->own_bytes ? kernels->backend->own_bytes(kernels) : 0;
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

size_t kernels_whole_bytes(const struct kernels *kernels)
{
    return kernels->backend->whole_bytes(kernels);
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
    void *made = kernels->backend->host_alloc(kernels, bytes);
    if (!made)
        return STATUS_LIMIT;
    *memory = made;
    return STATUS_OK;
}

void kernels_host_free(struct kernels *kernels, void *memory)
{
    if (memory)
        kernels->backend->host_free(kernels, memory);
}

size_t kernels_shared_bytes(struct kernels *kernels, size_t bytes)
{
    return kernels->backend->sharing ? kernels->backend->sharing->bytes(kernels, bytes) : bytes;
}

enum status kernels_alloc_shared(struct kernels *kernels, size_t bytes, struct buffer *buffer,
                                 struct error *err)
{
    if (!kernels->backend->sharing)
        return error_set(err, STATUS_UNSUPPORTED, "device %s shares no memory",
                         device_names[kernels->device]);
    COUNT(kernels, allocations);
    return kernels->backend->sharing->alloc(kernels, bytes, buffer, err);
}

enum status kernels_share(struct kernels *kernels, int *fd, struct error *err)
{
    return kernels->backend->sharing->share(kernels, fd, err);
}

enum status kernels_map(struct kernels *kernels, int fd, size_t bytes, struct buffer *buffer,
                        struct error *err)
{
    return kernels->backend->sharing->map(kernels, fd, bytes, buffer, err);
}

void kernels_unmap(struct kernels *kernels, struct buffer *buffer)
{
    if (buffer->address)
        kernels->backend->sharing->unmap(kernels, buffer);
}

enum status kernels_gather(struct kernels *kernels, const struct buffer *source,
                           struct buffer *target, const struct kv_move *moves, uint32_t count)
{
    if (!count || count > KV_MOVES_AT_ONCE)
        return STATUS_INVALID;
    for (uint32_t i = 0; i < count; i++)
        if (!range_fits(source, moves[i].from, moves[i].bytes) ||
            !range_fits(target, moves[i].to, moves[i].bytes))
            return STATUS_INVALID;
    if (!kernels->backend->sharing)
        return STATUS_UNSUPPORTED;
    COUNT(kernels, gathers);
    return kernels->backend->sharing->gather(kernels, source, target, moves, count);
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
    held = held && kernels->backend->linear_bytes(type, n, k) > 0;
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

enum status kernels_watch_device(struct kernels *kernels, uint32_t timeout_ms,
                                 struct device_health *health)
{
    return kernels->backend->watch ? kernels->backend->watch(kernels, timeout_ms, health)
                                   : STATUS_UNSUPPORTED;
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
    if (!kernels->backend->queues && kernels->signals[stream])
        eventfd_write(kernels->signals[stream] - 1, 1);
    return STATUS_OK;
}

void kernels_signal(struct kernels *kernels, enum kernels_stream stream, int fd)
{
    kernels->signals[stream] = fd + 1;
    if (kernels->backend->queues)
        kernels->backend->queues->signal(kernels, stream, fd);
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

enum status kernels_block_sums(struct kernels *kernels, const struct buffer *pool,
                               const struct kv_sum_job *job, struct buffer *sums)
{
    if (!job->count || job->count > KV_SUMS_AT_ONCE || !job->run_bytes || job->run_bytes % 4 ||
        !job->block_bytes || job->block_bytes % job->run_bytes || job->first_offset > pool->bytes ||
        job->first_offset % 4 ||
        sums->bytes / sizeof(uint32_t) / job->count < job->block_bytes / job->run_bytes)
        return STATUS_INVALID;
    for (uint32_t i = 0; i < job->count; i++)
        if (job->blocks[i] >= (pool->bytes - job->first_offset) / job->block_bytes)
            return STATUS_INVALID;
    COUNT(kernels, sums);
    return kernels->backend->block_sums(kernels, pool, job, sums);
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

/* --- passes --- */

enum status kernels_pass_begin(struct kernels *kernels)
{
    const struct kernels_passes *passes = kernels->backend->passes;
    return passes ? passes->begin(kernels) : STATUS_UNSUPPORTED;
}

enum status kernels_pass_end(struct kernels *kernels, uint32_t pass, size_t most_bytes,
                             size_t *bytes)
{
    ASSERT(kernels->backend->passes && (pass < KERNELS_MAX_PASSES || pass == KERNELS_NO_PASS));
    return kernels->backend->passes->end(kernels, pass, most_bytes, bytes);
}

enum status kernels_pass_run(struct kernels *kernels, uint32_t pass)
{
    ASSERT(kernels->backend->passes && pass < KERNELS_MAX_PASSES);
    COUNT(kernels, passes);
    return kernels->backend->passes->run(kernels, pass);
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
    if (weight_type_is_fp8(embedding->type))
        return STATUS_UNSUPPORTED;
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

static bool heads_are_whole(const struct attention_shape *shape, const struct head_parameters *p)
{
    bool normed = p->q_norm.address || p->k_norm.address;
    return holds(&p->rope, 1, shape->head_dim, sizeof(float)) &&
           (!p->bias.address || holds(&p->bias, 1, qkv_width(shape), sizeof(float))) &&
           (!normed || (holds(&p->q_norm, 1, shape->head_dim, sizeof(float)) &&
                        holds(&p->k_norm, 1, shape->head_dim, sizeof(float))));
}

enum status kernels_rope_append(struct kernels *kernels, const struct step_batch *batch,
                                const struct attention_shape *shape,
                                const struct head_parameters *parameters,
                                const struct kv_layout *layout, uint32_t layer, struct buffer *qkv,
                                struct buffer *pool)
{
    TRY(check_attention(kernels, batch, shape, layout, layer, qkv));
    if (!heads_are_whole(shape, parameters))
        return STATUS_INVALID;
    uint64_t begun_ns = begin(kernels);
    enum status status =
        kernels->backend->rope_append(kernels, batch, shape, parameters, layout, layer, qkv, pool);
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

/* --- fused operations --- */

size_t kernels_inputs_bytes(const struct kernels *kernels, enum weight_type type, uint32_t rows,
                            uint32_t k)
{
    const struct kernels_fusion *fusion = kernels->backend->fusion;
    return fusion ? fusion->inputs_bytes(type, rows, k) : (size_t)rows * k * sizeof(float);
}

static bool inputs_hold(const struct kernels *kernels, const struct inputs *inputs, uint32_t rows)
{
    return kernels_inputs_bytes(kernels, inputs->type, rows, inputs->k) <= inputs->memory.bytes;
}

enum status kernels_fused_rmsnorm(struct kernels *kernels, const struct buffer *x,
                                  const struct buffer *weight, double eps,
                                  const struct buffer *rows, uint32_t row_count, struct inputs *out)
{
    const struct kernels_fusion *fusion = kernels->backend->fusion;
    if (!fusion)
        return kernels_rmsnorm(kernels, x, weight, eps, rows, row_count, out->k, &out->memory);
    if (out->k == 0 || !holds(weight, 1, out->k, sizeof(float)) ||
        !inputs_hold(kernels, out, row_count) ||
        !holds(x, rows ? 1 : row_count, out->k, sizeof(float)) ||
        (rows && !holds(rows, row_count, 1, sizeof(uint32_t))))
        return STATUS_INVALID;
    uint64_t begun_ns = begin(kernels);
    enum status status = fusion->rmsnorm(kernels, x, weight, eps, rows, row_count, out);
    end(kernels, KIND(rmsnorm), begun_ns);
    return status;
}

enum status kernels_fused_attention(struct kernels *kernels, const struct step_batch *batch,
                                    const struct attention_shape *shape,
                                    const struct kv_layout *layout, uint32_t layer,
                                    const struct buffer *qkv, const struct buffer *pool,
                                    struct inputs *out)
{
    const struct kernels_fusion *fusion = kernels->backend->fusion;
    if (!fusion)
        return kernels_attention(kernels, batch, shape, layout, layer, qkv, pool, &out->memory);
    TRY(check_attention(kernels, batch, shape, layout, layer, qkv));
    if (out->k != (uint64_t)shape->heads * shape->head_dim ||
        !inputs_hold(kernels, out, batch->rows))
        return STATUS_INVALID;
    uint64_t begun_ns = begin(kernels);
    enum status status = fusion->attention(kernels, batch, shape, layout, layer, qkv, pool, out);
    end(kernels, KIND(attention), begun_ns);
    return status;
}

static enum status check_epilogue(const struct kernels *kernels, const struct linear *linear,
                                  uint32_t rows, const struct epilogue *e)
{
    bool fits = true;
    if (e->kind == EPILOGUE_APPEND) {
        TRY(check_attention(kernels, e->batch, e->shape, e->layout, e->layer, &e->out));
        fits = e->batch->rows == rows && linear->n == qkv_width(e->shape) &&
               linear->pair == e->shape->head_dim / 2 && heads_are_whole(e->shape, e->heads);
    } else if (e->kind == EPILOGUE_SWIGLU)
        fits = e->gated.k == linear->pair && linear->n == 2 * (uint64_t)linear->pair &&
               inputs_hold(kernels, &e->gated, rows);
    else
        fits = holds(&e->out, rows, linear->n, sizeof(float));
    return fits ? STATUS_OK : STATUS_INVALID;
}

/* A fused layer by its parts. */
static enum status run_parts(struct kernels *kernels, const struct linear *linear,
                             const struct inputs *in, uint32_t rows, const struct epilogue *e)
{
    struct buffer out = e->out, pool = e->pool, gated = e->gated.memory;
    TRY(kernels_linear(kernels, linear, &in->memory, rows, e->kind == EPILOGUE_ADD, &out));
    if (e->kind == EPILOGUE_APPEND)
        return kernels_rope_append(kernels, e->batch, e->shape, e->heads, e->layout, e->layer, &out,
                                   &pool);
    return e->kind == EPILOGUE_SWIGLU ? kernels_swiglu(kernels, &out, rows, linear->n / 2, &gated)
                                      : STATUS_OK;
}

enum status kernels_fused_linear(struct kernels *kernels, const struct linear *linear,
                                 const struct inputs *in, uint32_t rows,
                                 const struct epilogue *epilogue)
{
    if (in->type != linear->type || in->k != linear->k || in->input_scale != linear->input_scale ||
        !inputs_hold(kernels, in, rows))
        return STATUS_INVALID;
    TRY(check_epilogue(kernels, linear, rows, epilogue));
    if (!kernels->backend->fusion)
        return run_parts(kernels, linear, in, rows, epilogue);
    uint64_t begun_ns = begin(kernels);
    enum status status = kernels->backend->fusion->linear(kernels, linear, in, rows, epilogue);
    end(kernels, KIND(linear), begun_ns);
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
