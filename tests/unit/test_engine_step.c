/* engine: the refusals and counts of a step, and that chunks, blocks and neighbours don't affect
 * the result; on the shipped model, f32. */
#include "common/base/clock.h"
#include "common/base/failpoint.h"
#include "common/engine/model/logits.h"
#include "common/engine/model_engine.h"
#include "tests/unit/engine_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const uint32_t TOKENS[64] = {9, 8, 7, 6, 5, 4, 3, 100, 200, 300, 400, 500, 600, 700, 800};
static const uint32_t BLOCKS[4] = {5, 0, 7, 2}, OTHER_BLOCKS[4] = {1, 3, 4, 6};

static struct sampling sampling_with_hash(void)
{
    struct sampling sampling = sampling_default();
    sampling.logits_hash = true;
    return sampling;
}

/* A sound sequence of the first `count` tokens that draws greedily. */
static struct engine_sequence sequence_of(const struct sampling *sampling, uint32_t count)
{
    return (struct engine_sequence){.tokens = TOKENS,
                                    .token_count = count,
                                    .blocks = BLOCKS,
                                    .block_count = 4,
                                    .prompt_rows = count,
                                    .sample_count = 1,
                                    .sampling = sampling};
}

static void expect_refusal(struct engine *engine, struct engine_sequence *sequences, uint32_t count,
                           const char *sentence)
{
    struct engine_counters before = engine_counters(engine), after;
    struct error err = {0};
    assert_int_equal(engine_step(engine, sequences, count, &err), STATUS_INVALID);
    assert_string_equal(err.text, sentence);
    after = engine_counters(engine);
    assert_memory_equal(&before, &after, sizeof before);
}

static void test_steps_that_are_refused(void **state)
{
    struct engine *engine = *state;
    struct sampling sampling = sampling_default();
    const uint32_t bad_tokens[] = {1, 2048}, bad_blocks[] = {0, 8};
    struct engine_sequence s[3] = {sequence_of(&sampling, 4), sequence_of(&sampling, 4),
                                   sequence_of(&sampling, 4)};
    expect_refusal(engine, s, 0, "0 sequences in a step of 1 to 2");
    expect_refusal(engine, s, 3, "3 sequences in a step of 1 to 2");
    s[1] = sequence_of(&sampling, 21);
    expect_refusal(engine, s, 2, "25 rows in a step of at most 24");
    s[1] = sequence_of(&sampling, 0);
    expect_refusal(engine, s, 2, "sequence 1: 0 tokens at position 0 do not fit a context of 64");
    s[1] = sequence_of(&sampling, 1);
    s[1].position = 64;
    expect_refusal(engine, s, 2, "sequence 1: 1 tokens at position 64 do not fit a context of 64");
    s[1].position = UINT32_MAX;
    expect_refusal(engine, s, 2,
                   "sequence 1: 1 tokens at position 4294967295 do not fit a context of 64");
    s[1] = sequence_of(&sampling, 17);
    s[1].block_count = 1;
    expect_refusal(engine, s, 2, "sequence 1: needs 2 blocks, got 1");
    s[1].block_count = 2;
    s[1].blocks = bad_blocks;
    expect_refusal(engine, s, 2, "sequence 1: block id 8, the pool has 8");
    s[1] = sequence_of(&sampling, 2);
    s[1].tokens = bad_tokens;
    expect_refusal(engine, s, 2, "sequence 1: token id 2048, the vocabulary has 2048");
    s[1] = sequence_of(&sampling, 2);
    s[1].prompt_rows = 3;
    expect_refusal(engine, s, 2, "sequence 1: 3 prompt rows of 2, sampling parameters given");
    s[1] = sequence_of(NULL, 2);
    expect_refusal(engine, s, 2, "sequence 1: 2 prompt rows of 2, sampling parameters missing");
}

static void step(struct engine *engine, struct engine_sequence *sequences, uint32_t count)
{
    struct error err;
    if (engine_step(engine, sequences, count, &err) != STATUS_OK)
        fail_msg("%s", err.text);
}

