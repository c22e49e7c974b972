/* The decode workers' access to a prefill worker: Peer streams, and the sums of the blocks that
 * are handed off. common/kv/handoff/source.h gives the messages their meaning; this module
 * carries them. Transfer thread only. */
#ifndef BATON_PREFILL_WORKER_KV_EXPORT_H
#define BATON_PREFILL_WORKER_KV_EXPORT_H

#include "common/kv/handoff/source.h"
#include "common/worker/stream.h"
#include "common/worker/worker.h"

struct kv_export;

/* Called for each message of a welcomed peer, and once when a peer is lost. may_read: for each
 * claim of a welcomed peer to blocks of the pool (source_may_read). used: returns false if the peer
 * reads no handle, so that its stream may be ended where another peer needs its place. summed: the
 * blocks that kv_export_filled named have their sums, valid during the call. */
struct kv_export_handlers {
    void (*message)(void *role, uint64_t peer, const struct peer_down *message);
    void (*lost)(void *role, uint64_t peer);
    bool (*may_read)(void *role, uint64_t peer, uint64_t grant, uint64_t first_block,
                     uint64_t block_count);
    bool (*used)(void *role, uint64_t peer);
    void (*summed)(void *role, struct sequence_key key, uint32_t tokens, struct source_sums sums,
                   const struct source_completion *completion);
};

enum status kv_export_create(struct worker *worker, const struct kv_export_handlers *handlers,
                             void *role, struct kv_export **exports) WARN_UNUSED;
void kv_export_destroy(struct kv_export *exports);

/* The Peer streams. Their `role` is the kv_export. */
extern const struct stream_kind kv_export_stream_kind;

/* `prefilled`: goes with a PEER_COMPLETE; NULL: nothing does. */
void kv_export_send(struct kv_export *exports, uint64_t peer, const struct peer_up *message,
                    Baton__Worker__V1__Prefilled *prefilled);

/* Adds the blocks of one source, from Opened to its end. They are summed as they fill, so that
 * little is left to do when the prompt is done. The first `cached_blocks` hold tokens of the prefix
 * cache: a block keeps its sum until it is given to a source that writes it. `blocks` stays the
 * step loop's. The step loop has at least as many sequences as there are sources here. */
void kv_export_add(struct kv_export *exports, struct sequence_key key, const uint32_t *blocks,
                   uint32_t block_count, uint32_t cached_blocks);
/* Blocks are written that nothing names here: those of a source that ended before it was added. No
 * block keeps its sum. */
void kv_export_forget_sums(struct kv_export *exports);
/* The keys and values of the first `tokens` tokens are in their blocks; with a completion, of all.
 * The whole ones don't change any more. Once they are summed, the role hears of it (`summed`). */
void kv_export_filled(struct kv_export *exports, struct sequence_key key, uint32_t tokens,
                      const struct source_completion *completion);
/* Sums a few blocks: no more than TRANSFER_TURN_BYTES and one block. Sources take turns. Returns
 * false if there is nothing to do. */
bool kv_export_work(struct kv_export *exports);
void kv_export_remove(struct kv_export *exports, struct sequence_key key);

#endif
