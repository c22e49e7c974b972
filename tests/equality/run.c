#include "tests/equality/run.h"

#include "common/base/str.h"
#include "common/base/u32.h"
#include "kernels/cpu/inner/inner.h"
#include "tests/device.h"
#include "tests/equality/requests.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* As llama-wide, with heads of 64: decode reads keys and values where they lie, prompts widen them
 * first. */
#define MODEL "tests/golden/models/llama-scan"

enum { BLOCK = SIDE_BLOCK_TOKENS, INTRUDERS = 3 /* sequences that preempt */, HELD_BLOCKS = 256 };

/* Numbers of keys by kind of sequence. */
enum { KEY_WARM = 1000, KEY_GUARD = 2000, KEY_INTRUDER = 2001, KEY_LAST = 3000 };

/* The guard and the intruders. */
enum guests { GUESTS_AWAITED, GUESTS_COME, GUESTS_GONE };

struct run {
    const struct cell *cell;
    enum spoil spoil;
    bool early;
    uint32_t batch;
    struct side source, target; /* a source only where prefill is remote */
    struct answer *answers;
    const struct answer *script;         /* the answers alone, as drafts */
    uint32_t cached_tokens[2][REQUESTS]; /* as reported: at the source, at the target */
    uint32_t steps;                      /* with answers */
    uint32_t stepped[REQUESTS];          /* the last step of each answer */
    uint32_t most;                       /* answers of one step; see count_together */
    uint32_t ended;                      /* ended sequences of the served ones */
    enum guests guests;
    uint32_t intruders_in, guests_out;
};

/* Proposes the last quarter of the answer, with every fourth token wrong: until then all answers
 * may come together. */
static uint32_t from_script(void *context, const struct sequence *sequence, uint32_t skip,
                            uint32_t most, uint32_t *drafts)
{
    const struct run *run = context;
    uint32_t first = sequence_answer_count(sequence) + skip, count = 0;
    if (sequence->key.request >= REQUESTS || first < ANSWER * 3 / 4)
        return 0;
    for (; count < most && first + count < ANSWER; count++)
        drafts[count] =
            run->script[sequence->key.request].tokens[first + count] ^ ((first + count) % 4 == 3);
    return count;
}

static void open_sides(struct run *run)
{
    const struct cell *cell = run->cell;
    struct side_config config = {.model = MODEL,
                                 .weights = (enum weight_choice)cell_number(cell, AXIS_WEIGHTS),
                                 .kv = (enum kv_choice)cell_number(cell, AXIS_KV),
                                 .threads = cell_number(cell, AXIS_THREADS),
                                 .chunk = cell_number(cell, AXIS_CHUNK),
                                 .sequences = run->batch + WARM + 1 + INTRUDERS,
                                 .blocks = requests_pool_blocks(run->batch),
                                 .prefix_cache = true,
                                 .draft_tokens = cell_number(cell, AXIS_DRAFTS),
                                 .drafter = from_script,
                                 .drafter_context = run};
    if (cell_number(cell, AXIS_PREFILL))
        side_open(&run->source, &config);
    if (cell_number(cell, AXIS_PREEMPTED) == PREEMPTED_SWAP)
        config.swap_blocks = config.blocks;
    side_open(&run->target, &config);
    const char *numerics = engine_numerics_name(run->target.engine);
    uint32_t head_dim = engine_shape(run->target.engine)->head_dim;
    assert_int_equal(head_dim % PANEL, 0); /* or nothing is read where it lies */
    assert_int_equal(strstr(numerics, "/w-int8/") != NULL, config.weights == WEIGHTS_INT8);
    assert_int_equal(strstr(numerics, "/kv-int8/") != NULL, config.kv == KV_CHOICE_INT8);
}

/* Half of the largest batch: as many as one event of a step has room for. */
static bool tells_logprobs(uint64_t key)
{
    return key < REQUESTS && key % 2 == 0;
}

