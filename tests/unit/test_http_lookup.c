/* http_client and names: a name that no name server answers for costs its timeout and no more. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/net/http/http_client.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "hung_lookup.h"

#define WAIT_US 20000000u /* for events that must come */
#define SOON_US 20000u    /* for events that must not come */

/* Nothing listens at port 1. */
static enum status call(const char *url, uint64_t timeout_us, struct error *err)
{
    struct str body;
    str_init(&body, 64);
    enum status status = http_get(&(struct http_remote){.url = url}, "/", timeout_us, &body, err);
    str_deinit(&body);
    return status;
}

static void test_names_and_addresses(void **state)
{
    (void)state;
    static const char *const found[] = {"127.0.0.1:1", "[::1]:1", "localhost:1"};
    struct error err;
    char none[80] = "";
    memset(none, 'a', 70); /* no part of a name is as long */
    strcat(none, ".b:80");
    for (size_t i = 0; i < sizeof found / sizeof *found; i++) {
        assert_int_equal(call(found[i], WAIT_US, &err), STATUS_UNAVAILABLE);
        assert_memory_equal(err.text, "cannot connect to ", 18);
        assert_non_null(strstr(err.text, found[i]));
    }
    assert_int_equal(call(none, WAIT_US, &err), STATUS_UNAVAILABLE);
    assert_memory_equal(err.text, none, strlen(none));
    assert_non_null(strstr(err.text, "no address is known for this name"));
}

/* Each name server is silent. */
static void test_lookups_that_hang(void **state)
{
    (void)state;
    struct error err;
    hung_lookup_set(true);
    for (int i = 0; i < 16; i++) {
        uint64_t begin_us = clock_now_us();
        assert_int_equal(call(HUNG_NAME ":1", SOON_US, &err), STATUS_TIMEOUT);
        assert_true(clock_now_us() - begin_us < WAIT_US);
    }
    assert_string_equal(err.text, HUNG_NAME ":1: its address was not found in time");
    assert_int_equal(call("127.0.0.1:1", WAIT_US, &err), STATUS_UNAVAILABLE); /* is no name */
    hung_lookup_set(false);
    assert_int_equal(call(HUNG_NAME ":1", WAIT_US, &err), STATUS_UNAVAILABLE);
    assert_non_null(strstr(err.text, "cannot connect to " HUNG_NAME ":1"));
}

int main(void)
{
    log_init("test", LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_and_addresses),
        cmocka_unit_test(test_lookups_that_hang),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
