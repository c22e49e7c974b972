#include "common/transport/kv_transport.h"

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/transport/transport_ops.h"

#include <stdlib.h>
#include <string.h>

/* What one poll copies at most from mapped peers: under a millisecond on the slowest memory we know of, so that the thread
 * stays responsive; and the piece after which another peer gets its turn. */
#define COPY_BUDGET_BYTES (4u << 20)
#define COPY_TURN_BYTES   (1u << 20)
/* How often a closing peer is looked at when nothing wakes us, and how long kv_transport_close waits for one. */
#define CLOSING_POLL_US 1000
#define CLOSING_MAX_US  2000000

static void peer_close(struct kv_peer *peer, enum status status, const char *reason,
                       const char *reads_reason);
static void advance_peers(struct kv_transport *transport);

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
    struct kv_transport *transport;
    TRY(ops->open(config, &transport, err));
    transport->ops = ops;
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
        advance_peers(transport);
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
        peer_close(peer, STATUS_CANCELLED, "closed by us", "closed by us");
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
        .run_count = run_count,
    };
    memcpy(read->runs, runs, run_count * sizeof *runs);
    TAILQ_INSERT_TAIL(&peer->reads, read, link);
    transport->read_count++;
    transport->counters.reads++;
    if (deadline_us < transport->deadline_floor_us)
        transport->deadline_floor_us = deadline_us;
    return STATUS_OK;
}

static void read_end(struct kv_read *read)
{
    struct kv_peer *peer = read->peer;
    struct kv_transport *transport = peer->transport;
    TAILQ_REMOVE(&peer->reads, read, link);
    TAILQ_INSERT_TAIL(&transport->ended, read, link);
    peer->events_due++;
    if (read->status == STATUS_OK)
        transport->counters.bytes_read += read->bytes;
    else
        transport->counters.reads_failed++;
}

static void read_fail(struct kv_read *read, enum status status, const char *reason)
{
    if (read->status != STATUS_OK)
        return;
    read->status = status;
    read->reason = reason;
}

void kv_read_part_done(struct kv_read *read, enum status status, const char *reason)
{
    ASSERT(read->parts > 0);
    read->parts--;
    if (status != STATUS_OK) {
        read_fail(read, status, reason);
        kv_peer_fail(read->peer, status, reason);
    }
    /* One that failed ends with its peer. */
    bool complete = read->status == STATUS_OK && read->next_run == read->run_count;
    if (read->parts == 0 && (complete || read->peer->state == KV_PEER_CLOSING))
        read_end(read);
}

/* Copies up to `budget` bytes of the peer's reads from its mapped pool; returns what is left of it. */
static size_t copy_reads(struct kv_peer *peer, size_t budget)
{
    struct kv_read *read;
    while (budget > 0 && (read = TAILQ_FIRST(&peer->reads))) {
        const struct kv_read_run *run = &read->runs[read->next_run];
        uint64_t left = run->bytes - read->next_bytes;
        size_t bytes = left < budget ? left : budget;
        memcpy(peer->transport->pool + run->local_offset + read->next_bytes,
               peer->mapped + run->remote_offset + read->next_bytes, bytes);
        budget -= bytes;
        read->next_bytes += bytes;
        if (read->next_bytes < run->bytes)
            continue;
        read->next_bytes = 0;
        if (++read->next_run == read->run_count)
            read_end(read);
    }
    return budget;
}

static bool has_copies(const struct kv_peer *peer)
{
    return peer->state == KV_PEER_OPEN && !peer->failed && peer->mapped &&
           !TAILQ_EMPTY(&peer->reads);
}

/* Peers take turns, and the next poll goes on where this one stopped. */
static void copy_in_turns(struct kv_transport *transport)
{
    size_t budget = COPY_BUDGET_BYTES;
    uint32_t idle = 0;
    while (budget > 0 && idle < transport->peer_count) {
        struct kv_peer *peer = TAILQ_FIRST(&transport->peers);
        size_t turn = budget < COPY_TURN_BYTES ? budget : COPY_TURN_BYTES;
        size_t left = has_copies(peer) ? copy_reads(peer, turn) : turn;
        idle = left == turn ? idle + 1 : 0;
        budget -= turn - left;
        TAILQ_REMOVE(&transport->peers, peer, link);
        TAILQ_INSERT_TAIL(&transport->peers, peer, link);
    }
}

