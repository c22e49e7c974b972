/* The transport between processes: two lanes to one pool. Every pairing has a link of the tcp lane,
 * which admits it and shows the peer's death. On the lane shm the peer's pool is mapped:
 * kv_transport.c copies from it, and the sign of life behind it shows a death sooner. */
#include "common/base/log.h"
#include "common/base/rng.h"
#include "common/kv/transport/kv_life.h"
#include "common/kv/transport/kv_memory.h"
#include "common/kv/transport/tcp.h"
#include "common/kv/transport/ucx.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_EVENTS 16 /* in one poll; the rest is reported again */

struct remote_transport {
    struct kv_transport base;
    enum kv_lane asked;
    struct ucx_pool *shm;     /* NULL: the lane shm is not offered */
    struct kv_life *life;     /* NULL: no lane shm, or only the links show a death */
    struct tcp_source deaths; /* the deaths of watched peers */
    uint8_t *memory;          /* the pool if it isn't in shared memory, otherwise NULL */
    size_t memory_bytes;
    uint32_t turns; /* polls that found work; each moves the source that is served first */
    struct tcp_lane tcp;
};

struct remote_peer {
    struct kv_peer base;
    struct ucx_mapping *mapping; /* NULL: the lane tcp */
    struct tcp_link *link;
};

static struct remote_transport *remote_of(const struct kv_peer *peer)
{
    return (struct remote_transport *)peer->transport;
}

/* -- open, close -- */

static void remote_close(struct kv_transport *transport)
{
    struct remote_transport *remote = (struct remote_transport *)transport;
    tcp_owner_close(&remote->tcp);
    kv_life_stop(remote->life);
    if (remote->tcp.epoll_fd >= 0)
        close(remote->tcp.epoll_fd);
    ucx_pool_destroy(remote->shm);
    if (remote->memory)
        kv_memory_unmap(remote->memory, remote->memory_bytes);
    free(remote);
}

static enum status pool_open(struct remote_transport *remote, size_t bytes, struct error *err)
{
    struct error why = {""};
    enum status status =
        remote->asked == KV_LANE_TCP ? STATUS_OK : ucx_pool_create(bytes, &remote->shm, &why);
    if (status != STATUS_OK && remote->asked == KV_LANE_SHM) {
        *err = why;
        return status;
    }
    if (status != STATUS_OK) {
        char quoted[600];
        log_warn("transport",
                 "msg=\"the lane shm can't be had: peers of this machine, too, will use tcp\" "
                 "why=%s",
                 log_quote(why.text, quoted, sizeof quoted));
    }
    if (remote->shm) {
        remote->base.pool = ucx_pool_memory(remote->shm);
        return STATUS_OK;
    }
    TRY(kv_memory_map(bytes, &remote->memory, err));
    remote->memory_bytes = bytes;
    remote->base.pool = remote->memory;
    return STATUS_OK;
}

static void life_open(struct remote_transport *remote)
{
    struct error why;
    if (kv_life_start(ucx_pool_signs(remote->shm), &remote->life, &why) == STATUS_OK) {
        remote->deaths = (struct tcp_source){TCP_OTHER, kv_life_fd(remote->life), TCP_UNKNOWN};
        if (tcp_wait_for(&remote->tcp, &remote->deaths, EPOLLIN)) {
            remote->base.self.sign = kv_life_sign(remote->life);
            return;
        }
        error_set(&why, STATUS_IO, "no epoll entry: %s", strerror(errno));
        kv_life_stop(remote->life);
        remote->life = NULL;
    }
    char quoted[600];
    log_warn("transport",
             "msg=\"deaths of processes that share a pool are known late, by their sockets\" "
             "why=%s",
             log_quote(why.text, quoted, sizeof quoted));
}

static enum status parts_open(struct remote_transport *remote,
                              const struct kv_transport_config *config, struct error *err)
{
    struct kv_address *self = &remote->base.self;
    TRY(pool_open(remote, config->pool_bytes, err));
    remote->base.pool_bytes = config->pool_bytes;
    self->kind = KV_TRANSPORT_REMOTE;
    self->id = rng_entropy();
    self->pool_bytes = config->pool_bytes;
    self->lanes = remote->asked == KV_LANE_SHM ? 0 : KV_ADDRESS_TCP;
    if (remote->shm) {
        self->lanes |= KV_ADDRESS_SHM;
        ucx_pool_describe(remote->shm, self);
    }
    remote->tcp.transport = &remote->base;
    remote->tcp.serves = self->lanes & KV_ADDRESS_TCP;
    remote->tcp.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (remote->tcp.epoll_fd < 0)
        return error_set(err, STATUS_IO, "no epoll descriptor: %s", strerror(errno));
    if (remote->shm)
        life_open(remote);
    return tcp_owner_open(&remote->tcp, config, self, err);
}

static enum status remote_open(const struct kv_transport_config *config, struct kv_transport **out,
                               struct error *err)
{
    struct remote_transport *remote = calloc(1, sizeof *remote);
    if (!remote)
        return error_set(err, STATUS_LIMIT, "no memory for a transport");
    remote->asked = config->lane;
    remote->tcp.epoll_fd = -1;
    remote->base.timer_us = UINT64_MAX;
    struct error ignored;
    enum status status = parts_open(remote, config, err ? err : &ignored);
    if (status != STATUS_OK) {
        remote_close(&remote->base);
        return status;
    }
    *out = &remote->base;
    return STATUS_OK;
}

/* -- readers of our pool -- */

