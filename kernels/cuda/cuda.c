/* The CUDA backend: opening a device, and operations as launches. Plans are pure (launch.h); here
 * they are given a device, and the launches of each turn go to the stream of KERNELS_STEPS. */
#include "kernels/cuda/cuda.h"

#include "common/base/assert.h"
#include "common/base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MODULE "cuda"

#define STAGING_BYTES       ((size_t)16 << 20)
#define SMALL_SHARED_BYTES  (48u << 10) /* every function is allowed as much */
#define MEMORY_SCRATCH_PART 64          /* scratch is at most this part of the device's memory */
#define MEMORY_STAGING_PART 128

/* --- calls of the driver --- */

enum status cuda_enter(struct cuda *self)
{
    static _Thread_local uint64_t current;
    if (atomic_load(&self->lost) != CUDA_OK)
        return STATUS_UNAVAILABLE;
    if (current == self->id)
        return STATUS_OK;
    TRY(cuda_check(self, self->driver.context_use(self->context), "cuCtxSetCurrent"));
    current = self->id;
    return STATUS_OK;
}

enum status cuda_check(struct cuda *self, int result, const char *call)
{
    if (result == CUDA_OK)
        return STATUS_OK;
    struct cuda_fault fault = cuda_fault_of(result);
    if (result == CUDA_OUT_OF_MEMORY)
        return STATUS_LIMIT;
    int none = CUDA_OK;
    if (!fault.lost) {
        log_error(MODULE, "msg=\"a call of the driver failed: %s\" call=%s result=%d name=%s",
                  fault.meaning, call, result, fault.name);
        return STATUS_INTERNAL;
    }
    if (atomic_compare_exchange_strong(&self->lost, &none, result))
        log_error(MODULE,
                  "msg=\"the device is lost to this process: %s\" code=cuda_device_lost device=%d "
                  "call=%s result=%d name=%s xid=\"%s\"",
                  fault.meaning, self->device, call, result, fault.name, fault.xid);
    return STATUS_UNAVAILABLE;
}

enum status cuda_find_function(struct cuda *self, const char *kernel,
                               struct cuda_function **function)
{
    int result = CUDA_SYMBOL_NOT_FOUND;
    for (uint32_t i = 0; i < self->module_count && result == CUDA_SYMBOL_NOT_FOUND; i++)
        result = self->driver.module_function(function, self->modules[i], kernel);
    return cuda_check(self, result, kernel);
}

/* Finds a kernel in the modules, and allows it its shared memory. */
static enum status find_kernel(struct cuda *self, const struct cuda_launch *launch,
                               struct cuda_kernel **found)
{
    uint32_t i = 0;
    while (i < self->kernel_count && strcmp(self->kernels[i].name, launch->kernel) != 0)
        i++;
    struct cuda_kernel *kernel = &self->kernels[i];
    if (i == self->kernel_count) {
        ASSERT(i < CUDA_KERNELS_MAX);
        *kernel = (struct cuda_kernel){.name = launch->kernel, .shared_bytes = SMALL_SHARED_BYTES};
        TRY(cuda_find_function(self, launch->kernel, &kernel->function));
        self->kernel_count++;
    }
    if (launch->shared_bytes > kernel->shared_bytes) {
        TRY(cuda_check(self,
                       self->driver.function_set(kernel->function, CUDA_FUNCTION_SHARED_BYTES,
                                                 (int)launch->shared_bytes),
                       launch->kernel));
        kernel->shared_bytes = launch->shared_bytes;
    }
    *found = kernel;
    return STATUS_OK;
}

/* Runs the launches of one turn of a plan. */
static enum status run_turn(struct cuda *self, enum status planned)
{
    TRY(planned);
    for (uint32_t i = 0; i < self->plan.count; i++) {
        struct cuda_launch *launch = &self->plan.launches[i];
        struct cuda_kernel *kernel;
        TRY(find_kernel(self, launch, &kernel));
        struct cuda_launch_attribute attributes[2];
        struct cuda_launch_config config = {
            .grid = {launch->grid[0], launch->grid[1], launch->grid[2]},
            .block = {launch->threads, 1, 1},
            .shared_bytes = launch->shared_bytes,
            .stream = self->streams[KERNELS_STEPS].handle,
            .attributes = attributes,
        };
        if (launch->cluster > 1)
            attributes[config.attribute_count++] = (struct cuda_launch_attribute){
                .id = CUDA_ATTRIBUTE_CLUSTER, .value.cluster = {launch->cluster, 1, 1}};
        if (launch->early)
            attributes[config.attribute_count++] =
                (struct cuda_launch_attribute){.id = CUDA_ATTRIBUTE_EARLY, .value.early = 1};
        void *parameters[] = {launch->parameters};
        TRY(cuda_check(self, self->driver.launch(&config, kernel->function, parameters, NULL),
                       launch->kernel));
    }
    return STATUS_OK;
}

