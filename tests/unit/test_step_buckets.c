/* step_buckets: the shapes of decode steps that are recorded, and which of them a step takes. */
#include "common/engine/step_buckets.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct step_bucket_sizes sizes_of(const char *text)
{
    struct step_bucket_sizes sizes;
    struct error err;
    if (step_bucket_sizes_parse(text, &sizes, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return sizes;
}

static void test_a_setting_is_read(void **state)
{
    (void)state;
    struct step_bucket_sizes sizes = sizes_of("auto");
    assert_true(!sizes.chosen && !sizes.count);
    sizes = sizes_of("off");
    assert_true(sizes.chosen && !sizes.count);
    sizes = sizes_of("1,8,65536");
    assert_true(sizes.chosen && sizes.count == 3);
    assert_true(sizes.rows[0] == 1 && sizes.rows[1] == 8 && sizes.rows[2] == 65536);
    char text[256] = "1";
    for (int i = 2; i <= STEP_BUCKETS_SIZES + 1; i++) {
        assert_int_equal(sizes_of(text).count, i - 1);
        snprintf(text + strlen(text), sizeof text - strlen(text), ",%d", i);
    }
    const char *const wrong[] = {"",   "on", "0",   "1,1",   "8,4",           "1,", ",1", "1,,2",
                                 "1 ", "-1", "1;2", "65537", "9999999999999", text};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct error err = {""};
        memset(&sizes, 7, sizeof sizes);
        assert_int_equal(step_bucket_sizes_parse(wrong[i], &sizes, &err), STATUS_INVALID);
        assert_non_null(strstr(err.text, "auto|off|ascending numbers"));
        assert_int_equal(sizes.count, 0x07070707); /* as it was */
    }
}

static void expect_rows(const char *setting, uint32_t most_rows, const uint32_t *rows,
                        uint32_t count)
{
    struct step_bucket_sizes sizes = sizes_of(setting);
    struct step_buckets buckets;
    step_buckets_make(&sizes, most_rows, 4, 16, &buckets);
    assert_int_equal(buckets.count, count);
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(buckets.all[i].rows, rows[count - 1 - i]); /* many rows first */
        assert_int_equal(buckets.all[i].blocks, 4);
        assert_false(buckets.all[i].ready);
    }
}

static void test_numbers_of_rows(void **state)
{
    (void)state;
    expect_rows("auto", 1, (uint32_t[]){1}, 1);
    expect_rows("auto", 3, (uint32_t[]){1, 2, 3}, 3);
    expect_rows("auto", 64, (uint32_t[]){1, 2, 4, 8, 16, 24, 32, 40, 48, 56, 64}, 11);
    expect_rows("auto", 100, (uint32_t[]){1, 2, 4, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 100}, 14);
    expect_rows("off", 64, NULL, 0);
    expect_rows("1,8,64,65", 64, (uint32_t[]){1, 8, 64}, 3);
    expect_rows("100", 64, NULL, 0);
}

/* Whatever the device allows, auto covers every number of rows, and no row is padded with more than
 * an equal number, nor many with more than a quarter. */
static void test_auto_covers_all_rows_and_contexts(void **state)
{
    (void)state;
    static const uint32_t most[] = {1, 2, 7, 16, 64, 100, 256, 1000, 1024};
    static const uint32_t contexts[] = {1, 127, 128, 129, 512, 513, 8192, 65536};
    struct step_bucket_sizes sizes = {0};
    for (size_t m = 0; m < sizeof most / sizeof *most; m++)
        for (size_t c = 0; c < sizeof contexts / sizeof *contexts; c++) {
            struct step_buckets buckets;
            step_buckets_make(&sizes, most[m], contexts[c], 16, &buckets);
            assert_in_range(buckets.count, 1, KERNELS_MAX_PASSES);
            for (uint32_t i = 0; i < buckets.count; i++)
                buckets.all[i].ready = true;
            for (uint32_t rows = 1; rows <= most[m]; rows++) {
                uint32_t chosen = step_buckets_choose(&buckets, rows, contexts[c]);
                assert_int_not_equal(chosen, STEP_BUCKETS_NONE);
                assert_int_equal(buckets.all[chosen].blocks, contexts[c]);
                assert_in_range(buckets.all[chosen].rows, rows, 2 * rows);
                if (rows >= 64)
                    assert_in_range(buckets.all[chosen].rows, rows, rows + rows / 4);
            }
            assert_int_equal(step_buckets_choose(&buckets, most[m] + 1, 1), STEP_BUCKETS_NONE);
            assert_int_equal(step_buckets_choose(&buckets, 1, contexts[c] + 1), STEP_BUCKETS_NONE);
        }
}

