/* scheduler with few blocks: reservations, growth, preemption, classes, cached prompts. */
#include "common/engine/sched/scheduler.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { BLOCK = 4 };

static struct scheduler_config config_of(uint32_t blocks, bool grow, uint32_t slots)
{
    struct cost_model cost = cost_model_default();
    cost.swap_bytes_per_us = 1e9; /* swap, where there are slots */
    return (struct scheduler_config){.block_tokens = BLOCK,
                                     .block_count = blocks,
                                     .max_sequences = 8,
                                     .chunk_tokens = 64,
                                     .context = 60,
                                     .grow = grow,
                                     .host_slots = slots,
                                     .cost = cost};
}

static struct scheduler *make(const struct scheduler_config *config)
{
    struct scheduler *s;
    assert_int_equal(scheduler_create(config, &s), STATUS_OK);
    return s;
}

static void add_at(struct scheduler *s, uint64_t request, enum sequence_plan plan,
                   enum priority priority, uint32_t tokens, uint32_t max_tokens, uint64_t now_us)
{
    struct sequence_spec spec = {.key = {request, 1},
                                 .plan = plan,
                                 .priority = priority,
                                 .arrived_us = now_us,
                                 .token_count = tokens,
                                 .sampling = sampling_default()};
    spec.sampling.max_tokens = max_tokens;
    spec.tokens = calloc(tokens, sizeof *spec.tokens);
    for (uint32_t i = 0; i < tokens; i++)
        spec.tokens[i] = 10 + i;
    assert_int_equal(scheduler_add(s, &spec, NULL), STATUS_OK);
}

static void add(struct scheduler *s, uint64_t request, uint32_t tokens, uint32_t max_tokens)
{
    add_at(s, request, PLAN_LOCAL, PRIORITY_NORMAL, tokens, max_tokens, 0);
}

static uint64_t reserved(struct scheduler *s, uint64_t now_us)
{
    struct sequence *sequence = scheduler_reserve(s, now_us);
    return sequence ? sequence->key.request : 0;
}

static struct sequence *find(struct scheduler *s, uint64_t request)
{
    return scheduler_find(s, (struct sequence_key){request, 1});
}

/* Gives blocks, makes a plan and runs its rows. Ended sequences go. */
static const struct step_plan *step(struct scheduler *s)
{
    while (scheduler_reserve(s, 0))
        ;
    const struct step_plan *plan = scheduler_plan(s, 0);
    scheduler_step_done(s, plan, 1000, 10);
    for (uint32_t i = 0; i < plan->part_count; i++)
        if (scheduler_rows_done(s, &plan->parts[i], 99) != FINISH_NONE)
            scheduler_remove(s, plan->parts[i].sequence);
    return plan;
}

static uint32_t free_blocks(struct scheduler *s)
{
    return scheduler_load(s).blocks[KV_BLOCK_FREE];
}

static void test_who_does_not_fit_is_overtaken_for_a_while_only(void **state)
{
    (void)state;
    struct scheduler_config config = config_of(10, false, 0);
    config.overtake_us = 1000;
    struct scheduler *s = make(&config);
    add_at(s, 1, PLAN_RECEIVE, PRIORITY_NORMAL, 20, 4, 0); /* 6 blocks */
    add_at(s, 2, PLAN_RECEIVE, PRIORITY_NORMAL, 20, 4, 0);
    add_at(s, 3, PLAN_RECEIVE, PRIORITY_NORMAL, 3, 1, 500); /* 1 */
    add_at(s, 4, PLAN_RECEIVE, PRIORITY_HIGH, 3, 1, 500);
    add_at(s, 5, PLAN_RECEIVE, PRIORITY_OFFLINE, 3, 1, 0);
    assert_int_equal(reserved(s, 600), 4);
    assert_int_equal(reserved(s, 600), 1);
    assert_int_equal(reserved(s, 600), 3); /* past 2, which came first */
    assert_int_equal(reserved(s, 600), 0); /* not 5: others wait */
    add_at(s, 6, PLAN_RECEIVE, PRIORITY_NORMAL, 3, 1, 900);
    add_at(s, 7, PLAN_RECEIVE, PRIORITY_HIGH, 3, 1, 900);
    assert_int_equal(reserved(s, 1000), 7); /* a higher class may */
    assert_int_equal(reserved(s, 1000), 0); /* 6 may not any more */
    scheduler_remove(s, find(s, 1));
    assert_int_equal(reserved(s, 1100), 2);
    assert_int_equal(reserved(s, 1100), 6);
    scheduler_destroy(s);
}

