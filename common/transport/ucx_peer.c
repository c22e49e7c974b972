/* Peers of the UCX transport: pairing by the first lane that both have, and the forced close. */
#include "common/transport/ucx.h"

#include "common/base/log.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Progress of the close of a pairing that failed: local work, a handful of turns. */
#define MAX_CLOSE_TURNS 10000

static void endpoint_failed(void *arg, ucp_ep_h endpoint, ucs_status_t status)
{
    (void)endpoint;
    kv_peer_fail(arg, STATUS_UNAVAILABLE, ucs_status_string(status));
}

static ucp_ep_params_t endpoint_params(struct ucx_peer *peer)
{
    return (ucp_ep_params_t){
        .field_mask = UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .err_mode = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {.cb = endpoint_failed, .arg = peer},
    };
}

ucs_status_ptr_t ucx_endpoint_close(ucp_ep_h endpoint)
{
    ucp_request_param_t params = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
        .flags = UCP_EP_CLOSE_FLAG_FORCE,
    };
    ucs_status_ptr_t got = ucp_ep_close_nbx(endpoint, &params);
    if (UCS_PTR_IS_ERR(got))
        log_warn("transport", "msg=\"an endpoint did not close\" status=\"%s\"",
                 ucs_status_string(UCS_PTR_STATUS(got)));
    return UCS_PTR_IS_PTR(got) ? got : NULL;
}

bool ucx_endpoint_is_closed(ucs_status_ptr_t *request)
{
    if (*request && ucp_request_check_status(*request) == UCS_INPROGRESS)
        return false;
    if (*request)
        ucp_request_free(*request);
    *request = NULL;
    return true;
}

/* -- shm -- */

/* The peer's pool in our address space, from now on for reading only, or NULL. */
static const uint8_t *pool_mapping(const struct ucx_transport *ucx, ucp_rkey_h rkey,
                                   const struct kv_address *address)
{
    void *start;
    if (ucp_rkey_ptr(rkey, address->base, &start) != UCS_OK)
        return NULL;
    if (start == ucx->base.pool) /* a pairing with the own pool */
        return address->pool_bytes == ucx->base.pool_bytes ? start : NULL;
    /* The length is the peer's word: this fails, too, where not all of it is mapped. */
    uintptr_t page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = (uintptr_t)start & ~(page_bytes - 1);
    if (mprotect((void *)from, (uintptr_t)start + address->pool_bytes - from, PROT_READ) != 0)
        return NULL;
    return start;
}

static enum status pair_shm(struct ucx_transport *ucx, const struct kv_address *address,
                            struct ucx_peer *peer, struct error *err)
{
    if (!address->worker_bytes || !address->rkey_bytes)
        return error_set(err, STATUS_UNAVAILABLE, "the peer does not offer the lane shm");
    /* UCX reads both without being told their lengths: aligned, and with room behind. */
    uint64_t copy[2 * KV_TRANSPORT_MAX_ADDRESS_BYTES / sizeof(uint64_t)] = {0};
    memcpy(copy, address->worker, address->worker_bytes);
    ucp_ep_params_t params = endpoint_params(peer);
    params.field_mask |= UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
    params.address = (const ucp_address_t *)copy;
    ucs_status_t got = ucp_ep_create(ucx->shm.worker, &params, &peer->endpoint);
    if (got == UCS_OK) {
        memset(copy, 0, sizeof copy);
        memcpy(copy, address->rkey, address->rkey_bytes);
        got = ucp_ep_rkey_unpack(peer->endpoint, copy, &peer->rkey);
    }
    if (got == UCS_OK) {
        peer->base.mapped = pool_mapping(ucx, peer->rkey, address);
        got = peer->base.mapped ? UCS_OK : UCS_ERR_INVALID_ADDR;
    }
    if (got != UCS_OK)
        return error_set(err, STATUS_UNAVAILABLE,
                         "the peer's pool can't be mapped by the lane shm: %s (it takes the same "
                         "machine, user, IPC and PID namespace)",
                         ucs_status_string(got));
    peer->base.lane = "shm"; /* UCX has said where the pool is in our own memory */
    return STATUS_OK;
}

