/* kv_blocks: all or nothing, lowest first, any number of holds by purpose; a cached block stays
 * without holds. */
#include "common/base/rng.h"
#include "common/engine/sched/kv_blocks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define MAX_BLOCKS 200

static void test_all_or_nothing_and_lowest_first(void **state)
{
    (void)state;
    struct kv_blocks *blocks;
    uint32_t a[4], b[4];
    assert_int_equal(kv_blocks_create(6, &blocks), STATUS_OK);
    assert_int_equal(kv_blocks_total(blocks), 6);
    assert_int_equal(kv_blocks_take(blocks, 4, KV_HOLD_PINNED, a), STATUS_OK);
    assert_int_equal(kv_blocks_take(blocks, 3, KV_HOLD_USED, b), STATUS_LIMIT);
    assert_int_equal(kv_blocks_count(blocks, KV_BLOCK_FREE), 2);
    kv_blocks_give(blocks, a + 1, 2, KV_HOLD_PINNED);
    assert_int_equal(kv_blocks_take(blocks, 4, KV_HOLD_USED, b), STATUS_OK);
    const uint32_t want[] = {1, 2, 4, 5};
    assert_memory_equal(b, want, sizeof want);
    assert_int_equal(kv_blocks_count(blocks, KV_BLOCK_PINNED), 2);
    kv_blocks_change(blocks, b, 4, KV_HOLD_USED, KV_HOLD_LANDING);
    assert_int_equal(kv_blocks_count(blocks, KV_BLOCK_LANDING), 4);
    assert_int_equal(kv_blocks_count(blocks, KV_BLOCK_USED), 0);
    kv_blocks_destroy(blocks);
    kv_blocks_destroy(NULL);
}

static void test_a_shared_block_is_free_when_the_last_hold_ends(void **state)
{
    (void)state;
    struct kv_blocks *blocks;
    uint32_t id;
    assert_int_equal(kv_blocks_create(3, &blocks), STATUS_OK);
    assert_int_equal(kv_blocks_take(blocks, 1, KV_HOLD_USED, &id), STATUS_OK);
    assert_true(kv_blocks_writable(blocks, id));
    kv_blocks_share(blocks, &id, 1, KV_HOLD_PINNED);
    assert_false(kv_blocks_writable(blocks, id)); /* another worker reads it */
    assert_int_equal(kv_blocks_state(blocks, id), KV_BLOCK_PINNED);
    kv_blocks_share(blocks, &id, 1, KV_HOLD_LANDING);
    assert_int_equal(kv_blocks_state(blocks, id), KV_BLOCK_LANDING);
    kv_blocks_give(blocks, &id, 1, KV_HOLD_LANDING);
    kv_blocks_give(blocks, &id, 1, KV_HOLD_PINNED);
    assert_int_equal(kv_blocks_state(blocks, id), KV_BLOCK_USED);
    assert_true(kv_blocks_writable(blocks, id));
    kv_blocks_give(blocks, &id, 1, KV_HOLD_USED);
    assert_int_equal(kv_blocks_count(blocks, KV_BLOCK_FREE), 3);
    kv_blocks_destroy(blocks);
}

struct seen {
    uint32_t id, count;
    bool held;
};

static void see(void *context, uint32_t id, bool held)
{
    struct seen *seen = context;
    *seen = (struct seen){id, seen->count + 1, held};
}

