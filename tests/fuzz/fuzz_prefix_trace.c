/* Any bytes as lines of a trace of prompts. Accepted lines are within the limits, a refused line
 * leaves the trace unchanged, and a small trace can be played against an even smaller prefix
 * cache. */
#include "common/cli/prefix_trace.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

#define MAX_PLAYED_TOKENS 40000

static void check_last(const struct prefix_trace *trace)
{
    const struct prefix_trace_prompt *prompt = &trace->prompts[trace->prompt_count - 1];
    FUZZ_CHECK(prompt->token_count >= 1 && prompt->token_count <= trace->longest_tokens);
    FUZZ_CHECK(trace->longest_tokens <= PREFIX_TRACE_MAX_TOKENS);
    FUZZ_CHECK(prompt->first_id + prompt->id_count == trace->id_count);
    FUZZ_CHECK((uint64_t)prompt->id_count * PREFIX_TRACE_BLOCK_TOKENS >= prompt->token_count);
    for (uint32_t i = 0; i < prompt->id_count; i++)
        FUZZ_CHECK(trace->ids[prompt->first_id + i] < PREFIX_TRACE_MAX_ID);
}

static void add_line(struct prefix_trace *trace, const uint8_t *line, size_t length)
{
    struct error err;
    struct prefix_trace before = *trace;
    if (prefix_trace_add(trace, (const char *)line, length, &err) == STATUS_OK) {
        FUZZ_CHECK(trace->prompt_count == before.prompt_count + 1);
        check_last(trace);
        return;
    }
    fuzz_check_sentence(err.text);
    FUZZ_CHECK(trace->prompt_count == before.prompt_count && trace->id_count == before.id_count &&
               trace->token_count == before.token_count);
}

static void play(const struct prefix_trace *trace)
{
    struct error err;
    for (int policy = 0; policy < EVICTION_POLICIES; policy++) {
        const struct prefix_replay_config config = {.capacity_tokens =
                                                        4 * PREFIX_TRACE_BLOCK_TOKENS,
                                                    .block_tokens = PREFIX_TRACE_BLOCK_TOKENS,
                                                    .even_tokens = 1000,
                                                    .policy = (enum eviction_policy)policy};
        struct prefix_replay_result result;
        FUZZ_CHECK(prefix_replay(trace, &config, &result, &err) == STATUS_OK);
        FUZZ_CHECK(result.hit_tokens < trace->token_count && result.saved_cost < result.cost);
        FUZZ_CHECK(result.too_long <= trace->prompt_count);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_quiet();
    struct prefix_trace trace;
    prefix_trace_init(&trace);
    for (const uint8_t *end = data + size; data < end;) {
        const uint8_t *stop = memchr(data, '\n', (size_t)(end - data));
        stop = stop ? stop : end;
        add_line(&trace, data, (size_t)(stop - data));
        data = stop + 1;
    }
    if (trace.prompt_count && trace.token_count <= MAX_PLAYED_TOKENS)
        play(&trace);
    prefix_trace_deinit(&trace);
    return 0;
}
