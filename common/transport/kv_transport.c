#include "common/transport/kv_transport.h"

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/transport/kv_faults.h"
#include "common/transport/kv_peer.h"

#include <stdlib.h>
#include <string.h>

/* How often a closing peer is looked at when nothing wakes us, and how long kv_transport_close waits for one. */
#define CLOSING_POLL_US 1000
#define CLOSING_MAX_US  2000000

enum status kv_transport_open(const struct kv_transport_config *config, struct kv_transport **out,
                              struct error *err)
{
    ASSERT(config->kind == KV_TRANSPORT_LOCAL || config->kind == KV_TRANSPORT_UCX);
    const struct kv_transport_ops *ops =
        config->kind == KV_TRANSPORT_LOCAL ? &kv_local_ops : &kv_ucx_ops;
    if (config->pool_bytes == 0 || config->pool_bytes > KV_ADDRESS_MAX_POOL_BYTES)
        return error_set(err, STATUS_INVALID, "a KV pool of %zu bytes: give 1 to %llu",
                         config->pool_bytes, (unsigned long long)KV_ADDRESS_MAX_POOL_BYTES);
    if (config->max_reads == 0)
        return error_set(err, STATUS_INVALID, "max_reads is 0: give at least 1");
    struct kv_faults *faults = NULL;
    if (config->faults && *config->faults)
        TRY(kv_faults_create(config->faults, &faults, err));
    struct kv_transport *transport;
    enum status status = ops->open(config, &transport, err);
    if (status != STATUS_OK) {
        kv_faults_destroy(faults);
        return status;
    }
    transport->ops = ops;
    transport->faults = faults;
    transport->pool_bytes = config->pool_bytes;
    transport->max_reads = config->max_reads;
    transport->deadline_floor_us = UINT64_MAX;
    TAILQ_INIT(&transport->peers);
    TAILQ_INIT(&transport->ended);
    *out = transport;
    return STATUS_OK;
}

static void peer_free(struct kv_peer *peer)
{
    struct kv_transport *transport = peer->transport;
    TAILQ_REMOVE(&transport->peers, peer, link);
    transport->peer_count--;
    transport->ops->peer_free(peer);
}

static bool all_closed(const struct kv_transport *transport)
{
    const struct kv_peer *peer;
    TAILQ_FOREACH(peer, &transport->peers, link)
    if (peer->state < KV_PEER_CLOSED)
        return false;
    return true;
}

void kv_transport_close(struct kv_transport *transport)
{
    if (!transport)
        return;
    struct kv_peer *peer;
    TAILQ_FOREACH(peer, &transport->peers, link)
    kv_transport_unpair(transport, peer);
    /* A forced close waits for no one: it needs progress only. The bound is for a library that breaks this. */
    for (uint64_t start = clock_now_us();
         !all_closed(transport) && clock_now_us() - start < CLOSING_MAX_US;) {
        transport->ops->progress(transport);
        kv_peers_advance(transport);
    }
    struct kv_read *read;
    while ((read = TAILQ_FIRST(&transport->ended))) {
        TAILQ_REMOVE(&transport->ended, read, link);
        free(read);
    }
    while ((peer = TAILQ_FIRST(&transport->peers))) {
        while ((read = TAILQ_FIRST(&peer->reads))) {
            TAILQ_REMOVE(&peer->reads, read, link);
            free(read);
        }
        peer_free(peer);
    }
    kv_faults_destroy(transport->faults);
    transport->ops->close(transport);
}

void *kv_transport_pool(const struct kv_transport *transport)
{
    return transport->pool;
}

const void *kv_transport_address(const struct kv_transport *transport, size_t *bytes)
{
    *bytes = transport->address_bytes;
    return transport->address;
}

enum status kv_transport_pair(struct kv_transport *transport, const void *bytes, size_t count,
                              struct kv_peer **out, struct error *err)
{
    struct kv_address address;
    enum kv_transport_kind kind =
        transport->ops == &kv_local_ops ? KV_TRANSPORT_LOCAL : KV_TRANSPORT_UCX;
    TRY(kv_address_decode(bytes, count, kind, &address, err));
    if (transport->peer_count >= KV_TRANSPORT_MAX_PEERS)
        return error_set(err, STATUS_LIMIT, "paired with %d peers already, the most there may be",
                         KV_TRANSPORT_MAX_PEERS);
    struct kv_peer *peer;
    TRY(transport->ops->pair(transport, &address, &peer, err));
    peer->transport = transport;
    peer->state = KV_PEER_OPEN;
    peer->pool_bytes = address.pool_bytes;
    TAILQ_INIT(&peer->reads);
    TAILQ_INSERT_TAIL(&transport->peers, peer, link);
    transport->peer_count++;
    *out = peer;
    return STATUS_OK;
}

const char *kv_peer_lane(const struct kv_peer *peer)
{
    return peer->lane;
}

void kv_transport_unpair(struct kv_transport *transport, struct kv_peer *peer)
{
    ASSERT(peer->transport == transport);
    if (peer->state == KV_PEER_OPEN)
        kv_peer_close(peer, STATUS_CANCELLED, "closed by us", "closed by us");
}

/* -- reads -- */

static bool lies_inside(uint64_t offset, uint64_t bytes, uint64_t pool_bytes)
{
    return bytes > 0 && bytes <= pool_bytes && offset <= pool_bytes - bytes;
}

