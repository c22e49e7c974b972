/* sink_runner: received blocks are compared in turns of bounded bytes, one sink after the other,
 * whatever the size of a block. */
#include "decode_worker/sink_runner.h"
#include "tests/unit/sink_fixture.h"

#define BLOCKS 3
#define SINKS  2

struct world {
    struct worker worker;
    struct kv_layout layout;
    struct sink_runner runner;
    uint64_t sums[SINKS][BLOCKS];
};

static void world_open(struct world *w, uint32_t layers)
{
    *w = (struct world){.layout = {.layers = layers,
                                   .kv_heads = 2,
                                   .head_dim = 64,
                                   .block_tokens = 4,
                                   .type = KV_BF16,
                                   .layer_end = layers,
                                   .head_end = 2}};
    w->worker = (struct worker){.info = {.context = 64, .block_tokens = 4},
                                .block_bytes = kv_layout_block_bytes(&w->layout)};
    struct kv_transport_config transport = {.kind = KV_TRANSPORT_LOCAL,
                                            .pool_bytes = SINKS * BLOCKS * w->worker.block_bytes,
                                            .layout = &w->layout,
                                            .max_reads = 1};
    struct sink_config config = {.vocab = VOCAB,
                                 .model_hash = 1,
                                 .layout_hash = 2,
                                 .numerics_id = 3,
                                 .host_path = true,
                                 .block_tokens = 4,
                                 .block_bytes = w->worker.block_bytes,
                                 .max_sinks = SINKS,
                                 .max_blocks = BLOCKS,
                                 .max_peers = 1,
                                 .max_read_blocks = BLOCKS,
                                 .heartbeat_us = HEARTBEAT,
                                 .silence_limit_us = SILENCE,
                                 .peer_down_limit_us = PEER_DOWN,
                                 .reconnect_us = RECONNECT};
    struct error err;
    struct kv_import_handlers handlers = {0};
    struct kv_summing summing;
    assert_int_equal(kv_transport_open(&transport, &w->worker.transport, &err), STATUS_OK);
    assert_int_equal(sink_runner_init(&w->runner, &w->worker, &config, &err), STATUS_OK);
    assert_int_equal(kv_import_create(&w->worker, &handlers, NULL, &w->runner.imports), STATUS_OK);
    kv_summing_init(&summing, &w->layout);
    uint8_t *block = kv_transport_pool(w->worker.transport);
    for (int i = 0; i < SINKS * BLOCKS; i++, block += w->worker.block_bytes) {
        memset(block, i + 1, w->worker.block_bytes);
        w->sums[i / BLOCKS][i % BLOCKS] = kv_block_sum(&summing, block).runs;
    }
}

static void world_close(struct world *w)
{
    kv_import_destroy(w->runner.imports);
    sink_runner_deinit(&w->runner);
    kv_transport_close(w->worker.transport);
}

/* Brings a sink so far that its blocks have come, with their sums. Returns the comparison that the
 * runner is to make. */
static uint64_t receive(struct world *w, uint32_t sink)
{
    struct sink_table *sinks = w->runner.sinks;
    struct sink_actions *out = &w->runner.actions;
    const uint64_t now_us = 1000, request = sink + 1;
    const uint32_t local[BLOCKS] = {sink * BLOCKS, sink * BLOCKS + 1, sink * BLOCKS + 2};
    struct sink_decode command = decode_of(request, 1, 4 * BLOCKS);
    command.reserve_tokens = 4 * BLOCKS;
    sink_on_decode(sinks, now_us, &command, out);
    if (sink == 0) {
        sink_on_peer_up(sinks, now_us, PEER, 7, out);
        sink_on_pair_up(sinks, now_us, PEER, out);
    }
    sink_on_reserved(sinks, now_us, request, 1, local, BLOCKS, 0, out);
    struct peer_up message = {.kind = PEER_READY,
                              .request = request,
                              .attempt = 1,
                              .ready_tokens = 4 * BLOCKS,
                              .sum_count = BLOCKS,
                              .sums = w->sums[sink]};
    sink_on_message(sinks, now_us, PEER, &message, out);
    assert_int_equal(out->count, 1);
    assert_int_equal(out->items[0].kind, SINK_READ);
    sink_on_read_done(sinks, now_us, out->items[0].cookie, STATUS_OK, out);
    assert_int_equal(out->count, 1);
    assert_int_equal(out->items[0].kind, SINK_VERIFY);
    assert_int_equal(out->items[0].block_count, BLOCKS);
    uint64_t cookie = out->items[0].cookie;
    sink_runner_run(&w->runner);
    assert_true(sink_is_verifying(sinks, cookie));
    return cookie;
}

static void test_blocks_are_compared_in_turns(void **state)
{
    (void)state;
    static const struct {
        uint32_t layers, turns; /* each sink's */
    } cases[] = {
        {1, 1},    /* blocks of 2 KiB */
        {1536, 2}, /* 3 MiB: a turn of 4 MiB ends behind the second */
        {3072, 3}, /* 6 MiB: each is a turn of its own */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static struct world w;
        uint64_t cookies[SINKS];
        uint32_t turns = 0;
        world_open(&w, cases[i].layers);
        assert_false(sink_runner_work(&w.runner));
        for (uint32_t sink = 0; sink < SINKS; sink++)
            cookies[sink] = receive(&w, sink);
        for (; sink_is_verifying(w.runner.sinks, cookies[0]); turns++)
            assert_true(sink_runner_work(&w.runner));
        /* They took turns: the other one lacks its last. */
        assert_int_equal(turns, SINKS * cases[i].turns - 1);
        assert_true(sink_is_verifying(w.runner.sinks, cookies[1]));
        assert_true(sink_runner_work(&w.runner));
        assert_false(sink_is_verifying(w.runner.sinks, cookies[1]));
        assert_false(sink_runner_work(&w.runner));
        assert_int_equal(sink_table_counters(w.runner.sinks).rereads, 0);
        world_close(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_blocks_are_compared_in_turns)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
