/* mock_rows: the context is a function of the right bytes alone, of all of them, in their order; it
 * depends on no chunk and no block id. */
#include "common/engine/mock/mock_engine.h"

#include "common/base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define BLOCK  8
#define BLOCKS 16
#define ROWS   27

struct pool {
    struct kv_layout layout;
    uint8_t bytes[BLOCKS * BLOCK * MOCK_ROW_BYTES];
    uint32_t tokens[ROWS];
};

static struct pool pool_of(uint64_t seed)
{
    struct pool pool = {.layout = mock_layout(BLOCK)};
    for (uint32_t i = 0; i < ROWS; i++)
        pool.tokens[i] = (uint32_t)rng_at(seed, 0, i) % 1000;
    return pool;
}

static const uint32_t OWN[4] = {5, 0, 7, 2}, OTHER[4] = {1, 3, 4, 6};

static struct mock_kv kv_of(struct pool *pool, const uint32_t *blocks)
{
    return (struct mock_kv){
        .pool = pool->bytes, .layout = &pool->layout, .blocks = blocks, .seed = 9};
}

/* Writes rows [from, to) and returns the context behind them. */
static uint64_t write_rows(struct pool *pool, const uint32_t *blocks, uint32_t from, uint32_t to)
{
    struct mock_kv kv = kv_of(pool, blocks);
    return mock_write_rows(&kv, pool->tokens + from, from, to - from);
}

static void test_chunks_and_block_ids_leave_no_trace(void **state)
{
    (void)state;
    struct pool pool = pool_of(1);
    uint64_t whole = write_rows(&pool, OWN, 0, ROWS);
    for (uint32_t cut = 1; cut < ROWS; cut++) {
        write_rows(&pool, OTHER, 0, cut);
        assert_true(write_rows(&pool, OTHER, cut, ROWS) == whole);
    }
    for (uint32_t row = 0; row < ROWS; row++) {
        struct mock_kv own = kv_of(&pool, OWN), other = kv_of(&pool, OTHER);
        assert_true(mock_row(&own, row) == mock_row(&other, row));
    }
    struct mock_kv another = kv_of(&pool, OWN);
    another.seed = 10;
    assert_true(mock_write_rows(&another, pool.tokens, 0, ROWS) != whole);
}

/* Each token changes its own row and all later ones, and none before. */
static void test_rows_are_a_chain(void **state)
{
    (void)state;
    for (uint32_t at = 0; at < ROWS; at++) {
        struct pool pool = pool_of(2);
        uint64_t context = write_rows(&pool, OWN, 0, ROWS);
        struct mock_kv own = kv_of(&pool, OWN), other = kv_of(&pool, OTHER);
        pool.tokens[at] ^= 1;
        assert_true(write_rows(&pool, OTHER, 0, ROWS) != context);
        for (uint32_t row = 0; row < ROWS; row++)
            assert_int_equal(mock_row(&own, row) == mock_row(&other, row), row < at);
    }
}

/* Each bit of each earlier row counts, wherever the next row stands; bits of later rows don't. */
static void test_every_bit_before_counts_and_none_behind(void **state)
{
    (void)state;
    struct pool pool = pool_of(3);
    write_rows(&pool, OWN, 0, ROWS);
    for (uint32_t next = 1; next < ROWS; next += 5) {
        uint64_t context = write_rows(&pool, OWN, next, next + 1);
        for (uint32_t row = 0; row < ROWS; row++)
            for (uint32_t bit = 0; row != next && bit < MOCK_ROW_BYTES * 8; bit++) {
                uint32_t half = bit / 32;
                uint8_t *byte = pool.bytes + OWN[row / BLOCK] * BLOCK * MOCK_ROW_BYTES +
                                half * BLOCK * 4 + row % BLOCK * 4 + bit % 32 / 8;
                *byte ^= (uint8_t)(1u << bit % 8);
                assert_int_equal(write_rows(&pool, OWN, next, next + 1) == context, row > next);
                *byte ^= (uint8_t)(1u << bit % 8);
            }
        assert_true(write_rows(&pool, OWN, next, next + 1) == context);
    }
}

/* Blocks of another sequence, in another order, or twice. */
static void test_every_block_has_its_place(void **state)
{
    (void)state;
    struct pool pool = pool_of(4), others = pool_of(5);
    uint64_t context = write_rows(&pool, OWN, 0, ROWS);
    memcpy(others.bytes, pool.bytes, sizeof pool.bytes);
    write_rows(&others, OTHER, 0, ROWS);
    memcpy(pool.bytes, others.bytes, sizeof pool.bytes);
    static const uint32_t tables[][4] = {{1, 0, 7, 2}, {5, 3, 7, 2}, {5, 0, 4, 2}, {0, 5, 7, 2},
                                         {5, 7, 0, 2}, {5, 0, 0, 2}, {5, 0, 12, 2}};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        assert_true(write_rows(&pool, tables[i], ROWS - 1, ROWS) != context);
    write_rows(&pool, OWN, ROWS - 1, ROWS);
    assert_true(write_rows(&pool, OWN, ROWS - 1, ROWS) == context);
}

/* --- draws --- */

static const uint32_t IDS[8] = {3, 5, 8, 13, 21, 34, 55, 89}, ENDS[1] = {2};
static const struct mock_tokens TOKENS = {
    .ids = IDS, .count = 8, .vocab = 96, .end_ids = ENDS, .end_count = 1};

