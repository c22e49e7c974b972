/* request_names: bounded, and nothing that a name says can forge a log line. */
#include "common/worker/request_names.h"

#include "common/base/request_id.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void test_names(void **state)
{
    (void)state;
    struct request_names names;
    assert_int_equal(request_names_init(&names, 2), STATUS_OK);
    struct sequence_key a = {7, 1}, newer = {7, 2}, c = {8, 1};
    assert_string_equal(request_names_get(&names, a), "unknown");
    request_names_put(&names, a, "r0");
    request_names_put(&names, newer, "r0-again");
    request_names_put(&names, c, "no room");
    assert_false(request_names_has(&names, c));
    request_names_drop(&names, c);
    assert_string_equal(request_names_get(&names, a), "r0");
    assert_string_equal(request_names_get(&names, newer), "r0-again");
    request_names_drop(&names, a);
    assert_false(request_names_has(&names, a));
    assert_string_equal(request_names_get(&names, newer), "r0-again");
    request_names_put(&names, c, "a b\n\"c\xff");
    assert_string_equal(request_names_get(&names, c), "a?b??c?");
    char name[300];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = 0;
    request_names_put(&names, c, name);
    assert_int_equal(strlen(request_names_get(&names, c)), REQUEST_MAX_ID_BYTES);
    request_names_deinit(&names);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_names)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
