#include "common/cli/transfer_bench.h"

#include "common/base/clock.h"
#include "common/kv/transport/kv_checksum.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

#define DEADLINE_US 30000000
#define MIN_RUN     4096
#define MAX_EVENTS  64
#define PATIENCE_US 10000000   /* for a death */
#define DEATH_RUN   (1u << 20) /* largest run while an owner dies */

struct transfer_bench {
    struct transfer_plan plan;
    struct transfer_owner owner;
    struct kv_transport *lanes[TRANSFER_LANES];
    struct kv_peer *peers[TRANSFER_LANES];
    uint8_t *source, *target; /* memcpy's; the target is also the raw socket's */
    /* For the runs of one size: */
    uint32_t *from, *to; /* places, in the order in which they move */
    uint32_t *checksums; /* by place in the owner's pool */
};

static uint8_t *plain_memory(size_t bytes)
{
    uint8_t *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    memset(memory, 1, bytes);
    return memory;
}

static enum status memory_open(struct transfer_bench *bench, struct error *err)
{
    size_t max_runs = bench->plan.pool_bytes / MIN_RUN;
    bench->source = plain_memory(bench->plan.pool_bytes);
    bench->target = plain_memory(bench->plan.pool_bytes);
    bench->from = calloc(max_runs, sizeof *bench->from);
    bench->to = calloc(max_runs, sizeof *bench->to);
    bench->checksums = calloc(max_runs, sizeof *bench->checksums);
    if (bench->source && bench->target && bench->from && bench->to && bench->checksums)
        return STATUS_OK;
    return error_set(err, STATUS_LIMIT, "no memory for pools of %zu bytes", bench->plan.pool_bytes);
}

static enum status lanes_open(struct transfer_bench *bench, struct error *err)
{
    for (int i = 0; i < TRANSFER_LANES; i++) {
        const struct transfer_address *address = &bench->owner.addresses[i];
        if (!bench->plan.lanes[i])
            continue;
        TRY(transfer_lane_open(&bench->plan, i, &bench->lanes[i], err));
        memset(kv_transport_pool(bench->lanes[i]), 0, bench->plan.pool_bytes);
        TRY(kv_transport_pair(bench->lanes[i], address->data, address->bytes, &bench->peers[i],
                              err));
        const char *lane = i == TRANSFER_SHM ? "shm" : "tcp";
        if (strcmp(kv_peer_lane(bench->peers[i]), lane) != 0)
            return error_set(err, STATUS_INTERNAL, "asked for lane %s, got %s", lane,
                             kv_peer_lane(bench->peers[i]));
    }
    return STATUS_OK;
}

enum status transfer_bench_open(const struct transfer_plan *plan, struct transfer_bench **out,
                                struct error *err)
{
    struct transfer_bench *bench = calloc(1, sizeof *bench);
    if (!bench)
        return error_set(err, STATUS_LIMIT, "no memory");
    bench->plan = *plan;
    enum status status = transfer_owner_start(plan, &bench->owner, err); /* first: it forks */
    if (status != STATUS_OK) {
        free(bench);
        return status;
    }
    if (plan->pin)
        transfer_pin(0);
    status = memory_open(bench, err);
    if (status == STATUS_OK)
        status = lanes_open(bench, err);
    if (status != STATUS_OK) {
        transfer_bench_close(bench);
        return status;
    }
    *out = bench;
    return STATUS_OK;
}

void transfer_bench_close(struct transfer_bench *bench)
{
    for (int i = 0; i < TRANSFER_LANES; i++)
        kv_transport_close(bench->lanes[i]);
    transfer_owner_stop(&bench->owner);
    if (bench->source)
        munmap(bench->source, bench->plan.pool_bytes);
    if (bench->target)
        munmap(bench->target, bench->plan.pool_bytes);
    free(bench->from);
    free(bench->to);
    free(bench->checksums);
    free(bench);
}

/* --- moves --- */

