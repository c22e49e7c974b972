/* batch_plan and policy: whose rows a step has. */
#include "common/engine/sched/batch_plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 16 };

struct batch_case {
    struct batch_limits limits;
    struct sequence sequences[MOST];
    struct sequence *by_arrival[MOST];
    uint32_t count;
    struct ranked scratch[BATCH_GROUPS * MOST];
    struct planned_rows parts[MOST];
};

/* The next one to come: `prompt` rows, of which `computed` are done; all done: it decodes. */
static struct sequence *add(struct batch_case *c, enum priority priority, uint32_t prompt,
                            uint32_t computed)
{
    struct sequence *sequence = &c->sequences[c->count];
    *sequence = (struct sequence){.key = {c->count, 1},
                                  .plan = PLAN_LOCAL,
                                  .state = computed < prompt ? SEQUENCE_PREFILL : SEQUENCE_DECODE,
                                  .class_index = priority_class(priority),
                                  .order = c->count,
                                  .prompt_count = prompt,
                                  .token_count = computed < prompt ? prompt : prompt + 1,
                                  .computed = computed};
    c->by_arrival[c->count++] = sequence;
    return sequence;
}

/* "0:1 3:4 ..." of request and rows, a "*" where a token is drawn. */
static const char *plan(struct batch_case *c, enum policy_kind policy)
{
    static char text[256];
    uint32_t count =
        batch_plan(&c->limits, policy_of(policy), c->by_arrival, c->count, c->scratch, c->parts);
    char *at = text;
    *at = 0;
    for (uint32_t i = 0; i < count; i++)
        at += snprintf(at, sizeof text - (size_t)(at - text), "%s%llu:%u%s", i ? " " : "",
                       (unsigned long long)c->parts[i].sequence->key.request, c->parts[i].row_count,
                       c->parts[i].samples ? "*" : "");
    return text;
}

static void test_decodes_then_begun_prompts_then_new_ones(void **state)
{
    (void)state;
    struct batch_case c = {.limits = {8, 20, 10}};
    add(&c, PRIORITY_NORMAL, 6, 0);
    add(&c, PRIORITY_NORMAL, 9, 4);
    add(&c, PRIORITY_NORMAL, 3, 3);
    assert_string_equal(plan(&c, POLICY_FCFS), "2:1* 1:5* 0:5");
    c.limits.max_batch_tokens = 4;
    assert_string_equal(plan(&c, POLICY_FCFS), "2:1* 1:3");
    c.limits.max_batch_tokens = 1;
    assert_string_equal(plan(&c, POLICY_FCFS), "2:1*");
    c.limits = (struct batch_limits){2, 20, 10};
    assert_string_equal(plan(&c, POLICY_FCFS), "2:1* 1:5*");
}

static void test_more_decodes_than_places(void **state)
{
    (void)state;
    struct batch_case c = {.limits = {2, 20, 10}};
    for (int i = 0; i < 4; i++)
        add(&c, PRIORITY_NORMAL, 3, 3);
    add(&c, PRIORITY_HIGH, 3, 3);
    add(&c, PRIORITY_NORMAL, 3, 0);
    assert_string_equal(plan(&c, POLICY_FCFS), "4:1* 0:1*");
    c.sequences[0].stalled = true;
    assert_string_equal(plan(&c, POLICY_FCFS), "4:1* 1:1*");
}

static void test_classes_come_before_the_policy(void **state)
{
    (void)state;
    struct batch_case c = {.limits = {8, 12, 6}};
    add(&c, PRIORITY_OFFLINE, 2, 2);
    add(&c, PRIORITY_OFFLINE, 9, 1);
    add(&c, PRIORITY_NORMAL, 4, 0);
    add(&c, PRIORITY_HIGH, 5, 0);
    assert_string_equal(plan(&c, POLICY_FCFS), "3:5* 2:1 0:1*");
    assert_string_equal(plan(&c, POLICY_SRPF), "3:5* 2:1 0:1*");
    c.limits.chunk_tokens = 12; /* the rest is for offline: its decodes first */
    assert_string_equal(plan(&c, POLICY_FCFS), "3:5* 2:4* 0:1* 1:2");
}

