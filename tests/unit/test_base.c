/* base: status, str, rng, map, arena, ring, log quoting, shares of open files. */
#include "common/base/arena.h"
#include "common/base/descriptors.h"
#include "common/base/log.h"
#include "common/base/map.h"
#include "common/base/ring.h"
#include "common/base/rng.h"
#include "common/base/str.h"
#include "common/base/utf8.h"

#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void test_error_is_cut_with_dots(void **state)
{
    (void)state;
    struct error err;
    char big[600];
    memset(big, 'x', sizeof big - 1);
    big[sizeof big - 1] = 0;
    assert_int_equal(error_set(&err, STATUS_LIMIT, "%s", big), STATUS_LIMIT);
    assert_int_equal(strlen(err.text), sizeof err.text - 1);
    assert_string_equal(err.text + sizeof err.text - 4, "...");
    error_set(&err, STATUS_IO, "no such file");
    error_prefix(&err, STATUS_IO, "model %s", "a");
    assert_string_equal(err.text, "model a: no such file");
}

static void test_error_is_printable(void **state)
{
    (void)state;
    struct error err;
    error_set(&err, STATUS_INVALID, "tensor %s", "a\nb\x1b[2J\xff\xc3\xa9\xc2\x85z");
    assert_string_equal(err.text, "tensor a?b?[2J?\xc3\xa9??z");
    char big[600] = "x";
    for (size_t i = 1; i + 1 < sizeof big - 1; i += 2)
        memcpy(big + i, "\xc3\xa9", 3);
    error_set(&err, STATUS_INVALID, "%s",
              big); /* the cut falls between the bytes of a character, or not */
    assert_true(utf8_valid(err.text, strlen(err.text), NULL));
    assert_string_equal(err.text + strlen(err.text) - 5, "\xc3\xa9...");
    error_prefix(&err, STATUS_INVALID, "%s", "y");
    assert_true(utf8_valid(err.text, strlen(err.text), NULL));
    assert_string_equal(err.text + strlen(err.text) - 5, "\xc3\xa9...");
}

static void test_str_stops_at_its_limit(void **state)
{
    (void)state;
    struct str s;
    str_init(&s, 5);
    str_add(&s, "abc");
    assert_false(s.truncated);
    str_add(&s, "def");
    assert_true(s.truncated);
    assert_string_equal(s.data, "abcde");
    str_remove_front(&s, 2);
    assert_string_equal(s.data, "cde");
    str_deinit(&s);
}