static void set_wake(int fd, size_t bytes)
{
    int wake = (int)bytes;
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &wake, sizeof wake);
}

/* Receives one run. Sleeps until TRANSFER_CALL bytes are there, unless fewer are left of the
 * stream. `*left`: the bytes that are still to come. */
static bool receive_run(int fd, uint8_t *to, size_t bytes, size_t *left)
{
    for (size_t done = 0; done < bytes;) {
        size_t call = bytes - done < TRANSFER_CALL ? bytes - done : TRANSFER_CALL;
        ssize_t got = recv(fd, to + done, call, MSG_DONTWAIT);
        if (got > 0) {
            done += (size_t)got;
            *left -= (size_t)got;
            continue;
        }
        if (got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR))
            return false;
        if (*left < TRANSFER_CALL)
            set_wake(fd, 1);
        struct pollfd readable = {fd, POLLIN, 0};
        poll(&readable, 1, -1);
    }
    return true;
}

static enum status stream_runs(struct transfer_bench *bench, size_t run_bytes, size_t count,
                               struct error *err)
{
    size_t left = run_bytes * count;
    set_wake(bench->owner.stream, left < TRANSFER_CALL ? 1 : TRANSFER_CALL);
    TRY(transfer_owner_stream(&bench->owner, run_bytes, err));
    for (size_t i = 0; i < count; i++)
        if (!receive_run(bench->owner.stream, bench->target + bench->to[i] * run_bytes, run_bytes,
                         &left))
            return error_set(err, STATUS_UNAVAILABLE, "the raw socket closed");
    return STATUS_OK;
}

/* Takes the reads that ended, or sleeps. `crc`: checks their runs. A read is one run, and its
 * cookie the run's number in the order. */
static enum status take_events(struct transfer_bench *bench, enum transfer_lane lane,
                               size_t run_bytes, bool crc, size_t *done, struct error *err)
{
    struct kv_transport *transport = bench->lanes[lane];
    const uint8_t *pool = kv_transport_pool(transport);
    struct kv_event events[MAX_EVENTS];
    size_t count = kv_transport_poll(transport, clock_now_us(), events, MAX_EVENTS);
    if (count == 0 && kv_transport_arm(transport)) {
        uint64_t now_us = clock_now_us(), until_us = kv_transport_next_deadline_us(transport);
        struct pollfd fd = {kv_transport_fd(transport), POLLIN, 0};
        poll(&fd, 1, until_us > now_us ? (int)((until_us - now_us) / 1000 + 1) : 0);
    }
    for (size_t i = 0; i < count; i++) {
        if (events[i].kind != KV_EVENT_READ_DONE || events[i].status != STATUS_OK)
            return error_set(err, STATUS_UNAVAILABLE, "a read failed: %s", events[i].reason);
        uint64_t run = events[i].cookie;
        if (crc && kv_checksum(pool + bench->to[run] * run_bytes, run_bytes) !=
                       bench->checksums[bench->from[run]])
            return error_set(err, STATUS_CORRUPT, "run %llu has another checksum",
                             (unsigned long long)run);
    }
    *done += count;
    return STATUS_OK;
}

static enum status read_runs(struct transfer_bench *bench, enum transfer_lane lane,
                             size_t run_bytes, size_t count, bool crc, struct error *err)
{
    uint64_t deadline_us = clock_now_us() + DEADLINE_US;
    size_t started = 0, done = 0;
    while (done < count) {
        for (enum status status = STATUS_OK; started < count && status == STATUS_OK;) {
            struct kv_read_run run = {bench->from[started] * run_bytes,
                                      bench->to[started] * run_bytes, run_bytes, 0};
            status = kv_transport_read(bench->lanes[lane], bench->peers[lane], &run, 1, deadline_us,
                                       started);
            if (status != STATUS_OK && status != STATUS_LIMIT)
                return error_set(err, status, "a read can't start: %s", status_name(status));
            started += status == STATUS_OK;
        }
        TRY(take_events(bench, lane, run_bytes, crc, &done, err));
    }
    return STATUS_OK;
}

