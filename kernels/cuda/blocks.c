/* Blocks of the KV pool beside a step: memory that processes share, sums, and gathers from another
 * process's memory. Plans come first; they are pure. Only the thread of KERNELS_TRANSFERS launches
 * them, so they have a plan and kernels of their own. */
#include "kernels/cuda/cuda.h"

#include "common/base/assert.h"
#include "common/base/u32.h"
#include "kernels/backend.h"
#include "kernels/cuda/parameters.h"

#include <string.h>
#include <unistd.h>

/* Blocks of a launch. So many copy at a quarter of the memory's rate on an H200, and leave the
 * others to the steps. */
#define GATHER_LEAST_BLOCKS 16
#define GATHER_MOST_BLOCKS  32

_Static_assert(CUDA_CRC_POLYNOMIAL == CRC32C_POLYNOMIAL, "every backend gives the same sums");

/* --- plans --- */

static void plan_one(struct cuda_plan *plan, const char *kernel, uint32_t blocks, uint32_t threads,
                     uint32_t shared_bytes, const void *parameters, size_t bytes)
{
    ASSERT(bytes <= CUDA_PARAMETER_BYTES);
    *plan = (struct cuda_plan){.done = true, .count = 1};
    plan->launches[0] = (struct cuda_launch){.kernel = kernel,
                                             .grid = {blocks, 1, 1},
                                             .threads = threads,
                                             .cluster = 1,
                                             .shared_bytes = shared_bytes,
                                             .parameter_bytes = (uint32_t)bytes};
    memcpy(plan->launches[0].parameters, parameters, bytes);
}

static uint32_t some_of(const struct cuda_target *target)
{
    uint32_t blocks = target->sms / 4;
    return blocks < GATHER_LEAST_BLOCKS  ? GATHER_LEAST_BLOCKS
           : blocks > GATHER_MOST_BLOCKS ? GATHER_MOST_BLOCKS
                                         : blocks;
}

enum status cuda_plan_gather(const struct cuda_target *target, const struct buffer *source,
                             const struct buffer *pool, const struct kv_move *moves, uint32_t count,
                             struct cuda_plan *plan)
{
    struct gather_parameters p = {
        .source = source->address, .target = pool->address, .count = count};
    for (uint32_t i = 0; i < count; i++) {
        uint64_t units = moves[i].bytes / 16;
        if ((moves[i].from | moves[i].to | moves[i].bytes) % 16 || units > UINT32_MAX)
            return STATUS_INVALID;
        p.moves[i].source = moves[i].from;
        p.moves[i].target = moves[i].to;
        p.moves[i].units = (uint32_t)units;
        p.moves[i].first_piece = p.pieces;
        p.pieces += (uint32_t)((moves[i].bytes + CUDA_PIECE_BYTES - 1) / CUDA_PIECE_BYTES);
    }
    uint32_t blocks = target->gather_blocks ? target->gather_blocks : some_of(target);
    plan_one(plan, "gather_moves", p.pieces < blocks && p.pieces ? p.pieces : blocks,
             CUDA_GATHER_THREADS, 0, &p, sizeof p);
    return STATUS_OK;
}

/* The product of two polynomials over GF(2) modulo Castagnoli's; bit 31 is x^0. */
static uint32_t crc_product(uint32_t a, uint32_t b)
{
    uint32_t sum = 0;
    for (uint32_t bit = 0; bit < 32; bit++) {
        sum ^= a & (0x80000000u >> bit) ? b : 0;
        b = b >> 1 ^ (b & 1 ? CUDA_CRC_POLYNOMIAL : 0);
    }
    return sum;
}

static uint32_t crc_power(uint64_t exponent)
{
    uint32_t power = 0x80000000u, square = 0x40000000u;
    for (; exponent; exponent >>= 1) {
        if (exponent & 1)
            power = crc_product(power, square);
        square = crc_product(square, square);
    }
    return power;
}

enum status cuda_plan_block_sums(const struct cuda_target *target, const struct buffer *pool,
                                 const struct kv_sum_job *job, const struct buffer *sums,
                                 struct cuda_plan *plan)
{
    struct block_sums_parameters p = {.pool = (const uint8_t *)pool->address + job->first_offset,
                                      .sums = sums->address,
                                      .block_bytes = job->block_bytes,
                                      .count = job->count,
                                      .runs = (uint32_t)(job->block_bytes / job->run_bytes),
                                      .run_bytes = (uint32_t)job->run_bytes,
                                      .row_power = crc_power(1024)};
    p.initial = crc_product(crc_power(8 * (uint64_t)job->run_bytes), ~0u);
    for (uint32_t lane = 0; lane < 32; lane++)
        p.lane_power[lane] = crc_power(32 * (32 - lane));
    memcpy(p.blocks, job->blocks, job->count * sizeof *job->blocks);
    uint32_t wanted = divide_up(p.count * p.runs, CUDA_ROW_THREADS / 32), most = some_of(target);
    plan_one(plan, "block_sums", wanted < most ? wanted : most, CUDA_ROW_THREADS,
             1024 * sizeof(uint32_t), &p, sizeof p);
    return STATUS_OK;
}