/* -- the life of a peer -- */

void kv_peer_fail(struct kv_peer *peer, enum status status, const char *reason)
{
    if (peer->failed)
        return;
    peer->failed = status;
    peer->failed_reason = reason;
}

/* Every read in flight gets its status here; it ends as soon as none of its memory is landing any more. */
static void peer_close(struct kv_peer *peer, enum status status, const char *reason,
                       const char *reads_reason)
{
    ASSERT(peer->state == KV_PEER_OPEN && status != STATUS_OK);
    peer->state = KV_PEER_CLOSING;
    peer->status = status;
    peer->reason = reason;
    struct kv_read *read;
    TAILQ_FOREACH(read, &peer->reads, link)
    read_fail(read, status == STATUS_TIMEOUT ? STATUS_UNAVAILABLE : status, reads_reason);
    peer->transport->ops->close_begin(peer);
    for (struct kv_read *next = TAILQ_FIRST(&peer->reads); (read = next);) {
        next = TAILQ_NEXT(read, link);
        if (read->parts == 0)
            read_end(read);
    }
}

static void end_expired(struct kv_transport *transport, uint64_t now_us)
{
    if (now_us < transport->deadline_floor_us)
        return;
    uint64_t floor_us = UINT64_MAX;
    struct kv_peer *peer;
    TAILQ_FOREACH(peer, &transport->peers, link)
    {
        if (peer->state != KV_PEER_OPEN)
            continue;
        bool expired = false;
        struct kv_read *read;
        TAILQ_FOREACH(read, &peer->reads, link)
        {
            if (read->deadline_us <= now_us) {
                expired = true;
                read_fail(read, STATUS_TIMEOUT, "deadline");
            } else if (read->deadline_us < floor_us) {
                floor_us = read->deadline_us;
            }
        }
        if (expired)
            peer_close(peer, STATUS_TIMEOUT, "deadline",
                       "the deadline of another read of this peer");
    }
    transport->deadline_floor_us = floor_us;
}

static void advance_peers(struct kv_transport *transport)
{
    struct kv_peer *peer;
    TAILQ_FOREACH(peer, &transport->peers, link)
    {
        if (peer->state == KV_PEER_OPEN && !peer->failed && !peer->mapped)
            transport->ops->start(peer);
        if (peer->state == KV_PEER_OPEN && peer->failed)
            peer_close(peer, peer->failed, peer->failed_reason, peer->failed_reason);
        if (peer->state == KV_PEER_CLOSING && TAILQ_EMPTY(&peer->reads) &&
            transport->ops->close_done(peer))
            peer->state = KV_PEER_CLOSED;
    }
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
    end_expired(transport, now_us);
    copy_in_turns(transport);
    advance_peers(transport);
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
        bool unstarted = peer->state == KV_PEER_OPEN && !peer->mapped &&
                         TAILQ_FIRST(&peer->reads) && !TAILQ_FIRST(&peer->reads)->parts;
        if (has_copies(peer) || unstarted || peer->state == KV_PEER_CLOSED ||
            (peer->state == KV_PEER_OPEN && peer->failed))
            return false;
    }
    return transport->ops->arm(transport);
}

uint64_t kv_transport_next_deadline_us(const struct kv_transport *transport)
{
    const struct kv_peer *peer;
    bool reads = false;
    if (transport->unfinished)
        return transport->polled_us + CLOSING_POLL_US;
    TAILQ_FOREACH(peer, &transport->peers, link)
    {
        if (peer->state == KV_PEER_CLOSING)
            return transport->polled_us + CLOSING_POLL_US;
        reads = reads || !TAILQ_EMPTY(&peer->reads);
    }
    return reads ? transport->deadline_floor_us : UINT64_MAX;
}

struct kv_transport_counters kv_transport_counters(const struct kv_transport *transport)
{
    return transport->counters;
}
