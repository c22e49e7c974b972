/* How a decode worker reaches prefill workers: one gRPC channel with one Peer stream, and one
 * transport pairing, for each. Transfer thread only. When to connect, pair, read and close is
 * common/kv/handoff/sink.h's decision; this carries it out and tells what came of it.
 */
#ifndef BATON_DECODE_WORKER_KV_IMPORT_H
#define BATON_DECODE_WORKER_KV_IMPORT_H

#include "common/kv/handoff/sink.h"
#include "common/worker/stream.h"
#include "common/worker/worker.h"

struct kv_import;

/* Never called from inside a kv_import function, except by kv_import_kv_event, and peer_used by
 * kv_import_peer. */
struct kv_import_handlers {
    bool (*peer_used)(void *role, uint64_t peer); /* false: nothing depends on it */
    void (*peer_up)(void *role, uint64_t peer, uint64_t incarnation);
    void (*peer_refused)(void *role, uint64_t peer, enum sink_reason reason);
    void (*peer_lost)(void *role, uint64_t peer, bool refused);
    void (*pair_closed)(void *role, uint64_t peer, bool gone);
    void (*message)(void *role, uint64_t peer, const struct peer_up *message);
    void (*read_done)(void *role, uint64_t cookie, enum status status, enum kv_failure failure);
};

enum status kv_import_create(struct worker *worker, const struct kv_import_handlers *handlers,
                             void *role, struct kv_import **imports) WARN_UNUSED;
/* Cancels all streams and waits for their ends; transfer thread or, when it has ended, the main
 * thread. */
void kv_import_close(struct kv_import *imports);
void kv_import_destroy(struct kv_import *imports);

/* The id of the prefill worker at this address, the same one for as long as it is used or
 * connected; one that is neither is forgotten when its place is needed, and its id never given
 * again. 0: PREFILL_PEERS_MAX others are used or connected. */
uint64_t kv_import_peer(struct kv_import *imports, const char *address, const char *name);

enum status kv_import_connect(struct kv_import *imports, uint64_t peer) WARN_UNUSED;
/* Closes stream and pairing; what they still have to say is not told. */
void kv_import_disconnect(struct kv_import *imports, uint64_t peer);
enum status kv_import_pair(struct kv_import *imports, uint64_t peer, struct error *err) WARN_UNUSED;
void kv_import_unpair(struct kv_import *imports, uint64_t peer);
void kv_import_send(struct kv_import *imports, uint64_t peer, const struct peer_down *message);
enum status kv_import_read(struct kv_import *imports, uint64_t peer, const uint32_t *remote,
                           const uint32_t *local, uint32_t block_count,
                           uint64_t cookie) WARN_UNUSED;
/* Do the blocks hold the bytes that these checksums were made of? */
bool kv_import_verify(const struct kv_import *imports, const uint32_t *local,
                      const uint32_t *checksums, uint32_t block_count);
const char *kv_import_name(const struct kv_import *imports, uint64_t peer);
/* "shm", "tcp", ... or "" while not paired. */
const char *kv_import_lane(const struct kv_import *imports, uint64_t peer);
/* Bytes a second of its reads lately; 0: not known yet. */
uint64_t kv_import_lane_speed(const struct kv_import *imports, uint64_t peer);

void kv_import_kv_event(struct kv_import *imports, const struct kv_event *event);

#endif