static void test_what_is_cached_stays_until_it_is_forgotten(void **state)
{
    (void)state;
    struct kv_blocks *blocks;
    struct seen seen = {0};
    uint32_t ids[2];
    assert_int_equal(kv_blocks_create(2, &blocks), STATUS_OK);
    kv_blocks_watch(blocks, see, &seen);
    assert_int_equal(kv_blocks_take(blocks, 2, KV_HOLD_USED, ids), STATUS_OK);
    kv_blocks_remember(blocks, ids[0]);
    assert_true(kv_blocks_cached(blocks, ids[0]));
    assert_false(kv_blocks_writable(blocks, ids[0]));
    assert_int_equal(kv_blocks_state(blocks, ids[0]), KV_BLOCK_USED);
    kv_blocks_share(blocks, ids, 1, KV_HOLD_USED);
    kv_blocks_give(blocks, ids, 1, KV_HOLD_USED);
    assert_int_equal(seen.count, 0); /* held throughout */
    kv_blocks_give(blocks, ids, 2, KV_HOLD_USED);
    assert_int_equal(seen.count, 1); /* the cached one */
    assert_int_equal(seen.id, ids[0]);
    assert_false(seen.held);
    assert_int_equal(kv_blocks_count(blocks, KV_BLOCK_CACHED), 1);
    assert_int_equal(kv_blocks_count(blocks, KV_BLOCK_FREE), 1);
    uint32_t two[2];
    assert_int_equal(kv_blocks_take(blocks, 2, KV_HOLD_USED, two), STATUS_LIMIT);
    kv_blocks_share(blocks, ids, 1, KV_HOLD_PINNED);
    assert_int_equal(seen.count, 2);
    assert_true(seen.held && kv_blocks_held(blocks, ids[0]));
    kv_blocks_give(blocks, ids, 1, KV_HOLD_PINNED);
    kv_blocks_forget(blocks, ids[0]);
    assert_int_equal(seen.count, 3);
    assert_int_equal(kv_blocks_take(blocks, 2, KV_HOLD_USED, two), STATUS_OK);
    kv_blocks_destroy(blocks);
}

struct naive { /* the same, by looking at every block each time */
    uint32_t holds[MAX_BLOCKS][KV_HOLDS];
    bool cached[MAX_BLOCKS], unheld_seen[MAX_BLOCKS];
    uint32_t block_count;
};

static bool naive_held(const struct naive *naive, uint32_t id)
{
    const uint32_t *holds = naive->holds[id];
    return holds[KV_HOLD_USED] + holds[KV_HOLD_PINNED] + holds[KV_HOLD_LANDING] > 0;
}

static enum kv_block_state naive_state(const struct naive *naive, uint32_t id)
{
    if (naive->holds[id][KV_HOLD_LANDING])
        return KV_BLOCK_LANDING;
    if (naive->holds[id][KV_HOLD_PINNED])
        return KV_BLOCK_PINNED;
    if (naive->holds[id][KV_HOLD_USED])
        return KV_BLOCK_USED;
    return naive->cached[id] ? KV_BLOCK_CACHED : KV_BLOCK_FREE;
}

static uint32_t naive_count(const struct naive *naive, enum kv_block_state state)
{
    uint32_t count = 0;
    for (uint32_t id = 0; id < naive->block_count; id++)
        count += naive_state(naive, id) == state;
    return count;
}

static void naive_see(void *context, uint32_t id, bool held)
{
    struct naive *naive = context;
    assert_true(naive->cached[id]);
    assert_int_equal(naive->unheld_seen[id], held); /* it changes, each time */
    naive->unheld_seen[id] = !held;
}

static void check(const struct kv_blocks *blocks, const struct naive *naive)
{
    for (uint32_t id = 0; id < naive->block_count; id++) {
        const uint32_t *holds = naive->holds[id];
        uint64_t all = (uint64_t)holds[0] + holds[1] + holds[2];
        assert_int_equal(kv_blocks_state(blocks, id), naive_state(naive, id));
        assert_int_equal(kv_blocks_held(blocks, id), all > 0);
        assert_int_equal(kv_blocks_cached(blocks, id), naive->cached[id]);
        assert_int_equal(kv_blocks_writable(blocks, id), all == 1 && !naive->cached[id]);
        assert_int_equal(naive->unheld_seen[id], naive->cached[id] && all == 0);
    }
    for (int s = 0; s < KV_BLOCK_STATES; s++)
        assert_int_equal(kv_blocks_count(blocks, (enum kv_block_state)s),
                         naive_count(naive, (enum kv_block_state)s));
}

