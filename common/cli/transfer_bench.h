/* One measurement of `baton bench transfer`: moves the whole pool once, run by run in random order
 * on both sides, by one way. */
#ifndef BATON_CLI_TRANSFER_BENCH_H
#define BATON_CLI_TRANSFER_BENCH_H

#include "common/cli/transfer_owner.h"

enum transfer_way { WAY_MEMCPY, WAY_SHM, WAY_SHM_CRC, WAY_TCP, WAY_TCP_CRC, WAY_SOCKET, WAYS };

struct transfer_bench;

struct transfer_cost {
    double seconds;
    /* Of both processes. With CRC that of the owner's checksums is in it, but not their time, which
     * passes while it still computes the next block. */
    double cpu_seconds;
};

/* Starts the owner and pairs with it. */
enum status transfer_bench_open(const struct transfer_plan *plan, struct transfer_bench **bench,
                                struct error *err) WARN_UNUSED;
void transfer_bench_close(struct transfer_bench *bench);

/* `verify`: every byte is checked, too, outside what is measured. */
enum status transfer_bench_run(struct transfer_bench *bench, enum transfer_way way,
                               size_t run_bytes, bool verify, struct transfer_cost *cost,
                               struct error *err) WARN_UNUSED;

#endif
