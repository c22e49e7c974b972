/* step_loop with a real engine: a prompt is computed in chunks and held, a received one decodes, a
 * removed sequence frees its blocks, and one that can't be computed comes back with a sentence.
 * Every wait is for an event. */
#include "common/worker/step_loop.h"

#include "common/base/clock.h"
#include "common/base/failpoint.h"
#include "common/engine/engine_state.h"
#include "tests/device.h"

#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <stdio.h>
#include <unistd.h>

enum { BLOCK_TOKENS = 16, BLOCKS = 8, CHUNK = 20, WAIT_US = 60000000 };

struct fixture {
    struct engine *engine;
    struct step_loop *loop;
    sem_t broken;
};

enum { POISON = 380, HIDDEN = 128 }; /* a token with a NaN embedding in the poisoned model */

static void on_broken(void *context, bool lost)
{
    assert_false(lost);
    sem_post(context);
}

enum { FAILED_LIMIT = 2, STALL_US = 20000 };
static bool watched;          /* the next loop reports its steps, and watches itself */
static uint32_t draft_tokens; /* the next loop's */

static int setup_model(void **state, const char *model)
{
    static struct fixture fixture;
    struct error err = {""};
    struct engine_config engine = {.model_dir = model,
                                   .kernels = {.device = test_device(), .f32 = true, .threads = 1},
                                   .block_tokens = BLOCK_TOKENS,
                                   .block_count = BLOCKS,
                                   .max_rows = CHUNK + 4,
                                   .max_sequences = 4,
                                   .draft_tokens = draft_tokens};
    if (engine_open(&engine, &fixture.engine, &err) != STATUS_OK ||
        engine_attach_pool(fixture.engine, NULL, &err) != STATUS_OK) {
        print_error("%s\n", err.text);
        return 1;
    }
    struct step_loop_config loop = {.engine = fixture.engine,
                                    .chunk_tokens = CHUNK,
                                    .chunk_us = 1, /* beside answers */
                                    .max_sequences = 4,
                                    .block_count = BLOCKS,
                                    .draft_tokens = draft_tokens,
                                    .cpu = -1};
    if (watched) {
        sem_init(&fixture.broken, 0, 0);
        loop.sends_reports = true;
        loop.failed_limit = FAILED_LIMIT;
        loop.broken = on_broken;
        loop.broken_context = &fixture.broken;
        loop.stall_us = STALL_US;
    }
    watched = false;
    *state = &fixture;
    return step_loop_start(&loop, &fixture.loop, &err) != STATUS_OK;
}

static int setup(void **state)
{
    return setup_model(state, "tests/golden/models/llama");
}

static int setup_watched(void **state)
{
    watched = true;
    return setup(state);
}

/* Copies a file of the golden model, with the embedding of POISON overwritten by NaN. */
static void copy_poisoned(const char *folder, const char *name)
{
    char from[256], to[256];
    snprintf(from, sizeof from, "tests/golden/models/llama/%s", name);
    snprintf(to, sizeof to, "%s/%s", folder, name);
    static char bytes[2 << 20];
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    assert_non_null(in);
    assert_non_null(out);
    size_t size = fread(bytes, 1, sizeof bytes, in);
    assert_true(size < sizeof bytes);
    if (strstr(name, "safetensors")) {
        uint64_t header_bytes;
        unsigned long begin;
        memcpy(&header_bytes, bytes, sizeof header_bytes);
        const char *entry = strstr(bytes + 8, "model.embed_tokens.weight");
        assert_non_null(entry);
        assert_int_equal(sscanf(strstr(entry, "data_offsets"), "data_offsets\":[%lu", &begin), 1);
        uint16_t row[HIDDEN];
        for (int i = 0; i < HIDDEN; i++)
            row[i] = 0x7fc0;
        memcpy(bytes + 8 + header_bytes + begin + POISON * sizeof row, row, sizeof row);
    }
    assert_int_equal(fwrite(bytes, 1, size, out), size);
    fclose(in);
    fclose(out);
}