static void penalize(struct sampling *sampling)
{
    sampling->presence_penalty = 0.5f;
    sampling->frequency_penalty = -0.25f;
    sampling->repetition_penalty = 1.25f;
}

static void add_biases(struct sampling *sampling, uint64_t key)
{
    const struct logit_bias biases[] = {{3 + (uint32_t)(key % 100), -100}, {200, 3.5f}};
    sampling->biases = memcpy(malloc(sizeof biases), biases, sizeof biases);
    sampling->bias_count = sizeof biases / sizeof *biases;
}

/* Without hits each request is another tenant's: the cache works, and finds nothing. */
static struct sequence_spec spec_of(const struct run *run, const struct request *request,
                                    uint64_t key, enum sequence_plan plan, uint32_t max_tokens)
{
    uint64_t tenant = cell_number(run->cell, AXIS_PREFIX) ? 0 : key;
    struct sequence_spec spec = {.key = {key, 1},
                                 .plan = plan,
                                 .root = prefix_hash_root(1, 2, &tenant, sizeof tenant),
                                 .token_count = request->count,
                                 .sampling = sampling_default()};
    spec.sampling.temperature = 1;
    spec.sampling.seed = request->seed;
    spec.sampling.max_tokens = max_tokens;
    spec.sampling.ignore_eos = spec.sampling.logits_hash = true;
    spec.sampling.logprobs = tells_logprobs(key);
    spec.sampling.top_logprobs = key % (LOGPROBS_MAX_TOP + 1);
    if (key % 3 == 0)
        penalize(&spec.sampling);
    if (key % 4 == 0)
        add_biases(&spec.sampling, key);
    spec.tokens = malloc(request->count * sizeof *spec.tokens);
    assert_non_null(spec.tokens);
    memcpy(spec.tokens, request->tokens, request->count * sizeof *spec.tokens);
    if (run->spoil == SPOIL_SEED && key == run->batch - 1)
        spec.sampling.seed++;
    return spec;
}

/* --- intruders --- */

static void intruder_comes(struct run *run, uint32_t number, uint32_t blocks)
{
    struct request nobodys = {.count = LONGEST};
    struct sequence_spec spec = spec_of(run, &nobodys, KEY_INTRUDER + number, PLAN_RECEIVE, 1);
    spec.priority = PRIORITY_HIGH;
    spec.token_count = blocks * BLOCK - 1;
    free(spec.tokens);
    spec.tokens = calloc(spec.token_count, sizeof *spec.tokens);
    assert_non_null(spec.tokens);
    spec.tokens[0] = number; /* otherwise one would wait for the other's rows */
    side_add(&run->target, &spec);
}

/* The guard comes first, so that it is the sequence that must not be preempted. The intruders need
 * half of the batch's blocks, too. There are several, as one alone could be longer than the
 * context. */
static void guests_come(struct run *run)
{
    struct side *side = &run->target;
    uint32_t available = side_blocks(side, KV_BLOCK_FREE) + side_blocks(side, KV_BLOCK_CACHED);
    uint32_t need = available + side_blocks(side, KV_BLOCK_USED) / 2;
    struct request guard = {.count = 1, .tokens = {3}};
    struct sequence_spec spec = spec_of(run, &guard, KEY_GUARD, PLAN_LOCAL, 3 * ANSWER);
    spec.priority = PRIORITY_HIGH;
    side_add(side, &spec);
    for (uint32_t i = 0; i < INTRUDERS; i++)
        intruder_comes(run, i, need / INTRUDERS);
    run->guests = GUESTS_COME;
}

static void remove_guest(struct run *run, uint64_t key)
{
    step_loop_remove(run->target.loop, (struct sequence_key){key, 1});
}

/* The victims' blocks are the intruders' now and may be written. When all intruders are in, they
 * leave. */
