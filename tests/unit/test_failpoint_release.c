/* failpoint in release builds: a specification in the environment keeps a program from starting,
 * unless failpoints are allowed explicitly. */
#ifndef BATON_RELEASE
#define BATON_RELEASE
#endif
#include "common/base/failpoint.c"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static enum status init_with(const char *allow, struct error *err)
{
    unsetenv("BATON_FAILPOINTS_ALLOW");
    if (allow)
        setenv("BATON_FAILPOINTS_ALLOW", allow, 1);
    return failpoint_init("decode-0", err);
}

static void test_only_who_means_it_may_arm_anything(void **state)
{
    (void)state;
    static const char *const others[] = {NULL, "", "0", "yes", "11"};
    struct error err;
    setenv("BATON_FAILPOINTS", "decode.flip=fail@*", 1);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        assert_int_equal(init_with(others[i], &err), STATUS_INVALID);
        assert_non_null(strstr(err.text, "this is a release build"));
        assert_false(FAILPOINT_FAILS("decode.flip"));
    }
    assert_int_equal(init_with("1", &err), STATUS_OK);
    assert_true(FAILPOINT_FAILS("decode.flip"));
}

static void test_nothing_armed_is_no_mistake(void **state)
{
    (void)state;
    struct error err;
    unsetenv("BATON_FAILPOINTS");
    assert_int_equal(init_with(NULL, &err), STATUS_OK);
    assert_false(FAILPOINT_FAILS("decode.flip"));
}

int main(void)
{
    unsetenv("BATON_FAILPOINT_LOG");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_who_means_it_may_arm_anything),
        cmocka_unit_test(test_nothing_armed_is_no_mistake),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
