/* The states of a worker as the router sees it, and the load that the worker reports. PURE. */
#ifndef BATON_ROUTER_PLANNER_WORKER_STATE_H
#define BATON_ROUTER_PLANNER_WORKER_STATE_H

#include "common/base/domain/device_health.h"
#include "common/base/domain/worker_info.h"

#include <stdbool.h>

#define ROUTER_MAX_WORKERS CLUSTER_MAX_WORKERS

enum worker_state {
    WORKER_WAITING,  /* not connected; connects again at redial_us */
    WORKER_DIALLING, /* no Hello yet */
    WORKER_UP,
    WORKER_LEAVING, /* no longer a member; its stream is being closed */
};

struct worker_load { /* the worker's report; before the first one all is 0, and all blocks free */
    uint32_t queued_requests, running, blocks_free, blocks_cached, blocks_pinned, blocks_landing;
    uint64_t queued_tokens;
    bool draining;
    /* 0 with a worker of protocol version 4. */
    uint32_t requests;   /* held, of all routers, in any state */
    uint64_t steps_done; /* since the worker started */
    uint64_t reserved_tokens, unconfirmed_tokens;
    uint64_t busy_us; /* how long its present step runs; 0: it waits for work */
    bool has_device;  /* it has told the numbers of its device: 0 is not known, or none */
    struct device_health device;
};

#endif