static void test_chunks_and_neighbours_leave_no_trace(void **state)
{
    struct engine *engine = *state;
    struct sampling sampling = sampling_with_hash();
    struct engine_sequence whole = sequence_of(&sampling, 20);
    step(engine, &whole, 1);

    struct engine_sequence pair[2] = {sequence_of(&sampling, 13), sequence_of(&sampling, 5)};
    pair[0].sample_count = 0;
    pair[1].blocks = OTHER_BLOCKS;
    step(engine, pair, 2);
    uint64_t five = pair[1].drawn.logits_hash;
    pair[1].tokens += 5;
    pair[1].position = 5;
    pair[0].tokens += 13;
    pair[0].position = 13;
    pair[0].token_count = pair[0].prompt_rows = 7;
    pair[0].sample_count = 1;
    step(engine, pair, 2);
    assert_int_equal(pair[0].drawn.logits_hash, whole.drawn.logits_hash);
    assert_int_equal(pair[0].drawn.token, whole.drawn.token);
    assert_int_not_equal(pair[1].drawn.logits_hash, five);
}

static void test_who_asks_gets_the_hash_of_the_logits(void **state)
{
    struct engine *engine = *state;
    struct sampling plain = sampling_default(), asks = sampling_with_hash();
    struct engine_sequence pair[2] = {sequence_of(&plain, 5), sequence_of(&asks, 5)};
    pair[0].drawn.logits_hash = 7; /* the hash of the step before */
    pair[1].blocks = OTHER_BLOCKS;
    step(engine, pair, 2);
    assert_int_equal(pair[0].drawn.logits_hash, 0);
    assert_int_not_equal(pair[1].drawn.logits_hash, 0);
    assert_int_equal(pair[1].drawn.logits_hash,
                     logits_hash(pair[1].logits, engine_shape(engine)->vocab));
}

static void set_failpoints(const char *spec, const char *log)
{
    struct error err;
    setenv("BATON_FAILPOINT_LOG", log, 1);
    setenv("BATON_FAILPOINTS_ALLOW", "1", 1); /* this test is built for release, too */
    if (spec)
        setenv("BATON_FAILPOINTS", spec, 1);
    else
        unsetenv("BATON_FAILPOINTS");
    assert_int_equal(failpoint_init("test", &err), STATUS_OK);
}

/* One of two compute threads is held before its first job. The other loads the model and computes
 * whole steps, with the same bytes. If any item waited for the held thread, the test would take the
 * failpoint's whole minute. */
static void test_a_step_is_done_by_the_threads_that_come(void **state)
{
    (void)state;
    char folder[] = "/tmp/baton-engine-XXXXXX", log[64], go[96];
    struct engine_config config = CONFIG;
    struct sampling sampling = sampling_with_hash();
    uint64_t hashes[2];
    struct error err;
    assert_non_null(mkdtemp(folder));
    snprintf(log, sizeof log, "%s/log", folder);
    snprintf(go, sizeof go, "%s.pool.join.go", log);
    config.kernels.f32 = false;
    config.kernels.threads = 2;
    for (int away = 0; away < 2; away++) {
        struct engine *engine;
        struct engine_sequence whole = sequence_of(&sampling, 20);
        set_failpoints(away ? "pool.join=pause@1" : NULL, log);
        uint64_t begun_us = clock_now_us();
        assert_int_equal(engine_open(&config, &engine, &err), STATUS_OK);
        assert_int_equal(engine_attach_pool(engine, NULL, &err), STATUS_OK);
        do
            step(engine, &whole, 1);
        while (away && access(log, F_OK) != 0); /* until it came, and was held */
        step(engine, &whole, 1);
        hashes[away] = whole.drawn.logits_hash;
        assert_true(clock_now_us() - begun_us < 50000000);
        if (away) {
            FILE *file = fopen(go, "w");
            assert_non_null(file);
            fclose(file);
        }
        engine_close(engine); /* waits for the one that was away */
    }
    set_failpoints(NULL, log);
    assert_int_equal(hashes[0], hashes[1]);
    unlink(log);
    unlink(go);
    assert_int_equal(rmdir(folder), 0);
}

