/* The transport between processes: the lanes to one pool. Every pairing has a link of the tcp lane,
 * which admits it and shows the peer's death. On the lane shm the peer's pool is mapped:
 * kv_transport.c copies from it. On the lane cuda the reader's device has mapped it (mapped_lane).
 * On both a sign of life shows a death sooner. */
#include "common/base/log.h"
#include "common/base/rng.h"
#include "common/kv/transport/kv_life.h"
#include "common/kv/transport/kv_memory.h"
#include "common/kv/transport/mapped_lane.h"
#include "common/kv/transport/ucx.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define MAX_EVENTS 16 /* in one poll; the rest is reported again */

struct remote_transport {
    struct kv_transport base;
    enum kv_lane asked;
    struct ucx_pool *shm;       /* NULL: the lane shm is not offered */
    struct mapped_lane *mapped; /* NULL: the lane cuda is not offered */
    struct error not_mapped;    /* why not */
    struct kv_life *life;       /* NULL: no such lane, or only the links show a death */
    struct tcp_source deaths;   /* the deaths of watched peers */
    struct tcp_source copies;   /* a copy of staging has ended */
    uint8_t *memory;            /* the pool if it isn't in shared memory, otherwise NULL */
    size_t memory_bytes;
    uint32_t turns; /* polls that found work; each moves the source that is served first */
    struct tcp_lane tcp;
};

struct remote_peer {
    struct kv_peer base;
    struct ucx_mapping *mapping; /* NULL: another lane than shm */
    struct mapped_link *mapped;  /* NULL: another lane than cuda, or that failed */
    struct tcp_link *link;
    uint64_t admission; /* its own, at the owner */
    uint32_t sign;
    bool has_tcp; /* the owner offers that lane */
};

static struct remote_transport *remote_of(const struct kv_peer *peer)
{
    return (struct remote_transport *)peer->transport;
}

/* The lane was asked for by name, so that no other is taken. */
static bool is_by_name(const struct remote_transport *remote)
{
    return remote->asked != KV_LANE_AUTO && remote->asked != KV_LANE_TCP;
}

/* -- open, close -- */

