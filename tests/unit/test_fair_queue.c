/* fair_queue: one owner's many items delay another owner by one item at most. */
#include "common/base/fair_queue.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_turns(void **state)
{
    (void)state;
    struct fair_queue queue;
    struct fair_item greedy[4], other[2], late;
    fair_queue_init(&queue);
    assert_null(fair_queue_pop(&queue));
    for (int i = 0; i < 4; i++)
        fair_queue_push(&queue, &greedy[i], 1);
    for (int i = 0; i < 2; i++)
        fair_queue_push(&queue, &other[i], 2);
    assert_int_equal(queue.count, 6);
    assert_int_equal(fair_queue_count_of(&queue, 1), 4);
    assert_int_equal(fair_queue_count_of(&queue, 3), 0);
    assert_ptr_equal(fair_queue_pop(&queue), &greedy[0]);
    assert_ptr_equal(fair_queue_pop(&queue), &other[0]);
    struct fair_item gone;
    fair_queue_push(&queue, &gone, 4);
    fair_queue_remove(&queue, &gone);
    fair_queue_push(&queue, &late, 3); /* an owner that was never served comes before both */
    assert_ptr_equal(fair_queue_pop(&queue), &late);
    assert_ptr_equal(fair_queue_pop(&queue), &greedy[1]);
    assert_ptr_equal(fair_queue_pop(&queue), &other[1]);
    assert_ptr_equal(fair_queue_pop(&queue), &greedy[2]);
    assert_ptr_equal(fair_queue_pop(&queue), &greedy[3]);
    assert_null(fair_queue_pop(&queue));
    assert_int_equal(queue.count, 0);
}

/* More owners than are remembered: none of them waits for ever. */
static void test_many_owners(void **state)
{
    (void)state;
    static struct fair_item items[2][3 * FAIR_QUEUE_OWNERS];
    struct fair_queue queue;
    fair_queue_init(&queue);
    for (int round = 0; round < 2; round++)
        for (uint64_t i = 0; i < 3 * FAIR_QUEUE_OWNERS; i++)
            fair_queue_push(&queue, &items[round][i], i);
    uint32_t taken = 0;
    while (fair_queue_pop(&queue))
        taken++;
    assert_int_equal(taken, 6 * FAIR_QUEUE_OWNERS);
}

/* Owners that take what they get: n of them end with a part of n + 1 each, and the last part stays
 * free. */
static void test_shares(void **state)
{
    (void)state;
    enum { MOST = 1200, OWNERS = 5 };
    for (size_t owners = 1; owners <= OWNERS; owners++) {
        size_t own[OWNERS] = {0}, all = 0;
        for (bool more = true; more;) {
            more = false;
            for (size_t i = 0; i < owners; i++) {
                if (!fair_share_holds(own[i] + 1, all + 1, MOST))
                    continue;
                own[i]++;
                all++;
                more = true;
            }
        }
        for (size_t i = 0; i < owners; i++)
            assert_int_equal(own[i], MOST / (owners + 1));
        assert_true(fair_share_holds((MOST - all) / 2, all + (MOST - all) / 2, MOST));
    }
    assert_true(fair_share_holds(0, MOST, MOST));
    assert_false(fair_share_holds(1, MOST, MOST));
    assert_false(fair_share_holds(0, MOST + 1, MOST));
    assert_false(fair_share_holds(SIZE_MAX, SIZE_MAX, MOST));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_turns),
                                       cmocka_unit_test(test_many_owners),
                                       cmocka_unit_test(test_shares)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
