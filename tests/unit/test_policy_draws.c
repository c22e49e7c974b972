/* Placement policies: draws are fair and follow the seed, new workers start slowly, the longest
 * unused ones are looked at again, and the choices that were scored are told. */
#include "router/planner/placement.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BLOCK 16
#define MANY  300

/* ------------------------------------------------------------------------------------- draws */

static struct route_worker plain(enum worker_role role, uint64_t key)
{
    return (struct route_worker){.key = key,
                                 .role = role,
                                 .ready = true,
                                 .model_hash = 7,
                                 .numerics_id = 9,
                                 .block_tokens = BLOCK,
                                 .capacity_tokens = 1000,
                                 .unconfirmed_limit_tokens = 1000000};
}

static void add_plain(struct candidates *all, enum worker_role role, uint64_t first, uint64_t count)
{
    for (uint64_t key = first; key < first + count; key++) {
        struct route_worker worker = plain(role, key);
        assert_int_equal(candidates_set(all, 0, &worker), STATUS_OK);
        candidates_get(all, key)->proven = CANDIDATE_PROVEN;
    }
}

/* Every pair gets its share, and a seed gives the same draws again. */
static void test_random_draws_are_fair(void **state)
{
    (void)state;
    struct candidates all;
    const struct policy_ask ask = {.policy = PLACEMENT_RANDOM, .prompt_tokens = 10};
    const struct route_request asked = {.policy = &ask, .prompt_tokens = 10, .total_tokens = 20};
    struct rng rng = rng_seeded(5), again = rng_seeded(5);
    unsigned drawn[5][9] = {0};
    assert_int_equal(candidates_init(&all, 1), STATUS_OK);
    add_plain(&all, ROLE_PREFILL, 1, 4);
    add_plain(&all, ROLE_DECODE, 5, 4);
    candidates_get(&all, 1)->is.work_tokens = 1000000;
    for (int i = 0; i < 3200; i++) {
        struct route_choice choice = route_request(&all, 0, &asked, &rng);
        struct route_choice same = route_request(&all, 0, &asked, &again);
        assert_int_equal(choice.prefill, same.prefill);
        assert_int_equal(choice.decode, same.decode);
        drawn[choice.prefill][choice.decode]++;
    }
    for (int p = 1; p <= 4; p++)
        for (int d = 5; d <= 8; d++)
            assert_in_range(drawn[p][d], 140, 260); /* 200, and over four deviations */
    candidates_deinit(&all);
}

/* Costs 0, 1/2 and 1 of the range at a temperature of 1/2: e^0, e^-1, e^-2. */
static void test_the_softmax_follows_the_temperature(void **state)
{
    (void)state;
    struct candidates all;
    const struct policy_ask ask = {
        .policy = PLACEMENT_KV_COST, .tuning.temperature = 0.5, .prompt_tokens = 10};
    const struct route_request asked = {
        .policy = &ask, .prompt_tokens = 10, .total_tokens = 20, .local = true};
    struct rng rng = rng_seeded(6);
    unsigned drawn[4] = {0};
    assert_int_equal(candidates_init(&all, 1), STATUS_OK);
    add_plain(&all, ROLE_DECODE, 1, 3);
    for (uint64_t key = 1; key <= 3; key++)
        candidates_get(&all, key)->books.held_tokens = 1000 * key;
    for (int i = 0; i < 10000; i++)
        drawn[route_request(&all, 0, &asked, &rng).decode]++;
    assert_in_range(drawn[1], 6452, 6852); /* 6652 */
    assert_in_range(drawn[2], 2247, 2647); /* 2447 */
    assert_in_range(drawn[3], 750, 1050);  /* 900 */
    candidates_deinit(&all);
}

/* A tenth of the answers' time is left at one worker: llm-d's draws go by the score, ours to the
 * best. One in a hundred goes past a gate. */
