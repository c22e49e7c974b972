/* The decode workers' access to a prefill worker: Peer streams, and the checksums of the blocks
 * that are handed off. common/kv/handoff/source.h gives the messages their meaning; this module
 * carries them. Transfer thread only. */
#ifndef BATON_PREFILL_WORKER_KV_EXPORT_H
#define BATON_PREFILL_WORKER_KV_EXPORT_H

#include "common/kv/handoff/source.h"
#include "common/worker/stream.h"
#include "common/worker/worker.h"

struct kv_export;

/* Called for each message of a welcomed peer, and once when a peer is lost. may_read: for each
 * claim of a welcomed peer to blocks of the pool (source_may_read). used: returns false if the peer
 * reads no handle, so that its stream may be ended where another peer needs its place. */
struct kv_export_handlers {
    void (*message)(void *role, uint64_t peer, const struct peer_down *message);
    void (*lost)(void *role, uint64_t peer);
    bool (*may_read)(void *role, uint64_t peer, uint64_t grant, uint64_t first_block,
                     uint64_t block_count);
    bool (*used)(void *role, uint64_t peer);
};

enum status kv_export_create(struct worker *worker, const struct kv_export_handlers *handlers,
                             void *role, struct kv_export **exports) WARN_UNUSED;
void kv_export_destroy(struct kv_export *exports);

/* The Peer streams. Their `role` is the kv_export. */
extern const struct stream_kind kv_export_stream_kind;

/* `prefilled`: goes with a PEER_COMPLETE; NULL: nothing does. */
void kv_export_send(struct kv_export *exports, uint64_t peer, const struct peer_up *message,
                    Baton__Worker__V1__Prefilled *prefilled);

/* Adds the blocks of one source, from Opened to its end. Their checksums are computed as they fill,
 * so that little is left to do when the prompt is done. `blocks` stays the step loop's. The step
 * loop has at least as many sequences as there are sources here. */
void kv_export_add(struct kv_export *exports, struct sequence_key key, const uint32_t *blocks,
                   uint32_t block_count);
/* Computes the checksums of the first `count` blocks (UINT32_MAX: all). They must not change any
 * more. */
void kv_export_filled(struct kv_export *exports, struct sequence_key key, uint32_t count);
/* Returns [block_count] checksums once all blocks are filled, or NULL for an unknown source. */
const uint32_t *kv_export_checksums(struct kv_export *exports, struct sequence_key key,
                                    uint32_t *count);
void kv_export_remove(struct kv_export *exports, struct sequence_key key);

#endif
