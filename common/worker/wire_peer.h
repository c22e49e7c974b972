/* Between the messages of a Peer stream (proto/worker.proto) and the structs of
 * common/kv/handoff/handoff.h that mirror them: what the decode worker asks (down) and what the
 * prefill worker answers (up). Hello and Welcome open the stream; they are no messages of the
 * handoff, and not here. What comes in was unpacked with proto_unpack; ids and numbers are the
 * state machines' to check. */
#ifndef BATON_WORKER_WIRE_PEER_H
#define BATON_WORKER_WIRE_PEER_H

#include "common/kv/handoff/handoff.h"
#include "proto/worker.pb-c.h"

#include <stdbool.h>

/* How many questions it asks: an Extend one a handle, a Hello or an unknown message none. */
size_t wire_peer_down_count(const Baton__Worker__V1__PeerDown *message);
/* The question at index < count. */
struct peer_down wire_peer_down(const Baton__Worker__V1__PeerDown *message, size_t index);

/* Its checksums point into the message. A Complete whose logprobs are none that a worker sends has
 * no first token: UINT32_MAX. False: no message of the handoff; `up` is unchanged. */
bool wire_peer_up(const Baton__Worker__V1__PeerUp *message, struct peer_up *up);

/* A message with room for its parts, which it points to: it must stay where it was packed. */
struct wire_peer_down_room {
    Baton__Worker__V1__PeerDown message;
    Baton__Worker__V1__HandleRef ref;
    Baton__Worker__V1__Extend extend;
    Baton__Worker__V1__Subscribe *handles[1]; /* the one that an Extend of ours names */
    union {
        Baton__Worker__V1__Subscribe subscribe;
        Baton__Worker__V1__Confirm confirm;
        Baton__Worker__V1__PeerRelease release;
    };
};
void wire_peer_down_pack(const struct peer_down *down, struct wire_peer_down_room *room);

struct wire_peer_up_room {
    Baton__Worker__V1__PeerUp message;
    Baton__Worker__V1__Logprobs logprobs; /* of a Complete */
    union {
        Baton__Worker__V1__Ready ready;
        Baton__Worker__V1__Complete complete;
        Baton__Worker__V1__Held held;
        Baton__Worker__V1__Gone gone;
        Baton__Worker__V1__Extended extended;
    };
};
/* The checksums stay the caller's. */
void wire_peer_up_pack(const struct peer_up *up, struct wire_peer_up_room *room);

#endif
