#include "common/engine/mock/mock_engine.h"

#include "common/base/domain/content_hash.h"
#include "common/base/rng.h"
#include "common/base/u32.h"

#include <string.h>

#define HALF_BYTES (MOCK_ROW_BYTES / 2)
#define LEAST_RANK 63 /* a token's: 2^-64 */
#define LN_2       0.6931471805599453

/* Streams of the generator. */
enum { STREAM_FIRST, STREAM_RANK, STREAM_ALLOWED };

/* Mixes two numbers (splitmix64's finalizer: Steele, Lea and Flood, OOPSLA'14). */
static uint64_t mix(uint64_t a, uint64_t b)
{
    return rng_next(&(struct rng){a ^ (b * 0x9e3779b97f4a7c15u)});
}

struct kv_layout mock_layout(uint32_t block_tokens)
{
    const struct model_shape shape = {.layers = 1, .kv_heads = 1, .head_dim = HALF_BYTES / 2};
    return kv_layout_whole(&shape, block_tokens, KV_BF16);
}

/* --- rows --- */

static uint8_t *block_of(const struct mock_kv *kv, uint32_t position)
{
    return kv->pool + (size_t)kv->blocks[position / kv->layout->block_tokens] *
                          kv_layout_block_bytes(kv->layout);
}

/* The bytes of a row in its block: the key's, and behind all keys the value's. */
static uint8_t *key_of(const struct mock_kv *kv, uint32_t position)
{
    return block_of(kv, position) + (size_t)(position % kv->layout->block_tokens) * HALF_BYTES;
}

uint64_t mock_row(const struct mock_kv *kv, uint32_t position)
{
    uint64_t row;
    const uint8_t *key = key_of(kv, position);
    memcpy(&row, key, HALF_BYTES);
    memcpy((uint8_t *)&row + HALF_BYTES, key + kv_layout_head_run_bytes(kv->layout), HALF_BYTES);
    return row;
}

/* Adds the first `rows` rows of a block to the context before it. */
static uint64_t add_rows(uint64_t before, const uint8_t *block, const struct kv_layout *layout,
                         uint32_t rows)
{
    size_t bytes = (size_t)rows * HALF_BYTES;
    uint64_t keys = content_hash(block, bytes);
    return mix(mix(before, keys), content_hash(block + kv_layout_head_run_bytes(layout), bytes));
}

uint64_t mock_write_rows(const struct mock_kv *kv, const uint32_t *tokens, uint32_t position,
                         uint32_t count)
{
    const uint32_t per = kv->layout->block_tokens;
    uint64_t before = mix(kv->seed, MOCK_VERSION), context = before;
    for (uint32_t at = 0; at + per <= position; at += per)
        before = add_rows(before, block_of(kv, at), kv->layout, per);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = position + i, inside = at % per;
        const uint8_t *block = block_of(kv, at);
        context = inside ? add_rows(before, block, kv->layout, inside) : before;
        uint64_t row = mix(context, ((uint64_t)at << 32) | tokens[i]);
        uint8_t *key = key_of(kv, at);
        memcpy(key, &row, HALF_BYTES);
        memcpy(key + kv_layout_head_run_bytes(kv->layout), (uint8_t *)&row + HALF_BYTES,
               HALF_BYTES);
        if (inside + 1 == per)
            before = add_rows(before, block, kv->layout, per);
    }
    uint32_t inside = (position + count) % per;
    return inside ? add_rows(before, block_of(kv, position + count - 1), kv->layout, inside)
                  : before;
}

/* --- tokens --- */

static bool among(uint32_t id, const uint32_t *ids, uint32_t count)
{
    uint32_t i = 0;
    while (i < count && ids[i] != id)
        i++;
    return i < count;
}

