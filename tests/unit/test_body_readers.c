/* body_readers: large requests are read in turns of their owners. One that is taken back isn't
 * read. */
#include "router/doors/body_readers.h"

#include "common/base/ring.h"

#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#define WAIT_US 20000000u

static struct ring *begun; /* jobs that are read */
static sem_t let_go;       /* permissions to end one */

static void read_job(struct body_job *job)
{
    assert_int_equal(ring_push(begun, job), STATUS_OK);
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += WAIT_US / 1000000;
    assert_int_equal(sem_timedwait(&let_go, &until), 0);
}

static struct body_readers *roomy; /* readers of the jobs that free their copy early */

static void read_and_give_room(struct body_job *job)
{
    body_readers_give_room(roomy, job);
    body_readers_give_room(roomy, job); /* once only */
    read_job(job);
}

static void expect_begun(const struct body_job *job)
{
    assert_ptr_equal(ring_wait(begun, WAIT_US), job);
}

static void end_one(void)
{
    assert_int_equal(sem_post(&let_go), 0);
}

static int start(void **state)
{
    (void)state;
    return ring_create(64, &begun) || sem_init(&let_go, 0, 0);
}

static int stop(void **state)
{
    (void)state;
    ring_destroy(begun);
    sem_destroy(&let_go);
    return 0;
}

static struct body_readers *readers_of(unsigned threads, size_t most_bytes)
{
    struct body_readers *readers;
    struct error err;
    assert_int_equal(body_readers_start(threads, most_bytes, &readers, &err), STATUS_OK);
    return readers;
}

static void test_owners_take_turns(void **state)
{
    (void)state;
    enum { GREEDY = 6 };
    struct body_readers *readers = readers_of(1, 0);
    struct body_job greedy[GREEDY], other = {.read = read_job}, third = {.read = read_job};
    for (int i = 0; i < GREEDY; i++) {
        greedy[i] = (struct body_job){.read = read_job};
        assert_true(body_readers_give(readers, &greedy[i], 1));
    }
    expect_begun(&greedy[0]); /* while it is read, others come */
    assert_true(body_readers_give(readers, &other, 2));
    assert_true(body_readers_give(readers, &third, 3));
    end_one();
    expect_begun(&other);
    end_one();
    expect_begun(&third);
    for (int i = 1; i < GREEDY; i++) {
        end_one();
        expect_begun(&greedy[i]);
    }
    end_one();
    body_readers_stop(readers);
}

static void test_a_job_that_is_taken_back_is_not_read(void **state)
{
    (void)state;
    struct body_readers *readers = readers_of(1, 0);
    struct body_job first = {.read = read_job}, second = first, last = first;
    assert_true(body_readers_give(readers, &first, 1));
    assert_true(body_readers_give(readers, &second, 1));
    assert_true(body_readers_give(readers, &last, 1));
    expect_begun(&first);
    assert_false(body_readers_take_back(readers, &first)); /* too late */
    assert_true(body_readers_take_back(readers, &second));
    assert_false(body_readers_take_back(readers, &second));
    end_one();
    expect_begun(&last);
    end_one();
    body_readers_stop(readers);
}

static void test_copies_are_bounded(void **state)
{
    (void)state;
    struct body_readers *readers = readers_of(1, 100);
    struct body_job first = {.read = read_job, .bytes = 60},
                    second = {.read = read_job, .bytes = 41},
                    fitting = {.read = read_job, .bytes = 40}, free_of_it = {.read = read_job};
    assert_true(body_readers_give(readers, &first, 1));
    expect_begun(&first); /* and counts while it is read */
    assert_false(body_readers_give(readers, &second, 2));
    assert_true(body_readers_give(readers, &fitting, 2));
    assert_true(body_readers_give(readers, &free_of_it, 3));
    assert_true(body_readers_take_back(readers, &fitting));
    end_one();
    expect_begun(&free_of_it);
    assert_true(body_readers_give(readers, &second, 2));
    end_one();
    expect_begun(&second);
    end_one();
    body_readers_stop(readers);
}

