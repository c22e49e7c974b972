/* The numerics of the mock engine: what a row of its KV holds, and which token follows. PURE
 * functions of the bytes in the pool.
 *
 * A row has MOCK_ROW_BYTES bytes, half of them as its key, half as its value. They are a hash of
 * the row's token and of the *context*: all bytes of all earlier rows, read through the block table
 * from the pool, block by block. The next token is drawn from the context behind the last row. So
 * a block that is stale, misplaced, another sequence's or changed by one bit gives another token
 * from there on. Blocks, chunks, batches and workers that hold the right bytes give the same
 * token.
 *
 * The likeliest token has probability 1/2, the next 1/4, and so on. They are neighbours in a list
 * of tokens; the context says where they begin. */
#ifndef BATON_ENGINE_MOCK_MOCK_ROWS_H
#define BATON_ENGINE_MOCK_MOCK_ROWS_H

#include "common/base/domain/kv_layout.h"
#include "common/engine/engine.h"

#define MOCK_VERSION   1 /* part of the numerics id: changes when any token could change */
#define MOCK_ROW_BYTES 8

/* The blocks of one sequence in a pool of `layout`, which is mock_layout's. */
struct mock_kv {
    uint8_t *pool;
    const struct kv_layout *layout;
    const uint32_t *blocks;
    uint64_t seed; /* the model's: contexts begin with it */
};

/* Returns the layout of the mock's KV: one layer, one head. */
struct kv_layout mock_layout(uint32_t block_tokens);

/* Writes the rows of tokens[0..count) at positions position, position + 1, ... and returns the
 * context behind them. Reads all rows before them. count >= 1. */
uint64_t mock_write_rows(const struct mock_kv *kv, const uint32_t *tokens, uint32_t position,
                         uint32_t count);
/* Returns the bytes of one row. */
uint64_t mock_row(const struct mock_kv *kv, uint32_t position);

/* Tokens to draw from: ascending, without end ids. */
struct mock_tokens {
    const uint32_t *ids;
    uint32_t count; /* > 0 */
    uint32_t vocab;
    const uint32_t *end_ids;
    uint32_t end_count;
};

/* Draws the token of sequence->index. Honours: temperature (0: the likeliest token; above it, a
 * draw by seed, choice and index), banned biases (-100), stop ids before min_tokens, and `allowed`.
 * If `allowed` lets the answer end, it ends; otherwise all allowed ids are equally likely. Other
 * settings of the sampler change nothing. STATUS_INVALID: every id is banned, or none is allowed.
 */
enum status mock_draw(const struct mock_tokens *tokens, const struct engine_sequence *sequence,
                      uint64_t context, uint32_t *token);
/* Gives the logprob of `token` and of the `top` likeliest ones, before bans. A token that is not in
 * the list counts as the 64th. */
void mock_logprobs(const struct mock_tokens *tokens, uint64_t context, uint32_t token, uint32_t top,
                   struct token_logprobs *logprobs);

#endif
