/* constraint_queue: a constraint is compiled once, in the first turn of any owner that asks for it,
 * and only while a request asks for it. */
#include "router/dispatch/constraint_queue.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct constraint_source *source_of(const char *text)
{
    struct constraint_source *source =
        constraint_source_create(CONSTRAINT_REGEX, text, strlen(text));
    assert_non_null(source);
    return source;
}

/* All have the same hash, so only equal texts count. */
static enum status ask(struct constraint_queue *queue, const char *text, uint64_t owner)
{
    struct constraint_source *source = source_of(text);
    enum status status = constraint_queue_ask(queue, source, 7, owner, true);
    free(source);
    return status;
}

static void withdraw(struct constraint_queue *queue, const char *text, uint64_t owner)
{
    struct constraint_source *source = source_of(text);
    constraint_queue_withdraw(queue, source, 7, owner);
    free(source);
}

static void expect(struct constraint_queue *queue, const char *text)
{
    uint64_t hash = 0;
    struct constraint_source *source = constraint_queue_pop(queue, &hash);
    if (!text) {
        assert_null(source);
        return;
    }
    assert_non_null(source);
    assert_string_equal(source->text, text);
    assert_int_equal(hash, 7);
    free(source);
}

/* Owner 1 has queued many constraints, and the last one is the one that owner 2 asks for. It is
 * next but one, and owner 1 gains nothing by it. */
static void test_an_equal_one_comes_in_the_first_turn(void **state)
{
    (void)state;
    struct constraint_queue queue;
    constraint_queue_init(&queue);
    for (int i = 0; i < 4; i++)
        assert_int_equal(ask(&queue, (const char *[]){"a", "b", "c", "same"}[i], 1), STATUS_OK);
    assert_int_equal(ask(&queue, "same", 2), STATUS_OK);
    assert_int_equal(queue.count, 4);
    expect(&queue, "a");
    expect(&queue, "same");
    expect(&queue, "b");
    expect(&queue, "c");
    expect(&queue, NULL);
    assert_int_equal(queue.turns.count, 0);
    constraint_queue_deinit(&queue);
}

static void test_what_nobody_asks_for_any_more_goes(void **state)
{
    (void)state;
    struct constraint_queue queue;
    constraint_queue_init(&queue);
    assert_int_equal(ask(&queue, "twice", 1), STATUS_OK);
    assert_int_equal(ask(&queue, "twice", 1), STATUS_OK);
    assert_int_equal(ask(&queue, "shared", 1), STATUS_OK);
    assert_int_equal(ask(&queue, "shared", 2), STATUS_OK);
    assert_int_equal(ask(&queue, "gone", 1), STATUS_OK);
    withdraw(&queue, "gone", 2); /* owner 2 hasn't asked */
    withdraw(&queue, "unknown", 1);
    assert_int_equal(queue.count, 3);
    withdraw(&queue, "gone", 1);
    withdraw(&queue, "twice", 1);
    withdraw(&queue, "shared", 1);
    assert_int_equal(queue.count, 2);
    expect(&queue, "twice");
    expect(&queue, "shared");
    expect(&queue, NULL);
    withdraw(&queue, "twice", 1); /* it is being compiled */
    assert_int_equal(queue.count, 0);
    constraint_queue_deinit(&queue);
}

static void test_an_owner_has_so_many_places(void **state)
{
    (void)state;
    struct constraint_queue queue;
    struct constraint_source *another = source_of("another");
    char text[16];
    constraint_queue_init(&queue);
    for (int i = 0; i < CONSTRAINT_WAITING_EACH; i++) {
        snprintf(text, sizeof text, "n%d", i);
        assert_int_equal(ask(&queue, text, 1), STATUS_OK);
    }
    assert_int_equal(ask(&queue, "another", 1), STATUS_LIMIT);
    assert_int_equal(ask(&queue, "n0", 1), STATUS_OK); /* owner 1 has that place already */
    assert_int_equal(ask(&queue, "another", 2), STATUS_OK);
    /* even if another owner waits for it */
    assert_int_equal(ask(&queue, "another", 1), STATUS_LIMIT);
    withdraw(&queue, "n1", 1);
    assert_int_equal(ask(&queue, "another", 1), STATUS_OK);
    /* Without room for one more, a waiting one is shared. */
    assert_int_equal(constraint_queue_ask(&queue, another, 7, 3, false), STATUS_OK);
    withdraw(&queue, "another", 1);
    withdraw(&queue, "another", 2);
    withdraw(&queue, "another", 3);
    assert_int_equal(constraint_queue_ask(&queue, another, 7, 3, false), STATUS_LIMIT);
    assert_int_equal(queue.count, CONSTRAINT_WAITING_EACH - 1);
    free(another);
    constraint_queue_deinit(&queue); /* while constraints wait */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_equal_one_comes_in_the_first_turn),
        cmocka_unit_test(test_what_nobody_asks_for_any_more_goes),
        cmocka_unit_test(test_an_owner_has_so_many_places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
