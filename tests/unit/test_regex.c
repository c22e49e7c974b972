/* regex: the translation from Oniguruma, the matches, the bounds; unicode: form C. */
#include "common/base/clock.h"
#include "common/base/rng.h"
#include "common/base/utf8.h"
#include "common/language/text/regex.h"
#include "common/language/text/unicode.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SPACES "\\p{Z}\\x09-\\x0D\\x{85}"

static void test_translation(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *expected; /* NULL: refused */
    } cases[] = {
        {"a\\sb", "a[" SPACES "]b"},
        {"\\S+", "[^" SPACES "]+"},
        {"[^\\s\\p{L}]", "[^" SPACES "\\p{L}]"},
        {"\\h[\\h]\\H", "[0-9A-Fa-f][0-9A-Fa-f][^0-9A-Fa-f]"},
        {"\\p{Han}[\\P{Thai}]\\p{L}", "\\p{sc:Han}[\\P{sc:Thai}]\\p{L}"},
        {"\\\\s\\[a\\]", "\\\\s\\[a\\]"},
        {"[[:alpha:]x][]a][^]a]", "[[:alpha:]x][]a][^]a]"},
        {"[a]&&[b]", "[a]&&[b]"},
        {"\\", "\\"},
        {"[a&&b]", NULL},
        {"[a[b]]", NULL},
        {"[[:alpha]", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct str out;
        struct error err = {""};
        str_init(&out, 1000);
        enum status status =
            regex_syntax_translate(cases[i].pattern, strlen(cases[i].pattern), &out, &err);
        assert_int_equal(status, cases[i].expected ? STATUS_OK : STATUS_UNSUPPORTED);
        if (cases[i].expected)
            assert_string_equal(out.data, cases[i].expected);
        str_deinit(&out);
    }
}

static struct regex *compiled(const char *pattern)
{
    struct regex *regex = NULL;
    struct error err = {""};
    if (regex_create(pattern, strlen(pattern), &regex, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return regex;
}

static void test_finding(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *text;
        size_t from, start, end; /* start == end == length: none */
    } cases[] = {
        {"b+", "abbc", 0, 1, 3},
        {"b+", "abbc", 2, 2, 3},
        {"b*", "aab", 0, 0, 0}, /* an empty match is one */
        {"b*", "aab", 2, 2, 3},
        {"x", "\xc3\xa9\xc3\xa9", 0, 4, 4},
        {"a$", "a\nb", 0, 0, 1},            /* every line */
        {"(?i:'s)", "x'\xc5\xbf", 0, 1, 4}, /* long s */
        {"\\s",
         "a\xe1\xa0\x8e"
         "b\xe3\x80\x80",
         0, 5, 8}, /* U+180E is no space, U+3000 is one */
        {"\\p{L}+", "1\xd0\xb6\xd0\xb7 ", 0, 1, 5},
    };
    struct regex_scratch *scratch = regex_scratch_create();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct regex *regex = compiled(cases[i].pattern);
        struct regex_match match;
        assert_int_equal(regex_find(regex, scratch, cases[i].text, strlen(cases[i].text),
                                    cases[i].from, &match, NULL),
                         STATUS_OK);
        assert_int_equal(match.found, cases[i].start < strlen(cases[i].text));
        assert_int_equal(match.start, cases[i].start);
        assert_int_equal(match.end, cases[i].end);
        regex_destroy(regex);
    }
    regex_scratch_destroy(scratch);
}

static void test_endless_backtracking_is_stopped(void **state)
{
    (void)state;
    struct regex *regex = compiled("(?:a|aa)+$b|(x+x+)+y");
    struct regex_scratch *scratch = regex_scratch_create();
    struct regex_match match;
    struct error err = {""};
    char text[200];
    memset(text, 'x', sizeof text);
    uint64_t start_us = clock_now_us();
    assert_int_equal(regex_find(regex, scratch, text, sizeof text, 0, &match, &err), STATUS_LIMIT);
    assert_true(clock_now_us() - start_us < 60u * 1000 * 1000);
    assert_non_null(strstr(err.text, "match limit"));
    regex_scratch_destroy(scratch);
    regex_destroy(regex);
    regex = NULL;
    char *long_pattern = calloc(1, 9000);
    memset(long_pattern, 'a', 8999);
    assert_int_equal(regex_create(long_pattern, 8999, &regex, &err), STATUS_LIMIT);
    assert_null(regex);
    free(long_pattern);
}

/* A way back for each character: more than a thread's own stack is used for, once within the limit
 * and once beyond it. */
