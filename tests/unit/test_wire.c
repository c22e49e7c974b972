/* wire: what a Prefill or Decode brings is checked before anything is queued. */
#include "common/worker/wire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { VOCAB = 100 };

static Baton__Worker__V1__Sampling good_sampling(void)
{
    Baton__Worker__V1__Sampling sampling = BATON__WORKER__V1__SAMPLING__INIT;
    sampling.temperature = 0.5f;
    sampling.top_p = 1;
    sampling.max_tokens = 4;
    sampling.seed = 9;
    return sampling;
}

static void test_prompt_and_emitted_become_one(void **state)
{
    (void)state;
    const uint32_t prompt[] = {1, 2, 3}, emitted[] = {4};
    Baton__Worker__V1__Sampling sampling = good_sampling();
    struct wire_prompt in = {prompt, emitted, 3, 1, &sampling};
    struct sequence_spec spec = {0};
    assert_int_equal(wire_sequence_spec(&in, VOCAB, &spec, NULL), STATUS_OK);
    const uint32_t want[] = {1, 2, 3, 4};
    assert_int_equal(spec.token_count, 4);
    assert_int_equal(spec.emitted_count, 1);
    assert_memory_equal(spec.tokens, want, sizeof want);
    assert_int_equal(spec.sampling.seed, 9);
    free(spec.tokens);
}

static void expect_refused(struct wire_prompt in, const char *words)
{
    struct error err;
    struct sequence_spec spec = {0};
    assert_int_equal(wire_sequence_spec(&in, VOCAB, &spec, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, words));
    assert_null(spec.tokens);
}

static void test_what_is_wrong_is_named(void **state)
{
    (void)state;
    const uint32_t good[] = {1}, bad[] = {1, VOCAB};
    Baton__Worker__V1__Sampling sampling = good_sampling(), cold = sampling, crowded = sampling;
    expect_refused((struct wire_prompt){good, NULL, 1, 0, NULL}, "no sampling");
    expect_refused((struct wire_prompt){bad, NULL, 2, 0, &sampling}, "token id 100 at position 1");
    expect_refused((struct wire_prompt){good, bad, 1, 2, &sampling}, "token id 100");
    expect_refused((struct wire_prompt){NULL, NULL, 0, 0, &sampling}, "prompt of 0 tokens");
    cold.temperature = -1;
    expect_refused((struct wire_prompt){good, NULL, 1, 0, &cold}, "temperature");
    uint32_t stops[SAMPLING_MAX_STOP_IDS + 1] = {0};
    crowded.stop_ids = stops;
    crowded.n_stop_ids = SAMPLING_MAX_STOP_IDS + 1;
    expect_refused((struct wire_prompt){good, NULL, 1, 0, &crowded}, "stop ids");
}

static void test_handles_survive_the_wire(void **state)
{
    (void)state;
    const uint32_t blocks[] = {7, 8, 3};
    struct handle handle = {.ref = {1, 2, 3},
                            .model_hash = 4,
                            .layout_hash = 5,
                            .numerics_id = 6,
                            .token_count = 70,
                            .block_count = 3,
                            .blocks = blocks};
    Baton__Worker__V1__Handle message;
    wire_handle_pack(&handle, &message);
    struct handle back = wire_handle(&message);
    assert_true(handle_ref_equal(back.ref, handle.ref));
    assert_int_equal(back.token_count, 70);
    assert_int_equal(back.block_count, 3);
    assert_memory_equal(back.blocks, blocks, sizeof blocks);
    assert_true(back.model_hash == 4 && back.layout_hash == 5 && back.numerics_id == 6);
    struct handle_ref none = wire_ref(NULL);
    assert_false(handle_ref_equal(none, handle.ref));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prompt_and_emitted_become_one),
        cmocka_unit_test(test_what_is_wrong_is_named),
        cmocka_unit_test(test_handles_survive_the_wire),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