static void intruder_is_in(struct run *run, const struct step_event *reserved)
{
    for (uint32_t i = 0; i < reserved->block_count; i++)
        memset(side_block(&run->target, reserved->blocks[i]), 0xff, side_block_bytes(&run->target));
    assert_true(!run->early || run->answers[0].count == 0); /* still a prompt */
    if (++run->intruders_in < INTRUDERS)
        return;
    remove_guest(run, KEY_GUARD);
    for (uint32_t i = 0; i < INTRUDERS; i++)
        remove_guest(run, KEY_INTRUDER + i);
}

/* --- events --- */

static uint64_t hash_logprobs(const struct token_logprobs *told)
{
    uint64_t hash = hash_bytes(&told->logprob, sizeof told->logprob, told->top_count);
    hash = hash_bytes(told->top_ids, told->top_count * sizeof *told->top_ids, hash);
    return hash_bytes(told->top_logprobs, told->top_count * sizeof *told->top_logprobs, hash);
}

static void note_token(struct run *run, const struct step_token *token)
{
    uint64_t key = token->key.request;
    if (key == KEY_GUARD)
        return;
    run->ended += token->finish != FINISH_NONE;
    if (key >= REQUESTS)
        return;
    struct answer *answer = &run->answers[key];
    assert_int_equal(token->index, answer->count + 1);
    assert_true(answer->count < ANSWER);
    answer->tokens[answer->count] = token->token;
    assert_int_equal(token->logprobs != NULL, tells_logprobs(key));
    answer->logprobs[answer->count] = token->logprobs ? hash_logprobs(token->logprobs) : 0;
    assert_int_not_equal(token->logits_hash, 0);
    answer->hashes[answer->count++] = token->logits_hash;
    run->stepped[key] = run->steps;
}

/* Counts the answers of this step. On a device that runs ahead, an answer that needs its token on
 * the host is in every second step. */
static uint32_t count_together(const struct run *run)
{
    uint32_t count = 0, first = run->steps - (test_device() != DEVICE_CPU && run->steps > 1);
    for (uint32_t i = 0; i < REQUESTS; i++)
        count += run->stepped[i] >= first;
    return count;
}

/* For guests: all decode, so that more than prompts is computed again. Or early: the last one's
 * prompt is being computed. */
static bool is_time(const struct run *run, uint32_t of_batch)
{
    if (run->early)
        return of_batch == run->batch - 1;
    return of_batch == run->batch && run->answers[0].count >= ANSWER / 2;
}

/* Takes an event of the target while answers are written. */
static void take(struct run *run, struct step_event *event)
{
    uint64_t key = event->key.request;
    uint32_t of_batch = 0;
    switch (event->kind) {
    case STEP_RESERVED:
        if (key >= KEY_INTRUDER)
            intruder_is_in(run, event);
        else if (key < REQUESTS)
            run->cached_tokens[1][key] = event->cached_tokens;
        break;
    case STEP_TOKENS:
        run->steps++;
        for (uint32_t i = 0; i < event->token_count; i++)
            note_token(run, &event->tokens[i]);
        of_batch = count_together(run);
        run->most = of_batch > run->most ? of_batch : run->most;
        if (run->guests == GUESTS_AWAITED && is_time(run, of_batch))
            guests_come(run);
        break;
    case STEP_REMOVED:
        if (++run->guests_out == 1 + INTRUDERS)
            run->guests = GUESTS_GONE;
        break;
    default: fail_msg("event %d: %s", event->kind, event->err.text);
    }
    step_loop_recycle(run->target.loop, event);
}

/* --- from prompts to answers --- */

struct list {
    const struct request *requests;
    uint64_t first_key;
    uint32_t count, max_tokens;
};

/* The reported blocks of each request of a list on one side, and the first tokens. */
struct held {
    uint32_t blocks[REQUESTS][HELD_BLOCKS];
    uint32_t cached[REQUESTS];
    struct step_token first[REQUESTS];
    struct token_logprobs logprobs[REQUESTS];
};

