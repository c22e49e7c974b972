/* What a worker computes with, made of its settings: the engine, the pool of KV blocks, which the
 * transport allocates so that others can read it, and the step loop. Main thread, at start;
 * worker.c takes it all down. */
#ifndef BATON_WORKER_WORKER_ENGINE_H
#define BATON_WORKER_WORKER_ENGINE_H

#include "common/worker/worker.h"

/* Loads the model and opens the transport: worker->engine, transport, and the figures of their
 * blocks. What there is after a failure is in `worker`, too. */
enum status worker_engine_open(struct worker *worker, struct error *err) WARN_UNUSED;
/* What the worker says of itself: worker->info, but the addresses. */
enum status worker_engine_info(struct worker *worker, struct error *err) WARN_UNUSED;
/* Starts worker->steps. */
enum status worker_engine_start(struct worker *worker, struct error *err) WARN_UNUSED;
/* One line with what was sized at start. */
void worker_engine_log_sizes(const struct worker *worker);

#endif
