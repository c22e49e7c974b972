/* eviction: both policies against a scan over all offered blocks, and the purpose of each. */
#include "common/base/rng.h"
#include "common/engine/sched/eviction.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define MAX_IDS 60

static const struct eviction_cost cost = {.even_blocks = 8};

struct naive_item {
    bool stored, offered;
    uint32_t frequency, position;
    uint64_t asked;
    double priority;
};

struct naive {
    enum eviction_policy policy;
    uint64_t tick;
    double age;
    struct naive_item items[MAX_IDS];
};

static void naive_ask(struct naive *naive, struct naive_item *item)
{
    item->asked = ++naive->tick;
    item->frequency++;
    item->priority = naive->policy == EVICTION_LRU
                         ? (double)item->asked
                         : naive->age + item->frequency * sqrt(1 + (item->position + 0.5) / 8);
}

static uint32_t naive_take(struct naive *naive)
{
    uint32_t least = EVICTION_NONE;
    for (uint32_t id = 0; id < MAX_IDS; id++) {
        const struct naive_item *item = &naive->items[id], *best = &naive->items[least % MAX_IDS];
        if (item->offered && (least == EVICTION_NONE || item->priority < best->priority ||
                              (item->priority == best->priority && item->asked < best->asked)))
            least = id;
    }
    if (least == EVICTION_NONE)
        return least;
    struct naive_item *item = &naive->items[least];
    item->offered = item->stored = false;
    if (item->priority > naive->age)
        naive->age = item->priority;
    return least;
}

static void one_operation(struct eviction *eviction, struct naive *naive, struct rng *rng)
{
    uint32_t id = (uint32_t)rng_below(rng, MAX_IDS);
    struct naive_item *item = &naive->items[id];
    uint64_t what = rng_below(rng, 8);
    if (what == 0) {
        assert_int_equal(eviction_take(eviction), naive_take(naive));
    } else if (!item->stored) {
        uint32_t position = (uint32_t)rng_below(rng, 20);
        *item = (struct naive_item){.stored = true, .position = position};
        naive_ask(naive, item);
        eviction_store(eviction, id, position);
    } else if (what < 4) {
        naive_ask(naive, item);
        eviction_touch(eviction, id);
    } else if (what < 7) {
        item->offered = true;
        eviction_offer(eviction, id);
    } else {
        item->offered = false;
        eviction_withdraw(eviction, id);
    }
}

static void test_the_order_is_that_of_a_scan(void **state)
{
    (void)state;
    for (int policy = 0; policy < EVICTION_POLICIES; policy++)
        for (uint64_t seed = 1; seed <= 20; seed++) {
            struct rng rng = rng_seeded(seed);
            struct naive naive = {.policy = (enum eviction_policy)policy};
            struct eviction *eviction;
            assert_int_equal(eviction_create(MAX_IDS, naive.policy, &cost, &eviction), STATUS_OK);
            for (int i = 0; i < 3000; i++)
                one_operation(eviction, &naive, &rng);
            uint32_t id;
            do {
                id = eviction_take(eviction);
                assert_int_equal(id, naive_take(&naive));
            } while (id != EVICTION_NONE);
            eviction_destroy(eviction);
        }
}

static void store_and_offer(struct eviction *eviction, uint32_t id, uint32_t position)
{
    eviction_store(eviction, id, position);
    eviction_offer(eviction, id);
}

static void test_dear_and_often_asked_for_stays_longer(void **state)
{
    (void)state;
    struct eviction *eviction;
    assert_int_equal(eviction_create(4, EVICTION_LCBFU, &cost, &eviction), STATUS_OK);
    store_and_offer(eviction, 0, 100); /* dear */
    store_and_offer(eviction, 1, 0);
    eviction_touch(eviction, 1); /* often */
    store_and_offer(eviction, 2, 0);
    store_and_offer(eviction, 3, 1); /* later than 2, and a little dearer */
    const uint32_t order[] = {2, 3, 1, 0, EVICTION_NONE};
    for (int i = 0; i < 5; i++)
        assert_int_equal(eviction_take(eviction), order[i]);
    eviction_destroy(eviction);
}

/* Without ageing, a block that was requested a thousand times would stay for ever. */
static void test_what_was_popular_once_goes_in_the_end(void **state)
{
    (void)state;
    struct eviction *eviction;
    assert_int_equal(eviction_create(3, EVICTION_LCBFU, &cost, &eviction), STATUS_OK);
    store_and_offer(eviction, 0, 0);
    for (int i = 0; i < 1000; i++)
        eviction_touch(eviction, 0);
    store_and_offer(eviction, 1, 0);
    store_and_offer(eviction, 2, 0);
    int rounds = 0;
    for (uint32_t id; (id = eviction_take(eviction)) != 0; rounds++)
        store_and_offer(eviction, id, 0);
    assert_in_range(rounds, 1000, 3000);
    eviction_destroy(eviction);
}

static void test_lru_knows_only_time(void **state)
{
    (void)state;
    struct eviction *eviction;
    assert_int_equal(eviction_create(3, EVICTION_LRU, &cost, &eviction), STATUS_OK);
    store_and_offer(eviction, 0, 100);
    eviction_touch(eviction, 0);
    store_and_offer(eviction, 1, 0);
    store_and_offer(eviction, 2, 0);
    eviction_touch(eviction, 1);
    const uint32_t order[] = {0, 2, 1, EVICTION_NONE};
    for (int i = 0; i < 4; i++)
        assert_int_equal(eviction_take(eviction), order[i]);
    eviction_destroy(eviction);
}

static void test_costs_of_a_model(void **state)
{
    (void)state;
    const struct model_shape tinyllama = {
        .layers = 22, .hidden = 2048, .ffn = 5632, .heads = 32, .kv_heads = 4, .head_dim = 64};
    struct eviction_cost of = eviction_cost_of(&tinyllama, 32);
    /* a layer: 2 * (2 * 2048^2 + 2 * 2048 * 256 + 3 * 2048 * 5632) for a row, 4 * 2048 for each
     * position before it */
    assert_true(of.even_blocks > 335.9 && of.even_blocks < 336.1);
    assert_true(eviction_block_cost(&of, 336) > 1.99 && eviction_block_cost(&of, 336) < 2.01);
    const struct eviction_cost flat = {0};
    assert_true(eviction_block_cost(&flat, 1000) == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_order_is_that_of_a_scan),
        cmocka_unit_test(test_dear_and_often_asked_for_stays_longer),
        cmocka_unit_test(test_what_was_popular_once_goes_in_the_end),
        cmocka_unit_test(test_lru_knows_only_time),
        cmocka_unit_test(test_costs_of_a_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