static void test_latency_draws_go_by_the_score(void **state)
{
    (void)state;
    struct candidates all;
    struct worker_learnt learnt[4];
    struct goodput_request request = {.is = {.prompt_tokens = 100, .answer_tokens = 1}};
    struct policy_ask ask = {
        .policy = PLACEMENT_PREDICTED_LATENCY, .prompt_tokens = 100, .request = &request};
    const struct route_request asked = {
        .policy = &ask, .prompt_tokens = 100, .total_tokens = 120, .ends_at_prefill = true};
    struct rng rng = rng_seeded(7);
    assert_int_equal(candidates_init(&all, 1), STATUS_OK);
    add_plain(&all, ROLE_PREFILL, 1, 3);
    add_plain(&all, ROLE_DECODE, 4, 1);
    for (uint64_t key = 1; key <= 3; key++) { /* TTFT 10, 20 and 30 ms */
        const struct step_cost cost = {.step_us = 1, .prefill_row_us = 100.0 * (double)key};
        learnt[key] = (struct worker_learnt){.chunk_rows = 1000};
        cost_fit_init(&learnt[key].steps, &cost, 100);
        candidates_get(&all, key)->is.learnt = &learnt[key];
    }
    for (int tempered = 0; tempered < 2; tempered++) {
        unsigned drawn[4] = {0};
        ask.tuning.temperature = tempered;
        for (int i = 0; i < 10000; i++)
            drawn[route_request(&all, 0, &asked, &rng).prefill]++;
        assert_in_range(drawn[1], tempered ? 6417 : 10000, tempered ? 6917 : 10000); /* 1 */
        assert_in_range(drawn[2], tempered ? 3083 : 0, tempered ? 3583 : 0);         /* 1/2 */
        assert_in_range(drawn[3], 0, tempered);                                      /* 0 */
    }
    ask.tuning.temperature = 0;
    request.is.objective.ttft_us = 15000; /* workers 2 and 3 miss it */
    unsigned past = 0;
    for (int i = 0; i < 20000; i++)
        past += route_request(&all, 0, &asked, &rng).prefill != 1;
    assert_in_range(past, 140, 260);
    candidates_deinit(&all);
}

/* If all miss, one that is late with its first token is worse than one with slow tokens. */
static void test_a_missed_tpot_is_preferred_to_a_missed_ttft(void **state)
{
    (void)state;
    struct candidates all;
    struct worker_learnt learnt[3];
    struct goodput_request request = {.is = {.prompt_tokens = 100,
                                             .answer_tokens = 100,
                                             .answer_p90_tokens = 100,
                                             .objective = {.ttft_us = 100000, .tpot_us = 10000}}};
    struct policy_ask ask = {
        .policy = PLACEMENT_PREDICTED_LATENCY, .prompt_tokens = 100, .request = &request};
    const struct route_request asked = {
        .policy = &ask, .prompt_tokens = 100, .total_tokens = 200, .local = true};
    assert_int_equal(candidates_init(&all, 1), STATUS_OK);
    add_plain(&all, ROLE_DECODE, 1, 2);
    for (uint64_t key = 1; key <= 2; key++) {
        const struct step_cost cost = {.step_us = 1,
                                       .prefill_row_us = key == 1 ? 1100 : 10,
                                       .decode_row_us = key == 1 ? 1000 : 90000};
        learnt[key] = (struct worker_learnt){.chunk_rows = 1000};
        cost_fit_init(&learnt[key].steps, &cost, 100);
        candidates_get(&all, key)->is.learnt = &learnt[key];
        candidates_get(&all, key)->is.requests = 1;
    }
    assert_int_equal(route_request(&all, 0, &asked, NULL).decode, 2);
    request.is.objective.ttft_us = 200000; /* the first one attains now */
    assert_int_equal(route_request(&all, 0, &asked, NULL).decode, 1);
    candidates_deinit(&all);
}