static int setup_poisoned(void **state)
{
    static const char *const names[] = {"config.json", "generation_config.json",
                                        "model.safetensors"};
    char folder[] = "/tmp/baton-test-XXXXXX";
    assert_non_null(mkdtemp(folder));
    for (int i = 0; i < 3; i++)
        copy_poisoned(folder, names[i]);
    int failed = setup_model(state, folder);
    for (int i = 0; i < 3; i++) {
        char path[256];
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    rmdir(folder);
    return failed;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    step_loop_stop(fixture->loop);
    engine_close(fixture->engine);
    return 0;
}

static struct sequence_spec spec_of(uint64_t request, enum sequence_plan plan, uint32_t tokens,
                                    uint32_t max_tokens)
{
    struct sequence_spec spec = {
        .key = {request, 1}, .plan = plan, .token_count = tokens, .sampling = sampling_default()};
    spec.sampling.temperature = 0;
    spec.sampling.max_tokens = max_tokens;
    spec.sampling.ignore_eos = true;
    spec.tokens = calloc(tokens, sizeof *spec.tokens);
    for (uint32_t i = 0; i < tokens; i++)
        spec.tokens[i] = 3 + i * 7 % 300;
    return spec;
}

static void add(struct fixture *fixture, struct sequence_spec spec)
{
    assert_int_equal(step_loop_add(fixture->loop, &spec), STATUS_OK);
}

/* The next event, copied, which must be of this kind. */
static struct step_event next(struct fixture *fixture, enum step_event_kind kind,
                              struct step_token *token)
{
    struct step_event *event = ring_wait(step_loop_events(fixture->loop), WAIT_US);
    assert_non_null(event);
    assert_int_equal(event->kind, kind);
    struct step_event copy = *event;
    if (token) {
        assert_int_equal(event->token_count, 1);
        *token = event->tokens[0];
    }
    step_loop_recycle(fixture->loop, event);
    return copy;
}

static uint32_t blocks_free(struct fixture *fixture)
{
    return atomic_load(&step_loop_load(fixture->loop)->blocks[KV_BLOCK_FREE]);
}

static void test_a_prompt_in_chunks_is_held_until_removed(void **state)
{
    struct fixture *fixture = *state;
    struct step_token token;
    add(fixture, spec_of(1, PLAN_HAND_OFF, 45, 5));
    assert_int_equal(next(fixture, STEP_RESERVED, NULL).block_count, 3);
    assert_int_equal(next(fixture, STEP_READY, NULL).ready_tokens, 20);
    assert_int_equal(next(fixture, STEP_READY, NULL).ready_tokens, 40);
    assert_int_equal(next(fixture, STEP_READY, NULL).ready_tokens, 45);
    next(fixture, STEP_TOKENS, &token);
    assert_true(token.hand_off);
    assert_int_equal(token.index, 1);
    assert_int_equal(token.finish, FINISH_NONE);
    step_loop_remove(fixture->loop, (struct sequence_key){1, 1});
    next(fixture, STEP_REMOVED, NULL);
    step_loop_remove(fixture->loop, (struct sequence_key){1, 1}); /* idempotent */
    next(fixture, STEP_REMOVED, NULL);
}

static void test_a_local_prompt_decodes_to_its_end(void **state)
{
    struct fixture *fixture = *state;
    struct step_token token;
    add(fixture, spec_of(2, PLAN_LOCAL, 10, 3));
    next(fixture, STEP_RESERVED, NULL);
    for (uint32_t index = 1; index <= 3; index++) {
        next(fixture, STEP_TOKENS, &token);
        assert_int_equal(token.index, index);
        assert_int_equal(token.finish, index == 3 ? FINISH_MAX_TOKENS : FINISH_NONE);
    }
    step_loop_remove(fixture->loop, (struct sequence_key){2, 1});
    next(fixture, STEP_REMOVED, NULL);
    assert_int_equal(blocks_free(fixture), BLOCKS);
    assert_int_equal(engine_counters(fixture->engine).prompt_rows, 10);
    assert_int_equal(engine_counters(fixture->engine).decode_rows, 2);
    const struct step_load *load = step_loop_load(fixture->loop);
    assert_true(atomic_load(&load->time_ns[STEP_IN_ENGINE]) > 0);
    assert_true(atomic_load(&load->time_ns[STEP_AROUND_IT]) > 0);
}

static void test_a_received_prompt_starts_with_the_first_token_again(void **state)
{
    struct fixture *fixture = *state;
    struct step_token token;
    add(fixture, spec_of(3, PLAN_RECEIVE, 10, 2));
    next(fixture, STEP_RESERVED, NULL);
    step_loop_admit(fixture->loop, (struct sequence_key){3, 1}, 77, 0xabcd,
                    &(struct token_logprobs){0});
    next(fixture, STEP_TOKENS, &token);
    assert_int_equal(token.index, 1);
    assert_int_equal(token.token, 77);
    assert_true(token.logits_hash == 0xabcd);
    next(fixture, STEP_TOKENS, &token);
    assert_int_equal(token.index, 2);
    assert_int_equal(token.finish, FINISH_MAX_TOKENS);
    assert_int_equal(engine_counters(fixture->engine).prompt_rows, 0);
}

static void test_what_never_fits_is_refused(void **state)
{
    struct fixture *fixture = *state;
    add(fixture, spec_of(4, PLAN_RECEIVE, 100, 100));
    struct step_event refused = next(fixture, STEP_REFUSED, NULL);
    assert_int_equal(refused.status, STATUS_INVALID);
    assert_non_null(strstr(refused.err.text, "KV blocks"));
}

static void test_who_waits_for_blocks_gets_them_from_who_leaves(void **state)
{
    struct fixture *fixture = *state;
    add(fixture, spec_of(5, PLAN_RECEIVE, 100, 20)); /* all 8 blocks */
    assert_int_equal(next(fixture, STEP_RESERVED, NULL).key.request, 5);
    add(fixture, spec_of(6, PLAN_RECEIVE, 20, 20));
    step_loop_remove(fixture->loop, (struct sequence_key){5, 1});
    assert_int_equal(next(fixture, STEP_REMOVED, NULL).key.request, 5);
    assert_int_equal(next(fixture, STEP_RESERVED, NULL).key.request, 6);
}

/* A sequence with NaN logits fails with a sentence, and the one beside it in the step goes on. */
static void test_one_sequence_never_hurts_another(void **state)
{
    struct fixture *fixture = *state;
    struct sequence_spec bad = spec_of(7, PLAN_LOCAL, 5, 3);
    bad.tokens[2] = POISON;
    add(fixture, spec_of(8, PLAN_LOCAL, 5, 3));
    add(fixture, bad);
    uint32_t tokens = 0, failed = 0, reserved = 0;
    while (tokens < 3 || !failed) {
        struct step_event *event = ring_wait(step_loop_events(fixture->loop), WAIT_US);
        assert_non_null(event);
        reserved += event->kind == STEP_RESERVED;
        if (event->kind == STEP_TOKENS) {
            assert_int_equal(event->token_count, 1);
            assert_int_equal(event->tokens[0].key.request, 8);
            tokens++;
        } else if (event->kind == STEP_FAILED) {
            assert_int_equal(event->key.request, 7);
            assert_int_equal(event->status, STATUS_INTERNAL);
            assert_non_null(strstr(event->err.text, "not a number"));
            failed++;
        }
        step_loop_recycle(fixture->loop, event);
    }
    assert_int_equal(reserved, 2);
    assert_int_equal(failed, 1);
}

/* The row is in the middle of the prompt: no token is drawn from it, but its logprobs are
 * requested. */
static void test_a_prompt_that_cannot_be_scored(void **state)
{
    struct fixture *fixture = *state;
    struct sequence_spec bad = spec_of(9, PLAN_HAND_OFF, 45, 3);
    bad.tokens[2] = POISON;
    bad.sampling.prompt_logprobs = true;
    bad.sampling.prompt_logprobs_from = 1;
    add(fixture, bad);
    next(fixture, STEP_RESERVED, NULL);
    struct step_event failed = next(fixture, STEP_FAILED, NULL);
    assert_int_equal(failed.key.request, 9);
    assert_int_equal(failed.status, STATUS_INTERNAL);
    assert_non_null(strstr(failed.err.text, "not a number"));
    step_loop_remove(fixture->loop, failed.key);
    next(fixture, STEP_REMOVED, NULL);
}

/* An answer of 40 tokens decodes all the while: the step thread is never more than LEAD events
 * ahead. */
static void test_a_prompt_beside_an_answer_has_the_least_rows_of_a_step(void **state)
{
    enum { LEAD = 4, LEAST = BATCH_CHUNK_LEAST_ROWS };
    struct fixture *fixture = *state;
    struct step_event *kept[STEP_LOOP_EVENTS - LEAD];
    struct step_token token;
    for (uint32_t i = 0; i < STEP_LOOP_EVENTS - LEAD; i++) {
        step_loop_remove(fixture->loop, (struct sequence_key){UINT64_MAX, i});
        kept[i] = ring_wait(step_loop_events(fixture->loop), WAIT_US);
        assert_non_null(kept[i]);
    }
    add(fixture, spec_of(10, PLAN_LOCAL, 5, 40));
    next(fixture, STEP_RESERVED, NULL);
    next(fixture, STEP_TOKENS, &token);
    add(fixture, spec_of(11, PLAN_HAND_OFF, 60, 5));
    for (uint32_t ready = 0; ready < 60;) {
        struct step_event *event = ring_wait(step_loop_events(fixture->loop), WAIT_US);
        assert_non_null(event);
        if (event->kind == STEP_READY) {
            assert_int_equal(event->ready_tokens, ready + LEAST < 60 ? ready + LEAST : 60);
            ready = event->ready_tokens;
        } else if (event->kind == STEP_TOKENS) {
            assert_int_equal(event->tokens[0].finish, FINISH_NONE);
        }
        step_loop_recycle(fixture->loop, event);
    }
    for (uint32_t i = 0; i < STEP_LOOP_EVENTS - LEAD; i++)
        step_loop_recycle(fixture->loop, kept[i]);
}

/* The test takes no events, so the step thread stands still while jobs come. The ring fills up to
 * its limit and no further. */
static void test_refusals_do_not_fill_the_ring(void **state)
{
    struct fixture *fixture = *state;
    uint32_t accepted = 0, refused = 0;
    for (uint64_t request = 1; refused < 20000; request++) {
        struct sequence_spec spec = spec_of(request, PLAN_HAND_OFF, 1, 1);
        if (step_loop_add(fixture->loop, &spec) == STATUS_OK)
            accepted++;
        else
            refused++;
        step_loop_remove(fixture->loop,
                         spec.key); /* as a source or sink does, whatever the result */
    }
    assert_in_range(accepted, 256, 20000);
}

/* Takes events until one has the token at `index`. Copies all reports on the way, which come no
 * later than that token. Returns how many there are. */
static uint32_t reports_until(struct fixture *fixture, uint32_t index, struct step_report reports[])
{
    uint32_t count = 0;
    for (bool found = false; !found;) {
        struct step_event *event = ring_wait(step_loop_events(fixture->loop), WAIT_US);
        assert_non_null(event);
        assert_true(!event->report_count || event->kind == STEP_TOKENS || event->kind == STEP_DONE);
        assert_true(event->kind != STEP_DONE || event->report_count);
        memcpy(reports + count, event->reports, event->report_count * sizeof *reports);
        count += event->report_count;
        found = event->kind == STEP_TOKENS && event->tokens[0].index == index;
        step_loop_recycle(fixture->loop, event);
    }
    return count;
}

static void expect_report(const struct step_report *report, struct step_shape shape)
{
    assert_memory_equal(&report->shape, &shape, sizeof shape);
    assert_true(report->took_us > 0);
    assert_int_equal(report->swapped_blocks, 0);
}

static void test_each_step_is_reported_once_with_its_rows(void **state)
{
    struct fixture *fixture = *state;
    struct step_report reports[STEP_EVENT_REPORTS];
    add(fixture, spec_of(12, PLAN_LOCAL, 45, 3));
    assert_int_equal(reports_until(fixture, 1, reports), 3);
    expect_report(&reports[0], (struct step_shape){.prefill_rows = 20, .prefill_positions = 190});
    expect_report(&reports[1], (struct step_shape){.prefill_rows = 20, .prefill_positions = 590});
    expect_report(&reports[2], (struct step_shape){.prefill_rows = 5, .prefill_positions = 210});
    assert_int_equal(reports_until(fixture, 3, reports), 2);
    expect_report(&reports[0], (struct step_shape){.decode_rows = 1, .decode_context = 45});
    expect_report(&reports[1], (struct step_shape){.decode_rows = 1, .decode_context = 46});
    assert_int_equal(atomic_load(&step_loop_load(fixture->loop)->steps), 5);
}

static void test_the_load_counts_what_is_held(void **state)
{
    struct fixture *fixture = *state;
    const struct step_load *load = step_loop_load(fixture->loop);
    add(fixture, spec_of(13, PLAN_RECEIVE, 40, 10));
    next(fixture, STEP_RESERVED, NULL);
    step_loop_remove(fixture->loop, (struct sequence_key){999, 1}); /* a round later */
    next(fixture, STEP_REMOVED, NULL);
    assert_int_equal(atomic_load(&load->sequences), 1);
    assert_int_equal(atomic_load(&load->reserved_tokens), 50);
    assert_int_equal(atomic_load(&load->unconfirmed_tokens), 40);
}

static void arm(const char *spec)
{
    struct error err;
    setenv("BATON_FAILPOINTS_ALLOW", "1", 1);
    setenv("BATON_FAILPOINTS", spec, 1);
    if (failpoint_init("decode-0", &err) != STATUS_OK)
        fail_msg("%s", err.text);
}

/* One step of a prompt, which fails or not. */
static void one_step(struct fixture *fixture, uint64_t request, enum step_event_kind end)
{
    add(fixture, spec_of(request, PLAN_HAND_OFF, 5, 1));
    next(fixture, STEP_RESERVED, NULL);
    if (end == STEP_TOKENS)
        next(fixture, STEP_READY, NULL);
    next(fixture, end, NULL);
    step_loop_remove(fixture->loop, (struct sequence_key){request, 1});
    next(fixture, STEP_REMOVED, NULL);
}

static void test_steps_that_fail_in_a_row_are_told(void **state)
{
    struct fixture *fixture = *state;
    for (uint64_t request = 20; request < 24; request += 2) { /* never two in a row */
        arm("step.fails=fail");
        one_step(fixture, request, STEP_FAILED);
        one_step(fixture, request + 1, STEP_TOKENS);
    }
    assert_int_equal(sem_trywait(&fixture->broken), -1);
    arm("step.fails=fail@*");
    one_step(fixture, 30, STEP_FAILED);
    assert_int_equal(sem_trywait(&fixture->broken), -1);
    one_step(fixture, 31, STEP_FAILED);
    assert_int_equal(sem_trywait(&fixture->broken), 0);
    one_step(fixture, 32, STEP_FAILED); /* said once */
    assert_int_equal(sem_trywait(&fixture->broken), -1);
    assert_int_equal(atomic_load(&step_loop_load(fixture->loop)->steps_failed), 5);
    arm("");
}

/* A step that hangs shows in the load, and isn't waited for at the end. */
static void test_a_step_that_hangs_shows_and_holds_up_no_end(void **state)
{
    struct fixture *fixture = *state;
    char folder[] = "/tmp/baton-test-XXXXXX", log[64], go[96];
    assert_non_null(mkdtemp(folder));
    snprintf(log, sizeof log, "%s/log", folder);
    snprintf(go, sizeof go, "%s.step.computing.go", log);
    setenv("BATON_FAILPOINT_LOG", log, 1);
    arm("step.computing=hang");
    add(fixture, spec_of(40, PLAN_LOCAL, 5, 2));
    next(fixture, STEP_RESERVED, NULL);
    assert_false(step_loop_stop(fixture->loop));
    const struct step_load *load = step_loop_load(fixture->loop);
    assert_true(step_load_busy_us(load, clock_now_us()) > STALL_US);
    fclose(fopen(go, "w"));
    for (bool ended = false; !ended;) /* a round of slow machines may take STALL_US, too */
        ended = step_loop_stop(fixture->loop);
    engine_close(fixture->engine);
    unlink(go);
    unlink(log);
    rmdir(folder);
    unsetenv("BATON_FAILPOINT_LOG");
    arm("");
}

static int setup_device(void **state)
{
    setenv("BATON_TEST_DEVICE", "deferred-late", 1);
    int failed = setup(state);
    unsetenv("BATON_TEST_DEVICE");
    return failed;
}

/* Fills the tokens of an answer, which come several a step where drafts hold. */
static void take_answer(struct fixture *fixture, uint32_t *tokens, uint32_t count)
{
    for (uint32_t taken = 0; taken < count;) {
        struct step_event *event = ring_wait(step_loop_events(fixture->loop), WAIT_US);
        assert_non_null(event);
        assert_int_equal(event->kind, STEP_TOKENS);
        assert_in_range(event->token_count, 1, 1 + draft_tokens);
        for (uint32_t i = 0; i < event->token_count; i++) {
            assert_int_equal(event->tokens[i].index, taken + 1);
            tokens[taken++] = event->tokens[i].token;
            assert_int_equal(event->tokens[i].finish,
                             taken == count ? FINISH_MAX_TOKENS : FINISH_NONE);
        }
        step_loop_recycle(fixture->loop, event);
    }
}

/* Answers are the same with drafts, of which some hold, on a device too. */
static void test_drafts_change_no_answer(void **state)
{
    enum { ANSWER = 60 };
    static const struct {
        uint32_t drafts;
        int (*setup)(void **state);
    } cases[] = {{0, setup}, {4, setup}, {4, setup_device}};
    uint32_t tokens[3][ANSWER];
    for (int i = 0; i < 3; i++) {
        draft_tokens = cases[i].drafts;
        assert_int_equal(cases[i].setup(state), 0);
        struct fixture *fixture = *state;
        struct sequence_spec spec = spec_of(60, PLAN_LOCAL, 40, ANSWER);
        for (uint32_t at = 0; at < spec.token_count; at++)
            spec.tokens[at] = 7; /* the answer repeats itself, too */
        add(fixture, spec);
        next(fixture, STEP_RESERVED, NULL);
        take_answer(fixture, tokens[i], ANSWER);
        const struct step_load *load = step_loop_load(fixture->loop);
        assert_int_equal(atomic_load(&load->drafts_accepted) > 0, draft_tokens > 0);
        assert_memory_equal(tokens[i], tokens[0], sizeof tokens[0]);
        teardown(state);
    }
    draft_tokens = 0;
}

/* An answer that runs ahead has a step in flight whenever its loop looks for jobs, so also when
 * that is told to stop. */
static void test_the_step_in_flight_ends_before_the_loop(void **state)
{
    struct fixture *fixture = *state;
    add(fixture, spec_of(50, PLAN_LOCAL, 5, 100));
    next(fixture, STEP_RESERVED, NULL);
    next(fixture, STEP_TOKENS, NULL);
    assert_true(step_loop_stop(fixture->loop));
    assert_int_equal(fixture->engine->in_flight, 0);
    engine_close(fixture->engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_each_step_is_reported_once_with_its_rows,
                                        setup_watched, teardown),
        cmocka_unit_test_setup_teardown(test_the_load_counts_what_is_held, setup, teardown),
        cmocka_unit_test_setup_teardown(test_steps_that_fail_in_a_row_are_told, setup_watched,
                                        teardown),
        cmocka_unit_test_setup(test_a_step_that_hangs_shows_and_holds_up_no_end, setup_watched),
        cmocka_unit_test_setup(test_the_step_in_flight_ends_before_the_loop, setup_device),
        cmocka_unit_test(test_drafts_change_no_answer),
        cmocka_unit_test_setup_teardown(test_a_prompt_in_chunks_is_held_until_removed, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_a_local_prompt_decodes_to_its_end, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_received_prompt_starts_with_the_first_token_again,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_never_fits_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_who_waits_for_blocks_gets_them_from_who_leaves, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_a_prompt_beside_an_answer_has_the_least_rows_of_a_step,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_refusals_do_not_fill_the_ring, setup, teardown),
        cmocka_unit_test_setup_teardown(test_one_sequence_never_hurts_another, setup_poisoned,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_a_prompt_that_cannot_be_scored, setup_poisoned,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
