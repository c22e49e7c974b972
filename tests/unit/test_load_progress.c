/* load_progress: how often a bar is drawn, its text, and that nothing of it stays. */
#include "common/engine/model/load_progress.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define GIB ((uint64_t)1 << 30)

static uint32_t count_of(const char *text, char wanted)
{
    uint32_t count = 0;
    for (; *text; text++)
        count += *text == wanted;
    return count;
}

static void test_a_bar_is_drawn_ten_times_a_second(void **state)
{
    (void)state;
    char *text = NULL;
    size_t length = 0;
    FILE *terminal = open_memstream(&text, &length);
    assert_non_null(terminal);
    struct load_progress progress = load_progress_begin("loading weights", 2 * GIB, terminal, 0);
    for (uint64_t ms = 1; ms <= 1000; ms++)
        load_progress_add(&progress, 2 * GIB / 2000, ms * 1000);
    fflush(terminal);
    assert_int_equal(count_of(text, '\r'), 10);
    char *last = strrchr(text, '\r') + 1;
    char *bar = strchr(last, '[') + 1;
    assert_non_null(strstr(last, "loading weights ["));
    assert_non_null(strstr(last, "49% of 2.0 GiB, 1 s left"));
    assert_int_equal(strspn(bar, "#"), 15);
    assert_int_equal(strspn(bar + 15, "-"), 15);
    load_progress_add(&progress, 9 * GIB, 2000000); /* more than was said: full, not beyond */
    fflush(terminal);
    assert_non_null(strstr(text, "100% of 2.0 GiB, 0 s left"));
    load_progress_end(&progress);
    fclose(terminal);
    assert_string_equal(text + length - 4, "\r\033[K");
    free(text);
}

static void test_a_short_load_draws_nothing(void **state)
{
    (void)state;
    char *text = NULL;
    size_t length = 0;
    FILE *terminal = open_memstream(&text, &length);
    assert_non_null(terminal);
    struct load_progress progress = load_progress_begin("loading weights", GIB, terminal, 500);
    load_progress_add(&progress, GIB, 99000);
    load_progress_end(&progress);
    progress = load_progress_begin("nothing", 0, terminal, 0);
    load_progress_add(&progress, 0, 5000000);
    load_progress_end(&progress);
    fclose(terminal);
    assert_int_equal(length, 0);
    free(text);
}

static void test_a_beginning_foretells_nothing(void **state)
{
    (void)state;
    char *text = NULL;
    size_t length = 0;
    FILE *terminal = open_memstream(&text, &length);
    assert_non_null(terminal);
    struct load_progress progress = load_progress_begin("loading weights", 2 * GIB, terminal, 0);
    load_progress_add(&progress, 4096, 3000000);
    fflush(terminal);
    assert_non_null(strstr(text, "  0% of 2.0 GiB \033[K"));
    load_progress_add(&progress, 2 * GIB / 100, 6000000);
    fflush(terminal);
    assert_non_null(strstr(text, "  1% of 2.0 GiB, 594 s left \033[K"));
    load_progress_end(&progress);
    fclose(terminal);
    free(text);
}

static void test_what_has_no_parts_is_announced(void **state)
{
    (void)state;
    char *text = NULL;
    size_t length = 0;
    FILE *terminal = open_memstream(&text, &length);
    assert_non_null(terminal);
    struct load_progress progress = load_progress_begin("taking", GIB / 4 - 1, terminal, 0);
    load_progress_announce(&progress);
    load_progress_end(&progress);
    fflush(terminal);
    assert_int_equal(length, 0);
    progress = load_progress_begin("taking", GIB / 4, terminal, 0);
    load_progress_announce(&progress);
    load_progress_end(&progress);
    fclose(terminal);
    assert_string_equal(text, "\rtaking, 0.2 GiB \033[K\r\033[K");
    free(text);
}

/* Into a pipe of standard error: log lines, seconds apart. */
static void test_log_lines_where_there_is_no_terminal(void **state)
{
    (void)state;
    struct load_progress progress = load_progress_begin("loading weights", GIB, NULL, 0);
    for (uint64_t second = 1; second <= 10; second++) {
        uint64_t told_us = progress.line.told_us;
        load_progress_add(&progress, GIB / 10, second * 1000000);
        assert_int_equal(progress.line.told_us != told_us, second % 3 == 0);
    }
    load_progress_end(&progress);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_bar_is_drawn_ten_times_a_second),
        cmocka_unit_test(test_a_short_load_draws_nothing),
        cmocka_unit_test(test_a_beginning_foretells_nothing),
        cmocka_unit_test(test_what_has_no_parts_is_announced),
        cmocka_unit_test(test_log_lines_where_there_is_no_terminal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
