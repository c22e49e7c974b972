/* tenants: turns by service, the virtual time of tenants that come and come back, and the limit. */
#include "common/engine/sched/tenants.h"

#include "common/base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void start(struct tenants *tenants, uint32_t max_sequences)
{
    assert_int_equal(tenants_init(tenants, max_sequences, 0), STATUS_OK);
}

static void test_the_one_served_least_has_the_first_turn(void **state)
{
    (void)state;
    struct tenants tenants;
    start(&tenants, 4);
    struct tenant *a = tenants_come(&tenants, 1), *b = tenants_come(&tenants, 2);
    assert_ptr_equal(tenants_come(&tenants, 1), a);
    assert_int_equal(a->sequences, 2);
    tenants_serve(&tenants, a, TENANT_TURN_TOKENS - 1);
    tenants_set_turns(&tenants);
    assert_int_equal(a->turn, 0); /* within a turn they are equal */
    tenants_serve(&tenants, a, 1 + 3 * TENANT_TURN_TOKENS);
    tenants_set_turns(&tenants);
    assert_int_equal(a->turn, 4);
    assert_int_equal(b->turn, 0);
    tenants_serve(&tenants, b, 5 * TENANT_TURN_TOKENS);
    tenants_set_turn(&tenants, b); /* against the last look at the others */
    assert_int_equal(b->turn, 5);
    tenants_set_turns(&tenants);
    assert_int_equal(a->turn, 0);
    assert_int_equal(b->turn, 1);
    tenants_serve(&tenants, b, UINT64_MAX / 2);
    tenants_set_turns(&tenants);
    assert_int_equal(b->turn, (1u << TENANT_TURN_BITS) - 1); /* it fits into a rank */
    tenants_deinit(&tenants);
}

/* Idle time is not saved up, and service that was had isn't forgotten. */
static void test_one_that_comes_back_begins_at_the_virtual_time(void **state)
{
    (void)state;
    struct tenants tenants;
    start(&tenants, 4);
    struct tenant *a = tenants_come(&tenants, 1), *b = tenants_come(&tenants, 2);
    tenants_leave(&tenants, b, 0);
    tenants_serve(&tenants, a, 1000); /* alone: the virtual time goes with it */
    b = tenants_come(&tenants, 2);
    assert_int_equal(b->served, 1000);
    tenants_serve(&tenants, b, 500);
    tenants_leave(&tenants, b, 0);
    b = tenants_come(&tenants, 2);
    assert_int_equal(b->served, 1500);
    struct tenant *c = tenants_come(&tenants, 3); /* 500 for two: half of that each */
    assert_int_equal(c->served, 1250);
    tenants_deinit(&tenants);
}

/* Ever new tenants that ask for little each get their part, and so does one that is ahead. */
static void test_ever_new_tenants_starve_none(void **state)
{
    (void)state;
    struct tenants tenants;
    start(&tenants, 4);
    struct tenant *a = tenants_come(&tenants, 1), *last = tenants_come(&tenants, 2);
    uint64_t turns_of_a = 0;
    tenants_serve(&tenants, a, 100 * TENANT_TURN_TOKENS);
    for (uint64_t key = 3; key < 1003; key++) {
        struct tenant *next = tenants_come(&tenants, key);
        tenants_leave(&tenants, last, 0);
        last = next;
        tenants_set_turns(&tenants);
        struct tenant *first = a->turn <= last->turn ? a : last;
        turns_of_a += first == a;
        tenants_serve(&tenants, first, TENANT_TURN_TOKENS);
    }
    assert_true(turns_of_a > 300 && turns_of_a < 700);
    tenants_deinit(&tenants);
}

/* One small sequence that is always there saves up no turns, and costs no more of them later. */
static void test_one_that_is_always_there_saves_up_little(void **state)
{
    (void)state;
    struct tenants tenants;
    start(&tenants, 4);
    struct tenant *busy = tenants_come(&tenants, 1), *small = tenants_come(&tenants, 2);
    for (int i = 0; i < 10000; i++) {
        tenants_serve(&tenants, busy, TENANT_TURN_TOKENS / 2);
        tenants_set_turns(&tenants);
    }
    assert_int_equal(small->turn, 0);
    assert_int_equal(busy->turn, 32);
    uint32_t turns = 0; /* now the small one asks for as much as it gets */
    for (; busy->turn > small->turn; turns++) {
        tenants_serve(&tenants, small, TENANT_TURN_TOKENS);
        tenants_set_turns(&tenants);
    }
    assert_true(turns <= 33);
    tenants_deinit(&tenants);
}