static enum status move(struct transfer_bench *bench, enum transfer_way way, size_t run_bytes,
                        size_t count, struct error *err)
{
    switch (way) {
    case WAY_MEMCPY:
        for (size_t i = 0; i < count; i++)
            memcpy(bench->target + bench->to[i] * run_bytes,
                   bench->source + bench->from[i] * run_bytes, run_bytes);
        return STATUS_OK;
    case WAY_SHM:
    case WAY_SHM_CRC:
        return read_runs(bench, TRANSFER_SHM, run_bytes, count, way == WAY_SHM_CRC, err);
    case WAY_TCP:
    case WAY_TCP_CRC:
        return read_runs(bench, TRANSFER_TCP, run_bytes, count, way == WAY_TCP_CRC, err);
    default: return stream_runs(bench, run_bytes, count, err);
    }
}

/* --- measuring --- */

static double cpu_seconds(clockid_t clock)
{
    struct timespec time = {0};
    clock_gettime(clock, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

enum status transfer_bench_run(struct transfer_bench *bench, enum transfer_way way,
                               size_t run_bytes, bool verify, struct transfer_cost *cost,
                               struct error *err)
{
    const bool crc = way == WAY_SHM_CRC || way == WAY_TCP_CRC;
    size_t count = bench->plan.pool_bytes / run_bytes;
    transfer_order(0, count, bench->from);
    transfer_order(1, count, bench->to);
    double cpu = -cpu_seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu_seconds(bench->owner.cpu);
    if (crc || verify)
        TRY(transfer_owner_checksums(&bench->owner, run_bytes, count, bench->checksums, err));
    uint64_t start_ns = clock_now_ns();
    TRY(move(bench, way, run_bytes, count, err));
    uint64_t end_ns = clock_now_ns();
    cpu += cpu_seconds(CLOCK_PROCESS_CPUTIME_ID) + cpu_seconds(bench->owner.cpu);
    const uint8_t *target = bench->target;
    if (way == WAY_SHM || way == WAY_SHM_CRC)
        target = kv_transport_pool(bench->lanes[TRANSFER_SHM]);
    if (way == WAY_TCP || way == WAY_TCP_CRC)
        target = kv_transport_pool(bench->lanes[TRANSFER_TCP]);
    bool from_owner = way != WAY_MEMCPY;
    for (size_t i = 0; verify && from_owner && i < count; i++)
        if (kv_checksum(target + bench->to[i] * run_bytes, run_bytes) !=
            bench->checksums[bench->from[i]])
            return error_set(err, STATUS_CORRUPT, "run %zu arrived with other bytes", i);
    *cost = (struct transfer_cost){(double)(end_ns - start_ns) * 1e-9, cpu};
    return STATUS_OK;
}

/* --- deaths --- */

struct transfer_deaths {
    struct transfer_plan plan;
    size_t count;
    struct transfer_owner owners[TRANSFER_LANES][TRANSFER_MAX_DEATHS];
};

enum status transfer_deaths_prepare(const struct transfer_plan *plan, size_t count,
                                    struct transfer_deaths **out, struct error *err)
{
    struct transfer_deaths *deaths = calloc(1, sizeof *deaths);
    if (!deaths)
        return error_set(err, STATUS_LIMIT, "no memory");
    deaths->plan = *plan;
    deaths->count = count;
    for (int lane = 0; lane < TRANSFER_LANES; lane++) {
        struct transfer_plan one = {.pool_bytes = plan->pool_bytes};
        one.lanes[lane] = true;
        for (size_t i = 0; i < count && plan->lanes[lane]; i++) {
            enum status status = transfer_owner_start(&one, &deaths->owners[lane][i], err);
            if (status != STATUS_OK) {
                deaths->owners[lane][i].pid = 0;
                transfer_deaths_close(deaths);
                return status;
            }
        }
    }
    *out = deaths;
    return STATUS_OK;
}

/* Kills an owner. Closing its control socket isn't enough: owners that were forked later hold it
 * too. */
static void owner_kill(struct transfer_owner *owner)
{
    if (owner->pid <= 0)
        return;
    kill(owner->pid, SIGKILL);
    transfer_owner_stop(owner);
    owner->pid = 0;
}

void transfer_deaths_close(struct transfer_deaths *deaths)
{
    if (!deaths)
        return;
    for (int lane = 0; lane < TRANSFER_LANES; lane++)
        for (size_t i = 0; i < deaths->count; i++)
            owner_kill(&deaths->owners[lane][i]);
    free(deaths);
}

/* Keeps reads in flight until one has succeeded, or failed if `until_failed`. */
static enum status read_on(struct kv_transport *transport, struct kv_peer *peer, size_t pool_bytes,
                           bool until_failed, struct error *err)
{
    struct kv_read_run run = {.bytes = pool_bytes < DEATH_RUN ? pool_bytes : DEATH_RUN};
    for (uint64_t start_us = clock_now_us(); clock_now_us() - start_us < PATIENCE_US;) {
        enum status status = STATUS_OK;
        while (status == STATUS_OK)
            status = kv_transport_read(transport, peer, &run, 1, start_us + PATIENCE_US, 0);
        if (status == STATUS_UNAVAILABLE && until_failed)
            return STATUS_OK;
        struct kv_event event;
        if (kv_transport_poll(transport, clock_now_us(), &event, 1) == 1) {
            if ((event.status == STATUS_OK) == until_failed)
                continue;
            if (event.status == STATUS_OK || until_failed)
                return STATUS_OK;
            return error_set(err, STATUS_UNAVAILABLE, "a read failed: %s", event.reason);
        }
        struct pollfd fd = {kv_transport_fd(transport), POLLIN, 0};
        if (kv_transport_arm(transport))
            poll(&fd, 1, 100);
    }
    return error_set(err, STATUS_TIMEOUT, "no read ended %s within %d s",
                     until_failed ? "badly" : "well", PATIENCE_US / 1000000);
}

static enum status measure_one(struct transfer_deaths *deaths, struct kv_transport *transport,
                               struct transfer_owner *owner, const struct transfer_address *address,
                               double *seconds, struct error *err)
{
    struct kv_peer *peer;
    TRY(kv_transport_pair(transport, address->data, address->bytes, &peer, err));
    TRY(read_on(transport, peer, deaths->plan.pool_bytes, false, err));
    uint64_t start_ns = clock_now_ns();
    kill(owner->pid, SIGKILL);
    TRY(read_on(transport, peer, deaths->plan.pool_bytes, true, err));
    *seconds = (double)(clock_now_ns() - start_ns) * 1e-9;
    /* Takes the pairing's last event, so that the next one finds room for its reads. */
    kv_transport_unpair(transport, peer);
    struct kv_event event;
    uint64_t start_us = clock_now_us();
    for (bool closed = false; !closed && clock_now_us() - start_us < PATIENCE_US;)
        closed = kv_transport_poll(transport, clock_now_us(), &event, 1) == 1 &&
                 event.kind == KV_EVENT_PEER_CLOSED;
    owner_kill(owner);
    return STATUS_OK;
}

enum status transfer_deaths_measure(struct transfer_deaths *deaths, enum transfer_lane lane,
                                    double *seconds, struct error *err)
{
    struct kv_transport *transport;
    TRY(transfer_lane_open(&deaths->plan, lane, &transport, err));
    enum status status = STATUS_OK;
    for (size_t i = 0; i < deaths->count && status == STATUS_OK; i++) {
        struct transfer_owner *owner = &deaths->owners[lane][i];
        status = measure_one(deaths, transport, owner, &owner->addresses[lane], &seconds[i], err);
    }
    kv_transport_close(transport);
    return status;
}
