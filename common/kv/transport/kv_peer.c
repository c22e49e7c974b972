#include "common/kv/transport/kv_peer.h"

#include "common/base/assert.h"
#include "common/kv/transport/kv_faults.h"

#include <string.h>

/* What one poll copies at most from mapped peers: under a millisecond on the slowest memory we know
 * of, so that the thread stays responsive; and the piece after which another peer gets its turn. */
#define COPY_BUDGET_BYTES (1u << 20)
#define COPY_TURN_BYTES   (256u << 10)

static void read_end(struct kv_read *read)
{
    struct kv_peer *peer = read->peer;
    struct kv_transport *transport = peer->transport;
    TAILQ_REMOVE(&peer->reads, read, link);
    TAILQ_INSERT_TAIL(&transport->ended, read, link);
    peer->events_due++;
    if (!read->failure)
        transport->counters.bytes_read += read->bytes;
    else
        transport->counters.reads_failed[read->failure]++;
}

static void read_fail(struct kv_read *read, enum kv_failure failure, const char *reason)
{
    if (read->failure)
        return;
    read->failure = failure;
    read->reason = reason;
}

/* All of its bytes have landed. */
static void read_complete(struct kv_read *read)
{
    struct kv_transport *transport = read->peer->transport;
    if (transport->faults && !kv_faults_landed(transport, read))
        return;
    read_end(read);
    if (transport->faults)
        kv_peers_release(transport, true);
}

void kv_peers_release(struct kv_transport *transport, bool reordered)
{
    struct kv_peer *peer;
    TAILQ_FOREACH(peer, &transport->peers, link)
    {
        struct kv_read *read;
        for (struct kv_read *next = TAILQ_FIRST(&peer->reads); (read = next);) {
            next = TAILQ_NEXT(read, link);
            if (read->held_us && !read->failure &&
                (read->held_us <= transport->polled_us || (reordered && read->reordered)))
                read_end(read);
        }
    }
}

void kv_read_part_done(struct kv_read *read, enum kv_failure failure, const char *reason)
{
    ASSERT(read->parts > 0);
    read->parts--;
    if (failure) {
        read_fail(read, failure, reason);
        kv_peer_fail(read->peer, failure, reason);
    }
    /* One that failed ends with its peer. */
    if (read->parts == 0 && !read->failure && read->next_run == read->run_count)
        read_complete(read);
}

/* The first whose bytes have not all been asked for. */
static struct kv_read *first_unfinished(const struct kv_peer *peer)
{
    struct kv_read *read;
    TAILQ_FOREACH(read, &peer->reads, link)
    if (read->next_run < read->run_count)
        return read;
    return NULL;
}

/* Copies up to `budget` bytes of the peer's reads from its mapped pool; returns what is left of
 * it. */
static size_t copy_reads(struct kv_peer *peer, size_t budget)
{
    struct kv_read *read;
    while (budget > 0 && !peer->failed && (read = first_unfinished(peer))) {
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
            read_complete(read);
    }
    return budget;
}

bool kv_peer_has_copies(const struct kv_peer *peer)
{
    return peer->state == KV_PEER_OPEN && peer->welcomed && !peer->failed && peer->mapped &&
           first_unfinished(peer);
}

void kv_peers_copy(struct kv_transport *transport)
{
    size_t budget = COPY_BUDGET_BYTES;
    uint32_t idle = 0;
    while (budget > 0 && idle < transport->peer_count) {
        struct kv_peer *peer = TAILQ_FIRST(&transport->peers);
        size_t turn = budget < COPY_TURN_BYTES ? budget : COPY_TURN_BYTES;
        size_t left = kv_peer_has_copies(peer) ? copy_reads(peer, turn) : turn;
        idle = left == turn ? idle + 1 : 0;
        budget -= turn - left;
        TAILQ_REMOVE(&transport->peers, peer, link);
        TAILQ_INSERT_TAIL(&transport->peers, peer, link);
    }
}

void kv_peer_fail(struct kv_peer *peer, enum kv_failure failure, const char *reason)
{
    if (peer->failed)
        return;
    peer->failed = failure;
    peer->failed_reason = reason;
}

void kv_peer_close(struct kv_peer *peer, enum kv_failure failure, const char *reason)
{
    ASSERT(peer->state == KV_PEER_OPEN && failure);
    peer->state = KV_PEER_CLOSED;
    peer->failure = failure;
    peer->reason = reason;
    struct kv_read *read;
    TAILQ_FOREACH(read, &peer->reads, link)
    read_fail(read, failure == KV_FAILURE_DEADLINE ? KV_FAILURE_PEER_DEADLINE : failure, reason);
    peer->transport->ops->close_peer(peer);
    while ((read = TAILQ_FIRST(&peer->reads))) {
        ASSERT(read->parts == 0);
        read_end(read);
    }
}

void kv_peers_end_expired(struct kv_transport *transport, uint64_t now_us)
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
                read_fail(read, KV_FAILURE_DEADLINE, NULL);
            } else if (read->deadline_us < floor_us) {
                floor_us = read->deadline_us;
            }
        }
        if (expired)
            kv_peer_close(peer, KV_FAILURE_DEADLINE, NULL);
    }
    transport->deadline_floor_us = floor_us;
}

void kv_peers_advance(struct kv_transport *transport)
{
    struct kv_peer *peer;
    TAILQ_FOREACH(peer, &transport->peers, link)
    {
        if (peer->state == KV_PEER_OPEN && !peer->failed && !peer->mapped) {
            peer->unstarted = false;
            transport->ops->start(peer);
        }
        if (peer->state == KV_PEER_OPEN && peer->failed)
            kv_peer_close(peer, peer->failed, peer->failed_reason);
    }
}
