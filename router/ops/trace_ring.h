/* The traces of the newest requests, alive and ended, where other threads may look: the dispatch
 * thread puts copies, readers take copies. Bounded: one more forgets the oldest. Either side waits
 * only for copies, never for work; memory is touched as it fills. */
#ifndef BATON_ROUTER_OPS_TRACE_RING_H
#define BATON_ROUTER_OPS_TRACE_RING_H

#include "common/base/status.h"
#include "router/ops/request_trace.h"

#include <stddef.h>

struct trace_ring;

/* `capacity` 0: nothing is kept. */
enum status trace_ring_create(size_t capacity, struct trace_ring **ring) WARN_UNUSED;
void trace_ring_destroy(struct trace_ring *ring);

/* Dispatch thread: in the place that this request has, or, where that was forgotten, in a new
 * one. */
void trace_ring_put(struct trace_ring *ring, struct request_trace *trace);

/* Any thread. The newest one of this name, and of this of its choices. */
bool trace_ring_find(struct trace_ring *ring, const char *name, uint32_t choice,
                     struct request_trace *trace);
/* The newest ones, the newest first; how many there were. */
size_t trace_ring_newest(struct trace_ring *ring, struct request_trace *traces, size_t count);

#endif