static void add_all(struct run *run, struct side *side, const struct list *list,
                    enum sequence_plan plan)
{
    for (uint32_t n = 0; n < list->count; n++) {
        uint32_t i = run->early ? list->count - 1 - n : n;
        struct sequence_spec spec =
            spec_of(run, &list->requests[i], list->first_key + i, plan, list->max_tokens);
        side_add(side, &spec);
    }
}

/* Until all have their blocks, and at the source their first tokens, too. */
static void wait_all(struct side *side, const struct list *list, bool tokens, struct held *held)
{
    for (uint32_t reserved = 0, drawn = 0; reserved + drawn < list->count * (1 + tokens);) {
        struct step_event *event = side_next(side);
        uint64_t i = event->key.request - list->first_key;
        if (event->kind == STEP_RESERVED) {
            assert_true(event->block_count <= HELD_BLOCKS);
            memcpy(held->blocks[i], event->blocks, event->block_count * sizeof *event->blocks);
            held->cached[i] = event->cached_tokens;
            reserved++;
        } else if (event->kind == STEP_TOKENS) {
            for (uint32_t t = 0; t < event->token_count; t++, drawn++) {
                uint64_t of = event->tokens[t].key.request - list->first_key;
                held->first[of] = event->tokens[t];
                held->logprobs[of] = (struct token_logprobs){.given = false};
                if (event->tokens[t].logprobs)
                    held->logprobs[of] = *event->tokens[t].logprobs;
            }
        } else if (event->kind != STEP_READY) {
            fail_msg("event %d: %s", event->kind, event->err.text);
        }
        step_loop_recycle(side->loop, event);
    }
}

static void flip_a_bit(struct side *side, uint32_t block)
{
    *(char *)side_block(side, block) ^= 1;
}

/* Computed by one engine, read by the other, then let go; all begin to decode together. */
static void hand_over(struct run *run, const struct list *list)
{
    static struct held from, to;
    add_all(run, &run->source, list, PLAN_HAND_OFF);
    wait_all(&run->source, list, true, &from);
    add_all(run, &run->target, list, PLAN_RECEIVE);
    wait_all(&run->target, list, false, &to);
    for (uint32_t i = 0; i < list->count; i++) {
        uint32_t first = to.cached[i] / BLOCK, count = requests_blocks_for(list->requests[i].count);
        side_read(&run->target, &run->source, to.blocks[i] + first, from.blocks[i] + first,
                  count - first);
        if (run->spoil == SPOIL_READ && i == 0)
            flip_a_bit(&run->target, to.blocks[i][first]);
    }
    for (uint32_t i = 0; list->first_key == 0 && i < list->count; i++) {
        run->cached_tokens[0][i] = from.cached[i];
        run->cached_tokens[1][i] = to.cached[i];
    }
    for (uint32_t i = 0; i < list->count; i++) {
        step_loop_remove(run->source.loop, from.first[i].key);
        struct step_event *event = side_next(&run->source);
        assert_int_equal(event->kind, STEP_REMOVED);
        step_loop_recycle(run->source.loop, event);
    }
    for (uint32_t i = 0; i < list->count; i++)
        step_loop_admit(run->target.loop, from.first[i].key, from.first[i].token,
                        from.first[i].logits_hash, &from.logprobs[i]);
}

static void serve(struct run *run, const struct list *list)
{
    bool remote = cell_number(run->cell, AXIS_PREFILL);
    run->ended = 0;
    if (remote)
        hand_over(run, list);
    else
        add_all(run, &run->target, list, PLAN_LOCAL);
    while (run->ended < list->count || run->guests == GUESTS_COME)
        take(run, side_next(&run->target));
}

static void warm_up(struct run *run)
{
    serve(run, &(struct list){requests_warm(), KEY_WARM, WARM, 1});
    struct side *reader = cell_number(run->cell, AXIS_PREFILL) ? &run->source : &run->target;
    for (uint32_t i = 0; run->spoil == SPOIL_CACHED && i < reader->blocks; i++)
        flip_a_bit(reader, i);
}

