/* Moving KV bytes: register a pool, pair with a peer, read remote runs into local runs, complete or
 * fail by a deadline, close. This is the whole contract. Every transport (local, remote, either of
 * them faulty, later nccl) keeps it:
 *
 * - A transport belongs to one thread, the transfer thread, which makes every call. There are no
 *   callbacks: kv_transport_poll returns the completions, so a test needs no threads.
 * - Reads only: no process has write access to another's memory. A run that does not lie inside
 *   both pools is refused with STATUS_INVALID before anything moves. The pools' sizes are the ones
 *   that each side knows by itself.
 * - Every read ends exactly once, with an event: OK, or the reason (TIMEOUT, UNAVAILABLE, ...).
 *   Until its event came, its local runs are *landing* and must not be reused.
 * - A read past its deadline is ended by a forced close of the peer, which ends all reads of that
 *   pairing. KV_EVENT_PEER_CLOSED follows after the last of them. Reading again needs a new
 *   pairing.
 * - It sleeps while it waits: kv_transport_fd + kv_transport_arm, never a busy loop on a shared
 *   core.
 * - The owner of a pool polls too, even if it reads nothing itself. Its kv_transport_poll admits
 *   the readers and, on tcp, serves them.
 * - The death of a peer ends its pairing with a reason: on every lane once the kernel closes its
 *   sockets, on shm as a rule before. A peer that is stopped or unreachable shows only by the
 *   deadline of a read.
 * - Every reader has an address of its own. The owner makes it (kv_transport_admit) and takes it
 *   back (kv_transport_revoke). The secret in it admits the reader's one connection. A connection
 *   without the secret, or with other bytes, is closed, and no other one is harmed. The bytes are
 *   not encrypted: beyond one host, use a private network.
 * - On the lane tcp the owner sends the bytes, and asks its worker before it does
 *   (kv_transport_serve). On shm the reader copies from a pool that it has mapped whole: the kernel
 *   asks only for the same user. On cuda the reader's device gathers from a pool that it has mapped
 *   whole, for reading alone: the owner gives it to readers that it has admitted, of the same user.
 */
#ifndef BATON_KV_TRANSPORT_KV_TRANSPORT_H
#define BATON_KV_TRANSPORT_KV_TRANSPORT_H

#include "common/base/domain/kv_copier.h"
#include "common/base/status.h"
#include "common/kv/transport/kv_checksum.h"

#include <stdbool.h>
#include <stdint.h>

#define KV_TRANSPORT_MAX_ADDRESS_BYTES 2048
#define KV_TRANSPORT_MAX_PEERS         1024 /* pairings of one transport */
#define KV_TRANSPORT_MAX_RUNS          4096 /* runs of one read */

struct kv_transport;
/* One pairing. The transport owns it. It is valid until the poll after the one that returned its
 * KV_EVENT_PEER_CLOSED. */
struct kv_peer;

enum kv_transport_kind { KV_TRANSPORT_LOCAL, KV_TRANSPORT_REMOTE };
enum kv_lane { KV_LANE_AUTO, KV_LANE_SHM, KV_LANE_TCP, KV_LANE_CUDA, KV_LANE_RDMA };

/* Makes reads take as long as those of larger blocks over a slower link: one that all reads of this
 * transport share evenly (base/domain/link_model.h). A read ends no earlier than its bytes times
 * `scale` are through. */
struct kv_pace {
    double bytes_per_second; /* 0: reads aren't paced */
    double scale;            /* bytes of the link for each byte of a read */
    uint64_t latency_us;     /* before the first byte of each read */
};

struct kv_transport_config {
    enum kv_transport_kind kind;
    /* remote: the wanted lane. With SHM, CUDA or RDMA, opening or pairing fails if it can't be had.
     * AUTO takes any lane but RDMA, which was never run. */
    enum kv_lane lane;
    size_t pool_bytes;
    /* The pool's blocks, for kv_transport_block_sum; NULL: they are never summed. */
    const struct kv_layout *layout;
    /* The way to a pool of the caller's, in the memory of a device; the transport keeps the
     * pointer. Pairs of such pools take the lane cuda if one machine's device can map both (the
     * copier shares), otherwise tcp: bytes pass through a few buffers of the copier's host memory.
     * NULL: the transport allocates a pool of host memory, which other processes can map. */
    const struct kv_copier *copier;
    /* cuda: the path of the unix socket at which readers get the pool; NULL or empty: a name of no
     * file, in this network namespace. */
    const char *socket;
    uint32_t max_reads; /* in flight, over all peers */
    /* remote: a network device or a numeric address, with :PORT for a fixed port; NULL or empty:
     * "lo", any port */
    const char *bind_interface;
    /* remote: the host (an address or a name) that readers get, if bind_interface is every address
     * (0.0.0.0, [::]) */
    const char *advertise;
    uint32_t max_connections; /* readers admitted at once, and connections of all kinds; 0: 512 */
    /* Faults to inject, as kv_faults.h describes them; NULL or empty: none. Works with any kind. */
    const char *faults;
    struct kv_pace pace; /* zeroed: none */
};

