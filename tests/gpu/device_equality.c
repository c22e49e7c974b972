/* device_equality MODEL [FLAGS]: a request's answer has the same bytes on a device, however it is
 * computed there. Compares the hashes of the fp32 logits of each token with those of the request
 * alone, its prompt whole, one step after the other, each launched kernel by kernel; cells have
 * recorded steps where the device has them.
 *
 * A cell has a value of each axis: how many answers run side by side, the rows of a prompt in a
 * step, whether a common beginning is found in blocks that another request has computed, how half
 * of the answers come back after a preemption, and whether steps run ahead of the host. Cells are a
 * seeded sample in which every value of every axis occurs, or all.
 *
 * BATON_TEST_DEVICE names the device (default: cpu). Prints a line for each cell that differs and
 * one at the end; exits with 1 if any does, or if a GPU ran no recorded step. */
#include "common/base/rng.h"
#include "common/base/u32.h"
#include "common/engine/engine.h"
#include "tests/device.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK         16
#define MOST_REQUESTS 128
#define MOST_TOKENS   1024
#define MOST_ANSWER   32
#define SHARED_BLOCKS 2 /* the common beginning's */
#define SHARED        (SHARED_BLOCKS * BLOCK)

enum axis { BATCH, CHUNK, CACHED, BACK, AHEAD, AXES };
enum back { BACK_NEVER, BACK_SWAPPED, BACK_RECOMPUTED };
static const char *const axis_names[AXES] = {"batch", "chunk", "cached", "back", "ahead"};
static const struct {
    uint32_t count, values[8];
} axes[AXES] = {[BATCH] = {7, {1, 2, 3, 16, 33, 64, 128}},
                [CHUNK] = {4, {7, 64, 256, MOST_TOKENS}},
                [CACHED] = {2, {0, 1}},
                [BACK] = {3, {BACK_NEVER, BACK_SWAPPED, BACK_RECOMPUTED}},
                [AHEAD] = {2, {0, 1}}};

struct settings {
    const char *model;
    enum weight_choice weights;
    enum kv_choice kv;
    uint32_t batch, prompt, answer; /* the most of them */
    uint32_t samples;               /* cells; 0: all */
    uint64_t seed;
    bool spoil; /* changes a token of a prompt, which must show */
};

struct request {
    uint32_t tokens[MOST_TOKENS + MOST_ANSWER]; /* prompt, then the drawn ones */
    uint32_t prompt, computed, answered;
    uint32_t blocks[(MOST_TOKENS + MOST_ANSWER) / BLOCK + 1];
    struct sampling sampling;
    uint64_t hashes[MOST_ANSWER], alone[MOST_ANSWER];
};

struct run {
    struct settings settings;
    struct engine *engine;
    struct request *requests; /* [MOST_REQUESTS] */
    uint32_t blocks_each;
};

static void fail(const char *what, const struct error *err)
{
    fprintf(stderr, "device_equality: %s: %s\n", what, err->text);
    exit(1);
}

/* --- the model --- */

static void open_engine(struct run *run, bool records)
{
    const struct settings *s = &run->settings;
    struct error err = {""};
    run->blocks_each = divide_up(s->prompt + s->answer, BLOCK);
    struct engine_config config = {
        .model_dir = s->model,
        .weights = s->weights,
        .kv = s->kv,
        .kernels = {.device = test_device(), .threads = 2},
        .block_tokens = BLOCK,
        .block_count = 2 * s->batch * run->blocks_each, /* the second half: after a preemption */
        .swap_blocks = s->batch * run->blocks_each,
        .max_rows = max_u32(2 * MOST_TOKENS, s->batch),
        .max_sequences = s->batch,
        .recorded = {.chosen = !records}, /* chosen, and none: off */
    };
    if (engine_open(&config, &run->engine, &err) != STATUS_OK ||
        engine_attach_pool(run->engine, NULL, &err) != STATUS_OK)
        fail("cannot open the model", &err);
    printf("numerics %s, decode steps %s, device memory %s\n", engine_numerics_name(run->engine),
           records ? "recorded" : "launched",
           engine_has_device_memory(run->engine) ? "its own" : "the host's");
}

