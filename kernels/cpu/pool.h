/* The compute threads of a host backend: fork-join with dynamic chunks.
 *
 * pool_run cuts items 0 .. count-1 into chunks of `grain` that threads take from one counter. Who computes an item never
 * changes what is computed: work functions write disjoint results and sum nothing across items. A worker that wakes late
 * finds the job closed and is not waited for, so a descheduled thread delays a step by one chunk at most.
 *
 * Thread 0 is the caller (the step thread), pinned to cpus[0] by its first pool_run; one thread means no extra thread.
 * Workers spin between jobs only where may_spin, for a bounded time, and not after pool_rest.
 */
#ifndef BATON_KERNELS_CPU_POOL_H
#define BATON_KERNELS_CPU_POOL_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stdint.h>

struct pool;

/* Computes items first .. last-1; `thread` < threads names the scratch memory to use. */
typedef void pool_work(void *context, uint32_t thread, uint32_t first, uint32_t last);

enum status pool_create(uint32_t threads, const int *cpus, bool may_spin, struct pool **pool,
                        struct error *err) WARN_UNUSED;
void pool_destroy(struct pool *pool); /* NULL is fine */

/* Returns when all items are done. One caller at a time. */
void pool_run(struct pool *pool, uint32_t count, uint32_t grain, pool_work *work, void *context);
/* The step is over: workers that spin go to sleep. */
void pool_rest(struct pool *pool);

#endif
