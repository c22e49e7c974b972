/* On which CPUs a benchmark may run: those of the machine that taskset or a container leaves to
 * this process. */
#ifndef BATON_CLI_ENGINE_BENCH_CPUS_H
#define BATON_CLI_ENGINE_BENCH_CPUS_H

#include "common/base/status.h"

#include <stdint.h>

/* Threads that are pinned to CPUs `first_cpu` on: told before anything is measured, since a row
 * that can't be must not end those before it, and a pin that is refused makes it slower in silence.
 * `given`: --threads as it was written, of which `threads` are the most. STATUS_INVALID: one of
 * these CPUs isn't ours. */
enum status engine_bench_check_cpus(const char *given, uint32_t threads, uint32_t first_cpu,
                                    struct error *err) WARN_UNUSED;
/* Threads that aren't pinned may be more than CPUs: that is slow, but it can be measured. To
 * standard error. */
void engine_bench_warn_of_threads(const char *program, uint32_t threads);

#endif
