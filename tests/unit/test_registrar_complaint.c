/* registrar_complaint: the log lines of failed registrations, and their times. */
#include "common/net/membership/registrar.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define START 5000000u
#define NONE  (-1)

struct ended {
    enum rpc_code code;
    uint64_t after_us; /* from START */
    int level;         /* level of the log line, or NONE */
};

/* One worker's registrations, in order. */
#define ASSERT_LEVELS(...)                                                                         \
    do {                                                                                           \
        const struct ended ended[] = {__VA_ARGS__};                                                \
        assert_levels(ended, sizeof ended / sizeof *ended);                                        \
    } while (0)
static void assert_levels(const struct ended *ended, size_t count)
{
    struct registrar_complaint complaint = {0};
    for (size_t i = 0; i < count; i++) {
        enum log_level level = LOG_DEBUG;
        bool due =
            registrar_complaint_due(&complaint, ended[i].code, START + ended[i].after_us, &level);
        assert_int_equal(due ? (int)level : NONE, ended[i].level);
    }
}

static void test_a_router_away_for_a_moment_is_no_warning(void **state)
{
    (void)state;
    ASSERT_LEVELS({RPC_UNAVAILABLE, 0, LOG_INFO}, {RPC_UNAVAILABLE, 900000, NONE},
                  {RPC_OK, 950000, NONE});
}

static void test_a_router_that_stays_away_is_warned_of_again_and_again(void **state)
{
    (void)state;
    const uint64_t warned = REGISTRAR_PATIENCE_US, again = warned + REGISTRAR_COMPLAIN_EVERY_US;
    ASSERT_LEVELS({RPC_UNAVAILABLE, 0, LOG_INFO}, {RPC_UNAVAILABLE, warned - 1, NONE},
                  {RPC_UNAVAILABLE, warned, LOG_WARN}, {RPC_UNAVAILABLE, again - 1, NONE},
                  {RPC_UNAVAILABLE, again, LOG_WARN});
    ASSERT_LEVELS({RPC_UNAVAILABLE, 0, LOG_INFO}, {RPC_UNAVAILABLE, 1100000, LOG_WARN},
                  {RPC_DEADLINE_EXCEEDED, 1200000, LOG_WARN},
                  {RPC_DEADLINE_EXCEEDED, 1300000, NONE});
}

static void test_a_refusal_is_an_error_at_once(void **state)
{
    (void)state;
    ASSERT_LEVELS({RPC_FAILED_PRECONDITION, 0, LOG_ERROR}, {RPC_FAILED_PRECONDITION, 1100000, NONE},
                  {RPC_INVALID_ARGUMENT, 1200000, LOG_ERROR});
    ASSERT_LEVELS({RPC_UNAVAILABLE, 0, LOG_INFO}, {RPC_INVALID_ARGUMENT, 100000, LOG_ERROR});
}

static void test_an_accepted_one_is_a_new_begin(void **state)
{
    (void)state;
    ASSERT_LEVELS({RPC_OK, 0, NONE}, {RPC_UNAVAILABLE, 500000, LOG_INFO}, {RPC_OK, 600000, NONE},
                  {RPC_UNAVAILABLE, 1700000, LOG_INFO}, {RPC_UNAVAILABLE, 2600000, NONE},
                  {RPC_UNAVAILABLE, 2700000, LOG_WARN});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_router_away_for_a_moment_is_no_warning),
        cmocka_unit_test(test_a_router_that_stays_away_is_warned_of_again_and_again),
        cmocka_unit_test(test_a_refusal_is_an_error_at_once),
        cmocka_unit_test(test_an_accepted_one_is_a_new_begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
