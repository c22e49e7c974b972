/* The compute threads of a host backend: fork-join with work stealing in chunks.
 *
 * pool_run cuts items 0 .. count-1 into chunks of `grain` and deals them out, neighbours to one
 * thread, the same to the same thread each time. A thread takes its own chunks one by one and then
 * those that others have not begun. Which thread computes an item never changes what is computed:
 * chunks are cut by number alone, and work functions write disjoint results and sum nothing across
 * items. A thread that is held up (its core was taken away) keeps the others waiting for the chunk
 * that it has begun, no more; one that has begun none, since it woke late, finds the job closed and
 * nobody waits for it.
 *
 * Thread 0 is the caller (the step thread), pinned to cpus[0] by its first pool_run; one thread
 * means no extra thread. Between the jobs of a step threads spin for 100 us at most, then they
 * sleep, and after pool_rest at once. They spin only if may_spin and each can have a CPU of its
 * own, among `cpus` or those that the process may run on. Why so: decisions/0017.
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