/* The room is there again before `read` ends: an answer is sent between the two. */
static void test_room_of_a_copy_that_is_freed_early(void **state)
{
    (void)state;
    roomy = readers_of(2, 100);
    struct body_job first = {.read = read_and_give_room, .bytes = 60}, again = first,
                    third = {.read = read_job, .bytes = 41};
    assert_true(body_readers_give(roomy, &first, 1));
    expect_begun(&first);
    assert_true(body_readers_give(roomy, &again, 1));
    expect_begun(&again);
    end_one();
    end_one();
    body_readers_stop(roomy);
    roomy = readers_of(1, 100);
    assert_true(body_readers_give(roomy, &first, 1));
    expect_begun(&first);
    again.read = read_job; /* waits, and counts once */
    assert_true(body_readers_give(roomy, &again, 1));
    assert_false(body_readers_give(roomy, &third, 2));
    end_one();
    expect_begun(&again);
    end_one();
    body_readers_stop(roomy);
}

/* One owner's copies leave as much free as they take: another's large message is still read. A
 * first copy needs no more than room, and one without bytes nothing. */
static void test_a_stranger_fills_its_share(void **state)
{
    (void)state;
    enum { COUNT = 7 };
    struct body_readers *readers = readers_of(1, 100);
    struct body_job greedy[COUNT], other = {.read = read_job, .bytes = 40},
                                   more = {.read = read_job, .bytes = 10},
                                   whole = {.read = read_job, .bytes = 100};
    for (int i = 0; i < COUNT; i++)
        greedy[i] = (struct body_job){.read = read_job, .bytes = i + 1 < COUNT ? 10 : 0};
    assert_true(body_readers_give(readers, &greedy[0], 1));
    expect_begun(&greedy[0]); /* counts, while it is read */
    for (int i = 1; i < 5; i++)
        assert_true(body_readers_give(readers, &greedy[i], 1));
    assert_false(body_readers_give(readers, &greedy[5], 1)); /* 60 of 100 */
    assert_true(body_readers_give(readers, &greedy[6], 1));  /* not a copy */
    assert_true(body_readers_give(readers, &other, 2));
    assert_false(body_readers_give(readers, &more, 2)); /* 50, and nothing stays free */
    end_one();
    expect_begun(&other); /* its turn comes first, too */
    for (int i = 1; i < 5; i++)
        assert_true(body_readers_take_back(readers, &greedy[i]));
    assert_true(body_readers_give(readers, &more, 2)); /* the greedy owner's are gone */
    assert_true(body_readers_take_back(readers, &more));
    assert_true(body_readers_take_back(readers, &greedy[6]));
    end_one();
    assert_true(body_readers_give(readers, &more, 3)); /* `other` is read, and may count yet */
    expect_begun(&more);
    end_one();
    body_readers_stop(readers);
    readers = readers_of(1, 100);
    assert_true(body_readers_give(readers, &whole, 1));
    expect_begun(&whole);
    end_one();
    body_readers_stop(readers);
}

static void test_share_of_memory(void **state)
{
    (void)state;
    assert_int_equal(body_readers_share(512u << 20, 5u << 20), 128u << 20);
    assert_int_equal(body_readers_share(16u << 20, 5u << 20), 5u << 20); /* one fits always */
}

static void test_several_threads(void **state)
{
    (void)state;
    struct body_readers *readers = readers_of(3, 0);
    struct body_job jobs[3];
    for (int i = 0; i < 3; i++) {
        jobs[i] = (struct body_job){.read = read_job};
        assert_true(body_readers_give(readers, &jobs[i], 1));
    }
    for (int i = 0; i < 3; i++) /* all at once */
        assert_non_null(ring_wait(begun, WAIT_US));
    for (int i = 0; i < 3; i++)
        end_one();
    body_readers_stop(readers);
}

static void test_small_ones_are_not_wanted(void **state)
{
    (void)state;
    struct body_readers *readers = readers_of(1, 0);
    assert_false(body_readers_wanted(readers, BODY_READERS_SMALL_BYTES));
    assert_true(body_readers_wanted(readers, BODY_READERS_SMALL_BYTES + 1));
    assert_false(body_readers_wanted(NULL, SIZE_MAX));
    body_readers_stop(readers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_owners_take_turns),
        cmocka_unit_test(test_a_job_that_is_taken_back_is_not_read),
        cmocka_unit_test(test_copies_are_bounded),
        cmocka_unit_test(test_room_of_a_copy_that_is_freed_early),
        cmocka_unit_test(test_a_stranger_fills_its_share),
        cmocka_unit_test(test_share_of_memory),
        cmocka_unit_test(test_several_threads),
        cmocka_unit_test(test_small_ones_are_not_wanted),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
