/* utf8: well-formedness by the table of the standard, maximal subparts, encoding. */
#include "common/base/utf8.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void test_every_scalar_value_round_trips(void **state)
{
    (void)state;
    for (uint32_t code = 0; code <= 0x10FFFF; code++) {
        if (code >= 0xD800 && code <= 0xDFFF)
            continue;
        char bytes[4];
        size_t length = utf8_put(code, bytes);
        struct utf8_char next = utf8_next(bytes, length);
        if (next.kind != UTF8_WHOLE || next.code != code || next.length != length)
            fail_msg("U+%04X", code);
        for (size_t cut = 1; cut < length; cut++) {
            next = utf8_next(bytes, cut);
            if (next.kind != UTF8_CUT || next.length != cut)
                fail_msg("U+%04X cut at %zu", code, cut);
        }
    }
}

static void test_malformed_is_cut_into_maximal_subparts(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t length;
    } cases[] = {
        {"\x80", 1},         {"\xc0\xaf", 1},     {"\xc1\x80", 1},     {"\xe0\x80", 1},
        {"\xe0\xa0x", 2},    {"\xed\xa0\x80", 1}, {"\xf0\x8f", 1},     {"\xf0\x90\x80x", 3},
        {"\xf4\x90\x80", 1}, {"\xf5\x80", 1},     {"\xff", 1},         {"\xc3x", 1},
        {"\xe2\x82\xc3", 2}, {"\xf1\x80x", 2},    {"\xf1\x80\xe1", 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct utf8_char next = utf8_next(cases[i].bytes, strlen(cases[i].bytes));
        assert_int_equal(next.kind, UTF8_BROKEN);
        assert_int_equal(next.length, cases[i].length);
    }
}

static void test_valid_names_the_place(void **state)
{
    (void)state;
    size_t bad = 99;
    assert_true(utf8_valid("", 0, &bad));
    assert_true(utf8_valid("plain ascii, long enough \xc3\xa9\xf0\x9f\x99\x82 and more", 40, &bad));
    assert_int_equal(bad, 99);
    assert_false(utf8_valid("0123456789abcdef\xc3", 17, &bad));
    assert_int_equal(bad, 16);
    assert_false(utf8_valid("01234567\xed\xa0\x80", 11, &bad));
    assert_int_equal(bad, 8);
    assert_false(utf8_valid("\xff", 1, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_scalar_value_round_trips),
        cmocka_unit_test(test_malformed_is_cut_into_maximal_subparts),
        cmocka_unit_test(test_valid_names_the_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
