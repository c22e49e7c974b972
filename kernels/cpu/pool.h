/* The compute threads of a host backend: fork-join with work stealing in chunks.
 *
 * pool_run cuts items 0 .. count-1 into chunks of `grain` and gives each thread neighbouring
 * chunks, the same ones each time. A thread takes its own chunks one by one, then chunks that other
 * threads have not begun. The thread that computes an item never changes the result: chunks are cut
 * by number alone. Work functions write disjoint results and sum nothing across items. A thread
 * that lost its CPU delays the job by the one chunk that it has begun. A thread that wakes late and
 * has begun none finds the job closed, and the job doesn't wait for it.
 *
 * Thread 0 is the caller (the step thread). Its first pool_run pins it to cpus[0]. With one thread
 * no other is started. Between the jobs of a step threads spin for 100 us at most, then they sleep;
 * after pool_rest they sleep at once. They spin only with may_spin, and only if there is a CPU for
 * each (among `cpus`, or those that the process may use). decisions/0017 has the reasons. */
#ifndef BATON_KERNELS_CPU_POOL_H
#define BATON_KERNELS_CPU_POOL_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stdint.h>

struct pool;

/* Computes items first .. last-1; `thread` < threads names the scratch memory to use. */
typedef void pool_work(void *context, uint32_t thread, uint32_t first, uint32_t last);

/* Starts threads - 1 threads. cpus: [threads] thread i is pinned to cpus[i]; NULL: not pinned. Free
 * with pool_destroy. STATUS_INVALID: a CPU that doesn't exist or is refused; STATUS_LIMIT: no
 * memory; STATUS_IO: no thread. */
enum status pool_create(uint32_t threads, const int *cpus, bool may_spin, struct pool **pool,
                        struct error *err) WARN_UNUSED;
void pool_destroy(struct pool *pool); /* NULL is fine */

/* Computes all items; returns when they are done. One caller at a time. */
void pool_run(struct pool *pool, uint32_t count, uint32_t grain, pool_work *work, void *context);
/* Ends a step: threads that spin go to sleep. */
void pool_rest(struct pool *pool);

#endif
