/* request_names: bounded, and nothing that a name says can forge a log line. */
#include "common/worker/request_names.h"

#include "common/base/log.h"
#include "common/base/request_id.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void test_names(void **state)
{
    (void)state;
    struct request_names names;
    assert_int_equal(request_names_init(&names, 2), STATUS_OK);
    struct sequence_key a = {7, 1}, newer = {7, 2}, c = {8, 1};
    assert_string_equal(request_names_get(&names, a), "unknown");
    request_names_put(&names, a, "r0");
    request_names_put(&names, newer, "r0-again");
    request_names_put(&names, c, "no room");
    assert_false(request_names_has(&names, c));
    request_names_drop(&names, c);
    assert_string_equal(request_names_get(&names, a), "r0");
    assert_string_equal(request_names_get(&names, newer), "r0-again");
    request_names_drop(&names, a);
    assert_false(request_names_has(&names, a));
    assert_string_equal(request_names_get(&names, newer), "r0-again");
    request_names_put(&names, c, "a b\n\"c\xff");
    assert_string_equal(request_names_get(&names, c), "a?b??c?");
    char name[300];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = 0;
    request_names_put(&names, c, name);
    assert_int_equal(strlen(request_names_get(&names, c)), REQUEST_MAX_ID_BYTES);
    request_names_deinit(&names);
}

/* Clients cause them at will. */
static void test_failures_are_told_a_limited_number_of_times(void **state)
{
    (void)state;
    struct request_names names;
    assert_int_equal(request_names_init(&names, 1), STATUS_OK);
    struct step_event event = {.kind = STEP_REFUSED, .key = {7, 1}, .status = STATUS_LIMIT};
    error_set(&event.err, STATUS_LIMIT, "no \"room\"");
    request_names_put(&names, event.key, "r0");
    FILE *text = tmpfile();
    int before = dup(STDERR_FILENO);
    assert_true(text && before >= 0);
    assert_true(dup2(fileno(text), STDERR_FILENO) >= 0);
    log_init("test", LOG_INFO);
    for (int i = 0; i < 3 * LOG_LIMIT_LINES; i++)
        request_names_log_failed(&names, "role", &event);
    event.kind = STEP_FAILED;
    request_names_log_failed(&names, "role", &event);
    assert_true(dup2(before, STDERR_FILENO) >= 0);
    close(before);
    rewind(text);
    char line[LOG_MAX_LINE_BYTES + 1];
    int refused = 0, failed = 0;
    while (fgets(line, sizeof line, text)) {
        assert_non_null(strstr(line, "req=r0 id=0000000000000007 attempt=1 "));
        assert_non_null(strstr(line, "why=\"no \\\"room\\\"\""));
        refused += strstr(line, "level=warn") && strstr(line, "mod=role") &&
                   strstr(line, "msg=\"refused\"");
        failed += strstr(line, "level=error") && strstr(line, "msg=\"a step failed\"");
    }
    fclose(text);
    assert_int_equal(refused, LOG_LIMIT_LINES);
    assert_int_equal(failed, 1);
    request_names_deinit(&names);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_failures_are_told_a_limited_number_of_times),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