static void take_in_both(struct kv_blocks *blocks, struct naive *naive, struct rng *rng,
                         enum kv_hold hold)
{
    uint32_t want = (uint32_t)rng_below(rng, 20), ids[20], taken = 0;
    bool enough = want <= naive_count(naive, KV_BLOCK_FREE);
    assert_int_equal(kv_blocks_take(blocks, want, hold, ids), enough ? STATUS_OK : STATUS_LIMIT);
    for (uint32_t id = 0; enough && taken < want; id++)
        if (naive_state(naive, id) == KV_BLOCK_FREE) {
            assert_int_equal(ids[taken++], id); /* the lowest that are free, in order */
            naive->holds[id][hold]++;
        }
}

/* Some ids for which `of` is true, in any order, each once. */
static uint32_t some(const struct naive *naive, struct rng *rng, uint32_t *ids,
                     bool (*of)(const struct naive *naive, uint32_t id, enum kv_hold hold),
                     enum kv_hold hold)
{
    uint32_t count = 0;
    for (uint32_t id = 0; id < naive->block_count; id++)
        if (of(naive, id, hold) && rng_below(rng, 3) == 0)
            ids[count++] = id;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t j = (uint32_t)rng_below(rng, count), id = ids[i];
        ids[i] = ids[j];
        ids[j] = id;
    }
    return count;
}

static bool has_hold(const struct naive *naive, uint32_t id, enum kv_hold hold)
{
    return naive->holds[id][hold] > 0;
}

static bool is_not_free(const struct naive *naive, uint32_t id, enum kv_hold hold)
{
    (void)hold;
    return naive_state(naive, id) != KV_BLOCK_FREE;
}

static void mark_in_both(struct kv_blocks *blocks, struct naive *naive, uint32_t id)
{
    if (naive->cached[id]) {
        naive->cached[id] = naive->unheld_seen[id] = false;
        kv_blocks_forget(blocks, id);
    } else if (naive_held(naive, id)) {
        naive->cached[id] = true;
        kv_blocks_remember(blocks, id);
    }
}

static void one_operation(struct kv_blocks *blocks, struct naive *naive, struct rng *rng)
{
    uint32_t ids[MAX_BLOCKS], count;
    enum kv_hold from = (enum kv_hold)rng_below(rng, KV_HOLDS);
    enum kv_hold to = (enum kv_hold)rng_below(rng, KV_HOLDS);
    uint64_t what = rng_below(rng, 10);
    if (what < 3) {
        take_in_both(blocks, naive, rng, to);
    } else if (what < 4) {
        count = some(naive, rng, ids, is_not_free, to);
        kv_blocks_share(blocks, ids, count, to);
        for (uint32_t i = 0; i < count; i++)
            naive->holds[ids[i]][to]++;
    } else if (what < 8) {
        count = some(naive, rng, ids, has_hold, from);
        if (what < 7)
            kv_blocks_give(blocks, ids, count, from);
        else
            kv_blocks_change(blocks, ids, count, from, to);
        for (uint32_t i = 0; i < count; i++) {
            naive->holds[ids[i]][from]--;
            naive->holds[ids[i]][to] += what == 7;
        }
    } else {
        mark_in_both(blocks, naive, (uint32_t)rng_below(rng, naive->block_count));
    }
}

static void test_random_operations_against_a_naive_pool(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct rng rng = rng_seeded(seed);
        struct naive naive = {.block_count = 1 + (uint32_t)rng_below(&rng, MAX_BLOCKS)};
        struct kv_blocks *blocks;
        assert_int_equal(kv_blocks_create(naive.block_count, &blocks), STATUS_OK);
        kv_blocks_watch(blocks, naive_see, &naive);
        for (int round = 0; round < 500; round++) {
            one_operation(blocks, &naive, &rng);
            check(blocks, &naive);
        }
        kv_blocks_destroy(blocks);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_or_nothing_and_lowest_first),
        cmocka_unit_test(test_a_shared_block_is_free_when_the_last_hold_ends),
        cmocka_unit_test(test_what_is_cached_stays_until_it_is_forgotten),
        cmocka_unit_test(test_random_operations_against_a_naive_pool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