static void test_a_sequence_grows_and_the_newest_gives(void **state)
{
    (void)state;
    struct scheduler_config config = config_of(5, true, 5);
    struct scheduler *s = make(&config);
    add(s, 1, 7, 9); /* 2 blocks now, 4 at its end */
    add(s, 2, 3, 9); /* 1 now, 3 at its end */
    step(s);
    assert_int_equal(find(s, 1)->block_count, 2);
    assert_int_equal(find(s, 2)->block_count, 1);
    assert_int_equal(free_blocks(s), 2);
    assert_int_equal(step(s)->part_count, 2);
    step(s); /* 1 writes row 8, 2 row 4: a block each */
    assert_int_equal(free_blocks(s), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(step(s)->part_count, 2);
    const struct step_plan *plan = step(s); /* row 12 of 1 */
    assert_int_equal(plan->part_count, 1);
    assert_int_equal(plan->swap_out_count, 2);
    assert_int_equal(find(s, 2)->state, SEQUENCE_SWAPPED);
    assert_true(plan->freed);
    assert_int_equal(scheduler_load(s).host_slots, 2);
    while (find(s, 1))
        step(s);
    plan = step(s);
    assert_int_equal(plan->swap_in_count, 2);
    assert_int_equal(plan->part_count, 1);
    assert_int_equal(find(s, 2)->state, SEQUENCE_DECODE);
    while (find(s, 2))
        step(s);
    scheduler_plan(s, 0);
    assert_int_equal(scheduler_load(s).host_slots, 0);
    assert_int_equal(free_blocks(s), 5);
    scheduler_destroy(s);
}

static void test_without_slots_rows_are_computed_again(void **state)
{
    (void)state;
    struct scheduler_config config = config_of(5, true, 0);
    struct scheduler *s = make(&config);
    add(s, 1, 7, 9);
    add(s, 2, 3, 9);
    for (int i = 0; i < 7; i++)
        step(s);
    struct sequence *dropped = find(s, 2);
    assert_int_equal(dropped->state, SEQUENCE_WAITING);
    assert_int_equal(dropped->computed, 0);
    assert_int_equal(dropped->emitted_count, 6);
    assert_int_equal(dropped->prompt_count, 9);
    assert_int_equal(sequence_answer_count(dropped), 6);
    while (find(s, 1))
        step(s);
    const struct step_plan *plan = step(s);
    assert_int_equal(plan->part_count, 1);
    assert_int_equal(plan->parts[0].row_count, 9);
    assert_true(plan->parts[0].samples);
    assert_int_equal(sequence_answer_count(find(s, 2)), 7);
    scheduler_destroy(s);
}

static void test_a_higher_class_takes_from_lower_ones(void **state)
{
    (void)state;
    struct scheduler_config config = config_of(6, true, 0);
    struct scheduler *s = make(&config);
    add_at(s, 1, PLAN_LOCAL, PRIORITY_NORMAL, 7, 9, 0);
    add_at(s, 2, PLAN_LOCAL, PRIORITY_OFFLINE, 7, 9, 0);
    step(s);
    add_at(s, 3, PLAN_LOCAL, PRIORITY_HIGH, 11, 4, 0); /* 3 blocks, and one for each that runs */
    const struct step_plan *plan = step(s);
    assert_true(plan->freed);
    assert_int_equal(plan->part_count, 1);
    assert_int_equal(find(s, 2)->state, SEQUENCE_WAITING);
    plan = step(s);
    assert_int_equal(plan->part_count, 2);
    assert_int_equal(find(s, 3)->state, SEQUENCE_DECODE);
    scheduler_destroy(s);
}

/* No sequence is preempted for one that would not fit even then: the remaining ones need a free
 * block, too. */
static void test_lower_ones_go_on_where_their_blocks_are_not_enough(void **state)
{
    (void)state;
    for (uint32_t more = 0; more < 2; more++) {
        struct scheduler_config config = config_of(10, true, 0);
        struct scheduler *s = make(&config);
        add_at(s, 1, PLAN_LOCAL, PRIORITY_HIGH, 13, 20, 0); /* 4 blocks */
        add_at(s, 2, PLAN_LOCAL, PRIORITY_NORMAL, 9, 20, 0);
        add_at(s, 3, PLAN_LOCAL, PRIORITY_NORMAL, 2, 20, 0); /* with 2: 4 */
        step(s);
        assert_int_equal(free_blocks(s), 2);
        add_at(s, 4, PLAN_LOCAL, PRIORITY_HIGH, 19 + more, 2,
               0); /* 5 blocks, and 1 for sequence 1; or 6 */
        step(s);
        enum sequence_state expected = more ? SEQUENCE_DECODE : SEQUENCE_WAITING;
        assert_int_equal(find(s, 2)->state, expected);
        assert_int_equal(find(s, 3)->state, expected);
        step(s);
        assert_int_equal(find(s, 4)->state, more ? SEQUENCE_WAITING : SEQUENCE_DECODE);
        scheduler_destroy(s);
    }
}

/* If a stalled sequence kept the only place of the batch, it would wait for ever for blocks that
 * the other's rows would free. */
static void test_who_has_no_block_takes_no_place(void **state)
{
    (void)state;
    struct scheduler_config config = config_of(3, true, 0);
    config.max_batch_sequences = 1;
    struct scheduler *s = make(&config);
    add_at(s, 2, PLAN_HAND_OFF, PRIORITY_NORMAL, 4, 2, 0);
    assert_int_equal(reserved(s, 0), 2);
    add_at(s, 1, PLAN_LOCAL, PRIORITY_HIGH, 6, 6, 0);
    for (int i = 0; i < 3; i++)
        step(s);
    assert_int_equal(find(s, 1)->computed, 8);
    assert_int_equal(find(s, 2)->computed, 0);
    const struct step_plan *plan = step(s);
    assert_int_equal(plan->part_count, 1);
    assert_int_equal(find(s, 2)->state, SEQUENCE_HELD);
    assert_int_equal(step(s)->part_count, 0); /* until a reader has the blocks of 2 */
    scheduler_remove(s, find(s, 2));
    assert_int_equal(step(s)->part_count, 1);
    assert_int_equal(find(s, 1)->computed, 9);
    scheduler_destroy(s);
}

static void test_a_prompt_skips_what_is_cached(void **state)
{
    (void)state;
    struct scheduler_config config = config_of(8, true, 0);
    config.prefix_cache = true;
    struct scheduler *s = make(&config);
    add(s, 1, 12, 1);
    step(s);
    assert_null(find(s, 1));
    assert_int_equal(scheduler_load(s).blocks[KV_BLOCK_CACHED], 3);
    add(s, 2, 12, 3); /* the same prompt: its last row is computed in any case */
    const struct step_plan *plan = step(s);
    assert_int_equal(plan->parts[0].row_count, 4);
    assert_int_equal(find(s, 2)->block_count, 4);
    add_at(s, 3, PLAN_RECEIVE, PRIORITY_NORMAL, 14, 3, 0);
    struct sequence *received = scheduler_reserve(s, 0);
    assert_int_equal(received->computed, 12); /* read from elsewhere: rows 12 and 13 */
    assert_int_equal(scheduler_admit(s, received, 5), FINISH_NONE);
    assert_int_equal(received->computed, 14);
    /* A sequence that needs the whole pool evicts all blocks without a holder. */
    scheduler_remove(s, received);
    scheduler_remove(s, find(s, 2));
    struct sequence_spec all = {.key = {4, 1}, .token_count = 27, .sampling = sampling_default()};
    all.plan = PLAN_LOCAL;
    all.tokens = calloc(27, sizeof *all.tokens);
    all.sampling.max_tokens = 2;
    assert_int_equal(scheduler_add(s, &all, NULL), STATUS_OK);
    assert_int_equal(reserved(s, 0), 4);
    assert_int_equal(find(s, 4)->block_count, 7);
    scheduler_destroy(s);
}

static uint32_t cached(struct scheduler *s)
{
    return prefix_cache_count(scheduler_prefix_cache(s));
}

/* Landing blocks are cached only when the sequence is admitted, which Confirm allows: a handoff
 * that ends before leaves nothing. */
static void test_what_lands_is_cached_only_when_it_is_admitted(void **state)
{
    (void)state;
    struct scheduler_config config = config_of(8, true, 0);
    config.prefix_cache = true;
    struct scheduler *s = make(&config);
    add_at(s, 1, PLAN_RECEIVE, PRIORITY_NORMAL, 14, 3, 0);
    assert_int_equal(reserved(s, 0), 1);
    step(s);
    assert_int_equal(cached(s), 0);
    scheduler_remove(s, find(s, 1));
    assert_int_equal(cached(s), 0);
    assert_int_equal(free_blocks(s), 8);
    add_at(s, 2, PLAN_RECEIVE, PRIORITY_NORMAL, 14, 3, 0);
    struct sequence *received = scheduler_reserve(s, 0);
    assert_int_equal(received->computed, 0);
    assert_int_equal(scheduler_admit(s, received, 5), FINISH_NONE);
    assert_int_equal(cached(s), 3);
    scheduler_destroy(s);
}

/* No sequence gets blocks from before. Running sequences go on, and cache nothing. */
static void test_what_is_distrusted_is_computed_anew(void **state)
{
    (void)state;
    struct scheduler_config config = config_of(16, true, 0);
    config.prefix_cache = true;
    struct scheduler *s = make(&config);
    add(s, 1, 12, 8);
    step(s);
    assert_int_equal(cached(s), 3);
    add_at(s, 2, PLAN_RECEIVE, PRIORITY_NORMAL, 14, 3, 0);
    struct sequence *received = scheduler_reserve(s, 0);
    scheduler_distrust(s);
    assert_int_equal(cached(s), 0);
    assert_int_equal(scheduler_admit(s, received, 5), FINISH_NONE);
    for (int i = 0; i < 5; i++)
        step(s);
    assert_true(find(s, 1)->computed >= 16);
    assert_int_equal(cached(s), 0);
    add(s, 3, 12, 1);
    const struct step_plan *plan = step(s);
    assert_int_equal(plan->parts[plan->part_count - 1].row_count, 12);
    assert_int_equal(cached(s), 3);
    scheduler_destroy(s);
}

/* Four prompts that are alike come together: the rows of their prefix are computed once, in blocks
 * that they share. */
static void test_siblings_wait_for_the_rows_of_one(void **state)
{
    static const enum sequence_plan plans[] = {PLAN_LOCAL, PLAN_HAND_OFF};
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct scheduler_config config = config_of(48, true, 0);
        config.prefix_cache = true;
        config.chunk_tokens = 16;
        struct scheduler *s = make(&config);
        uint32_t rows = 0, steps = 0;
        for (uint64_t request = 1; request <= 4; request++)
            add_at(s, request, plans[i], PRIORITY_NORMAL, 42, 8, 0);
        assert_int_equal(reserved(s, 0), 1);
        assert_int_equal(reserved(s, 0), 0); /* the others wait for it */
        for (; find(s, 4)->computed < 42; steps++) {
            const struct step_plan *plan = step(s);
            assert_true(steps < 8 && plan->wake_us == UINT64_MAX);
            for (uint32_t part = 0; part < plan->part_count; part++)
                rows += plan->parts[part].row_count > 1 ? plan->parts[part].row_count : 0;
        }
        assert_int_equal(rows, 42 + 3 * 2);
        assert_int_equal(steps, 4);
        assert_true(free_blocks(s) >= 48 - 11 - 4);
        scheduler_destroy(s);
    }
}

