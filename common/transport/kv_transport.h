/* Moving KV bytes: register a pool, pair with a peer, read remote runs into local runs, complete or fail by a deadline, close.
 * That is the whole contract, and every transport (local, ucx, faulty, later nccl) keeps it:
 *
 *  - A transport belongs to one thread (the transfer thread); every call is made by it. Callbacks don't exist: completions
 *    are taken with kv_transport_poll, so a test can drive one without threads.
 *  - Reads only: no process has write access to another's memory. Runs are sized by our own pool: a run that does not lie
 *    inside both pools is refused with STATUS_INVALID before anything moves.
 *  - Every read ends exactly once, with an event: OK, or why not (TIMEOUT, UNAVAILABLE, ...). Until its event came, the
 *    local runs are *landing* and must not be reused.
 *  - A read past its deadline is ended by a forced close of the peer, which ends all reads of that pair; KV_EVENT_PEER_CLOSED
 *    follows after the last of them. Reading again needs a new pairing.
 *  - It sleeps while it waits: kv_transport_fd + kv_transport_arm, never a busy loop on a shared core.
 *  - The owner of a pool polls too, also when it reads nothing itself: on tcp its kv_transport_poll is what serves the readers.
 *  - A peer that died ends its pairing with a reason: on tcp at once, on shm within about a second (until then its memory
 *    still reads as it was left). One that is stopped or unreachable shows by the deadline of a read alone.
 *  - The bytes are not encrypted, and the library behind a lane trusts whoever reaches it: the interface that is bound to belongs to
 *    a private network. Addresses come from peers that the control plane knows; to ask for bytes takes the secret in them.
 */
#ifndef BATON_TRANSPORT_KV_TRANSPORT_H
#define BATON_TRANSPORT_KV_TRANSPORT_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stdint.h>

#define KV_TRANSPORT_MAX_ADDRESS_BYTES 2048
#define KV_TRANSPORT_MAX_PEERS         1024 /* pairings of one transport */
#define KV_TRANSPORT_MAX_RUNS          4096 /* of one read */

struct kv_transport;
/* One pairing. Owned by the transport, valid until the poll after the one that gave its KV_EVENT_PEER_CLOSED. */
struct kv_peer;

enum kv_transport_kind { KV_TRANSPORT_LOCAL, KV_TRANSPORT_UCX };
enum kv_lane { KV_LANE_AUTO, KV_LANE_SHM, KV_LANE_TCP };

struct kv_transport_config {
    enum kv_transport_kind kind;
    /* What is asked for: SHM that can't be had is an error at opening or pairing; AUTO takes what there is. */
    enum kv_lane lane;
    size_t pool_bytes;          /* allocated by the transport */
    uint32_t max_reads;         /* in flight, over all peers */
    const char *bind_interface; /* tcp: network device, "lo" by default */
    /* Faults to inject, as kv_faults.h describes them; NULL or empty: none. Any kind of transport then is a faulty one. */
    const char *faults;
};

enum status kv_transport_open(const struct kv_transport_config *config,
                              struct kv_transport **transport, struct error *err) WARN_UNUSED;
/* Forces every pairing closed first. Takes the pool with it. */
void kv_transport_close(struct kv_transport *transport);

void *kv_transport_pool(const struct kv_transport *transport);
/* What a reader needs to pair with this pool (opaque bytes, at most KV_TRANSPORT_MAX_ADDRESS_BYTES): travels on `Peer`. */
const void *kv_transport_address(const struct kv_transport *transport, size_t *bytes);

/* Reader: pairs with the pool behind `address` (outside bytes: checked). The pairing isn't used before the first read. */
enum status kv_transport_pair(struct kv_transport *transport, const void *address, size_t bytes,
                              struct kv_peer **peer, struct error *err) WARN_UNUSED;
/* "shm" or "tcp" (or "local"): the lane that was negotiated, by what the library says it uses, not by what was asked. */
const char *kv_peer_lane(const struct kv_peer *peer);
/* Starts a forced close: all reads in flight end with STATUS_CANCELLED, then KV_EVENT_PEER_CLOSED comes. Idempotent. */
void kv_transport_unpair(struct kv_transport *transport, struct kv_peer *peer);

struct kv_read_run {
    uint64_t remote_offset, local_offset; /* bytes from the start of either pool */
    uint64_t bytes;
};

/* Starts one read of 1 to KV_TRANSPORT_MAX_RUNS runs (copied). `cookie` comes back in its event. No event comes for a read
 * that isn't started: STATUS_INVALID: a run outside a pool, none, or too many; STATUS_LIMIT: max_reads have not had their
 * event taken yet, ask again after a poll; STATUS_UNAVAILABLE: the peer is closing. */
enum status kv_transport_read(struct kv_transport *transport, struct kv_peer *peer,
                              const struct kv_read_run *runs, size_t run_count,
                              uint64_t deadline_us, uint64_t cookie) WARN_UNUSED;

enum kv_fault_kind {
    KV_FAULT_DROP,
    KV_FAULT_DELAY,
    KV_FAULT_DUPLICATE,
    KV_FAULT_CORRUPT,
    KV_FAULT_REORDER,
    KV_FAULT_LOST,
    KV_FAULT_KINDS
};
/* "drop", "delay", ... */
const char *kv_fault_name(enum kv_fault_kind kind);

enum kv_event_kind { KV_EVENT_READ_DONE, KV_EVENT_PEER_CLOSED };
struct kv_event {
    enum kv_event_kind kind;
    struct kv_peer *peer;
    uint64_t cookie;    /* READ_DONE */
    enum status status; /* READ_DONE: OK or why not; PEER_CLOSED: why */
    uint64_t bytes;     /* READ_DONE and OK */
    const char *reason; /* static text where status isn't OK: "deadline", "closed by us", ... */
};

/* Makes progress and hands out at most `capacity` events (every read's before its peer's); ends reads whose deadline has come.
 * Never blocks; copies a bounded amount. */
size_t kv_transport_poll(struct kv_transport *transport, uint64_t now_us, struct kv_event *events,
                         size_t capacity);
/* For poll(2): readable when kv_transport_poll has work, provided that kv_transport_arm returned true just before sleeping
 * (false: poll once more). Sleep no longer than to kv_transport_next_deadline_us (UINT64_MAX: none). */
int kv_transport_fd(const struct kv_transport *transport);
bool kv_transport_arm(struct kv_transport *transport);
uint64_t kv_transport_next_deadline_us(const struct kv_transport *transport);

struct kv_transport_counters {
    uint64_t reads, reads_failed, bytes_read, peers_closed;
    uint64_t faults[KV_FAULT_KINDS]; /* injected */
};
struct kv_transport_counters kv_transport_counters(const struct kv_transport *transport);

#endif