static void test_shortest_remaining_prefill_first_but_not_for_ever(void **state)
{
    (void)state;
    struct batch_case c = {.limits = {8, 100, 6}};
    struct sequence *late = add(&c, PRIORITY_NORMAL, 50, 0);
    add(&c, PRIORITY_NORMAL, 30, 26);
    add(&c, PRIORITY_NORMAL, 5, 0);
    assert_string_equal(plan(&c, POLICY_SRPF), "1:4* 2:2");
    const struct policy *srpf = policy_of(POLICY_SRPF);
    srpf->age(late, 999, 1000);
    assert_string_equal(plan(&c, POLICY_SRPF), "1:4* 2:2");
    srpf->age(late, 1000, 1000);
    assert_string_equal(plan(&c, POLICY_SRPF), "0:6");
}

static void test_skip_join_queues(void **state)
{
    (void)state;
    const struct policy *mlfq = policy_of(POLICY_MLFQ);
    struct cost_model cost = cost_model_default();
    cost.prefill_row_us = 1000;
    cost.prefill_position_us = 0;
    static const struct {
        uint32_t prompt, level;
    } joins[] = {{1, 0}, {10, 0}, {11, 1}, {20, 1}, {21, 2}, {200, 5}, {2000000, 15}};
    for (size_t i = 0; i < sizeof joins / sizeof *joins; i++) {
        struct sequence sequence = {.plan = PLAN_LOCAL, .prompt_count = joins[i].prompt};
        mlfq->came(&sequence, &cost);
        assert_int_equal(sequence.level, joins[i].level);
    }
    struct sequence received = {.plan = PLAN_RECEIVE, .prompt_count = 5000};
    mlfq->came(&received, &cost);
    assert_int_equal(received.level, 0);
}

static void test_queues_go_down_by_time_used_and_up_by_starving(void **state)
{
    (void)state;
    const struct policy *mlfq = policy_of(POLICY_MLFQ);
    struct batch_case c = {.limits = {1, 100, 6}};
    struct sequence *first = add(&c, PRIORITY_NORMAL, 5, 5);
    struct sequence *second = add(&c, PRIORITY_NORMAL, 5, 5);
    assert_string_equal(plan(&c, POLICY_MLFQ), "0:1*");
    mlfq->ran(first, 9999);
    assert_string_equal(plan(&c, POLICY_MLFQ), "0:1*");
    mlfq->ran(first, 1); /* 10 ms */
    assert_int_equal(first->level, 1);
    assert_string_equal(plan(&c, POLICY_MLFQ), "1:1*");
    mlfq->ran(second, 10000);
    assert_string_equal(plan(&c, POLICY_MLFQ), "0:1*");
    mlfq->ran(first, 20000); /* the next quantum is twice as long */
    assert_int_equal(first->level, 2);
    first->ran_us = 1000;
    second->ran_us = 50000;
    mlfq->age(first, 51000, 50000);
    mlfq->age(second, 51000, 50000);
    assert_true(first->promoted && first->level == 0 && !second->promoted);
    assert_string_equal(plan(&c, POLICY_MLFQ), "0:1*");
    mlfq->ran(first, 10000);
    assert_true(!first->promoted && first->level == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decodes_then_begun_prompts_then_new_ones),
        cmocka_unit_test(test_more_decodes_than_places),
        cmocka_unit_test(test_classes_come_before_the_policy),
        cmocka_unit_test(test_shortest_remaining_prefill_first_but_not_for_ever),
        cmocka_unit_test(test_skip_join_queues),
        cmocka_unit_test(test_queues_go_down_by_time_used_and_up_by_starving),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