/* A sibling that saves less than half, or that is of a higher class, doesn't wait. */
static void test_siblings_that_gain_little_begin(void **state)
{
    (void)state;
    struct scheduler_config config = config_of(48, true, 0);
    config.prefix_cache = true;
    struct scheduler *s = make(&config);
    add(s, 1, 20, 8);
    add(s, 2, 42, 8); /* 20 of its rows */
    assert_int_equal(reserved(s, 0), 1);
    assert_int_equal(reserved(s, 0), 2);
    add(s, 3, 40, 8);                                  /* 20 of its rows, and 36 by 2 */
    add_at(s, 4, PLAN_LOCAL, PRIORITY_HIGH, 42, 8, 0); /* the rows of 1 and 2 come behind its own */
    assert_int_equal(reserved(s, 0), 4);
    assert_int_equal(reserved(s, 0), 0);
    scheduler_destroy(s);
}

/* A sibling goes on by itself when the one before it ends, fails or can't remember its blocks. */
static void test_siblings_go_on_by_themselves(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct scheduler_config config = config_of(48, true, 0);
        config.prefix_cache = true;
        config.chunk_tokens = 16;
        struct scheduler *s = make(&config);
        add(s, 1, 42, 8);
        add(s, 2, 42, 8);
        add(s, 3, 42, 8);
        step(s);
        assert_int_equal(reserved(s, 0), 0);
        if (i == 0)
            scheduler_remove(s, find(s, 1));
        else if (i == 1)
            scheduler_fail(s, find(s, 1));
        else
            scheduler_distrust(s);
        assert_int_equal(reserved(s, 0), 2);
        assert_int_equal(find(s, 2)->computed, i == 2 ? 0 : 16);
        assert_int_equal(reserved(s, 0), 0); /* 3 waits for 2 now */
        scheduler_destroy(s);
    }
}