/* The best of both roles can't pair: others are found behind them, by any policy. */
static void test_pairs_behind_the_best_are_found(void **state)
{
    (void)state;
    for (int blocked = 0; blocked < 2; blocked++)
        for (int policy = 0; policy < PLACEMENT_POLICY_COUNT; policy++) {
            struct candidates all;
            struct candidate_pair pairs[POLICY_MOST];
            const struct policy_ask ask = {.policy = (enum placement_policy)policy,
                                           .prompt_tokens = 10};
            const struct route_request asked = {
                .policy = &ask, .prompt_tokens = 10, .total_tokens = 20, .now_us = 1};
            assert_int_equal(candidates_init(&all, 1), STATUS_OK);
            add_plain(&all, ROLE_PREFILL, 1, 2);
            candidates_get(&all, 2)->is.ready = false; /* it would fit all */
            add_plain(&all, ROLE_DECODE, 3, POLICY_MOST + 1);
            struct candidate *last = candidates_get(&all, POLICY_MOST + 3);
            last->is.work_tokens = last->is.placed_at = last->is.requests = 1000;
            last->books.held_tokens = 1000;
            for (uint64_t i = 0; i < POLICY_MOST; i++) {
                pairs[i] = (struct candidate_pair){.prefill = 1, .decode = 3 + i, .until_us = 10};
                if (!blocked)
                    assert_int_equal(candidates_misfit(&all, 1, 3 + i), STATUS_OK);
            }
            assert_int_equal(candidates_block_pairs(&all, pairs, blocked ? POLICY_MOST : 0),
                             STATUS_OK);
            struct route_choice choice = route_request(&all, 0, &asked, NULL);
            assert_int_equal(choice.prefill, 1);
            assert_int_equal(choice.decode, POLICY_MOST + 3);
            candidates_deinit(&all);
        }
}

/* ------------------------------------------------------------------------- through placement */

struct queue {
    struct placement placement;
    struct placement_request requests[400];
    struct decision decision;
    size_t count;
};

static void queue_init(struct queue *q, enum placement_policy policy)
{
    const struct placement_config config = {.model_count = 1, .policy = policy, .seed = 9};
    memset(q, 0, sizeof *q);
    assert_int_equal(placement_init(&q->placement, &config), STATUS_OK);
}

static void queue_end(struct queue *q)
{
    for (size_t i = 0; i < q->count; i++)
        placement_ended(&q->placement, &q->requests[i]);
    assert_true(placement_recount(&q->placement));
    placement_deinit(&q->placement);
}

static const struct placement_use *use_of(struct placement_use *use, struct route_choice choice)
{
    *use = (struct placement_use){.prefill = choice.prefill,
                                  .decode = choice.decode,
                                  .working = true,
                                  .prompt_tokens = 100,
                                  .expected_tokens = 150,
                                  .longest_tokens = 200};
    return use;
}

/* A request comes and is placed. */
static struct route_choice place_one(struct queue *q, size_t i)
{
    struct placement_request *request = &q->requests[i];
    const struct placement_ask ask = {
        .request = {.prompt_tokens = 100, .total_tokens = 200, .decision = &q->decision},
        .predict = {.prompt_tokens = 100, .answer_tokens = 50, .answer_p90_tokens = 100},
        .slo_class = SLO_NONE};
    uint64_t tokens;
    struct placement_use use;
    q->count = i < q->count ? q->count : i + 1;
    decision_begin(&q->decision, placement_policy_names[q->placement.config.policy]);
    placement_arrived(&q->placement, request, 0, 1);
    placement_wait(&q->placement, request, PLACEMENT_NEW, 1);
    placement_begin(&q->placement, 0, 1);
    assert_ptr_equal(placement_next(&q->placement), request);
    struct route_choice choice = placement_choose(&q->placement, request, &ask, &tokens);
    assert_int_equal(choice.outcome, ROUTE_PLACED);
    placement_stop_waiting(&q->placement, request);
    placement_track(&q->placement, request, use_of(&use, choice));
    placement_placed(&q->placement, request, choice.prefill, choice.decode);
    return choice;
}