/* Plans and launches an operation, turn by turn. PLAN is a call of launch.h with `self`. */
#define RUN_PLAN(SELF, PLAN)                                                                       \
    do {                                                                                           \
        TRY(cuda_enter(SELF));                                                                     \
        (SELF)->plan.next_row = 0;                                                                 \
        (SELF)->plan.done = false;                                                                 \
        while (!(SELF)->plan.done)                                                                 \
            TRY(run_turn((SELF), (PLAN)));                                                         \
    } while (0)

/* --- opening --- */

static void close_device(struct cuda *self)
{
    const struct cuda_driver *driver = &self->driver;
    cuda_monitor_close(self);
    if (self->context) {
        bool current = cuda_enter(self) == STATUS_OK;
        for (int i = 0; current && i < KERNELS_STREAMS; i++)
            if (self->streams[i].handle)
                (void)driver->stream_sync(self->streams[i].handle);
        cuda_disown(self);
        cuda_queues_deinit(self); /* a lost device's may hold runs of passes */
        cuda_passes_deinit(self);
        struct buffer *own[] = {&self->target.scratch, &self->target.tickets, &self->staging};
        for (size_t i = 0; i < sizeof own / sizeof *own; i++)
            if (own[i]->address)
                (void)driver->memory_free((uint64_t)(uintptr_t)own[i]->address);
        for (uint32_t i = 0; i < self->module_count; i++)
            (void)driver->module_unload(self->modules[i]);
        (void)driver->context_release(self->device);
    }
    pool_destroy(self->pool);
    free(self);
}

static void close_cuda(struct kernels *kernels)
{
    close_device(kernels->state);
}

/* A part of the device's memory, within bounds. */
static size_t part_of(size_t available, size_t part, size_t least, size_t most)
{
    size_t bytes = available / part / CUDA_ALIGN_BYTES * CUDA_ALIGN_BYTES;
    return bytes < least ? least : bytes > most ? most : bytes;
}

/* Allocates what plans and loading work in. */
static enum status take_scratch(struct kernels *kernels, struct error *err)
{
    struct cuda *self = kernels->state;
    size_t available = cuda_available_bytes(kernels);
    size_t scratch =
        part_of(available, MEMORY_SCRATCH_PART, CUDA_LEAST_SCRATCH_BYTES, CUDA_SCRATCH_BYTES);
    size_t staging =
        part_of(available, MEMORY_STAGING_PART, CUDA_LEAST_SCRATCH_BYTES, STAGING_BYTES);
    enum status status = cuda_alloc(kernels, scratch, &self->target.scratch);
    if (status == STATUS_OK)
        status = cuda_alloc(kernels, staging, &self->staging);
    if (status == STATUS_OK)
        status = cuda_alloc(kernels, CUDA_TICKETS * sizeof(uint32_t), &self->target.tickets);
    if (status == STATUS_LIMIT)
        return error_set(err, status,
                         "cuda:%d has %zu MiB of free memory, and the kernels work in %zu MiB: end "
                         "other processes of the device, or use another one (cuda_no_memory)",
                         self->device, available >> 20, (scratch + staging) >> 20);
    return status == STATUS_OK ? status
                               : error_set(err, status, "cuda:%d gives no memory", self->device);
}

