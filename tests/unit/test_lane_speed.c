/* lane_speed: reads that overlap count their time once, idle time doesn't count, and old reads
 * fade. Forgotten ones count no more. */
#include "common/base/domain/link_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define MB 1000000u

static void test_overlapping_reads_and_idle_time(void **state)
{
    (void)state;
    struct lane_speed speed = {0};
    assert_int_equal(lane_speed_bytes_per_second(&speed), 0);
    lane_speed_on_read(&speed, 1000);
    lane_speed_on_read(&speed, 1000);
    lane_speed_on_read_done(&speed, 5 * MB, 2000);
    lane_speed_on_read_done(&speed, 5 * MB, 2000);
    assert_int_equal(lane_speed_bytes_per_second(&speed), 10000ull * MB); /* 10 MB in 1 ms */
    lane_speed_on_read(&speed, 900000);                                   /* idle until then */
    lane_speed_on_read_done(&speed, 0, 901000);                           /* one that failed */
    assert_int_equal(lane_speed_bytes_per_second(&speed), 5000ull * MB);
    lane_speed_on_read_done(&speed, MB, 902000); /* unasked for: nothing */
    assert_int_equal(lane_speed_bytes_per_second(&speed), 5000ull * MB);
}

static void test_a_lane_that_slowed_down_shows_it(void **state)
{
    (void)state;
    struct lane_speed speed = {0};
    uint64_t now_us = 0;
    for (int i = 0; i < 100; i++) { /* 10 s at 1 GB/s, then 10 s at 0.1 GB/s */
        lane_speed_on_read(&speed, now_us);
        lane_speed_on_read_done(&speed, 100 * MB, now_us += 100000);
    }
    assert_in_range(lane_speed_bytes_per_second(&speed), 990u * MB, 1010u * MB);
    for (int i = 0; i < 100; i++) {
        lane_speed_on_read(&speed, now_us);
        lane_speed_on_read_done(&speed, 10 * MB, now_us += 100000);
    }
    assert_in_range(lane_speed_bytes_per_second(&speed), 99u * MB, 110u * MB);
}

static void test_a_read_that_hung_is_forgotten(void **state)
{
    (void)state;
    struct lane_speed speed = {0};
    lane_speed_on_read(&speed, 1000);
    lane_speed_on_read_done(&speed, 10 * MB, 2000);
    lane_speed_on_read(&speed, 3000);
    lane_speed_on_read(&speed, 5002000);
    lane_speed_on_read_done(&speed, 0, 5003000);
    lane_speed_forget(&speed, 5003000);
    assert_int_equal(lane_speed_bytes_per_second(&speed), 0);
    lane_speed_on_read_done(&speed, 10 * MB, 5004000); /* it went on beside it */
    assert_int_equal(lane_speed_bytes_per_second(&speed), 10000ull * MB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_overlapping_reads_and_idle_time),
        cmocka_unit_test(test_a_lane_that_slowed_down_shows_it),
        cmocka_unit_test(test_a_read_that_hung_is_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
