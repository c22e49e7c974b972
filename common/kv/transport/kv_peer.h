/* Internal to this folder: the life of a peer and of its reads, the same for every transport. */
#ifndef BATON_KV_TRANSPORT_KV_PEER_H
#define BATON_KV_TRANSPORT_KV_PEER_H

#include "common/kv/transport/transport_ops.h"

/* The forced close. Every read in flight ends with this failure (or its own, if it has failed
 * already). */
void kv_peer_close(struct kv_peer *peer, enum kv_failure failure, const char *reason);
/* Ends the reads that an injected fault held back until now, or, if `reordered`, until another one
 * had ended. */
void kv_peers_release(struct kv_transport *transport, bool reordered);
bool kv_peer_has_copies(const struct kv_peer *peer);

/* The three steps of a poll. Reads whose deadline has come end, and their peers close; */
void kv_peers_end_expired(struct kv_transport *transport, uint64_t now_us);
/* a bounded amount is copied from mapped peers, which take turns, also over polls; */
void kv_peers_copy(struct kv_transport *transport);
/* other peers' reads are started, and peers that failed are closed. */
void kv_peers_advance(struct kv_transport *transport);

#endif
