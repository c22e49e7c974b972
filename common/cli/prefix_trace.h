/* Traces of prompts, and their replay against a prefix cache, to measure the cache's hits.
 *
 * A trace shows which prompts begin alike. It has lines of JSON in Mooncake's format,
 *     {"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1, 2, ...]}
 * with an id for each started block of 512 tokens of the prompt. Equal ids mean equal tokens up to
 * the end of that block. Prompts stay in the order of the file. A line may lack its time and the
 * answer's length, which are 0 then.
 *
 * Another line is refused (STATUS_INVALID, with its number), and so is a trace beyond the limits
 * (STATUS_LIMIT). */
#ifndef BATON_CLI_PREFIX_TRACE_H
#define BATON_CLI_PREFIX_TRACE_H

#include "common/base/status.h"
#include "common/engine/sched/eviction.h"

#include <stdint.h>

#define PREFIX_TRACE_BLOCK_TOKENS   512
#define PREFIX_TRACE_MAX_PROMPTS    (1u << 22)
#define PREFIX_TRACE_MAX_IDS        (1u << 26) /* all prompts together */
#define PREFIX_TRACE_MAX_ID         (1u << 26)
#define PREFIX_TRACE_MAX_TOKENS     (1u << 22) /* one prompt */
#define PREFIX_TRACE_MAX_LINE_BYTES (1u << 20)
#define PREFIX_TRACE_MAX_TIME       1e15

struct prefix_trace_prompt {
    double time; /* as in the file, milliseconds in Mooncake's */
    uint32_t token_count, answer_tokens, id_count;
    uint32_t first_id; /* index into ids */
};

struct prefix_trace {
    struct prefix_trace_prompt *prompts;
    uint32_t *ids;
    uint32_t prompt_count, id_count;
    uint32_t prompt_capacity, id_capacity;
    uint64_t token_count;    /* all prompts together */
    uint32_t longest_tokens; /* the longest prompt */
};

void prefix_trace_init(struct prefix_trace *trace);
void prefix_trace_deinit(struct prefix_trace *trace);
/* Adds one line, without its end. On failure the trace is unchanged. */
enum status prefix_trace_add(struct prefix_trace *trace, const char *line, size_t length,
                             struct error *err) WARN_UNUSED;
/* Adds all lines of a file (or a pipe), at least one. */
enum status prefix_trace_read(struct prefix_trace *trace, const char *path,
                              struct error *err) WARN_UNUSED;

/* --- the replay ---
 *
 * The blocks and the cache are the workers' (common/engine/sched). Prompts come one after the
 * other. Each is computed whole and leaves its blocks behind. Answers are not replayed. */
struct prefix_replay_config {
    uint32_t capacity_tokens; /* the whole pool; at least a block */
    uint32_t block_tokens;    /* divides PREFIX_TRACE_BLOCK_TOKENS */
    uint32_t even_tokens;     /* attention costs as much as the rest of a row here; 0: it is free */
    enum eviction_policy policy;
};

struct prefix_replay_result {
    uint64_t hit_tokens;
    double cost, saved_cost; /* all prompts' and the hits', in rows at position 0 */
    uint64_t evicted_blocks;
    uint32_t too_long; /* prompts that don't fit the pool, and count as misses */
};

enum status prefix_replay(const struct prefix_trace *trace,
                          const struct prefix_replay_config *config,
                          struct prefix_replay_result *result, struct error *err) WARN_UNUSED;
/* Computes the result of a cache that never forgets, from the ids alone. Ignores capacity_tokens
 * and policy. */
enum status prefix_replay_unlimited(const struct prefix_trace *trace,
                                    const struct prefix_replay_config *config,
                                    struct prefix_replay_result *result,
                                    struct error *err) WARN_UNUSED;

#endif
