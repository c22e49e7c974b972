/* What the ends of pairings with one peer say: that it is gone, or that there is no byte path to
 * it. PURE.
 *
 * A pairing that ends before it was admitted may be either; and what tells it, the sign of life or
 * a socket, is most often heard before the end of the Peer stream. So the peer is taken for gone,
 * and asked for a sign of life; if it gives one there is no byte path: the next pairing is refused
 * without a try, and so without harm to what waits for it. */
#ifndef BATON_DECODE_WORKER_PAIRING_OUTCOME_H
#define BATON_DECODE_WORKER_PAIRING_OUTCOME_H

#include "common/kv/transport/kv_transport.h"

struct pairing_outcome { /* zeroed: nothing yet */
    uint64_t welcomes, paired_after;
    bool in_doubt; /* the last one ended before it was admitted, in the same stream */
};

enum pair_end { PAIR_END_PLAIN, PAIR_END_GONE, PAIR_END_REFUSED };

/* A Peer stream is up. */
void pairing_outcome_welcomed(struct pairing_outcome *ends);
/* Called for every pairing that is to begin. False: it is not to, once. */
bool pairing_outcome_may_pair(struct pairing_outcome *ends);
/* `event`: KV_EVENT_PEER_CLOSED. */
enum pair_end pairing_outcome_note(struct pairing_outcome *ends, const struct kv_event *event);

#endif