/* --- launches --- */

static enum status launch(struct cuda *self, enum cuda_beside which)
{
    struct cuda_launch *launch = &self->beside_plan.launches[0];
    struct cuda_function **function = &self->beside[which];
    if (!*function)
        TRY(cuda_find_function(self, launch->kernel, function));
    struct cuda_launch_config config = {.grid = {launch->grid[0], 1, 1},
                                        .block = {launch->threads, 1, 1},
                                        .shared_bytes = launch->shared_bytes,
                                        .stream = self->streams[KERNELS_TRANSFERS].handle};
    void *parameters[] = {launch->parameters};
    return cuda_check(self, self->driver.launch(&config, *function, parameters, NULL),
                      launch->kernel);
}

enum status cuda_block_sums(struct kernels *kernels, const struct buffer *pool,
                            const struct kv_sum_job *job, struct buffer *sums)
{
    struct cuda *self = kernels->state;
    TRY(cuda_enter(self));
    TRY(cuda_plan_block_sums(&self->target, pool, job, sums, &self->beside_plan));
    return launch(self, CUDA_BESIDE_SUMS);
}

static enum status gather(struct kernels *kernels, const struct buffer *source,
                          struct buffer *target, const struct kv_move *moves, uint32_t count)
{
    struct cuda *self = kernels->state;
    TRY(cuda_enter(self));
    TRY(cuda_plan_gather(&self->target, source, target, moves, count, &self->beside_plan));
    return launch(self, CUDA_BESIDE_GATHER);
}

/* --- memory that processes share --- */

/* Turns a result into a status with a sentence. A lost device is noted as every other call does. */
static enum status told(struct cuda *self, int result, const char *call, struct error *err)
{
    if (result == CUDA_OK)
        return STATUS_OK;
    struct cuda_fault fault = cuda_fault_of(result);
    enum status status = result == CUDA_OUT_OF_MEMORY ? STATUS_LIMIT : STATUS_UNAVAILABLE;
    if (fault.lost)
        status = cuda_check(self, result, call);
    return error_set(err, status, "%s returns %d (%s: %s)", call, result, fault.name,
                     fault.meaning);
}

static struct cuda_memory_kind kind_of(const struct cuda *self)
{
    return (struct cuda_memory_kind){.type = CUDA_MEMORY_PINNED,
                                     .handle_types = CUDA_HANDLE_DESCRIPTOR,
                                     .location = {CUDA_LOCATION_DEVICE, self->device}};
}

static enum status round_up(struct cuda *self, size_t *bytes, struct error *err)
{
    struct cuda_memory_kind kind = kind_of(self);
    size_t granularity = 0;
    TRY(told(self, self->driver.memory_granularity(&granularity, &kind, 0),
             "cuMemGetAllocationGranularity", err));
    if (!granularity || *bytes > SIZE_MAX - granularity)
        return error_set(err, STATUS_LIMIT, "%zu bytes of a device's memory", *bytes);
    *bytes = (*bytes + granularity - 1) / granularity * granularity;
    return STATUS_OK;
}

static size_t shared_bytes(struct kernels *kernels, size_t bytes)
{
    struct cuda *self = kernels->state;
    if (cuda_enter(self) == STATUS_OK)
        (void)!round_up(self, &bytes, NULL); /* kernels_alloc_shared will say why */
    return bytes;
}

/* Gives the memory of the handle addresses, with these rights. bytes: a multiple of its unit. */
static enum status map_handle(struct cuda *self, uint64_t handle, size_t bytes, int rights,
                              uint64_t *address, struct error *err)
{
    const struct cuda_driver *driver = &self->driver;
    const struct cuda_access access = {{CUDA_LOCATION_DEVICE, self->device}, rights};
    uint64_t at = 0;
    TRY(told(self, driver->address_reserve(&at, bytes, 0, 0, 0), "cuMemAddressReserve", err));
    enum status status = told(self, driver->memory_map(at, bytes, 0, handle, 0), "cuMemMap", err);
    if (status == STATUS_OK) {
        status = told(self, driver->memory_access(at, bytes, &access, 1), "cuMemSetAccess", err);
        if (status != STATUS_OK)
            (void)driver->memory_unmap(at, bytes);
    }
    if (status != STATUS_OK)
        (void)driver->address_free(at, bytes);
    else
        *address = at;
    return status;
}