/* The prompt begins, and its reader is chosen. Returns its key. */
static uint64_t bind(struct queue *q, size_t i, uint64_t prefill)
{
    struct placement_request *request = &q->requests[i];
    const struct route_handle handle = {.prefill = prefill, .model_hash = 7, .numerics_id = 9};
    const struct placement_ask ask = {
        .request = {.prompt_tokens = 100, .total_tokens = 200, .decision = &q->decision},
        .predict = {.prompt_tokens = 100, .answer_tokens = 50, .answer_p90_tokens = 100},
        .handle = &handle,
        .ready_us = 1000,
        .slo_class = SLO_NONE};
    struct placement_use use;
    uint64_t tokens;
    placement_track(&q->placement, request,
                    use_of(&use, (struct route_choice){.prefill = prefill}));
    placement_wait(&q->placement, request, PLACEMENT_REGIVE, 1);
    placement_begin(&q->placement, 0, 1);
    assert_ptr_equal(placement_next(&q->placement), request);
    struct route_choice choice = placement_choose(&q->placement, request, &ask, &tokens);
    assert_int_equal(choice.outcome, ROUTE_PLACED);
    placement_stop_waiting(&q->placement, request);
    placement_placed(&q->placement, request, 0, choice.decode);
    return choice.decode;
}

/* The prompt is computed, and taken over. */
static void hand_over(struct queue *q, size_t i, struct route_choice choice)
{
    struct placement_use use;
    use_of(&use, choice);
    use.prefilled = true;
    placement_track(&q->placement, &q->requests[i], &use);
    use.confirmed = use.drawing = true;
    placement_track(&q->placement, &q->requests[i], &use);
}

static void add_to_queue(struct queue *q, enum worker_role role, uint64_t key, bool proven)
{
    struct route_worker worker = plain(role, key);
    worker.pool_tokens = 1000000;
    assert_int_equal(placement_worker_set(&q->placement, 0, &worker), STATUS_OK);
    candidates_get(&q->placement.candidates, key)->proven = proven ? CANDIDATE_PROVEN : 0;
}

/* A decode worker joins seven that are busy: it gets four requests at once, and one more for each
 * that it took over. Only least-tokens fills it at once. */
static void test_new_workers_start_slowly(void **state)
{
    (void)state;
    static struct queue q;
    for (int policy = 0; policy < PLACEMENT_POLICY_COUNT; policy++) {
        struct route_choice choices[400];
        unsigned at_new = 0;
        size_t i = 0;
        queue_init(&q, (enum placement_policy)policy);
        add_to_queue(&q, ROLE_PREFILL, 1, true);
        for (uint64_t key = 2; key < 9; key++)
            add_to_queue(&q, ROLE_DECODE, key, true);
        for (; i < 70; i++)
            choices[i] = place_one(&q, i);
        add_to_queue(&q, ROLE_DECODE, 9, false);
        for (; i < 200; i++) {
            choices[i] = place_one(&q, i);
            at_new += choices[i].decode == 9;
        }
        if (policy == PLACEMENT_LEAST_TOKENS)
            assert_true(at_new > 10);
        else
            assert_true(at_new <= CANDIDATE_FIRST_REQUESTS);
        for (size_t k = 70; k < 200 && policy != PLACEMENT_LEAST_TOKENS; k++)
            if (choices[k].decode == 9)
                hand_over(&q, k, choices[k]);
        unsigned before = at_new;
        for (; i < 400; i++)
            at_new += place_one(&q, i).decode == 9;
        assert_true(policy == PLACEMENT_LEAST_TOKENS || at_new <= 2 * before);
        assert_true(policy != PLACEMENT_ROUND_ROBIN || at_new > before);
        queue_end(&q);
    }
}

/* All workers are new: they are as good as any, and none is refused. */
static void test_a_new_cluster_does_not_wait(void **state)
{
    (void)state;
    static struct queue q;
    queue_init(&q, PLACEMENT_GOODPUT);
    add_to_queue(&q, ROLE_PREFILL, 1, false);
    add_to_queue(&q, ROLE_DECODE, 2, false);
    for (size_t i = 0; i < 50; i++)
        place_one(&q, i);
    queue_end(&q);
}

