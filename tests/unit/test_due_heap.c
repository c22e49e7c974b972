/* due_heap: the first item is always one that is due earliest, whatever was moved. */
#include "common/base/due_heap.h"
#include "common/base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define ITEMS 40

static void test_the_first_is_the_earliest(void **state)
{
    (void)state;
    struct due_heap heap;
    struct due items[ITEMS];
    struct rng rng = rng_seeded(9);
    memset(items, 0, sizeof items);
    assert_int_equal(due_heap_init(&heap, ITEMS), STATUS_OK);
    assert_null(due_heap_first(&heap));
    for (int event = 0; event < 50000; event++) {
        struct due *due = &items[rng_below(&rng, ITEMS)];
        due_heap_set(&heap, due, rng_below(&rng, 4) ? rng_below(&rng, 100) : UINT64_MAX);
        size_t count = 0;
        uint64_t first_us = UINT64_MAX;
        for (size_t i = 0; i < ITEMS; i++) {
            count += items[i].place != 0;
            if (items[i].place && items[i].at_us < first_us)
                first_us = items[i].at_us;
            assert_true(!items[i].place || heap.items[items[i].place - 1] == &items[i]);
        }
        assert_int_equal(heap.count, count);
        assert_int_equal(due->place != 0, due->at_us != UINT64_MAX);
        assert_true(count ? due_heap_first(&heap)->at_us == first_us : !due_heap_first(&heap));
    }
    due_heap_deinit(&heap);
}

static void test_all_come_in_order(void **state)
{
    (void)state;
    struct due_heap heap;
    struct due items[ITEMS] = {{0}};
    uint64_t before_us = 0;
    assert_int_equal(due_heap_init(&heap, ITEMS), STATUS_OK);
    for (size_t i = 0; i < ITEMS; i++) /* as many as fit */
        due_heap_set(&heap, &items[i], (i * 17) % ITEMS);
    for (size_t i = 0; i < ITEMS; i++) {
        struct due *due = due_heap_first(&heap);
        assert_true(due->at_us >= before_us);
        before_us = due->at_us;
        due_heap_set(&heap, due, UINT64_MAX);
        due_heap_set(&heap, due, UINT64_MAX); /* it is out already */
    }
    assert_null(due_heap_first(&heap));
    due_heap_deinit(&heap);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_first_is_the_earliest),
        cmocka_unit_test(test_all_come_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
