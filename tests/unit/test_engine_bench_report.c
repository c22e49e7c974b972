/* engine_bench_report: when a cache makes shares of read say little. */
#include "common/cli/engine_bench.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void test_a_cache_that_may_hold_the_weights_is_told(void **state)
{
    (void)state;
    static const char told[] =
        "the CPU's third level of cache (34 MB) may hold the weights (2 MB): "
        "shares of read say little of larger models\n";
    static const struct {
        uint64_t weight_bytes, cache_bytes;
        const char *told;
    } cases[] = {
        {2000000, 33554432, told},
        {33554431, 33554432, "(34 MB) may hold the weights (34 MB)"},
        {33554432, 33554432, ""},
        {5000000000, 33554432, ""},
        {2000000, 0, ""},
        {5000000000, 6442450944, "(6442 MB) may hold the weights (5000 MB)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct str out;
        str_init(&out, 1024);
        engine_bench_add_cached(cases[i].weight_bytes, cases[i].cache_bytes, &out);
        if (*cases[i].told)
            assert_non_null(strstr(out.data, cases[i].told));
        else
            assert_int_equal(out.length, 0);
        str_deinit(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_cache_that_may_hold_the_weights_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
