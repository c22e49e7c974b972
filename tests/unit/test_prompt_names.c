/* prompt_names: the names are the workers' own. A prompt that is placed is promised to its workers,
 * and siblings follow it. */
#include "common/engine/sched/prefix_cache.h"
#include "router/planner/placement.h"
#include "tests/unit/prefix_index_fixture.h"

#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------- names and events of a worker's own cache */

static void feed(struct prefix_index *index, struct prefix_cache *cache)
{
    struct prefix_event events[4];
    for (uint32_t count; (count = prefix_cache_read_events(cache, events, 4));)
        assert_int_equal(prefix_index_take(index, 5, events, count), PREFIX_TAKE_OK);
}

/* Caches the whole blocks of a prompt. */
static void compute(struct prefix_cache *cache, struct kv_blocks *blocks, struct prefix_hash root,
                    const uint32_t *tokens, uint32_t count)
{
    struct prefix_chain chain = prefix_chain_start(root);
    uint32_t ids[64], known;
    uint32_t found = prefix_cache_lookup(cache, &chain, tokens, count, KV_HOLD_USED, ids);
    uint32_t whole = count / B;
    assert_int_equal(kv_blocks_take(blocks, whole - found, KV_HOLD_USED, ids + found), STATUS_OK);
    for (uint32_t i = found; i < whole; i++)
        prefix_cache_insert(cache, &chain, tokens + (size_t)i * B, ids[i], &known);
    kv_blocks_give(blocks, ids, whole, KV_HOLD_USED);
}

static void test_names_are_the_workers_own(void **state)
{
    (void)state;
    struct kv_blocks *blocks;
    struct prefix_cache *cache;
    assert_int_equal(kv_blocks_create(64, &blocks), STATUS_OK);
    const struct prefix_cache_config config = {
        .blocks = blocks, .block_tokens = B, .event_capacity = 16};
    assert_int_equal(prefix_cache_create(&config, &cache), STATUS_OK);
    struct prefix_index *index = index_of(1024);
    struct candidates candidates;
    assert_int_equal(candidates_init(&candidates, 1), STATUS_OK);
    struct route_worker worker = {.key = 5,
                                  .role = ROLE_PREFILL,
                                  .ready = true,
                                  .model_hash = 1,
                                  .numerics_id = 2,
                                  .block_tokens = B};
    assert_int_equal(candidates_set(&candidates, 0, &worker), STATUS_OK);
    uint32_t tokens[40];
    for (uint32_t i = 0; i < 40; i++)
        tokens[i] = 100 + i;
    compute(cache, blocks, root_of(1), tokens, 30);
    feed(index, cache);
    static const uint32_t counts[] = {2, 3, 4, 29, 30, 31, 40};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        struct prompt_names names = {.count = 0};
        const struct prompt_text prompt = {tokens, counts[i], "tenant", 6};
        prompt_names_update(&names, &prompt, &candidates.pools[0]);
        prompt_names_update(&names, &prompt, &candidates.pools[0]); /* once for each kind */
        assert_int_equal(names.count, 1);
        assert_ptr_equal(prefix_names_for(names.kinds, names.count, &worker), &names.kinds[0]);
        struct prefix_holder holder = {.blocks = 0};
        prefix_index_match(index, names.kinds, names.count, &holder, 1);
        struct prefix_match own = prefix_cache_match(cache, root_of(1), tokens, counts[i]);
        assert_int_equal(holder.blocks, own.blocks);
        prompt_names_deinit(&names);
    }
    prefix_cache_clear(cache);
    feed(index, cache);
    assert_int_equal(credited(index, 5), 0);
    prefix_cache_destroy(cache);
    kv_blocks_destroy(blocks);
    candidates_deinit(&candidates);
    prefix_index_destroy(index);
}

/* Workers of different numerics that may be paired (mixed-numerics) are of one kind. A prompt is
 * found where it was computed, and nowhere else. */