/* A prompt that is received from elsewhere may come late: its sibling waits a while only. */
static void test_a_sibling_waits_a_while_for_a_prompt_that_lands(void **state)
{
    (void)state;
    struct scheduler_config config = config_of(48, true, 0);
    config.prefix_cache = true;
    for (int lands = 0; lands < 2; lands++) {
        struct scheduler *s = make(&config);
        add_at(s, 1, PLAN_RECEIVE, PRIORITY_NORMAL, 42, 8, 1000);
        add_at(s, 2, PLAN_RECEIVE, PRIORITY_NORMAL, 42, 8, 1000);
        assert_int_equal(reserved(s, 1000), 1);
        assert_int_equal(reserved(s, 1000), 0);
        assert_int_equal(scheduler_plan(s, 1000)->wake_us, 1000 + SCHEDULER_SIBLING_US);
        assert_int_equal(reserved(s, 999 + SCHEDULER_SIBLING_US), 0);
        if (lands)
            assert_int_equal(scheduler_admit(s, find(s, 1), 5), FINISH_NONE);
        assert_int_equal(reserved(s, (lands ? 999 : 1000) + SCHEDULER_SIBLING_US), 2);
        assert_int_equal(find(s, 2)->computed, lands ? 40 : 0);
        assert_int_equal(scheduler_plan(s, 2000 + SCHEDULER_SIBLING_US)->wake_us, UINT64_MAX);
        scheduler_destroy(s);
    }
}

