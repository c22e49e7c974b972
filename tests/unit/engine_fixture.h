/* Shared by the tests of the engine: one opened on the shipped model in f32, with a small pool. */
#ifndef BATON_TESTS_ENGINE_FIXTURE_H
#define BATON_TESTS_ENGINE_FIXTURE_H

#include "common/engine/engine.h"
#include "tests/device.h"

#define MODEL "deploy/local/tiny-shakespeare"

static const struct engine_config CONFIG = {.model_dir = MODEL,
                                            .kernels = {.f32 = true, .threads = 1},
                                            .block_tokens = 16,
                                            .block_count = 8,
                                            .swap_blocks = 2,
                                            .max_rows = 24,
                                            .max_sequences = 2,
                                            .context_limit = 64};

static inline int open_engine(void **state)
{
    struct engine *engine;
    struct error err;
    struct engine_config config = CONFIG;
    config.kernels.device = test_device();
    if (engine_open(&config, &engine, &err) != STATUS_OK ||
        engine_attach_pool(engine, NULL, &err) != STATUS_OK)
        return -1;
    *state = engine;
    return 0;
}

static inline int close_engine(void **state)
{
    engine_close(*state);
    return 0;
}

#endif
