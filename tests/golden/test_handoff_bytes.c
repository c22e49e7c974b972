/* The same bytes after a handoff: a prompt is prefilled in one engine, its KV blocks are read by
 * another one through the local transport, and the answer's logits are hashed step by step. They
 * must equal the logits of one engine that does everything, whatever the chunks, the compute path
 * and the blocks' places. */
#include "common/base/rng.h"
#include "common/engine/engine.h"
#include "common/kv/transport/kv_checksum.h"
#include "common/kv/transport/kv_transport.h"
#include "tests/device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { BLOCK_TOKENS = 32, BLOCKS = 64, STEPS = 64, MAX_TOKENS = 1024 };

struct side {
    struct engine *engine;
    struct kv_transport *transport;
    uint32_t blocks[BLOCKS];
};

static struct side open_side(const char *model, bool f32, enum kv_choice kv, uint32_t first_block)
{
    struct side side = {0};
    struct error err = {""};
    struct engine_config config = {.model_dir = model,
                                   .kv = kv,
                                   .kernels = {.device = test_device(), .f32 = f32, .threads = 1},
                                   .block_tokens = BLOCK_TOKENS,
                                   .block_count = BLOCKS,
                                   .max_rows = MAX_TOKENS,
                                   .max_sequences = 4};
    if (engine_open(&config, &side.engine, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    struct kv_transport_config transport = {
        .kind = KV_TRANSPORT_LOCAL, .pool_bytes = engine_pool_bytes(side.engine), .max_reads = 16};
    if (kv_transport_open(&transport, &side.transport, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    if (engine_attach_pool(side.engine, kv_transport_pool(side.transport), &err) != STATUS_OK)
        fail_msg("%s", err.text);
    for (uint32_t i = 0; i < BLOCKS; i++) /* scattered, and elsewhere on each side */
        side.blocks[i] = (first_block + i * 5) % BLOCKS;
    return side;
}

static void close_side(struct side *side)
{
    engine_close(side->engine);
    kv_transport_close(side->transport);
}

/* Rows [from, from + count) of the tokens; draws a token at the last row if `sample`. */
static struct engine_sequence rows(struct side *side, const uint32_t *tokens, uint32_t from,
                                   uint32_t count, uint32_t prompt, bool sample)
{
    static struct sampling sampling;
    sampling = sampling_default();
    sampling.seed = 7;
    sampling.ignore_eos = sampling.logits_hash = true;
    sampling.max_tokens = STEPS + 1;
    struct engine_sequence sequence = {.tokens = tokens + from,
                                       .token_count = count,
                                       .position = from,
                                       .blocks = side->blocks,
                                       .block_count =
                                           (from + count + BLOCK_TOKENS - 1) / BLOCK_TOKENS,
                                       .prompt_rows = from < prompt ? count : 0,
                                       .sample_count = sample,
                                       .sampling = &sampling,
                                       .index = from + count - prompt};
    struct error err = {""};
    if (engine_step(side->engine, &sequence, 1, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return sequence;
}

static void prefill(struct side *side, uint32_t *tokens, uint32_t prompt, uint32_t chunk,
                    uint64_t *hashes)
{
    for (uint32_t from = 0; from < prompt; from += chunk) {
        uint32_t count = prompt - from < chunk ? prompt - from : chunk;
        bool last = from + count == prompt;
        struct engine_sequence done = rows(side, tokens, from, count, prompt, last);
        if (last) {
            tokens[prompt] = done.drawn.token;
            assert_int_not_equal(done.drawn.logits_hash, 0);
            hashes[0] = done.drawn.logits_hash;
        }
    }
}

static void decode(struct side *side, uint32_t *tokens, uint32_t prompt, uint64_t *hashes)
{
    for (uint32_t i = 1; i < STEPS; i++) {
        struct engine_sequence done = rows(side, tokens, prompt + i - 1, 1, prompt, true);
        tokens[prompt + i] = done.drawn.token;
        assert_int_not_equal(done.drawn.logits_hash, 0);
        hashes[i] = done.drawn.logits_hash;
    }
}

static void hand_off(struct side *source, struct side *target, uint32_t prompt)
{
    struct kv_peer *peer;
    struct error err = {""};
    size_t block_bytes = kv_layout_block_bytes(engine_layout(source->engine));
    struct kv_admission admission;
    if (kv_transport_admit(source->transport, &admission, &err) != STATUS_OK ||
        kv_transport_pair(target->transport, admission.address, admission.bytes, &peer, &err) !=
            STATUS_OK)
        fail_msg("%s", err.text);
    assert_string_equal(kv_peer_lane(peer), "local");
    struct kv_read_run runs[BLOCKS];
    uint32_t count = (prompt + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
    for (uint32_t i = 0; i < count; i++)
        runs[i] = (struct kv_read_run){source->blocks[i] * block_bytes,
                                       target->blocks[i] * block_bytes, block_bytes, 0};
    assert_int_equal(kv_transport_read(target->transport, peer, runs, count, UINT64_MAX, 1),
                     STATUS_OK);
    struct kv_event event = {0};
    while (kv_transport_poll(target->transport, 0, &event, 1) == 0)
        ;
    assert_int_equal(event.kind, KV_EVENT_READ_DONE);
    assert_int_equal(event.status, STATUS_OK);
    const char *from = kv_transport_pool(source->transport),
               *to = kv_transport_pool(target->transport);
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(kv_checksum(from + runs[i].remote_offset, block_bytes),
                         kv_checksum(to + runs[i].local_offset, block_bytes));
}

static void check_model(const char *model, uint32_t prompt, bool f32, enum kv_choice kv)
{
    struct side alone = open_side(model, f32, kv, 0);
    uint32_t vocab = engine_shape(alone.engine)->vocab;
    uint32_t tokens[MAX_TOKENS], again[MAX_TOKENS];
    struct rng rng = rng_seeded(prompt);
    for (uint32_t i = 0; i < prompt; i++)
        tokens[i] = 3 + (uint32_t)rng_below(&rng, vocab - 3);
    memcpy(again, tokens, sizeof tokens);
    uint64_t want[STEPS], got[STEPS];
    prefill(&alone, tokens, prompt, prompt, want);
    decode(&alone, tokens, prompt, want);
    static const uint32_t chunks[] = {16, 64, 512};
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        struct side source = open_side(model, f32, kv, 3), target = open_side(model, f32, kv, 40);
        assert_int_equal(engine_numerics_id(source.engine), engine_numerics_id(alone.engine));
        prefill(&source, again, prompt, chunks[i], got);
        hand_off(&source, &target, prompt);
        decode(&target, again, prompt, got);
        assert_memory_equal(got, want, sizeof want);
        assert_memory_equal(again, tokens, (prompt + STEPS) * sizeof *tokens);
        assert_int_equal(engine_counters(target.engine).prompt_rows, 0);
        assert_int_equal(engine_counters(source.engine).prompt_rows, prompt);
        close_side(&target);
        close_side(&source);
    }
    close_side(&alone);
}

static void test_shipped_model(void **state)
{
    (void)state;
    check_model("deploy/local/tiny-shakespeare", 100, true, KV_CHOICE_AUTO);
    check_model("deploy/local/tiny-shakespeare", 100, false, KV_CHOICE_AUTO);
    check_model("deploy/local/tiny-shakespeare", 300, false, KV_CHOICE_INT8);
}

/* Several attention segments, and a sum of several K segments. */
static void test_wide_model(void **state)
{
    (void)state;
    check_model("tests/golden/models/llama-wide", 700, true, KV_CHOICE_AUTO);
    check_model("tests/golden/models/llama-wide", 700, false, KV_CHOICE_AUTO);
    check_model("tests/golden/models/llama-wide", 700, true, KV_CHOICE_INT8);
    check_model("tests/golden/models/llama-wide", 700, false, KV_CHOICE_INT8);
}

/* Blocks in front of the window travel too, and change nothing. */
static void test_window_model(void **state)
{
    (void)state;
    check_model("tests/golden/models/mistral-window", 300, true, KV_CHOICE_AUTO);
    check_model("tests/golden/models/mistral-window", 300, false, KV_CHOICE_AUTO);
}

static void test_qwen_models(void **state)
{
    (void)state;
    check_model("tests/golden/models/qwen2", 100, false, KV_CHOICE_AUTO);
    check_model("tests/golden/models/qwen3", 100, true, KV_CHOICE_AUTO);
    check_model("tests/golden/models/qwen3", 100, false, KV_CHOICE_AUTO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_window_model),
        cmocka_unit_test(test_qwen_models),
        cmocka_unit_test(test_shipped_model),
        cmocka_unit_test(test_wide_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