static enum status open_context(struct cuda *self, const struct kernels_config *config,
                                struct error *err)
{
    const struct cuda_driver *driver = &self->driver;
    int sms = 0, shared = 0;
    const char *call = "cuDevicePrimaryCtxRetain";
    int result = driver->context_retain(&self->context, self->device);
    if (result != CUDA_OK)
        self->context = NULL;
    if (result == CUDA_OK && cuda_enter(self) != STATUS_OK) {
        call = "cuCtxSetCurrent";
        result = CUDA_INVALID_CONTEXT;
    }
    if (result == CUDA_OK) {
        call = "cuDeviceGetAttribute";
        result = driver->device_attribute(&sms, CUDA_DEVICE_SMS, self->device);
    }
    if (result == CUDA_OK)
        result = driver->device_attribute(&shared, CUDA_DEVICE_SHARED_BYTES, self->device);
    if (result == CUDA_OK)
        call = "cuModuleLoadData";
    uint32_t images = cuda_image_count ? (uint32_t)cuda_image_count : 1;
    for (uint32_t i = 0; i < images && result == CUDA_OK; i++) {
        result = driver->module_load(&self->modules[i], cuda_images[i]);
        self->module_count += result == CUDA_OK;
    }
    struct cuda_fault fault = cuda_fault_of(result);
    if (result != CUDA_OK)
        return error_set(err, result == CUDA_OUT_OF_MEMORY ? STATUS_LIMIT : STATUS_UNAVAILABLE,
                         "cuda:%u can't be opened: %s returns %d (%s: %s). Look at nvidia-smi, or "
                         "use another device (cuda_not_opened)",
                         config->ordinal, call, result, fault.name, fault.meaning);
    self->target.sms = (uint32_t)sms;
    self->target.gather_blocks = config->gather_blocks;
    self->target.shared_bytes = (uint32_t)shared;
    if (cuda_queues_init(self, !config->may_spin) != STATUS_OK)
        return error_set(err, STATUS_LIMIT, "cuda:%u gives no streams and events (cuda_not_opened)",
                         config->ordinal);
    return STATUS_OK;
}

static enum status open_cuda(struct kernels *kernels, const struct kernels_config *config,
                             struct error *err)
{
    static _Atomic uint64_t opened;
    struct cuda_facts facts;
    struct cuda *self = calloc(1, sizeof *self);
    if (!self)
        return error_set(err, STATUS_LIMIT, "no memory for the CUDA backend");
    kernels->state = self;
    self->id = atomic_fetch_add(&opened, 1) + 1;
    enum cuda_finding finding =
        cuda_driver_find(config->ordinal, &self->driver, &self->device, &facts);
    enum status status = cuda_explain(finding, &facts, err);
    if (status == STATUS_OK)
        status = pool_create(config->threads, config->cpus, config->may_spin, &self->pool, err);
    if (status == STATUS_OK)
        status = open_context(self, config, err);
    if (status == STATUS_OK)
        status = take_scratch(kernels, err);
    if (status != STATUS_OK) {
        close_device(self);
        return status;
    }
    self->target.hopper = facts.capability == 90;
    snprintf(self->isa, sizeof self->isa, "sm_%d", facts.capability);
    snprintf(self->name, sizeof self->name, CUDA_NUMERICS_NAME "-sm%d", facts.capability);
    snprintf(self->quantized_name, sizeof self->quantized_name,
             CUDA_QUANTIZED_NUMERICS_NAME "-sm%d", facts.capability);
    kernels->name = self->name;
    kernels->quantized_name = self->quantized_name;
    log_info(MODULE,
             "msg=\"a GPU is open\" device=cuda:%u name=\"%s\" capability=%d.%d sms=%u "
             "driver=%d.%d free_mib=%zu scratch_mib=%zu",
             config->ordinal, facts.device, facts.capability / 10, facts.capability % 10,
             self->target.sms, facts.version / 1000, facts.version % 1000 / 10,
             cuda_available_bytes(kernels) >> 20, self->target.scratch.bytes >> 20);
    cuda_monitor_open(self);
    return STATUS_OK;
}

static const char *cuda_isa(const struct kernels *kernels)
{
    const struct cuda *self = kernels->state;
    return self->isa;
}

static uint32_t cuda_pass_rows(const struct kernels *kernels)
{
    (void)kernels;
    return UINT32_MAX;
}

static enum status cuda_lacks(const struct kernels *kernels, enum weight_type type,
                              uint32_t head_dim, struct error *err)
{
    const struct cuda *self = kernels->state;
    const char *weights = cuda_refusal_weights(type, self->target.hopper),
               *head = cuda_refusal_head_dim(head_dim);
    if (!weights && !head)
        return STATUS_OK;
    return error_set(err, STATUS_UNSUPPORTED, "device cuda: %s: use %sdevice cpu (cuda_no_kernel)",
                     weights ? weights : head,
                     weight_type_is_fp8(type) ? "weights bf16, which widens them, or " : "");
}

static void cuda_work(struct kernels *kernels, uint32_t count, uint32_t grain, kernels_work *work,
                      void *context)
{
    struct cuda *self = kernels->state;
    pool_run(self->pool, count, grain, work, context);
    pool_rest(self->pool);
}

