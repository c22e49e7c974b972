/* The life of a worker process: how it comes up, drains and goes down. A role (prefill_worker,
 * decode_worker) brings its state machines and streams. This module brings the engine, the
 * transport, the threads, the session, the registration and the metrics.
 */
#ifndef BATON_WORKER_WORKER_H
#define BATON_WORKER_WORKER_H

#include "common/base/domain/worker_info.h"
#include "common/base/observe/metrics.h"
#include "common/kv/transport/kv_transport.h"
#include "common/net/rpc/rpc.h"
#include "common/worker/session.h"
#include "common/worker/step_loop.h"
#include "common/worker/transfer_loop.h"
#include "common/worker/worker_config.h"

#include <pthread.h>

/* --- metrics (worker_metrics.c): the numbers behind a worker's /metrics. The transfer thread
 * counts handoffs as they end. The step thread's numbers are read from its load when /metrics is
 * asked. --- */

#define WORKER_CERTIFICATES  2 /* internal-tls, metrics-tls */
#define WORKER_LOAD_GAUGES   4 /* numbers of step_load: the tables are in worker_metrics.c */
#define WORKER_LOAD_COUNTERS 17

struct worker_metrics {
    struct metrics *metrics;
    struct gauge *blocks[KV_BLOCK_STATES], *kv_usage, *session_up;
    struct gauge *load_gauges[WORKER_LOAD_GAUGES];
    struct counter *load_counters[WORKER_LOAD_COUNTERS];
    /* Watched certificates, and when each ends. */
    struct {
        struct certificates *certificates;
        struct gauge *ends;
    } expiries[WORKER_CERTIFICATES];
    struct counter *handoffs_ok, *handoffs_failed, *released;
    struct counter *bytes_shm, *bytes_tcp, *bytes_cuda, *bytes_rdma, *bytes_local;
    struct counter *stale_messages, *late_hellos;
    struct counter *faults[KV_FAULT_KINDS];
    struct counter *reads_failed[KV_FAILURES]; /* [0] is none */
    struct counter *connections_refused[KV_REFUSALS];
    /* Totals that the counters hold already: */
    struct kv_transport_counters seen_transport;
    uint64_t seen_load[WORKER_LOAD_COUNTERS], seen_stale;
};

void worker_metrics_init(struct worker_metrics *m, enum worker_role role);
/* Shows the model and the role. Call it once, at start. */
void worker_metrics_describe(struct worker_metrics *m, const struct worker_info *info);
void worker_metrics_deinit(struct worker_metrics *m);
/* Shows when the certificates end; call it at most WORKER_CERTIFICATES times. `label`:
 * "for=\"internal-tls\"". NULL certificates: shows nothing. */
void worker_metrics_watch(struct worker_metrics *m, struct certificates *certificates,
                          const char *label);
/* HTTP thread, before it renders. */
void worker_metrics_update(struct worker_metrics *m, const struct step_load *load, bool session_up);
/* Transfer thread. */
void worker_metrics_transport(struct worker_metrics *m,
                              const struct kv_transport_counters *counters);
/* Adds the growth of `total` since the last call. */
void worker_metrics_advance(struct counter *counter, uint64_t *seen, uint64_t total);
struct counter *worker_metrics_lane(const struct worker_metrics *m, const char *lane);

/* --- its device (worker_device.c): metrics, and its loss. A device that no driver watches, as the
 * CPU, has neither. --- */

struct worker_device {                      /* zeroed, with these three: */
    struct engine *engine;                  /* which outlives it */
    void (*lost)(void *context, bool lost); /* once, on the thread that watches */
    void *context;
    pthread_t thread;
    bool is_watched;
    atomic_bool stops;
    pthread_mutex_t lock;
    struct device_health health; /* the thread's */
    struct device_health shown;  /* under the lock: the last numbers */
    struct gauge *numbers[DEVICE_NUMBERS], *slowed[DEVICE_SLOWDOWNS], *read_at;
    struct counter *xids;
    uint64_t seen_xids;
};

/* Registers its metrics and starts the thread. STATUS_UNAVAILABLE: the device is lost already. */
enum status worker_device_start(struct worker_device *device, struct metrics *metrics,
                                struct error *err) WARN_UNUSED;
