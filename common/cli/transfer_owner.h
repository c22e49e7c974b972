/* The other process of `baton bench transfer`: owns the pools that are read, and serves them until
 * its control socket closes. It is forked, not started anew: this must happen before the process
 * has threads or UCX contexts. */
#ifndef BATON_CLI_TRANSFER_OWNER_H
#define BATON_CLI_TRANSFER_OWNER_H

#include "common/kv/transport/kv_transport.h"

#include <sys/types.h>
#include <time.h>

/* What makes a raw socket over loopback fastest: so much in one call, and not to be woken for
 * less. */
#define TRANSFER_CALL ((size_t)128 << 10)

enum transfer_lane { TRANSFER_SHM, TRANSFER_TCP, TRANSFER_LANES };

struct transfer_plan {
    bool lanes[TRANSFER_LANES]; /* which are wanted */
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
    int stream;  /* the raw TCP socket, with what makes one fast on a single host */
    clockid_t cpu;
    struct transfer_address addresses[TRANSFER_LANES];
};

enum status transfer_owner_start(const struct transfer_plan *plan, struct transfer_owner *owner,
                                 struct error *err) WARN_UNUSED;
void transfer_owner_stop(struct transfer_owner *owner);

/* The checksum of every run of the pool, by its place in the pool. */
enum status transfer_owner_checksums(const struct transfer_owner *owner, size_t run_bytes,
                                     size_t count, uint32_t *checksums,
                                     struct error *err) WARN_UNUSED;
/* Makes the owner write all runs to the raw socket, in the order of transfer_order. */
enum status transfer_owner_stream(const struct transfer_owner *owner, size_t run_bytes,
                                  struct error *err) WARN_UNUSED;

enum status transfer_lane_open(const struct transfer_plan *plan, enum transfer_lane lane,
                               struct kv_transport **transport, struct error *err) WARN_UNUSED;
/* The runs of a pool in random order, the same in both processes; `which` tells the source's from
 * the target's. */
void transfer_order(uint32_t which, size_t count, uint32_t *order);
/* To the first core that this process may use (0), or to the last (1). */
void transfer_pin(int which);
bool transfer_read_fully(int fd, void *bytes, size_t count);
bool transfer_write_fully(int fd, const void *bytes, size_t count);

#endif