/* However often it looks, a cached block counts as requested only when the sequence gets it. */
static void test_who_waits_asks_the_cache_once(void **state)
{
    (void)state;
    struct scheduler_config config = config_of(9, true, 0);
    config.prefix_cache = true;
    struct scheduler *s = make(&config);
    add(s, 1, 12, 4); /* grows to 4 */
    step(s);
    add_at(s, 2, PLAN_RECEIVE, PRIORITY_NORMAL, 14, 3, 0); /* the same 3, and 1 more */
    assert_int_equal(reserved(s, 0), 2);
    const struct prefix_cache *cache = scheduler_prefix_cache(s);
    uint64_t asked = prefix_cache_counters(cache).asked;
    add_at(s, 3, PLAN_LOCAL, PRIORITY_NORMAL, 26, 2, 0); /* 3 and 4 blocks: one too many */
    for (int i = 0; i < 9; i++)
        assert_int_equal(reserved(s, 0), 0);
    assert_int_equal(prefix_cache_counters(cache).asked, asked);
    scheduler_remove(s, find(s, 2));
    assert_int_equal(reserved(s, 0), 3);
    assert_int_equal(prefix_cache_counters(cache).asked, asked + 6);
    scheduler_destroy(s);
}

static void add_beginning(struct scheduler *s, uint64_t request, uint32_t first_token,
                          uint32_t tokens)
{
    struct sequence_spec spec = {
        .key = {request, 1}, .token_count = tokens, .sampling = sampling_default()};
    spec.sampling.max_tokens = 1;
    spec.plan = PLAN_LOCAL;
    spec.tokens = calloc(tokens, sizeof *spec.tokens);
    for (uint32_t i = 0; i < tokens; i++)
        spec.tokens[i] = first_token + i;
    assert_int_equal(scheduler_add(s, &spec, NULL), STATUS_OK);
}

