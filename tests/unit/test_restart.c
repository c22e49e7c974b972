/* restart: when an ended process is started again; liveness: when one that runs counts as dead;
 * stop_signals: which signals stop it. */
#include "common/cli/process.h"

#include "common/base/stop_signals.h"
#include "common/cli/liveness.h"

#include <arpa/inet.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/resource.h>
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

/* Begins at 10 s, and takes turns at each time that is due, as the supervisor does. */
static void test_a_silent_process_is_reported_and_ended(void **state)
{
    (void)state;
    static const struct {
        uint64_t limit_ms;
        struct {
            enum liveness_act act;
            uint64_t at_ms;
        } turns[4];
    } rows[] = {
        {20000, {{LIVENESS_ASK, 15000}, {LIVENESS_SAY, 18000}, {LIVENESS_END, 30000}}},
        {2000, {{LIVENESS_ASK, 10500}, {LIVENESS_SAY, 11000}, {LIVENESS_END, 12000}}},
        {0, {{LIVENESS_ASK, 15000}, {LIVENESS_SAY, 18000}}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint64_t limit_us = rows[i].limit_ms * MS_US;
        struct liveness liveness = {0};
        assert_true(liveness_next_us(&liveness, limit_us) == UINT64_MAX);
        assert_int_equal(liveness_turn(&liveness, limit_us, 10 * SECOND_US), LIVENESS_WAIT);
        liveness_begin(&liveness, limit_us, 10 * SECOND_US);
        for (size_t j = 0; rows[i].turns[j].at_ms; j++) {
            uint64_t at_us = rows[i].turns[j].at_ms * MS_US;
            assert_int_equal(liveness_next_us(&liveness, limit_us), at_us);
            assert_int_equal(liveness_turn(&liveness, limit_us, at_us - 1), LIVENESS_WAIT);
            assert_int_equal(liveness_turn(&liveness, limit_us, at_us), rows[i].turns[j].act);
        }
        assert_true(liveness_next_us(&liveness, limit_us) == UINT64_MAX);
    }
}

static void test_an_answer_begins_anew(void **state)
{
    (void)state;
    const uint64_t limit_us = 20 * SECOND_US;
    struct liveness liveness;
    liveness_begin(&liveness, limit_us, 10 * SECOND_US);
    assert_int_equal(liveness_turn(&liveness, limit_us, 15 * SECOND_US), LIVENESS_ASK);
    assert_false(liveness_heard(&liveness, limit_us, 16 * SECOND_US));
    assert_int_equal(liveness_turn(&liveness, limit_us, 21 * SECOND_US), LIVENESS_ASK);
    assert_int_equal(liveness_turn(&liveness, limit_us, 24 * SECOND_US), LIVENESS_SAY);
    assert_true(liveness_heard(&liveness, limit_us, 35 * SECOND_US)); /* just in time */
    assert_int_equal(liveness_next_us(&liveness, limit_us), 40 * SECOND_US);
    /* Questions that can't be put are put again, and silence counts from the last sign of life. */
    for (unsigned s = 40; s < 55; s += 5) {
        assert_int_equal(liveness_turn(&liveness, limit_us, s * SECOND_US), LIVENESS_ASK);
        liveness_failed(&liveness, limit_us, s * SECOND_US);
        if (s == 40)
            assert_int_equal(liveness_turn(&liveness, limit_us, 43 * SECOND_US), LIVENESS_SAY);
    }
    assert_int_equal(liveness_turn(&liveness, limit_us, 55 * SECOND_US), LIVENESS_END);
}

/* The supervisor was stopped, alone or with all of them: silence of that time isn't theirs. */
static void test_a_stop_of_our_own_is_no_silence(void **state)
{
    (void)state;
    const uint64_t limit_us = 20 * SECOND_US;
    for (unsigned asked = 0; asked < 2; asked++) {
        struct liveness liveness;
        liveness_begin(&liveness, limit_us, 10 * SECOND_US);
        if (asked)
            assert_int_equal(liveness_turn(&liveness, limit_us, 15 * SECOND_US), LIVENESS_ASK);
        /* The next turn would have been at 15 s or 18 s. */
        uint64_t late_us = (asked ? 82 : 85) * (uint64_t)SECOND_US;
        assert_int_equal(liveness_turn(&liveness, limit_us, 100 * (uint64_t)SECOND_US),
                         asked ? LIVENESS_SAY : LIVENESS_ASK);
        assert_int_equal(liveness.heard_us, 10 * SECOND_US + late_us);
        if (!asked)
            assert_int_equal(liveness_turn(&liveness, limit_us, 103 * (uint64_t)SECOND_US),
                             LIVENESS_SAY);
        uint64_t end_us = 30 * SECOND_US + late_us;
        assert_int_equal(liveness_turn(&liveness, limit_us, end_us - 1), LIVENESS_WAIT);
        assert_int_equal(liveness_turn(&liveness, limit_us, end_us), LIVENESS_END);
    }
}

/* The supervisor has no descriptor for a while: nothing tells that the process is silent. */
static void test_a_question_that_cannot_be_put_is_no_silence(void **state)
{
    (void)state;
    const uint64_t limit_us = 20 * SECOND_US;
    for (unsigned unanswered = 0; unanswered < 2; unanswered++) {
        struct liveness liveness;
        liveness_begin(&liveness, limit_us, 10 * SECOND_US);
        uint64_t now_us = 15 * SECOND_US, end_us = 115 * SECOND_US;
        if (unanswered) {
            assert_int_equal(liveness_turn(&liveness, limit_us, now_us), LIVENESS_ASK);
            liveness_failed(&liveness, limit_us, now_us);
            assert_int_equal(liveness_turn(&liveness, limit_us, 18 * SECOND_US), LIVENESS_SAY);
            now_us += 5 * SECOND_US;
        }
        for (unsigned first = 1; now_us < end_us; first = 0, now_us += 5 * SECOND_US) {
            assert_int_equal(liveness_next_us(&liveness, limit_us), now_us);
            assert_int_equal(liveness_turn(&liveness, limit_us, now_us), LIVENESS_ASK);
            assert_int_equal(liveness_postponed(&liveness, limit_us, now_us), first);
        }
        /* It can ask again: silence of before counts, and what remains of the limit ends it. */
        uint64_t left_us = limit_us - (unanswered ? 10 : 5) * SECOND_US;
        assert_int_equal(liveness_turn(&liveness, limit_us, now_us), LIVENESS_ASK);
        if (!unanswered)
            assert_int_equal(liveness_turn(&liveness, limit_us, now_us + 3 * SECOND_US),
                             LIVENESS_SAY);
        assert_int_equal(liveness_turn(&liveness, limit_us, now_us + left_us - 1), LIVENESS_WAIT);
        assert_int_equal(liveness_turn(&liveness, limit_us, now_us + left_us), LIVENESS_END);
    }
}

/* The kernel makes the connection to a process that is stopped. This is no answer; bytes and an end
 * are, and so is an end of a door that is full. */
static void test_what_answers_a_question(void **state)
{
    (void)state;
    struct liveness_question question = {.fd = -1};
    assert_int_equal(liveness_ask(&question, "no port"), LIVENESS_CANNOT);
    assert_int_equal(liveness_ask(&question, "some.name:80"), LIVENESS_CANNOT);
    int door = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof at;
    assert_int_equal(bind(door, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(getsockname(door, (struct sockaddr *)&at, &length), 0);
    char names[2][64];
    snprintf(names[0], sizeof names[0], "127.0.0.1:%u", ntohs(at.sin_port));
    snprintf(names[1], sizeof names[1], "localhost:%u", ntohs(at.sin_port));
    assert_int_equal(liveness_ask(&question, names[0]), LIVENESS_REFUSED); /* nothing listens */
    assert_int_equal(listen(door, 8), 0);
    struct rlimit files, none;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    none = (struct rlimit){.rlim_max = files.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    enum liveness_asked without = liveness_ask(&question, names[0]);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
    assert_int_equal(without, LIVENESS_CANNOT);
    assert_int_equal(question.fd, -1);
    for (int speaks = 0; speaks < 2; speaks++) {
        assert_int_equal(liveness_ask(&question, names[speaks]), LIVENESS_OUT);
        struct pollfd readable = {.fd = question.fd, .events = POLLIN};
        assert_int_equal(poll(&readable, 1, 20), 0);
        int fd = accept(door, NULL, NULL);
        assert_true(fd >= 0);
        if (speaks)
            assert_int_equal(send(fd, "x", 1, MSG_NOSIGNAL), 1);
        else
            close(fd);
        assert_int_equal(poll(&readable, 1, 20000), 1);
        assert_true(liveness_answered(&question));
        assert_int_equal(question.fd, -1);
        if (speaks)
            close(fd);
    }
    close(door);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_silent_process_is_reported_and_ended),
        cmocka_unit_test(test_an_answer_begins_anew),
        cmocka_unit_test(test_a_stop_of_our_own_is_no_silence),
        cmocka_unit_test(test_a_question_that_cannot_be_put_is_no_silence),
        cmocka_unit_test(test_what_answers_a_question),
        cmocka_unit_test(test_the_wait_doubles_up_to_the_cap),
        cmocka_unit_test(test_a_healthy_while_starts_from_the_beginning),
        cmocka_unit_test(test_an_orderly_end_is_no_crash),
        cmocka_unit_test(test_a_loop_of_orderly_ends_is_one),
        cmocka_unit_test(test_a_cap_below_the_first_wait),
        cmocka_unit_test(test_signals_at_once_are_one_wish),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