/* One placement in a hundred goes to the workers that were unused for the longest time, also to one
 * that looks too slow for any. */
static void test_what_looks_slow_is_looked_at_again(void **state)
{
    (void)state;
    static struct queue q;
    struct worker_learnt slow = {0}, no_prefill = {0};
    const struct step_cost cost = {.step_us = 1e6, .prefill_row_us = 1e5, .decode_row_us = 1e6},
                           dear = {.step_us = 1e4, .prefill_row_us = 1e4, .decode_row_us = 50};
    unsigned explored = 0, at_slow = 0;
    cost_fit_init(&slow.steps, &cost, 100);
    cost_fit_init(&no_prefill.steps, &dear, 100);
    queue_init(&q, PLACEMENT_GOODPUT);
    for (uint64_t key = 1; key <= 3; key++)
        add_to_queue(&q, ROLE_PREFILL, key, true);
    add_to_queue(&q, ROLE_DECODE, 4, true);
    candidates_get(&q.placement.candidates, 3)->is.learnt = &slow;
    candidates_get(&q.placement.candidates, 4)->is.learnt = &no_prefill;
    for (int i = 0; i < 20000; i++) {
        struct route_choice choice = place_one(&q, 0);
        bool is_slow = choice.prefill == 3;
        explored += q.decision.why == DECISION_EXPLORED;
        at_slow += is_slow;
        assert_true(!is_slow || q.decision.why == DECISION_EXPLORED);
        placement_ended(&q.placement, &q.requests[0]);
        q.count = 0;
    }
    assert_in_range(explored, 140, 260);
    assert_true(at_slow >= explored - 8); /* the others are used all the time */
    queue_end(&q);
}

/* Without classes, workers that differ by less than predictions do share the load, one of unknown
 * cost too. A prompt moves to a decode worker that is much sooner, unless it may never. */
static void test_equal_workers_share_the_load_without_classes(void **state)
{
    (void)state;
    static struct queue q;
    struct worker_learnt learnt[2] = {{.chunk_rows = 512}, {.chunk_rows = 512}}, late = {0};
    unsigned placed[7] = {0}, alone = 0;
    for (int i = 0; i < 2; i++)
        cost_fit_init(
            &learnt[i].steps,
            &(struct step_cost){.step_us = 1e3 + 50 * i, .prefill_row_us = 50, .decode_row_us = 5},
            100);
    queue_init(&q, PLACEMENT_GOODPUT);
    for (uint64_t key = 1; key <= 6; key++) {
        add_to_queue(&q, key <= 3 ? ROLE_PREFILL : ROLE_DECODE, key, true);
        if (key % 3)
            candidates_get(&q.placement.candidates, key)->is.learnt = &learnt[key % 3 - 1];
    }
    q.placement.config.binds_late = true; /* a guess takes no turn of its decode worker */
    for (int i = 0; i < 600; i++) {
        struct route_choice choice = place_one(&q, 0);
        placed[choice.prefill]++;
        uint64_t decode = bind(&q, 0, choice.prefill);
        assert_true(decode == choice.decode || q.decision.why == DECISION_EXPLORED);
        placed[decode]++;
        placement_ended(&q.placement, &q.requests[0]);
        q.count = 0;
    }
    for (int key = 1; key <= 6; key++)
        assert_in_range(placed[key], 180, 220);
    cost_fit_init(&late.steps, &(struct step_cost){.step_us = 1e6, .prefill_row_us = 100}, 100);
    for (uint64_t key = 1; key <= 3; key++)
        candidates_get(&q.placement.candidates, key)->is.learnt = &late;
    for (int never = 0; never < 2; never++) {
        q.placement.config.local_us = never ? UINT64_MAX : 1000000;
        for (int i = 0; i < 100; i++) {
            alone += place_one(&q, 0).prefill == 0;
            placement_ended(&q.placement, &q.requests[0]);
            q.count = 0;
        }
        assert_in_range(alone, never ? 0 : 90, never ? 0 : 100);
        alone = 0;
    }
    queue_end(&q);
}

