/* batch_plan and policy: the rows of a step. */
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
    struct cost_model cost;
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
    static struct tenant one;
    struct sequence *sequence = &c->sequences[c->count];
    *sequence = (struct sequence){.key = {c->count, 1},
                                  .plan = PLAN_LOCAL,
                                  .state = computed < prompt ? SEQUENCE_PREFILL : SEQUENCE_DECODE,
                                  .class_index = priority_class(priority),
                                  .order = c->count,
                                  .tenant = &one,
                                  .prompt_count = prompt,
                                  .token_count = computed < prompt ? prompt : prompt + 1,
                                  .computed = computed};
    c->by_arrival[c->count++] = sequence;
    return sequence;
}

/* Returns "0:1 3:4 ...": request and rows, and a "*" if a token is drawn. */
static const char *plan(struct batch_case *c, enum policy_kind policy)
{
    static char text[256];
    uint32_t count = batch_plan(&c->limits, policy_of(policy), &c->cost, c->by_arrival, c->count,
                                c->scratch, c->parts);
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
    struct batch_case c = {.limits = {8, 20, 10, 0, false}};
    add(&c, PRIORITY_NORMAL, 6, 0);
    add(&c, PRIORITY_NORMAL, 9, 4);
    add(&c, PRIORITY_NORMAL, 3, 3);
    assert_string_equal(plan(&c, POLICY_FCFS), "2:1* 1:5* 0:5");
    c.limits.max_batch_tokens = 4;
    assert_string_equal(plan(&c, POLICY_FCFS), "2:1* 1:3");
    c.limits.max_batch_tokens = 1;
    assert_string_equal(plan(&c, POLICY_FCFS), "2:1*");
    c.limits = (struct batch_limits){2, 20, 10, 0, false};
    assert_string_equal(plan(&c, POLICY_FCFS), "2:1* 1:5*");
}

static void test_more_decodes_than_places(void **state)
{
    (void)state;
    struct batch_case c = {.limits = {2, 20, 10, 0, false}};
    for (int i = 0; i < 4; i++)
        add(&c, PRIORITY_NORMAL, 3, 3);
    add(&c, PRIORITY_HIGH, 3, 3);
    add(&c, PRIORITY_NORMAL, 3, 0);
    assert_string_equal(plan(&c, POLICY_FCFS), "4:1* 0:1*");
    c.sequences[0].stalled = true;
    assert_string_equal(plan(&c, POLICY_FCFS), "4:1* 1:1*");
}

/* Answers that need their tokens stay together, while one's next token is in flight. They don't
 * wait for the first tokens of new ones, which come in step after step. */
static void test_answers_that_need_their_tokens(void **state)
{
    (void)state;
    struct batch_case c = {.limits = {8, 20, 10, 0, false}};
    for (int i = 0; i < 3; i++) {
        struct sequence *sequence = add(&c, PRIORITY_NORMAL, 3, 3);
        sequence->token_capacity = 20;
        sequence->needs_token = i < 2;
    }
    c.sequences[0].pending = 1;
    assert_string_equal(plan(&c, POLICY_FCFS), "2:1*");
    c.sequences[0].token_count = c.sequences[0].prompt_count; /* its first token is in flight */
    assert_string_equal(plan(&c, POLICY_FCFS), "1:1* 2:1*");
}