void cuda_free_shared(struct cuda *self)
{
    struct cuda_shared *shared = &self->shared;
    if (!shared->bytes)
        return;
    /* Freeing waits for the device; unmapping doesn't. */
    for (int i = 0; i < KERNELS_STREAMS; i++)
        (void)!cuda_check(self, self->driver.stream_sync(self->streams[i].handle),
                          "cuStreamSynchronize");
    (void)self->driver.memory_unmap(shared->address, shared->bytes);
    (void)self->driver.address_free(shared->address, shared->bytes);
    (void)self->driver.memory_release(shared->handle);
    *shared = (struct cuda_shared){0};
}

static enum status alloc_shared(struct kernels *kernels, size_t bytes, struct buffer *buffer,
                                struct error *err)
{
    struct cuda *self = kernels->state;
    const struct cuda_driver *driver = &self->driver;
    struct cuda_memory_kind kind = kind_of(self);
    struct cuda_shared made = {.bytes = bytes};
    int maps = 0, exports = 0, cards = 0;
    ASSERT(!self->shared.bytes);
    TRY(cuda_enter(self));
    if (driver->device_attribute(&maps, CUDA_DEVICE_MAPS_MEMORY, self->device) != CUDA_OK ||
        driver->device_attribute(&exports, CUDA_DEVICE_EXPORTS, self->device) != CUDA_OK || !maps ||
        !exports)
        return error_set(err, STATUS_UNSUPPORTED,
                         "cuda:%d exports no memory by a file descriptor (cuda_not_shared)",
                         self->device);
    (void)driver->device_attribute(&cards, CUDA_DEVICE_CARDS, self->device);
    kind.rdma = cards != 0; /* the lane rdma */
    TRY(round_up(self, &made.bytes, err));
    TRY(told(self, driver->memory_create(&made.handle, made.bytes, &kind, 0), "cuMemCreate", err));
    enum status status =
        map_handle(self, made.handle, made.bytes, CUDA_READS_AND_WRITES, &made.address, err);
    if (status != STATUS_OK) {
        (void)driver->memory_release(made.handle);
        return status;
    }
    self->shared = made;
    struct cuda_stream_handle *stream = self->streams[KERNELS_STEPS].handle;
    status = told(self, driver->fill(made.address, 0, made.bytes, stream), "cuMemsetD8Async", err);
    if (status == STATUS_OK)
        status = told(self, driver->stream_sync(stream), "cuMemsetD8Async", err);
    if (status != STATUS_OK)
        cuda_free_shared(self);
    else
        *buffer = (struct buffer){(void *)(uintptr_t)made.address, bytes};
    return status;
}

static enum status share(struct kernels *kernels, int *fd, struct error *err)
{
    struct cuda *self = kernels->state;
    ASSERT(self->shared.bytes);
    TRY(cuda_enter(self));
    return told(self,
                self->driver.memory_export(fd, self->shared.handle, CUDA_HANDLE_DESCRIPTOR, 0),
                "cuMemExportToShareableHandle", err);
}

static enum status map_shared(struct kernels *kernels, int fd, size_t bytes, struct buffer *buffer,
                              struct error *err)
{
    struct cuda *self = kernels->state;
    uint64_t handle = 0, address = 0;
    size_t rounded = bytes;
    TRY(cuda_enter(self));
    TRY(round_up(self, &rounded, err));
    TRY(told(self,
             self->driver.memory_import(&handle, (void *)(intptr_t)fd, CUDA_HANDLE_DESCRIPTOR),
             "cuMemImportFromShareableHandle", err));
    enum status status = map_handle(self, handle, rounded, CUDA_READS, &address, err);
    (void)self->driver.memory_release(handle); /* the mapping keeps the memory */
    if (status == STATUS_OK)
        *buffer = (struct buffer){(void *)(uintptr_t)address, bytes};
    return status;
}

static void unmap_shared(struct kernels *kernels, struct buffer *buffer)
{
    struct cuda *self = kernels->state;
    uint64_t address = (uint64_t)(uintptr_t)buffer->address;
    size_t bytes = buffer->bytes;
    if (cuda_enter(self) == STATUS_OK && round_up(self, &bytes, NULL) == STATUS_OK) {
        (void)self->driver.memory_unmap(address, bytes);
        (void)self->driver.address_free(address, bytes);
    }
    *buffer = (struct buffer){0};
}

const struct kernels_sharing cuda_sharing = {.bytes = shared_bytes,
                                             .alloc = alloc_shared,
                                             .share = share,
                                             .map = map_shared,
                                             .unmap = unmap_shared,
                                             .gather = gather};
