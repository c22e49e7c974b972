/* Internal to ucx*.c: what the files that know UCX share. The API of UCX 1.13 and nothing newer, so that Debian 12's builds too.
 *
 * Two lanes, each with a UCX context of its own, so that UCX can't take another lane than the one that is named:
 *  - shm: the peer's pool is mapped through UCX (ucp_rkey_ptr), and kv_transport_poll copies from it. Nothing is ever sent.
 *  - tcp: the reader asks (one small active message a part of a run) and the owner answers (one active message with the bytes).
 *    Not UCX's get: where a network has no RDMA UCX emulates it, and an owner whose reader dies while it is served then ends in
 *    ucs_fatal ("unexpected error: Endpoint timeout", 1.13). It is also the slower one. The bytes are copied into the pool by us,
 *    so a part is landing only for as long as we say so.
 */
#ifndef BATON_TRANSPORT_UCX_H
#define BATON_TRANSPORT_UCX_H

#include "common/transport/transport_ops.h"

#include <ucp/api/ucp.h>

/* One active message of bytes: fits into one segment of the tcp lane, so that UCX has nothing to put together. */
#define UCX_PART_BYTES ((size_t)256 << 10)
/* Parts of one pairing in flight: fills the link, and no peer can hold up another. */
#define UCX_WINDOW 32

enum ucx_message { UCX_ASK = 1, UCX_ANSWER = 2 };

struct ucx_ask {
    uint64_t pool_id; /* from the address: nobody else knows it */
    uint64_t token;   /* the reader's; comes back in the answer */
    uint64_t offset, bytes;
};

struct ucx_answer {
    uint64_t token;
};

struct ucx_lane { /* context NULL: this transport is without it */
    ucp_context_h context;
    ucp_worker_h worker;
    int fd;
};

struct ucx_server;
struct ucx_parts;

struct ucx_transport {
    struct kv_transport base;
    enum kv_lane asked;
    uint32_t library; /* version, for addresses */
    uint64_t pool_id;
    struct ucx_lane shm, tcp;
    int epoll_fd; /* both lanes' */
    ucp_mem_h memory;
    struct ucx_server *server; /* tcp: our side as an owner */
    struct ucx_parts *parts;   /* tcp: our side as a reader */
};

struct ucx_peer {
    struct kv_peer base;
    ucp_ep_h endpoint;
    uint64_t pool_id;               /* of its pool */
    ucp_rkey_h rkey;                /* shm */
    uint32_t parts;                 /* tcp: in flight */
    ucs_status_ptr_t close_request; /* NULL: closed */
};

/* ucx_config.c */
/* Process-wide: takes UCX's crash handlers out and brings its messages into our log. What it does while it is loaded (it patches mmap,
 * munmap and madvise) only the environment can stop: UCX_MEM_EVENTS=n, before the program starts. */
void ucx_process_init(void);
/* The options of one lane's context (KV_LANE_SHM or KV_LANE_TCP); release with ucp_config_release. */
enum status ucx_config_create(enum kv_lane lane, const char *interface, ucp_config_t **out,
                              struct error *err) WARN_UNUSED;
enum status ucx_status(ucs_status_t status);

/* ucx_peer.c: the operations on peers, and the forced close that clients of the server share. */
enum status ucx_pair(struct kv_transport *transport, const struct kv_address *address,
                     struct kv_peer **peer, struct error *err) WARN_UNUSED;
void ucx_close_begin(struct kv_peer *peer);
bool ucx_close_done(struct kv_peer *peer);
void ucx_peer_free(struct kv_peer *peer);
ucs_status_ptr_t ucx_endpoint_close(ucp_ep_h endpoint);
bool ucx_endpoint_is_closed(ucs_status_ptr_t *request);

/* ucx_parts.c: a reader's parts in flight over tcp. */
enum status ucx_parts_open(struct ucx_transport *ucx, struct error *err) WARN_UNUSED;
void ucx_parts_close(struct ucx_transport *ucx); /* after the worker is gone */
void ucx_parts_start(struct kv_peer *peer);
/* Forgets the peer's parts in flight and gives them back: whatever still arrives for them is dropped. */
void ucx_parts_abandon(struct ucx_peer *peer);

/* ucx_server.c: the owner's side of tcp. Fills ip_version, ip and port of the address. */
enum status ucx_server_open(struct ucx_transport *ucx, const char *interface,
                            struct kv_address *address, struct error *err) WARN_UNUSED;
void ucx_server_progress(struct ucx_transport *ucx); /* after the worker's */
void ucx_server_close(struct ucx_transport *ucx);    /* before the worker goes */

#endif