static void test_mixed_numerics_have_names_of_their_own(void **state)
{
    (void)state;
    enum { WORKERS = CANDIDATE_OWN_NUMERICS + 1 };
    struct kv_blocks *blocks;
    struct prefix_cache *cache;
    assert_int_equal(kv_blocks_create(64, &blocks), STATUS_OK);
    const struct prefix_cache_config config = {
        .blocks = blocks, .block_tokens = B, .event_capacity = 16};
    assert_int_equal(prefix_cache_create(&config, &cache), STATUS_OK);
    struct prefix_index *index = index_of(1024);
    struct candidates candidates;
    assert_int_equal(candidates_init(&candidates, 1), STATUS_OK);
    struct route_worker workers[WORKERS];
    for (uint64_t i = 0; i < WORKERS; i++) {
        workers[i] = (struct route_worker){.key = 5 + i,
                                           .role = i % 2 ? ROLE_DECODE : ROLE_PREFILL,
                                           .ready = true,
                                           .model_hash = 1,
                                           .own_numerics_id = 2 + i,
                                           .block_tokens = B};
        for (int again = 0; again < 2; again++)
            assert_int_equal(candidates_set(&candidates, 0, &workers[i]), STATUS_OK);
    }
    assert_int_equal(candidates.pools[0].kind_count, 1);
    uint32_t tokens[30];
    for (uint32_t i = 0; i < 30; i++)
        tokens[i] = 100 + i;
    compute(cache, blocks, root_of(1), tokens, 30);
    feed(index, cache);
    struct prompt_names names = {.count = 0};
    const struct prompt_text prompt = {tokens, 30, "tenant", 6};
    prompt_names_update(&names, &prompt, &candidates.pools[0]);
    assert_int_equal(names.count, CANDIDATE_OWN_NUMERICS);
    for (size_t i = 0; i < CANDIDATE_OWN_NUMERICS; i++)
        assert_int_equal(prefix_names_for(names.kinds, names.count, &workers[i])->numerics_id,
                         2 + i);
    assert_null(prefix_names_for(names.kinds, names.count, &workers[WORKERS - 1]));
    struct prefix_holder holders[WORKERS];
    assert_int_equal(prefix_index_match(index, names.kinds, names.count, holders, WORKERS), 1);
    assert_int_equal(holders[0].worker, 5);
    prompt_names_deinit(&names);
    candidates_remove(&candidates, workers[1].key); /* an upgrade: its numerics are gone */
    names = (struct prompt_names){.count = 0};
    prompt_names_update(&names, &prompt, &candidates.pools[0]);
    assert_int_equal(names.count, CANDIDATE_OWN_NUMERICS);
    assert_null(prefix_names_for(names.kinds, names.count, &workers[1]));
    assert_non_null(prefix_names_for(names.kinds, names.count, &workers[WORKERS - 1]));
    prompt_names_deinit(&names);
    prefix_cache_destroy(cache);
    kv_blocks_destroy(blocks);
    candidates_deinit(&candidates);
    prefix_index_destroy(index);
}

static void test_a_long_prompt_has_names_for_its_beginning(void **state)
{
    (void)state;
    enum { TOKENS = PREFIX_MAX_NAMES + 10 };
    uint32_t *tokens = calloc(TOKENS, sizeof *tokens);
    struct candidates candidates;
    struct prompt_names names = {.count = 0};
    const struct prompt_text prompt = {.tokens = tokens, .count = TOKENS};
    assert_int_equal(candidates_init(&candidates, 1), STATUS_OK);
    for (uint64_t kind = 1; kind <= PREFIX_MAX_KINDS + 1; kind++) {
        const struct route_worker worker = {.key = kind,
                                            .role = ROLE_DECODE,
                                            .model_hash = kind,
                                            .layout_hash = kind,
                                            .block_tokens = 1};
        assert_int_equal(candidates_set(&candidates, 0, &worker), STATUS_OK);
    }
    prompt_names_update(&names, &prompt, &candidates.pools[0]);
    assert_int_equal(names.count, PREFIX_MAX_KINDS);
    assert_int_equal(names.kinds[0].count, PREFIX_MAX_NAMES);
    assert_int_equal(names.kinds[0].match_count, PREFIX_MAX_NAMES);
    assert_false(prefix_hash_equal(names.kinds[0].names[0], names.kinds[1].names[0]));
    assert_null(prefix_names_for(names.kinds, names.count, &(struct route_worker){.key = 1}));
    prompt_names_deinit(&names);
    candidates_deinit(&candidates);
    free(tokens);
}

/* ------------------------------------------------------------------------------------ placement */

struct burst {
    struct placement placement;
    struct placement_request request;
    struct prefix_hash hashes[8];
    struct prefix_names names;
    struct placement_use use;
};

/* Workers 1 and 3 prefill, 2 decodes. Prompts have 8 blocks. */
static void burst_workers(struct burst *b, enum placement_policy policy)
{
    memset(b, 0, sizeof *b);
    const struct placement_config config = {
        .model_count = 1, .policy = policy, .prefix_limit = 256};
    assert_int_equal(placement_init(&b->placement, &config), STATUS_OK);
    for (uint64_t key = 1; key <= 3; key++) {
        const struct route_worker worker = {.key = key,
                                            .role = key == 2 ? ROLE_DECODE : ROLE_PREFILL,
                                            .ready = true,
                                            .model_hash = 1,
                                            .layout_hash = 1,
                                            .numerics_id = 2,
                                            .block_tokens = 32,
                                            .capacity_tokens = 4096,
                                            .unconfirmed_limit_tokens = 4096};
        assert_int_equal(placement_worker_set(&b->placement, 0, &worker), STATUS_OK);
        begin(b->placement.prefix_index, key);
    }
    b->names = names_to(b->hashes, 0, 8);
    b->names.model_hash = 1;
    b->names.numerics_id = 2;
}