/* Check `bind_interface`, `socket` and `faults`. STATUS_INVALID, with a sentence: not possible on
 * this machine. */
enum status kv_transport_check_interface(const char *bind_interface, struct error *err) WARN_UNUSED;
enum status kv_transport_check_socket(const char *path, struct error *err) WARN_UNUSED;
enum status kv_transport_check_faults(const char *faults, struct error *err) WARN_UNUSED;
enum status kv_transport_open(const struct kv_transport_config *config,
                              struct kv_transport **transport, struct error *err) WARN_UNUSED;
/* Forces every pairing closed first. Frees the pool. NULL is fine. */
void kv_transport_close(struct kv_transport *transport);

/* The pool that the transport has allocated. NULL: it is on a device. */
void *kv_transport_pool(const struct kv_transport *transport);
/* Sums blocks of the pool, wherever it is; config->layout was given. sums: [count]. A device sums
 * its own, and is waited for. STATUS_INTERNAL: it failed. kv_transport_flip flips bits of one byte:
 * a fault, for tests. */
enum status kv_transport_block_sums(struct kv_transport *transport, const uint32_t *blocks,
                                    uint32_t count, struct kv_block_sum *sums) WARN_UNUSED;
/* Copies of a device that have failed since one succeeded; 0 without a device. */
uint32_t kv_transport_failed_copies(const struct kv_transport *transport);
void kv_transport_flip(struct kv_transport *transport, uint64_t offset, uint8_t bits);

/* Owner: the address that one reader needs to pair with this pool. It is secret: it travels only on
 * that reader's `Peer` stream. A reader that pairs again replaces its own earlier pairing.
 * STATUS_LIMIT: too many readers are admitted. */
struct kv_admission {
    uint64_t id;
    size_t bytes;
    uint8_t address[KV_TRANSPORT_MAX_ADDRESS_BYTES];
};
enum status kv_transport_admit(struct kv_transport *transport, struct kv_admission *admission,
                               struct error *err) WARN_UNUSED;
/* The reader is gone: closes its connection and makes its address useless. Unknown ids are
 * ignored. */
void kv_transport_revoke(struct kv_transport *transport, uint64_t admission);

/* Owner: which bytes of the pool a reader may read. */
struct kv_claim {
    uint64_t admission;     /* the reader's */
    uint64_t grant;         /* by which it claims them, as it says itself */
    uint64_t offset, bytes; /* inside the pool */
};
/* Has `may_read` decide from now on. Poll calls it for each ask that comes, and again before each
 * part of its bytes leaves: bytes of a claim that has ended meanwhile are sent as zeros. It must
 * not call the transport. Before this call no reader is sent a byte of the pool. Lanes that map the
 * pool (shm, local) can't ask. */
void kv_transport_serve(struct kv_transport *transport,
                        bool (*may_read)(void *owner, const struct kv_claim *claim), void *owner);

/* Reader: pairs with the pool behind `address` (outside bytes: checked). It connects while polling
 * goes on; reads may be asked for at once. */
enum status kv_transport_pair(struct kv_transport *transport, const void *address, size_t bytes,
                              struct kv_peer **peer, struct error *err) WARN_UNUSED;
/* Returns "shm", "cuda", "rdma", "tcp" or "local": the lane that the pairing has, which may not be
 * the wanted one. kv_peer_lane_reason says why not cuda; "": nothing is to be said. */
const char *kv_peer_lane(const struct kv_peer *peer);
const char *kv_peer_lane_reason(const struct kv_peer *peer);
/* Returns whether the lane is settled. Otherwise KV_EVENT_PEER_READY comes when it is: a path that
 * bypasses the hosts was tested, or the next lane taken. Reads that are asked for before wait. */
bool kv_peer_is_ready(const struct kv_peer *peer);
/* A forced close: no byte lands any more, all reads in flight end with STATUS_CANCELLED, then
 * KV_EVENT_PEER_CLOSED comes. Idempotent. */