static void test_number_parsing_is_strict(void **state)
{
    (void)state;
    uint64_t u;
    double d;
    assert_true(str_to_u64("42", 0, 42, &u) && u == 42);
    static const char *const bad[] = {"", "-1", "4x", " 4", "43", "99999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(str_to_u64(bad[i], 0, 42, &u));
    assert_true(str_to_double("0.5", 0, 1, &d) && d == 0.5);
    assert_false(str_to_double("nan", 0, 1, &d));
    assert_false(str_to_double("1.5", 0, 1, &d));
}

static void test_rng_at_is_a_pure_function(void **state)
{
    (void)state;
    /* Philox4x32-10 of key 0 and counter 0: Random123's known answer 6627e8d5 e169c58d ... */
    assert_int_equal(rng_at(0, 0, 0), 0xe169c58d6627e8d5u);
    assert_int_equal(rng_at(1, 2, 3), rng_at(1, 2, 3));
    assert_int_not_equal(rng_at(1, 2, 3), rng_at(1, 2, 4));
    struct rng rng = rng_seeded(7);
    for (int i = 0; i < 1000; i++) {
        assert_true(rng_below(&rng, 10) < 10);
        double unit = rng_unit(&rng);
        assert_true(unit >= 0 && unit < 1);
    }
    struct rng one_by_one = rng, skipping = rng;
    for (int i = 0; i < 70; i++)
        (void)rng_next(&one_by_one);
    rng_skip(&skipping, 70);
    assert_int_equal(rng_next(&one_by_one), rng_next(&skipping));
}

static void test_map_against_a_plain_array(void **state)
{
    (void)state;
    enum { KEYS = 300 };
    struct map *map;
    assert_int_equal(map_create(KEYS, &map), STATUS_OK);
    static int values[KEYS];
    void *model[KEYS] = {0};
    struct rng rng = rng_seeded(1);
    size_t count = 0;
    for (int i = 0; i < 20000; i++) {
        uint64_t key = rng_below(&rng, KEYS);
        if (rng_below(&rng, 2)) {
            count += !model[key];
            model[key] = &values[rng_below(&rng, KEYS)];
            assert_int_equal(map_put(map, key, model[key]), STATUS_OK);
        } else {
            count -= model[key] != NULL;
            assert_ptr_equal(map_take(map, key), model[key]);
            model[key] = NULL;
        }
        assert_int_equal(map_count(map), count);
    }
    size_t seen = 0;
    for (size_t cursor = 0; map_next(map, &cursor);)
        seen++;
    assert_int_equal(seen, count);
    map_destroy(map);
}

static void test_map_limit_and_string_keys(void **state)
{
    (void)state;
    struct map *map;
    int a, b;
    assert_int_equal(map_create(1, &map), STATUS_OK);
    assert_int_equal(map_put_str(map, "one", &a), STATUS_OK);
    assert_int_equal(map_put_str(map, "two", &b), STATUS_LIMIT);
    assert_int_equal(map_put_str(map, "one", &b), STATUS_OK);
    assert_ptr_equal(map_get_str(map, "one"), &b);
    assert_null(map_get(map, 0));
    assert_ptr_equal(map_take_str(map, "one"), &b);
    assert_null(map_get_str(map, "one"));
    map_destroy(map);
}

static void test_arena_is_zeroed_aligned_and_bounded(void **state)
{
    (void)state;
    struct arena arena;
    arena_init(&arena, 10000);
    for (size_t i = 1; i < 20; i++) {
        unsigned char *p = arena_take(&arena, i * 20);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 16, 0);
        for (size_t j = 0; j < i * 20; j++)
            assert_int_equal(p[j], 0);
        memset(p, 0xff, i * 20);
    }
    assert_null(arena_take(&arena, 10001));
    assert_null(arena_take(&arena, 9000));
    arena_deinit(&arena);
}

static void test_ring_order_limit_and_close(void **state)
{
    (void)state;
    struct ring *ring;
    int items[3];
    assert_int_equal(ring_create(2, &ring), STATUS_OK);
    assert_null(ring_pop(ring));
    assert_null(ring_wait(ring, 1000));
    assert_int_equal(ring_push(ring, &items[0]), STATUS_OK);
    assert_int_equal(ring_push(ring, &items[1]), STATUS_OK);
    assert_int_equal(ring_push(ring, &items[2]), STATUS_LIMIT);
    assert_ptr_equal(ring_pop(ring), &items[0]);
    assert_int_equal(ring_push(ring, &items[2]), STATUS_OK);
    ring_close(ring);
    assert_int_equal(ring_push(ring, &items[0]), STATUS_CANCELLED);
    assert_ptr_equal(ring_wait(ring, 0), &items[1]);
    assert_ptr_equal(ring_wait(ring, 0), &items[2]);
    ring_destroy(ring);
}

static bool is_readable(int fd)
{
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    return poll(&ready, 1, 0) == 1;
}

static void *push_later(void *ring)
{
    static int item;
    assert_int_equal(ring_push(ring, &item), STATUS_OK);
    return NULL;
}

/* A polling thread also sees items that were pushed before it asked for the descriptor. A sleeping
 * thread is woken. */
