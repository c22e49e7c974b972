/* The engine's answer from the folder that model_mutation.h has made: one step of a short
 * prompt. */
#ifndef BATON_TESTS_UNIT_MODEL_ANSWER_H
#define BATON_TESTS_UNIT_MODEL_ANSWER_H

#include "common/engine/engine.h"
#include "tests/unit/model_mutation.h"

/* Returns the hash of the step's logits. `config` has the settings that affect them; sizes are set
 * here. */
static inline uint64_t model_answer(struct engine_config config)
{
    static const uint32_t tokens[] = {5, 99, 380, 7}, blocks[] = {0};
    config.model_dir = model_folder;
    config.block_tokens = 16;
    config.block_count = 1;
    config.max_rows = 4;
    config.max_sequences = 1;
    struct sampling sampling = sampling_default();
    sampling.logits_hash = true;
    struct engine_sequence s = {.tokens = tokens,
                                .token_count = 4,
                                .blocks = blocks,
                                .block_count = 1,
                                .prompt_rows = 4,
                                .sample_count = 1,
                                .sampling = &sampling};
    struct engine *engine;
    struct error err;
    if (engine_open(&config, &engine, &err) != STATUS_OK ||
        engine_attach_pool(engine, NULL, &err) != STATUS_OK ||
        engine_step(engine, &s, 1, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    engine_close(engine);
    assert_int_not_equal(s.drawn.logits_hash, 0);
    return s.drawn.logits_hash;
}

#endif