/* Blocks of a request lie apart from each other. `back`: others than before. */
static void give_blocks(const struct run *run, uint32_t number, bool back)
{
    struct request *request = &run->requests[number];
    uint32_t all = run->settings.batch * run->blocks_each;
    for (uint32_t b = 0; b < run->blocks_each; b++)
        request->blocks[b] =
            (b * run->settings.batch + (number * 7 + b * 3) % run->settings.batch) % all +
            (back ? all : 0);
}

static void make_requests(struct run *run)
{
    struct rng shared = rng_seeded(99);
    uint32_t vocab = engine_shape(run->engine)->vocab, beginning[SHARED];
    for (uint32_t t = 0; t < SHARED; t++)
        beginning[t] = (uint32_t)rng_below(&shared, vocab);
    for (uint32_t i = 0; i < run->settings.batch; i++) {
        struct request *request = &run->requests[i];
        struct rng rng = rng_seeded(1000 + i);
        uint32_t most = run->settings.prompt;
        request->prompt =
            i == 0 ? most : SHARED + 1 + (uint32_t)rng_below(&rng, (most - SHARED) / (1 + i % 4));
        for (uint32_t t = 0; t < request->prompt; t++)
            request->tokens[t] = t < SHARED ? beginning[t] : (uint32_t)rng_below(&rng, vocab);
        request->sampling = sampling_default();
        request->sampling.temperature = i % 3 ? 1 : 0;
        request->sampling.seed = rng_next(&rng);
        request->sampling.logits_hash = request->sampling.ignore_eos = true;
    }
}

/* --- steps --- */

static struct engine_sequence rows_of(const struct run *run, struct request *request, uint32_t rows)
{
    uint32_t known = request->prompt + request->answered;
    return (struct engine_sequence){.tokens = request->tokens + request->computed,
                                    .token_count = rows,
                                    .position = request->computed,
                                    .blocks = request->blocks,
                                    .block_count = run->blocks_each,
                                    .prompt_rows = rows,
                                    .sample_count = request->computed + rows == known,
                                    .sampling = &request->sampling,
                                    .index = request->answered};
}

static void take(struct request *request, const struct engine_sequence *result)
{
    struct error err = {"a token could not be drawn"};
    request->computed += result->token_count;
    if (!result->sample_count)
        return;
    if (result->drawn.status != STATUS_OK)
        fail("step", &err);
    request->hashes[request->answered] = result->drawn.logits_hash;
    request->tokens[request->prompt + request->answered++] = result->drawn.token;
}

/* One step of all requests [first, end) that have less than `answer` tokens. Returns how many took
 * part. */
static uint32_t step(struct run *run, uint32_t first, uint32_t end, uint32_t chunk, uint32_t answer)
{
    static struct engine_sequence sequences[MOST_REQUESTS];
    struct request *owners[MOST_REQUESTS];
    uint32_t count = 0, rows_left = 2 * MOST_TOKENS;
    struct error err = {""};
    for (uint32_t i = first; i < end && rows_left; i++) {
        struct request *request = &run->requests[i];
        uint32_t left = request->prompt + request->answered - request->computed;
        if (request->answered >= answer)
            continue;
        owners[count] = request;
        sequences[count] = rows_of(run, request, min_u32(min_u32(left, chunk), rows_left));
        rows_left -= sequences[count++].token_count;
    }
    if (count && engine_step(run->engine, sequences, count, &err) != STATUS_OK)
        fail("step", &err);
    for (uint32_t i = 0; i < count; i++)
        take(owners[i], &sequences[i]);
    return count;
}

/* Decode steps of all requests, each handed over before the one before it has ended, with the
 * tokens that the device draws. All have drawn a token. */
static void decode_ahead(struct run *run, uint32_t batch, uint32_t answer)
{
    static struct engine_sequence sequences[ENGINE_TICKETS][MOST_REQUESTS];
    engine_ticket tickets[ENGINE_TICKETS];
    struct error err = {""};
    uint32_t steps = answer - run->requests[0].answered;
    for (uint32_t n = 0; n <= steps; n++) {
        struct engine_sequence *next = sequences[n % ENGINE_TICKETS];
        for (uint32_t i = 0; n < steps && i < batch; i++) {
            struct request *request = &run->requests[i];
            uint32_t ahead = n ? 1 : 0; /* the step in flight isn't taken yet */
            next[i] = (struct engine_sequence){.tokens = request->tokens + request->computed,
                                               .token_count = 1,
                                               .position = request->computed + ahead,
                                               .blocks = request->blocks,
                                               .block_count = run->blocks_each,
                                               .sample_count = 1,
                                               .fed = ahead,
                                               .token_from = i,
                                               .sampling = &request->sampling,
                                               .index = request->answered + ahead};
        }
        if (n < steps && engine_submit(run->engine, next, batch, &tickets[n % ENGINE_TICKETS],
                                       &err) != STATUS_OK)
            fail("submit", &err);
        if (!n)
            continue;
        uint32_t before = (n - 1) % ENGINE_TICKETS;
        if (engine_wait(run->engine, tickets[before], sequences[before], batch, &err) != STATUS_OK)
            fail("wait", &err);
        for (uint32_t i = 0; i < batch; i++)
            take(&run->requests[i], &sequences[before][i]);
    }
}

