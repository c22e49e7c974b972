/* api_key: the valid lines of a file of keys. `baton key new` and the router share these checks, so
 * the router refuses no line that the command writes. */
#include "common/base/domain/api_key.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void test_priorities(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool good, allowed[PRIORITIES];
    } cases[] = {
        {"normal", true, {[PRIORITY_NORMAL] = true}},
        {"offline,high,normal", true, {true, true, true}},
        {"high,offline", true, {[PRIORITY_HIGH] = true, [PRIORITY_OFFLINE] = true}},
        {"", false, {0}},
        {",", false, {0}},
        {"normal,", false, {0}},
        {",normal", false, {0}},
        {"normal,,high", false, {0}},
        {"normal,normal", false, {0}},
        {"high,normal,high", false, {0}},
        {"normal, high", false, {0}},
        {"Normal", false, {0}},
        {"norma", false, {0}},
        {"normals", false, {0}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bool allowed[PRIORITIES] = {false};
        if (api_key_priorities(cases[i].text, strlen(cases[i].text), allowed) != cases[i].good)
            fail_msg("\"%s\"", cases[i].text);
        assert_memory_equal(allowed, cases[i].allowed, sizeof allowed);
    }
}

static void test_classes(void **state)
{
    (void)state;
    static const char *const good[] = {"chat", "chat,batch", "a.b-c_9,a",
                                       "x2345678901234567890123456789012"};
    static const char *const bad[] = {"",      ",",    "chat,",
                                      ",chat", "a,,b", "a,b,a",
                                      "a, b",  "a/b",  "x23456789012345678901234567890123"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(api_key_classes(good[i], strlen(good[i])));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(api_key_classes(bad[i], strlen(bad[i])));
    char longest[API_KEY_CLASSES_BYTES + 1] = "";
    for (int i = 0; strlen(longest) + 4 < API_KEY_CLASSES_BYTES; i++)
        sprintf(longest + strlen(longest), "%03d,", i);
    strcat(longest, "xyz"); /* 511 bytes: all that there is room for */
    assert_int_equal(strlen(longest), API_KEY_CLASSES_BYTES - 1);
    assert_true(api_key_classes(longest, strlen(longest)));
    strcat(longest, "z");
    assert_false(api_key_classes(longest, strlen(longest)));
    assert_true(api_key_has_class("chat,batch", "chat") &&
                api_key_has_class("chat,batch", "batch"));
    assert_false(api_key_has_class("chat,batch", "bat") || api_key_has_class("chat,batch", ""));
}

static void test_names(void **state)
{
    (void)state;
    char longest[API_KEY_NAME_BYTES];
    memset(longest, 'x', sizeof longest);
    assert_true(api_key_name(longest, API_KEY_MAX_NAME_BYTES));
    assert_false(api_key_name(longest, API_KEY_MAX_NAME_BYTES + 1));
    assert_true(api_key_name("a-Z_0.9", 7));
    assert_false(api_key_name("", 0));
    static const char *const bad[] = {"a b", "a=b", "\xc3\xa4", "a/b", "a,b"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(api_key_name(bad[i], strlen(bad[i])));
    assert_false(api_key_name("a\0b", 3));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_priorities),
        cmocka_unit_test(test_classes),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