static void test_ring_wakes_who_waits(void **state)
{
    (void)state;
    struct ring *ring;
    int items[2];
    pthread_t thread;
    assert_int_equal(ring_create(2, &ring), STATUS_OK);
    assert_int_equal(pthread_create(&thread, NULL, push_later, ring), 0);
    assert_non_null(ring_wait(ring, 20000000));
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_null(ring_peek(ring));
    assert_int_equal(ring_push(ring, &items[0]), STATUS_OK);
    assert_true(is_readable(ring_fd(ring)));
    assert_int_equal(ring_push(ring, &items[1]), STATUS_OK);
    assert_ptr_equal(ring_peek(ring), &items[0]);
    assert_ptr_equal(ring_pop(ring), &items[0]);
    assert_true(is_readable(ring_fd(ring)));
    assert_ptr_equal(ring_wait(ring, 0), &items[1]);
    assert_false(is_readable(ring_fd(ring)));
    assert_null(ring_wait(ring, 1000));
    assert_int_equal(ring_push(ring, &items[0]), STATUS_OK);
    assert_true(is_readable(ring_fd(ring)));
    assert_ptr_equal(ring_pop(ring), &items[0]);
    ring_destroy(ring);
}

static void test_log_quote_escapes_outside_bytes(void **state)
{
    (void)state;
    char buffer[32];
    assert_string_equal(log_quote("a\"b\n", buffer, sizeof buffer), "\"a\\\"b\\x0a\"");
    char small[12];
    for (size_t plain = 0; plain < 16; plain++) { /* whatever stands where it is cut */
        char text[32] = "aaaaaaaaaaaaaaaa", *exact = malloc(16);
        assert_non_null(exact);
        memset(text + plain, 1, 15);
        assert_true(strlen(log_quote(text, exact, 16)) < 16);
        free(exact);
    }
    assert_string_equal(log_quote("abcdefghijkl", small, sizeof small), "\"abc...\"");
}

static void test_descriptors_are_divided(void **state)
{
    (void)state;
    enum { MANY = 4 };
    static const struct {
        uint64_t limit, own, wanted[MANY], each[MANY], places[MANY], needed;
    } rows[] = {
        /* enough for all */
        {1000, 100, {100, 100, 50}, {1, 3, 1}, {100, 100, 50}, 550},
        {550, 100, {100, 100, 50}, {1, 3, 1}, {100, 100, 50}, 550},
        /* one fewer: only the largest use gives */
        {549, 100, {100, 100, 50}, {1, 3, 1}, {100, 99, 50}, 550},
        /* equal parts of 80: the small use takes 10, and 35 are left for each of the others */
        {128, 48, {4096, 4096, 10}, {1, 3, 1}, {35, 11, 10}, 16442},
        /* a use that is off takes nothing */
        {128, 48, {0, 4096, 0, 4096}, {1, 1, 1, 1}, {0, 40, 0, 40}, 8240},
        /* fewer than its own: one place each, which is refused by the system, not by a share of
         * 0 */
        {10, 48, {4, 4, 4, 4}, {1, 1, 1, 1}, {1, 1, 1, 1}, 64},
        {UINT64_MAX, 48, {60000}, {3}, {60000}, 180048},
        {48, 48, {0}, {1}, {0}, 48},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct descriptor_use uses[MANY];
        uint64_t taken = rows[i].own;
        for (size_t j = 0; j < MANY; j++)
            uses[j] = (struct descriptor_use){.wanted = rows[i].wanted[j],
                                              .each = (uint32_t)rows[i].each[j]};
        assert_int_equal(descriptors_divide(rows[i].limit, rows[i].own, uses, MANY),
                         rows[i].needed);
        for (size_t j = 0; j < MANY; j++) {
            assert_int_equal(uses[j].places, rows[i].places[j]);
            taken += uses[j].places * uses[j].each;
        }
        assert_true(taken <= rows[i].limit || rows[i].limit < rows[i].needed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_error_is_cut_with_dots),
        cmocka_unit_test(test_error_is_printable),
        cmocka_unit_test(test_str_stops_at_its_limit),
        cmocka_unit_test(test_number_parsing_is_strict),
        cmocka_unit_test(test_rng_at_is_a_pure_function),
        cmocka_unit_test(test_map_against_a_plain_array),
        cmocka_unit_test(test_map_limit_and_string_keys),
        cmocka_unit_test(test_arena_is_zeroed_aligned_and_bounded),
        cmocka_unit_test(test_ring_order_limit_and_close),
        cmocka_unit_test(test_ring_wakes_who_waits),
        cmocka_unit_test(test_log_quote_escapes_outside_bytes),
        cmocka_unit_test(test_descriptors_are_divided),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
