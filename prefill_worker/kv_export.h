/* What a prefill worker shows to decode workers: Peer streams, and the checksums of the blocks that
 * it hands off. Transfer thread only. The meaning of the messages is common/kv/handoff/source.h's;
 * here they are carried.
 */
#ifndef BATON_PREFILL_WORKER_KV_EXPORT_H
#define BATON_PREFILL_WORKER_KV_EXPORT_H

#include "common/kv/handoff/source.h"
#include "common/worker/stream.h"
#include "common/worker/worker.h"

struct kv_export;

/* A message of a welcomed peer, and the loss of one. */
struct kv_export_handlers {
    void (*message)(void *role, uint64_t peer, const struct peer_down *message);
    void (*lost)(void *role, uint64_t peer);
};

enum status kv_export_create(struct worker *worker, const struct kv_export_handlers *handlers,
                             void *role, struct kv_export **exports) WARN_UNUSED;
void kv_export_destroy(struct kv_export *exports);

/* Peer streams; their `role` is the kv_export. */
extern const struct stream_kind kv_export_stream_kind;

void kv_export_send(struct kv_export *exports, uint64_t peer, const struct peer_up *message);

/* The blocks of one source, from Opened to its end: checksums are computed as the blocks fill, so
 * that little is left to do when the prompt is done. `blocks` stays the step loop's, whose
 * sequences are at least as many. */
void kv_export_add(struct kv_export *exports, struct sequence_key key, const uint32_t *blocks,
                   uint32_t block_count);
/* The first `count` blocks (UINT32_MAX: all) won't change any more. */
void kv_export_filled(struct kv_export *exports, struct sequence_key key, uint32_t count);
/* [block_count] checksums once all are filled; NULL if the source is not known. */
const uint32_t *kv_export_checksums(struct kv_export *exports, struct sequence_key key,
                                    uint32_t *count);
void kv_export_remove(struct kv_export *exports, struct sequence_key key);

#endif
