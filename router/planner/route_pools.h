/* The workers of each model. A request is placed among its own model's workers alone
 * (route_policy.h gets no others), and what a pool lacks, or has too much of, is no reason for
 * anything in another. PURE; rebuilt for each placement pass: reset, then add all.
 */
#ifndef BATON_ROUTER_PLANNER_ROUTE_POOLS_H
#define BATON_ROUTER_PLANNER_ROUTE_POOLS_H

#include "router/planner/route_policy.h"

#define ROUTE_MAX_POOLS   16
#define ROUTE_MAX_WORKERS (2 * CLUSTER_MAX_WORKERS) /* members, and those that are leaving */

struct route_pool {
    size_t first, count; /* its workers: route_pools.workers[first .. first + count) */
    struct {
        unsigned known, up, draining; /* up: ready; draining: has a session, but takes no more */
    } roles[ROLE_DECODE + 1];         /* by worker_role */
};

struct route_pools {
    size_t pool_count;
    struct route_pool pools[ROUTE_MAX_POOLS];
    struct route_worker workers[ROUTE_MAX_WORKERS];
};

/* Empties; counts[i] workers will be added to pool i, and no more. */
void route_pools_reset(struct route_pools *pools, size_t pool_count, const size_t *counts);
/* In the order in which they are added, whatever is added to other pools in between. The worker
 * stays where it is until the next reset. */
struct route_worker *route_pools_add(struct route_pools *pools, size_t pool,
                                     const struct route_worker *worker, bool draining);

/* As route_policy.h, among the workers of one pool. */
struct route_choice route_pools_request(const struct route_pools *pools, size_t pool,
                                        const struct route_request *request);
struct route_choice route_pools_handle(const struct route_pools *pools, size_t pool,
                                       const struct route_request *request,
                                       const struct route_handle *handle);
uint64_t route_pools_room(const struct route_pools *pools, size_t pool,
                          const struct route_request *request, const struct route_handle *handle);

/* How many of `total` places each of `pool_count` pools has for itself: half of an equal share. The
 * rest is for whoever comes first. */
uint32_t route_pools_reserve(uint32_t total, size_t pool_count);

#endif
