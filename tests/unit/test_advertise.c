/* advertise: the address that a worker registers, from its listener and its settings. */
#include "common/net/membership/advertise.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void test_settings(void **state)
{
    (void)state;
    static const struct {
        const char *setting, *host;
        unsigned port;
    } good[] = {
        {"10.0.0.5", "10.0.0.5", 0},
        {"10.0.0.5:7000", "10.0.0.5", 7000},
        {"worker-0.example", "worker-0.example", 0},
        {"worker-0.example:65535", "worker-0.example", 65535},
        {"[fd00::1]", "fd00::1", 0},
        {"[fd00::1]:7000", "fd00::1", 7000},
        {"fd00::1", "fd00::1", 0},
    };
    struct error err;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct advertise advertise;
        assert_int_equal(advertise_parse(good[i].setting, &advertise, &err), STATUS_OK);
        assert_string_equal(advertise.host, good[i].host);
        assert_int_equal(advertise.port, good[i].port);
    }
    char too_long[200];
    memset(too_long, 'a', sizeof too_long - 1);
    too_long[sizeof too_long - 1] = 0;
    const char *const bad[] = {
        "",           ":7000", "a:0",   "a:65536", "a:b",     "[fd00::1",  "[fd00::1]x",
        "a b",        "a\"b",  "a/b",   "a,b",     "0.0.0.0", "[::]:7000", "0:0:0:0:0:0:0:0",
        "[fd00::1]7", "*",     too_long};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct advertise advertise;
        assert_int_equal(advertise_parse(bad[i], &advertise, &err), STATUS_INVALID);
        assert_non_null(strstr(err.text, "to advertise"));
    }
}

static void test_what_is_registered(void **state)
{
    (void)state;
    static const struct {
        const char *setting, *listen, *router, *bound, *address;
    } cases[] = {
        /* An address that can be dialled is taken unchanged. */
        {"", "127.0.0.1:0", "10.0.0.1:1", "127.0.0.1:4001", "127.0.0.1:4001"},
        {"", "[::1]:0", "10.0.0.1:1", "[::1]:4001", "[::1]:4001"},
        {"", "localhost:0", "nowhere.invalid:1", "localhost:4001", "localhost:4001"},
        /* Every interface: the own end of the way to the router. */
        {"", "0.0.0.0:0", "127.0.0.1:1", "0.0.0.0:4001", "127.0.0.1:4001"},
        {"", "0.0.0.0:0", "127.0.0.7:1", "0.0.0.0:4001", "127.0.0.1:4001"},
        {"", "[::]:4001", "127.0.0.1:1", "[::]:4001", "127.0.0.1:4001"},
        {"", ":4001", "127.0.0.1:1", "[::]:4001", "127.0.0.1:4001"},
        {"", "[::]:0", "[::1]:1", "[::]:4001", "[::1]:4001"},
        /* The configured address goes before everything else. */
        {"10.0.0.5", "0.0.0.0:0", "nowhere.invalid:1", "0.0.0.0:4001", "10.0.0.5:4001"},
        {"node:7000", "127.0.0.1:0", "127.0.0.1:1", "127.0.0.1:4001", "node:7000"},
        {"[fd00::1]", "[::]:0", "127.0.0.1:1", "[::]:4001", "[fd00::1]:4001"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct advertise advertise;
        struct error err;
        char address[128];
        assert_int_equal(
            advertise_find(cases[i].setting, cases[i].listen, cases[i].router, &advertise, &err),
            STATUS_OK);
        assert_true(advertise_address(&advertise, cases[i].bound, address, sizeof address));
        assert_string_equal(address, cases[i].address);
    }
}

static void test_no_way_to_the_router(void **state)
{
    (void)state;
    static const char *const routers[] = {"nowhere.invalid:1", "127.0.0.1", "", "[::1:7"};
    for (size_t i = 0; i < sizeof routers / sizeof *routers; i++) {
        struct advertise advertise;
        struct error err;
        assert_int_equal(advertise_find("", "0.0.0.0:0", routers[i], &advertise, &err),
                         STATUS_NOT_FOUND);
        assert_non_null(strstr(err.text, "--advertise HOST"));
        assert_non_null(strstr(err.text, routers[i]));
    }
}

static void test_needed(void **state)
{
    (void)state;
    assert_true(advertise_needed("0.0.0.0:1"));
    assert_true(advertise_needed("[::]:1"));
    assert_true(advertise_needed(":1"));
    assert_false(advertise_needed("127.0.0.1:1"));
    assert_false(advertise_needed("[::1]:1"));
    struct advertise advertise = {.host = "a-host-with-a-name"};
    char address[8];
    assert_false(advertise_address(&advertise, "0.0.0.0:1", address, sizeof address));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_settings),
        cmocka_unit_test(test_what_is_registered),
        cmocka_unit_test(test_no_way_to_the_router),
        cmocka_unit_test(test_needed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