/* A tenant of long prompts waits after each until the others have had as much. */
static void test_a_long_prompt_counts_as_a_whole(void **state)
{
    (void)state;
    enum { LONG_TURNS = 200 };
    struct tenants tenants;
    start(&tenants, 4);
    struct tenant *a = tenants_come(&tenants, 1), *b = tenants_come(&tenants, 2);
    for (int i = 0; i < 10; i++) {
        tenants_serve(&tenants, a, LONG_TURNS * TENANT_TURN_TOKENS);
        tenants_set_turns(&tenants);
        uint32_t turns = 0;
        for (; a->turn > b->turn; turns++) {
            tenants_serve(&tenants, b, TENANT_TURN_TOKENS);
            tenants_set_turns(&tenants);
        }
        assert_int_equal(turns, LONG_TURNS);
    }
    tenants_deinit(&tenants);
}

static void test_others_are_there_or_were_lately(void **state)
{
    (void)state;
    struct tenants tenants;
    start(&tenants, 4);
    struct tenant *a = tenants_come(&tenants, 1);
    assert_false(tenants_have_shares(&tenants, 0));
    struct tenant *b = tenants_come(&tenants, 2);
    assert_true(tenants_have_shares(&tenants, 0));
    tenants_leave(&tenants, b, 100);
    assert_true(tenants_have_shares(&tenants, 99 + TENANT_RECENT_US));
    assert_false(tenants_have_shares(&tenants, 100 + TENANT_RECENT_US));
    tenants_leave(&tenants, a, 200);                  /* its own going is not another's */
    assert_false(tenants_have_shares(&tenants, 200)); /* none is here */
    a = tenants_come(&tenants, 1);
    assert_true(tenants_have_shares(&tenants, 99 + TENANT_RECENT_US));
    assert_false(tenants_have_shares(&tenants, 100 + TENANT_RECENT_US));
    tenants_deinit(&tenants);
}

/* More tenants than are remembered: those that are gone and had least are forgotten, never one that
 * is there. */
static void test_as_many_as_are_remembered_and_more(void **state)
{
    (void)state;
    enum { MOST = 8 };
    struct tenants tenants;
    struct rng rng = rng_seeded(5);
    struct tenant *present[MOST];
    uint64_t keys[MOST];
    uint32_t count = 0;
    start(&tenants, MOST);
    for (uint64_t i = 0; i < 20000; i++) {
        if (count == MOST || (count && rng_below(&rng, 2))) {
            uint32_t at = (uint32_t)rng_below(&rng, count);
            tenants_leave(&tenants, present[at], i);
            count--;
            present[at] = present[count];
            keys[at] = keys[count];
        } else {
            keys[count] = rng_below(&rng, 100);
            present[count] = tenants_come(&tenants, keys[count]);
            count++;
        }
        for (uint32_t k = 0; k < count; k++) {
            assert_int_equal(present[k]->key, keys[k]);
            assert_true(present[k]->sequences > 0);
            assert_ptr_equal(tenants.present[present[k]->place], present[k]);
        }
        if (count)
            tenants_serve(&tenants, present[0], rng_below(&rng, 5000));
        assert_true(tenants.count <= 2 * MOST && tenants.present_count <= count);
    }
    tenants_deinit(&tenants);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_one_served_least_has_the_first_turn),
        cmocka_unit_test(test_one_that_comes_back_begins_at_the_virtual_time),
        cmocka_unit_test(test_ever_new_tenants_starve_none),
        cmocka_unit_test(test_one_that_is_always_there_saves_up_little),
        cmocka_unit_test(test_a_long_prompt_counts_as_a_whole),
        cmocka_unit_test(test_others_are_there_or_were_lately),
        cmocka_unit_test(test_as_many_as_are_remembered_and_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
