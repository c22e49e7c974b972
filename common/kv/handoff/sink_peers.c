#include "common/kv/handoff/sink_state.h"

static void append(struct sink_actions *out, enum sink_action_kind kind,
                   const struct sink_peer *peer)
{
    sink_append(out, kind, 0, 0)->peer = peer->key;
}

struct sink_peer *sink_peer_of(struct sink_table *table, uint64_t key)
{
    for (uint32_t i = 0; i < table->config.max_peers; i++)
        if (table->peers[i].used && table->peers[i].key == key)
            return &table->peers[i];
    return NULL;
}

struct sink_peer *sink_peer_take(struct sink_table *table, uint64_t key, struct sink_actions *out)
{
    struct sink_peer *place = NULL;
    for (uint32_t i = 0; i < table->config.max_peers; i++) {
        struct sink_peer *peer = &table->peers[i];
        if (peer->used && peer->key == key)
            return peer;
        if (!peer->used && (!place || place->used))
            place = peer;
    }
    for (uint32_t i = 0; !place && i < table->config.max_peers; i++) {
        bool idle = true;
        for (uint32_t j = 0; idle && j < table->config.max_sinks; j++)
            idle = table->slots[j].peer != &table->peers[i];
        if (idle) {
            place = &table->peers[i];
            append(out, SINK_CLOSE, place);
        }
    }
    if (place)
        *place = (struct sink_peer){.used = true, .key = key};
    return place;
}

bool sink_peer_needed(const struct sink_table *table, const struct sink_peer *peer)
{
    for (uint32_t i = 0; i < table->config.max_sinks; i++)
        if (table->slots[i].peer == peer && sink_pulls(&table->slots[i]))
            return true;
    return false;
}

void sink_peer_connect(struct sink_peer *peer, struct sink_actions *out)
{
    peer->stream = STREAM_CONNECTING;
    append(out, SINK_CONNECT, peer);
}

void sink_peer_pair(struct sink_peer *peer, struct sink_actions *out)
{
    if (peer->stream != STREAM_UP || peer->pair != PAIR_NONE || peer->link_ended)
        return;
    peer->pair = PAIR_ASKED;
    peer->pair_incarnation = peer->incarnation;
    append(out, SINK_PAIR, peer);
}

void sink_peer_unpair(struct sink_peer *peer, struct sink_actions *out)
{
    if (peer->pair == PAIR_NONE || peer->pair == PAIR_CLOSING)
        return;
    peer->pair = PAIR_CLOSING;
    append(out, SINK_UNPAIR, peer);
}
