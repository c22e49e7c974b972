/* The same request gives the same bytes, whatever the batch, the chunks of prompts, hits in the
 * prefix cache, preemption and the way back, the place of the prefill, the threads, drafts.
 * Compares with the request alone: hashes of the fp32 logits of each of 96 tokens, drawn at
 * temperature 1 by a seed (some penalized, some biased), and of logprobs. Each cell proves that its
 * values had their effect (run.h).
 *
 *     build/debug/tests/test_equality                           cells: every pair of values meets
 *     BATON_EQUALITY_SEED=2 build/debug/tests/test_equality     other cells
 *     BATON_EQUALITY=whole build/release/tests/test_equality    all cells
 */
#include "common/base/clock.h"
#include "tests/equality/run.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct cell cells[CELLS_MAX];
static struct answer answers[REQUESTS];

/* By the values that may change bytes: weights and the KV's type. */
static struct {
    bool known;
    struct answer answers[REQUESTS];
} expected[AXIS_MAX_VALUES][AXIS_MAX_VALUES];

static const struct answer *expected_of(const struct cell *cell)
{
    uint8_t weights = cell->value[AXIS_WEIGHTS], kv = cell->value[AXIS_KV];
    if (!expected[weights][kv].known)
        run_alone(cell, expected[weights][kv].answers);
    expected[weights][kv].known = true;
    return expected[weights][kv].answers;
}

/* Says where the first difference is. */
static bool is_equal(const struct cell *cell, char *text, size_t size)
{
    const struct answer *alone = expected_of(cell);
    for (uint32_t i = 0; i < cell_number(cell, AXIS_BATCH); i++)
        for (uint32_t t = 0; t < ANSWER; t++)
            if (answers[i].tokens[t] != alone[i].tokens[t] ||
                answers[i].hashes[t] != alone[i].hashes[t] ||
                answers[i].logprobs[t] != alone[i].logprobs[t]) {
                snprintf(text, size,
                         "request %u, token %u is %u (logits %016" PRIx64
                         "), alone it was %u (%016" PRIx64 ")",
                         i, t, answers[i].tokens[t], answers[i].hashes[t], alone[i].tokens[t],
                         alone[i].hashes[t]);
                return false;
            }
    return true;
}

static uint64_t number_of(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : otherwise;
}

static void test_every_cell_gives_the_bytes_that_requests_give_alone(void **state)
{
    (void)state;
    const char *which = getenv("BATON_EQUALITY");
    bool whole = which && strcmp(which, "whole") == 0;
    uint32_t count =
        whole ? cells_whole(cells) : cells_pairwise(number_of("BATON_EQUALITY_SEED", 1), cells);
    char text[256], name[256];
    if (cells_miss_a_pair(cells, count, text, sizeof text))
        fail_msg("no cell has %s", text);
    for (uint32_t i = 0; i < count; i++) {
        cell_name(&cells[i], name, sizeof name);
        uint64_t begun_us = clock_now_us();
        struct counts counts = run_cell(&cells[i], SPOIL_NOTHING, expected_of(&cells[i]), answers);
        print_message("%u of %u: %s: %" PRIu64 " prompt rows, %" PRIu64 " tokens found, %" PRIu64
                      " swapped, %" PRIu64 " dropped, %" PRIu64 " ms\n",
                      i + 1, count, name, counts.prompt_rows, counts.hit_tokens, counts.swapped,
                      counts.dropped, (clock_now_us() - begun_us) / 1000);
        if (!is_equal(&cells[i], text, sizeof text))
            fail_msg("%s: %s", name, text);
    }
}

static void test_requests_differ(void **state)
{
    (void)state;
    const struct answer *alone = expected_of(&(struct cell){0});
    for (uint32_t i = 1; i < REQUESTS; i++)
        for (uint32_t j = 0; j < i; j++)
            assert_memory_not_equal(alone[i].hashes, alone[j].hashes, sizeof alone[i].hashes);
}