/* A prompt of 40 tokens, 32 of which are cached, is shorter than one of 12 that begins
 * otherwise. */
static void test_policies_know_what_is_cached_of_a_prompt(void **state)
{
    (void)state;
    for (int cached = 0; cached < 2; cached++)
        for (enum policy_kind policy = POLICY_SRPF; policy <= POLICY_MLFQ; policy++) {
            struct scheduler_config config = config_of(40, true, 0);
            config.prefix_cache = true;
            config.policy = policy;
            config.starve_us = config.overtake_us = POLICY_STARVE_US;
            config.cost.prefill_row_us = 1000; /* 10 rows are the first queue's quantum */
            struct scheduler *s = make(&config);
            add_beginning(s, 1, cached ? 10 : 500, 33);
            step(s);
            assert_null(find(s, 1));
            add_beginning(s, 2, 10, 40);
            add_beginning(s, 3, 900, 12);
            assert_int_equal(find(s, 2)->likely_cached, cached ? 32 : 0);
            assert_int_equal(reserved(s, 0), cached ? 2 : 3);
            if (policy == POLICY_MLFQ)
                assert_int_equal(find(s, 2)->level, cached ? 0 : 2);
            scheduler_destroy(s);
        }
}

static void add_of(struct scheduler *s, uint64_t request, uint64_t tenant, enum priority priority,
                   uint32_t tokens, uint32_t max_tokens)
{
    struct sequence_spec spec = {.key = {request, 1},
                                 .plan = PLAN_LOCAL,
                                 .priority = priority,
                                 .tenant = tenant,
                                 .token_count = tokens,
                                 .sampling = sampling_default()};
    spec.sampling.max_tokens = max_tokens;
    spec.tokens = calloc(tokens, sizeof *spec.tokens);
    assert_non_null(spec.tokens);
    assert_int_equal(scheduler_add(s, &spec, NULL), STATUS_OK);
}

/* Blocks of a prompt that sequences of one tenant share count once: many fit into its share
 * beside another tenant. Without sharing they don't. */
static void test_shared_blocks_count_once_in_a_share(void **state)
{
    (void)state;
    enum { MUCH = 1, LITTLE = 2 };
    for (int shared = 0; shared < 2; shared++) {
        struct scheduler_config config = config_of(36, true, 0);
        config.prefix_cache = shared;
        struct scheduler *s = make(&config);
        add_of(s, 1, LITTLE, PRIORITY_NORMAL, 1, 40);
        add_of(s, 2, MUCH, PRIORITY_NORMAL, 40, 10);
        step(s);
        for (uint64_t request = 3; request < 6; request++) {
            add_of(s, request, MUCH, PRIORITY_NORMAL, 40, 10);
            assert_int_equal(reserved(s, 0), shared || request == 3 ? request : 0);
        }
        assert_int_equal(find(s, 2)->tenant->blocks, shared ? 11 + 3 * 2 : 11 + 11);
        scheduler_destroy(s);
    }
}

