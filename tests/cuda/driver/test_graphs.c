/* Steps that are recorded as CUDA graphs, on the emulated driver: their bits are those of steps
 * without a graph, whatever joins, leaves or grows; so many calls of the driver are saved; and a
 * graph that can't be made is done without. Kernels that start early change nothing. */
#include "common/engine/model_engine.h"
#include "kernels/cuda/driver.h"
#include "tests/cuda/driver/emulated_driver.h"
#include "tests/kernels/fixture.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void emulate(const char *settings)
{
    setenv(CUDA_LIBRARY_VARIABLE, EMULATED_DRIVER, 1);
    setenv("BATON_CUDA_EMULATED", settings, 1);
}

static struct emulated_calls calls(void)
{
    void *library = dlopen(EMULATED_DRIVER, RTLD_NOW | RTLD_NOLOAD);
    void *found = library ? dlsym(library, "emulated_calls") : NULL;
    emulated_calls_function *function;
    assert_non_null(found);
    memcpy(&function, &found, sizeof function);
    dlclose(library);
    return function();
}

/* The clock of this program: its own, or so much time for each graph that the driver makes. */
static uint64_t graph_us;
uint64_t __real_clock_now_us(void);
uint64_t __wrap_clock_now_us(void);
uint64_t __wrap_clock_now_us(void)
{
    return graph_us ? graph_us * calls().graphs : __real_clock_now_us();
}

/* --- passes of kernels.h --- */

enum { F = 8 };

static struct kernels *open_emulated(const char *settings)
{
    struct kernels *kernels;
    struct error err = {""};
    emulate(settings);
    if (kernels_open(&(struct kernels_config){.device = DEVICE_CUDA, .threads = 1}, &kernels,
                     &err) != STATUS_OK)
        fail_msg("%s", err.text);
    assert_true(kernels_info(kernels).records);
    return kernels;
}

static enum status record_swiglu(struct kernels *kernels, uint32_t pass, const struct buffer *in,
                                 struct buffer *out)
{
    size_t bytes;
    assert_int_equal(kernels_pass_begin(kernels), STATUS_OK);
    assert_int_equal(kernels_swiglu(kernels, in, 1, F, out), STATUS_OK);
    return kernels_pass_end(kernels, pass, SIZE_MAX, &bytes);
}

/* The same pass gives the result of whatever its buffers hold. Recording runs nothing. */
static void test_a_pass_reads_its_buffers_anew(void **state)
{
    (void)state;
    struct kernels *kernels = open_emulated("late=1");
    struct rng rng = rng_seeded(3);
    float *inputs = fixture_floats(&rng, 3 * 2 * F, 2);
    struct buffer in = fixture_buffer(kernels, inputs, 2 * F * sizeof(float));
    struct buffer out = fixture_buffer(kernels, inputs, F * sizeof(float));
    uint64_t kernels_run = calls().kernels;
    assert_int_equal(record_swiglu(kernels, 7, &in, &out), STATUS_OK);
    float *left = fixture_download(kernels, &out);
    assert_memory_equal(left, inputs, F * sizeof *left);
    free(left);
    assert_int_equal(calls().kernels, kernels_run);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(kernels_upload(kernels, KERNELS_STEPS, &in, 0, inputs + i * 2 * F,
                                        2 * F * sizeof *inputs),
                         STATUS_OK);
        assert_int_equal(kernels_swiglu(kernels, &in, 1, F, &out), STATUS_OK);
        float *expected = fixture_download(kernels, &out);
        assert_int_equal(kernels_upload(kernels, KERNELS_STEPS, &out, 0, inputs, out.bytes),
                         STATUS_OK);
        struct emulated_calls before = calls();
        assert_int_equal(kernels_pass_run(kernels, 7), STATUS_OK);
        float *got = fixture_download(kernels, &out);
        fixture_assert_same_bits(got, expected, F, "a pass");
        assert_int_equal(calls().launches, before.launches);
        assert_int_equal(calls().graph_launches, before.graph_launches + 1);
        free(expected);
        free(got);
    }
    assert_int_equal(kernels_counts(kernels).passes, 3);
    free(inputs);
    kernels_free(kernels, &in);
    kernels_free(kernels, &out);
    kernels_close(kernels);
}