/* Places a new request. Returns its prefill worker. */
static uint64_t burst_place(struct burst *b, struct placement_request *request)
{
    placement_arrived(&b->placement, request, 0, 0);
    placement_wait(&b->placement, request, PLACEMENT_NEW, 0);
    placement_begin(&b->placement, 0, 0);
    assert_ptr_equal(placement_next(&b->placement), request);
    const struct placement_ask ask = {.request = {.prompt_tokens = 256, .total_tokens = 300},
                                      .prefixes = &b->names,
                                      .prefix_kind_count = 1};
    uint64_t placed_tokens;
    struct route_choice choice = placement_choose(&b->placement, request, &ask, &placed_tokens);
    assert_int_equal(choice.outcome, ROUTE_PLACED);
    placement_stop_waiting(&b->placement, request);
    b->use = (struct placement_use){.prefill = choice.prefill,
                                    .decode = choice.decode,
                                    .working = true,
                                    .prompt_tokens = 256,
                                    .longest_tokens = 300,
                                    .expected_tokens = 300};
    placement_track(&b->placement, request, &b->use);
    placement_placed(&b->placement, request, choice.prefill, choice.decode);
    return choice.prefill;
}

/* A request is placed on workers 1 and 2. */
static void burst_init(struct burst *b)
{
    burst_workers(b, PLACEMENT_LEAST_TOKENS);
    burst_place(b, &b->request);
    b->use.prefill = 1;
    placement_track(&b->placement, &b->request, &b->use);
}

/* Before any event, siblings go to the worker that will compute their prompt. */
static void test_siblings_follow_a_promise(void **state)
{
    (void)state;
    struct burst b;
    struct placement_request siblings[2];
    burst_workers(&b, PLACEMENT_PREFIX);
    uint64_t worker = burst_place(&b, &b.request);
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(burst_place(&b, &siblings[i]), worker);
    placement_ended(&b.placement, &b.request);
    for (size_t i = 0; i < 2; i++)
        placement_ended(&b.placement, &siblings[i]);
    placement_deinit(&b.placement);
}

static uint32_t found(const struct burst *b, uint64_t worker)
{
    return prefix_index_blocks(b->placement.prefix_index, worker, b->hashes, 8);
}

static void test_a_placed_prompt_is_promised(void **state)
{
    (void)state;
    struct burst b;
    burst_init(&b);
    assert_int_equal(found(&b, 1), 8);
    assert_int_equal(found(&b, 2), 0); /* nothing is there yet */
    assert_int_equal(found(&b, 3), 0);
    b.use.prefill = 3; /* it is placed again */
    placement_track(&b.placement, &b.request, &b.use);
    assert_int_equal(found(&b, 1), 0);
    assert_int_equal(found(&b, 3), 8);
    b.use.prefilled = true;
    b.use.now_us = 1000;
    placement_track(&b.placement, &b.request, &b.use);
    placement_ended(&b.placement, &b.request);
    assert_int_equal(found(&b, 3), 8); /* it was computed: events follow */
    placement_begin(&b.placement, 0, 1000 + PREFIX_COMPUTED_US);
    assert_int_equal(found(&b, 3), 0);
    placement_deinit(&b.placement);
}

/* It is promised what it computes. Its events tell what it takes over. */
static void test_a_decode_worker_is_promised_what_it_computes(void **state)
{
    (void)state;
    for (int local = 0; local < 2; local++) {
        struct burst b;
        burst_init(&b);
        b.use.prefill = local ? 0 : 1;
        placement_track(&b.placement, &b.request, &b.use);
        assert_int_equal(found(&b, 2), local ? 8 : 0);
        b.use.prefilled = true;
        b.use.confirmed = !local;
        placement_track(&b.placement, &b.request, &b.use);
        assert_int_equal(found(&b, 2), local ? 8 : 0);
        assert_int_equal(stores(b.placement.prefix_index, 2, 2, 0, 8), PREFIX_TAKE_OK);
        assert_int_equal(found(&b, 2), 8);
        placement_ended(&b.placement, &b.request);
        placement_deinit(&b.placement);
    }
}

static void test_a_request_that_ends_takes_its_promises_back(void **state)
{
    (void)state;
    struct burst b;
    burst_init(&b);
    prefix_index_free_blocks(b.placement.prefix_index, 1, 10);
    assert_int_equal(stores(b.placement.prefix_index, 1, 2, 100, 4), PREFIX_TAKE_OK);
    assert_int_equal(prefix_index_evicts(b.placement.prefix_index, 1, 4), 2);
    b.use.reserved = true; /* its blocks are taken */
    placement_track(&b.placement, &b.request, &b.use);
    assert_int_equal(prefix_index_evicts(b.placement.prefix_index, 1, 4), 0);
    placement_ended(&b.placement, &b.request);
    assert_int_equal(found(&b, 1), 0);
    assert_int_equal(found(&b, 2), 0);
    assert_int_equal(prefix_index_figures(b.placement.prefix_index).promises, 0);
    placement_deinit(&b.placement);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_are_the_workers_own),
        cmocka_unit_test(test_mixed_numerics_have_names_of_their_own),
        cmocka_unit_test(test_a_long_prompt_has_names_for_its_beginning),
        cmocka_unit_test(test_siblings_follow_a_promise),
        cmocka_unit_test(test_a_placed_prompt_is_promised),
        cmocka_unit_test(test_a_decode_worker_is_promised_what_it_computes),
        cmocka_unit_test(test_a_request_that_ends_takes_its_promises_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
