/* `baton bench transfer`: every way of every run size moves every byte, between two real
 * processes. */
#include "common/cli/commands.h"
#include "common/cli/transfer_bench.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/json/json.h"

static void test_every_way_moves_every_byte(void **state)
{
    (void)state;
    const struct transfer_plan plan = {.lanes = {true, true}, .pool_bytes = 4u << 20};
    static const size_t run_sizes[] = {4096, 65536, 300000, 1u << 20, 4u << 20};
    struct transfer_bench *bench;
    struct error err;
    if (transfer_bench_open(&plan, &bench, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    for (size_t i = 0; i < sizeof run_sizes / sizeof *run_sizes; i++) {
        for (int way = 0; way < WAYS; way++) {
            struct transfer_cost cost = {0};
            if (transfer_bench_run(bench, way, run_sizes[i], true, &cost, &err) != STATUS_OK)
                fail_msg("%s", err.text);
            assert_true(cost.seconds > 0 && cost.cpu_seconds > 0);
        }
    }
    transfer_bench_close(bench);
}

static void test_orders_are_permutations_that_differ(void **state)
{
    (void)state;
    enum { COUNT = 1000 };
    uint32_t order[2][COUNT];
    for (uint32_t which = 0; which < 2; which++) {
        bool seen[COUNT] = {false};
        transfer_order(which, COUNT, order[which]);
        for (size_t i = 0; i < COUNT; i++) {
            assert_true(order[which][i] < COUNT && !seen[order[which][i]]);
            seen[order[which][i]] = true;
        }
    }
    assert_memory_not_equal(order[0], order[1], sizeof order[0]);
}

/* Runs the command with its standard output in `text`. */
static int run_command(int argc, char **argv, char *text, size_t size)
{
    FILE *file = tmpfile();
    int saved = dup(1);
    assert_true(file && saved >= 0);
    fflush(stdout);
    dup2(fileno(file), 1);
    int code = cmd_bench_transfer(argc, argv);
    fflush(stdout);
    dup2(saved, 1);
    close(saved);
    rewind(file);
    text[fread(text, 1, size - 1, file)] = 0;
    fclose(file);
    return code;
}

static void test_the_command_prints_json(void **state)
{
    (void)state;
    char *argv[] = {"transfer", "--lane", "shm", "--mib",    "4", "--rounds",
                    "2",        "--crc",  "off", "--deaths", "3", "--json"};
    char text[8192];
    assert_int_equal(run_command(sizeof argv / sizeof *argv, argv, text, sizeof text), 0);
    struct json *json;
    struct json_limits limits = {.max_bytes = sizeof text, .max_depth = 8};
    struct error err;
    if (json_parse(text, strlen(text), limits, &json, &err) != STATUS_OK)
        fail_msg("%s in %s", err.text, text);
    const struct json_value *results;
    assert_int_equal(json_get_array(json_root(json), "results", &results, &err), STATUS_OK);
    assert_int_equal(json_count(results), 4 * 3); /* run sizes x (memcpy, shm, socket) */
    assert_int_equal(json_get_array(json_root(json), "deaths", &results, &err), STATUS_OK);
    assert_int_equal(json_count(results), 1);
    json_destroy(json);
}

static void test_the_command_prints_a_table(void **state)
{
    (void)state;
    char *argv[] = {"transfer", "--lane", "tcp", "--mib",    "4", "--rounds",
                    "1",        "--crc",  "on",  "--deaths", "1"};
    char text[8192];
    assert_int_equal(run_command(sizeof argv / sizeof *argv, argv, text, sizeof text), 0);
    assert_non_null(strstr(text, "tcp    CRC32C"));
    assert_null(strstr(text, "shm"));
    assert_non_null(strstr(text, "kill -9 to the failed read"));
}

/* On both lanes the kernel reports a death. The bound is for a busy machine; docs/benchmarks.md has
 * figures. */
static void test_deaths_are_known_soon(void **state)
{
    (void)state;
    const struct transfer_plan plan = {.lanes = {true, true}, .pool_bytes = 4u << 20};
    struct transfer_deaths *deaths;
    struct error err;
    if (transfer_deaths_prepare(&plan, 3, &deaths, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    for (int lane = 0; lane < TRANSFER_LANES; lane++) {
        double seconds[3];
        if (transfer_deaths_measure(deaths, lane, seconds, &err) != STATUS_OK)
            fail_msg("%s", err.text);
        for (int i = 0; i < 3; i++)
            assert_true(seconds[i] > 0 && seconds[i] < 0.9);
    }
    transfer_deaths_close(deaths);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_deaths_are_known_soon), /* first: it forks */
        cmocka_unit_test(test_every_way_moves_every_byte),
        cmocka_unit_test(test_orders_are_permutations_that_differ),
        cmocka_unit_test(test_the_command_prints_json),
        cmocka_unit_test(test_the_command_prints_a_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
