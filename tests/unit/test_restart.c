/* restart: when an ended process is started again; stop_signals: which signals stop it. */
#include "common/cli/process.h"

#include "common/base/stop_signals.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>

#include <cmocka.h>

#define MS_US     1000u
#define CAP_US    (1000 * MS_US)
#define SECOND_US (1000 * MS_US)

static void test_the_wait_doubles_up_to_the_cap(void **state)
{
    (void)state;
    static const uint64_t waits_ms[] = {100, 200, 400, 800, 1000, 1000, 1000};
    struct restart restart = {0};
    uint64_t now_us = 5 * SECOND_US;
    uint32_t told = 0;
    for (size_t i = 0; i < sizeof waits_ms / sizeof *waits_ms; i++) {
        told += restart_on_end(&restart, false, CAP_US, now_us);
        assert_int_equal(told, i + 1 >= RESTART_LOOP_ENDS ? 1 : 0); /* once */
        assert_int_equal(restart.due_us, now_us + waits_ms[i] * MS_US);
        now_us = restart.due_us;
        restart_on_started(&restart);
        assert_int_equal(restart.due_us, 0);
        assert_int_equal(restart.count, i + 1);
        if (i % 2) /* serving for a moment is no recovery */
            restart_on_ready(&restart, now_us);
        now_us += SECOND_US;
    }
}

static void test_a_healthy_while_starts_from_the_beginning(void **state)
{
    (void)state;
    struct restart restart = {0};
    uint64_t now_us = SECOND_US;
    for (int life = 0; life < 3; life++) {
        for (int i = 0; i < RESTART_LOOP_ENDS; i++)
            assert_int_equal(restart_on_end(&restart, false, CAP_US, now_us),
                             i + 1 == RESTART_LOOP_ENDS);
        restart_on_started(&restart);
        restart_on_ready(&restart, now_us);
        now_us += RESTART_HEALTHY_US;
    }
    assert_false(restart_on_end(&restart, false, CAP_US, now_us));
    assert_int_equal(restart.wait_us, RESTART_FIRST_US);
    restart_on_ready(&restart, now_us);
    restart_on_end(&restart, false, CAP_US, now_us + RESTART_HEALTHY_US - 1); /* not quite */
    assert_int_equal(restart.wait_us, 2 * RESTART_FIRST_US);
}

/* An operator ends it again and again: each time it is back at once, and a crash after that counts
 * as the first one. */
static void test_an_orderly_end_is_no_crash(void **state)
{
    (void)state;
    struct restart restart = {0};
    uint64_t now_us = SECOND_US;
    for (int life = 0; life < RESTART_ORDERLY; life++) {
        restart_on_ready(&restart, now_us);
        now_us += SECOND_US;
        assert_false(restart_on_end(&restart, true, CAP_US, now_us));
        assert_int_equal(restart.due_us, now_us + RESTART_FIRST_US);
        restart_on_started(&restart);
        if (life % 2) { /* between crashes, too */
            restart_on_end(&restart, false, CAP_US, now_us);
            assert_int_equal(restart.wait_us, RESTART_FIRST_US << life / 2);
            restart_on_started(&restart);
        }
    }
}

/* A process that ends in order before it serves, or again and again, counts as a restart loop: it
 * doesn't spin. */
static void test_a_loop_of_orderly_ends_is_one(void **state)
{
    (void)state;
    struct restart never = {0}, always = {0};
    for (int i = 0; i < RESTART_LOOP_ENDS; i++)
        assert_int_equal(restart_on_end(&never, true, CAP_US, SECOND_US),
                         i + 1 == RESTART_LOOP_ENDS);
    assert_int_equal(never.wait_us, CAP_US);
    for (int i = 0; i < RESTART_ORDERLY + RESTART_LOOP_ENDS; i++) {
        restart_on_ready(&always, SECOND_US);
        assert_int_equal(restart_on_end(&always, true, CAP_US, SECOND_US + 1),
                         i + 1 == RESTART_ORDERLY + RESTART_LOOP_ENDS);
    }
    assert_int_equal(always.wait_us, CAP_US);
}

static void test_a_cap_below_the_first_wait(void **state)
{
    (void)state;
    struct restart restart = {0};
    restart_on_end(&restart, false, 10 * MS_US, 0);
    assert_int_equal(restart.wait_us, 10 * MS_US);
}

/* Two signals at once are one Ctrl-C that came by two ways; a quarter of a second later it is
 * meant. */
static void test_signals_at_once_are_one_wish(void **state)
{
    (void)state;
    struct stop_signals signals;
    struct error err;
    assert_int_equal(stop_signals_open(&signals, &err), STATUS_OK);
    uint64_t now_us = 7 * SECOND_US;
    assert_false(stop_signals_take(&signals, now_us));
    kill(getpid(), SIGINT);
    kill(getpid(), SIGTERM);
    assert_true(stop_signals_take(&signals, now_us));
    kill(getpid(), SIGTERM);
    assert_false(stop_signals_take(&signals, now_us + STOP_SIGNALS_ONE_US - 1));
    assert_int_equal(signals.wishes, 1);
    assert_false(stop_signals_take(&signals, now_us + STOP_SIGNALS_ONE_US)); /* nothing came */
    kill(getpid(), SIGHUP);
    assert_true(stop_signals_take(&signals, now_us + STOP_SIGNALS_ONE_US));
    assert_int_equal(signals.wishes, 2);
    stop_signals_close(&signals);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_wait_doubles_up_to_the_cap),
        cmocka_unit_test(test_a_healthy_while_starts_from_the_beginning),
        cmocka_unit_test(test_an_orderly_end_is_no_crash),
        cmocka_unit_test(test_a_loop_of_orderly_ends_is_one),
        cmocka_unit_test(test_a_cap_below_the_first_wait),
        cmocka_unit_test(test_signals_at_once_are_one_wish),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