/* The first is of 2048 tokens, then 4 times as many; the last is the whole context. */
static void test_contexts_grow(void **state)
{
    (void)state;
    struct step_bucket_sizes sizes = sizes_of("2,4");
    struct step_buckets buckets;
    step_buckets_make(&sizes, 8, 4096, 32, &buckets);
    static const struct step_bucket expected[] = {
        {4, 64, false},   {2, 64, false},   {4, 256, false},  {2, 256, false},
        {4, 1024, false}, {2, 1024, false}, {4, 4096, false}, {2, 4096, false}};
    assert_int_equal(buckets.count, 8);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(buckets.all[i].rows, expected[i].rows);
        assert_int_equal(buckets.all[i].blocks, expected[i].blocks);
    }
    step_buckets_make(&sizes, 8, 64, 32, &buckets);
    assert_int_equal(buckets.count, 2);
}

static void test_the_bucket_of_a_step(void **state)
{
    (void)state;
    /* Not all are ready, and the order isn't that of a search. */
    struct step_buckets buckets = {.count = 6,
                                   .all = {{8, 64, true},
                                           {4, 64, true},
                                           {1, 64, false},
                                           {8, 256, true},
                                           {4, 256, false},
                                           {1, 256, true}}};
    static const struct {
        uint32_t rows, blocks, chosen;
    } cases[] = {
        {1, 1, 5},
        {1, 64, 5},
        {1, 256, 5},
        {2, 64, 1},
        {4, 64, 1},
        {4, 65, 3},
        {5, 64, 0},
        {8, 64, 0},
        {8, 65, 3},
        {8, 256, 3},
        {9, 1, STEP_BUCKETS_NONE},
        {1, 257, STEP_BUCKETS_NONE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(step_buckets_choose(&buckets, cases[i].rows, cases[i].blocks),
                         cases[i].chosen);
    buckets.all[2].ready = true;
    assert_int_equal(step_buckets_choose(&buckets, 1, 64), 2); /* the shorter of two of one row */
    buckets.count = 0;
    assert_int_equal(step_buckets_choose(&buckets, 1, 1), STEP_BUCKETS_NONE);
}

/* As many rows take as long as they did before; other numbers as long as the one ahead. */
static void test_the_time_of_the_next_recording(void **state)
{
    (void)state;
    struct step_buckets buckets = {.count = 6,
                                   .all = {{8, 64, true},
                                           {4, 64, true},
                                           {1, 64, true},
                                           {8, 256, true},
                                           {4, 256, true},
                                           {1, 256, false}},
                                   .record_us = {900, 40, 30, 80, 50}};
    static const uint64_t expected[] = {0, 900, 40, 900, 40, 30};
    for (uint32_t i = 0; i < 6; i++)
        assert_int_equal(step_buckets_record_us(&buckets, i), expected[i]);
    buckets.all[4].rows = 8; /* the last of its kind, not the first */
    assert_int_equal(step_buckets_record_us(&buckets, 4), 80);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_setting_is_read),
        cmocka_unit_test(test_numbers_of_rows),
        cmocka_unit_test(test_auto_covers_all_rows_and_contexts),
        cmocka_unit_test(test_contexts_grow),
        cmocka_unit_test(test_the_bucket_of_a_step),
        cmocka_unit_test(test_the_time_of_the_next_recording),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