/* --- has it happened? --- */

static uint64_t rows_of_prompts(const struct run *run)
{
    const struct request *requests = requests_all();
    bool hit = cell_number(run->cell, AXIS_PREFIX);
    uint64_t rows = 0;
    for (uint32_t i = 0; i < WARM && hit; i++)
        rows += requests_warm()[i].count;
    for (uint32_t i = 0; i < run->batch; i++)
        rows += requests[i].count - (hit ? requests[i].cached : 0);
    return rows;
}

static void check_hits(const struct run *run, int side)
{
    const struct request *requests = requests_all();
    bool hit = cell_number(run->cell, AXIS_PREFIX);
    for (uint32_t i = 0; i < run->batch; i++)
        assert_int_equal(run->cached_tokens[side][i], hit ? requests[i].cached : 0);
}

/* The longest prompt is computed first or last: a step takes as much of it as allowed. With room
 * for all prompts none is cut. `guests`: the guests' prompts. */
static void check_chunks(const struct run *run, const struct side *side, uint64_t rows,
                         uint32_t guests)
{
    const struct request *longest = &requests_all()[0];
    bool hit = cell_number(run->cell, AXIS_PREFIX);
    uint32_t chunk = cell_number(run->cell, AXIS_CHUNK), most = side->watch.most_prompt_rows;
    assert_in_range(most, min_u32(chunk, longest->count - (hit ? longest->cached : 0)), chunk);
    if (chunk >= rows && cell_number(run->cell, AXIS_PREEMPTED) != PREEMPTED_RECOMPUTE)
        assert_int_equal(side->watch.prompt_parts, run->batch + (hit ? WARM : 0) + guests);
}

/* All of them computed, and no others. */
static void check_threads(const struct run *run, const struct side *side)
{
    assert_false(side->watch.late);
    if (test_device() == DEVICE_CPU) /* otherwise the device's own thread runs the pool */
        assert_int_equal(side->watch.computed_by, (1u << cell_number(run->cell, AXIS_THREADS)) - 1);
}

/* Keys from 1 on: the first request has logprobs, so that it has no drafts. */
static void check_drafts(const struct run *run)
{
    const struct step_load *load = step_loop_load(run->target.loop);
    bool drafts = cell_number(run->cell, AXIS_DRAFTS) && run->batch > 1;
    uint64_t all = atomic_load(&load->drafts), accepted = atomic_load(&load->drafts_accepted);
    assert_true(drafts ? 0 < accepted && accepted < all : all == 0);
}

static void check_preemptions(const struct run *run, uint64_t rows, struct counts *counts)
{
    const struct step_load *load = step_loop_load(run->target.loop);
    counts->swapped = atomic_load(&load->preemptions[STEP_SWAPPED]);
    counts->dropped = atomic_load(&load->preemptions[STEP_DROPPED]);
    uint64_t computed = atomic_load(&load->prompt_rows);
    switch ((enum preempted)cell_number(run->cell, AXIS_PREEMPTED)) {
    case PREEMPTED_NEVER:
        assert_int_equal(counts->swapped + counts->dropped, 0);
        assert_int_equal(computed, rows);
        break;
    case PREEMPTED_SWAP:
        assert_true(counts->swapped > 0 && counts->dropped == 0);
        assert_int_equal(computed, rows + 1); /* the guard's */
        break;
    case PREEMPTED_RECOMPUTE:
        assert_true(counts->dropped > 0 && counts->swapped == 0);
        assert_true(computed > rows + 1);
        break;
    }
}

/* Returns when the load has all that happened so far: it is published before a token is told, but
 * after a sequence is removed. */