/* A pass that can't be made leaves everything as it was, and its memory is given back. */
static void test_a_pass_that_fails_is_none(void **state)
{
    (void)state;
    static const struct {
        const char *settings;
        enum status status;
    } cases[] = {{"graphs=1", STATUS_LIMIT},
                 {"graphs=1,graph_result=1", STATUS_INTERNAL},
                 {"graph_kib=100000,memory=128", STATUS_LIMIT}};
    for (int i = 0; i < 3; i++) {
        struct kernels *kernels = open_emulated(cases[i].settings);
        struct buffer in = fixture_buffer(kernels, (float[2 * F]){1}, 2 * F * sizeof(float));
        struct buffer out = fixture_buffer(kernels, NULL, F * sizeof(float));
        size_t bytes;
        assert_int_equal(record_swiglu(kernels, 0, &in, &out), STATUS_OK);
        size_t before = kernels_available_bytes(kernels);
        assert_int_equal(record_swiglu(kernels, 1, &in, &out), cases[i].status);
        /* A transfer can't be recorded, and ends the recording. */
        assert_int_equal(kernels_pass_begin(kernels), STATUS_OK);
        assert_int_equal(kernels_upload(kernels, KERNELS_STEPS, &in, 0, (float[1]){2}, 4),
                         STATUS_INTERNAL);
        assert_int_equal(kernels_pass_end(kernels, 2, 0, &bytes), STATUS_INTERNAL);
        assert_int_equal(record_swiglu(kernels, KERNELS_NO_PASS, &in, &out), STATUS_OK);
        assert_int_equal(kernels_available_bytes(kernels), before);
        assert_int_equal(calls().graphs, 1);
        assert_int_equal(kernels_pass_run(kernels, 0), STATUS_OK);
        assert_int_equal(kernels_swiglu(kernels, &in, 1, F, &out), STATUS_OK);
        assert_int_equal(kernels_sync(kernels), STATUS_OK);
        kernels_free(kernels, &in);
        kernels_free(kernels, &out);
        kernels_close(kernels);
    }
}

/* A pass is held to its bound, too, if other processes leave almost no memory. */
static void test_a_pass_is_bounded_in_the_last_memory(void **state)
{
    (void)state;
    struct kernels *kernels = open_emulated("memory=64,graph_kib=100");
    struct buffer in = fixture_buffer(kernels, (float[2 * F]){1}, 2 * F * sizeof(float));
    struct buffer out = fixture_buffer(kernels, NULL, F * sizeof(float)), others;
    size_t bytes = 0, all = kernels_available_bytes(kernels) + (1 << 20);
    assert_int_equal(kernels_alloc(kernels, all, &others), STATUS_OK);
    assert_int_equal(kernels_available_bytes(kernels), 0);
    const size_t limits[] = {100 << 10, (100 << 10) - 1};
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(kernels_pass_begin(kernels), STATUS_OK);
        assert_int_equal(kernels_swiglu(kernels, &in, 1, F, &out), STATUS_OK);
        assert_int_equal(kernels_pass_end(kernels, i, limits[i], &bytes),
                         i ? STATUS_LIMIT : STATUS_OK);
        assert_int_equal(bytes, 100 << 10);
    }
    kernels_free(kernels, &others);
    kernels_free(kernels, &in);
    kernels_free(kernels, &out);
    kernels_close(kernels);
}

/* A kernel of a graph may end the context as any other. Runs that are queued behind it end with
 * their queue, before the graph does. */
static void test_a_device_lost_in_a_graph(void **state)
{
    (void)state;
    struct kernels *kernels = open_emulated("fails=2,late=1");
    struct buffer in = fixture_buffer(kernels, (float[2 * F]){1}, 2 * F * sizeof(float));
    struct buffer out = fixture_buffer(kernels, NULL, F * sizeof(float));
    assert_int_equal(record_swiglu(kernels, 0, &in, &out), STATUS_OK);
    kernels_event second = 0;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(kernels_pass_run(kernels, 0), STATUS_OK);
        if (i == 1)
            assert_int_equal(kernels_record(kernels, KERNELS_STEPS, &second), STATUS_OK);
    }
    assert_int_equal(kernels_wait(kernels, KERNELS_STEPS, second), STATUS_UNAVAILABLE);
    assert_int_equal(kernels_pass_run(kernels, 0), STATUS_UNAVAILABLE);
    assert_int_equal(kernels_pass_begin(kernels), STATUS_UNAVAILABLE);
    kernels_close(kernels);
}