static void test_classes_come_before_the_policy(void **state)
{
    (void)state;
    struct batch_case c = {.limits = {8, 12, 6, 0, false}};
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
    struct batch_case c = {.limits = {8, 100, 6, 0, false}};
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
    struct batch_case c = {.limits = {1, 100, 6, 0, false}};
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

/* Rows of 1 ms, and none dearer than another; `decodes` online answers beside them. */
static void begin_timed(struct batch_case *c, uint64_t chunk_us, uint32_t decodes)
{
    *c = (struct batch_case){.limits = {8, 1000, 500, chunk_us, false},
                             .cost = cost_model_default()};
    c->cost.prefill_position_us = 0;
    while (c->count < decodes)
        add(c, PRIORITY_NORMAL, 3, 3);
}

static void test_a_prompt_beside_decodes_has_the_rows_that_fit_the_time(void **state)
{
    (void)state;
    struct batch_case c;
    begin_timed(&c, 100000, 2);
    struct sequence *prompt = add(&c, PRIORITY_NORMAL, 450, 0);
    assert_string_equal(plan(&c, POLICY_FCFS), "0:1* 1:1* 2:100");
    c.cost.prefill_scale = 0.5; /* rows turned out to be cheaper */
    assert_string_equal(plan(&c, POLICY_FCFS), "0:1* 1:1* 2:200");
    c.cost.prefill_scale = 0.001;
    c.limits.chunk_tokens = 400;
    assert_string_equal(plan(&c, POLICY_FCFS), "0:1* 1:1* 2:400");
    prompt->computed = 440;
    assert_string_equal(plan(&c, POLICY_FCFS), "0:1* 1:1* 2:10*");
    c.limits.chunk_us = 0;
    c.cost.prefill_scale = 1;
    prompt->computed = 0;
    assert_string_equal(plan(&c, POLICY_FCFS), "0:1* 1:1* 2:400");
}

/* Rates of an H200 for 8B parameters: chunks of 2048 rows take 44 ms, and 20 ms beside answers if
 * these may not wait longer, from the first step on. */
static void test_long_chunks_of_a_gpu_keep_to_the_time(void **state)
{
    (void)state;
    static const struct model_shape shape = {
        .layers = 32, .hidden = 4096, .ffn = 14336, .heads = 32, .kv_heads = 8, .head_dim = 128};
    static const struct cost_rates rates = {.read_gbs = 4209,
                                            .peak_gflops = 700000,
                                            .weight_bytes = 15009841152,
                                            .block_bytes = 4194304,
                                            .block_tokens = 32};
    struct batch_case c;
    begin_timed(&c, 20000, 1);
    c.cost = cost_model_of_rates(&shape, &rates);
    c.limits.chunk_tokens = 2048;
    c.limits.max_batch_tokens = 2112;
    struct sequence *prompt = add(&c, PRIORITY_NORMAL, 8192, 0);
    uint32_t least = 700;
    for (; prompt->computed < 4096; prompt->computed += 2048, least -= 100) {
        (void)plan(&c, POLICY_FCFS);
        assert_in_range(c.parts[1].row_count, least, 1000);
        assert_true(cost_model_prefill_us(&c.cost, prompt->computed, c.parts[1].row_count) <=
                    20000);
    }
    c.limits.chunk_us = 200000;
    assert_string_equal(plan(&c, POLICY_FCFS), "0:1* 1:2048");
}

/* 1 ms and 10 us more for each position before: from row 300 on, 4 ms. */
static void test_later_rows_are_dearer(void **state)
{
    (void)state;
    struct batch_case c;
    begin_timed(&c, 100000, 1);
    c.cost.prefill_position_us = 10;
    struct sequence *prompt = add(&c, PRIORITY_NORMAL, 450, 0);
    assert_string_equal(plan(&c, POLICY_FCFS), "0:1* 1:73");
    prompt->computed = 300;
    assert_string_equal(plan(&c, POLICY_FCFS), "0:1* 1:24");
}

static void test_the_least_rows_are_had_whatever_they_take(void **state)
{
    (void)state;
    struct batch_case c;
    begin_timed(&c, 1, 1);
    struct sequence *first = add(&c, PRIORITY_NORMAL, 400, 0);
    add(&c, PRIORITY_NORMAL, 400, 0);
    assert_string_equal(plan(&c, POLICY_FCFS), "0:1* 1:16");
    first->computed = 390;
    assert_string_equal(plan(&c, POLICY_FCFS), "0:1* 1:10* 2:6");
    c.limits.chunk_tokens = 12;
    assert_string_equal(plan(&c, POLICY_FCFS), "0:1* 1:10* 2:2");
}

static void test_prompts_share_the_time(void **state)
{
    (void)state;
    struct batch_case c;
    begin_timed(&c, 100000, 1);
    struct sequence *first = add(&c, PRIORITY_NORMAL, 70, 0);
    add(&c, PRIORITY_NORMAL, 400, 0);
    add(&c, PRIORITY_NORMAL, 5, 0);
    add(&c, PRIORITY_OFFLINE, 5, 0);
    assert_string_equal(plan(&c, POLICY_FCFS), "0:1* 1:70* 2:30");
    first->computed = 64;
    assert_string_equal(plan(&c, POLICY_FCFS), "0:1* 1:6* 2:94");
}

/* Steps aren't bounded for `offline` answers. But an offline prompt is bounded beside online
 * answers, which it would delay. */
static void test_time_is_bounded_beside_online_decodes_only(void **state)
{
    (void)state;
    struct batch_case c;
    begin_timed(&c, 20000, 0);
    add(&c, PRIORITY_OFFLINE, 3, 3);
    add(&c, PRIORITY_NORMAL, 400, 0);
    assert_string_equal(plan(&c, POLICY_FCFS), "1:400* 0:1*");
    c.sequences[1].class_index = priority_class(PRIORITY_OFFLINE);
    assert_string_equal(plan(&c, POLICY_FCFS), "0:1* 1:400*");
    struct sequence *answer = add(&c, PRIORITY_NORMAL, 3, 3);
    assert_string_equal(plan(&c, POLICY_FCFS), "2:1* 0:1* 1:20");
    answer->waits = true; /* it has no row: the step delays no answer */
    assert_string_equal(plan(&c, POLICY_FCFS), "0:1* 1:400*");
}

/* All answers wait for a prompt, which has all the time. An offline prompt holds up offline answers
 * alone. */
static void test_prompts_go_first_where_told_so(void **state)
{
    (void)state;
    struct batch_case c;
    begin_timed(&c, 100000, 2);
    c.limits.prompts_first = true;
    add(&c, PRIORITY_OFFLINE, 3, 3);
    assert_string_equal(plan(&c, POLICY_FCFS), "0:1* 1:1* 2:1*");
    struct sequence *prompt = add(&c, PRIORITY_NORMAL, 900, 0);
    assert_string_equal(plan(&c, POLICY_FCFS), "3:500");
    prompt->computed = 500;
    struct sequence *later = add(&c, PRIORITY_OFFLINE, 450, 0);
    assert_string_equal(plan(&c, POLICY_FCFS), "3:400* 4:100");
    prompt->waits = true;
    assert_string_equal(plan(&c, POLICY_FCFS), "0:1* 1:1* 4:100");
    later->waits = true;
    assert_string_equal(plan(&c, POLICY_FCFS), "0:1* 1:1* 2:1*");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prompts_go_first_where_told_so),
        cmocka_unit_test(test_a_prompt_beside_decodes_has_the_rows_that_fit_the_time),
        cmocka_unit_test(test_long_chunks_of_a_gpu_keep_to_the_time),
        cmocka_unit_test(test_later_rows_are_dearer),
        cmocka_unit_test(test_the_least_rows_are_had_whatever_they_take),
        cmocka_unit_test(test_prompts_share_the_time),
        cmocka_unit_test(test_time_is_bounded_beside_online_decodes_only),
        cmocka_unit_test(test_decodes_then_begun_prompts_then_new_ones),
        cmocka_unit_test(test_more_decodes_than_places),
        cmocka_unit_test(test_answers_that_need_their_tokens),
        cmocka_unit_test(test_classes_come_before_the_policy),
        cmocka_unit_test(test_shortest_remaining_prefill_first_but_not_for_ever),
        cmocka_unit_test(test_skip_join_queues),
        cmocka_unit_test(test_queues_go_down_by_time_used_and_up_by_starving),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