/* They count once, too, while a share is left to a tenant that was here lately. */
static void test_shared_blocks_count_once_where_the_other_tenant_has_left(void **state)
{
    (void)state;
    enum { MUCH = 1, LITTLE = 2 };
    struct scheduler_config config = config_of(36, true, 0);
    config.prefix_cache = true;
    struct scheduler *s = make(&config);
    add_of(s, 1, LITTLE, PRIORITY_NORMAL, 1, 40);
    add_of(s, 2, MUCH, PRIORITY_NORMAL, 40, 10);
    step(s);
    scheduler_remove(s, find(s, 1));
    for (uint64_t request = 3; request < 6; request++) {
        add_of(s, request, MUCH, PRIORITY_NORMAL, 40, 10);
        assert_int_equal(reserved(s, 0), request);
    }
    assert_int_equal(find(s, 2)->tenant->blocks, 11 + 3 * 2);
    scheduler_destroy(s);
}

/* A preempted sequence doesn't take the room that one of a tenant with less waits for. */
static void test_who_was_preempted_waits_behind_a_tenant_that_was_served_less(void **state)
{
    (void)state;
    enum { MUCH = 1, LITTLE = 2, OTHER = 3 };
    struct scheduler_config config = config_of(12, true, 0);
    config.overtake_us = 1000;
    config.turn_tokens = 1;
    struct scheduler *s = make(&config);
    add_of(s, 1, LITTLE, PRIORITY_NORMAL, 1, 20);
    add_of(s, 2, MUCH, PRIORITY_NORMAL, 15, 12);
    add_of(s, 3, MUCH, PRIORITY_NORMAL, 4, 12);
    step(s);
    assert_int_equal(free_blocks(s), 5);
    add_of(s, 4, OTHER, PRIORITY_HIGH, 19, 1);
    step(s);
    assert_true(find(s, 3)->preempted);
    step(s);
    assert_null(find(s, 4));
    add_of(s, 5, LITTLE, PRIORITY_NORMAL, 23, 1);
    uint32_t free_count = free_blocks(s);
    assert_int_equal(reserved(s, 0), 0);
    assert_int_equal(free_blocks(s), free_count);
    assert_true(find(s, 3)->preempted);
    scheduler_remove(s, find(s, 2));
    assert_int_equal(reserved(s, 0), 5);
    scheduler_destroy(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_who_does_not_fit_is_overtaken_for_a_while_only),
        cmocka_unit_test(test_a_sequence_grows_and_the_newest_gives),
        cmocka_unit_test(test_without_slots_rows_are_computed_again),
        cmocka_unit_test(test_a_higher_class_takes_from_lower_ones),
        cmocka_unit_test(test_lower_ones_go_on_where_their_blocks_are_not_enough),
        cmocka_unit_test(test_who_has_no_block_takes_no_place),
        cmocka_unit_test(test_who_was_preempted_waits_behind_a_tenant_that_was_served_less),
        cmocka_unit_test(test_shared_blocks_count_once_in_a_share),
        cmocka_unit_test(test_shared_blocks_count_once_where_the_other_tenant_has_left),
        cmocka_unit_test(test_a_prompt_skips_what_is_cached),
        cmocka_unit_test(test_what_lands_is_cached_only_when_it_is_admitted),
        cmocka_unit_test(test_what_is_distrusted_is_computed_anew),
        cmocka_unit_test(test_siblings_wait_for_the_rows_of_one),
        cmocka_unit_test(test_siblings_that_gain_little_begin),
        cmocka_unit_test(test_siblings_go_on_by_themselves),
        cmocka_unit_test(test_a_sibling_waits_a_while_for_a_prompt_that_lands),
        cmocka_unit_test(test_who_waits_asks_the_cache_once),
        cmocka_unit_test(test_policies_know_what_is_cached_of_a_prompt),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