enum status kv_transport_read(struct kv_transport *transport, struct kv_peer *peer,
                              const struct kv_read_run *runs, size_t run_count,
                              uint64_t deadline_us, uint64_t cookie)
{
    ASSERT(peer->transport == transport);
    if (run_count == 0 || run_count > KV_TRANSPORT_MAX_RUNS)
        return STATUS_INVALID;
    uint64_t bytes = 0;
    for (size_t i = 0; i < run_count; i++) {
        if (!lies_inside(runs[i].remote_offset, runs[i].bytes, peer->pool_bytes) ||
            !lies_inside(runs[i].local_offset, runs[i].bytes, transport->pool_bytes))
            return STATUS_INVALID;
        bytes += runs[i].bytes;
    }
    if (peer->state != KV_PEER_OPEN || peer->failed)
        return STATUS_UNAVAILABLE;
    if (transport->read_count >= transport->max_reads)
        return STATUS_LIMIT;
    struct kv_read *read = malloc(sizeof *read + run_count * sizeof *runs);
    if (!read)
        return STATUS_LIMIT;
    *read = (struct kv_read){
        .peer = peer,
        .cookie = cookie,
        .deadline_us = deadline_us,
        .bytes = bytes,
        .index = transport->counters.reads,
        .run_count = run_count,
    };
    memcpy(read->runs, runs, run_count * sizeof *runs);
    TAILQ_INSERT_TAIL(&peer->reads, read, link);
    peer->unstarted = !peer->mapped;
    transport->read_count++;
    transport->counters.reads++;
    if (deadline_us < transport->deadline_floor_us)
        transport->deadline_floor_us = deadline_us;
    return STATUS_OK;
}

/* -- poll -- */

static void free_gone(struct kv_transport *transport)
{
    struct kv_peer *peer;
    for (struct kv_peer *next = TAILQ_FIRST(&transport->peers); (peer = next);) {
        next = TAILQ_NEXT(peer, link);
        if (peer->state == KV_PEER_GONE)
            peer_free(peer);
    }
}

static size_t take_events(struct kv_transport *transport, struct kv_event *events, size_t capacity)
{
    size_t count = 0;
    struct kv_read *read;
    while (count < capacity && (read = TAILQ_FIRST(&transport->ended))) {
        events[count++] = (struct kv_event){
            .kind = KV_EVENT_READ_DONE,
            .peer = read->peer,
            .cookie = read->cookie,
            .status = read->status,
            .bytes = read->status == STATUS_OK ? read->bytes : 0,
            .reason = read->reason,
        };
        read->peer->events_due--;
        transport->read_count--;
        TAILQ_REMOVE(&transport->ended, read, link);
        free(read);
    }
    struct kv_peer *peer;
    TAILQ_FOREACH(peer, &transport->peers, link)
    {
        if (count == capacity)
            break;
        if (peer->state != KV_PEER_CLOSED || peer->events_due > 0)
            continue;
        peer->state = KV_PEER_GONE;
        transport->counters.peers_closed++;
        events[count++] = (struct kv_event){
            .kind = KV_EVENT_PEER_CLOSED,
            .peer = peer,
            .status = peer->status,
            .reason = peer->reason,
        };
    }
    return count;
}

size_t kv_transport_poll(struct kv_transport *transport, uint64_t now_us, struct kv_event *events,
                         size_t capacity)
{
    transport->polled_us = now_us;
    free_gone(transport);
    transport->ops->progress(transport);
    kv_peers_end_expired(transport, now_us);
    kv_peers_copy(transport);
    if (transport->faults)
        kv_peers_release(transport, false);
    kv_peers_advance(transport);
    return take_events(transport, events, capacity);
}

int kv_transport_fd(const struct kv_transport *transport)
{
    return transport->ops->fd(transport);
}

bool kv_transport_arm(struct kv_transport *transport)
{
    if (!TAILQ_EMPTY(&transport->ended))
        return false;
    const struct kv_peer *peer;
    TAILQ_FOREACH(peer, &transport->peers, link)
    {
        if (kv_peer_has_copies(peer) || (peer->state == KV_PEER_OPEN && peer->unstarted) ||
            peer->state == KV_PEER_CLOSED || (peer->state == KV_PEER_OPEN && peer->failed))
            return false;
    }
    return transport->ops->arm(transport);
}

uint64_t kv_transport_next_deadline_us(const struct kv_transport *transport)
{
    const struct kv_peer *peer;
    bool reads = false;
    uint64_t held_us = UINT64_MAX;
    if (transport->unfinished)
        return transport->polled_us + CLOSING_POLL_US;
    TAILQ_FOREACH(peer, &transport->peers, link)
    {
        if (peer->state == KV_PEER_CLOSING)
            return transport->polled_us + CLOSING_POLL_US;
        reads = reads || !TAILQ_EMPTY(&peer->reads);
        const struct kv_read *read;
        if (transport->faults)
            TAILQ_FOREACH(read, &peer->reads, link)
        if (read->held_us && read->held_us < held_us)
            held_us = read->held_us;
    }
    return reads && transport->deadline_floor_us < held_us ? transport->deadline_floor_us : held_us;
}

struct kv_transport_counters kv_transport_counters(const struct kv_transport *transport)
{
    return transport->counters;
}
