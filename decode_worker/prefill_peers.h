/* The prefill workers that a decode worker knows: a table of bounded size, by address, whose ids
 * are never given twice. Of each: its channel and Peer stream, its pairing, and what the welcome
 * said. The table finds and forgets; kv_import opens and closes. Transfer thread only. */
#ifndef BATON_DECODE_WORKER_PREFILL_PEERS_H
#define BATON_DECODE_WORKER_PREFILL_PEERS_H

#include "common/kv/transport/kv_transport.h"
#include "common/net/rpc/rpc.h"
#include "common/worker/stream.h"
#include "common/worker/worker.h"
#include "decode_worker/lane_speed.h"
#include "decode_worker/pairing_outcome.h"

#define PREFILL_PEERS_MAX CLUSTER_MAX_WORKERS

struct prefill_peer {
    uint64_t id; /* 0: an empty place; never used twice */
    char address[128], name[64];
    struct rpc_channel *channel; /* of the last dialling */
    struct stream *stream;       /* the one that counts; NULL: none */
    struct kv_peer *pairing;     /* NULL: none */
    unsigned char transport_address[KV_TRANSPORT_MAX_ADDRESS_BYTES];
    size_t transport_address_bytes;
    char lane[32];
    struct lane_speed speed; /* of this pairing */
    bool up;                 /* the stream was welcomed */
    struct pairing_outcome ends;
};

struct prefill_peers { /* all zero: empty */
    uint64_t last_id;
    struct prefill_peer items[PREFILL_PEERS_MAX];
};

/* The one at this address, known or put in an empty place, or in that of the one known longest of
 * those that have neither stream nor pairing and are not `used` any more (its channel is
 * destroyed). NULL: no address, or no place. */
struct prefill_peer *prefill_peers_take(struct prefill_peers *peers, const char *address,
                                        const char *name, bool (*used)(void *context, uint64_t id),
                                        void *context);
struct prefill_peer *prefill_peers_find(struct prefill_peers *peers, uint64_t id); /* or NULL */
struct prefill_peer *prefill_peers_of_pairing(struct prefill_peers *peers,
                                              const struct kv_peer *pairing); /* or NULL */

#endif
