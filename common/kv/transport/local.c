/* The reference transport: pools of one process, found in a process-wide table. A read is a memcpy
 * by kv_transport_poll. Its runs are landing until then, as with every other transport. */
#include "common/base/assert.h"
#include "common/base/rng.h"
#include "common/kv/transport/kv_memory.h"
#include "common/kv/transport/transport_ops.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define MAX_POOLS 64

/* A pool outlives its transport while a peer is paired with it: another thread may read its
 * bytes. */
struct local_pool {
    uint64_t id;
    uint8_t *memory;
    size_t bytes;
    uint32_t holders; /* its transport and its peers */
    bool closed;
    int wake_fd; /* its transport's */
};

struct local_transport {
    struct kv_transport base;
    struct local_pool *pool;
    int wake_fd; /* eventfd: some pool was closed */
};

struct local_peer {
    struct kv_peer base;
    struct local_pool *pool;
};

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static struct local_pool *table[MAX_POOLS]; /* pools with an open transport */

static void pool_release(struct local_pool *pool)
{
    pthread_mutex_lock(&table_lock);
    bool last = --pool->holders == 0;
    pthread_mutex_unlock(&table_lock);
    if (!last)
        return;
    kv_memory_unmap(pool->memory, pool->bytes);
    free(pool);
}

static enum status pool_allocate(size_t bytes, struct local_pool **out, struct error *err)
{
    struct local_pool *pool = calloc(1, sizeof *pool);
    if (!pool)
        return error_set(err, STATUS_LIMIT, "no memory for a KV pool");
    pool->bytes = bytes;
    enum status status = kv_memory_map(bytes, &pool->memory, err);
    if (status != STATUS_OK) {
        free(pool);
        return status;
    }
    pool->id = rng_entropy();
    pool->holders = 1;
    *out = pool;
    return STATUS_OK;
}

static bool table_add(struct local_pool *pool)
{
    bool added = false;
    pthread_mutex_lock(&table_lock);
    for (size_t i = 0; i < MAX_POOLS && !added; i++) {
        if (!table[i]) {
            table[i] = pool;
            added = true;
        }
    }
    pthread_mutex_unlock(&table_lock);
    return added;
}

/* Takes the pool out of the table, and wakes every other transport: one of its peers may be
 * gone. */
static void table_remove(struct local_pool *pool)
{
    pthread_mutex_lock(&table_lock);
    pool->closed = true;
    for (size_t i = 0; i < MAX_POOLS; i++) {
        if (table[i] == pool)
            table[i] = NULL;
        else if (table[i])
            eventfd_write(table[i]->wake_fd, 1);
    }
    pthread_mutex_unlock(&table_lock);
}

static enum status local_open(const struct kv_transport_config *config, struct kv_transport **out,
                              struct error *err)
{
    struct local_transport *local = calloc(1, sizeof *local);
    if (!local)
        return error_set(err, STATUS_LIMIT, "no memory for a transport");
    enum status status = pool_allocate(config->pool_bytes, &local->pool, err);
    if (status != STATUS_OK)
        goto fail_pool;
    local->wake_fd = local->pool->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (local->wake_fd < 0) {
        status =
            error_set(err, STATUS_IO, "no event descriptor for a transport: %s", strerror(errno));
        goto fail_eventfd;
    }
    local->base.self = (struct kv_address){
        .kind = KV_TRANSPORT_LOCAL,
        .id = local->pool->id,
        .pool_bytes = config->pool_bytes,
    };
    if (!table_add(local->pool)) {
        status =
            error_set(err, STATUS_LIMIT, "%d local transports are open, the maximum", MAX_POOLS);
        goto fail_table;
    }
    local->base.pool = local->pool->memory;
    local->base.timer_us = UINT64_MAX;
    *out = &local->base;
    return STATUS_OK;

fail_table:
    close(local->wake_fd);
fail_eventfd:
    pool_release(local->pool);
fail_pool:
    free(local);
    return status;
}

static void local_close(struct kv_transport *transport)
{
    struct local_transport *local = (struct local_transport *)transport;
    table_remove(local->pool);
    close(local->wake_fd);
    pool_release(local->pool);
    free(local);
}

static enum status local_pair(struct kv_transport *transport, const struct kv_address *address,
                              struct kv_peer **out, struct error *err)
{
    (void)transport;
    struct local_pool *pool = NULL;
    pthread_mutex_lock(&table_lock);
    for (size_t i = 0; i < MAX_POOLS && !pool; i++)
        if (table[i] && table[i]->id == address->id && table[i]->bytes == address->pool_bytes)
            pool = table[i];
    if (pool)
        pool->holders++;
    pthread_mutex_unlock(&table_lock);
    if (!pool)
        return error_set(err, STATUS_UNAVAILABLE,
                         "no pool of that address is open in this process (local transports don't "
                         "reach into others)");
    struct local_peer *peer = calloc(1, sizeof *peer);
    if (!peer) {
        pool_release(pool);
        return error_set(err, STATUS_LIMIT, "no memory for a peer");
    }
    peer->pool = pool;
    peer->base.mapped = pool->memory;
    peer->base.lane = "local";
    peer->base.ready = true;
    peer->base.welcomed = true;
    *out = &peer->base;
    return STATUS_OK;
}

/* Empties the wake-up, and fails the peers with closed pools. */
static void local_progress(struct kv_transport *transport)
{
    struct local_transport *local = (struct local_transport *)transport;
    eventfd_t wakeups;
    if (eventfd_read(local->wake_fd, &wakeups) != 0)
        return;
    struct kv_peer *peer;
    TAILQ_FOREACH(peer, &transport->peers, link)
    {
        pthread_mutex_lock(&table_lock);
        bool closed = ((struct local_peer *)peer)->pool->closed;
        pthread_mutex_unlock(&table_lock);
        if (closed)
            kv_peer_fail(peer, KV_FAILURE_PEER_GONE, NULL);
    }
}

static void local_start(struct kv_peer *peer)
{
    ASSERT(peer->mapped); /* mapped peers are never started */
}

static void local_close_peer(struct kv_peer *peer)
{
    (void)peer; /* nothing is in flight outside poll */
}

static void local_peer_free(struct kv_peer *peer)
{
    pool_release(((struct local_peer *)peer)->pool);
    free(peer);
}

static int local_fd(const struct kv_transport *transport)
{
    return ((const struct local_transport *)transport)
        ->wake_fd; /* readable until a poll empties it */
}

const struct kv_transport_ops kv_local_ops = {
    .open = local_open,
    .close = local_close,
    .pair = local_pair,
    .progress = local_progress,
    .start = local_start,
    .close_peer = local_close_peer,
    .peer_free = local_peer_free,
    .fd = local_fd,
};
