/* Workers without a model, in threads of this process, as fast as possible. They answer at once, or
 * token after token with a step in between. They serve to measure routers. They trust their router,
 * and end with the process. */
#ifndef BATON_TESTS_BENCH_WORKER_H
#define BATON_TESTS_BENCH_WORKER_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* Sets the time between two steps of all workers. In a step each running answer gets a token. 0:
 * answers are sent whole. */
void worker_set_step(uint64_t step_us);
uint64_t worker_step_us(void);
/* Returns the end of the next step after `now_ns`. */
uint64_t worker_next_step_ns(uint64_t now_ns);

/* Starts a worker that speaks OpenAI's completions over HTTP/1.1, and returns its address. `quiet`:
 * it leaves no stamps and sends answers whole, like a prefill worker beside a decode worker. */
const char *http_worker_start(bool quiet);

struct baton_worker_config {
    const char *router; /* host:port where workers register */
    const char *model;
    uint32_t vocab, token, context; /* `token` is the id of each answered token */
    bool prefill;                   /* start prefill workers, too */
    uint32_t count;                 /* so many of each role */
};
/* Starts decode workers that speak Baton's protocol between router and workers and, if `prefill`,
 * prefill workers. */
enum status baton_worker_start(const struct baton_worker_config *config,
                               struct error *err) WARN_UNUSED;

#endif
