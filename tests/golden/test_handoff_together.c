/* The same bytes through the local transport, beside other requests. One engine computes 50
 * requests (20 in f32), each alone. A second engine prefills the same requests, 16 at once, in
 * chunks, and hands them over block by block; a third decodes 16 at once. The answers must be
 * equal, whatever the chunk and the number of compute threads. */
#include "common/base/rng.h"
#include "common/engine/engine.h"
#include "common/kv/transport/kv_transport.h"
#include "tests/device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum {
    BLOCK_TOKENS = 32,
    PER_REQUEST = 8,
    REQUESTS = 50,
    F32_REQUESTS = 20, /* the reference is slow */
    TOGETHER = 16,
    BLOCKS = TOGETHER * PER_REQUEST,
    STEPS = 64,
    MAX_PROMPT = 150
};

struct side {
    struct engine *engine;
    struct kv_transport *transport;
};

struct request {
    uint32_t prompt, tokens[MAX_PROMPT + STEPS + 1];
    struct sampling sampling;
    uint64_t alone[STEPS], together[STEPS];
    uint32_t done;                /* rows computed */
    uint32_t blocks[PER_REQUEST]; /* on the side that computes now */
};

static struct side open_side(const char *model, bool f32, uint32_t threads)
{
    struct side side = {0};
    struct error err = {""};
    struct engine_config config = {
        .model_dir = model,
        .kernels = {.device = test_device(), .f32 = f32, .threads = threads},
        .block_tokens = BLOCK_TOKENS,
        .block_count = BLOCKS,
        .max_rows = TOGETHER * MAX_PROMPT,
        .max_sequences = TOGETHER};
    if (engine_open(&config, &side.engine, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    struct kv_transport_config transport = {
        .kind = KV_TRANSPORT_LOCAL, .pool_bytes = engine_pool_bytes(side.engine), .max_reads = 1};
    if (kv_transport_open(&transport, &side.transport, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    if (engine_attach_pool(side.engine, kv_transport_pool(side.transport), &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return side;
}

static void close_side(struct side *side)
{
    engine_close(side->engine);
    kv_transport_close(side->transport);
}

/* One step of all of them: at most `chunk` rows of each prompt, or one row of each answer. Returns
 * how many took part; 0: all prompts, or all answers, are done. */
static uint32_t step(struct side *side, struct request *requests, uint32_t count, uint32_t chunk,
                     bool answers, uint64_t *(*hashes)(struct request *))
{
    struct engine_sequence parts[TOGETHER];
    struct request *owners[TOGETHER];
    uint32_t used = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct request *r = &requests[i];
        bool in_prompt = r->done < r->prompt;
        if (in_prompt == answers || r->done >= r->prompt + STEPS - 1)
            continue;
        uint32_t rows = in_prompt && r->prompt - r->done < chunk ? r->prompt - r->done : chunk;
        rows = in_prompt ? rows : 1;
        uint32_t end = r->done + rows;
        parts[used] = (struct engine_sequence){.tokens = r->tokens + r->done,
                                               .token_count = rows,
                                               .position = r->done,
                                               .blocks = r->blocks,
                                               .block_count = PER_REQUEST,
                                               .prompt_rows = in_prompt ? rows : 0,
                                               .sample_count = end >= r->prompt,
                                               .sampling = &r->sampling,
                                               .index = end >= r->prompt ? end - r->prompt : 0};
        owners[used++] = r;
    }
    struct error err = {""};
    if (used && engine_step(side->engine, parts, used, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    for (uint32_t k = 0; k < used; k++) {
        owners[k]->done += parts[k].token_count;
        if (!parts[k].sample_count)
            continue;
        assert_int_equal(parts[k].drawn.status, STATUS_OK);
        owners[k]->tokens[owners[k]->done] = parts[k].drawn.token;
        assert_int_not_equal(parts[k].drawn.logits_hash, 0);
        hashes(owners[k])[parts[k].index] = parts[k].drawn.logits_hash;
    }
    return used;
}

static uint64_t *alone_of(struct request *request)
{
    return request->alone;
}

static uint64_t *together_of(struct request *request)
{
    return request->together;
}

/* Gives each request new blocks; the old ones go to `before`, for the handoff. */
static void place(struct request *requests, uint32_t count, uint32_t first,
                  uint32_t (*before)[PER_REQUEST])
{
    for (uint32_t i = 0; i < count; i++) {
        if (before)
            memcpy(before[i], requests[i].blocks, sizeof before[i]);
        for (uint32_t b = 0; b < PER_REQUEST;
             b++) /* scattered: 5 has no divisor in common with BLOCKS */
            requests[i].blocks[b] = (first + (i * PER_REQUEST + b) * 5) % BLOCKS;
    }
}

static void hand_off(struct side *source, struct side *target, struct request *requests,
                     uint32_t count)
{
    uint32_t before[TOGETHER][PER_REQUEST];
    struct kv_peer *peer;
    struct error err = {""};
    size_t block_bytes = kv_layout_block_bytes(engine_layout(source->engine));
    place(requests, count, 77, before);
    struct kv_admission admission;
    if (kv_transport_admit(source->transport, &admission, &err) != STATUS_OK ||
        kv_transport_pair(target->transport, admission.address, admission.bytes, &peer, &err) !=
            STATUS_OK)
        fail_msg("%s", err.text);
    struct kv_read_run runs[BLOCKS];
    uint32_t used = 0;
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t b = 0; b * BLOCK_TOKENS < requests[i].prompt; b++)
            runs[used++] = (struct kv_read_run){
                before[i][b] * block_bytes, requests[i].blocks[b] * block_bytes, block_bytes, 0};
    assert_int_equal(kv_transport_read(target->transport, peer, runs, used, UINT64_MAX, 1),
                     STATUS_OK);
    struct kv_event event = {0};
    while (kv_transport_poll(target->transport, 0, &event, 1) == 0)
        ;
    assert_int_equal(event.kind, KV_EVENT_READ_DONE);
    assert_int_equal(event.status, STATUS_OK);
}

static void make_requests(struct request *requests, uint32_t vocab)
{
    static const uint32_t lengths[] = {1, 2, 31, 32, 33, 64, 100, MAX_PROMPT};
    struct rng rng = rng_seeded(11);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        struct request *r = &requests[i];
        *r = (struct request){.prompt = lengths[i % 8], .sampling = sampling_default()};
        r->sampling.seed = 100 + i;
        r->sampling.ignore_eos = r->sampling.logits_hash = true;
        r->sampling.max_tokens = STEPS;
        for (uint32_t t = 0; t < r->prompt; t++)
            r->tokens[t] = 3 + (uint32_t)rng_below(&rng, vocab - 3);
    }
}

static void check_model(const char *model, bool f32)
{
    static struct request requests[REQUESTS];
    uint32_t all = f32 ? F32_REQUESTS : REQUESTS;
    struct side one = open_side(model, f32, 1);
    make_requests(requests, engine_shape(one.engine)->vocab);
    for (uint32_t i = 0; i < all; i++) {
        place(&requests[i], 1, 0, NULL);
        while (step(&one, &requests[i], 1, MAX_PROMPT, false, alone_of))
            ;
        while (step(&one, &requests[i], 1, 1, true, alone_of))
            ;
    }
    close_side(&one);
    static const struct {
        uint32_t chunk, threads;
    } ways[] = {{16, 1}, {64, 2}, {512, 2}, {16, 2}};
    for (uint32_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        struct side source = open_side(model, f32, ways[w].threads);
        struct side target = open_side(model, f32, ways[w].threads);
        for (uint32_t first = 0; first < all; first += TOGETHER) {
            uint32_t count = all - first < TOGETHER ? all - first : TOGETHER;
            for (uint32_t i = first; i < first + count; i++)
                requests[i].done = 0;
            place(requests + first, count, 3, NULL);
            while (step(&source, requests + first, count, ways[w].chunk, false, together_of))
                ;
            hand_off(&source, &target, requests + first, count);
            while (step(&target, requests + first, count, 1, true, together_of))
                ;
        }
        for (uint32_t i = 0; i < all; i++)
            assert_memory_equal(requests[i].together, requests[i].alone, sizeof requests[i].alone);
        assert_int_equal(engine_counters(target.engine).prompt_rows, 0);
        close_side(&target);
        close_side(&source);
    }
}

static void test_shipped_model(void **state)
{
    (void)state;
    check_model("deploy/local/tiny-shakespeare", false);
}

static void test_wide_model(void **state)
{
    (void)state;
    check_model("tests/golden/models/llama-wide", false);
    check_model("tests/golden/models/llama-wide", true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shipped_model),
        cmocka_unit_test(test_wide_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
