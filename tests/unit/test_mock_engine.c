/* The mock engine: tokens are a function of the bytes that are read back through the block table,
 * and of nothing else; profiles by name and by file. */
#include "common/engine/mock/mock_engine.h"

#include "common/base/clock.h"
#include "common/base/str.h"
#include "common/engine/engine.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define MODEL  "deploy/local/tiny-shakespeare"
#define BLOCK  16
#define BLOCKS 16
#define VOCAB  2048

static const uint32_t OWN[4] = {5, 0, 7, 2}, OTHER[4] = {1, 3, 4, 6}, THIRD[4] = {9, 8, 11, 10};

static struct engine *open_mock(const struct step_profile *profile)
{
    const struct engine_config config = {.kind = ENGINE_MOCK,
                                         .profile = profile,
                                         .model_dir = MODEL,
                                         .block_tokens = BLOCK,
                                         .block_count = BLOCKS,
                                         .swap_blocks = 4,
                                         .max_rows = 128,
                                         .max_sequences = 4,
                                         .context_limit = 64};
    struct engine *engine;
    struct error err;
    if (engine_open(&config, &engine, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    assert_int_equal(engine_attach_pool(engine, NULL, &err), STATUS_OK);
    return engine;
}

static int setup(void **state)
{
    *state = open_mock(NULL);
    return 0;
}

static int teardown(void **state)
{
    engine_close(*state);
    return 0;
}

static void fill_prompt(uint32_t tokens[64], uint32_t from)
{
    for (uint32_t i = 0; i < 64; i++)
        tokens[i] = (from + 37 * i) % VOCAB;
}

static struct sampling sampling_of(uint64_t seed)
{
    struct sampling sampling = sampling_default();
    sampling.seed = seed;
    sampling.logits_hash = true;
    return sampling;
}

static struct engine_sequence rows_of(const struct sampling *sampling, const uint32_t *tokens,
                                      uint32_t from, uint32_t to, const uint32_t *blocks)
{
    return (struct engine_sequence){.tokens = tokens + from,
                                    .token_count = to - from,
                                    .position = from,
                                    .blocks = blocks,
                                    .block_count = 4,
                                    .prompt_rows = to - from,
                                    .sample_count = 1,
                                    .sampling = sampling,
                                    .history = tokens};
}

static void step(struct engine *engine, struct engine_sequence *sequences, uint32_t count)
{
    struct error err;
    if (engine_step(engine, sequences, count, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    for (uint32_t i = 0; i < count; i++)
        if (sequences[i].sample_count)
            assert_int_equal(sequences[i].drawn.status, STATUS_OK);
}

/* Runs rows [from, to) alone. Returns the token and sets *hash. */
static uint32_t run(struct engine *engine, const uint32_t *tokens, uint32_t from, uint32_t to,
                    const uint32_t *blocks, uint64_t *hash)
{
    struct sampling sampling = sampling_of(1);
    struct engine_sequence sequence = rows_of(&sampling, tokens, from, to, blocks);
    step(engine, &sequence, 1);
    *hash = sequence.drawn.logits_hash;
    return sequence.drawn.token;
}

static void test_facts(void **state)
{
    struct engine *engine = *state;
    assert_string_equal(engine_numerics_name(engine), "mock/v1/block16");
    assert_string_equal(engine_isa(engine), "mock");
    assert_int_equal(engine_pool_bytes(engine), BLOCKS * BLOCK * 8);
    assert_int_equal(engine_weight_bytes(engine), 0);
    struct engine_config config = {.model_dir = MODEL,
                                   .kernels = {.f32 = true, .threads = 1},
                                   .block_tokens = BLOCK,
                                   .block_count = 4,
                                   .max_rows = 16,
                                   .max_sequences = 1,
                                   .context_limit = 64};
    struct engine *real;
    struct error err;
    assert_int_equal(engine_open(&config, &real, &err), STATUS_OK);
    assert_true(engine_model_hash(engine) != engine_model_hash(real));
    assert_true(engine_numerics_id(engine) != engine_numerics_id(real));
    assert_true(kv_layout_hash(engine_layout(engine)) != kv_layout_hash(engine_layout(real)));
    engine_close(real);
}

static void test_chunks_blocks_and_company_change_nothing(void **state)
{
    struct engine *engine = *state;
    uint32_t tokens[64], others[64];
    uint64_t hash, again;
    fill_prompt(tokens, 9);
    fill_prompt(others, 700);
    uint32_t token = run(engine, tokens, 0, 50, OWN, &hash);
    for (uint32_t chunk = 1; chunk <= 50; chunk += 7) { /* in chunks, in other blocks */
        uint32_t last = 0;
        for (uint32_t from = 0; from < 50; from += chunk)
            last = run(engine, tokens, from, from + chunk < 50 ? from + chunk : 50, OTHER, &again);
        assert_int_equal(last, token);
        assert_true(again == hash);
    }
    struct sampling sampling = sampling_of(1), other = sampling_of(2);
    struct engine_sequence company[3] = {rows_of(&other, others, 0, 40, OWN),
                                         rows_of(&sampling, tokens, 0, 50, THIRD),
                                         rows_of(&other, others, 0, 7, OTHER)};
    step(engine, company, 3);
    assert_int_equal(company[1].drawn.token, token);
    assert_true(company[1].drawn.logits_hash == hash);
    assert_true(company[0].drawn.logits_hash != hash);
}

/* Another engine that gets only the bytes of the blocks goes on with the same token. */
static void test_a_handoff_goes_on_where_it_stopped(void **state)
{
    struct engine *engine = *state, *other = open_mock(NULL);
    uint32_t tokens[64];
    uint64_t hash, again;
    fill_prompt(tokens, 21);
    uint32_t token = run(engine, tokens, 0, 45, OWN, &hash);
    char *from = engine_pool_address(engine), *to = engine_pool_address(other);
    for (uint32_t i = 0; i < 3; i++)
        memcpy(to + OTHER[i] * BLOCK * 8, from + OWN[i] * BLOCK * 8, BLOCK * 8);
    tokens[45] = token;
    uint32_t next = run(engine, tokens, 45, 46, OWN, &hash);
    assert_int_equal(run(other, tokens, 45, 46, OTHER, &again), next);
    assert_true(again == hash);
    engine_close(other);
}

/* A block that is stale, of another sequence, or in another's place. */
static void test_wrong_blocks_give_wrong_tokens(void **state)
{
    struct engine *engine = *state;
    uint32_t tokens[64], others[64];
    uint64_t hash, wrong;
    fill_prompt(tokens, 51);
    fill_prompt(others, 52);
    run(engine, tokens, 0, 63, OWN, &hash);
    run(engine, others, 0, 63, OTHER, &wrong);
    uint32_t token = run(engine, tokens, 63, 64, OWN, &hash);
    const struct {
        const char *what;
        uint32_t blocks[4];
    } tables[] = {{"never written", {5, 12, 7, 2}}, {"of another sequence", {5, 3, 7, 2}},
                  {"two swapped", {0, 5, 7, 2}},    {"one twice", {5, 0, 0, 2}},
                  {"all of another", {1, 3, 4, 2}}, {"first of another", {1, 0, 7, 2}}};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        uint32_t got = run(engine, tokens, 63, 64, tables[i].blocks, &wrong);
        if (wrong == hash || got == token)
            fail_msg("%s: it goes unnoticed", tables[i].what);
    }
    assert_int_equal(run(engine, tokens, 63, 64, OWN, &wrong), token);
}

static void test_moves_keep_what_they_move(void **state)
{
    struct engine *engine = *state;
    struct error err;
    uint32_t tokens[64];
    uint64_t hash, again;
    fill_prompt(tokens, 3);
    run(engine, tokens, 0, 30, OWN, &hash);
    uint32_t token = run(engine, tokens, 30, 31, OWN, &hash);
    assert_int_equal(engine_move_block(engine, ENGINE_SWAP_OUT, OWN[0], 2, &err), STATUS_OK);
    assert_int_equal(engine_move_block(engine, ENGINE_SWAP_IN, 2, 13, &err), STATUS_OK);
    assert_int_equal(engine_move_block(engine, ENGINE_COPY, OWN[1], 14, &err), STATUS_OK);
    assert_int_equal(engine_move_block(engine, ENGINE_COPY, 14, 14, &err), STATUS_INVALID);
    assert_int_equal(engine_move_block(engine, ENGINE_SWAP_IN, 4, 13, &err), STATUS_INVALID);
    assert_int_equal(engine_moves_done(engine, &err), STATUS_OK);
    const uint32_t moved[4] = {13, 14, 15, 12};
    assert_int_equal(run(engine, tokens, 30, 31, moved, &again), token);
    assert_true(again == hash);
}

/* --- settings of the sampler --- */

static struct engine_sequence draw(struct engine *engine, const struct sampling *sampling,
                                   const uint32_t *allowed, bool ban_end)
{
    static uint32_t tokens[64];
    fill_prompt(tokens, 77);
    struct engine_sequence sequence = rows_of(sampling, tokens, 0, 20, OWN);
    struct error err;
    sequence.allowed = allowed;
    sequence.ban_end = ban_end;
    assert_int_equal(engine_step(engine, &sequence, 1, &err), STATUS_OK);
    return sequence;
}

static void test_seed_choice_and_index_draw_apart_and_greedy_does_not(void **state)
{
    struct engine *engine = *state;
    uint32_t seen[3] = {0};
    struct sampling greedy = sampling_of(1);
    greedy.temperature = 0;
    uint32_t likeliest = draw(engine, &greedy, NULL, false).drawn.token;
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct sampling sampling = sampling_of(seed), chosen = sampling_of(1);
        chosen.choice = (uint32_t)seed;
        greedy.seed = seed;
        assert_int_equal(draw(engine, &greedy, NULL, false).drawn.token, likeliest);
        uint32_t token = draw(engine, &sampling, NULL, false).drawn.token;
        assert_int_equal(draw(engine, &sampling, NULL, false).drawn.token, token);
        seen[0] += token == likeliest;
        seen[1] += draw(engine, &chosen, NULL, false).drawn.token == likeliest;
    }
    assert_in_range(seen[0], 70, 130); /* probability 1/2 */
    assert_in_range(seen[1], 70, 130);
}

static void test_end_ids_bans_and_constraints(void **state)
{
    struct engine *engine = *state;
    uint32_t end_count, allowed[VOCAB / 32] = {0};
    const uint32_t *end_ids = engine_end_ids(engine, &end_count);
    assert_true(end_count > 0);
    struct sampling sampling = sampling_of(4);
    uint32_t token = draw(engine, &sampling, NULL, false).drawn.token;
    assert_true(token != end_ids[0]);
    /* a stop id counts only before min_tokens; a bias of -100 always */
    sampling.stop_id_count = 1;
    sampling.stop_ids[0] = token;
    assert_int_equal(draw(engine, &sampling, NULL, false).drawn.token, token);
    uint32_t other = draw(engine, &sampling, NULL, true).drawn.token;
    assert_true(other != token);
    struct logit_bias biases[] = {{other, -99}, {other, -100}};
    sampling.biases = biases;
    sampling.bias_count = 1;
    assert_int_equal(draw(engine, &sampling, NULL, true).drawn.token, other);
    sampling.biases = biases + 1;
    assert_true(draw(engine, &sampling, NULL, true).drawn.token != other);
    /* only what is allowed, and the end as soon as it is */
    allowed[3] = 0x00010100;
    uint32_t constrained = draw(engine, &sampling, allowed, false).drawn.token;
    assert_true(constrained == 3 * 32 + 8 || constrained == 3 * 32 + 16);
    allowed[end_ids[0] / 32] |= 1u << end_ids[0] % 32;
    assert_int_equal(draw(engine, &sampling, allowed, false).drawn.token, end_ids[0]);
    constrained = draw(engine, &sampling, allowed, true).drawn.token;
    assert_true(constrained == 3 * 32 + 8 || constrained == 3 * 32 + 16);
    memset(allowed, 0, sizeof allowed);
    assert_int_equal(draw(engine, &sampling, allowed, false).drawn.status, STATUS_INVALID);
}

static void test_logprobs_are_of_the_distribution_that_is_drawn_from(void **state)
{
    struct engine *engine = *state;
    uint32_t counts[4] = {0};
    for (uint64_t seed = 0; seed < 400; seed++) {
        struct sampling sampling = sampling_of(seed);
        sampling.logprobs = true;
        sampling.top_logprobs = 4;
        struct engine_sequence sequence = draw(engine, &sampling, NULL, false);
        const struct token_logprobs *logprobs = &sequence.logprobs;
        assert_true(logprobs->given);
        assert_int_equal(logprobs->top_count, 4);
        for (uint32_t i = 0; i < 4; i++) {
            bool drawn = logprobs->top_ids[i] == sequence.drawn.token;
            counts[i] += drawn;
            if (drawn)
                assert_true(logprobs->logprob == logprobs->top_logprobs[i]);
        }
    }
    assert_in_range(counts[0], 160, 240);
    assert_in_range(counts[1], 70, 130);
    assert_in_range(counts[2], 25, 75);
}

static void test_tokens_of_a_prompt_are_scored(void **state)
{
    struct engine *engine = *state;
    uint32_t tokens[64];
    struct token_logprobs whole[10], parts[10];
    struct error err;
    fill_prompt(tokens, 5);
    struct sampling sampling = sampling_of(1);
    struct engine_sequence sequence = rows_of(&sampling, tokens, 0, 11, OWN);
    sequence.score_count = 10;
    sequence.score_top = 3;
    sequence.score_tokens = tokens + 1;
    sequence.scores = whole;
    assert_int_equal(engine_step(engine, &sequence, 1, &err), STATUS_OK);
    struct engine_sequence half = rows_of(&sampling, tokens, 0, 4, OTHER);
    half.score_count = 4;
    half.score_top = 3;
    half.score_tokens = tokens + 1;
    half.scores = parts;
    assert_int_equal(engine_step(engine, &half, 1, &err), STATUS_OK);
    half = rows_of(&sampling, tokens, 4, 11, OTHER);
    half.score_count = 6;
    half.score_top = 3;
    half.score_tokens = tokens + 5;
    half.scores = parts + 4;
    assert_int_equal(engine_step(engine, &half, 1, &err), STATUS_OK);
    for (int i = 0; i < 10; i++) {
        assert_true(whole[i].given && whole[i].top_count == 3);
        assert_true(whole[i].logprob == parts[i].logprob);
        assert_memory_equal(whole[i].top_ids, parts[i].top_ids, 3 * sizeof *parts[i].top_ids);
    }
}

/* --- time --- */

static void *wake(void *engine)
{
    engine_interrupt(engine);
    return NULL;
}

static void test_a_step_takes_its_time_and_an_interrupt_ends_it(void **state)
{
    (void)state;
    const struct step_profile profile = {.name = "test",
                                         .prefill = {.step_us = 5000, .prefill_row_us = 500}};
    struct engine *engine = open_mock(&profile);
    uint32_t tokens[64];
    uint64_t hash, begun_us = clock_now_us();
    fill_prompt(tokens, 5);
    run(engine, tokens, 0, 10, OWN, &hash);
    assert_true(clock_now_us() - begun_us >= 10000);
    engine_close(engine);
    const struct step_profile endless = {.name = "test", .prefill = {.step_us = 1e9}};
    engine = open_mock(&endless);
    pthread_t thread;
    begun_us = clock_now_us();
    assert_int_equal(pthread_create(&thread, NULL, wake, engine), 0);
    run(engine, tokens, 0, 10, OWN, &hash);
    run(engine, tokens, 0, 10, OWN, &hash); /* and all that follow */
    pthread_join(thread, NULL);
    assert_true(clock_now_us() - begun_us < 500000000);
    engine_close(engine);
}

/* --- profiles --- */

static void test_shipped_profiles_are_sound(void **state)
{
    (void)state;
    assert_true(shipped_profile_count >= 14);
    for (size_t i = 0; i < shipped_profile_count; i++) {
        struct step_profile profile;
        struct error err = {""};
        if (profile_read(shipped_profiles[i].name, &profile, &err) != STATUS_OK)
            fail_msg("%s: %s", shipped_profiles[i].name, err.text);
        assert_string_equal(profile.name, shipped_profiles[i].name);
    }
    struct step_profile profile;
    struct error err;
    assert_int_equal(profile_read("a100-opt-13b-tp1-vllm", &profile, &err), STATUS_OK);
    /* the published fit: 22.05 + 0.14051 T + 8.077e-6 T^2 ms, and 23.48 + 5.93e-4 C + 0.0607 B */
    const struct step_shape prompt = {.prefill_rows = 512, .prefill_positions = 512 * 511 / 2};
    const struct step_shape batch = {.decode_rows = 32, .decode_context = 32 * 512};
    assert_in_range(step_profile_us(&profile, &prompt, 0), 96080, 96130);
    assert_in_range(step_profile_us(&profile, &batch, 0), 35100, 35150);
    assert_int_equal(profile.kv_tokens, 66144);
    assert_int_equal(profile.kv_bytes_per_token, 819200);
}

static void test_a_name_that_is_wrong_lists_those_that_exist(void **state)
{
    (void)state;
    struct error err;
    assert_int_equal(profile_check("opt", &err), STATUS_NOT_FOUND);
    assert_non_null(strstr(err.text, "no profile 'opt'"));
    for (size_t i = 0; i < shipped_profile_count; i++)
        assert_non_null(strstr(err.text, shipped_profiles[i].name));
    assert_int_equal(profile_check("/nowhere/x.json", &err), STATUS_NOT_FOUND);
    assert_non_null(strstr(err.text, "/nowhere/x.json"));
}

#define SOUND_PREFILL "\"prefill\": {\"step_us\": 1, \"row_us\": 2, \"position_us\": 3}"
#define SOUND_DECODE  "\"decode\": {\"step_us\": 4, \"row_us\": 5, \"context_us\": 6}"
#define SOUND_KV      "\"kv_tokens\": 4096, \"kv_bytes_per_token\": 100"

static void test_all_mistakes_of_a_file_come_together(void **state)
{
    (void)state;
    static const struct {
        const char *text, *sentences[4];
    } cases[] = {
        {"[]", {"a profile is a JSON object"}},
        {"{", {""}},
        {"{\"name\": \"\", " SOUND_PREFILL ", " SOUND_DECODE ", " SOUND_KV "}", {"'name'"}},
        {"{" SOUND_PREFILL ", " SOUND_DECODE ", " SOUND_KV "}", {"name"}},
        {"{\"name\": \"x\", \"prefill\": {\"step_us\": -1, \"row\": 2, \"position_us\": 3}, "
         "\"decode\": {\"step_us\": \"4\", \"row_us\": 5, \"context_us\": 6}, " SOUND_KV "}",
         {"prefill: no profile has the member 'row'", "prefill: ", "row_us", "decode: "}},
        {"{\"name\": \"x\", " SOUND_PREFILL ", \"decode\": {\"step_us\": 4, \"row_us\": 5, "
         "\"context_us\": 6, \"buckets\": [8, 4]}, " SOUND_KV "}",
         {"decode: 'buckets' must be ascending"}},
        {"{\"name\": \"x\", " SOUND_PREFILL ", " SOUND_DECODE ", \"decode_large\": {\"from_rows\": "
         "0}, " SOUND_KV ", \"noise\": {\"sigma\": 9}}",
         {"decode_large: ", "from_rows", "context_us", "sigma"}},
        {"{\"name\": \"x\", " SOUND_PREFILL ", " SOUND_DECODE ", \"kv_tokens\": 1}",
         {"kv_tokens", "kv_bytes_per_token"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct step_profile profile;
        struct error err;
        enum status status = profile_parse(cases[i].text, strlen(cases[i].text), &profile, &err);
        if (status != STATUS_INVALID)
            fail_msg("case %zu: %s", i, status_name(status));
        for (size_t j = 0; j < 4 && cases[i].sentences[j]; j++)
            if (!strstr(err.text, cases[i].sentences[j]))
                fail_msg("case %zu: no '%s' in '%s'", i, cases[i].sentences[j], err.text);
    }
    static const char whole[] =
        "{\"name\": \"x\", " SOUND_PREFILL ", \"decode\": {\"step_us\": 4, \"row_us\": 5, "
        "\"context_us\": 6, \"buckets\": [1, 8]}, " SOUND_KV ", \"noise\": {\"sigma\": 0.1, "
        "\"seed\": 3}, \"link\": {\"bytes_per_second\": 1e9, \"latency_us\": 20}}";
    struct step_profile profile;
    struct error err = {""};
    if (profile_parse(whole, strlen(whole), &profile, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    assert_int_equal(profile.bucket_count, 2);
    assert_int_equal(profile.noise_seed, 3);
    assert_int_equal(profile.link_latency_us, 20);
    assert_int_equal(profile.large_from, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_facts),
        cmocka_unit_test(test_chunks_blocks_and_company_change_nothing),
        cmocka_unit_test(test_a_handoff_goes_on_where_it_stopped),
        cmocka_unit_test(test_wrong_blocks_give_wrong_tokens),
        cmocka_unit_test(test_moves_keep_what_they_move),
        cmocka_unit_test(test_seed_choice_and_index_draw_apart_and_greedy_does_not),
        cmocka_unit_test(test_end_ids_bans_and_constraints),
        cmocka_unit_test(test_logprobs_are_of_the_distribution_that_is_drawn_from),
        cmocka_unit_test(test_tokens_of_a_prompt_are_scored),
        cmocka_unit_test(test_a_step_takes_its_time_and_an_interrupt_ends_it),
        cmocka_unit_test(test_shipped_profiles_are_sound),
        cmocka_unit_test(test_a_name_that_is_wrong_lists_those_that_exist),
        cmocka_unit_test(test_all_mistakes_of_a_file_come_together),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