static bool is_banned(const struct mock_tokens *tokens, const struct engine_sequence *sequence,
                      uint32_t id)
{
    const struct sampling *sampling = sequence->sampling;
    if (sequence->ban_end && among(id, sampling->stop_ids, sampling->stop_id_count))
        return true;
    if (sequence->ban_end && !sampling->ignore_eos && among(id, tokens->end_ids, tokens->end_count))
        return true;
    for (uint32_t i = 0; i < sampling->bias_count && sampling->biases[i].id <= id; i++)
        if (sampling->biases[i].id == id && sampling->biases[i].bias <= -100)
            return true;
    return false;
}

static bool is_allowed(const struct mock_tokens *tokens, const struct engine_sequence *sequence,
                       uint32_t id)
{
    return id < tokens->vocab && (sequence->allowed[id / 32] >> (id % 32) & 1) &&
           !is_banned(tokens, sequence, id);
}

/* Draws under a constraint. `random`: says which of the allowed ids. */
static enum status draw_allowed(const struct mock_tokens *tokens,
                                const struct engine_sequence *sequence, uint64_t random,
                                uint32_t *token)
{
    for (uint32_t i = 0; i < tokens->end_count; i++)
        if (is_allowed(tokens, sequence, tokens->end_ids[i])) {
            *token = tokens->end_ids[i];
            return STATUS_OK;
        }
    uint32_t count = 0, id = 0;
    for (uint32_t i = 0; i < tokens->vocab; i++)
        count += sequence->allowed[i / 32] ? is_allowed(tokens, sequence, i) : 0;
    if (!count)
        return STATUS_INVALID;
    for (uint64_t left = random % count + 1; left > 0; id++)
        left -= is_allowed(tokens, sequence, id);
    *token = id - 1;
    return STATUS_OK;
}

/* Returns the place in the list of the context's likeliest token. */
static uint32_t first_of(const struct mock_tokens *tokens, uint64_t context)
{
    return (uint32_t)(rng_at(context, STREAM_FIRST, 0) % tokens->count);
}

enum status mock_draw(const struct mock_tokens *tokens, const struct engine_sequence *sequence,
                      uint64_t context, uint32_t *token)
{
    const struct sampling *sampling = sequence->sampling;
    bool greedy = sampling->temperature <= 0;
    uint64_t own = greedy ? 0 : mix(mix(sampling->seed, sampling->choice), sequence->index);
    if (sequence->allowed)
        return draw_allowed(tokens, sequence, rng_at(context, STREAM_ALLOWED, own), token);
    uint64_t random = rng_at(context, STREAM_RANK, own);
    /* Each bit is 0 with probability 1/2: the number of zeros before the first 1 is the rank. */
    uint32_t rank = greedy || !random ? 0 : (uint32_t)__builtin_ctzll(random);
    uint32_t first = first_of(tokens, context);
    for (uint32_t i = 0; i < tokens->count; i++) {
        uint32_t id = tokens->ids[(first + rank + i) % tokens->count];
        if (is_banned(tokens, sequence, id))
            continue;
        *token = id;
        return STATUS_OK;
    }
    return STATUS_INVALID;
}

/* Returns the rank of a token in the context. */
static uint32_t rank_of(const struct mock_tokens *tokens, uint64_t context, uint32_t token)
{
    uint32_t low = 0, high = tokens->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (tokens->ids[middle] < token)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == tokens->count || tokens->ids[low] != token)
        return LEAST_RANK;
    uint32_t rank = (low + tokens->count - first_of(tokens, context)) % tokens->count;
    return min_u32(rank, LEAST_RANK);
}

void mock_logprobs(const struct mock_tokens *tokens, uint64_t context, uint32_t token, uint32_t top,
                   struct token_logprobs *logprobs)
{
    uint32_t first = first_of(tokens, context);
    logprobs->given = true;
    logprobs->logprob = (float)(-LN_2 * (rank_of(tokens, context, token) + 1));
    logprobs->top_count = min_u32(min_u32(top, LOGPROBS_MAX_TOP), tokens->count);
    for (uint32_t i = 0; i < logprobs->top_count; i++) {
        logprobs->top_ids[i] = tokens->ids[(first + i) % tokens->count];
        logprobs->top_logprobs[i] = (float)(-LN_2 * (i + 1));
    }
}
