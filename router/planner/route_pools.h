/* The workers of each model. PURE. A request is placed among the workers of its own model only:
 * route_policy.h gets no others. A lack or a surplus in one pool has no effect on another. Rebuilt
 * for each placement pass: reset, then add all workers. */
#ifndef BATON_ROUTER_PLANNER_ROUTE_POOLS_H
#define BATON_ROUTER_PLANNER_ROUTE_POOLS_H

#include "router/planner/route_policy.h"

#define ROUTE_MAX_POOLS   16
#define ROUTE_MAX_WORKERS (2 * CLUSTER_MAX_WORKERS) /* members, and leaving workers */

struct route_pool {
    size_t first, count; /* its workers: route_pools.workers[first .. first + count) */
    struct {
        unsigned known, up, draining; /* up: ready; draining: has a session, takes no requests */
    } roles[ROLE_DECODE + 1];         /* by worker_role */
};

struct route_pools {
    size_t pool_count;
    struct route_pool pools[ROUTE_MAX_POOLS];
    struct route_worker workers[ROUTE_MAX_WORKERS];
};

/* Empties the pools. At most counts[i] workers may be added to pool i. */
void route_pools_reset(struct route_pools *pools, size_t pool_count, const size_t *counts);
/* Adds a worker at the end of its pool; adding to several pools in turn is fine. The returned
 * worker doesn't move until the next reset. */
struct route_worker *route_pools_add(struct route_pools *pools, size_t pool,
                                     const struct route_worker *worker, bool draining);

/* The functions of route_policy.h, for the workers of one pool. */
struct route_choice route_pools_request(const struct route_pools *pools, size_t pool,
                                        const struct route_request *request);
struct route_choice route_pools_handle(const struct route_pools *pools, size_t pool,
                                       const struct route_request *request,
                                       const struct route_handle *handle);
uint64_t route_pools_room(const struct route_pools *pools, size_t pool,
                          const struct route_request *request, const struct route_handle *handle);

/* The number of `total` places that are reserved for each of `pool_count` pools: half of an equal
 * share. The other places go to the first requests that come. */
uint32_t route_pools_reserve(uint32_t total, size_t pool_count);

#endif
