/* http_lookup: a name that no name server answers for costs its deadline and no more, and how many
 * are waited for in vain is bounded. */
#include "common/base/clock.h"
#include "common/base/failpoint.h"
#include "common/base/log.h"
#include "common/net/http/http_client.h"
#include "common/net/http/http_lookup.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define WAIT_US 20000000u /* for what must come */
#define SOON_US 20000u    /* for what doesn't */

static char folder[] = "/tmp/baton-lookup-XXXXXX";
static char log_path[128], go_path[160];

static enum status look_up(const char *text, uint64_t timeout_us, struct error *err)
{
    struct http_url url;
    struct addrinfo *found;
    assert_int_equal(http_url_parse(text, &url, err), STATUS_OK);
    enum status status = http_lookup(&url, clock_now_us() + timeout_us, &found, err);
    if (status == STATUS_OK) {
        assert_non_null(found);
        freeaddrinfo(found);
    }
    return status;
}

static void test_names_and_addresses(void **state)
{
    (void)state;
    struct error err;
    char none[80] = "";
    memset(none, 'a', 70); /* no part of a name is as long */
    strcat(none, ".b:80");
    assert_int_equal(look_up("127.0.0.1:80", WAIT_US, &err), STATUS_OK);
    assert_int_equal(look_up("[::1]:80", WAIT_US, &err), STATUS_OK);
    assert_int_equal(look_up("localhost:80", WAIT_US, &err), STATUS_OK);
    assert_int_equal(look_up(none, WAIT_US, &err), STATUS_UNAVAILABLE);
    assert_memory_equal(err.text, none, strlen(none));
}

static void arm(const char *spec)
{
    struct error err;
    setenv("BATON_FAILPOINTS", spec, 1);
    if (failpoint_init("test", &err) != STATUS_OK)
        fail_msg("%s", err.text);
}

/* Each name server is silent. */
static void test_lookups_that_hang(void **state)
{
    (void)state;
    struct error err;
    arm("http.lookup=pause@*");
    for (int i = 0; i < HTTP_LOOKUPS_MAX; i++)
        assert_int_equal(look_up("localhost:80", SOON_US, &err), STATUS_TIMEOUT);
    assert_string_equal(err.text, "localhost:80: its address was not found in time");
    assert_int_equal(look_up("localhost:80", WAIT_US, &err), STATUS_UNAVAILABLE);
    assert_non_null(strstr(err.text, "16 names are being looked up"));
    assert_int_equal(look_up("127.0.0.1:80", SOON_US, &err), STATUS_OK); /* is no name */
    FILE *go = fopen(go_path, "w");
    assert_non_null(go);
    fclose(go);
    uint64_t end_us = clock_now_us() + WAIT_US;
    while (look_up("localhost:80", WAIT_US, &err) != STATUS_OK) {
        assert_true(clock_now_us() < end_us);
        poll(NULL, 0, 1);
    }
}

static int set_up(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    snprintf(log_path, sizeof log_path, "%s/log", folder);
    snprintf(go_path, sizeof go_path, "%s.http.lookup.go", log_path);
    setenv("BATON_FAILPOINT_LOG", log_path, 1);
    setenv("BATON_FAILPOINTS_ALLOW", "1", 1); /* this test is built for release, too */
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    unlink(log_path);
    unlink(go_path);
    return rmdir(folder);
}

int main(void)
{
    log_init("test", LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_and_addresses),
        cmocka_unit_test(test_lookups_that_hang),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
