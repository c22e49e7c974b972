/* Shared by the tests of transports with pools on a device. The device of these tests does nothing
 * until it is asked for a copy twice, or waited for: a transport that sends, counts or gives back
 * bytes too early is seen in every run. */
#ifndef BATON_TESTS_TRANSPORT_DEVICE_H
#define BATON_TESTS_TRANSPORT_DEVICE_H

#include "common/kv/transport/kv_checksum.h"
#include "common/kv/transport/kv_staging.h"

#include "transport_world.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/un.h>

#define COPIES 512
#define PROBE_OFFSET                                                                               \
    ((POOL_BYTES + KV_PROBE_PIECE_BYTES - 1) / KV_PROBE_PIECE_BYTES * KV_PROBE_PIECE_BYTES)
#define DEVICE_BYTES (PROBE_OFFSET + KV_PROBE_ROOM)

struct copy {
    uint8_t *target;
    const uint8_t *source;
    size_t bytes;
    struct kv_sum_job sums; /* instead of the bytes */
    uint32_t blocks[KV_SUMS_AT_ONCE];
    struct kv_move moves[KV_MOVES_AT_ONCE]; /* between the two, instead of its bytes */
    uint32_t move_count;
};

struct device {
    struct kv_copier copier;
    uint8_t *memory; /* [DEVICE_BYTES] never the transport's */
    int fd;          /* the memory's */
    struct copy copies[COPIES];
    uint64_t queued, done, asked; /* counted up; asked: up to this copy, once */
    bool fails;
    bool held;                /* copies end by a wait alone */
    const char *maps_nothing; /* why other processes' memory can't be mapped; NULL: it can */
    bool idles;               /* gathers copy nothing */
    uint64_t lies_at;         /* gathers flip a bit of the byte that comes from there; 0: none */
    uint32_t gathers;
};

static inline void run(struct device *device, uint64_t copy)
{
    for (; device->done < copy; device->done++) {
        const struct copy *next = &device->copies[device->done % COPIES];
        uint32_t *sums = (uint32_t *)(void *)next->target;
        if (device->fails)
            continue;
        for (uint32_t i = 0; i < next->sums.count; i++)
            for (size_t at = 0; at < next->sums.block_bytes; at += next->sums.run_bytes)
                *sums++ = kv_checksum(next->source + next->blocks[i] * next->sums.block_bytes + at,
                                      next->sums.run_bytes);
        for (uint32_t i = 0; i < next->move_count && !device->idles; i++) {
            const struct kv_move *move = &next->moves[i];
            memcpy(next->target + move->to, next->source + move->from, move->bytes);
            if (device->lies_at && device->lies_at >= move->from &&
                device->lies_at - move->from < move->bytes)
                next->target[move->to + device->lies_at - move->from] ^= 4;
        }
        if (!next->sums.count && !next->move_count)
            memcpy(next->target, next->source, next->bytes);
    }
}

static inline enum status queue(struct device *device, struct copy next, uint64_t *copy)
{
    eventfd_write(device->copier.ended_fd, 1); /* it wants to be asked */
    assert_true(device->queued - device->done < COPIES);
    device->copies[device->queued % COPIES] = next;
    *copy = ++device->queued;
    return STATUS_OK;
}

static inline enum status copy_in(void *state, uint64_t offset, const void *host, size_t bytes,
                                  uint64_t *copy)
{
    struct device *device = state;
    return queue(device,
                 (struct copy){.target = device->memory + offset, .source = host, .bytes = bytes},
                 copy);
}

static inline enum status copy_out(void *state, uint64_t offset, void *host, size_t bytes,
                                   uint64_t *copy)
{
    struct device *device = state;
    memset(host, 0xa5, bytes); /* until it runs */
    return queue(device,
                 (struct copy){.target = host, .source = device->memory + offset, .bytes = bytes},
                 copy);
}

static inline enum status sum(void *state, const struct kv_sum_job *job, uint32_t *sums,
                              uint64_t *copy)
{
    struct device *device = state;
    struct copy next = {
        .target = (uint8_t *)sums, .source = device->memory + job->first_offset, .sums = *job};
    memcpy(next.blocks, job->blocks, job->count * sizeof *job->blocks);
    memset(sums, 0xa5, job->count * (job->block_bytes / job->run_bytes) * sizeof *sums);
    return queue(device, next, copy);
}

static inline enum status await(void *state, uint64_t copy)
{
    struct device *device = state;
    run(device, copy);
    return device->fails ? STATUS_INTERNAL : STATUS_OK;
}

static inline bool poll_copy(void *state, uint64_t copy, enum status *status)
{
    struct device *device = state;
    if (device->asked >= copy && !device->held)
        *status = await(state, copy);
    else {
        device->asked = copy;
        if (!device->held)
            eventfd_write(device->copier.ended_fd, 1);
    }
    return device->done >= copy;
}

static inline enum status share(void *state, int *fd, struct error *err)
{
    (void)err;
    *fd = fcntl(((struct device *)state)->fd, F_DUPFD_CLOEXEC, 0);
    return STATUS_OK;
}

static inline enum status map(void *state, int fd, uint64_t bytes, struct kv_mapping *mapping,
                              struct error *err)
{
    struct device *device = state;
    if (device->maps_nothing)
        return error_set(err, STATUS_UNAVAILABLE, "%s", device->maps_nothing);
    void *memory = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    assert_true(memory != MAP_FAILED);
    *mapping = (struct kv_mapping){memory, bytes};
    return STATUS_OK;
}

