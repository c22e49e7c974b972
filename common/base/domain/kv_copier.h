/* A way to bytes of a KV pool that the host can't reach: the engine, which made the pool, fills it
 * in, and a transport moves bytes by it. The engine's side queues copies and returns. Copies run in
 * the order of the calls. One thread, the transport's, makes all calls; a step may run beside them.
 *
 * A copy has ended once `poll` says so. Until then the caller keeps its host memory as it is, and
 * nothing else reads or writes its bytes of the pool. `offset` counts from the start of the pool;
 * the caller checks that a copy lies inside. */
#ifndef BATON_BASE_DOMAIN_KV_COPIER_H
#define BATON_BASE_DOMAIN_KV_COPIER_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* A run of bytes that `gather` copies: offsets from the start of the mapping and of the pool. All
 * are multiples of KV_MOVE_UNIT. */
struct kv_move {
    uint64_t from, to, bytes;
};
#define KV_MOVE_UNIT     16
#define KV_MOVES_AT_ONCE 40

/* Blocks that `sum` sums. Block 0 begins at first_offset; each one is cut into runs. */
struct kv_sum_job {
    uint64_t first_offset;
    size_t block_bytes, run_bytes;
    const uint32_t *blocks; /* [count] */
    uint32_t count;         /* <= KV_SUMS_AT_ONCE */
};
#define KV_SUMS_AT_ONCE 64

/* Memory behind the pool for the self-test of a path: as many pieces of the own pattern, and behind
 * it room for a peer's. */
#define KV_PROBE_PIECES      8
#define KV_PROBE_PIECE_BYTES ((size_t)32 << 10)
#define KV_PROBE_BYTES       (KV_PROBE_PIECES * KV_PROBE_PIECE_BYTES)
#define KV_PROBE_ROOM        (2 * KV_PROBE_BYTES)

/* Memory of another process, mapped for reading. */
struct kv_mapping {
    void *address;
    size_t bytes;
};

struct kv_copier {
    void *state;
    /* Host memory for the caller's use, the fastest to copy from and to (pinned). The engine's. */
    uint8_t *host;
    size_t host_bytes;
    /* An eventfd, the engine's, to which each copy writes when it has ended. */
    int ended_fd;
    /* Queue one copy, of host memory into the pool and back. *copy names it for poll and wait. A
     * copy that fails later says so there. */
    enum status (*copy_in)(void *state, uint64_t offset, const void *host, size_t bytes,
                           uint64_t *copy);
    enum status (*copy_out)(void *state, uint64_t offset, void *host, size_t bytes, uint64_t *copy);
    /* Returns whether the copy, and all before it, have ended; *status says how. */
    bool (*poll)(void *state, uint64_t copy, enum status *status);
    /* Waits until they have. */
    enum status (*wait)(void *state, uint64_t copy);
    /* Queues the CRC32C of each run of the job's blocks, computed on the device: u32 [count, runs]
     * in host memory from `sums` on. *copy as above. */
    enum status (*sum)(void *state, const struct kv_sum_job *job, uint32_t *sums, uint64_t *copy);

    /* Pools that processes of one machine share. NULL: this device shares none, and
     * `shares_nothing` says why; the others are NULL then, too. `share` gives a descriptor, the
     * caller's, by which another process maps the pool. `map` maps another one's, for reading
     * alone; `gather` queues copies from it, all by one kernel. A mapping outlives its owner. */
    const char *shares_nothing;
    void *memory;          /* the pool's address on the device, for libraries that know devices */
    uint64_t probe_offset; /* KV_PROBE_ROOM bytes, behind the pool */
    enum status (*share)(void *state, int *fd, struct error *err);
    enum status (*map)(void *state, int fd, uint64_t bytes, struct kv_mapping *mapping,
                       struct error *err);
    void (*unmap)(void *state, struct kv_mapping *mapping);
    enum status (*gather)(void *state, const struct kv_mapping *from, const struct kv_move *moves,
                          uint32_t count, uint64_t *copy);
};

#endif