static void move(struct engine *engine, enum engine_move kind, uint32_t from, uint32_t to)
{
    struct error err;
    if (engine_move_block(engine, kind, from, to, &err) != STATUS_OK)
        fail_msg("%s", err.text);
}

/* The prompt's first 18 rows, moved, overwritten where they were, and the rest behind them at their
 * new place. */
static void test_blocks_that_moved_hold_what_they_held(void **state)
{
    struct engine *engine = *state;
    struct error err;
    struct sampling sampling = sampling_with_hash();
    struct engine_sequence whole = sequence_of(&sampling, 22);
    step(engine, &whole, 1);
    for (int swapped = 0; swapped < 2; swapped++) {
        static const uint32_t places[] = {3, 6};
        struct engine_sequence part = sequence_of(&sampling, 18), other = part;
        step(engine, &part, 1);
        for (uint32_t i = 0; i < 2; i++)
            move(engine, swapped ? ENGINE_SWAP_OUT : ENGINE_COPY, BLOCKS[i],
                 swapped ? 1 - i : places[i]);
        assert_int_equal(engine_moves_done(engine, &err), STATUS_OK);
        other.tokens += 1;
        step(engine, &other, 1);
        for (uint32_t i = 0; swapped && i < 2; i++)
            move(engine, ENGINE_SWAP_IN, 1 - i, places[i]);
        part.blocks = places;
        part.block_count = 2;
        part.tokens += 18;
        part.position = 18;
        part.token_count = part.prompt_rows = 4;
        step(engine, &part, 1);
        assert_int_equal(part.drawn.logits_hash, whole.drawn.logits_hash);
    }
}

static void test_moves_that_are_refused(void **state)
{
    struct engine *engine = *state;
    static const struct {
        enum engine_move kind;
        uint32_t from, to;
    } bad[] = {{ENGINE_COPY, 8, 0},     {ENGINE_COPY, 0, 8},     {ENGINE_COPY, 3, 3},
               {ENGINE_SWAP_OUT, 8, 0}, {ENGINE_SWAP_OUT, 0, 2}, {ENGINE_SWAP_IN, 2, 0},
               {ENGINE_SWAP_IN, 0, 8}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct error err = {""};
        assert_int_equal(engine_move_block(engine, bad[i].kind, bad[i].from, bad[i].to, &err),
                         STATUS_INVALID);
        assert_int_not_equal(err.text[0], 0);
    }
}

static void test_counters_tell_prompt_rows_from_decode_rows(void **state)
{
    struct engine *engine = *state;
    struct sampling sampling = sampling_default();
    struct engine_counters before = engine_counters(engine);
    struct engine_sequence s = sequence_of(&sampling, 10);
    step(engine, &s, 1);
    s.position = 10;
    s.tokens += 10;
    s.token_count = 3;
    s.prompt_rows = 2;
    step(engine, &s, 1);
    struct engine_counters after = engine_counters(engine);
    assert_int_equal(after.steps - before.steps, 2);
    assert_int_equal(after.prompt_rows - before.prompt_rows, 12);
    assert_int_equal(after.decode_rows - before.decode_rows, 1);
}

/* Greedy after the one token `prompt`. */
static uint32_t next_token(struct engine *engine, const struct sampling *sampling, uint32_t prompt,
                           bool ban_end)
{
    struct engine_sequence s = sequence_of(sampling, 1);
    s.tokens = &prompt;
    s.ban_end = ban_end;
    step(engine, &s, 1);
    return s.drawn.token;
}

