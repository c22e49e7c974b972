/* request_id: which of a client's ids becomes the request's. Whatever the client sends, the id is
 * bounded and printable. */
#include "router/request_id.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static bool is_minted(const char *name)
{
    return strlen(name) == 32 && strspn(name, "0123456789abcdef") == 32;
}

static void test_the_first_that_can_be_one(void **state)
{
    (void)state;
    char most[REQUEST_MAX_ID_BYTES + 1], more[REQUEST_MAX_ID_BYTES + 2], name[REQUEST_ID_BYTES];
    memset(most, 'a', sizeof most - 1);
    memset(more, 'a', sizeof more - 1);
    most[sizeof most - 1] = more[sizeof more - 1] = 0;
    const struct {
        const char *of_message, *of_header, *want; /* NULL: a new one */
    } rows[] = {
        {"m", "h", "m"},
        {"", "h", "h"},
        {NULL, "h", "h"},
        {"m", NULL, "m"},
        {"two words", "h", "h"},
        {more, "h", "h"},
        {most, "h", most},
        {"", most, most},
        {"", "", NULL},
        {NULL, NULL, NULL},
        {"a\nb", "a b", NULL},
        {"", more, NULL},
        {"\xc3\xa9", "\x7f", NULL},
        {"", "\"=~!", "\"=~!"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        request_id_choose(rows[i].of_message, rows[i].of_header, name);
        if (rows[i].want)
            assert_string_equal(name, rows[i].want);
        else
            assert_true(is_minted(name));
    }
}

static void test_ids_of_answers(void **state)
{
    (void)state;
    assert_string_equal(request_id_of_answer("cmpl-r-17"), "r-17");
    assert_string_equal(request_id_of_answer("chatcmpl-cmpl-1"), "cmpl-1");
    assert_null(request_id_of_answer("r-17"));
    assert_null(request_id_of_answer("xcmpl-17"));
    assert_null(request_id_of_answer(""));
}

static void test_new_ones_differ(void **state)
{
    (void)state;
    char one[REQUEST_ID_BYTES], other[REQUEST_ID_BYTES];
    request_id_choose(NULL, NULL, one);
    request_id_choose(NULL, NULL, other);
    assert_string_not_equal(one, other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_first_that_can_be_one),
        cmocka_unit_test(test_ids_of_answers),
        cmocka_unit_test(test_new_ones_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
