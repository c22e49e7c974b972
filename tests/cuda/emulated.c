#include "tests/cuda/emulated.h"

#include "kernels/backend.h"
#include "tests/cuda/emulate/emulate.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE          4096
#define SCRATCH_BYTES (8u << 20)

const bool emulated_counts = true;

struct emulated *emulated_of(struct kernels *kernels)
{
    return kernels->state;
}

/* --- memory that ends at a page that faults --- */

static size_t span(size_t bytes)
{
    return (bytes + 15 + 2 * PAGE - 1) / PAGE * PAGE;
}

static enum status guarded_alloc(struct kernels *kernels, size_t bytes, struct buffer *buffer)
{
    (void)kernels;
    char *memory =
        mmap(NULL, span(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return STATUS_LIMIT;
    char *end = memory + span(bytes) - PAGE;
    assert_int_equal(mprotect(end, PAGE, PROT_NONE), 0);
    *buffer = (struct buffer){.address = end - (bytes + 15) / 16 * 16, .bytes = bytes};
    return STATUS_OK;
}

static void guarded_free(struct kernels *kernels, struct buffer *buffer)
{
    (void)kernels;
    char *end = (char *)buffer->address + (buffer->bytes + 15) / 16 * 16;
    munmap(end + PAGE - span(buffer->bytes), span(buffer->bytes));
    *buffer = (struct buffer){0};
}

static enum status copy_in(struct kernels *kernels, enum kernels_stream stream,
                           struct buffer *target, size_t offset, const void *host, size_t bytes)
{
    (void)kernels;
    (void)stream;
    memcpy((char *)target->address + offset, host, bytes);
    return STATUS_OK;
}

static enum status copy_out(struct kernels *kernels, enum kernels_stream stream,
                            const struct buffer *source, size_t offset, void *host, size_t bytes)
{
    (void)kernels;
    (void)stream;
    memcpy(host, (const char *)source->address + offset, bytes);
    return STATUS_OK;
}

static enum status nothing_to_wait_for(struct kernels *kernels)
{
    (void)kernels;
    return STATUS_OK;
}

static const char *no_isa(const struct kernels *kernels)
{
    (void)kernels;
    return "emulated";
}

static uint32_t pass_rows(const struct kernels *kernels)
{
    (void)kernels;
    return 1;
}

/* --- operations --- */

void emulated_run(struct kernels *kernels, const struct cuda_plan *plan)
{
    struct emulated *self = kernels->state;
    const struct cuda_launch *launches[CUDA_MAX_LAUNCHES];
    struct emulated_start *starts[CUDA_MAX_LAUNCHES] = {0};
    for (uint32_t i = 0; i < plan->count; i++)
        launches[i] = &plan->launches[i];
    for (uint32_t i = 0; i < plan->count; i++) {
        char report[1024];
        self->launches++;
        if (emulate_next(launches + i, starts + i, plan->count - i, self->seed++, report,
                         sizeof report))
            continue;
        if (!self->breaks)
            fail_msg("%s", report);
        self->broken++;
    }
}

/* Runs an operation's plans until all rows are done. */
#define RUN(CALL)                                                                                  \
    do {                                                                                           \
        struct emulated *self = kernels->state;                                                    \
        struct cuda_plan plan = {0};                                                               \
        do {                                                                                       \
            enum status status = CALL;                                                             \
            if (status != STATUS_OK)                                                               \
                return status;                                                                     \
            emulated_run(kernels, &plan);                                                          \
        } while (!plan.done);                                                                      \
        return STATUS_OK;                                                                          \
    } while (0)

static enum status load(struct kernels *kernels, struct linear *linear, uint32_t first_row,
                        uint32_t row_count, const void *rows, const float *scales)
{
    struct buffer staged = {.address = (void *)(uintptr_t)rows};
    struct buffer staged_scales = {.address = (void *)(uintptr_t)scales};
    RUN(cuda_plan_pack(&self->target, linear, first_row, row_count, &staged, &staged_scales,
                       &plan));
}

static enum status sums(struct kernels *kernels, const struct buffer *pool,
                        const struct kv_sum_job *job, struct buffer *out)
{
    RUN(cuda_plan_block_sums(&self->target, pool, job, out, &plan));
}

static enum status gather(struct kernels *kernels, const struct buffer *source,
                          struct buffer *target, const struct kv_move *moves, uint32_t count)
{
    RUN(cuda_plan_gather(&self->target, source, target, moves, count, &plan));
}

static enum status embed(struct kernels *kernels, const struct step_batch *batch,
                         const struct linear *embedding, struct buffer *x)
{
    RUN(cuda_plan_embed(&self->target, batch, embedding, x, &plan));
}

static enum status rmsnorm(struct kernels *kernels, const struct buffer *x,
                           const struct buffer *weight, double eps, const struct buffer *rows,
                           uint32_t row_count, uint32_t hidden, struct buffer *out)
{
    RUN(cuda_plan_rmsnorm(&self->target, x, weight, eps, rows, row_count, hidden, out, &plan));
}

static enum status linear_op(struct kernels *kernels, const struct linear *linear,
                             const struct buffer *in, uint32_t rows, bool accumulate,
                             struct buffer *out)
{
    RUN(cuda_plan_linear(&self->target, linear, in, rows, accumulate, out, &plan));
}

static enum status rope_append(struct kernels *kernels, const struct step_batch *batch,
                               const struct attention_shape *shape,
                               const struct head_parameters *parameters,
                               const struct kv_layout *layout, uint32_t layer, struct buffer *qkv,
                               struct buffer *pool)
{
    RUN(cuda_plan_rope_append(&self->target, batch, shape, parameters, layout, layer, qkv, pool,
                              &plan));
}

static enum status attention(struct kernels *kernels, const struct step_batch *batch,
                             const struct attention_shape *shape, const struct kv_layout *layout,
                             uint32_t layer, const struct buffer *qkv, const struct buffer *pool,
                             struct buffer *out)
{
    RUN(cuda_plan_attention(&self->target, batch, shape, layout, layer, qkv, pool, out, &plan));
}

static enum status swiglu(struct kernels *kernels, const struct buffer *gate_up, uint32_t rows,
                          uint32_t ffn, struct buffer *out)
{
    RUN(cuda_plan_swiglu(&self->target, gate_up, rows, ffn, out, &plan));
}

static enum status fused_rmsnorm(struct kernels *kernels, const struct buffer *x,
                                 const struct buffer *weight, double eps, const struct buffer *rows,
                                 uint32_t row_count, struct inputs *out)
{
    RUN(cuda_plan_fused_rmsnorm(&self->target, x, weight, eps, rows, row_count, out, &plan));
}

static enum status fused_attention(struct kernels *kernels, const struct step_batch *batch,
                                   const struct attention_shape *shape,
                                   const struct kv_layout *layout, uint32_t layer,
                                   const struct buffer *qkv, const struct buffer *pool,
                                   struct inputs *out)
{
    RUN(cuda_plan_fused_attention(&self->target, batch, shape, layout, layer, qkv, pool, out,
                                  &plan));
}

static enum status fused_linear(struct kernels *kernels, const struct linear *linear,
                                const struct inputs *in, uint32_t rows,
                                const struct epilogue *epilogue)
{
    RUN(cuda_plan_fused_linear(&self->target, linear, in, rows, epilogue, &plan));
}

static const struct kernels_fusion fusion = {
    .inputs_bytes = cuda_inputs_bytes,
    .rmsnorm = fused_rmsnorm,
    .attention = fused_attention,
    .linear = fused_linear,
};

static size_t sample_bytes(const struct kernels *kernels, uint32_t vocab)
{
    (void)kernels;
    return cuda_sample_bytes(vocab);
}

static enum status sample(struct kernels *kernels, const struct buffer *logits, uint32_t rows,
                          uint32_t vocab, const struct buffer *draws, struct buffer *scratch,
                          struct buffer *drawn)
{
    RUN(cuda_plan_sample(&self->target, logits, rows, vocab, draws, scratch, drawn, &plan));
}

static enum status take_tokens(struct kernels *kernels, const struct buffer *from, uint32_t rows,
                               const struct buffer *drawn, struct buffer *tokens)
{
    RUN(cuda_plan_take_tokens(&self->target, from, rows, drawn, tokens, &plan));
}

static const struct kernels_sharing sharing = {.gather = gather};

static const struct kernels_backend backend = {
    .name = CUDA_NUMERICS_NAME,
    .quantized_name = CUDA_QUANTIZED_NUMERICS_NAME,
    .packing = CUDA_PACKING,
    .weight_type = WEIGHT_BF16,
    .kv_type = KV_BF16,
    .device_is_host = true,
    .fusion = &fusion,
    .isa = no_isa,
    .pass_rows = pass_rows,
    .alloc = guarded_alloc,
    .free = guarded_free,
    .linear_bytes = cuda_linear_bytes,
    .linear_load = load,
    .upload = copy_in,
    .read_back = copy_out,
    .block_sums = sums,
    .sharing = &sharing,
    .sync = nothing_to_wait_for,
    .embed = embed,
    .rmsnorm = rmsnorm,
    .linear = linear_op,
    .rope_append = rope_append,
    .attention = attention,
    .swiglu = swiglu,
    .sample_bytes = sample_bytes,
    .sample = sample,
    .take_tokens = take_tokens,
};

/* A library with changed kernels (test_kernel_mutants.py) takes the place of the program's. */
static void load_mutant(void)
{
    static bool is_loaded;
    const char *path = getenv("BATON_CUDA_MUTANT");
    if (!path || is_loaded)
        return;
    is_loaded = true;
    if (!dlopen(path, RTLD_NOW | RTLD_GLOBAL))
        fail_msg("%s", dlerror());
}

struct kernels *emulated_open(bool hopper)
{
    load_mutant();
    struct kernels *kernels = calloc(1, sizeof *kernels);
    struct emulated *self = calloc(1, sizeof *self);
    assert_true(kernels && self);
    kernels->backend = &backend;
    kernels->threads = 1;
    kernels->state = self;
    self->seed = 1;
    self->target = (struct cuda_target){.hopper = hopper, .sms = 5, .shared_bytes = 227 << 10};
    struct buffer *scratch = &self->target.scratch, *tickets = &self->target.tickets;
    assert_int_equal(guarded_alloc(kernels, SCRATCH_BYTES, scratch), STATUS_OK);
    assert_int_equal(guarded_alloc(kernels, CUDA_TICKETS * sizeof(uint32_t), tickets), STATUS_OK);
    return kernels;
}

void emulated_close(struct kernels *kernels)
{
    struct emulated *self = kernels->state;
    const uint32_t *tickets = self->target.tickets.address;
    for (uint32_t i = 0; i < CUDA_TICKETS && !self->broken; i++)
        assert_int_equal(tickets[i], 0);
    self->target.scratch.bytes = SCRATCH_BYTES;
    guarded_free(kernels, &self->target.scratch);
    guarded_free(kernels, &self->target.tickets);
    free(self);
    free(kernels);
}
