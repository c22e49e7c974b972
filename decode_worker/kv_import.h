/* The decode worker's link to each prefill worker: one gRPC channel with one Peer stream, and one
 * transport pairing. common/kv/handoff/sink.h decides when to connect, pair, read and close. This
 * module does it, and reports what came of it. Transfer thread only.
 */
#ifndef BATON_DECODE_WORKER_KV_IMPORT_H
#define BATON_DECODE_WORKER_KV_IMPORT_H

#include "common/kv/handoff/sink.h"
#include "common/worker/stream.h"
#include "common/worker/worker.h"

#define PREFILL_PEERS_MAX CLUSTER_MAX_PEERS

struct kv_import;

/* No kv_import function calls these, except that kv_import_kv_event calls several and
 * kv_import_peer calls peer_used. */
struct kv_import_handlers {
    bool (*peer_used)(void *role, uint64_t peer); /* returns true if anything depends on the peer */
    void (*peer_up)(void *role, uint64_t peer, uint64_t incarnation);
    void (*peer_refused)(void *role, uint64_t peer, enum sink_reason reason);
    void (*peer_lost)(void *role, uint64_t peer, bool refused);
    void (*peer_full)(void *role, uint64_t peer);
    void (*peer_replaced)(void *role, uint64_t peer);
    void (*pair_up)(void *role, uint64_t peer); /* a pairing that wasn't ready at once */
    void (*pair_closed)(void *role, uint64_t peer, bool gone);
    void (*message)(void *role, uint64_t peer, const struct peer_up *message);
    void (*read_done)(void *role, uint64_t cookie, enum status status, enum kv_failure failure);
};

enum status kv_import_create(struct worker *worker, const struct kv_import_handlers *handlers,
                             void *role, struct kv_import **imports) WARN_UNUSED;
/* Cancels all streams and waits for their ends. Transfer thread, or the main thread once the
 * transfer thread has ended. */
void kv_import_close(struct kv_import *imports);
void kv_import_destroy(struct kv_import *imports);

/* Returns the id of the prefill worker at this address, which is called `name` from now on. The id
 * is the same one while the worker is used. When a place is needed, a worker that isn't used is
 * forgotten: one without a connection, or that was asked for longest ago. Its id is never given
 * again. Returns 0 without an address, or if PREFILL_PEERS_MAX others are used. */
uint64_t kv_import_peer(struct kv_import *imports, const char *address, const char *name);

/* Dials, and says hello to the prefill worker of that incarnation. */
enum status kv_import_connect(struct kv_import *imports, uint64_t peer,
                              uint64_t incarnation) WARN_UNUSED;
/* Closes stream and pairing. Nothing more is reported of them. */
void kv_import_disconnect(struct kv_import *imports, uint64_t peer);
/* *ready: the lane is settled; otherwise pair_up comes, or pair_closed, or peer_refused. */
enum status kv_import_pair(struct kv_import *imports, uint64_t peer, bool *ready,
                           struct error *err) WARN_UNUSED;
void kv_import_unpair(struct kv_import *imports, uint64_t peer);
void kv_import_send(struct kv_import *imports, uint64_t peer, const struct peer_down *message);
/* Starts the read of a SINK_READ. */
enum status kv_import_read(struct kv_import *imports, const struct sink_action *read) WARN_UNUSED;
/* Returns true if each local block has its sum; `crc`: its CRC32C (SINK_VERIFY). */
bool kv_import_verify(const struct kv_import *imports, const uint32_t *local, const uint64_t *sums,
                      bool crc, uint32_t block_count);
const char *kv_import_name(const struct kv_import *imports, uint64_t peer);
/* "shm", "tcp", ... or "" while not paired; lane_reason: kv_peer_lane_reason. */
const char *kv_import_lane(const struct kv_import *imports, uint64_t peer);
const char *kv_import_lane_reason(const struct kv_import *imports, uint64_t peer);
/* Recent speed of its reads, in bytes a second; 0: unknown. */
uint64_t kv_import_lane_speed(const struct kv_import *imports, uint64_t peer);
/* The same, of the reads from all peers together. */
uint64_t kv_import_link_speed(const struct kv_import *imports);

void kv_import_kv_event(struct kv_import *imports, const struct kv_event *event);

/* --- the ends of pairings with one peer: is the peer gone, or is there no byte path to it?
 *
 * A pairing that ends before it was admitted may mean either, or that the peer has just given
 * this worker's place to another one. The first sign (the sign of life, or a socket) is most
 * often heard before the end of the Peer stream. So the peer is taken for gone, and asked for a
 * sign of life. If it answers, there is no byte path: the next pairing is refused without a try,
 * and so without harm to the sinks that wait for it. --- */

struct pairing_outcome { /* zeroed: nothing yet */
    uint64_t welcomes, paired_after;
    bool in_doubt; /* the last pairing ended before it was admitted, in the same stream */
};

enum pair_end { PAIR_END_PLAIN, PAIR_END_GONE, PAIR_END_REFUSED };

/* A Peer stream is up. */
void pairing_outcome_welcomed(struct pairing_outcome *ends);
/* Call it for every pairing that is to begin. Returns false, once, if it must not begin. */
bool pairing_outcome_may_pair(struct pairing_outcome *ends);
/* `event`: KV_EVENT_PEER_CLOSED. */
enum pair_end pairing_outcome_note(struct pairing_outcome *ends, const struct kv_event *event);

#endif
