/* prefix_cache: which prompts may share, which blocks are evicted first, which events are reported.
 * test_prefix_cache_lives plays random lives. */
#include "common/engine/sched/prefix_cache.h"
#include "tests/unit/prefix_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define SMALL_BLOCKS 6

struct small {
    struct kv_blocks *blocks;
    struct prefix_cache *cache;
};

static void small_init(struct small *small, uint32_t event_capacity)
{
    assert_int_equal(kv_blocks_create(SMALL_BLOCKS, &small->blocks), STATUS_OK);
    const struct prefix_cache_config config = {.blocks = small->blocks,
                                               .block_tokens = B,
                                               .policy = EVICTION_LRU,
                                               .event_capacity = event_capacity};
    assert_int_equal(prefix_cache_create(&config, &small->cache), STATUS_OK);
}

static void small_deinit(struct small *small)
{
    prefix_cache_destroy(small->cache);
    kv_blocks_destroy(small->blocks);
}

/* A sequence of `length` blocks of `token` lives; returns how many blocks it didn't compute. */
static uint32_t lives(struct small *small, int root, uint32_t token, uint32_t length)
{
    uint32_t tokens[SMALL_BLOCKS * B + 1], ids[SMALL_BLOCKS], known;
    for (uint32_t i = 0; i <= length * B; i++)
        tokens[i] = token;
    struct prefix_chain chain = prefix_chain_start(root_of(root));
    uint32_t hits =
        prefix_cache_lookup(small->cache, &chain, tokens, length * B + 1, KV_HOLD_USED, ids);
    uint32_t free_count = kv_blocks_count(small->blocks, KV_BLOCK_FREE), need = length - hits;
    if (need > free_count)
        assert_int_equal(prefix_cache_evict(small->cache, need - free_count), need - free_count);
    assert_int_equal(kv_blocks_take(small->blocks, need, KV_HOLD_USED, ids + hits), STATUS_OK);
    while (chain.length < length)
        assert_int_equal(prefix_cache_insert(small->cache, &chain, tokens + chain.length * B,
                                             ids[chain.length], &known),
                         PREFIX_INSERTED);
    kv_blocks_give(small->blocks, ids, length, KV_HOLD_USED);
    return hits;
}

static struct prefix_hash no_hash(struct prefix_hash parent, const uint32_t *tokens, uint32_t count)
{
    (void)tokens;
    (void)count;
    return parent;
}

/* The first block has the root's name, and the second would, too: equal tokens, but not the same
 * place. */
static void test_a_block_is_not_behind_itself(void **state)
{
    (void)state;
    struct small small;
    assert_int_equal(kv_blocks_create(SMALL_BLOCKS, &small.blocks), STATUS_OK);
    const struct prefix_cache_config config = {
        .blocks = small.blocks, .block_tokens = B, .event_capacity = 1, .hash_block = no_hash};
    assert_int_equal(prefix_cache_create(&config, &small.cache), STATUS_OK);
    assert_int_equal(lives(&small, 0, 7, 1), 0);
    const uint32_t tokens[2 * B + 1] = {7, 7, 7, 7, 7, 7, 7};
    assert_int_equal(prefix_cache_match(small.cache, root_of(0), tokens, 2 * B + 1).blocks, 1);
    small_deinit(&small);
}

static void test_tenants_models_and_numerics_do_not_share(void **state)
{
    (void)state;
    struct small small;
    small_init(&small, 8);
    for (int root = 0; root < ROOTS; root++)
        assert_int_equal(lives(&small, root, 7, 1), 0);
    for (int root = 0; root < ROOTS; root++)
        assert_int_equal(lives(&small, root, 7, 1), 1);
    small_deinit(&small);
}

static void test_the_last_row_is_always_computed(void **state)
{
    (void)state;
    struct small small;
    small_init(&small, 8);
    assert_int_equal(lives(&small, 0, 7, 2), 0);
    const uint32_t tokens[2 * B + 1] = {7, 7, 7, 7, 7, 7, 7};
    const uint32_t want[] = {0, 0, 0, 0, 1, 1, 1, 2};
    for (uint32_t count = 0; count <= 2 * B + 1; count++)
        assert_int_equal(prefix_cache_match(small.cache, root_of(0), tokens, count).blocks,
                         want[count]);
    small_deinit(&small);
}

