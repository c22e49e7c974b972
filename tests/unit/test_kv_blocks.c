/* kv_blocks: all or nothing, lowest first, every block in one state. */
#include "common/base/rng.h"
#include "common/engine/sched/kv_blocks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_all_or_nothing_and_lowest_first(void **state)
{
    (void)state;
    struct kv_blocks *blocks;
    uint32_t a[4], b[4];
    assert_int_equal(kv_blocks_create(6, &blocks), STATUS_OK);
    assert_int_equal(kv_blocks_take(blocks, 4, KV_BLOCK_PINNED, a), STATUS_OK);
    assert_int_equal(kv_blocks_take(blocks, 3, KV_BLOCK_USED, b), STATUS_LIMIT);
    assert_int_equal(kv_blocks_count(blocks, KV_BLOCK_FREE), 2);
    kv_blocks_give(blocks, a + 1, 2);
    assert_int_equal(kv_blocks_take(blocks, 4, KV_BLOCK_USED, b), STATUS_OK);
    const uint32_t want[] = {1, 2, 4, 5};
    assert_memory_equal(b, want, sizeof want);
    assert_int_equal(kv_blocks_count(blocks, KV_BLOCK_PINNED), 2);
    kv_blocks_change(blocks, b, 4, KV_BLOCK_LANDING);
    assert_int_equal(kv_blocks_count(blocks, KV_BLOCK_LANDING), 4);
    assert_int_equal(kv_blocks_count(blocks, KV_BLOCK_USED), 0);
    kv_blocks_destroy(blocks);
}

/* Random takes and gives against a plain array of owners. */
static void test_no_block_has_two_owners(void **state)
{
    (void)state;
    enum { BLOCKS = 50, OWNERS = 8 };
    struct kv_blocks *blocks;
    assert_int_equal(kv_blocks_create(BLOCKS, &blocks), STATUS_OK);
    uint32_t held[OWNERS][BLOCKS], counts[OWNERS] = {0};
    int owner_of[BLOCKS] = {0};
    struct rng rng = rng_seeded(3);
    for (int round = 0; round < 5000; round++) {
        uint32_t owner = (uint32_t)rng_below(&rng, OWNERS);
        if (counts[owner]) {
            for (uint32_t i = 0; i < counts[owner]; i++)
                owner_of[held[owner][i]] = 0;
            kv_blocks_give(blocks, held[owner], counts[owner]);
            counts[owner] = 0;
            continue;
        }
        uint32_t want = 1 + (uint32_t)rng_below(&rng, BLOCKS / 2);
        uint32_t free_count = kv_blocks_count(blocks, KV_BLOCK_FREE);
        enum status status = kv_blocks_take(blocks, want, KV_BLOCK_USED, held[owner]);
        assert_int_equal(status, want <= free_count ? STATUS_OK : STATUS_LIMIT);
        if (status != STATUS_OK)
            continue;
        counts[owner] = want;
        for (uint32_t i = 0; i < want; i++) {
            assert_int_equal(owner_of[held[owner][i]], 0);
            owner_of[held[owner][i]] = 1;
        }
    }
    kv_blocks_destroy(blocks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_or_nothing_and_lowest_first),
        cmocka_unit_test(test_no_block_has_two_owners),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
