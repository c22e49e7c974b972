/* A trace of prompts that tells which of them begin alike: lines of JSON in Mooncake's format,
 *     {"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1, 2, ...]}
 * with an id for each started block of 512 tokens of the prompt. Equal ids mean equal tokens up to
 * the end of that block. Only the lengths and ids are kept; prompts come in the order of the file.
 *
 * A line that isn't so is refused (STATUS_INVALID, with its number), a trace beyond the limits, too
 * (STATUS_LIMIT). */
#ifndef BATON_CLI_PREFIX_TRACE_H
#define BATON_CLI_PREFIX_TRACE_H

#include "common/base/status.h"

#include <stdint.h>

#define PREFIX_TRACE_BLOCK_TOKENS   512
#define PREFIX_TRACE_MAX_PROMPTS    (1u << 22)
#define PREFIX_TRACE_MAX_IDS        (1u << 26) /* of all prompts */
#define PREFIX_TRACE_MAX_ID         (1u << 26)
#define PREFIX_TRACE_MAX_TOKENS     (1u << 22) /* of one prompt */
#define PREFIX_TRACE_MAX_LINE_BYTES (1u << 20)

struct prefix_trace_prompt {
    uint32_t token_count, id_count;
    uint32_t first_id; /* index into ids */
};

struct prefix_trace {
    struct prefix_trace_prompt *prompts;
    uint32_t *ids;
    uint32_t prompt_count, id_count;
    uint32_t prompt_capacity, id_capacity;
    uint64_t token_count;    /* of all prompts */
    uint32_t longest_tokens; /* of one */
};

void prefix_trace_init(struct prefix_trace *trace);
void prefix_trace_deinit(struct prefix_trace *trace);
/* One line, without its end. On failure the trace is as it was. */
enum status prefix_trace_add(struct prefix_trace *trace, const char *line, size_t length,
                             struct error *err) WARN_UNUSED;
/* All lines of a file (a pipe will do), at least one. */
enum status prefix_trace_read(struct prefix_trace *trace, const char *path,
                              struct error *err) WARN_UNUSED;

#endif