/* --- cells --- */

/* Every second request leaves its blocks, and gets others. */
static void come_back(struct run *run, uint32_t batch, enum back back)
{
    struct error err = {""};
    enum status status = STATUS_OK;
    for (uint32_t i = 1; i < batch && back != BACK_NEVER; i += 2) {
        struct request *request = &run->requests[i];
        uint32_t used = divide_up(request->computed, BLOCK), slot = i * run->blocks_each;
        for (uint32_t b = 0; b < used && status == STATUS_OK && back == BACK_SWAPPED; b++)
            status =
                engine_move_block(run->engine, ENGINE_SWAP_OUT, request->blocks[b], slot + b, &err);
        if (status == STATUS_OK)
            status = engine_moves_done(run->engine, &err);
        give_blocks(run, i, true);
        for (uint32_t b = 0; b < used && status == STATUS_OK && back == BACK_SWAPPED; b++)
            status =
                engine_move_block(run->engine, ENGINE_SWAP_IN, slot + b, request->blocks[b], &err);
        if (back == BACK_RECOMPUTED)
            request->computed = 0;
    }
    if (status == STATUS_OK)
        status = engine_moves_done(run->engine, &err);
    if (status != STATUS_OK)
        fail("move", &err);
}

static void run_cell(struct run *run, const uint32_t values[AXES])
{
    uint32_t batch = min_u32(values[BATCH], run->settings.batch), answer = run->settings.answer;
    for (uint32_t i = 0; i < batch; i++) {
        struct request *request = &run->requests[i];
        request->computed = request->answered = 0;
        memset(request->hashes, 0, sizeof request->hashes);
        give_blocks(run, i, false);
    }
    if (values[CACHED]) { /* request 0 computes the beginning for all */
        while (run->requests[0].computed < SHARED)
            (void)step(run, 0, 1, min_u32(values[CHUNK], SHARED - run->requests[0].computed),
                       answer);
        for (uint32_t i = 1; i < batch; i++) {
            memcpy(run->requests[i].blocks, run->requests[0].blocks,
                   SHARED_BLOCKS * sizeof *run->requests[i].blocks);
            run->requests[i].computed = SHARED;
        }
    }
    while (step(run, 0, batch, values[CHUNK], answer / 2))
        ;
    come_back(run, batch, (enum back)values[BACK]);
    if (values[AHEAD] && engine_runs_ahead(run->engine)) {
        while (step(run, 0, batch, values[CHUNK], answer / 2 + 1)) /* all have their rows again */
            ;
        decode_ahead(run, batch, answer);
    }
    while (step(run, 0, batch, values[CHUNK], answer))
        ;
}

/* Says where the first difference is. */
static bool is_equal(const struct run *run, const uint32_t values[AXES], uint64_t *tokens)
{
    uint32_t batch = min_u32(values[BATCH], run->settings.batch);
    for (uint32_t i = 0; i < batch; i++)
        for (uint32_t t = 0; t < run->settings.answer; t++, ++*tokens) {
            const struct request *request = &run->requests[i];
            if (request->hashes[t] == request->alone[t])
                continue;
            printf("request %u, token %u: logits %016" PRIx64 ", alone %016" PRIx64 "\n", i, t,
                   request->hashes[t], request->alone[t]);
            return false;
        }
    return true;
}

/* In the first cells each axis takes its values in turn. */
static void draw_cell(struct rng *rng, uint32_t number, uint32_t values[AXES])
{
    for (uint32_t a = 0; a < AXES; a++) {
        uint32_t drawn = (uint32_t)rng_below(rng, axes[a].count);
        uint32_t turn = number < axes[BATCH].count ? number + a : drawn;
        values[a] = axes[a].values[turn % axes[a].count];
    }
}

