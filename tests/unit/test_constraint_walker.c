/* constraint_walker: walks take turns of so many nodes, and a walk that is taken back gets no turn
 * after its current one. The walks here are scripted: a turn ends when the test says so. The linker
 * wraps _take_back and its wait (--wrap), so that the test sees it wait. */
#include "common/worker/constraint_walker.h"

#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* In place of the walk over a vocabulary. */
struct constraint_walk {
    char name;
    uint32_t turns; /* turns left */
    bool gated;     /* its first turn posts `reached` and waits for `open` */
};

static struct {
    pthread_t step_thread;
    sem_t reached, open, through;
    char turns[16]; /* the names of walks that had a turn, in their order */
    size_t count;
    uint64_t nodes; /* nodes of a turn; `unequal`: turns differed */
    bool unequal;
    bool open_at_wait; /* once the step thread waits for the walker */
} script;

bool __wrap_constraint_walk_go(struct constraint_walk *walk, uint32_t *bits, uint64_t *nodes_left);
int __real_pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *lock);
int __wrap_pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *lock);

/* On the walker's thread. */
bool __wrap_constraint_walk_go(struct constraint_walk *walk, uint32_t *bits, uint64_t *nodes_left)
{
    (void)bits;
    if (walk->gated) {
        walk->gated = false;
        sem_post(&script.reached);
        sem_wait(&script.open);
    }
    script.unequal |= script.count && script.nodes != *nodes_left;
    script.nodes = *nodes_left;
    *nodes_left = 0;
    if (script.count + 1 < sizeof script.turns)
        script.turns[script.count++] = walk->name;
    return --walk->turns == 0;
}

int __wrap_pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *lock)
{
    if (script.open_at_wait && pthread_equal(pthread_self(), script.step_thread))
        sem_post(&script.open);
    return __real_pthread_cond_wait(condition, lock);
}

static void post(void *context)
{
    sem_post(context);
}

static struct constraint_walker *open_walker(bool open_at_wait)
{
    struct constraint_walker *walker;
    memset(&script, 0, sizeof script);
    script.step_thread = pthread_self();
    script.open_at_wait = open_at_wait;
    sem_init(&script.reached, 0, 0);
    sem_init(&script.open, 0, 0);
    sem_init(&script.through, 0, 0);
    assert_int_equal(constraint_walker_create(post, &script.through, &walker), STATUS_OK);
    return walker;
}

/* After this, the results of the walks can be read. */
static void close_walker(struct constraint_walker *walker)
{
    constraint_walker_destroy(walker);
    sem_destroy(&script.reached);
    sem_destroy(&script.open);
    sem_destroy(&script.through);
}

static void start(struct constraint_walker *walker, struct walker_task *task)
{
    constraint_walker_post(walker, task);
    constraint_walker_wake(walker);
}

static void test_walks_take_turns_of_so_many_nodes(void **state)
{
    (void)state;
    struct constraint_walker *walker = open_walker(false);
    struct constraint_walk walks[] = {{'a', 3, true}, {'b', 1, false}, {'c', 2, false}};
    struct walker_task tasks[3];
    for (int i = 0; i < 3; i++)
        tasks[i] = (struct walker_task){.walk = &walks[i]};
    start(walker, &tasks[0]);
    sem_wait(&script.reached); /* the others are queued before its turn ends */
    constraint_walker_post(walker, &tasks[1]);
    start(walker, &tasks[2]);
    assert_null(constraint_walker_take(walker));
    sem_post(&script.open);
    for (int i = 0; i < 3; i++)
        sem_wait(&script.through);
    assert_ptr_equal(constraint_walker_take(walker), &tasks[1]);
    assert_ptr_equal(constraint_walker_take(walker), &tasks[2]);
    assert_ptr_equal(constraint_walker_take(walker), &tasks[0]);
    assert_null(constraint_walker_take(walker));
    close_walker(walker);
    assert_string_equal(script.turns, "abcaca");
    assert_int_equal(script.nodes, CONSTRAINT_WALKER_NODES);
    assert_false(script.unequal);
}

/* This holds however much of the walk is left, and although nothing else is queued: the walker took
 * the lock again at once. */
static void test_a_walk_taken_back_has_no_turn_more(void **state)
{
    (void)state;
    struct constraint_walker *walker = open_walker(true);
    struct constraint_walk walk = {'a', 1000, true};
    struct walker_task task = {.walk = &walk};
    start(walker, &task);
    sem_wait(&script.reached);
    assert_false(constraint_walker_take_back(walker, &task)); /* its turn ends while that waits */
    assert_int_equal(walk.turns, 999);
    assert_null(constraint_walker_take(walker));
    /* It may be posted again, and goes on. */
    walk.turns = 2;
    start(walker, &task);
    sem_wait(&script.through);
    assert_ptr_equal(constraint_walker_take(walker), &task);
    close_walker(walker);
    assert_string_equal(script.turns, "aaa");
}

static void test_a_walk_taken_back_may_be_whole(void **state)
{
    (void)state;
    struct constraint_walker *walker = open_walker(true);
    struct constraint_walk last = {'a', 1, true}, done = {'b', 1, false};
    struct walker_task task = {.walk = &last}, other = {.walk = &done};
    start(walker, &task);
    sem_wait(&script.reached);
    assert_true(constraint_walker_take_back(walker, &task)); /* by the turn that it was in */
    start(walker, &other);
    sem_wait(&script.through);
    sem_wait(&script.through);
    /* even before the walker reports it */
    assert_true(constraint_walker_take_back(walker, &other));
    assert_null(constraint_walker_take(walker));
    close_walker(walker);
    assert_string_equal(script.turns, "ab");
}

/* Taking a walk back doesn't wait for another walk's turn. */
static void test_a_walk_that_is_queued_is_taken_back_at_once(void **state)
{
    (void)state;
    struct constraint_walker *walker = open_walker(false);
    struct constraint_walk first = {'a', 1, true}, second = {'b', 1, false};
    struct walker_task walked = {.walk = &first}, queued = {.walk = &second};
    start(walker, &walked);
    sem_wait(&script.reached);
    start(walker, &queued);
    assert_false(constraint_walker_take_back(walker, &queued));
    sem_post(&script.open);
    sem_wait(&script.through);
    assert_ptr_equal(constraint_walker_take(walker), &walked);
    close_walker(walker);
    assert_string_equal(script.turns, "a");
    assert_int_equal(second.turns, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_walks_take_turns_of_so_many_nodes),
        cmocka_unit_test(test_a_walk_taken_back_has_no_turn_more),
        cmocka_unit_test(test_a_walk_taken_back_may_be_whole),
        cmocka_unit_test(test_a_walk_that_is_queued_is_taken_back_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