static void await_load(struct run *run)
{
    struct request last = {.count = 1, .tokens = {3}};
    struct sequence_spec spec = spec_of(run, &last, KEY_LAST, PLAN_LOCAL, 1);
    side_add(&run->target, &spec);
    for (bool drawn = false; !drawn;) {
        struct step_event *event = side_next(&run->target);
        drawn = event->kind == STEP_TOKENS;
        step_loop_recycle(run->target.loop, event);
    }
}

static struct counts check_run(struct run *run)
{
    bool remote = cell_number(run->cell, AXIS_PREFILL);
    uint64_t rows = rows_of_prompts(run);
    struct counts counts = {.prompt_rows = rows};
    assert_int_equal(run->most, run->batch);
    check_hits(run, 1);
    if (remote) {
        check_hits(run, 0);
        assert_int_equal(atomic_load(&step_loop_load(run->source.loop)->prompt_rows), rows);
    }
    check_preemptions(run, remote ? 0 : rows, &counts);
    check_drafts(run);
    bool guard_computes = cell_number(run->cell, AXIS_PREEMPTED) != PREEMPTED_NEVER && !remote;
    check_chunks(run, remote ? &run->source : &run->target, rows, guard_computes);
    check_threads(run, &run->target);
    if (remote)
        check_threads(run, &run->source);
    for (uint32_t i = 0; i < run->batch; i++) {
        assert_int_equal(run->answers[i].count, ANSWER);
        counts.hit_tokens += run->cached_tokens[1][i];
    }
    await_load(run);
    assert_int_equal(side_blocks(&run->target, KV_BLOCK_FREE) +
                         side_blocks(&run->target, KV_BLOCK_CACHED),
                     run->target.blocks);
    assert_int_equal(atomic_load(&step_loop_load(run->target.loop)->swapped_blocks), 0);
    return counts;
}

static struct counts run_all(struct run *run)
{
    bool preempted = cell_number(run->cell, AXIS_PREEMPTED) != PREEMPTED_NEVER;
    run->batch = cell_number(run->cell, AXIS_BATCH);
    run->guests = preempted ? GUESTS_AWAITED : GUESTS_GONE;
    memset(run->answers, 0, run->batch * sizeof *run->answers);
    open_sides(run);
    if (cell_number(run->cell, AXIS_PREFIX))
        warm_up(run);
    serve(run, &(struct list){requests_all(), 0, run->batch, ANSWER});
    struct counts counts = check_run(run);
    side_close(&run->target);
    side_close(&run->source);
    return counts;
}

struct counts run_cell(const struct cell *cell, enum spoil spoil, const struct answer *alone,
                       struct answer *answers)
{
    static struct run run;
    run = (struct run){.cell = cell, .spoil = spoil, .script = alone, .answers = answers};
    return run_all(&run);
}

struct counts run_early(const struct cell *cell, struct answer *answers)
{
    static struct run run;
    run = (struct run){.cell = cell, .early = true, .answers = answers};
    return run_all(&run);
}

void run_alone(const struct cell *cell, struct answer *answers)
{
    static struct run run;
    run = (struct run){.cell = cell, .batch = 1, .answers = answers, .guests = GUESTS_GONE};
    memset(answers, 0, REQUESTS * sizeof *answers);
    struct side_config config = {.model = MODEL,
                                 .weights = (enum weight_choice)cell_number(cell, AXIS_WEIGHTS),
                                 .kv = (enum kv_choice)cell_number(cell, AXIS_KV),
                                 .threads = 1,
                                 .chunk = LONGEST,
                                 .sequences = 1,
                                 .blocks = requests_pool_blocks(1)};
    side_open(&run.target, &config);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        struct sequence_spec spec = spec_of(&run, &requests_all()[i], i, PLAN_LOCAL, ANSWER);
        side_add(&run.target, &spec);
        for (run.ended = 0; run.ended == 0;)
            take(&run, side_next(&run.target));
        assert_int_equal(answers[i].count, ANSWER);
    }
    side_close(&run.target);
}