static enum status remote_admit(struct kv_transport *transport, struct kv_address *address,
                                struct error *err)
{
    struct remote_transport *remote = (struct remote_transport *)transport;
    return tcp_owner_admit(&remote->tcp, &address->admission, address->secret, err);
}

static void remote_revoke(struct kv_transport *transport, uint64_t admission)
{
    tcp_owner_revoke(&((struct remote_transport *)transport)->tcp, admission);
}

/* -- pairings -- */

static enum status lane_open(struct remote_transport *remote, const struct kv_address *address,
                             struct remote_peer *peer, struct error *err)
{
    enum status status = STATUS_UNAVAILABLE;
    if (remote->shm && !(address->lanes & KV_ADDRESS_SHM))
        status = error_set(err, STATUS_UNAVAILABLE, "the peer does not offer the lane shm");
    else if (remote->shm)
        status = ucx_map(remote->shm, address, &peer->mapping, &peer->base.mapped, err);
    if (status == STATUS_OK) {
        peer->base.lane = "shm"; /* the pool is mapped here */
        return STATUS_OK;
    }
    if (remote->asked == KV_LANE_SHM)
        return status;
    struct tcp_at at;
    if (remote->shm && tcp_at_from_address(address, &at) && tcp_at_is_loopback(&at)) {
        char quoted[600];
        log_warn_limited("transport", "msg=\"a peer of this machine is read over tcp\" why=%s",
                         log_quote(err->text, quoted, sizeof quoted));
    }
    peer->base.lane = "tcp";
    if (!(address->lanes & KV_ADDRESS_TCP))
        return error_set(err, STATUS_UNAVAILABLE, "the peer does not offer the lane tcp");
    return STATUS_OK;
}

static enum status remote_pair(struct kv_transport *transport, const struct kv_address *address,
                               struct kv_peer **out, struct error *err)
{
    struct remote_transport *remote = (struct remote_transport *)transport;
    struct remote_peer *peer = calloc(1, sizeof *peer);
    if (!peer)
        return error_set(err, STATUS_LIMIT, "no memory for a peer");
    struct error ignored;
    err = err ? err : &ignored;
    enum status status = lane_open(remote, address, peer, err);
    if (status == STATUS_OK)
        status = tcp_link_open(&remote->tcp, address, &peer->base, &peer->link, err);
    if (status != STATUS_OK) {
        ucx_unmap(remote->shm, peer->mapping);
        free(peer);
        return status;
    }
    if (remote->life && peer->mapping && address->sign &&
        !kv_life_watch(remote->life, ucx_mapping_signs(peer->base.mapped, address),
                       address->admission, address->sign, &peer->base))
        log_warn_limited("transport",
                         "watched=%d msg=\"no room to watch one more peer of this machine: its "
                         "death is known late, by its socket\"",
                         KV_LIFE_MAX_WATCHED);
    *out = &peer->base;
    return STATUS_OK;
}

static void remote_start(struct kv_peer *peer)
{
    tcp_link_start(&remote_of(peer)->tcp, ((struct remote_peer *)peer)->link);
}

static void remote_close_peer(struct kv_peer *peer)
{
    tcp_link_close(&remote_of(peer)->tcp, ((struct remote_peer *)peer)->link);
}

static void remote_peer_free(struct kv_peer *base)
{
    struct remote_peer *peer = (struct remote_peer *)base;
    if (remote_of(base)->life)
        kv_life_unwatch(remote_of(base)->life, base);
    tcp_link_free(&remote_of(base)->tcp, peer->link);
    ucx_unmap(remote_of(base)->shm, peer->mapping);
    free(peer);
}

/* -- progress -- */

static void remote_progress(struct kv_transport *transport)
{
    struct remote_transport *remote = (struct remote_transport *)transport;
    struct tcp_lane *tcp = &remote->tcp;
    struct epoll_event events[MAX_EVENTS];
    size_t budget = TCP_BUDGET_BYTES;
    struct kv_peer *peer;
    if (remote->shm)
        ucx_pool_progress(remote->shm);
    int count = epoll_wait(tcp->epoll_fd, events, MAX_EVENTS, 0);
    /* The kernel lists sources that stay ready in the same order again, and the budget is enough
     * for the first few of them. */
    uint32_t first = count > 0 ? remote->turns++ % (uint32_t)count : 0;
    for (int i = 0; i < count && budget > 0; i++) {
        const struct epoll_event *event = &events[(first + (uint32_t)i) % (uint32_t)count];
        struct tcp_source *source = event->data.ptr;
        switch (source->kind) {
        case TCP_LISTENER: tcp_owner_accept(tcp); break;
        case TCP_CLIENT: tcp_client_ready(tcp, source, event->events, &budget); break;
        case TCP_LINK: tcp_link_ready(tcp, source, event->events, &budget); break;
        case TCP_OTHER:
            while ((peer = kv_life_next_death(remote->life)))
                kv_peer_fail(peer, KV_FAILURE_PEER_GONE, "the peer's process ended");
            break;
        }
    }
    tcp_owner_tick(tcp);
    transport->timer_us = tcp_owner_next_us(tcp);
}

static int remote_fd(const struct kv_transport *transport)
{
    return ((const struct remote_transport *)transport)->tcp.epoll_fd;
}

const struct kv_transport_ops kv_remote_ops = {
    .open = remote_open,
    .close = remote_close,
    .admit = remote_admit,
    .revoke = remote_revoke,
    .pair = remote_pair,
    .progress = remote_progress,
    .start = remote_start,
    .close_peer = remote_close_peer,
    .peer_free = remote_peer_free,
    .fd = remote_fd,
};