static void test_min_tokens_bans_end_and_stop_ids(void **state)
{
    (void)state;
    struct engine_config config = CONFIG;
    struct engine *engine;
    struct error err;
    config.model_dir = "tests/golden/models/llama3-rope"; /* end ids 2 and 5 */
    assert_int_equal(engine_open(&config, &engine, &err), STATUS_OK);
    assert_int_equal(engine_attach_pool(engine, NULL, &err), STATUS_OK);
    struct sampling sampling = sampling_default();
    sampling.temperature = 0;
    uint32_t ended = 0, found = 0;
    for (uint32_t prompt = 0; prompt < 384; prompt++) {
        uint32_t token = next_token(engine, &sampling, prompt, false);
        uint32_t banned = next_token(engine, &sampling, prompt, true);
        bool is_end = token == 2 || token == 5;
        assert_true(banned != 2 && banned != 5);
        assert_true(is_end || banned == token);
        if (is_end) {
            ended = prompt;
            found = token;
        }
    }
    assert_int_not_equal(found, 0); /* the model does end somewhere */
    sampling.ignore_eos = true;     /* then they are ordinary tokens */
    assert_int_equal(next_token(engine, &sampling, ended, true), found);
    sampling.stop_ids[0] = found;
    sampling.stop_id_count = 1;
    assert_int_equal(next_token(engine, &sampling, ended, false), found);
    assert_int_not_equal(next_token(engine, &sampling, ended, true), found);
    engine_close(engine);
}

/* --- steps that run ahead, counted --- */

/* ASan tells of each allocation; a program without it has no such function. */
__attribute__((weak)) int
__sanitizer_install_malloc_and_free_hooks(void (*malloc_hook)(const volatile void *, size_t),
                                          void (*free_hook)(const volatile void *));

static _Thread_local uint64_t allocated;

static void count_malloc(const volatile void *memory, size_t bytes)
{
    (void)memory;
    (void)bytes;
    allocated++;
}

static void count_free(const volatile void *memory)
{
    (void)memory;
}

/* A decode step of two sequences. Each row's token is the one that the other sequence drew before;
 * the first ones are given. */
static void two_rows(struct engine_sequence *pair, const struct sampling sampling[2],
                     uint32_t number)
{
    for (uint32_t i = 0; i < 2; i++) {
        pair[i] = sequence_of(&sampling[i], 1);
        pair[i].fed = number > 0;
        pair[i].token_from = 1 - i;
        pair[i].position = number;
        pair[i].index = number;
        pair[i].tokens = TOKENS + number;
        pair[i].blocks = i ? OTHER_BLOCKS : BLOCKS;
        pair[i].prompt_rows = 0;
    }
}

/* Each step behind the first is submitted before the results of the one before are there: by one
 * upload, no wait and no allocation. It is fed the tokens that the device draws. Logits come to the
 * host where their hash is asked for. Tokens and hashes are the CPU's. */
