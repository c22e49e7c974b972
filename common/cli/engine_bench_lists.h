/* What `baton bench engine` goes through, one after the other, as settings say it: "512,2048".
 * PURE. */
#ifndef BATON_CLI_ENGINE_BENCH_LISTS_H
#define BATON_CLI_ENGINE_BENCH_LISTS_H

#include "common/cli/engine_bench.h"

#define ENGINE_BENCH_MAX_THREADS 64

enum engine_bench_list {
    ENGINE_BENCH_WEIGHTS, /* of enum weight_choice */
    ENGINE_BENCH_THREADS,
    ENGINE_BENCH_PREFILL, /* "0": none, as of batch */
    ENGINE_BENCH_BATCH,
    ENGINE_BENCH_DEPTH,
    ENGINE_BENCH_LISTS
};
extern const char *const engine_bench_list_names[ENGINE_BENCH_LISTS]; /* of the settings */

/* Up to ENGINE_BENCH_MAX_SIZES items. STATUS_INVALID: a sentence without the setting's name. */
enum status engine_bench_read_list(enum engine_bench_list list, const char *text,
                                   struct bench_sizes *sizes, struct error *err) WARN_UNUSED;
/* The same as a setting's `check` (config.h). */
enum status engine_bench_check_weights(const char *text, struct error *err) WARN_UNUSED;
enum status engine_bench_check_threads(const char *text, struct error *err) WARN_UNUSED;
enum status engine_bench_check_prefill(const char *text, struct error *err) WARN_UNUSED;
enum status engine_bench_check_batch(const char *text, struct error *err) WARN_UNUSED;
enum status engine_bench_check_depth(const char *text, struct error *err) WARN_UNUSED;

#endif
