/* stop_matcher: the same outcome however the text is cut, against a plain search. */
#include "common/base/rng.h"
#include "common/language/text/stop_matcher.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct stop_matcher *made(const char *const *stops, size_t count)
{
    struct text texts[STOP_MATCHER_LIMIT_COUNT];
    struct stop_matcher *matcher = NULL;
    struct error err = {""};
    for (size_t i = 0; i < count; i++)
        texts[i] = text_from(stops[i]);
    if (stop_matcher_create(texts, count, &matcher, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return matcher;
}

static void test_holds_back_only_what_may_match(void **state)
{
    (void)state;
    static const char *const stops[] = {"###", "</s>"};
    static const struct {
        const char *in, *out;
        int found;
    } steps[] = {{"a", "a", -1},    {"b#", "b", -1},         {"#", "", -1},
                 {"c<", "##c", -1}, {"/", "", -1},           {"</", "</", -1},
                 {"s", "", -1},     {"> never seen", "", 1}, {"nor this", "", 1}};
    struct stop_matcher *matcher = made(stops, 2);
    struct str out;
    str_init(&out, 100);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        str_clear(&out);
        int found = stop_matcher_push(matcher, steps[i].in, strlen(steps[i].in), &out);
        assert_int_equal(found, steps[i].found);
        assert_string_equal(out.data, steps[i].out);
    }
    stop_matcher_flush(matcher, &out);
    assert_string_equal(out.data, "");
    assert_memory_equal(stop_matcher_text(matcher, 1).bytes, "</s>", 4);
    assert_int_equal(stop_matcher_text(matcher, 1).length, 4);
    str_deinit(&out);
    stop_matcher_destroy(matcher);
}

static void test_flush_gives_back_what_was_held(void **state)
{
    (void)state;
    static const char *const stops[] = {"abcd", "bcx"};
    struct stop_matcher *matcher = made(stops, 2);
    struct str out;
    str_init(&out, 100);
    assert_int_equal(stop_matcher_push(matcher, "xxabc", 5, &out), STOP_MATCHER_NONE);
    assert_string_equal(out.data, "xx");
    stop_matcher_flush(matcher, &out);
    assert_string_equal(out.data, "xxabc");
    stop_matcher_flush(matcher, &out);
    assert_string_equal(out.data, "xxabc");
    str_deinit(&out);
    stop_matcher_destroy(matcher);
    stop_matcher_destroy(NULL);
}

static void test_without_stop_strings_text_passes(void **state)
{
    (void)state;
    struct stop_matcher *matcher = made(NULL, 0);
    struct str out;
    str_init(&out, 100);
    assert_int_equal(stop_matcher_push(matcher, "text", 4, &out), STOP_MATCHER_NONE);
    assert_string_equal(out.data, "text");
    stop_matcher_flush(matcher, &out);
    assert_string_equal(out.data, "text");
    str_deinit(&out);
    stop_matcher_destroy(matcher);
}

static void test_limits(void **state)
{
    (void)state;
    static char big[STOP_MATCHER_LIMIT_BYTES + 1];
    memset(big, 'x', sizeof big);
    struct text stops[STOP_MATCHER_LIMIT_COUNT + 1];
    struct stop_matcher *matcher = NULL;
    struct error err;
    for (size_t i = 0; i <= STOP_MATCHER_LIMIT_COUNT; i++)
        stops[i] = (struct text){big, STOP_MATCHER_LIMIT_BYTES};
    assert_int_equal(stop_matcher_create(stops, STOP_MATCHER_LIMIT_COUNT, &matcher, &err),
                     STATUS_OK);
    struct str out;
    str_init(&out, 1000);
    assert_int_equal(stop_matcher_push(matcher, big, 255, &out), STOP_MATCHER_NONE);
    assert_int_equal(out.length, 0);
    assert_int_equal(stop_matcher_push(matcher, "y", 1, &out), STOP_MATCHER_NONE);
    assert_int_equal(out.length, 256);
    assert_int_equal(stop_matcher_push(matcher, big, 256, &out), 0);
    assert_int_equal(out.length, 256);
    str_deinit(&out);
    stop_matcher_destroy(matcher);
    matcher = NULL;
    assert_int_equal(stop_matcher_create(stops, STOP_MATCHER_LIMIT_COUNT + 1, &matcher, &err),
                     STATUS_LIMIT);
    stops[1].length = STOP_MATCHER_LIMIT_BYTES + 1;
    assert_int_equal(stop_matcher_create(stops, 2, &matcher, &err), STATUS_INVALID);
    stops[1].length = 0;
    assert_int_equal(stop_matcher_create(stops, 2, &matcher, &err), STATUS_INVALID);
    assert_string_equal(err.text, "stop string 1 has 0 bytes, which isn't within 1..256");
    stops[1] = (struct text){"a\xa9", 2};
    assert_int_equal(stop_matcher_create(stops, 2, &matcher, &err), STATUS_INVALID);
    assert_null(matcher);
}

/* Finds the first position at which a stop string ends; of several there, the longest; of equals,
 * the first. */
static int search_plainly(const char *text, size_t length, char stops[][8], size_t count,
                          size_t *start)
{
    for (size_t end = 1; end <= length; end++) {
        int found = STOP_MATCHER_NONE;
        for (size_t i = 0; i < count; i++) {
            size_t n = strlen(stops[i]);
            if (n <= end && memcmp(text + end - n, stops[i], n) == 0 &&
                (found < 0 || n > strlen(stops[found])))
                found = (int)i;
        }
        if (found >= 0) {
            *start = end - strlen(stops[found]);
            return found;
        }
    }
    *start = length;
    return STOP_MATCHER_NONE;
}

static void random_text(struct rng *rng, char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        text[i] = (char)('a' + rng_below(rng, 2));
    text[length] = 0;
}

static void test_random_cuts(void **state)
{
    (void)state;
    struct rng rng = rng_seeded(17);
    size_t found_count = 0;
    for (int round = 0; round < 20000; round++) {
        char stops[4][8], text[64];
        const char *pointers[4] = {stops[0], stops[1], stops[2], stops[3]};
        size_t count = 1 + rng_below(&rng, 4), length = rng_below(&rng, sizeof text), start;
        for (size_t i = 0; i < count; i++)
            random_text(&rng, stops[i], 2 + rng_below(&rng, 6));
        random_text(&rng, text, length);
        int expected = search_plainly(text, length, stops, count, &start),
            found = STOP_MATCHER_NONE;
        struct stop_matcher *matcher = made(pointers, count);
        struct str out;
        str_init(&out, 1000);
        for (size_t at = 0, piece; at < length; at += piece) {
            piece = rng_below(&rng, length - at + 1);
            found = stop_matcher_push(matcher, text + at, piece, &out);
            if (found < 0)
                assert_true(at + piece - out.length < 7); /* less than the longest */
        }
        stop_matcher_flush(matcher, &out);
        assert_int_equal(found, expected);
        assert_int_equal(out.length, start);
        assert_memory_equal(out.data, text, start);
        found_count += found >= 0;
        str_deinit(&out);
        stop_matcher_destroy(matcher);
    }
    assert_true(found_count > 5000 && found_count < 20000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_holds_back_only_what_may_match),
        cmocka_unit_test(test_flush_gives_back_what_was_held),
        cmocka_unit_test(test_without_stop_strings_text_passes),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_random_cuts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