/* Copies the last numbers. False: the device isn't watched. Any thread. */
bool worker_device_read(struct worker_device *device, struct device_health *health);
/* Ends the thread. False: it hangs in the driver, and the process can only end. */
bool worker_device_stop(struct worker_device *device) WARN_UNUSED;

/* --- the worker --- */

/* Reports the prefix cache's events to the router, one batch at a time. The next batch is read when
 * the last one has left, so with a slow router the events wait in the cache's own ring, where too
 * many become one new listing (prefix_cache.h). A new session begins with a listing, and the router
 * may ask for another one. */
struct cache_report {  /* zero at start */
    uint64_t stream;   /* session.streams of the stream that it reports to; 0: none yet */
    uint64_t restarts; /* session.cache_restarts that have been answered */
    uint64_t seen;     /* step_load.prefix_changes before the last read */
    bool reading;      /* a STEP_CACHE is to come */
    bool more;         /* the last batch was full */
};

struct worker {
    struct worker_config config;
    struct worker_info info;
    struct engine *engine;
    struct engine_limits limits; /* as measured at start; zeros: they weren't */
    struct kv_transport *transport;
    uint32_t block_count, swap_blocks;
    size_t block_bytes;
    struct rpc_tls tls;               /* for all its links; zeroed: no TLS */
    struct certificates *metrics_tls; /* NULL: its HTTP listener speaks no TLS */
    struct rpc_runtime *runtime;
    struct transfer_loop *loop;
    struct constraint_host *constraints;
    struct step_loop *steps;
    struct session session;           /* transfer thread */
    struct cache_report cache_report; /* transfer thread */
    uint64_t absent_since_us; /* transfer thread: draining without a router since; 0: not so */
    struct worker_metrics metrics;
    struct worker_device device;
    const struct worker_role_ops *ops;
    void *role;
    void *peer_role;            /* the `role` of ops->peer_kind streams; set by ops->create */
    _Atomic bool draining;      /* main thread -> transfer thread */
    atomic_uint busy;           /* transfer thread -> main thread: requests under way */
    _Atomic bool session_is_up; /* transfer thread -> HTTP thread */
    int idle_fd;                /* eventfd: draining, and nothing is left */
    int broken_fd;              /* eventfd: its steps keep failing, or its device is lost */
    atomic_bool device_lost;
};

struct worker_role_ops {
    enum worker_role role;
    /* Called on the main thread before any other thread starts. All of `worker` except `role` is
     * set. */
    enum status (*create)(struct worker *worker, void **role, struct error *err);
    /* Transfer thread, the last call on it: ends the streams that the role has dialled. */
    void (*close)(void *role);
    void (*destroy)(void *role); /* main thread, after all others have ended */
    struct transfer_handlers handlers;
    struct session_handlers session;
    /* One more method that the role serves, or NULL. Its `service` is a stream_service that the
     * worker fills. */
    const char *peer_path;
    const struct stream_kind *peer_kind;
    const char *peer_service;
    /* Transfer thread: requests that a drain must wait for. */
    uint32_t (*busy_count)(void *role);
};

/* The whole life of a worker process. Returns the exit code. */
int worker_main(const struct worker_role_ops *ops, int argc, char **argv);

/* --- the parts that compute (worker_engine.c): the engine, the pool of KV blocks, and the step
 * loop. The transport allocates the pool so that others can read it; in a device's memory it is the
 * engine's. Main thread, at start; worker.c takes it all down. --- */

/* Loads the model and opens the transport: sets engine, transport, and the sizes of their blocks.
 * After a failure the parts that were opened are in `worker`, too. */
enum status worker_engine_open(struct worker *worker, struct error *err) WARN_UNUSED;
/* Fills worker->info, except for the addresses. */
enum status worker_engine_info(struct worker *worker, struct error *err) WARN_UNUSED;
/* Starts worker->constraints, worker->steps and worker->device. */
enum status worker_engine_start(struct worker *worker, struct error *err) WARN_UNUSED;
/* Logs one line with all sizes that were settled at start. */
void worker_engine_log_sizes(const struct worker *worker);

#endif