static void test_a_step_that_runs_ahead_is_one_upload_and_no_wait(void **state)
{
    struct engine *cpu = *state, *engine;
    enum { STEPS = 40 };
    struct engine_config config = CONFIG;
    struct engine_sequence flights[ENGINE_TICKETS][2], alone[2];
    struct sampling sampling[2] = {sampling_with_hash(), sampling_default()};
    struct error err;
    engine_ticket tickets[ENGINE_TICKETS];
    config.kernels.device = DEVICE_DEFERRED_LATE;
    assert_int_equal(engine_open(&config, &engine, &err), STATUS_OK);
    assert_int_equal(engine_attach_pool(engine, NULL, &err), STATUS_OK);
    assert_true(engine_runs_ahead(engine) && engine_feeds(engine, &sampling[0]));
    assert_int_equal(engine_feeds(cpu, &sampling[0]), test_device() != DEVICE_CPU);
    sampling[0].seed = 5;
    sampling[1].temperature = 1.5f;
    sampling[1].top_p = 0.95f;
    sampling[1].top_k = 100;
    uint32_t drawn[2] = {0};
    const struct kernels *kernels = ((struct model_engine *)engine)->kernels;
    if (__sanitizer_install_malloc_and_free_hooks)
        assert_true(__sanitizer_install_malloc_and_free_hooks(count_malloc, count_free) > 0);
    void *volatile one = malloc(1);
    free(one);
    assert_true(allocated == 1 || !__sanitizer_install_malloc_and_free_hooks);
    for (uint32_t number = 0; number <= STEPS; number++) {
        struct engine_sequence *next = flights[number % 2], *before = flights[(number + 1) % 2];
        struct kernels_counts first = kernels_counts(kernels);
        allocated = 0;
        if (number < STEPS) {
            two_rows(next, sampling, number);
            assert_int_equal(engine_submit(engine, next, 2, &tickets[number % 2], &err), STATUS_OK);
            struct kernels_counts then = kernels_counts(kernels);
            assert_int_equal(then.uploads - first.uploads, 1);
            assert_int_equal(then.waits, first.waits);
            assert_int_equal(then.allocations, first.allocations);
            assert_int_equal(then.read_backs - first.read_backs, 2); /* tokens, logits */
            assert_int_equal(then.copies, first.copies);
            /* the begin and end of its operations, and of its results */
            assert_int_equal(then.records - first.records, 3);
        }
        if (number == 0)
            continue;
        assert_int_equal(engine_wait(engine, tickets[(number + 1) % 2], before, 2, &err),
                         STATUS_OK);
        struct kernels_counts last = kernels_counts(kernels);
        assert_in_range(last.waits - first.waits, 1, 2); /* one for each stream */
        assert_int_equal(last.allocations, first.allocations);
        assert_int_equal(allocated, 0);
        two_rows(alone, sampling, number - 1);
        for (uint32_t i = 0; i < 2; i++) {
            alone[i].tokens = alone[i].fed ? &drawn[1 - i] : alone[i].tokens;
            alone[i].fed = false;
        }
        step(cpu, alone, 2);
        assert_true(before[0].logits && before[0].drawn.logits_hash && !before[1].logits);
        for (uint32_t i = 0; i < 2; i++) {
            assert_int_equal(before[i].drawn.logits_hash, alone[i].drawn.logits_hash);
            assert_int_equal(before[i].drawn.status, STATUS_OK);
            assert_int_equal(before[i].drawn.token, alone[i].drawn.token);
        }
        drawn[0] = alone[0].drawn.token;
        drawn[1] = alone[1].drawn.token;
    }
    engine_close(engine);
}

/* Beside a draw of the device, the host draws where the request edits logits or masks ids. Such a
 * token can't be fed: the device doesn't know it. */
static void test_draws_of_the_host_beside_those_of_the_device(void **state)
{
    struct engine *cpu = *state, *engine;
    struct engine_config config = CONFIG;
    struct engine_sequence pair[2], alone[2], next;
    const struct logit_bias bias = {700, 50};
    struct sampling sampling[2] = {sampling_default(), sampling_default()};
    uint32_t allowed[2048 / 32] = {0};
    struct error err;
    engine_ticket ticket;
    config.kernels.device = DEVICE_DEFERRED_LATE;
    assert_int_equal(engine_open(&config, &engine, &err), STATUS_OK);
    assert_int_equal(engine_attach_pool(engine, NULL, &err), STATUS_OK);
    allowed[3] = 1 << 7;
    for (int masked = 0; masked <= 1; masked++) {
        sampling[0].bias_count = !masked;
        sampling[0].biases = &bias;
        two_rows(pair, sampling, 0);
        pair[0].allowed = masked ? allowed : NULL;
        pair[1].reads_logits = masked;
        memcpy(alone, pair, sizeof pair);
        step(cpu, alone, 2);
        assert_int_equal(engine_submit(engine, pair, 2, &ticket, &err), STATUS_OK);
        next = pair[1];
        next.position = 1;
        next.fed = true;
        next.token_from = 0;
        engine_ticket none;
        assert_int_equal(engine_submit(engine, &next, 1, &none, &err), STATUS_INVALID);
        assert_string_equal(err.text, "sequence 0: the host draws sample 0");
        assert_int_equal(engine_wait(engine, ticket, pair, 2, &err), STATUS_OK);
        assert_int_equal(pair[0].drawn.token, masked ? 3 * 32 + 7 : 700);
        assert_true(pair[0].logits && !pair[1].logits == !masked);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(pair[i].drawn.token, alone[i].drawn.token);
            if (pair[i].logits)
                assert_memory_equal(pair[i].logits, alone[i].logits, 2048 * sizeof(float));
        }
    }
    engine_close(engine);
}

