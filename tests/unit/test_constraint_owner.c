/* constraint_owner_of: one address is one owner, whatever its ports; so is one network of IPv6. */
#include "router/dispatch/constraint_checks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const struct {
    const char *a, *b;
    int same;
} pairs[] = {
    {"127.0.0.1:4242", "127.0.0.1:4243", 1},
    {"127.0.0.1:4242", "127.0.0.2:4242", 0},
    {"[2001:db8::1]:1", "[2001:db8::ffff:2]:2", 1},
    {"[2001:db8::1]:1", "[2001:db8:0:1::1]:1", 0},
    {"[fe80::1%eth0]:1", "[fe80::2%eth1]:1", 1},
    {"[::ffff:10.0.0.1]:1", "10.0.0.1:7", 1},
    {"[::ffff:10.0.0.1]:1", "[::ffff:10.0.0.2]:1", 0},
    {"unix", "unix", 1},
    {"unix", "", 0},
    {"[", "[]:1", 0},
    {"[not an address]:1", "[not an address]:2", 1},
    {"[0000000000000000000000000000000000000000000000000000000000000000000000000000000000]:1",
     "[0000000000000000000000000000000000000000000000000000000000000000000000000000000000]:2", 1},
};

static void test_owners(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if ((constraint_owner_of("", pairs[i].a) == constraint_owner_of("", pairs[i].b)) !=
            pairs[i].same)
            fail_msg("%s and %s: same expected %d", pairs[i].a, pairs[i].b, pairs[i].same);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_owners)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
