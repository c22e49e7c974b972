#include "decode_worker/prefill_peers.h"

#include "common/base/str.h"

#include <string.h>

static struct prefill_peer *of_address(struct prefill_peers *peers, const char *address)
{
    for (int i = 0; i < PREFILL_PEERS_MAX; i++)
        if (peers->items[i].id && !strcmp(peers->items[i].address, address))
            return &peers->items[i];
    return NULL;
}

struct prefill_peer *prefill_peers_take(struct prefill_peers *peers, const char *address,
                                        const char *name, bool (*used)(void *context, uint64_t id),
                                        void *context)
{
    struct prefill_peer *place = of_address(peers, address);
    if (place || !*address)
        return place;
    for (int i = 0; i < PREFILL_PEERS_MAX; i++) {
        struct prefill_peer *peer = &peers->items[i];
        if (peer->stream || peer->pairing || (place && place->id < peer->id))
            continue;
        if (!peer->id || !used(context, peer->id))
            place = peer;
    }
    if (!place)
        return NULL;
    if (place->channel)
        rpc_channel_destroy(place->channel);
    *place = (struct prefill_peer){.id = ++peers->last_id};
    str_copy(place->address, sizeof place->address, address);
    str_copy(place->name, sizeof place->name, name);
    return place;
}

struct prefill_peer *prefill_peers_find(struct prefill_peers *peers, uint64_t id)
{
    for (int i = 0; i < PREFILL_PEERS_MAX; i++)
        if (peers->items[i].id == id)
            return &peers->items[i];
    return NULL;
}

struct prefill_peer *prefill_peers_of_pairing(struct prefill_peers *peers,
                                              const struct kv_peer *pairing)
{
    for (int i = 0; i < PREFILL_PEERS_MAX; i++)
        if (peers->items[i].pairing == pairing)
            return &peers->items[i];
    return NULL;
}