/* --- kernels that start early --- */

enum { K = 200, N = 70, ROWS = 3 };

/* Weights that were just packed, a norm, a layer: side by side in a queue, or one after another. */
static float *norm_and_layer(const char *settings, const uint16_t *weights, const float *x)
{
    struct kernels *kernels = open_emulated(settings);
    struct buffer in = fixture_buffer(kernels, x, ROWS * K * sizeof(float));
    struct buffer normed = fixture_buffer(kernels, NULL, in.bytes);
    struct buffer weight = fixture_buffer(kernels, x + K, K * sizeof(float));
    struct buffer out = fixture_buffer(kernels, NULL, ROWS * N * sizeof(float));
    struct buffer more = fixture_buffer(kernels, NULL, ROWS * N * sizeof(float));
    struct linear linear;
    assert_int_equal(kernels_linear_create(kernels, WEIGHT_BF16, N, K, &linear), STATUS_OK);
    assert_int_equal(kernels_sync(kernels), STATUS_OK);
    struct emulated_calls before = calls();
    assert_int_equal(kernels_rmsnorm(kernels, &in, &weight, 1e-5, NULL, ROWS, K, &normed),
                     STATUS_OK);
    assert_int_equal(kernels_rmsnorm(kernels, &normed, &weight, 1e-5, NULL, ROWS, K, &in),
                     STATUS_OK);
    assert_int_equal(kernels_linear_load(kernels, &linear, 0, N, weights, NULL), STATUS_OK);
    assert_int_equal(kernels_linear(kernels, &linear, &in, ROWS, false, &out), STATUS_OK);
    assert_int_equal(kernels_linear(kernels, &linear, &normed, ROWS, false, &more), STATUS_OK);
    float *result = fixture_download(kernels, &out), *second = fixture_download(kernels, &more);
    assert_int_equal(calls().early > before.early, strstr(settings, "late") != NULL);
    result = realloc(result, 2 * ROWS * N * sizeof *result);
    assert_non_null(result);
    memcpy(result + ROWS * N, second, ROWS * N * sizeof *result);
    free(second);
    struct buffer *all[] = {&in, &normed, &weight, &out, &more};
    for (int i = 0; i < 5; i++)
        kernels_free(kernels, all[i]);
    kernels_linear_destroy(kernels, &linear);
    kernels_close(kernels);
    return result;
}

static void test_early_kernels_change_nothing(void **state)
{
    (void)state;
    struct rng rng = rng_seeded(11);
    uint16_t *weights = fixture_bf16(&rng, (size_t)N * K, 1);
    float *x = fixture_floats(&rng, ROWS * K, 2);
    float *expected = norm_and_layer("", weights, x);
    for (int seed = 1; seed <= 8; seed++) {
        char settings[32];
        snprintf(settings, sizeof settings, "late=1,seed=%d", 100 * seed);
        float *got = norm_and_layer(settings, weights, x);
        fixture_assert_same_bits(got, expected, 2 * ROWS * N, settings);
        free(got);
    }
    free(expected);
    free(weights);
    free(x);
}

/* --- decode steps of a model --- */

enum { LIVES = 4, BLOCK = 16, TOKENS = 96, ANSWER = 20, POOL = 40 };

/* A prompt and its answer: joins at a step, leaves when it is whole. It may be swapped out before a
 * step, and be back some steps later, in other blocks. */
struct life {
    uint32_t prompt_count, answer_limit, joins, swapped_at, back_at;
    struct sampling sampling;
    uint32_t tokens[TOKENS], blocks[TOKENS / BLOCK];
    uint32_t computed, answer_count, drawn[ANSWER];
    uint64_t hashes[ANSWER];
};

static struct engine_config config_of(bool records)
{
    return (struct engine_config){.model_dir = "tests/golden/models/rope-linear",
                                  .kernels = {.device = DEVICE_CUDA, .threads = 1},
                                  .block_tokens = BLOCK,
                                  .block_count = POOL,
                                  .swap_blocks = 4,
                                  .max_rows = 64,
                                  .max_sequences = LIVES,
                                  .recorded = {.chosen = !records}};
}

