/* kv_blocks: all or nothing, lowest first, every block in one state. */
#include "common/base/rng.h"
#include "common/engine/sched/kv_blocks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
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

struct naive { /* the same, by looking at every block each time */
    enum kv_block_state states[70];
    uint32_t block_count;
};

static uint32_t naive_count(const struct naive *naive, enum kv_block_state state)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < naive->block_count; i++)
        count += naive->states[i] == state;
    return count;
}

/* Any ids that are not free, in any order, each once. */
static uint32_t some_taken(const struct naive *naive, struct rng *rng, uint32_t *ids)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < naive->block_count; i++)
        if (naive->states[i] != KV_BLOCK_FREE && rng_below(rng, 4) == 0)
            ids[count++] = i;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t j = (uint32_t)rng_below(rng, count), id = ids[i];
        ids[i] = ids[j];
        ids[j] = id;
    }
    return count;
}

static void take_in_both(struct kv_blocks *blocks, struct naive *naive, struct rng *rng,
                         enum kv_block_state state)
{
    uint32_t want = (uint32_t)rng_below(rng, 20), ids[70], taken = 0;
    bool enough = want <= naive_count(naive, KV_BLOCK_FREE);
    assert_int_equal(kv_blocks_take(blocks, want, state, ids), enough ? STATUS_OK : STATUS_LIMIT);
    for (uint32_t i = 0; enough && taken < want; i++)
        if (naive->states[i] == KV_BLOCK_FREE) {
            assert_int_equal(ids[taken++], i); /* the lowest that are free, in order */
            naive->states[i] = state;
        }
}

/* Takes, gives and changes in any order, of any part of what is taken. */
static void test_random_operations_against_a_naive_pool(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct rng rng = rng_seeded(seed);
        struct naive naive = {.block_count = 1 + (uint32_t)rng_below(&rng, 70)};
        struct kv_blocks *blocks;
        assert_int_equal(kv_blocks_create(naive.block_count, &blocks), STATUS_OK);
        for (int round = 0; round < 500; round++) {
            uint32_t ids[70];
            enum kv_block_state to = (enum kv_block_state)(1 + rng_below(&rng, 3));
            uint64_t what = rng_below(&rng, 4);
            if (what < 2) {
                take_in_both(blocks, &naive, &rng, to);
            } else {
                uint32_t count = some_taken(&naive, &rng, ids);
                if (what == 2)
                    kv_blocks_give(blocks, ids, count);
                else
                    kv_blocks_change(blocks, ids, count, to);
                for (uint32_t i = 0; i < count; i++)
                    naive.states[ids[i]] = what == 2 ? KV_BLOCK_FREE : to;
            }
            for (int s = 0; s < KV_BLOCK_STATES; s++)
                assert_int_equal(kv_blocks_count(blocks, (enum kv_block_state)s),
                                 naive_count(&naive, (enum kv_block_state)s));
        }
        kv_blocks_destroy(blocks);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_or_nothing_and_lowest_first),
        cmocka_unit_test(test_no_block_has_two_owners),
        cmocka_unit_test(test_random_operations_against_a_naive_pool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