/* One bit of one number, or another seed: a comparison that doesn't see it proves nothing. */
static void test_a_bit_that_flips_shows(void **state)
{
    (void)state;
    static const struct {
        enum spoil spoil;
        bool hit, remote, int8, shows;
    } cases[] = {
        {SPOIL_READ, false, true, true, true},   {SPOIL_READ, true, true, false, true},
        {SPOIL_CACHED, true, false, true, true}, {SPOIL_CACHED, true, true, false, true},
        {SPOIL_SEED, false, false, false, true}, {SPOIL_NOTHING, true, true, true, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct cell cell = {.value = {[AXIS_BATCH] = 1, [AXIS_CHUNK] = 2}};
        cell.value[AXIS_PREFIX] = cases[i].hit;
        cell.value[AXIS_PREFILL] = cases[i].remote;
        cell.value[AXIS_KV] = cases[i].int8;
        char text[256] = "all equal";
        run_cell(&cell, cases[i].spoil, NULL, answers);
        assert_int_equal(!is_equal(&cell, text, sizeof text), cases[i].shows);
        print_message("spoil %d: %s\n", cases[i].spoil, text);
    }
}

/* Half a prompt is swapped out, or dropped. Every three values of three of the four axes meet. */
static void test_preempted_in_the_middle_of_a_prompt(void **state)
{
    (void)state;
    for (uint8_t i = 0; i < 8; i++) {
        struct cell cell = {.value = {[AXIS_BATCH] = 1,
                                      [AXIS_PREFIX] = i & 1,
                                      [AXIS_PREEMPTED] = i & 2 ? 1 : 2,
                                      [AXIS_WEIGHTS] = i >> 2,
                                      [AXIS_KV] = (i ^ i >> 1 ^ i >> 2) & 1}};
        char text[256], name[256];
        cell_name(&cell, name, sizeof name);
        run_early(&cell, answers);
        if (!is_equal(&cell, text, sizeof text))
            fail_msg("%s: %s", name, text);
    }
}

static int leave_device(void **state)
{
    (void)state;
    return unsetenv("BATON_TEST_DEVICE");
}

/* On queues that run late, beside the expected answers of the CPU: a prefix that is cached or a
 * prefill elsewhere, a way back after a preemption, more than one thread, and drafts. */
static void test_on_a_device(void **state)
{
    (void)state;
    if (getenv("BATON_TEST_DEVICE"))
        skip(); /* the other tests run on it */
    static const struct cell cells_here[] = {
        {.value = {[AXIS_BATCH] = 1,
                   [AXIS_CHUNK] = 1,
                   [AXIS_PREFIX] = 1,
                   [AXIS_PREEMPTED] = 1,
                   [AXIS_THREADS] = 1}},
        {.value = {[AXIS_BATCH] = 1, [AXIS_PREFILL] = 1, [AXIS_KV] = 1, [AXIS_PREEMPTED] = 2}},
        {.value = {[AXIS_BATCH] = 2, [AXIS_PREFIX] = 1, [AXIS_DRAFTS] = 1}},
    };
    for (size_t i = 0; i < sizeof cells_here / sizeof *cells_here; i++) {
        const struct cell *cell = &cells_here[i];
        char text[256], name[256];
        cell_name(cell, name, sizeof name);
        (void)expected_of(cell); /* the CPU's */
        setenv("BATON_TEST_DEVICE", "deferred-late", 1);
        run_cell(cell, SPOIL_NOTHING, expected_of(cell), answers);
        leave_device(NULL);
        if (!is_equal(cell, text, sizeof text))
            fail_msg("on a device, %s: %s", name, text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests_differ),
        cmocka_unit_test(test_a_bit_that_flips_shows),
        cmocka_unit_test(test_preempted_in_the_middle_of_a_prompt),
        cmocka_unit_test_teardown(test_on_a_device, leave_device),
        cmocka_unit_test(test_every_cell_gives_the_bytes_that_requests_give_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