static inline void unmap(void *state, struct kv_mapping *mapping)
{
    const struct device *device = state;
    for (uint64_t copy = device->done; copy < device->queued; copy++) /* nothing would read it */
        assert_ptr_not_equal(device->copies[copy % COPIES].source, mapping->address);
    munmap(mapping->address, mapping->bytes);
    *mapping = (struct kv_mapping){0};
}

static inline enum status gather(void *state, const struct kv_mapping *from,
                                 const struct kv_move *moves, uint32_t count, uint64_t *copy)
{
    struct device *device = state;
    struct copy next = {.target = device->memory, .source = from->address, .move_count = count};
    memcpy(next.moves, moves, count * sizeof *moves);
    device->gathers++;
    for (uint32_t i = 0; i < count && !device->idles; i++)
        memset(device->memory + moves[i].to, 0xa5, moves[i].bytes); /* until it runs */
    return queue(device, next, copy);
}

static inline void device_open(struct device *device)
{
    *device = (struct device){.fd = memfd_create("device", MFD_CLOEXEC)};
    assert_int_equal(ftruncate(device->fd, DEVICE_BYTES), 0);
    device->memory = mmap(NULL, DEVICE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, device->fd, 0);
    assert_true(device->memory != MAP_FAILED);
    device->copier = (struct kv_copier){.state = device,
                                        .host = malloc(KV_STAGES * KV_STAGE_BYTES),
                                        .host_bytes = KV_STAGES * KV_STAGE_BYTES,
                                        .ended_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
                                        .copy_in = copy_in,
                                        .copy_out = copy_out,
                                        .poll = poll_copy,
                                        .wait = await,
                                        .sum = sum,
                                        .shares_nothing = "this device shares none"};
    assert_non_null(device->copier.host);
}

static inline void device_close(struct device *device)
{
    close(device->copier.ended_fd);
    free(device->copier.host);
    munmap(device->memory, DEVICE_BYTES);
    close(device->fd);
}

/* Blocks of 5 MiB, which takes several buffers. */
static const struct kv_layout layout = {.layers = 20,
                                        .kv_heads = 16,
                                        .head_dim = 128,
                                        .block_tokens = 32,
                                        .type = KV_BF16,
                                        .layer_end = 20,
                                        .head_end = 16};

/* From now on it shares its memory with other processes. */
static inline void device_shares(struct device *device)
{
    device->copier.shares_nothing = NULL;
    device->copier.probe_offset = PROBE_OFFSET;
    device->copier.share = share;
    device->copier.map = map;
    device->copier.unmap = unmap;
    device->copier.gather = gather;
    device->copier.memory = device->memory;
}

static inline struct kv_transport *open_on(struct device *device, const char *faults)
{
    struct kv_transport_config config = {.kind = KV_TRANSPORT_REMOTE,
                                         .lane = device ? KV_LANE_AUTO : KV_LANE_TCP,
                                         .pool_bytes = POOL_BYTES,
                                         .layout = &layout,
                                         .max_reads = MAX_READS,
                                         .faults = faults,
                                         .copier = device ? &device->copier : NULL};
    struct kv_transport *transport;
    struct error err;
    if (kv_transport_open(&config, &transport, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    kv_transport_serve(transport, serve_all, NULL);
    assert_true(!device == !!kv_transport_pool(transport));
    return transport;
}

static inline uint8_t *bytes_of(struct kv_transport *transport, struct device *device)
{
    return device ? device->memory : kv_transport_pool(transport);
}

/* A world with either end on a device, or both. */
struct devices {
    struct world w;
    struct device owner, reader;
    uint8_t *from, *to;
};

static inline void devices_open(struct devices *d, bool owner, bool reader, const char *faults)
{
    memset(d, 0, sizeof *d);
    device_open(&d->owner);
    device_open(&d->reader);
    d->w.owner = open_on(owner ? &d->owner : NULL, NULL);
    d->w.reader = open_on(reader ? &d->reader : NULL, faults);
    d->from = bytes_of(d->w.owner, owner ? &d->owner : NULL);
    d->to = bytes_of(d->w.reader, reader ? &d->reader : NULL);
    fill_pattern(d->from, POOL_BYTES);
    memset(d->to, FILL, POOL_BYTES);
    d->w.peer = pair_with(d->w.reader, d->w.owner);
    assert_string_equal(kv_peer_lane(d->w.peer), "tcp");
    admit_to(&d->w);
}

static inline void devices_close(struct devices *d)
{
    world_close(&d->w);
    assert_int_equal(d->owner.done, d->owner.queued); /* nothing is left that would write */
    assert_int_equal(d->reader.done, d->reader.queued);
    device_close(&d->owner);
    device_close(&d->reader);
}

static inline void expect_bytes(const struct devices *d, const struct kv_read_run *runs,
                                size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (memcmp(d->to + runs[i].local_offset, d->from + runs[i].remote_offset, runs[i].bytes))
            fail_msg("run %zu of %zu differs", i, count);
}

static inline struct kv_event read_all(struct devices *d, const struct kv_read_run *runs,
                                       size_t count)
{
    assert_int_equal(
        kv_transport_read(d->w.reader, d->w.peer, runs, count, clock_now_us() + PATIENCE_US, 1),
        STATUS_OK);
    return reader_event(&d->w);
}

#endif