static size_t cuda_own_bytes(const struct kernels *kernels)
{
    const struct cuda *self = kernels->state;
    return self->target.scratch.bytes + self->target.tickets.bytes + self->staging.bytes;
}

/* --- layers --- */

/* Rows go to the device as they are, and a kernel packs them. Scales lie behind the rows. */
static enum status cuda_linear_load(struct kernels *kernels, struct linear *linear,
                                    uint32_t first_row, uint32_t row_count, const void *rows,
                                    const float *scales)
{
    struct cuda *self = kernels->state;
    size_t row_bytes = weight_row_bytes(linear->type, linear->k);
    size_t scale_bytes = scales ? weight_row_scales(linear->type, linear->k) * sizeof(float) : 0;
    size_t most = (self->staging.bytes - CUDA_ALIGN_BYTES) / (row_bytes + scale_bytes);
    if (!most)
        return STATUS_LIMIT;
    for (uint32_t at = 0; at < row_count;) {
        uint32_t count = (uint32_t)(row_count - at < most ? row_count - at : most);
        size_t bytes = count * row_bytes;
        size_t behind = (bytes + CUDA_ALIGN_BYTES - 1) / CUDA_ALIGN_BYTES * CUDA_ALIGN_BYTES;
        struct buffer packed_rows = {self->staging.address, bytes};
        struct buffer packed_scales = {(char *)self->staging.address + behind, count * scale_bytes};
        TRY(cuda_upload(kernels, KERNELS_STEPS, &packed_rows, 0,
                        (const char *)rows + at * row_bytes, bytes));
        TRY(cuda_upload(kernels, KERNELS_STEPS, &packed_scales, 0,
                        (const char *)scales + at * scale_bytes, count * scale_bytes));
        RUN_PLAN(self, cuda_plan_pack(&self->target, linear, first_row + at, count, &packed_rows,
                                      &packed_scales, &self->plan));
        at += count;
    }
    return STATUS_OK;
}

/* --- operations --- */

static enum status cuda_embed(struct kernels *kernels, const struct step_batch *batch,
                              const struct linear *embedding, struct buffer *x)
{
    struct cuda *self = kernels->state;
    RUN_PLAN(self, cuda_plan_embed(&self->target, batch, embedding, x, &self->plan));
    return STATUS_OK;
}

static enum status cuda_rmsnorm(struct kernels *kernels, const struct buffer *x,
                                const struct buffer *weight, double eps, const struct buffer *rows,
                                uint32_t row_count, uint32_t hidden, struct buffer *out)
{
    struct cuda *self = kernels->state;
    RUN_PLAN(self, cuda_plan_rmsnorm(&self->target, x, weight, eps, rows, row_count, hidden, out,
                                     &self->plan));
    return STATUS_OK;
}

static enum status cuda_linear(struct kernels *kernels, const struct linear *linear,
                               const struct buffer *in, uint32_t rows, bool accumulate,
                               struct buffer *out)
{
    struct cuda *self = kernels->state;
    RUN_PLAN(self, cuda_plan_linear(&self->target, linear, in, rows, accumulate, out, &self->plan));
    return STATUS_OK;
}

static enum status cuda_rope_append(struct kernels *kernels, const struct step_batch *batch,
                                    const struct attention_shape *shape,
                                    const struct head_parameters *parameters,
                                    const struct kv_layout *layout, uint32_t layer,
                                    struct buffer *qkv, struct buffer *pool)
{
    struct cuda *self = kernels->state;
    RUN_PLAN(self, cuda_plan_rope_append(&self->target, batch, shape, parameters, layout, layer,
                                         qkv, pool, &self->plan));
    return STATUS_OK;
}

static enum status cuda_attention(struct kernels *kernels, const struct step_batch *batch,
                                  const struct attention_shape *shape,
                                  const struct kv_layout *layout, uint32_t layer,
                                  const struct buffer *qkv, const struct buffer *pool,
                                  struct buffer *out)
{
    struct cuda *self = kernels->state;
    RUN_PLAN(self, cuda_plan_attention(&self->target, batch, shape, layout, layer, qkv, pool, out,
                                       &self->plan));
    return STATUS_OK;
}

static enum status cuda_swiglu(struct kernels *kernels, const struct buffer *gate_up, uint32_t rows,
                               uint32_t ffn, struct buffer *out)
{
    struct cuda *self = kernels->state;
    RUN_PLAN(self, cuda_plan_swiglu(&self->target, gate_up, rows, ffn, out, &self->plan));
    return STATUS_OK;
}

