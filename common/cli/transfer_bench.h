/* The measurements of `baton bench transfer`: moves of a whole pool between two processes, run by
 * run in random order on both sides, and the time from an owner's death to the first read that
 * fails. */
#ifndef BATON_CLI_TRANSFER_BENCH_H
#define BATON_CLI_TRANSFER_BENCH_H

#include "common/kv/transport/kv_transport.h"

#include <sys/types.h>
#include <time.h>

/* --- the owner: transfer_owner.c ---
 *
 * The other process: it owns the pools that are read, and serves them until its control socket
 * closes. It is forked, not started anew, so it must start before this process has threads or UCX
 * contexts. */

/* Bytes of one call on a raw socket. A socket over loopback is fastest with large calls, and if it
 * wakes the reader only for as much. */
#define TRANSFER_CALL ((size_t)128 << 10)

enum transfer_lane { TRANSFER_SHM, TRANSFER_TCP, TRANSFER_LANES };

struct transfer_plan {
    bool lanes[TRANSFER_LANES]; /* lanes to measure */
    size_t pool_bytes;
    bool pin; /* both processes, each to a core of its own */
};

struct transfer_address {
    size_t bytes;
    uint8_t data[KV_TRANSPORT_MAX_ADDRESS_BYTES];
};

struct transfer_owner {
    pid_t pid;
    int control; /* requests and their answers */
    int stream;  /* the raw TCP socket, set up for speed on a single host */
    clockid_t cpu;
    struct transfer_address addresses[TRANSFER_LANES];
};

enum status transfer_owner_start(const struct transfer_plan *plan, struct transfer_owner *owner,
                                 struct error *err) WARN_UNUSED;
void transfer_owner_stop(struct transfer_owner *owner);

/* Gets the checksum of each run of the pool, by its place in the pool. */
enum status transfer_owner_checksums(const struct transfer_owner *owner, size_t run_bytes,
                                     size_t count, uint32_t *checksums,
                                     struct error *err) WARN_UNUSED;
/* Makes the owner write all runs to the raw socket, in the order of transfer_order. */
enum status transfer_owner_stream(const struct transfer_owner *owner, size_t run_bytes,
                                  struct error *err) WARN_UNUSED;

enum status transfer_lane_open(const struct transfer_plan *plan, enum transfer_lane lane,
                               struct kv_transport **transport, struct error *err) WARN_UNUSED;
/* Writes the runs of a pool in random order, the same in both processes. `which`: 0 for the source,
 * 1 for the target. */
void transfer_order(uint32_t which, size_t count, uint32_t *order);
/* Pins the process to the first core that it may use (0), or to the last (1). */
void transfer_pin(int which);

/* --- moves --- */

enum transfer_way { WAY_MEMCPY, WAY_SHM, WAY_SHM_CRC, WAY_TCP, WAY_TCP_CRC, WAY_SOCKET, WAYS };

struct transfer_bench;

struct transfer_cost {
    double seconds;
    /* Both processes'. With CRC it includes the owner's checksums. `seconds` doesn't: a worker
     * makes them while it still computes the next block. */
    double cpu_seconds;
};

/* Starts the owner and pairs with it. */
enum status transfer_bench_open(const struct transfer_plan *plan, struct transfer_bench **bench,
                                struct error *err) WARN_UNUSED;
void transfer_bench_close(struct transfer_bench *bench);

/* Moves the pool once. `verify`: every byte is checked too, outside the measured time. */
enum status transfer_bench_run(struct transfer_bench *bench, enum transfer_way way,
                               size_t run_bytes, bool verify, struct transfer_cost *cost,
                               struct error *err) WARN_UNUSED;

/* --- deaths --- */

#define TRANSFER_MAX_DEATHS 50

struct transfer_deaths;

/* Starts `count` owners for each lane of the plan. Comes before anything else in this process. */
enum status transfer_deaths_prepare(const struct transfer_plan *plan, size_t count,
                                    struct transfer_deaths **deaths, struct error *err) WARN_UNUSED;
void transfer_deaths_close(struct transfer_deaths *deaths); /* NULL is fine */

/* Reads from each owner of the lane without a pause, kills it with kill -9, and measures the time
 * to the first read that fails: seconds[count]. Call it once a lane. */
enum status transfer_deaths_measure(struct transfer_deaths *deaths, enum transfer_lane lane,
                                    double *seconds, struct error *err) WARN_UNUSED;

#endif
