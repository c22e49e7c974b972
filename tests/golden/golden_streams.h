/* Drives an engine as a worker does: several answers side by side, prompts in chunks, KV blocks in
 * no order. For tests: any failure fails the running cmocka test. */
#ifndef BATON_TESTS_GOLDEN_STREAMS_H
#define BATON_TESTS_GOLDEN_STREAMS_H

#include "common/engine/engine.h"

#define STREAM_BLOCK_TOKENS 16
#define STREAM_MAX_TOKENS   3200
#define STREAM_MAX_ANSWER   64
#define STREAM_MAX_ROWS     3072
#define STREAM_MAX_STREAMS  16

/* One prompt and its answer. */
struct stream {
    uint32_t tokens[STREAM_MAX_TOKENS]; /* prompt, then the drawn (or forced) tokens */
    uint32_t prompt_count, computed;    /* computed: positions with keys and values in the pool */
    uint32_t answer_count, answer_limit;
    struct sampling sampling;
    const uint32_t *forced; /* fed instead of the drawn tokens, or NULL */
    uint32_t block_count;
    uint32_t blocks[STREAM_MAX_TOKENS / STREAM_BLOCK_TOKENS];
    /* For each token of the answer: */
    uint32_t drawn[STREAM_MAX_ANSWER];
    uint64_t hashes[STREAM_MAX_ANSWER];
    float spread[STREAM_MAX_ANSWER]; /* max - min of the logits */
    float *first_logits;             /* [vocab] of the prompt's last position, if not NULL */
};

/* Returns NULL if this CPU can't run it; every other failure fails the test. */
struct engine *streams_open(const char *model_dir, struct kernels_config kernels,
                            uint32_t pool_blocks);

/* The same with weights, and keys and values, quantized or not, as the choices say. */
struct engine *streams_open_with(const char *model_dir, enum weight_choice weights,
                                 enum kv_choice kv, struct kernels_config kernels,
                                 uint32_t pool_blocks);

/* Runs all of them to their answer_limit: each step takes up to `chunk` rows of each unfinished
 * prompt and one row of each answer. Blocks are handed out in a scattered order and given back at
 * the end. */
void streams_run(struct engine *engine, struct stream *streams, uint32_t count, uint32_t chunk);

#endif