static void remote_close(struct kv_transport *transport)
{
    struct remote_transport *remote = (struct remote_transport *)transport;
    tcp_owner_close(&remote->tcp);
    kv_staging_destroy(transport->staging);
    kv_life_stop(remote->life);
    mapped_lane_close(remote->mapped); /* it has the words of the own life */
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
    struct kv_life_word *words =
        remote->mapped ? mapped_lane_signs(remote->mapped) : ucx_pool_signs(remote->shm);
    if (kv_life_start(words, &remote->life, &why) == STATUS_OK) {
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

/* Offers the lane cuda, if the pool's device shares memory. */
static enum status mapped_open(struct remote_transport *remote,
                               const struct kv_transport_config *config, struct error *err)
{
    if (remote->asked == KV_LANE_TCP) {
        error_set(&remote->not_mapped, STATUS_OK, "transport is tcp here");
        return STATUS_OK;
    }
    enum status status = mapped_lane_open(&remote->tcp, config, &remote->base.self, &remote->mapped,
                                          &remote->not_mapped);
    if (status == STATUS_OK)
        return status;
    if (is_by_name(remote))
        return error_set(err, status, "the lane %s can't be had: %s",
                         remote->asked == KV_LANE_RDMA ? "rdma" : "cuda", remote->not_mapped.text);
    char quoted[600];
    log_warn("transport",
             "msg=\"the lane cuda can't be had: peers of this machine, too, will use tcp\" why=%s",
             log_quote(remote->not_mapped.text, quoted, sizeof quoted));
    return STATUS_OK;
}

static enum status parts_open(struct remote_transport *remote,
                              const struct kv_transport_config *config, struct error *err)
{
    struct kv_address *self = &remote->base.self;
    TRY(config->copier
            ? kv_staging_create(config->copier,
                                config->layout ? kv_layout_block_bytes(config->layout) /
                                                     kv_layout_head_run_bytes(config->layout) *
                                                     sizeof(uint32_t)
                                               : 1,
                                &remote->base.staging, err)
            : pool_open(remote, config->pool_bytes, err));
    remote->base.pool_bytes = config->pool_bytes;
    self->kind = KV_TRANSPORT_REMOTE;
    self->id = rng_entropy();
    self->pool_bytes = config->pool_bytes;
    self->lanes = is_by_name(remote) ? 0 : KV_ADDRESS_TCP;
    if (remote->shm) {
        self->lanes |= KV_ADDRESS_SHM;
        ucx_pool_describe(remote->shm, self);
    }
    remote->tcp.transport = &remote->base;
    remote->tcp.serves = self->lanes & KV_ADDRESS_TCP;
    remote->tcp.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (remote->tcp.epoll_fd < 0)
        return error_set(err, STATUS_IO, "no epoll descriptor: %s", strerror(errno));
    if (config->copier)
        TRY(mapped_open(remote, config, err));
    if (remote->shm || (remote->mapped && mapped_lane_signs(remote->mapped)))
        life_open(remote);
    if (config->copier) {
        remote->copies = (struct tcp_source){TCP_OTHER, config->copier->ended_fd, TCP_UNKNOWN};
        if (!tcp_wait_for(&remote->tcp, &remote->copies, EPOLLIN))
            return error_set(err, STATUS_IO, "epoll can't watch copies: %s", strerror(errno));
    }
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

/* Settles for the lane tcp, if the owner offers it. `why`: why not another. */
static enum status take_tcp(struct remote_peer *peer, struct error *err)
{
    peer->base.lane = "tcp";
    peer->base.ready = true;
    if (peer->has_tcp)
        return STATUS_OK;
    return error_set(err, STATUS_UNAVAILABLE, "the peer does not offer the lane tcp");
}

static enum status lane_open(struct remote_transport *remote, const struct kv_address *address,
                             struct remote_peer *peer, struct error *err)
{
    enum status status = STATUS_UNAVAILABLE;
    peer->has_tcp = address->lanes & KV_ADDRESS_TCP;
    if (remote->shm && !(address->lanes & KV_ADDRESS_SHM))
        status = error_set(err, STATUS_UNAVAILABLE, "the peer does not offer the lane shm");
    else if (remote->shm)
        status = ucx_map(remote->shm, address, &peer->mapping, &peer->base.mapped, err);
    if (status == STATUS_OK) {
        peer->base.lane = "shm"; /* the pool is mapped here */
        peer->base.ready = true;
        return STATUS_OK;
    }
    if (remote->mapped) {
        peer->base.lane = mapped_lane_name(remote->mapped); /* if the path is good */
        status = mapped_link_open(remote->mapped, address, &peer->base, &peer->mapped, err);
        if (status == STATUS_OK)
            return STATUS_OK;
    }
    if (is_by_name(remote))
        return status;
    if (remote->shm || remote->base.staging)
        peer->base.lane_reason = remote->shm || remote->mapped ? *err : remote->not_mapped;
    struct tcp_at at;
    if (remote->shm && tcp_at_from_address(address, &at) && tcp_at_is_loopback(&at)) {
        char quoted[600];
        log_warn_limited("transport", "msg=\"a peer of this machine is read over tcp\" why=%s",
                         log_quote(err->text, quoted, sizeof quoted));
    }
    return take_tcp(peer, err);
}

/* Watches the peer's words, which tell its death. */
static void watch_life(struct remote_transport *remote, const struct kv_life_word *words,
                       struct remote_peer *peer)
{
    if (!remote->life || !peer->sign ||
        kv_life_watch(remote->life, words, peer->admission, peer->sign, &peer->base))
        return;
    log_warn_limited(
        "transport",
        "watched=%d msg=\"no room to watch one more peer of this machine: its death is "
        "known late, by its socket\"",
        KV_LIFE_MAX_WATCHED);
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
    peer->base.transport = transport;
    peer->base.pool_bytes = address->pool_bytes;
    peer->admission = address->admission;
    peer->sign = address->sign;
    enum status status = lane_open(remote, address, peer, err);
    if (status == STATUS_OK)
        status = tcp_link_open(&remote->tcp, address, &peer->base, &peer->link, err);
    if (status != STATUS_OK) {
        mapped_link_free(peer->mapped);
        ucx_unmap(remote->shm, peer->mapping);
        free(peer);
        return status;
    }
    if (peer->mapping)
        watch_life(remote, ucx_mapping_signs(peer->base.mapped, address), peer);
    *out = &peer->base;
    return STATUS_OK;
}

/* Takes the lane cuda a step further: a pool that was mapped is tested and watched. If it fails,
 * the next lane is taken, unless this one was asked for by name. Returns true if it waits for
 * something that copies don't tell. */
static bool settle_lane(struct remote_transport *remote, struct remote_peer *peer)
{
    if (!peer->mapped || peer->base.ready)
        return false;
    bool waits = peer->base.welcomed && mapped_link_test(peer->mapped);
    if (mapped_link_state(peer->mapped) == MAPPED_GOOD) {
        watch_life(remote, mapped_link_signs(peer->mapped), peer);
        peer->base.ready = true;
    }
    if (mapped_link_state(peer->mapped) != MAPPED_FAILED)
        return waits;
    char quoted[600];
    error_set(&peer->base.lane_reason, STATUS_OK, "%s", mapped_link_reason(peer->mapped));
    log_warn_limited("transport", "msg=\"the lane cuda doesn't lead to a peer\" why=%s",
                     log_quote(peer->base.lane_reason.text, quoted, sizeof quoted));
    if (is_by_name(remote) || take_tcp(peer, NULL) != STATUS_OK)
        kv_peer_fail(&peer->base, KV_FAILURE_LANE, NULL);
    mapped_link_free(peer->mapped);
    peer->mapped = NULL;
    return false;
}

static void remote_start(struct kv_peer *base)
{
    struct remote_peer *peer = (struct remote_peer *)base;
    if (!base->ready)
        return;
    if (peer->mapped)
        (void)mapped_link_start(peer->mapped);
    else
        tcp_link_start(&remote_of(base)->tcp, peer->link);
}

static void remote_close_peer(struct kv_peer *base)
{
    struct remote_peer *peer = (struct remote_peer *)base;
    if (peer->mapped)
        mapped_link_close(peer->mapped);
    tcp_link_close(&remote_of(base)->tcp, peer->link);
}

static void remote_peer_free(struct kv_peer *base)
{
    struct remote_peer *peer = (struct remote_peer *)base;
    if (remote_of(base)->life)
        kv_life_unwatch(remote_of(base)->life, base);
    mapped_link_free(peer->mapped);
    tcp_link_free(&remote_of(base)->tcp, peer->link);
    ucx_unmap(remote_of(base)->shm, peer->mapping);
    free(peer);
}

/* -- progress -- */

/* Goes on with what waits for the device: connections for a copy or a buffer, and bursts. The end
 * of a copy wakes them. One that waits for a buffer looks again when one was given back, or when a
 * stalled reader may lose its. */
static void progress_device(struct remote_transport *remote)
{
    struct kv_transport *transport = &remote->base;
    struct tcp_lane *tcp = &remote->tcp;
    uint64_t tick_us = remote->mapped ? mapped_lane_tick(remote->mapped) : UINT64_MAX;
    uint64_t given = kv_staging_given(transport->staging);
    bool waits = tcp_owner_stage(tcp);
    struct kv_peer *base;
    TAILQ_FOREACH(base, &transport->peers, link)
    {
        struct remote_peer *peer = (struct remote_peer *)base;
        if (base->state != KV_PEER_OPEN || base->failed)
            continue;
        waits |= settle_lane(remote, peer);
        if (base->failed || !base->ready)
            continue;
        waits |= peer->mapped ? mapped_link_start(peer->mapped) : tcp_link_stage(tcp, peer->link);
    }
    bool again = given != kv_staging_given(transport->staging);
    uint64_t look_us = transport->polled_us + (again ? 0 : TCP_STALLED_US / 4);
    if (waits && transport->timer_us > look_us)
        transport->timer_us = look_us;
    if (transport->timer_us > tick_us)
        transport->timer_us = tick_us;
}

static void remote_progress(struct kv_transport *transport)
{
    struct remote_transport *remote = (struct remote_transport *)transport;
    struct tcp_lane *tcp = &remote->tcp;
    struct epoll_event events[MAX_EVENTS];
    size_t budget = TCP_BUDGET_BYTES;
    struct kv_peer *peer;
    eventfd_t copies;
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
        case TCP_MAPPED: mapped_lane_ready(remote->mapped, source); break;
        case TCP_OTHER:
            if (source == &remote->copies)
                eventfd_read(source->fd, &copies); /* stages are looked at below */
            else
                while ((peer = kv_life_next_death(remote->life)))
                    kv_peer_fail(peer, KV_FAILURE_PEER_GONE, "the peer's process ended");
            break;
        }
    }
    tcp_owner_tick(tcp);
    transport->timer_us = tcp_owner_next_us(tcp);
    if (transport->staging)
        progress_device(remote);
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
