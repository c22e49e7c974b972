/* policy: a ranking takes sequences in the order of a sort, ties by arrival, from any start. */
#include "common/base/rng.h"
#include "common/engine/sched/policy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { MOST = 64 };

static void test_first_comes_first(void **state)
{
    (void)state;
    static char names[MOST]; /* addresses to tell sequences apart by */
    struct rng rng = rng_seeded(7);
    for (int round = 0; round < 2000; round++) {
        struct ranked entries[MOST], all[MOST];
        struct ranking ranking = {entries, (uint32_t)rng_below(&rng, MOST + 1)};
        uint32_t count = ranking.count;
        for (uint32_t i = 0; i < count; i++)
            all[i] = entries[i] = (struct ranked){rng_below(&rng, 1 + rng_below(&rng, 100)), i,
                                                  (struct sequence *)(void *)&names[i]};
        ranking_build(&ranking);
        uint64_t rank = 0, order = 0;
        for (uint32_t taken = 0; taken < count; taken++) {
            struct sequence *first = ranking_take(&ranking);
            const struct ranked *entry = &all[(const char *)(void *)first - names];
            assert_true(taken == 0 || entry->rank > rank ||
                        (entry->rank == rank && entry->order > order));
            rank = entry->rank;
            order = entry->order;
        }
        assert_null(ranking_take(&ranking));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_first_comes_first)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
