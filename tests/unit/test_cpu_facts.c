/* cpu_facts: the name of a CPU in Linux's description. */
#include "common/cli/bench.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void assert_name(const char *cpuinfo, size_t size, const char *expected)
{
    char name[128];
    FILE *file = fmemopen((void *)cpuinfo, strlen(cpuinfo), "r");
    assert_non_null(file);
    cpu_facts_read_name(file, name, size);
    fclose(file);
    assert_string_equal(name, expected);
}

static void test_name_of_the_first_cpu(void **state)
{
    (void)state;
    assert_name("processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\n"
                "model name\t: AMD EPYC\nstepping\t: 1\n\nprocessor\t: 1\nmodel name\t: another\n",
                128, "AMD EPYC, family 25, model 17");
}

static void test_name_where_less_is_told(void **state)
{
    (void)state;
    assert_name("processor\t: 0\nmodel name\t: Some CPU\n", 128, "Some CPU");
    assert_name("processor\t: 0\ncpu family\t: 6\n", 128, "family 6");
    assert_name("processor\t: 0\nBogoMIPS\t: 50.00\nCPU implementer\t: 0x41\n", 128, "");
    assert_name("modelled\t: 3\nmodel\n", 128, "");
}

static void test_name_where_no_more_fits(void **state)
{
    (void)state;
    assert_name("model name\t: AMD EPYC\ncpu family\t: 25\nmodel\t: 17\n", 12, "AMD EPYC, f");
    assert_name("model name\t: AMD EPYC\n", 4, "AMD");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_name_of_the_first_cpu),
        cmocka_unit_test(test_name_where_less_is_told),
        cmocka_unit_test(test_name_where_no_more_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