static void test_searches_that_remember_much(void **state)
{
    (void)state;
    enum { SOME = 10000, TOO_MANY = 1000000 };
    struct regex *regex = compiled("(?:a|[ab])*c");
    struct regex_scratch *scratch = regex_scratch_create();
    struct regex_match match;
    struct error err = {""};
    char *text = malloc(TOO_MANY);
    memset(text, 'a', TOO_MANY);
    text[SOME - 1] = 'c';
    for (int again = 0; again < 2; again++) {
        assert_int_equal(regex_find(regex, scratch, text, SOME, 0, &match, &err), STATUS_OK);
        assert_true(match.found && match.start == 0 && match.end == SOME);
    }
    text[SOME - 1] = 'a';
    assert_int_equal(regex_find(regex, scratch, text, TOO_MANY, 0, &match, &err), STATUS_LIMIT);
    assert_non_null(strstr(err.text, "JIT stack limit"));
    free(text);
    regex_scratch_destroy(scratch);
    regex_destroy(regex);
}

static void check_nfc(const char *text, const char *expected)
{
    struct str out;
    str_init(&out, 1 << 20);
    unicode_add_nfc(&out, text, strlen(text));
    assert_string_equal(out.data, expected);
    str_deinit(&out);
}

static void test_nfc(void **state)
{
    (void)state;
    check_nfc("", "");
    check_nfc("plain", "plain");
    check_nfc("e\xcc\x81", "\xc3\xa9");
    check_nfc("\xc3\xa9", "\xc3\xa9");
    check_nfc("\xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab", "\xed\x95\x9c"); /* Hangul */
    check_nfc("\xe2\x84\xab", "\xc3\x85");                             /* the angstrom sign */
    check_nfc("a\xcc\x81\xcc\xa3", "\xe1\xba\xa1\xcc\x81");            /* marks change places */
    check_nfc("\xef\xac\x81", "\xef\xac\x81");                         /* fi: compatibility only */
    assert_true(unicode_is_surely_nfc("caf\xc3\xa9", 5));
    assert_false(unicode_is_surely_nfc("e\xcc\x81", 3));
    assert_true(unicode_is_space(0x3000) && unicode_is_space('\t') && !unicode_is_space(0x200B));
    assert_true(unicode_is_word('_') && unicode_is_word(0xE9) && unicode_is_word('7'));
    assert_false(unicode_is_word('-') || unicode_is_word(' '));
}

/* Marks of different classes in any order become the same text. */
static void test_canonical_order(void **state)
{
    (void)state;
    static const uint32_t marks[] = {0x0316, 0x0315, 0x0327, 0x0345, 0x05B0, 0x3099, 0x094D};
    enum { COUNT = sizeof marks / sizeof *marks };
    struct rng rng = rng_seeded(2);
    char first[64] = "";
    for (int round = 0; round < 200; round++) {
        uint32_t order[COUNT];
        char text[64] = "q", bytes[4];
        size_t length = 1;
        memcpy(order, marks, sizeof order);
        for (size_t i = 0; i < COUNT; i++) {
            size_t other = i + rng_below(&rng, COUNT - i);
            uint32_t mark = order[other];
            order[other] = order[i];
            order[i] = mark;
            size_t count = utf8_put(mark, bytes);
            memcpy(text + length, bytes, count);
            length += count;
        }
        text[length] = 0;
        struct str out;
        str_init(&out, 100);
        unicode_add_nfc(&out, text, length);
        if (!*first)
            strcpy(first, out.data);
        assert_string_equal(out.data, first);
        str_deinit(&out);
    }
}

/* A million alternating marks: a quadratic sort would take hours. */
static void test_a_long_run_of_marks(void **state)
{
    (void)state;
    enum { PAIRS = 500000 };
    char *text = malloc(4 * PAIRS);
    assert_non_null(text);
    for (size_t i = 0; i < PAIRS; i++)
        memcpy(text + 4 * i, "\xcc\x80\xcc\x96", 4); /* class 230, class 220 */
    struct str out;
    str_init(&out, 4 * PAIRS);
    uint64_t start_us = clock_now_us();
    unicode_add_nfc(&out, text, 4 * PAIRS);
    assert_true(clock_now_us() - start_us < 30u * 1000 * 1000);
    assert_int_equal(out.length, 4 * PAIRS);
    assert_memory_equal(out.data, "\xcc\x96\xcc\x96", 4);
    assert_memory_equal(out.data + out.length - 4, "\xcc\x80\xcc\x80", 4);
    str_deinit(&out);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_translation),
        cmocka_unit_test(test_finding),
        cmocka_unit_test(test_endless_backtracking_is_stopped),
        cmocka_unit_test(test_searches_that_remember_much),
        cmocka_unit_test(test_nfc),
        cmocka_unit_test(test_canonical_order),
        cmocka_unit_test(test_a_long_run_of_marks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
