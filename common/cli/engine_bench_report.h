/* What an engine_bench measured, for people and for programs: medians over the rounds, each value
 * computed within its round. */
#ifndef BATON_CLI_ENGINE_BENCH_REPORT_H
#define BATON_CLI_ENGINE_BENCH_REPORT_H

#include "common/base/str.h"
#include "common/cli/engine_bench.h"

/* Appends lines of text; a JSON object. `rounds` were measured. */
void engine_bench_table(const struct engine_bench *bench, uint32_t rounds, struct str *out);
void engine_bench_json(const struct engine_bench *bench, uint32_t rounds, struct str *out);

/* A line of the table, where a cache of so many bytes may hold the weights: passes over them are no
 * read of the memory then. 0: no cache is known. PURE. */
void engine_bench_add_cached(uint64_t weight_bytes, uint64_t cache_bytes, struct str *out);

#endif
