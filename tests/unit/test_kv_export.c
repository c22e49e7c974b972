/* kv_export: the sums of blocks that are handed off. */
#include "prefill_worker/kv_export.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BLOCK_TOKENS 16
#define MAX_BLOCKS   2048

/* Blocks of 1 KiB, or larger ones with more layers. */
struct world {
    struct worker worker;
    struct kv_layout layout;
    struct kv_summing summing;
    struct kv_export *exports;
    uint8_t *pool;
    /* The last call of `summed`, and how many there were. */
    struct sequence_key key;
    uint32_t tokens, calls;
    bool complete;
    uint64_t sums[MAX_BLOCKS];
    uint32_t checksums[MAX_BLOCKS], blocks; /* blocks: to keep of them */
};

static void on_summed(void *role, struct sequence_key key, uint32_t tokens, struct source_sums sums,
                      const struct source_completion *completion)
{
    struct world *w = role;
    w->key = key;
    w->tokens = tokens;
    w->complete = completion != NULL;
    w->calls++;
    memcpy(w->sums, sums.sums, w->blocks * sizeof *w->sums);
    memcpy(w->checksums, sums.checksums, w->blocks * sizeof *w->checksums);
}

static void world_open(struct world *w, uint32_t layers, uint32_t block_count)
{
    *w = (struct world){.layout = {.layers = layers,
                                   .kv_heads = 2,
                                   .head_dim = 8,
                                   .block_tokens = BLOCK_TOKENS,
                                   .type = KV_BF16,
                                   .layer_end = layers,
                                   .head_end = 2}};
    w->worker = (struct worker){
        .info = {.context = block_count * BLOCK_TOKENS, .block_tokens = BLOCK_TOKENS},
        .block_count = block_count,
        .block_bytes = kv_layout_block_bytes(&w->layout),
        .config.max_sequences = 4};
    kv_summing_init(&w->summing, &w->layout);
    struct kv_transport_config config = {.kind = KV_TRANSPORT_LOCAL,
                                         .pool_bytes = block_count * w->worker.block_bytes,
                                         .layout = &w->layout,
                                         .max_reads = 1};
    struct kv_export_handlers handlers = {.summed = on_summed};
    struct error err;
    assert_int_equal(kv_transport_open(&config, &w->worker.transport, &err), STATUS_OK);
    assert_int_equal(kv_export_create(&w->worker, &handlers, w, &w->exports), STATUS_OK);
    w->pool = kv_transport_pool(w->worker.transport);
}

static void world_close(struct world *w)
{
    kv_export_destroy(w->exports);
    kv_transport_close(w->worker.transport);
}

static struct kv_block_sum sum_of(const struct world *w, uint32_t block)
{
    return kv_block_sum(&w->summing, w->pool + block * w->worker.block_bytes);
}

static void fill(struct world *w, uint32_t block, int byte)
{
    memset(w->pool + block * w->worker.block_bytes, byte, w->worker.block_bytes);
}

static void work_all(struct world *w)
{
    while (kv_export_work(w->exports))
        ;
}

/* Completes the source: the role hears of these sums. */
static void expect_sums(struct world *w, struct sequence_key key, const struct kv_block_sum *sums,
                        uint32_t count)
{
    static const struct source_completion completion;
    uint32_t calls = w->calls;
    w->blocks = count;
    kv_export_filled(w->exports, key, 0, &completion);
    work_all(w);
    assert_int_equal(w->calls, calls + 1);
    assert_true(w->complete && w->key.request == key.request);
    for (uint32_t i = 0; i < count; i++) {
        assert_true(w->sums[i] == sums[i].runs);
        assert_int_equal(w->checksums[i], sums[i].crc32c);
    }
}

/* A block is summed once, until a source writes it. */
static void test_cached_blocks_keep_their_sums(void **state)
{
    (void)state;
    static struct world w;
    struct kv_block_sum sums[6];
    world_open(&w, 1, 6);
    for (uint32_t i = 0; i < 6; i++) {
        fill(&w, i, (int)i + 1);
        sums[i] = sum_of(&w, i);
    }
    const struct sequence_key first = {1, 1}, second = {2, 1}, third = {3, 1};
    const uint32_t own[] = {3, 1}, shared[] = {3, 4}, written[] = {3};
    kv_export_add(w.exports, first, own, 2, 0);
    kv_export_filled(w.exports, first, BLOCK_TOKENS, NULL);
    assert_int_equal(w.calls, 0); /* nothing is summed in the call */
    w.blocks = 1;
    work_all(&w);
    assert_int_equal(w.calls, 1);
    assert_true(!w.complete && w.tokens == BLOCK_TOKENS && w.sums[0] == sums[3].runs);
    expect_sums(&w, first, (struct kv_block_sum[]){sums[3], sums[1]}, 2);
    /* Bytes of a cached block never change: if these were read again, the sum would be another. */
    fill(&w, 3, 99);
    kv_export_add(w.exports, second, shared, 2, 1);
    expect_sums(&w, second, (struct kv_block_sum[]){sums[3], sums[4]}, 2);
    kv_export_remove(w.exports, second);
    kv_export_forget_sums(w.exports);
    kv_export_add(w.exports, second, shared, 2, 1);
    expect_sums(&w, second, (struct kv_block_sum[]){sum_of(&w, 3), sums[4]}, 2);
    kv_export_remove(w.exports, first);
    kv_export_remove(w.exports, second);
    fill(&w, 3, 77);
    kv_export_add(w.exports, third, written, 1, 0);
    expect_sums(&w, third, (struct kv_block_sum[]){sum_of(&w, 3)}, 1);
    kv_export_filled(w.exports, first, 0, &(struct source_completion){0}); /* it has ended */
    assert_false(kv_export_work(w.exports));
    world_close(&w);
}

/* A prompt of 32k tokens holds up nothing else: sums are made in turns of bounded bytes, and
 * sources take turns. */
static void test_a_long_prompt_is_summed_in_turns(void **state)
{
    (void)state;
    static struct world w;
    uint32_t longer[MAX_BLOCKS], shorter = 0;
    const struct sequence_key first = {1, 1}, second = {2, 1};
    world_open(&w, 32, MAX_BLOCKS + 1); /* 64 MiB */
    for (uint32_t i = 0; i < MAX_BLOCKS; i++)
        longer[i] = i + 1;
    kv_export_add(w.exports, first, longer, MAX_BLOCKS, 0);
    kv_export_filled(w.exports, first, MAX_BLOCKS * BLOCK_TOKENS, NULL);
    const uint64_t bytes = MAX_BLOCKS * w.worker.block_bytes;
    const uint64_t most = TRANSFER_TURN_BYTES + w.worker.block_bytes;
    assert_true(kv_export_work(w.exports));
    kv_export_add(w.exports, second, &shorter, 1, 0);
    kv_export_filled(w.exports, second, BLOCK_TOKENS, NULL);
    uint64_t turns = 1;
    for (; w.calls == 0; turns++)
        assert_true(kv_export_work(w.exports));
    assert_int_equal(w.key.request, 2);
    assert_in_range(turns, 2, 3);
    for (; w.calls == 1; turns++)
        assert_true(kv_export_work(w.exports));
    assert_int_equal(w.key.request, 1);
    assert_true(turns > bytes / most);
    assert_false(kv_export_work(w.exports));
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cached_blocks_keep_their_sums),
        cmocka_unit_test(test_a_long_prompt_is_summed_in_turns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
