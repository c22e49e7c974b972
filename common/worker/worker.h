/* What both kinds of worker share: the order in which a worker comes up, drains and goes down. A
 * role (prefill_worker, decode_worker) brings its state machines and streams; this brings the
 * engine, the transport, the threads, the session, the registration and the metrics.
 */
#ifndef BATON_WORKER_WORKER_H
#define BATON_WORKER_WORKER_H

#include "common/kv/transport/kv_transport.h"
#include "common/net/rpc/rpc.h"
#include "common/worker/cache_report.h"
#include "common/worker/session.h"
#include "common/worker/step_loop.h"
#include "common/worker/transfer_loop.h"
#include "common/worker/worker_config.h"
#include "common/worker/worker_metrics.h"

struct worker {
    struct worker_config config;
    struct worker_info info;
    struct engine *engine;
    struct kv_transport *transport;
    uint32_t block_count, swap_blocks;
    size_t block_bytes;
    struct rpc_tls tls;               /* of all its links; zeroed: in the clear */
    struct certificates *metrics_tls; /* NULL: its HTTP listener speaks no TLS */
    struct rpc_runtime *runtime;
    struct transfer_loop *loop;
    struct constraint_host *constraints;
    struct step_loop *steps;
    struct session session;           /* transfer thread */
    struct cache_report cache_report; /* likewise */
    uint64_t absent_since_us; /* likewise: draining without a router since then; 0: not so */
    struct worker_metrics metrics;
    const struct worker_role_ops *ops;
    void *role;
    void *peer_role;            /* what the streams of ops->peer_kind carry; set by ops->create */
    _Atomic bool draining;      /* main thread -> transfer thread */
    atomic_uint busy;           /* transfer thread -> main thread: requests that it has */
    _Atomic bool session_is_up; /* transfer thread -> HTTP thread */
    int idle_fd;                /* eventfd: draining, and nothing is left */
};

struct worker_role_ops {
    enum worker_role role;
    /* Everything of `worker` but role is there. Called on the main thread before any other
     * starts. */
    enum status (*create)(struct worker *worker, void **role, struct error *err);
    /* Transfer thread, the last call on it: ends what the role has dialled. */
    void (*close)(void *role);
    void (*destroy)(void *role); /* main thread, after all others have ended */
    struct transfer_handlers handlers;
    struct session_handlers session;
    /* One more method that the role serves, or NULL; `service` is a stream_service filled by the
     * worker. */
    const char *peer_path;
    const struct stream_kind *peer_kind;
    const char *peer_service;
    /* Transfer thread: requests that a drain must wait for. */
    uint32_t (*busy_count)(void *role);
};

/* The whole life of a worker process. Returns the exit code. */
int worker_main(const struct worker_role_ops *ops, int argc, char **argv);

#endif