static size_t cuda_sample_scratch(const struct kernels *kernels, uint32_t vocab)
{
    (void)kernels;
    return cuda_sample_bytes(vocab);
}

static enum status cuda_sample(struct kernels *kernels, const struct buffer *logits, uint32_t rows,
                               uint32_t vocab, const struct buffer *draws, struct buffer *scratch,
                               struct buffer *drawn)
{
    struct cuda *self = kernels->state;
    RUN_PLAN(self, cuda_plan_sample(&self->target, logits, rows, vocab, draws, scratch, drawn,
                                    &self->plan));
    return STATUS_OK;
}

static enum status cuda_take_tokens(struct kernels *kernels, const struct buffer *from,
                                    uint32_t rows, const struct buffer *drawn,
                                    struct buffer *tokens)
{
    struct cuda *self = kernels->state;
    RUN_PLAN(self, cuda_plan_take_tokens(&self->target, from, rows, drawn, tokens, &self->plan));
    return STATUS_OK;
}

static enum status fused_rmsnorm(struct kernels *kernels, const struct buffer *x,
                                 const struct buffer *weight, double eps, const struct buffer *rows,
                                 uint32_t row_count, struct inputs *out)
{
    struct cuda *self = kernels->state;
    RUN_PLAN(self, cuda_plan_fused_rmsnorm(&self->target, x, weight, eps, rows, row_count, out,
                                           &self->plan));
    return STATUS_OK;
}

static enum status fused_attention(struct kernels *kernels, const struct step_batch *batch,
                                   const struct attention_shape *shape,
                                   const struct kv_layout *layout, uint32_t layer,
                                   const struct buffer *qkv, const struct buffer *pool,
                                   struct inputs *out)
{
    struct cuda *self = kernels->state;
    RUN_PLAN(self, cuda_plan_fused_attention(&self->target, batch, shape, layout, layer, qkv, pool,
                                             out, &self->plan));
    return STATUS_OK;
}

static enum status fused_linear(struct kernels *kernels, const struct linear *linear,
                                const struct inputs *in, uint32_t rows,
                                const struct epilogue *epilogue)
{
    struct cuda *self = kernels->state;
    RUN_PLAN(self, cuda_plan_fused_linear(&self->target, linear, in, rows, epilogue, &self->plan));
    return STATUS_OK;
}

static const struct kernels_fusion cuda_fusion = {
    .inputs_bytes = cuda_inputs_bytes,
    .rmsnorm = fused_rmsnorm,
    .attention = fused_attention,
    .linear = fused_linear,
};

const struct kernels_backend kernels_cuda = {
    .name = CUDA_NUMERICS_NAME, /* open_cuda adds the compute capability */
    .quantized_name = CUDA_QUANTIZED_NUMERICS_NAME,
    .packing = CUDA_PACKING,
    .weight_type = WEIGHT_BF16,
    .kv_type = KV_BF16,
    .device_is_host = false,
    .queues = &cuda_queues,
    .sharing = &cuda_sharing,
    .fusion = &cuda_fusion,
    .passes = &cuda_passes,
    .open = open_cuda,
    .close = close_cuda,
    .isa = cuda_isa,
    .pass_rows = cuda_pass_rows,
    .available_bytes = cuda_available_bytes,
    .whole_bytes = cuda_whole_bytes,
    .own_bytes = cuda_own_bytes,
    .lacks = cuda_lacks,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .adopt = cuda_adopt,
    .host_alloc = cuda_host_alloc,
    .host_free = cuda_host_free,
    .linear_bytes = cuda_linear_bytes,
    .linear_load = cuda_linear_load,
    .work = cuda_work,
    .upload = cuda_upload,
    .read_back = cuda_read_back,
    .copy = cuda_copy,
    .block_sums = cuda_block_sums,
    .sync = cuda_sync,
    .embed = cuda_embed,
    .rmsnorm = cuda_rmsnorm,
    .linear = cuda_linear,
    .rope_append = cuda_rope_append,
    .attention = cuda_attention,
    .swiglu = cuda_swiglu,
    .sample_bytes = cuda_sample_scratch,
    .sample = cuda_sample,
    .take_tokens = cuda_take_tokens,
    .watch = cuda_watch,
    .measure_peak = cuda_measure_peak,
    .measure_read = cuda_measure_read,
};