/* Without classes neither a failure, a start nor an absence moves a prompt to a decode worker. */
static void test_only_time_moves_a_prompt_to_a_decode_worker(void **state)
{
    (void)state;
    struct candidates all;
    struct goodput_request request = {.is = {.prompt_tokens = 100, .answer_tokens = 50}};
    const struct policy_ask ask = {
        .policy = PLACEMENT_GOODPUT, .prompt_tokens = 100, .request = &request};
    struct route_request asked = {
        .policy = &ask, .prompt_tokens = 100, .total_tokens = 200, .avoid_prefill = 1};
    assert_int_equal(candidates_init(&all, 1), STATUS_OK);
    add_plain(&all, ROLE_PREFILL, 1, 1);
    add_plain(&all, ROLE_DECODE, 2, 1);
    struct candidate *prefill = candidates_get(&all, 1);
    assert_int_equal(route_request(&all, 0, &asked, NULL).prefill, 1);
    asked.avoid_prefill = 0;
    prefill->proven = 0;
    prefill->is.requests = CANDIDATE_FIRST_REQUESTS;
    assert_int_equal(route_request(&all, 0, &asked, NULL).prefill, 1);
    struct route_worker away = plain(ROLE_PREFILL, 1);
    away.ready = false;
    assert_int_equal(candidates_set(&all, 0, &away), STATUS_OK);
    assert_int_equal(route_request(&all, 0, &asked, NULL).outcome, ROUTE_NO_WORKER);
    candidates_deinit(&all);
}

/* The report has the choices that were scored, the best first, and what is expected of them. */
static void test_the_alternatives_are_told(void **state)
{
    (void)state;
    static struct queue q;
    queue_init(&q, PLACEMENT_GOODPUT);
    for (uint64_t key = 1; key <= 3; key++)
        add_to_queue(&q, ROLE_PREFILL, key, true);
    for (uint64_t key = 4; key <= 6; key++)
        add_to_queue(&q, ROLE_DECODE, key, true);
    for (size_t i = 0; i < 20; i++) {
        struct route_choice choice = place_one(&q, i);
        const struct decision *decision = &q.decision;
        const struct decision_alternative *chosen = &decision->alternatives[decision->chosen];
        assert_int_equal(chosen->prefill, choice.prefill);
        assert_int_equal(chosen->decode, choice.decode);
        assert_string_equal(decision->policy, "goodput");
        if (decision->why == DECISION_EXPLORED)
            continue;
        assert_int_equal(decision->considered, 12); /* nine pairs, three decode workers alone */
        assert_int_equal(decision->count, DECISION_MAX_ALTERNATIVES);
        assert_int_equal(decision->chosen, 0);
        assert_true(chosen->ttft_us > 0 && chosen->tpot_us > 0);
        assert_float_equal(chosen->ttft_us, q.requests[i].predicted.ttft_us, 1e-6);
        for (uint32_t k = 1; k < decision->count; k++)
            assert_true(decision->alternatives[k].total >= decision->alternatives[k - 1].total);
    }
    queue_end(&q);
}

/* By each policy the choice that won has the least total of those that are told, whatever its unit,
 * also where the cost of the best is 0. */
static void test_the_least_total_wins(void **state)
{
    (void)state;
    static struct queue q;
    for (int policy = 0; policy < PLACEMENT_POLICY_COUNT; policy++) {
        queue_init(&q, (enum placement_policy)policy);
        for (uint64_t key = 1; key <= 3; key++)
            add_to_queue(&q, ROLE_PREFILL, key, true);
        for (uint64_t key = 4; key <= 6; key++)
            add_to_queue(&q, ROLE_DECODE, key, true);
        for (size_t i = 0; i < 20; i++) {
            (void)place_one(&q, i);
            const struct decision *decision = &q.decision;
            double won = decision->alternatives[decision->chosen].total;
            for (uint32_t k = 0; decision->why != DECISION_EXPLORED && k < decision->count; k++)
                if (decision->alternatives[k].total < won)
                    fail_msg("%s: %g, not %g", placement_policy_names[policy], won,
                             decision->alternatives[k].total);
        }
        queue_end(&q);
    }
}

