/* progress_line: how often, and that nothing stays of it on a terminal. */
#include "common/base/progress_line.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static void test_it_is_due_ten_times_a_second_or_every_three(void **state)
{
    (void)state;
    struct progress_line on = progress_line_begin(stderr, 0), off = progress_line_begin(NULL, 0);
    uint32_t drawn = 0, logged = 0;
    for (uint64_t ms = 1; ms <= 9000; ms++) {
        drawn += progress_line_due(&on, ms * 1000);
        logged += progress_line_due(&off, ms * 1000);
    }
    assert_int_equal(drawn, 90);
    assert_int_equal(logged, 3);
}

static void test_a_line_is_written_over_and_taken_away(void **state)
{
    (void)state;
    char *text = NULL;
    size_t length = 0;
    FILE *terminal = open_memstream(&text, &length);
    assert_non_null(terminal);
    struct progress_line line = progress_line_begin(terminal, 0);
    progress_line_end(&line); /* does nothing */
    progress_line_tell(&line, "%d of %d", 1, 2);
    progress_line_tell(&line, "%d of %d", 2, 2);
    progress_line_end(&line);
    progress_line_end(&line);
    fclose(terminal);
    assert_string_equal(text, "\r1 of 2 \033[K\r2 of 2 \033[K\r\033[K");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_it_is_due_ten_times_a_second_or_every_three),
        cmocka_unit_test(test_a_line_is_written_over_and_taken_away),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
