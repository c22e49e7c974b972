/* The traces of the newest requests, running and ended, for other threads: the dispatcher puts
 * copies, readers take copies. When it is full, a new trace replaces the oldest. Both sides wait
 * for copies only. A page of its memory is touched only when a trace is put there. */
#ifndef BATON_ROUTER_OPS_TRACE_RING_H
#define BATON_ROUTER_OPS_TRACE_RING_H

#include "common/base/status.h"
#include "router/ops/request_trace.h"

#include <stddef.h>

struct trace_ring;

/* `capacity` 0: keeps nothing. */
enum status trace_ring_create(size_t capacity, struct trace_ring **ring) WARN_UNUSED;
void trace_ring_destroy(struct trace_ring *ring);

/* Updates the request's trace, or puts a new one if it isn't kept (any more). Sets trace->serial.
 * Called in turns of the dispatcher. */
void trace_ring_put(struct trace_ring *ring, struct request_trace *trace);

/* Any thread: copies the newest trace with this name, or of the request of the OpenAI answer with
 * this id, and choice. False: none is kept. */
bool trace_ring_find(struct trace_ring *ring, const char *name, uint32_t choice,
                     struct request_trace *trace);
/* Any thread: copies up to `count` traces, the newest first. Returns how many. */
size_t trace_ring_newest(struct trace_ring *ring, struct request_trace *traces, size_t count);

#endif
