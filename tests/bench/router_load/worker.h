/* Workers without a model, in threads of this process, as fast as can be: what they are asked they
 * answer at once, or token after token with a step in between. For routers to be measured in front
 * of. They trust their router, and end with the process. */
#ifndef BATON_TESTS_BENCH_WORKER_H
#define BATON_TESTS_BENCH_WORKER_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* From one step of all workers to the next, in which each answer under way gets a token; 0: answers
 * go out whole. */
void worker_set_step(uint64_t step_us);
uint64_t worker_step_us(void);
/* The next end of a step after `now_ns`. */
uint64_t worker_next_step_ns(uint64_t now_ns);

/* One that speaks OpenAI's completions over HTTP/1.1. `quiet`: leaves no stamps, and answers whole:
 * a prefill worker beside a decode worker. Its address. */
const char *http_worker_start(bool quiet);

struct baton_worker_config {
    const char *router; /* host:port where workers register */
    const char *model;
    uint32_t vocab, token, context; /* `token` is what it answers */
    bool prefill;                   /* and a second one, of prompts */
};
/* One that speaks Baton's protocol between router and workers: a decode worker, and a prefill
 * worker. */
enum status baton_worker_start(const struct baton_worker_config *config,
                               struct error *err) WARN_UNUSED;

#endif