enum { DRAFTS = 3, ANSWER = 12 };

/* Draws an answer of 12 tokens row by row: the tokens and hashes that drafts must give, too. */
static void answer_alone(struct engine *engine, const struct sampling *sampling,
                         uint32_t tokens[1 + ANSWER], uint64_t hashes[ANSWER])
{
    tokens[0] = TOKENS[0];
    for (uint32_t i = 0; i < ANSWER; i++) {
        struct engine_sequence s = sequence_of(sampling, 1);
        s.tokens = &tokens[i];
        s.position = s.index = i;
        step(engine, &s, 1);
        tokens[i + 1] = s.drawn.token;
        hashes[i] = s.drawn.logits_hash;
    }
}

/* Rows of drafts draw what they draw one after the other, each with its own random number; so does
 * the row before a wrong draft. Another sequence beside them has its token. */
static void test_rows_that_draw_together(void **state)
{
    struct engine *alone = *state, *engine;
    struct sampling sampling = sampling_with_hash(), plain = sampling_default();
    uint32_t tokens[1 + ANSWER], wrong[1 + DRAFTS];
    uint64_t hashes[ANSWER];
    struct error err;
    sampling.temperature = 1.2f;
    sampling.seed = 77;
    answer_alone(alone, &sampling, tokens, hashes);
    struct engine_sequence neighbour = sequence_of(&plain, 7);
    step(alone, &neighbour, 1);
    for (int device = 0; device < 2; device++) {
        struct engine_config config = CONFIG;
        config.kernels.device = device ? DEVICE_DEFERRED_LATE : DEVICE_CPU;
        config.draft_tokens = DRAFTS;
        assert_int_equal(engine_open(&config, &engine, &err), STATUS_OK);
        assert_int_equal(engine_attach_pool(engine, NULL, &err), STATUS_OK);
        assert_int_equal(engine_numerics_id(engine), engine_numerics_id(alone));
        for (uint32_t i = 0; i < ANSWER; i += 1 + DRAFTS) {
            struct engine_draw more[DRAFTS];
            struct engine_sequence pair[2] = {sequence_of(&sampling, 1 + DRAFTS),
                                              sequence_of(&plain, 7)};
            memcpy(wrong, &tokens[i], sizeof wrong);
            wrong[2]++; /* first: then the rows are written again */
            for (int right = 0; right < 2; right++) {
                pair[0].tokens = right ? &tokens[i] : wrong;
                pair[0].position = pair[0].index = i;
                pair[0].sample_count = 1 + DRAFTS;
                pair[0].more = more;
                pair[1].blocks = OTHER_BLOCKS;
                step(engine, pair, 2);
                assert_int_equal(pair[1].drawn.token, neighbour.drawn.token);
                assert_int_equal(pair[0].drawn.logits_hash, hashes[i]);
                for (uint32_t k = 0; k <= (right ? DRAFTS : 1); k++) {
                    const struct engine_draw *draw = k ? &more[k - 1] : &pair[0].drawn;
                    assert_int_equal(draw->status, STATUS_OK);
                    assert_int_equal(draw->token, tokens[i + k + 1]);
                    assert_int_equal(draw->logits_hash, hashes[i + k]);
                }
                assert_int_equal(more[1].logits_hash == hashes[i + 2], right);
            }
        }
        engine_close(engine);
    }
}