/* -- tcp -- */

static enum status pair_tcp(struct ucx_transport *ucx, const struct kv_address *address,
                            struct ucx_peer *peer, struct error *err)
{
    if (!address->ip_version)
        return error_set(err, STATUS_UNAVAILABLE, "the peer does not offer the lane tcp");
    struct sockaddr_in to4 = {.sin_family = AF_INET, .sin_port = htons(address->port)};
    struct sockaddr_in6 to6 = {.sin6_family = AF_INET6, .sin6_port = htons(address->port)};
    memcpy(&to4.sin_addr, address->ip, sizeof to4.sin_addr);
    memcpy(&to6.sin6_addr, address->ip, sizeof to6.sin6_addr);
    bool is4 = address->ip_version == 4;
    ucp_ep_params_t params = endpoint_params(peer);
    params.field_mask |= UCP_EP_PARAM_FIELD_SOCK_ADDR | UCP_EP_PARAM_FIELD_FLAGS;
    params.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
    params.sockaddr.addr = is4 ? (const struct sockaddr *)&to4 : (const struct sockaddr *)&to6;
    params.sockaddr.addrlen = is4 ? sizeof to4 : sizeof to6;
    ucs_status_t got = ucp_ep_create(ucx->tcp.worker, &params, &peer->endpoint);
    if (got != UCS_OK)
        return error_set(err, ucx_status(got), "the peer can't be reached by the lane tcp: %s",
                         ucs_status_string(got));
    peer->base.lane = "tcp"; /* this context has no other transport */
    return STATUS_OK;
}

/* -- pairing -- */

/* Takes back what a lane that failed has made, so that the next can be tried. */
static void peer_reset(struct ucx_peer *peer, struct ucx_lane *lane)
{
    if (peer->rkey)
        ucp_rkey_destroy(peer->rkey);
    if (peer->endpoint)
        peer->close_request = ucx_endpoint_close(peer->endpoint);
    for (int i = 0; !ucx_endpoint_is_closed(&peer->close_request) && i < MAX_CLOSE_TURNS; i++)
        ucp_worker_progress(lane->worker);
    *peer = (struct ucx_peer){0};
}

enum status ucx_pair(struct kv_transport *transport, const struct kv_address *address,
                     struct kv_peer **out, struct error *err)
{
    struct ucx_transport *ucx = (struct ucx_transport *)transport;
    if (address->library != ucx->library)
        return error_set(err, STATUS_UNSUPPORTED,
                         "the peer runs UCX %u.%u, this program %u.%u: run the same on both",
                         address->library >> 16, address->library & 0xffff, ucx->library >> 16,
                         ucx->library & 0xffff);
    struct ucx_peer *peer = calloc(1, sizeof *peer);
    if (!peer)
        return error_set(err, STATUS_LIMIT, "no memory for a peer");
    enum status status = STATUS_UNAVAILABLE;
    if (ucx->shm.context) {
        status = pair_shm(ucx, address, peer, err);
        if (status != STATUS_OK)
            peer_reset(peer, &ucx->shm);
    }
    if (status != STATUS_OK && ucx->tcp.context) {
        status = pair_tcp(ucx, address, peer, err);
        if (status != STATUS_OK)
            peer_reset(peer, &ucx->tcp);
    }
    if (status != STATUS_OK) {
        free(peer);
        return status;
    }
    peer->pool_id = address->id;
    *out = &peer->base;
    return STATUS_OK;
}

/* -- the end -- */

void ucx_close_begin(struct kv_peer *base)
{
    struct ucx_peer *peer = (struct ucx_peer *)base;
    ucx_parts_abandon(peer);
    peer->close_request = ucx_endpoint_close(peer->endpoint);
}

bool ucx_close_done(struct kv_peer *base)
{
    return ucx_endpoint_is_closed(&((struct ucx_peer *)base)->close_request);
}

void ucx_peer_free(struct kv_peer *base)
{
    struct ucx_peer *peer = (struct ucx_peer *)base;
    if (peer->rkey)
        ucp_rkey_destroy(peer->rkey); /* unmaps the pool */
    free(peer);
}
