/* metrics: the text format, and updates from many threads at once. */
#include "common/base/observe/metrics.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void test_text_format(void **state)
{
    (void)state;
    struct metrics *m = metrics_create();
    struct counter *ok = metrics_counter(m, "baton_requests_total", "Requests", "status=\"ok\"");
    struct gauge *blocks = metrics_gauge(m, "baton_kv_blocks", "Blocks", "state=\"free\"");
    struct counter *bad =
        metrics_counter(m, "baton_requests_total", "Requests", "status=\"error\"");
    static const double bounds[] = {0.5, 1};
    struct histogram *ttft = metrics_histogram(m, "baton_ttft_seconds", "TTFT", NULL, bounds, 2);
    struct histogram *step =
        metrics_histogram(m, "baton_step_seconds", "Step", "role=\"decode\"", bounds, 2);
    counter_add(ok, 3);
    counter_add(bad, 1);
    gauge_set(blocks, 12);
    gauge_add(blocks, -2.5);
    histogram_observe(ttft, 0.5);
    histogram_observe(ttft, 0.75);
    histogram_observe(ttft, 8);
    histogram_observe(step, 2);
    struct str out;
    str_init(&out, 65536);
    metrics_render(m, &out);
    static const char expected[] = "# HELP baton_requests_total Requests\n"
                                   "# TYPE baton_requests_total counter\n"
                                   "baton_requests_total{status=\"ok\"} 3\n"
                                   "baton_requests_total{status=\"error\"} 1\n"
                                   "# HELP baton_kv_blocks Blocks\n"
                                   "# TYPE baton_kv_blocks gauge\n"
                                   "baton_kv_blocks{state=\"free\"} 9.5\n"
                                   "# HELP baton_ttft_seconds TTFT\n"
                                   "# TYPE baton_ttft_seconds histogram\n"
                                   "baton_ttft_seconds_bucket{le=\"0.5\"} 1\n"
                                   "baton_ttft_seconds_bucket{le=\"1\"} 2\n"
                                   "baton_ttft_seconds_bucket{le=\"+Inf\"} 3\n"
                                   "baton_ttft_seconds_sum 9.25\n"
                                   "baton_ttft_seconds_count 3\n"
                                   "# HELP baton_step_seconds Step\n"
                                   "# TYPE baton_step_seconds histogram\n"
                                   "baton_step_seconds_bucket{role=\"decode\",le=\"0.5\"} 0\n"
                                   "baton_step_seconds_bucket{role=\"decode\",le=\"1\"} 0\n"
                                   "baton_step_seconds_bucket{role=\"decode\",le=\"+Inf\"} 1\n"
                                   "baton_step_seconds_sum{role=\"decode\"} 2\n"
                                   "baton_step_seconds_count{role=\"decode\"} 1\n";
    assert_memory_equal(out.data, expected, strlen(expected));
    static const char *const process[] = {
        "process_cpu_seconds_total ", "process_resident_memory_bytes ", "process_open_fds ",
        "process_start_time_seconds ", "baton_log_lines_lost_total "};
    for (size_t i = 0; i < sizeof process / sizeof *process; i++)
        assert_non_null(strstr(out.data + strlen(expected), process[i]));
    str_deinit(&out);
    metrics_destroy(m);
}

enum { THREADS = 4, UPDATES = 20000 };
struct shared {
    struct metrics *metrics;
    struct counter *counter;
    struct gauge *gauge;
    struct histogram *histogram;
};

static void *update(void *context)
{
    struct shared *shared = context;
    for (int i = 0; i < UPDATES; i++) {
        counter_add(shared->counter, 1);
        gauge_add(shared->gauge, i % 2 ? 1 : -1);
        histogram_observe(shared->histogram, i % 3);
    }
    return NULL;
}

static void test_updates_of_many_threads_all_count(void **state)
{
    (void)state;
    struct metrics *m = metrics_create();
    struct shared shared = {
        m, metrics_counter(m, "c", "C", NULL), metrics_gauge(m, "g", "G", NULL),
        metrics_histogram(m, "h", "H", NULL, metrics_seconds_bounds, metrics_seconds_bound_count)};
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, update, &shared), 0);
    struct str out;
    str_init(&out, 65536);
    metrics_render(m, &out); /* while they run */
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(counter_value(shared.counter), THREADS * UPDATES);
    assert_true(gauge_value(shared.gauge) == 0);
    assert_int_equal(histogram_count(shared.histogram), THREADS * UPDATES);
    str_deinit(&out);
    metrics_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_format),
        cmocka_unit_test(test_updates_of_many_threads_all_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