/* On a device the first row may be fed the token that the step before draws; drafts follow it. */
static void test_drafts_behind_a_token_that_is_fed(void **state)
{
    struct engine *engine;
    struct engine_config config = CONFIG;
    struct sampling sampling = sampling_with_hash();
    uint32_t tokens[1 + ANSWER];
    uint64_t hashes[ANSWER];
    struct error err;
    engine_ticket tickets[2];
    struct engine_draw more[2][DRAFTS];
    sampling.temperature = 1;
    answer_alone(*state, &sampling, tokens, hashes);
    config.kernels.device = DEVICE_DEFERRED_LATE;
    config.draft_tokens = DRAFTS;
    assert_int_equal(engine_open(&config, &engine, &err), STATUS_OK);
    assert_int_equal(engine_attach_pool(engine, NULL, &err), STATUS_OK);
    struct engine_sequence first = sequence_of(&sampling, 2), next = sequence_of(&sampling, 3);
    uint32_t drafts[] = {UINT32_MAX, tokens[3], tokens[4]}; /* the first one isn't read */
    first.tokens = tokens;
    first.sample_count = 2;
    first.more = more[0];
    next.tokens = drafts;
    next.position = next.index = 2;
    next.sample_count = 3;
    next.fed = true;
    next.token_from = 1;
    next.more = more[1];
    assert_int_equal(engine_submit(engine, &first, 1, &tickets[0], &err), STATUS_OK);
    assert_int_equal(engine_submit(engine, &next, 1, &tickets[1], &err), STATUS_OK);
    assert_int_equal(engine_wait(engine, tickets[0], &first, 1, &err), STATUS_OK);
    assert_int_equal(engine_wait(engine, tickets[1], &next, 1, &err), STATUS_OK);
    assert_int_equal(more[0][0].token, tokens[2]);
    assert_int_equal(next.drawn.token, tokens[3]);
    for (uint32_t k = 0; k < 2; k++) {
        assert_int_equal(more[1][k].token, tokens[4 + k]);
        assert_int_equal(more[1][k].logits_hash, hashes[3 + k]);
    }
    engine_close(engine);
}

static void test_drafts_that_are_refused(void **state)
{
    (void)state;
    struct engine *engine;
    struct engine_config config = CONFIG;
    struct sampling sampling = sampling_default(), edited = sampling_default();
    struct engine_draw more[DRAFTS + 1];
    struct error err;
    config.draft_tokens = DRAFTS;
    edited.min_tokens = 1;
    assert_int_equal(engine_open(&config, &engine, &err), STATUS_OK);
    assert_int_equal(engine_attach_pool(engine, NULL, &err), STATUS_OK);
    struct engine_sequence s = sequence_of(&sampling, 2);
    s.more = more;
    s.sample_count = 3;
    expect_refusal(engine, &s, 1, "sequence 0: 3 of 2 rows draw tokens, with 3 drafts at most");
    s = sequence_of(&sampling, 8);
    s.more = more;
    s.sample_count = 5;
    expect_refusal(engine, &s, 1, "sequence 0: 5 of 8 rows draw tokens, with 3 drafts at most");
    s.sample_count = 4;
    s.sampling = &edited;
    expect_refusal(engine, &s, 1, "sequence 0: 4 of 8 rows draw tokens, with 3 drafts at most");
    s.sampling = &sampling;
    s.ban_end = true;
    expect_refusal(engine, &s, 1, "sequence 0: 4 of 8 rows draw tokens, with 3 drafts at most");
    engine_close(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps_that_are_refused),
        cmocka_unit_test(test_chunks_and_neighbours_leave_no_trace),
        cmocka_unit_test(test_who_asks_gets_the_hash_of_the_logits),
        cmocka_unit_test(test_a_step_is_done_by_the_threads_that_come),
        cmocka_unit_test(test_blocks_that_moved_hold_what_they_held),
        cmocka_unit_test(test_moves_that_are_refused),
        cmocka_unit_test(test_counters_tell_prompt_rows_from_decode_rows),
        cmocka_unit_test(test_min_tokens_bans_end_and_stop_ids),
        cmocka_unit_test(test_a_step_that_runs_ahead_is_one_upload_and_no_wait),
        cmocka_unit_test(test_draws_of_the_host_beside_those_of_the_device),
        cmocka_unit_test(test_rows_that_draw_together),
        cmocka_unit_test(test_drafts_behind_a_token_that_is_fed),
        cmocka_unit_test(test_drafts_that_are_refused),
    };
    return cmocka_run_group_tests(tests, open_engine, close_engine);
}
