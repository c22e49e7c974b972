#include "router/planner/route_pools.h"

#include "common/base/assert.h"

void route_pools_reset(struct route_pools *pools, size_t pool_count, const size_t *counts)
{
    ASSERT(pool_count <= ROUTE_MAX_POOLS);
    pools->pool_count = pool_count;
    size_t first = 0;
    for (size_t i = 0; i < pool_count; i++) {
        pools->pools[i] = (struct route_pool){.first = first};
        first += counts[i];
    }
    ASSERT(first <= ROUTE_MAX_WORKERS);
}

struct route_worker *route_pools_add(struct route_pools *pools, size_t index,
                                     const struct route_worker *worker, bool draining)
{
    ASSERT(index < pools->pool_count);
    struct route_pool *pool = &pools->pools[index];
    size_t end = index + 1 < pools->pool_count ? pools->pools[index + 1].first : ROUTE_MAX_WORKERS;
    ASSERT(pool->first + pool->count < end);
    struct route_worker *added = &pools->workers[pool->first + pool->count++];
    *added = *worker;
    pool->roles[worker->role].known++;
    pool->roles[worker->role].up += worker->ready;
    pool->roles[worker->role].draining += draining;
    return added;
}

struct route_choice route_pools_request(const struct route_pools *pools, size_t index,
                                        const struct route_request *request)
{
    const struct route_pool *pool = &pools->pools[index];
    return route_request(&pools->workers[pool->first], pool->count, request);
}

struct route_choice route_pools_handle(const struct route_pools *pools, size_t index,
                                       const struct route_request *request,
                                       const struct route_handle *handle)
{
    const struct route_pool *pool = &pools->pools[index];
    return route_handle(&pools->workers[pool->first], pool->count, request, handle);
}

uint64_t route_pools_room(const struct route_pools *pools, size_t index,
                          const struct route_request *request, const struct route_handle *handle)
{
    const struct route_pool *pool = &pools->pools[index];
    return route_room(&pools->workers[pool->first], pool->count, request, handle);
}

uint32_t route_pools_reserve(uint32_t total, size_t pool_count)
{
    return (uint32_t)(total / (2 * pool_count));
}
