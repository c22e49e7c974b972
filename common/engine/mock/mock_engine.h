/* The mock engine: an engine without weights. It serves planning, and tests of whole clusters on
 * machines without accelerators. Its answers are no answers: they are plain words of the model's
 * vocabulary in a random order, and run on to max_tokens.
 *
 * Rows of KV are real bytes in the real pool (below). Handoffs, caches, swaps and failures move
 * them as they move a model's, and a wrong one gives a wrong token. The same prompt, seed, choice
 * and index give the same tokens and hashes, in any company, on any worker.
 *
 * A step takes the time that its profile says (step_profile.h), from the call on, and sleeps for
 * what is left of it. Needs config.json of the model's folder, and takes tokens from its
 * tokenizer.json. A folder without one has all ids drawn, except for end ids.
 *
 * Log probabilities belong to the mock's own distribution (below). top_k, top_p, min_p,
 * penalties and biases above -100 change nothing. `logits` is NULL. */
#ifndef BATON_ENGINE_MOCK_MOCK_ENGINE_H
#define BATON_ENGINE_MOCK_MOCK_ENGINE_H

#include "common/base/domain/kv_layout.h"
#include "common/base/domain/step_profile.h"
#include "common/engine/engine.h"

/* As engine_open, with STATUS_NOT_FOUND and the like for the folder's small files. */
enum status mock_engine_open(const struct engine_config *config, struct engine **engine,
                             struct error *err) WARN_UNUSED;

/* --- profiles by name (profile_file.c): the build holds those of deploy/profiles --- */

/* Reads a profile: the name of one that the build holds, or the path of a JSON file (with a slash,
 * or ending in ".json"). STATUS_NOT_FOUND: no such profile; the sentence lists the names, or the
 * path. STATUS_INVALID: the sentence lists all mistakes of the file. */
enum status profile_read(const char *name, struct step_profile *profile,
                         struct error *err) WARN_UNUSED;
/* As the `check` of a config_setting. */
enum status profile_check(const char *name, struct error *err);
/* Parses the text of a profile. PURE. */
enum status profile_parse(const char *text, size_t length, struct step_profile *profile,
                          struct error *err) WARN_UNUSED;

/* The files of deploy/profiles (generated), by name. */
struct shipped_profile {
    const char *name, *text;
};
extern const struct shipped_profile shipped_profiles[];
extern const size_t shipped_profile_count;

/* --- numerics (mock_rows.c): the bytes of a row of KV, and the token that follows. PURE functions
 * of the bytes in the pool.
 *
 * A row has MOCK_ROW_BYTES bytes, half of them as its key, half as its value. They are a hash of
 * the row's token and of the *context*: all bytes of all earlier rows, read through the block table
 * from the pool, block by block. The next token is drawn from the context behind the last row. So
 * a block that is stale, misplaced, another sequence's or changed by one bit gives another token
 * from there on. Blocks, chunks, batches and workers that hold the right bytes give the same
 * token.
 *
 * The likeliest token has probability 1/2, the next 1/4, and so on. They are neighbours in a list
 * of tokens; the context says where they begin. --- */

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