static uint32_t draw(const struct sampling *sampling, uint32_t index, const uint32_t *allowed,
                     bool ban_end, uint64_t context, enum status wanted)
{
    const struct engine_sequence sequence = {
        .sampling = sampling, .index = index, .allowed = allowed, .ban_end = ban_end};
    uint32_t token = UINT32_MAX;
    assert_int_equal(mock_draw(&TOKENS, &sequence, context, &token), wanted);
    return token;
}

/* Counts how often two settings draw different tokens, over many contexts. */
static uint32_t differ(const struct sampling *a, const struct sampling *b, uint32_t index_b)
{
    uint32_t different = 0;
    for (uint64_t context = 0; context < 400; context++)
        different += draw(a, 0, NULL, false, context, STATUS_OK) !=
                     draw(b, index_b, NULL, false, context, STATUS_OK);
    return different;
}

static void test_seed_choice_and_index_count_unless_greedy(void **state)
{
    (void)state;
    struct sampling one = sampling_default(), seed = one, choice = one, greedy = one;
    seed.seed = 1;
    choice.choice = 1;
    greedy.temperature = 0;
    struct sampling greedy_seed = greedy;
    greedy_seed.seed = 7;
    assert_int_equal(differ(&one, &one, 0), 0);
    assert_in_range(differ(&one, &seed, 0), 200, 330); /* two draws agree with probability 1/3 */
    assert_in_range(differ(&one, &choice, 0), 200, 330);
    assert_in_range(differ(&one, &one, 1), 200, 330);
    assert_int_equal(differ(&greedy, &greedy_seed, 3), 0);
    uint32_t seen = 0;
    for (uint64_t context = 0; context < 400; context++)
        seen |= 1u << draw(&greedy, 0, NULL, false, context, STATUS_OK) % 32;
    assert_int_equal(__builtin_popcount(seen), 8); /* every token is the likeliest somewhere */
}

static void test_bans_ends_and_what_is_allowed(void **state)
{
    (void)state;
    struct sampling sampling = sampling_default();
    const struct logit_bias biases[] = {{3, -100}, {5, -99.5f}, {8, -100}, {21, 100}};
    sampling.biases = biases;
    sampling.bias_count = 4;
    sampling.stop_id_count = 2;
    sampling.stop_ids[0] = 34;
    sampling.stop_ids[1] = 55;
    uint32_t seen[2] = {0};
    for (uint64_t context = 0; context < 2000; context++)
        for (int ban = 0; ban < 2; ban++) {
            uint32_t token = draw(&sampling, 0, NULL, ban, context, STATUS_OK);
            for (uint32_t i = 0; i < 8; i++)
                seen[ban] |= (uint32_t)(IDS[i] == token) << i;
        }
    assert_int_equal(seen[0], 0xff & ~5u);          /* not 3, not 8 */
    assert_int_equal(seen[1], 0xff & ~(5u | 0x60)); /* and before min_tokens not 34, not 55 */
    uint32_t allowed[3] = {1u << 5 | 1u << 7, 0, 1u << 31};
    for (uint64_t context = 0; context < 100; context++) {
        uint32_t token = draw(&sampling, 0, allowed, false, context, STATUS_OK);
        assert_true(token == 5 || token == 7 || token == 95);
    }
    allowed[0] |= 1u << 2; /* the answer may end: it does, but not before min_tokens */
    assert_int_equal(draw(&sampling, 0, allowed, false, 1, STATUS_OK), 2);
    assert_true(draw(&sampling, 0, allowed, true, 1, STATUS_OK) != 2);
    sampling.ignore_eos = true; /* then it is a token like another */
    assert_int_equal(draw(&sampling, 0, allowed, true, 1, STATUS_OK), 2);
    allowed[0] = 1u << 3;
    allowed[2] = 0;
    draw(&sampling, 0, allowed, false, 1, STATUS_INVALID);
}

static void test_logprobs_follow_the_rank(void **state)
{
    (void)state;
    struct sampling greedy = sampling_default();
    greedy.temperature = 0;
    for (uint64_t context = 0; context < 50; context++) {
        struct token_logprobs logprobs;
        uint32_t token = draw(&greedy, 0, NULL, false, context, STATUS_OK);
        mock_logprobs(&TOKENS, context, token, 20, &logprobs);
        assert_int_equal(logprobs.top_count, 8);
        assert_int_equal(logprobs.top_ids[0], token);
        for (uint32_t i = 0; i < 8; i++) {
            struct token_logprobs own;
            mock_logprobs(&TOKENS, context, logprobs.top_ids[i], 0, &own);
            assert_true(own.logprob == logprobs.top_logprobs[i]);
            assert_true(i == 0 || own.logprob < logprobs.top_logprobs[i - 1]);
        }
        mock_logprobs(&TOKENS, context, 4, 0, &logprobs);
        assert_true(logprobs.logprob < -44 && logprobs.logprob > -45); /* 2^-64 */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chunks_and_block_ids_leave_no_trace),
        cmocka_unit_test(test_rows_are_a_chain),
        cmocka_unit_test(test_every_bit_before_counts_and_none_behind),
        cmocka_unit_test(test_every_block_has_its_place),
        cmocka_unit_test(test_seed_choice_and_index_count_unless_greedy),
        cmocka_unit_test(test_bans_ends_and_what_is_allowed),
        cmocka_unit_test(test_logprobs_follow_the_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