static struct engine *open_with(const char *settings, const struct engine_config *config)
{
    struct engine *engine;
    struct error err = {""};
    emulate(settings);
    if (engine_open(config, &engine, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return engine;
}

static struct engine *open_model(const char *settings, bool records)
{
    struct engine_config config = config_of(records);
    return open_with(settings, &config);
}

/* Contexts of up to 2 blocks for all numbers of rows, of 3 blocks for few. */
static void attach_with(struct engine *engine, bool records)
{
    struct model_engine *model = (struct model_engine *)engine;
    struct error err = {""};
    assert_int_equal(model->buckets.count > 0, records);
    if (records)
        model->buckets =
            (struct step_buckets){.count = 3, .all = {{4, 2, false}, {2, 2, false}, {2, 3, false}}};
    assert_int_equal(engine_attach_pool(engine, NULL, &err), STATUS_OK);
    assert_int_equal(model->buckets.count, records ? 3 : 0);
}

static void make_lives(struct life *lives)
{
    static const struct life made[LIVES] = {
        {.prompt_count = 5, .answer_limit = 18},
        {.prompt_count = 18, .answer_limit = 12, .joins = 2, .swapped_at = 9, .back_at = 12},
        {.prompt_count = 3, .answer_limit = 3, .joins = 4},
        {.prompt_count = 27, .answer_limit = 16, .joins = 5},
    };
    for (uint32_t i = 0; i < LIVES; i++) {
        struct life *life = &lives[i];
        *life = made[i];
        life->sampling = sampling_default();
        life->sampling.logits_hash = true;
        life->sampling.temperature = i % 2 ? 1.25f : 0;
        life->sampling.seed = i;
        life->sampling.logprobs = i == 3; /* the host draws its tokens */
        for (uint32_t b = 0; b < TOKENS / BLOCK; b++)
            life->blocks[b] = (7 * (i * TOKENS / BLOCK + b) + 3) % (POOL - 8);
        for (uint32_t t = 0; t < life->prompt_count; t++)
            life->tokens[t] = (9 + 5 * i + 11 * t + t * t) % 380; /* none begins as padding */
    }
}

static struct engine_sequence rows_of(struct life *life)
{
    uint32_t rows = life->prompt_count + life->answer_count - life->computed;
    return (struct engine_sequence){.tokens = life->tokens + life->computed,
                                    .token_count = rows,
                                    .position = life->computed,
                                    .blocks = life->blocks,
                                    .block_count = TOKENS / BLOCK,
                                    .prompt_rows = life->computed ? 0 : rows,
                                    .sample_count = 1,
                                    .sampling = &life->sampling,
                                    .index = life->answer_count,
                                    .history = life->tokens};
}

static void take_result(struct life *life, const struct engine_sequence *row)
{
    assert_int_equal(row->drawn.status, STATUS_OK);
    life->computed += row->token_count;
    life->drawn[life->answer_count] = row->drawn.token;
    life->hashes[life->answer_count] = row->drawn.logits_hash;
    life->tokens[life->prompt_count + life->answer_count++] = row->drawn.token;
}

static void move(struct engine *engine, enum engine_move kind, struct life *life)
{
    struct error err;
    uint32_t count = (life->computed + BLOCK - 1) / BLOCK;
    for (uint32_t b = 0; b < count; b++) {
        bool out = kind == ENGINE_SWAP_OUT;
        if (!out)
            life->blocks[b] = POOL - 1 - b;
        assert_int_equal(engine_move_block(engine, kind, out ? life->blocks[b] : b,
                                           out ? b : life->blocks[b], &err),
                         STATUS_OK);
    }
    assert_int_equal(engine_moves_done(engine, &err), STATUS_OK);
}

/* Lives all of them. Returns how many steps a graph of attach_with covers. */
static uint32_t live(struct engine *engine, struct life *lives)
{
    uint32_t covered = 0;
    for (uint32_t step = 0, left = LIVES; left > 0; step++) {
        struct engine_sequence rows[LIVES];
        struct life *owners[LIVES];
        uint32_t count = 0, blocks = 0;
        bool decodes = true;
        left = 0;
        for (uint32_t i = 0; i < LIVES; i++) {
            struct life *life = &lives[i];
            bool is_out = life->swapped_at && step >= life->swapped_at && step < life->back_at;
            if (life->back_at && step == life->swapped_at)
                move(engine, ENGINE_SWAP_OUT, life);
            if (life->back_at && step == life->back_at)
                move(engine, ENGINE_SWAP_IN, life);
            if (life->answer_count == life->answer_limit)
                continue;
            left++;
            if (step < life->joins || is_out)
                continue;
            owners[count] = life;
            rows[count] = rows_of(life);
            decodes &= rows[count].token_count == 1;
            uint32_t needed = (rows[count++].position + BLOCK) / BLOCK;
            blocks = needed > blocks ? needed : blocks;
        }
        covered += count && decodes && (blocks <= 2 || (count <= 2 && blocks <= 3));
        struct error err;
        if (count && engine_step(engine, rows, count, &err) != STATUS_OK)
            fail_msg("%s", err.text);
        for (uint32_t i = 0; i < count; i++)
            take_result(owners[i], &rows[i]);
    }
    return covered;
}

static void assert_same_lives(const struct life *got, const struct life *expected)
{
    for (int i = 0; i < LIVES; i++) {
        assert_int_equal(got[i].answer_count, expected[i].answer_count);
        assert_memory_equal(got[i].drawn, expected[i].drawn, sizeof got[i].drawn);
        assert_memory_equal(got[i].hashes, expected[i].hashes, sizeof got[i].hashes);
    }
}

/* Calls of the driver, by the size of `calls` that a step takes on average. */
static void test_graphs_change_no_bit(void **state)
{
    (void)state;
    static struct life expected[LIVES], lives[LIVES];
    struct engine *engine = open_model("memory=64", false);
    make_lives(expected);
    attach_with(engine, false);
    (void)live(engine, expected);
    struct engine_counters without = engine_counters(engine);
    assert_int_equal(without.recorded_steps, 0);
    assert_true(without.decode_steps > 12);
    engine_close(engine);

    static const char *const settings[] = {"memory=64,late=1,seed=5,sms=3",
                                           "memory=64,capability=86"};
    for (int i = 0; i < (getenv("BATON_LONG") ? 2 : 1); i++) {
        engine = open_model(settings[i], true);
        make_lives(lives);
        attach_with(engine, true);
        struct emulated_calls before = calls();
        assert_int_equal(before.graphs, 3);
        uint32_t covered = live(engine, lives);
        assert_same_lives(lives, expected);
        struct engine_counters with = engine_counters(engine);
        assert_int_equal(with.recorded_steps, covered);
        assert_int_equal(with.decode_steps, without.decode_steps);
        assert_in_range(covered, 8, without.decode_steps - 3); /* some outgrow all graphs */
        assert_int_equal(calls().graph_launches - before.graph_launches, covered);
        engine_close(engine);
    }
}

/* --- drafts: several rows of an answer in a step --- */

enum { DRAFTS = 2 };

/* Gives the answer up to DRAFTS drafts: of its next tokens, the last of them wrong in every second
 * step. Answers that need each token on the host have none. */
static void draft(struct life *life, const struct life *expected, uint32_t step,
                  struct engine_sequence *row, struct engine_draw *more)
{
    uint32_t known = life->prompt_count + life->answer_count;
    uint32_t left = life->answer_limit - life->answer_count - 1;
    uint32_t count = step % (DRAFTS + 1) < left ? step % (DRAFTS + 1) : left;
    if (row->prompt_rows || !engine_drafts(&life->sampling))
        return;
    for (uint32_t i = 0; i < count; i++)
        life->tokens[known + i] =
            expected->drawn[life->answer_count + i] ^ (i + 1 == count && step % 2);
    row->token_count = row->sample_count = 1 + count;
    row->more = more;
}

/* Takes the result of the row, and of each draft that the row before it drew. */
static void take_drafted(struct life *life, const struct engine_sequence *row)
{
    const uint32_t first = life->answer_count;
    for (uint32_t i = 0; i < row->sample_count; i++) {
        const struct engine_draw *draw = i ? &row->more[i - 1] : &row->drawn;
        if (i && row->tokens[i] != life->drawn[first + i - 1])
            break;
        assert_int_equal(draw->status, STATUS_OK);
        life->drawn[life->answer_count] = draw->token;
        life->hashes[life->answer_count++] = draw->logits_hash;
    }
    life->computed = life->prompt_count + life->answer_count - 1;
    for (uint32_t i = first; i < life->answer_count; i++)
        life->tokens[life->prompt_count + i] = life->drawn[i];
}

static void test_drafts_take_the_buckets(void **state)
{
    (void)state;
    static struct life expected[LIVES], lives[LIVES];
    struct engine *engine = open_model("memory=64", false);
    struct engine_config config = config_of(true);
    struct error err = {""};
    make_lives(expected);
    attach_with(engine, false);
    (void)live(engine, expected);
    engine_close(engine);
    config.draft_tokens = DRAFTS;
    engine = open_with("memory=64,late=1,seed=9", &config);
    struct model_engine *model = (struct model_engine *)engine;
    assert_int_equal(model->buckets.all[0].rows, LIVES * (1 + DRAFTS));
    const uint32_t blocks = model->buckets.all[0].blocks;
    model->buckets = (struct step_buckets){.count = 2, .all = {{12, blocks, false}, {5, 3, false}}};
    assert_int_equal(engine_attach_pool(engine, NULL, &err), STATUS_OK);
    make_lives(lives);
    uint32_t steps = 0, rows_of_steps = 0;
    for (bool left = true; left; steps++) {
        struct engine_sequence rows[LIVES];
        struct engine_draw more[LIVES][DRAFTS];
        struct life *owners[LIVES];
        uint32_t count = 0;
        left = false;
        for (uint32_t i = 0; i < LIVES; i++)
            if (lives[i].answer_count < lives[i].answer_limit) {
                rows[count] = rows_of(&lives[i]);
                draft(&lives[i], &expected[i], steps + i, &rows[count], more[count]);
                rows_of_steps += rows[count].token_count;
                owners[count++] = &lives[i];
                left = true;
            }
        if (left && engine_step(engine, rows, count, &err) != STATUS_OK)
            fail_msg("%s", err.text);
        for (uint32_t i = 0; i < count; i++)
            take_drafted(owners[i], &rows[i]);
    }
    assert_same_lives(lives, expected);
    assert_int_equal(engine_counters(engine).decode_steps, steps - 2); /* the first has prompts */
    assert_int_equal(engine_counters(engine).recorded_steps, steps - 2);
    assert_true(steps < ANSWER && rows_of_steps > 60);
    engine_close(engine);
}

/* --- two steps in flight --- */

enum { STEPS = 6 };

/* Each step is fed the tokens that the device draws in the one before it. */
static void fly(struct engine *engine, struct life *lives, struct emulated_calls *of_steps)
{
    struct engine_sequence rows[ENGINE_TICKETS][2];
    engine_ticket tickets[ENGINE_TICKETS];
    struct error err;
    for (uint32_t i = 0; i < 2; i++) {
        rows[0][i] = rows_of(&lives[i]);
        lives[i].sampling.logits_hash = true;
    }
    assert_int_equal(engine_step(engine, rows[0], 2, &err), STATUS_OK);
    for (uint32_t i = 0; i < 2; i++)
        take_result(&lives[i], &rows[0][i]);
    struct emulated_calls before = calls();
    for (uint32_t step = 0; step <= STEPS; step++) {
        struct engine_sequence *next = rows[step % 2], *last = rows[(step + 1) % 2];
        for (uint32_t i = 0; i < 2 && step < STEPS; i++) {
            next[i] = rows_of(&lives[i]);
            next[i].token_count = 1;
            next[i].position += step > 0;
            next[i].index += step > 0;
            next[i].fed = step > 0;
            next[i].token_from = i;
            next[i].prompt_rows = 0;
        }
        uint64_t waits = calls().waits;
        if (step < STEPS)
            assert_int_equal(engine_submit(engine, next, 2, &tickets[step % 2], &err), STATUS_OK);
        assert_int_equal(calls().waits, waits); /* the device has its next step at once */
        if (step == 0)
            continue;
        assert_int_equal(engine_wait(engine, tickets[(step + 1) % 2], last, 2, &err), STATUS_OK);
        for (uint32_t i = 0; i < 2; i++)
            take_result(&lives[i], &last[i]);
    }
    struct emulated_calls after = calls();
    *of_steps =
        (struct emulated_calls){.all = after.all - before.all,
                                .copies = after.copies - before.copies,
                                .records = after.records - before.records,
                                .waits = after.waits - before.waits,
                                .times = after.times - before.times,
                                .launches = after.launches - before.launches,
                                .graph_launches = after.graph_launches - before.graph_launches};
}

/* Tokens go from graph to graph on the device. For a step the host makes nine calls: tables up,
 * the graph, draws back, three events, the wait for the last, and two times between events. Logits,
 * which are hashed here, are one more copy. */
static void test_steps_in_flight_by_graphs(void **state)
{
    (void)state;
    static struct life expected[LIVES], lives[LIVES];
    struct emulated_calls without, with;
    struct engine *engine = open_model("memory=64", false);
    make_lives(expected);
    attach_with(engine, false);
    fly(engine, expected, &without);
    engine_close(engine);
    engine = open_model("memory=64,late=1,seed=3", true);
    make_lives(lives);
    attach_with(engine, true);
    fly(engine, lives, &with);
    assert_same_lives(lives, expected);
    struct engine_counters counters = engine_counters(engine);
    assert_int_equal(counters.recorded_steps, STEPS);
    assert_true(counters.device_us > 0 && counters.idle_us < UINT32_MAX);
    assert_true(with.copies == (2 + 1) * STEPS && with.graph_launches == STEPS && !with.launches);
    assert_true(with.records == 3 * STEPS && with.waits == STEPS);
    assert_int_equal(with.times, 2 * STEPS - 1); /* none was in flight ahead of the first */
    assert_int_equal(with.all, (9 + 1) * STEPS - 1);
    assert_true(without.all > 2 * with.all && without.launches > STEPS);
    engine_close(engine);
}

/* --- bounds --- */

/* Attaches a pool. Gives the lines that are logged meanwhile. */
static void attach_logged(struct engine *engine, char log[4096])
{
    struct error err = {""};
    int kept = dup(STDERR_FILENO), file = memfd_create("log", 0);
    assert_true(kept >= 0 && file >= 0 && dup2(file, STDERR_FILENO) >= 0);
    enum status status = engine_attach_pool(engine, NULL, &err);
    assert_true(dup2(kept, STDERR_FILENO) >= 0);
    ssize_t bytes = pread(file, log, 4095, 0);
    log[bytes < 0 ? 0 : bytes] = '\0';
    close(kept);
    close(file);
    assert_int_equal(status, STATUS_OK);
}

/* why: the line about recordings that are missing has it; NULL: there is none. */
static uint32_t recorded(const char *settings, const char *why, uint64_t *limit, uint64_t *bytes)
{
    struct engine *engine = open_model(settings, true);
    struct model_engine *model = (struct model_engine *)engine;
    struct error err = {""};
    char log[4096];
    assert_int_equal(model->buckets.count, 3); /* 1, 2 and 4 rows, of one context */
    attach_logged(engine, log);
    uint32_t count = model->buckets.count;
    const char *given = strstr(log, "of=3 why=");
    assert_true(why ? given && strstr(given, why) == given + strlen("of=3 why=") : !given);
    for (uint32_t i = 0; i < count; i++)
        assert_true(model->buckets.all[i].ready);
    *limit = model->memory.recorded;
    *bytes = 0;
    size_t free = kernels_available_bytes(model->kernels);
    engine_close(engine);
    /* The same without recordings: what they took. */
    engine = open_model(settings, false);
    assert_int_equal(engine_attach_pool(engine, NULL, &err), STATUS_OK);
    *bytes = kernels_available_bytes(((struct model_engine *)engine)->kernels) - free;
    *bytes -= count ? kv_layout_block_bytes(engine_layout(engine)) : 0;
    engine_close(engine);
    return count;
}

static void test_recordings_are_bounded(void **state)
{
    (void)state;
    static const struct {
        const char *settings;
        uint32_t least, most;
        const char *why;
        uint64_t graph_us; /* each graph takes so long */
    } cases[] = {
        {"memory=64", 3, 3, NULL, 0},                   /* all */
        {"memory=64,graphs=2", 2, 2, "memory", 0},      /* the device refuses the third */
        {"memory=64,graph_kib=20", 1, 2, "memory", 0},  /* they would take more than a 64th */
        {"memory=64,graph_kib=100", 0, 0, "memory", 0}, /* so does the first */
        {"memory=64,graphs=0", 0, 0, "memory", 0},      /* none: steps go without */
        {"memory=64,graphs=1,graph_result=1", 1, 1, "internal", 0},
        {"memory=64", 3, 3, NULL, 3333333}, /* 10 s in all */
        {"memory=64", 2, 2, "time", 3333334},
        {"memory=64", 2, 2, "time", 5000000},
        {"memory=64", 1, 1, "time", 5000001}, /* the second would end too late */
        {"memory=64", 1, 1, "time", 11000000},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t limit, bytes;
        graph_us = cases[i].graph_us;
        uint32_t count = recorded(cases[i].settings, cases[i].why, &limit, &bytes);
        graph_us = 0;
        assert_in_range(count, cases[i].least, cases[i].most);
        assert_int_equal(limit, 1 << 20);
        assert_true(bytes <= limit);
    }
}

/* --- the memory that is checked at start --- */

/* On a device with exactly as much as is printed, everything is taken, and no byte more or less;
 * with 1 MiB less the sentence has a pool that fits. */
static void test_the_printed_memory_is_what_is_taken(void **state)
{
    (void)state;
    enum { WANTED = 1500 };
    for (int i = 0; i < 3; i++) { /* plain; with recordings; with drafts, too */
        struct engine_config config = config_of(i > 0);
        struct engine *engine;
        struct error err = {""};
        char settings[64];
        config.draft_tokens = i == 2 ? DRAFTS : 0;
        config.block_count = WANTED;
        struct kernels *kernels = open_emulated("memory=64");
        size_t available = kernels_available_bytes(kernels);
        kernels_close(kernels);
        engine = open_with("memory=64", &config);
        size_t printed = ((struct model_engine *)engine)->memory.device;
        engine_close(engine);
        size_t spare_kib = (available - printed) >> 10;
        snprintf(settings, sizeof settings, "memory=64,taken_kib=%zu", spare_kib);
        engine = open_with(settings, &config);
        const struct model_engine *model = (struct model_engine *)engine;
        assert_int_equal(model->memory.device, printed);
        assert_int_equal(engine_attach_pool(engine, NULL, &err), STATUS_OK);
        size_t left = kernels_available_bytes(model->kernels), limit = model->memory.recorded;
        size_t graphs = calls().graph_bytes;
        assert_int_equal(model->buckets.count > 0, i > 0);
        assert_true(graphs <= limit && (graphs > 0) == (i > 0));
        assert_int_equal(available - (spare_kib << 10) - left, printed - (limit - graphs));
        engine_close(engine);
        snprintf(settings, sizeof settings, "memory=64,taken_kib=%zu", spare_kib + 1024);
        emulate(settings);
        assert_int_equal(engine_open(&config, &engine, &err), STATUS_LIMIT);
        const char *told = strstr(err.text, "; kv-tokens ");
        assert_non_null(told);
        config.block_count = (uint32_t)strtoul(told + strlen("; kv-tokens "), NULL, 10) / BLOCK;
        assert_in_range(config.block_count, WANTED / 4, WANTED - 1);
        engine = open_with(settings, &config);
        assert_int_equal(engine_attach_pool(engine, NULL, &err), STATUS_OK);
        engine_close(engine);
    }
}

/* --- a device without memory for sums --- */

static void test_a_refused_pool_leaves_nothing(void **state)
{
    (void)state;
    struct engine *engine = open_model("memory=64,shares=0", false);
    struct kernels *kernels = ((struct model_engine *)engine)->kernels;
    struct error err = {""};
    struct buffer others;
    size_t free = kernels_available_bytes(kernels) + (2 << 20), pool = engine_pool_bytes(engine);
    assert_int_equal(kernels_alloc(kernels, free - pool - 16, &others), STATUS_OK);
    assert_int_equal(engine_attach_pool(engine, NULL, &err), STATUS_LIMIT);
    kernels_free(kernels, &others);
    engine_close(engine);
    assert_int_equal(calls().host_now, 0);
}

/* With a name: that test alone. */
int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_pass_reads_its_buffers_anew),
        cmocka_unit_test(test_a_pass_that_fails_is_none),
        cmocka_unit_test(test_a_pass_is_bounded_in_the_last_memory),
        cmocka_unit_test(test_a_device_lost_in_a_graph),
        cmocka_unit_test(test_early_kernels_change_nothing),
        cmocka_unit_test(test_graphs_change_no_bit),
        cmocka_unit_test(test_steps_in_flight_by_graphs),
        cmocka_unit_test(test_recordings_are_bounded),
        cmocka_unit_test(test_drafts_take_the_buckets),
        cmocka_unit_test(test_the_printed_memory_is_what_is_taken),
        cmocka_unit_test(test_a_refused_pool_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
