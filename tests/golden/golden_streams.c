#include "tests/golden/golden_streams.h"

#include "tests/device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

struct engine *streams_open(const char *model_dir, struct kernels_config kernels,
                            uint32_t pool_blocks)
{
    return streams_open_with(model_dir, WEIGHTS_AUTO, KV_CHOICE_AUTO, kernels, pool_blocks);
}

struct engine *streams_open_with(const char *model_dir, enum weight_choice weights,
                                 enum kv_choice kv, struct kernels_config kernels,
                                 uint32_t pool_blocks)
{
    struct engine_config config = {.model_dir = model_dir,
                                   .weights = weights,
                                   .kv = kv,
                                   .kernels = kernels,
                                   .block_tokens = STREAM_BLOCK_TOKENS,
                                   .block_count = pool_blocks,
                                   .max_rows = STREAM_MAX_ROWS,
                                   .max_sequences = STREAM_MAX_STREAMS};
    if (config.kernels.device == DEVICE_AUTO)
        config.kernels.device = test_device();
    struct engine *engine;
    struct error err;
    enum status status = engine_open(&config, &engine, &err);
    if (status == STATUS_UNSUPPORTED)
        return NULL;
    if (status != STATUS_OK)
        fail_msg("%s", err.text);
    assert_int_equal(engine_attach_pool(engine, NULL, &err), STATUS_OK);
    return engine;
}

/* The n-th block handed out: a stride that is prime to the pool's size makes neighbours in a
 * sequence strangers in memory. */
static uint32_t scattered(uint32_t n, uint32_t pool_blocks)
{
    static const uint32_t primes[] = {7919, 7907, 7901};
    for (int i = 0; i < 3; i++)
        if (pool_blocks % primes[i])
            return (uint32_t)(((uint64_t)n * primes[i] + 3) % pool_blocks);
    return n;
}

static uint32_t pool_blocks(const struct engine *engine)
{
    return (uint32_t)(engine_pool_bytes(engine) / kv_layout_block_bytes(engine_layout(engine)));
}

static void give_blocks(struct engine *engine, struct stream *streams, uint32_t count)
{
    uint32_t given = 0, all = pool_blocks(engine);
    for (uint32_t i = 0; i < count; i++) {
        struct stream *s = &streams[i];
        assert_true(s->prompt_count + s->answer_limit <= STREAM_MAX_TOKENS);
        s->block_count =
            kv_layout_blocks_for(engine_layout(engine), s->prompt_count + s->answer_limit);
        s->sampling.logits_hash = true;
        for (uint32_t b = 0; b < s->block_count; b++)
            s->blocks[b] = scattered(given++, all);
    }
    assert_true(given <= all);
}

/* This stream's part of the next step. */
static struct engine_sequence next_rows(struct stream *s, uint32_t chunk)
{
    uint32_t left = s->prompt_count + s->answer_count - s->computed;
    uint32_t rows = left < chunk ? left : chunk;
    uint32_t prompt_left = s->computed < s->prompt_count ? s->prompt_count - s->computed : 0;
    return (struct engine_sequence){.tokens = s->tokens + s->computed,
                                    .token_count = rows,
                                    .position = s->computed,
                                    .blocks = s->blocks,
                                    .block_count = s->block_count,
                                    .prompt_rows = rows < prompt_left ? rows : prompt_left,
                                    .sample_count = rows == left,
                                    .sampling = &s->sampling,
                                    .index = s->answer_count};
}

static void take_token(struct stream *s, const struct engine_sequence *result, uint32_t vocab)
{
    assert_int_equal(result->drawn.status, STATUS_OK);
    assert_int_not_equal(result->drawn.logits_hash, 0);
    float low = result->logits[0], high = low;
    for (uint32_t i = 0; i < vocab; i++) {
        low = result->logits[i] < low ? result->logits[i] : low;
        high = result->logits[i] > high ? result->logits[i] : high;
    }
    if (s->answer_count == 0 && s->first_logits)
        memcpy(s->first_logits, result->logits, vocab * sizeof *result->logits);
    uint32_t n = s->answer_count++;
    s->spread[n] = high - low;
    s->drawn[n] = result->drawn.token;
    s->hashes[n] = result->drawn.logits_hash;
    s->tokens[s->prompt_count + n] = s->forced ? s->forced[n] : result->drawn.token;
}

void streams_run(struct engine *engine, struct stream *streams, uint32_t count, uint32_t chunk)
{
    assert_true(count <= STREAM_MAX_STREAMS);
    give_blocks(engine, streams, count);
    for (;;) {
        struct engine_sequence sequences[STREAM_MAX_STREAMS];
        struct stream *owners[STREAM_MAX_STREAMS];
        uint32_t running = 0, rows = 0;
        for (uint32_t i = 0; i < count; i++) {
            struct stream *s = &streams[i];
            if (s->answer_count == s->answer_limit || rows == STREAM_MAX_ROWS)
                continue;
            uint32_t room = STREAM_MAX_ROWS - rows;
            owners[running] = s;
            sequences[running] = next_rows(s, chunk < room ? chunk : room);
            rows += sequences[running++].token_count;
        }
        if (!running)
            return;
        struct error err;
        if (engine_step(engine, sequences, running, &err) != STATUS_OK)
            fail_msg("%s", err.text);
        for (uint32_t i = 0; i < running; i++) {
            owners[i]->computed += sequences[i].token_count;
            if (sequences[i].sample_count)
                take_token(owners[i], &sequences[i], engine_shape(engine)->vocab);
        }
    }
}
