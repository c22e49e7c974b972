/* route_pools: a pool decides as if it were alone, whatever the others have, lack or get. Also its
 * reserve of the places. */
#include "router/planner/route_pools.h"

#include "common/base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define SEEDS       2000
#define MAX_WORKERS 12 /* in one pool */

/* One cluster: the workers of each pool in its own order. Few values, so that workers of different
 * pools are often alike. */
struct life {
    struct rng rng;
    size_t pool_count;
    size_t counts[ROUTE_MAX_POOLS];
    struct route_worker workers[ROUTE_MAX_POOLS][MAX_WORKERS];
    struct route_misfit misfits[4];
    struct route_pools pools;
};

static uint64_t draw(struct life *life, uint64_t below)
{
    return rng_below(&life->rng, below);
}

static struct route_worker random_worker(struct life *life, uint64_t key)
{
    return (struct route_worker){
        .key = key,
        .role = draw(life, 2) ? ROLE_DECODE : ROLE_PREFILL,
        .ready = draw(life, 4) != 0,
        .away_since_us = 1 + draw(life, 4),
        .model_hash = 1 + draw(life, 2),
        .layout_hash = draw(life, 4) ? 1 : 2,
        .numerics_id = draw(life, 4) ? 1 : 2,
        .capacity_tokens = 50 * (1 + draw(life, 6)),
        .work_tokens = draw(life, 4),
        .unconfirmed_tokens = 30 * draw(life, 2),
        .unconfirmed_limit_tokens = 120,
        .requests = (uint32_t)draw(life, 3),
        .max_requests = (uint32_t)draw(life, 4),
        .placed_at = draw(life, 3),
    };
}

/* Adds all workers, those of the pools in turn at random. */
static void build(struct life *life)
{
    size_t added[ROUTE_MAX_POOLS] = {0}, left = 0;
    route_pools_reset(&life->pools, life->pool_count, life->counts);
    for (size_t i = 0; i < life->pool_count; i++)
        left += life->counts[i];
    while (left) {
        size_t pool = draw(life, life->pool_count);
        if (added[pool] == life->counts[pool])
            continue;
        route_pools_add(&life->pools, pool, &life->workers[pool][added[pool]++], false);
        left--;
    }
}

static void life_init(struct life *life, uint64_t seed)
{
    memset(life, 0, sizeof *life);
    life->rng = rng_seeded(seed);
    life->pool_count = 1 + draw(life, 5);
    uint64_t key = 0;
    for (size_t i = 0; i < life->pool_count; i++) {
        life->counts[i] = draw(life, MAX_WORKERS + 1);
        for (size_t k = 0; k < life->counts[i]; k++)
            life->workers[i][k] = random_worker(life, ++key);
    }
    for (size_t i = 0; i < 4; i++)
        life->misfits[i] = (struct route_misfit){.prefill = 1 + draw(life, key + 1),
                                                 .decode = 1 + draw(life, key + 1)};
    build(life);
}

static const struct route_worker *worker_of(const struct life *life, size_t pool, uint64_t key)
{
    for (size_t i = 0; i < life->counts[pool]; i++)
        if (life->workers[pool][i].key == key)
            return &life->workers[pool][i];
    return NULL;
}

static bool same(struct route_choice a, struct route_choice b)
{
    return a.outcome == b.outcome && a.lack == b.lack && a.prefill == b.prefill &&
           a.decode == b.decode && a.away_since_us == b.away_since_us;
}

/* Checks a placement, whatever the rules preferred. */
static void check_place(const struct life *life, size_t pool, const struct route_request *request,
                        struct route_choice choice)
{
    if (choice.outcome != ROUTE_PLACED)
        return;
    const struct route_worker *decode = worker_of(life, pool, choice.decode);
    const struct route_worker *prefill = worker_of(life, pool, choice.prefill);
    assert_non_null(decode); /* from its own pool */
    assert_true(decode->role == ROLE_DECODE && decode->ready);
    assert_true(request->total_tokens <= decode->capacity_tokens);
    if (request->kind)
        assert_true(request->kind->model_hash == decode->model_hash &&
                    request->kind->numerics_id == decode->numerics_id);
    assert_int_equal(prefill != NULL, choice.prefill != 0);
    if (!prefill)
        return;
    assert_true(prefill->role == ROLE_PREFILL && prefill->ready);
    assert_true(prefill->model_hash == decode->model_hash &&
                prefill->layout_hash == decode->layout_hash &&
                prefill->numerics_id == decode->numerics_id);
    for (size_t i = 0; i < request->misfit_count; i++)
        assert_false(request->misfits[i].prefill == prefill->key &&
                     request->misfits[i].decode == decode->key);
}