static uint32_t all_cells(uint32_t number, uint32_t values[AXES])
{
    uint32_t count = 1;
    for (int a = 0; a < AXES; a++) {
        values[a] = axes[a].values[number / count % axes[a].count];
        count *= axes[a].count;
    }
    return count;
}

/* --- settings --- */

static uint32_t number_of(const char *text, uint32_t most)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    if (*end || value > most) {
        fprintf(stderr, "device_equality: %s isn't a number up to %u\n", text, most);
        exit(2);
    }
    return (uint32_t)value;
}

static struct settings read_settings(int argc, char **argv)
{
    struct settings s = {
        .batch = MOST_REQUESTS, .prompt = 600, .answer = 16, .samples = 24, .seed = 1};
    if (argc < 2)
        goto usage;
    s.model = argv[1];
    for (int i = 2; i < argc; i++) {
        const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : "";
        if (!strcmp(name, "--int8"))
            s.weights = WEIGHTS_INT8;
        else if (!strcmp(name, "--kv-int8"))
            s.kv = KV_CHOICE_INT8;
        else if (!strcmp(name, "--spoil"))
            s.spoil = true;
        else if (!strcmp(name, "--batch") && ++i)
            s.batch = number_of(value, MOST_REQUESTS);
        else if (!strcmp(name, "--prompt") && ++i)
            s.prompt = number_of(value, MOST_TOKENS);
        else if (!strcmp(name, "--answer") && ++i)
            s.answer = number_of(value, MOST_ANSWER);
        else if (!strcmp(name, "--cells") && ++i)
            s.samples = number_of(value, 100000);
        else if (!strcmp(name, "--seed") && ++i)
            s.seed = number_of(value, UINT32_MAX);
        else
            goto usage;
    }
    if (s.batch && s.prompt > SHARED + 4 && s.answer >= 4)
        return s;
usage:
    fprintf(stderr, "usage: device_equality MODEL [--int8] [--kv-int8] [--batch N] [--prompt N] "
                    "[--answer N] [--cells N] [--seed N] [--spoil]\n--cells 0: all\n");
    exit(2);
}

int main(int argc, char **argv)
{
    struct run run = {.settings = read_settings(argc, argv)};
    const uint32_t alone[AXES] = {1, MOST_TOKENS, 0, BACK_NEVER, 0};
    run.requests = calloc(MOST_REQUESTS, sizeof *run.requests);
    if (!run.requests)
        return 1;
    open_engine(&run, false);
    make_requests(&run);
    for (uint32_t i = 0; i < run.settings.batch; i++) { /* each as request 0 of a batch of one */
        struct request *requests = run.requests;
        run.requests = requests + i;
        run_cell(&run, alone);
        memcpy(run.requests->alone, run.requests->hashes, sizeof run.requests->alone);
        run.requests = requests;
        if (i && requests[i].alone[0] == requests[0].alone[0]) {
            printf("different requests have equal logits: nothing would be proven\n");
            return 1;
        }
    }
    engine_close(run.engine);
    open_engine(&run, true); /* with recorded steps, if the device has them */
    if (run.settings.spoil)
        run.requests[run.settings.batch - 1].tokens[SHARED]++;
    struct rng rng = rng_seeded(run.settings.seed);
    uint32_t values[AXES], count = run.settings.samples, wrong = 0;
    uint64_t tokens = 0;
    if (!count)
        count = all_cells(0, values);
    for (uint32_t n = 0; n < count; n++) {
        if (run.settings.samples)
            draw_cell(&rng, n, values);
        else
            (void)all_cells(n, values);
        run_cell(&run, values);
        if (is_equal(&run, values, &tokens))
            continue;
        wrong++;
        printf("differs:");
        for (int a = 0; a < AXES; a++)
            printf(" %s=%u", axis_names[a], values[a]);
        printf("\n");
    }
    uint64_t recorded = engine_counters(run.engine).recorded_steps;
    printf("cells %u, tokens %" PRIu64 ", cells that differ %u, recorded steps %" PRIu64 "\n",
           count, tokens, wrong, recorded);
    engine_close(run.engine);
    free(run.requests);
    return wrong || (test_device() == DEVICE_CUDA && !recorded) ? 1 : 0;
}