/* Equal seeds and events give equal choices. */
static void test_choices_follow_the_seed(void **state)
{
    (void)state;
    static struct queue a, b;
    for (int policy = 0; policy < PLACEMENT_POLICY_COUNT; policy++) {
        queue_init(&a, (enum placement_policy)policy);
        queue_init(&b, (enum placement_policy)policy);
        for (uint64_t key = 1; key <= 2 * MANY; key++) {
            enum worker_role role = key <= MANY ? ROLE_PREFILL : ROLE_DECODE;
            add_to_queue(&a, role, key, key % 3);
            add_to_queue(&b, role, key, key % 3);
        }
        for (size_t i = 0; i < 300; i++) {
            struct route_choice x = place_one(&a, i), y = place_one(&b, i);
            assert_int_equal(x.prefill, y.prefill);
            assert_int_equal(x.decode, y.decode);
        }
        queue_end(&a);
        queue_end(&b);
    }
}

/* Sequences of a decode worker share half of their KV. Without a prefill worker it computes
 * prompts, and each sequence counts whole. */
static void test_kv_is_shared_where_no_prompts_are_computed(void **state)
{
    (void)state;
    static struct queue q;
    struct worker_learnt learnt = {.kv_rows = 1000, .kv_tokens = 500};
    queue_init(&q, PLACEMENT_GOODPUT);
    add_to_queue(&q, ROLE_PREFILL, 1, true);
    add_to_queue(&q, ROLE_DECODE, 2, true);
    struct candidate *decode = candidates_get(&q.placement.candidates, 2);
    placement_worker_load(&q.placement, 2, 0);
    assert_true(decode->kv_shared <= 0); /* nothing is known of it */
    decode->is.learnt = &learnt;
    placement_worker_load(&q.placement, 2, 0);
    assert_true(decode->kv_shared >= 1 && decode->kv_shared <= 1);
    placement_worker_remove(&q.placement, 1);
    placement_worker_load(&q.placement, 2, 0);
    assert_true(decode->kv_shared <= 0);
    queue_end(&q);
}

static void test_reserves(void **state)
{
    (void)state;
    static const struct {
        uint32_t total;
        size_t pools;
        uint32_t reserve;
    } cases[] = {{4096, 1, 2048}, {4096, 2, 1024}, {4096, 3, 682}, {4096, 16, 128},
                 {4, 2, 1},       {3, 2, 0},       {1, 16, 0},     {UINT32_MAX, 1, 2147483647}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(placement_reserve(cases[i].total, cases[i].pools), cases[i].reserve);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_draws_are_fair),
        cmocka_unit_test(test_the_softmax_follows_the_temperature),
        cmocka_unit_test(test_latency_draws_go_by_the_score),
        cmocka_unit_test(test_a_missed_tpot_is_preferred_to_a_missed_ttft),
        cmocka_unit_test(test_pairs_behind_the_best_are_found),
        cmocka_unit_test(test_new_workers_start_slowly),
        cmocka_unit_test(test_a_new_cluster_does_not_wait),
        cmocka_unit_test(test_what_looks_slow_is_looked_at_again),
        cmocka_unit_test(test_equal_workers_share_the_load_without_classes),
        cmocka_unit_test(test_only_time_moves_a_prompt_to_a_decode_worker),
        cmocka_unit_test(test_the_alternatives_are_told),
        cmocka_unit_test(test_the_least_total_wins),
        cmocka_unit_test(test_choices_follow_the_seed),
        cmocka_unit_test(test_kv_is_shared_where_no_prompts_are_computed),
        cmocka_unit_test(test_reserves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