static struct route_request random_request(struct life *life, struct route_kind *kind)
{
    *kind = (struct route_kind){.model_hash = 1 + draw(life, 2), .numerics_id = 1 + draw(life, 2)};
    uint64_t prompt = 1 + draw(life, 120);
    return (struct route_request){.kind = draw(life, 2) ? kind : NULL,
                                  .prompt_tokens = prompt,
                                  .total_tokens = prompt + draw(life, 60),
                                  .avoid_prefill = draw(life, 8),
                                  .avoid_decode = draw(life, 8),
                                  .local = draw(life, 5) == 0,
                                  .local_away_us = draw(life, 4),
                                  .misfits = life->misfits,
                                  .misfit_count = draw(life, 5)};
}

static void test_a_pool_decides_as_if_it_were_alone(void **state)
{
    (void)state;
    static struct life life;
    unsigned outcomes[ROUTE_TOO_LONG + 1] = {0}, pairs = 0, begun = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct route_kind kind;
        life_init(&life, seed);
        size_t pool = draw(&life, life.pool_count);
        struct route_request request = random_request(&life, &kind);
        struct route_choice choice = route_pools_request(&life.pools, pool, &request);
        if (!same(choice, route_request(life.workers[pool], life.counts[pool], &request)))
            fail_msg("seed %llu: another choice than alone", (unsigned long long)seed);
        check_place(&life, pool, &request, choice);
        outcomes[choice.outcome]++;
        pairs += choice.prefill != 0;
        begun += request.kind && choice.outcome == ROUTE_PLACED;
        /* Changes in the other pools don't affect it. */
        for (size_t i = 0; i < life.pool_count; i++) {
            if (i == pool)
                continue;
            life.counts[i] = draw(&life, MAX_WORKERS + 1);
            for (size_t k = 0; k < life.counts[i]; k++)
                life.workers[i][k] = random_worker(&life, 1000 + 100 * i + k);
        }
        build(&life);
        if (!same(choice, route_pools_request(&life.pools, pool, &request)))
            fail_msg("seed %llu: other pools changed the choice", (unsigned long long)seed);
    }
    for (int outcome = 0; outcome <= ROUTE_TOO_LONG; outcome++)
        assert_true(outcome == ROUTE_NO_READER || outcomes[outcome] > SEEDS / 100);
    assert_true(pairs > SEEDS / 50 && begun > SEEDS / 50);
}

static void test_a_handle_stays_in_its_pool(void **state)
{
    (void)state;
    static struct life life;
    unsigned outcomes[ROUTE_TOO_LONG + 1] = {0};
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct route_kind kind;
        life_init(&life, seed);
        size_t pool = draw(&life, life.pool_count);
        struct route_request request = random_request(&life, &kind);
        request.kind = NULL;
        struct route_handle handle = {.prefill = 1 + draw(&life, 20),
                                      .model_hash = 1 + draw(&life, 2),
                                      .layout_hash = 1,
                                      .numerics_id = 1};
        struct route_choice choice = route_pools_handle(&life.pools, pool, &request, &handle);
        assert_true(
            same(choice, route_handle(life.workers[pool], life.counts[pool], &request, &handle)));
        outcomes[choice.outcome]++;
        if (choice.outcome != ROUTE_PLACED)
            continue;
        const struct route_worker *decode = worker_of(&life, pool, choice.decode);
        assert_non_null(decode);
        assert_true(decode->model_hash == handle.model_hash && decode->ready);
    }
    assert_true(outcomes[ROUTE_PLACED] > SEEDS / 10 && outcomes[ROUTE_NO_READER] > SEEDS / 100);
}

static void test_who_is_there_is_counted(void **state)
{
    (void)state;
    static struct route_pools pools;
    const struct route_worker up = {.key = 1, .role = ROLE_DECODE, .ready = true},
                              down = {.key = 2, .role = ROLE_DECODE},
                              prefill = {.key = 3, .role = ROLE_PREFILL, .ready = true};
    route_pools_reset(&pools, 3, (size_t[]){3, 0, 1});
    route_pools_add(&pools, 2, &prefill, false);
    route_pools_add(&pools, 0, &up, false);
    route_pools_add(&pools, 0, &down, false);
    struct route_worker *added = route_pools_add(&pools, 0, &down, true);
    assert_int_equal(added->key, 2);
    assert_int_equal(pools.pools[0].roles[ROLE_DECODE].known, 3);
    assert_int_equal(pools.pools[0].roles[ROLE_DECODE].up, 1);
    assert_int_equal(pools.pools[0].roles[ROLE_DECODE].draining, 1);
    assert_int_equal(pools.pools[0].roles[ROLE_PREFILL].known, 0);
    assert_int_equal(pools.pools[1].count, 0);
    assert_int_equal(pools.pools[2].roles[ROLE_PREFILL].up, 1);
    assert_int_equal(pools.workers[pools.pools[2].first].key, 3);
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
        assert_int_equal(route_pools_reserve(cases[i].total, cases[i].pools), cases[i].reserve);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_pool_decides_as_if_it_were_alone),
        cmocka_unit_test(test_a_handle_stays_in_its_pool),
        cmocka_unit_test(test_who_is_there_is_counted),
        cmocka_unit_test(test_reserves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
