/* step_run: steps that fail in a row, and steps in flight on a device that does nothing before the
 * host waits for it. */
#include "common/worker/step_run.h"

#include "common/base/failpoint.h"
#include "common/engine/model_engine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Blocks that move say nothing of the device's steps. */
static void test_a_plan_without_rows_resets_no_count_of_failed_steps(void **state)
{
    (void)state;
    struct engine_config config = {.model_dir = "tests/golden/models/llama",
                                   .kernels = {.f32 = true, .threads = 1},
                                   .block_tokens = 8,
                                   .block_count = 8,
                                   .swap_blocks = 8,
                                   .max_rows = 4,
                                   .max_sequences = 4};
    struct scheduler_config schedule = {.block_tokens = 8,
                                        .block_count = 8,
                                        .max_sequences = 4,
                                        .chunk_tokens = 4,
                                        .context = 16,
                                        .cost = cost_model_default()};
    static struct step_load load;
    struct step_run run = {.load = &load, .failed_in_row = 1, .failed_limit = 2};
    struct error err = {""};
    if (engine_open(&config, &run.engine, &err) != STATUS_OK ||
        engine_attach_pool(run.engine, NULL, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    assert_int_equal(scheduler_create(&schedule, &run.scheduler), STATUS_OK);
    assert_int_equal(scheduler_plan(run.scheduler, 0)->part_count, 0);
    struct block_move move = {.from = 1, .to = 2};
    step_run_plan(&run, &(struct step_plan){.swap_outs = &move, .swap_out_count = 1});
    assert_int_equal(run.failed_in_row, 1);
    scheduler_destroy(run.scheduler);
    engine_close(run.engine);
}

/* --- steps in flight --- */

enum { BLOCK_TOKENS = 8, BLOCKS = 32, CHUNK = 16, SEQUENCES = 4, DRAFTS = 4 };

struct side {
    struct step_run run;
    struct step_events events;
    struct step_load load;
    struct engine_sequence inputs[ENGINE_TICKETS][SEQUENCES];
    struct token_logprobs scores[ENGINE_TICKETS][CHUNK];
    struct engine_draw draws[ENGINE_TICKETS][SEQUENCES * DRAFTS];
};

/* `more`: drafts, growth and the prefix cache; its block_count is 0, or fewer than BLOCKS. */
static void open_with(struct side *side, enum device device, const struct scheduler_config *more)
{
    struct engine_config config = {.model_dir = "tests/golden/models/llama",
                                   .kernels = {.device = device, .f32 = true, .threads = 1},
                                   .block_tokens = BLOCK_TOKENS,
                                   .block_count = BLOCKS,
                                   .swap_blocks = BLOCKS,
                                   .max_rows = CHUNK + SEQUENCES,
                                   .max_sequences = SEQUENCES,
                                   .draft_tokens = more->draft_tokens};
    struct error err = {""};
    *side = (struct side){.run = {.load = &side->load, .events = &side->events}};
    struct step_run *run = &side->run;
    if (engine_open(&config, &run->engine, &err) != STATUS_OK ||
        engine_attach_pool(run->engine, NULL, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    run->runs_ahead = engine_runs_ahead(run->engine);
    for (int i = 0; i < ENGINE_TICKETS; i++) {
        run->flights[i].inputs = side->inputs[i];
        run->flights[i].scores = side->scores[i];
        run->flights[i].draws = side->draws[i];
    }
    struct scheduler_config schedule = *more;
    schedule.block_tokens = BLOCK_TOKENS;
    schedule.block_count = more->block_count ? more->block_count : BLOCKS;
    schedule.max_sequences = SEQUENCES;
    schedule.chunk_tokens = CHUNK;
    schedule.context = 128;
    schedule.runs_ahead = run->runs_ahead;
    assert_int_equal(scheduler_create(&schedule, &run->scheduler), STATUS_OK);
    assert_int_equal(step_events_init(&side->events, SEQUENCES), STATUS_OK);
}

static void open_side(struct side *side, enum device device)
{
    open_with(side, device, &(struct scheduler_config){0});
}

static void close_side(struct side *side)
{
    scheduler_destroy(side->run.scheduler);
    engine_close(side->run.engine);
    step_events_deinit(&side->events);
}

static void arm(const char *failpoint)
{
    struct error err;
    setenv("BATON_FAILPOINTS", failpoint, 1);
    assert_int_equal(failpoint_init("step_run", &err), STATUS_OK);
}

/* A prompt that is handed off. scored: with the logprobs of its tokens. */
static void add(struct side *side, uint64_t request, uint32_t token_count, bool scored)
{
    struct sequence_spec spec = {.key = {request, 1},
                                 .plan = PLAN_HAND_OFF,
                                 .token_count = token_count,
                                 .tokens = calloc(token_count, sizeof(uint32_t)),
                                 .sampling = sampling_default(),
                                 .needs_token = true};
    spec.sampling.prompt_logprobs = scored;
    spec.sampling.prompt_logprobs_from = 1;
    struct error err;
    assert_int_equal(scheduler_add(side->run.scheduler, &spec, &err), STATUS_OK);
    assert_non_null(scheduler_reserve(side->run.scheduler, 0));
}

static void go_around(struct side *side)
{
    step_run_plan(&side->run, scheduler_plan(side->run.scheduler, 0));
}

/* Returns the next event, which must be of this kind and about this request. */
static struct step_event next(struct side *side, enum step_event_kind kind, uint64_t request)
{
    struct step_event *event = ring_pop(side->events.posted);
    assert_non_null(event);
    struct step_event copy = *event;
    assert_int_equal(copy.kind, kind);
    assert_int_equal(kind == STEP_TOKENS ? event->tokens[0].key.request : copy.key.request,
                     request);
    step_events_recycle(&side->events, event);
    return copy;
}

static void expect_no_event(struct side *side)
{
    assert_null(ring_pop(side->events.posted));
}

static uint32_t free_blocks(const struct side *side)
{
    return scheduler_load(side->run.scheduler).blocks[KV_BLOCK_FREE];
}

static struct kernels_counts counts_of(const struct side *side)
{
    return kernels_counts(((struct model_engine *)side->run.engine)->kernels);
}

/* Waits of the host when it handed over the last step, and the engine's own functions. */
static uint64_t waits_at_submit;
static const struct engine_ops *own_ops;

static enum status submit_watched(struct engine *engine, struct engine_sequence *sequences,
                                  uint32_t count, engine_ticket ticket, struct error *err)
{
    waits_at_submit = kernels_counts(((struct model_engine *)engine)->kernels).waits;
    return own_ops->submit(engine, sequences, count, ticket, err);
}

/* Watches what the engine is handed. `ops` must outlive the side. */
static void watch(struct side *side, struct engine_ops *ops)
{
    own_ops = side->run.engine->ops;
    *ops = *own_ops;
    ops->submit = submit_watched;
    side->run.engine->ops = ops;
}

/* Each step costs one upload and one wait, for the step before it and behind its own submission. It
 * allocates nothing. */
static void test_results_come_one_step_late(void **state)
{
    (void)state;
    struct side side;
    struct engine_ops watched;
    open_side(&side, DEVICE_DEFERRED_LATE);
    watch(&side, &watched);
    add(&side, 1, 4 * CHUNK, false);
    struct kernels_counts before = counts_of(&side), after;
    go_around(&side);
    after = counts_of(&side);
    assert_int_equal(side.run.in_flight, 1);
    assert_int_equal(after.uploads, before.uploads + 1);
    assert_int_equal(after.waits, before.waits);
    expect_no_event(&side);
    for (uint32_t chunk = 1; chunk < 4; chunk++) {
        before = after;
        go_around(&side);
        after = counts_of(&side);
        assert_int_equal(side.run.in_flight, 1);
        assert_int_equal(after.uploads, before.uploads + 1);
        assert_int_equal(waits_at_submit, before.waits);
        assert_int_equal(after.waits, before.waits + 1);
        assert_int_equal(after.read_backs, before.read_backs + (chunk == 3));
        assert_int_equal(after.allocations, before.allocations);
        assert_int_equal(next(&side, STEP_READY, 1).ready_tokens, chunk * CHUNK);
        expect_no_event(&side);
    }
    go_around(&side);
    assert_int_equal(side.run.in_flight, 0);
    assert_int_equal(next(&side, STEP_READY, 1).ready_tokens, 4 * CHUNK);
    next(&side, STEP_TOKENS, 1);
    expect_no_event(&side);
    close_side(&side);
}

enum { ANSWER = 8 };

/* Computes an answer. Returns the number of rounds that it takes. */
static uint32_t answer(enum device device, uint32_t tokens[ANSWER])
{
    struct side side;
    struct error err;
    struct engine_ops watched;
    struct sequence_spec spec = {.key = {1, 1},
                                 .plan = PLAN_LOCAL,
                                 .token_count = CHUNK,
                                 .tokens = calloc(CHUNK, sizeof(uint32_t)),
                                 .sampling = sampling_default()};
    spec.sampling.max_tokens = ANSWER;
    spec.sampling.ignore_eos = true;
    open_side(&side, device);
    watch(&side, &watched);
    assert_int_equal(engine_feeds(side.run.engine, &spec.sampling), side.run.runs_ahead);
    assert_int_equal(scheduler_add(side.run.scheduler, &spec, &err), STATUS_OK);
    assert_non_null(scheduler_reserve(side.run.scheduler, 0));
    struct kernels_counts before = counts_of(&side);
    uint32_t rounds = 0, count = 0;
    for (; count < ANSWER && rounds < 4 * ANSWER; rounds++) {
        struct kernels_counts first = counts_of(&side), then;
        go_around(&side);
        then = counts_of(&side);
        assert_true(waits_at_submit == first.waits || then.uploads == first.uploads);
        assert_int_equal(then.allocations, first.allocations);
        for (struct step_event *event; (event = ring_pop(side.events.posted));) {
            if (event->kind == STEP_TOKENS)
                tokens[count++] = event->tokens[0].token;
            step_events_recycle(&side.events, event);
        }
    }
    assert_int_equal(count, ANSWER);
    assert_int_equal(counts_of(&side).uploads, before.uploads + ANSWER);
    close_side(&side);
    return rounds;
}

/* On a device the next row is on its way before its token is known here, or waited for. The answer
 * is the same. */
static void test_each_token_is_fed_before_it_is_known(void **state)
{
    (void)state;
    uint32_t cpu[ANSWER], device[ANSWER];
    assert_int_equal(answer(DEVICE_CPU, cpu), ANSWER);
    assert_int_equal(answer(DEVICE_DEFERRED_LATE, device), ANSWER + 1);
    assert_memory_equal(device, cpu, sizeof cpu);
}

static void test_a_cpu_has_no_step_in_flight(void **state)
{
    (void)state;
    struct side side;
    open_side(&side, DEVICE_CPU);
    add(&side, 1, 2 * CHUNK, false);
    go_around(&side);
    assert_int_equal(side.run.in_flight, 0);
    assert_int_equal(next(&side, STEP_READY, 1).ready_tokens, CHUNK);
    close_side(&side);
}

/* The one behind it has rows of the same sequence, and of another one. Only the step that failed by
 * itself counts. */
static void test_a_step_that_fails_takes_the_one_behind_it_along(void **state)
{
    (void)state;
    struct side side;
    open_side(&side, DEVICE_DEFERRED_LATE);
    arm("step.fails=fail");
    add(&side, 1, CHUNK + CHUNK / 2, false);
    add(&side, 2, CHUNK, false);
    go_around(&side);
    expect_no_event(&side);
    go_around(&side);
    assert_int_equal(next(&side, STEP_FAILED, 1).status, STATUS_INTERNAL);
    assert_int_equal(next(&side, STEP_FAILED, 2).status, STATUS_INTERNAL);
    expect_no_event(&side);
    assert_int_equal(side.run.in_flight, 0);
    assert_int_equal(side.run.failed_in_row, 1);
    assert_int_equal(atomic_load(&side.load.steps_failed), 1);
    for (uint64_t request = 1; request <= 2; request++)
        step_run_remove(&side.run,
                        scheduler_find(side.run.scheduler, (struct sequence_key){request, 1}));
    assert_int_equal(free_blocks(&side), BLOCKS);
    add(&side, 3, CHUNK, false);
    go_around(&side);
    step_run_land(&side.run);
    next(&side, STEP_READY, 3);
    next(&side, STEP_TOKENS, 3);
    assert_int_equal(side.run.failed_in_row, 0);
    close_side(&side);
}

/* The device skips all that is queued behind the operation that fails, until both steps have ended.
 * A third one has its results, although work comes all the time. */
static void test_a_device_that_failed_goes_on_with_the_next_step(void **state)
{
    (void)state;
    struct side side;
    open_side(&side, DEVICE_DEFERRED_LATE);
    arm("device.fails=fail");
    for (uint64_t request = 1; request <= 2; request++) {
        add(&side, request, CHUNK, false);
        go_around(&side);
    }
    add(&side, 3, CHUNK, false);
    go_around(&side);
    step_run_land(&side.run);
    for (uint64_t request = 1; request <= 2; request++)
        assert_int_equal(next(&side, STEP_FAILED, request).status, STATUS_INTERNAL);
    next(&side, STEP_READY, 3);
    next(&side, STEP_TOKENS, 3);
    assert_int_equal(atomic_load(&side.load.steps_failed), 1);
    assert_int_equal(side.run.failed_in_row, 0);
    close_side(&side);
}

static void on_broken(void *context, bool lost)
{
    assert_true(lost);
    ++*(int *)context;
}

/* Both steps in flight fail, and so does each later one: the worker is told at once, although any
 * number of steps may fail. Clients hear of a failed step, which another worker can do. */
static void test_a_lost_device_is_told_at_once(void **state)
{
    (void)state;
    struct side side;
    int told = 0;
    open_side(&side, DEVICE_DEFERRED_LATE);
    side.run.broken = on_broken;
    side.run.broken_context = &told;
    arm("device.lost=fail");
    for (uint64_t request = 1; request <= 2; request++) {
        add(&side, request, CHUNK, false);
        go_around(&side);
    }
    assert_int_equal(told, 1);
    step_run_land(&side.run);
    for (uint64_t request = 1; request <= 2; request++)
        assert_int_equal(next(&side, STEP_FAILED, request).status, STATUS_INTERNAL);
    for (uint64_t request = 3; request <= 4; request++) {
        add(&side, request, CHUNK, false);
        go_around(&side);
        step_run_land(&side.run);
        assert_int_equal(next(&side, STEP_FAILED, request).status, STATUS_INTERNAL);
    }
    assert_true(told > 1);
    close_side(&side);
}

/* The logprobs of a prompt make the host wait inside engine_submit. So the step in flight ends
 * before it: its failure is its own. */
static void test_a_prompt_that_is_scored_comes_behind_the_step_in_flight(void **state)
{
    (void)state;
    struct side side;
    open_side(&side, DEVICE_DEFERRED_LATE);
    arm("device.fails=fail");
    add(&side, 1, CHUNK, false);
    go_around(&side);
    assert_int_equal(side.run.in_flight, 1);
    add(&side, 2, CHUNK, true);
    struct kernels_counts before = counts_of(&side);
    go_around(&side);
    assert_int_equal(counts_of(&side).uploads, before.uploads);
    assert_int_equal(next(&side, STEP_FAILED, 1).status, STATUS_INTERNAL);
    expect_no_event(&side);
    assert_int_equal(side.run.in_flight, 0);
    go_around(&side);
    step_run_land(&side.run);
    assert_int_equal(next(&side, STEP_PROMPT_LOGPROBS, 2).logprobs_count, CHUNK - 1);
    next(&side, STEP_READY, 2);
    next(&side, STEP_TOKENS, 2);
    close_side(&side);
}

static enum status no_submit(struct engine *engine, struct engine_sequence *sequences,
                             uint32_t count, engine_ticket ticket, struct error *err)
{
    (void)engine;
    (void)sequences;
    (void)ticket;
    return error_set(err, STATUS_INTERNAL, "no device for %u sequences", count);
}

static enum status no_wait(struct engine *engine, engine_ticket ticket,
                           struct engine_sequence *sequences, uint32_t count, struct error *err)
{
    return no_submit(engine, sequences, count, ticket, err);
}

/* A device that failed may say so when the next step is handed over. */
static void test_a_failure_that_shows_in_two_steps_counts_once(void **state)
{
    (void)state;
    struct side side;
    open_side(&side, DEVICE_DEFERRED_LATE);
    const struct engine_ops *ops = side.run.engine->ops;
    struct engine_ops failing = *ops;
    failing.submit = no_submit;
    failing.wait = no_wait;
    add(&side, 1, CHUNK, false);
    go_around(&side);
    side.run.engine->ops = &failing;
    add(&side, 2, CHUNK, false);
    go_around(&side);
    side.run.engine->ops = ops;
    assert_int_equal(next(&side, STEP_FAILED, 2).status, STATUS_INTERNAL);
    assert_int_equal(next(&side, STEP_FAILED, 1).status, STATUS_INTERNAL);
    expect_no_event(&side);
    assert_int_equal(side.run.failed_in_row, 1);
    assert_int_equal(atomic_load(&side.load.steps_failed), 1);
    close_side(&side);
}

/* The rows beside a swap-in may read what never came. It shows once they have ended. */
static void test_a_move_that_fails_on_a_device(void **state)
{
    (void)state;
    struct side side;
    open_side(&side, DEVICE_DEFERRED_LATE);
    add(&side, 1, CHUNK, false);
    add(&side, 2, CHUNK, false);
    struct step_plan *plan = (struct step_plan *)scheduler_plan(side.run.scheduler, 0);
    struct sequence *swapped = scheduler_find(side.run.scheduler, (struct sequence_key){2, 1});
    struct block_move move = {.from = 0, .to = swapped->blocks[0], .sequence = swapped};
    assert_int_equal(plan->part_count, 1);
    plan->swap_ins = &move;
    plan->swap_in_count = 1;
    arm("device.move_fails=fail");
    step_run_plan(&side.run, plan);
    expect_no_event(&side);
    step_run_land(&side.run);
    assert_int_equal(next(&side, STEP_FAILED, 1).status, STATUS_INTERNAL);
    assert_int_equal(next(&side, STEP_FAILED, 2).status, STATUS_INTERNAL);
    expect_no_event(&side);
    assert_int_equal(side.run.failed_in_row, 1);
    for (uint64_t request = 1; request <= 2; request++)
        step_run_remove(&side.run,
                        scheduler_find(side.run.scheduler, (struct sequence_key){request, 1}));
    assert_int_equal(free_blocks(&side), BLOCKS);
    add(&side, 3, CHUNK, false);
    go_around(&side);
    step_run_land(&side.run);
    next(&side, STEP_READY, 3);
    next(&side, STEP_TOKENS, 3);
    assert_int_equal(side.run.failed_in_row, 0);
    close_side(&side);
}

static void test_a_sequence_that_is_removed_in_flight(void **state)
{
    (void)state;
    struct side side;
    open_side(&side, DEVICE_DEFERRED_LATE);
    add(&side, 1, 2 * CHUNK, false);
    go_around(&side);
    step_run_remove(&side.run, scheduler_find(side.run.scheduler, (struct sequence_key){1, 1}));
    assert_null(scheduler_find(side.run.scheduler, (struct sequence_key){1, 1}));
    assert_int_equal(free_blocks(&side), BLOCKS - 2 * CHUNK / BLOCK_TOKENS);
    step_run_land(&side.run);
    assert_int_equal(free_blocks(&side), BLOCKS);
    expect_no_event(&side);
    close_side(&side);
}

/* They are under way when the step is handed over. The time that this takes would teach the
 * schedule that swaps cost nothing. */
static void test_swap_ins_beside_a_step_have_no_time(void **state)
{
    (void)state;
    struct side side;
    struct block_move moves[BLOCKS];
    open_side(&side, DEVICE_DEFERRED_LATE);
    add(&side, 1, CHUNK, false);
    struct step_plan *plan = (struct step_plan *)scheduler_plan(side.run.scheduler, 0);
    for (uint32_t i = 0; i < BLOCKS; i++)
        moves[i] = (struct block_move){.from = i, .to = i, .sequence = plan->parts[0].sequence};
    plan->swap_ins = moves;
    plan->swap_in_count = BLOCKS;
    step_run_plan(&side.run, plan);
    assert_int_equal(side.run.flights[0].report.swapped_blocks, BLOCKS);
    assert_int_equal(side.run.flights[0].report.swap_us, 0);
    step_run_land(&side.run);
    next(&side, STEP_READY, 1);
    next(&side, STEP_TOKENS, 1);
    close_side(&side);
}

/* --- drafts --- */

enum { REQUESTS = 8, LENGTH = 40 };

struct answers {
    uint32_t counts[REQUESTS], tokens[REQUESTS][LENGTH];
    uint64_t hashes[REQUESTS][LENGTH];
    uint32_t rounds, preempted, hits, drafts, accepted;
    uint32_t wrong_every; /* as a script: one in so many drafts */
};

/* Prompts of 20 tokens; the first half of them begins alike. */
static void add_answer(struct side *side, uint32_t request)
{
    enum { PROMPT = 20 };
    struct error err;
    struct sequence_spec spec = {.key = {request, 1},
                                 .plan = PLAN_LOCAL,
                                 .token_count = PROMPT,
                                 .tokens = calloc(PROMPT, sizeof(uint32_t)),
                                 .sampling = sampling_default(),
                                 .may_draft = request != 2};
    for (uint32_t i = 0; i < PROMPT; i++)
        spec.tokens[i] = request < REQUESTS / 2 && i < 16 ? i : (i * 7 + request) % 90;
    spec.sampling.max_tokens = LENGTH - request;
    spec.sampling.ignore_eos = spec.sampling.logits_hash = true;
    spec.sampling.temperature = request % 3 ? 1.0f : 0.0f;
    spec.sampling.seed = request;
    spec.needs_token = !engine_feeds(side->run.engine, &spec.sampling);
    assert_int_equal(scheduler_add(side->run.scheduler, &spec, &err), STATUS_OK);
}

/* Proposes the answers of `context`, with some tokens wrong. */
static uint32_t from_script(void *context, const struct sequence *sequence, uint32_t skip,
                            uint32_t most, uint32_t *drafts)
{
    const struct answers *script = context;
    uint32_t first = sequence_answer_count(sequence) + skip, count = 0;
    for (; count < most && first + count < LENGTH; count++)
        drafts[count] = script->tokens[sequence->key.request][first + count] ^
                        ((first + count) % script->wrong_every == 0);
    return count;
}

/* Answers all requests, four at a time, in a pool that is too small for four. */
static void answer_all(enum device device, uint32_t draft_tokens, struct answers *script,
                       struct answers *answers)
{
    const struct scheduler_config config = {.draft_tokens = draft_tokens,
                                            .drafter = from_script,
                                            .drafter_context = script,
                                            .grow = true,
                                            .host_slots = 8,
                                            .prefix_cache = true,
                                            .block_count = 20};
    struct side side;
    uint32_t next = 0, left = REQUESTS;
    open_with(&side, device, &config);
    *answers = (struct answers){0};
    for (; left && answers->rounds < 4000; answers->rounds++) {
        while (next < REQUESTS && scheduler_load(side.run.scheduler).sequences < SEQUENCES)
            add_answer(&side, next++);
        while (scheduler_reserve(side.run.scheduler, 0))
            continue;
        go_around(&side);
        for (struct step_event *event; (event = ring_pop(side.events.posted));) {
            for (uint32_t i = 0; event->kind == STEP_TOKENS && i < event->token_count; i++) {
                const struct step_token *token = &event->tokens[i];
                uint32_t request = (uint32_t)token->key.request;
                uint32_t at = answers->counts[request]++;
                assert_int_equal(token->index, at + 1);
                answers->tokens[request][at] = token->token;
                answers->hashes[request][at] = token->logits_hash;
                left -= token->finish != FINISH_NONE;
            }
            assert_int_not_equal(event->kind, STEP_FAILED);
            step_events_recycle(&side.events, event);
        }
    }
    assert_int_equal(left, 0);
    struct scheduler_load load = scheduler_load(side.run.scheduler);
    struct prefix_cache_counters cache =
        prefix_cache_counters(scheduler_prefix_cache(side.run.scheduler));
    answers->preempted = (uint32_t)(load.swapped_out + load.dropped);
    answers->hits = (uint32_t)cache.hits;
    answers->drafts = (uint32_t)atomic_load(&side.load.drafts);
    answers->accepted = (uint32_t)atomic_load(&side.load.drafts_accepted);
    close_side(&side);
}

/* Tokens and logits are those without drafts: beside others, in chunks, with cached prompts, and
 * preempted on the way. */
static void test_drafts_change_no_token(void **state)
{
    (void)state;
    static struct answers plain, drafted;
    const enum device devices[] = {DEVICE_CPU, DEVICE_DEFERRED_LATE};
    for (int device = 0; device < 2; device++) {
        answer_all(devices[device], 0, &plain, &drafted);
        if (device == 0)
            plain = drafted;
        uint32_t rounds = drafted.rounds;
        assert_true(drafted.preempted && drafted.hits && !drafted.drafts);
        for (uint32_t wrong_every = 1; wrong_every <= 5; wrong_every += 4) {
            plain.wrong_every = wrong_every;
            answer_all(devices[device], DRAFTS, &plain, &drafted);
            assert_memory_equal(drafted.counts, plain.counts, sizeof plain.counts);
            assert_memory_equal(drafted.tokens, plain.tokens, sizeof plain.tokens);
            assert_memory_equal(drafted.hashes, plain.hashes, sizeof plain.hashes);
            assert_true(drafted.preempted && drafted.hits);
            assert_true(drafted.drafts > drafted.accepted);
            assert_true(wrong_every > 1 ? drafted.rounds < rounds : !drafted.accepted);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_plan_without_rows_resets_no_count_of_failed_steps),
        cmocka_unit_test(test_a_lost_device_is_told_at_once),
        cmocka_unit_test(test_results_come_one_step_late),
        cmocka_unit_test(test_each_token_is_fed_before_it_is_known),
        cmocka_unit_test(test_a_cpu_has_no_step_in_flight),
        cmocka_unit_test(test_swap_ins_beside_a_step_have_no_time),
        cmocka_unit_test(test_a_sequence_that_is_removed_in_flight),
        cmocka_unit_test(test_a_step_that_fails_takes_the_one_behind_it_along),
        cmocka_unit_test(test_a_device_that_failed_goes_on_with_the_next_step),
        cmocka_unit_test(test_a_prompt_that_is_scored_comes_behind_the_step_in_flight),
        cmocka_unit_test(test_a_failure_that_shows_in_two_steps_counts_once),
        cmocka_unit_test(test_a_move_that_fails_on_a_device),
        cmocka_unit_test(test_drafts_change_no_token),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