void kv_transport_unpair(struct kv_transport *transport, struct kv_peer *peer);

struct kv_read_run {
    uint64_t remote_offset, local_offset; /* bytes from the start of either pool */
    uint64_t bytes;
    uint64_t grant; /* the owner's number for what it lets this reader read */
};

/* Starts one read of 1 to KV_TRANSPORT_MAX_RUNS runs (copied). `cookie` comes back in its event. A
 * read that isn't started has no event.
 * STATUS_INVALID: a run outside a pool, no run, or too many; with a peer that offers the lane cuda,
 * bytes or an offset that are no multiple of KV_MOVE_UNIT.
 * STATUS_LIMIT: max_reads have not had their event taken; ask again after a poll.
 * STATUS_UNAVAILABLE: the peer is closing. */
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

/* The reason why a read or a pairing ended. */
enum kv_failure {
    KV_FAILURE_NONE,
    KV_FAILURE_DEADLINE,      /* STATUS_TIMEOUT: the read's own */
    KV_FAILURE_PEER_DEADLINE, /* another read of this pairing missed its deadline */
    KV_FAILURE_CLOSED,        /* STATUS_CANCELLED: closed by this process */
    KV_FAILURE_PEER_GONE,     /* its process ended, or it closed the connection */
    KV_FAILURE_UNREACHABLE,   /* no connection to it, or none any more */
    KV_FAILURE_REFUSED,       /* it does not admit this reader */
    KV_FAILURE_PROTOCOL,      /* STATUS_INTERNAL: its answer breaks the protocol */
    /* STATUS_NOT_FOUND: the owner doesn't let this reader read these bytes, or no longer. Only this
     * read ends: the pairing and its other reads go on. */
    KV_FAILURE_NOT_GRANTED,
    KV_FAILURE_INJECTED, /* kv_faults.h */
    KV_FAILURE_LANE,     /* the lane that was asked for by name can't be had */
    KV_FAILURES
};
const char *kv_failure_name(enum kv_failure failure); /* "deadline", ...: for metrics */

enum kv_event_kind { KV_EVENT_READ_DONE, KV_EVENT_PEER_READY, KV_EVENT_PEER_CLOSED };
struct kv_event {
    enum kv_event_kind kind;
    struct kv_peer *peer;
    uint64_t cookie;    /* READ_DONE */
    enum status status; /* READ_DONE: OK or the reason; PEER_CLOSED: the reason */
    enum kv_failure failure;
    bool welcomed;      /* PEER_CLOSED: the owner had admitted the pairing */
    uint64_t bytes;     /* READ_DONE and OK */
    const char *reason; /* static text if status isn't OK: "deadline", "closed by us", ... */
};

/* Makes progress and returns at most `capacity` events, every read's before its peer's. Ends reads
 * with a deadline that has come. Never blocks; copies a bounded amount. */
size_t kv_transport_poll(struct kv_transport *transport, uint64_t now_us, struct kv_event *events,
                         size_t capacity);
/* For poll(2): readable when kv_transport_poll has work, if kv_transport_arm returned true just
 * before the sleep (false: poll once more). Sleep no longer than to kv_transport_next_deadline_us
 * (UINT64_MAX: none). */
int kv_transport_fd(const struct kv_transport *transport);
bool kv_transport_arm(struct kv_transport *transport);
uint64_t kv_transport_next_deadline_us(const struct kv_transport *transport);

/* The reason why an owner closed a connection to its port, or (GRANT) refused an ask. */
enum kv_refusal {
    KV_REFUSED_NOISE,     /* not our protocol */
    KV_REFUSED_VERSION,   /* another version of it */
    KV_REFUSED_SECRET,    /* not admitted, or not any more */
    KV_REFUSED_LATE,      /* no hello in time */
    KV_REFUSED_LIMIT,     /* too many connections */
    KV_REFUSED_MISUSE,    /* admitted, and asked for bytes outside the pool, or too often */
    KV_REFUSED_RESOURCES, /* no descriptor or memory: it waits */
    KV_REFUSED_GRANT,     /* an ask for bytes that its reader may not read: the connection stays */
    KV_REFUSALS
};
const char *kv_refusal_name(enum kv_refusal refusal);

struct kv_transport_counters {
    uint64_t reads, bytes_read, peers_closed;
    uint64_t reads_failed[KV_FAILURES];
    uint64_t refused[KV_REFUSALS];
    uint64_t faults[KV_FAULT_KINDS]; /* injected */
};
struct kv_transport_counters kv_transport_counters(const struct kv_transport *transport);

#endif