static void test_what_is_held_or_continued_is_not_evicted(void **state)
{
    (void)state;
    struct small small;
    small_init(&small, 8);
    lives(&small, 0, 7, 4);
    const uint32_t tokens[3 * B] = {7, 7, 7, 7, 7, 7, 7, 7, 7};
    uint32_t ids[2];
    struct prefix_chain chain = prefix_chain_start(root_of(0));
    assert_int_equal(prefix_cache_lookup(small.cache, &chain, tokens, 3 * B, KV_HOLD_PINNED, ids),
                     2);
    assert_int_equal(prefix_cache_evict(small.cache, SMALL_BLOCKS), 2); /* the other two */
    assert_int_equal(kv_blocks_count(small.blocks, KV_BLOCK_PINNED), 2);
    assert_int_equal(prefix_cache_evict(small.cache, 1), 0);
    kv_blocks_give(small.blocks, ids, 1, KV_HOLD_PINNED); /* the second one continues it */
    assert_int_equal(kv_blocks_count(small.blocks, KV_BLOCK_CACHED), 1);
    assert_int_equal(prefix_cache_evict(small.cache, 1), 0);
    kv_blocks_give(small.blocks, ids + 1, 1, KV_HOLD_PINNED);
    assert_int_equal(prefix_cache_evict(small.cache, SMALL_BLOCKS), 2);
    assert_int_equal(kv_blocks_count(small.blocks, KV_BLOCK_FREE), SMALL_BLOCKS);
    small_deinit(&small);
}

/* More events than are kept: the reader starts again, and knows the same in the end. */
static void test_events_that_nobody_reads(void **state)
{
    (void)state;
    struct small small;
    struct prefix_event events[2 * SMALL_BLOCKS];
    small_init(&small, 2);
    assert_int_equal(prefix_cache_read_events(small.cache, events, 2 * SMALL_BLOCKS), 1);
    assert_true(events[0].kind == PREFIX_CLEARED && events[0].number == 1);
    lives(&small, 0, 7, 2);
    assert_int_equal(prefix_cache_read_events(small.cache, events, 2 * SMALL_BLOCKS), 2);
    assert_true(events[1].kind == PREFIX_STORED && events[1].position == 1);
    assert_true(prefix_hash_equal(events[1].parent, events[0].hash));
    assert_true(prefix_hash_equal(events[0].parent, root_of(0)));
    lives(&small, 0, 8, 3); /* three events: one too many */
    lives(&small, 0, 9, 3); /* evicts both of 7 */
    assert_int_equal(prefix_cache_read_events(small.cache, events, 2 * SMALL_BLOCKS), 7);
    assert_true(events[0].kind == PREFIX_CLEARED && events[0].number == 4);
    for (int i = 1; i < 7; i++)
        assert_true(events[i].kind == PREFIX_STORED && events[i].number == (uint64_t)(4 + i));
    assert_int_equal(prefix_cache_read_events(small.cache, events, 2 * SMALL_BLOCKS), 0);
    small_deinit(&small);
}

/* However many prefixes come, there are no more entries than blocks. */
static void test_memory_is_bounded(void **state)
{
    (void)state;
    struct small small;
    small_init(&small, 4);
    for (uint32_t i = 0; i < 5000; i++) {
        lives(&small, (int)(i % ROOTS), i, 1 + i % SMALL_BLOCKS);
        assert_true(prefix_cache_count(small.cache) <= SMALL_BLOCKS);
    }
    assert_int_equal(prefix_cache_count(small.cache) + kv_blocks_count(small.blocks, KV_BLOCK_FREE),
                     SMALL_BLOCKS);
    small_deinit(&small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_block_is_not_behind_itself),
        cmocka_unit_test(test_tenants_models_and_numerics_do_not_share),
        cmocka_unit_test(test_the_last_row_is_always_computed),
        cmocka_unit_test(test_what_is_held_or_continued_is_not_evicted),
        cmocka_unit_test(test_events_that_nobody_reads),
        cmocka_unit_test(test_memory_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
