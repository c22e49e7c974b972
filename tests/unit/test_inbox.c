/* inbox: bounded for all senders, but a message with reserved room always fits. */
#include "router/dispatch/inbox.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

static void test_reserved_messages_fit_when_it_is_full(void **state)
{
    (void)state;
    enum { OPEN = 4, RESERVED = 3 };
    struct inbox inbox;
    struct inbox_message open[OPEN + 1] = {{INBOX_LINK_MESSAGE}};
    struct inbox_message reserved[RESERVED] = {{INBOX_CALL_CLOSED}};
    assert_int_equal(inbox_init(&inbox, OPEN, RESERVED), STATUS_OK);
    for (int i = 0; i < OPEN; i++)
        assert_int_equal(inbox_post(&inbox, &open[i]), STATUS_OK);
    assert_int_equal(inbox_post(&inbox, &open[OPEN]), STATUS_LIMIT);
    for (int i = 0; i < RESERVED; i++)
        inbox_post_reserved(&inbox, &reserved[i]);
    for (int i = 0; i < OPEN; i++)
        assert_ptr_equal(ring_pop(inbox.ring), &open[i]);
    assert_int_equal(inbox_post(&inbox, &open[OPEN]), STATUS_OK); /* room again */
    for (int i = 0; i < RESERVED; i++)
        assert_ptr_equal(ring_pop(inbox.ring), &reserved[i]);
    assert_ptr_equal(ring_pop(inbox.ring), &open[OPEN]);
    inbox_deinit(&inbox);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reserved_messages_fit_when_it_is_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
