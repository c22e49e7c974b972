#include "common/cli/step_bench.h"

#include "common/base/clock.h"
#include "common/base/rng.h"
#include "common/cli/median.h"
#include "common/worker/step_loop.h"

#include <stdlib.h>

#define BLOCK_TOKENS 32
#define CHUNK_TOKENS 512
#define MAX_TOKENS   (80 + 192)
#define WAIT_US      600000000 /* a step that takes longer has gone wrong */

struct run {
    const struct step_bench *bench;
    struct engine *engine;
    struct step_loop *loop;
    struct rng rng;
    uint64_t next_request;
};

static uint32_t block_count(const struct step_bench *bench)
{
    return bench->sequences * ((MAX_TOKENS + BLOCK_TOKENS - 1) / BLOCK_TOKENS);
}

static enum status open_engine(struct run *run, struct error *err)
{
    const struct step_bench *bench = run->bench;
    struct engine_config config = {.model_dir = bench->model_dir,
                                   .random_weights = bench->random_weights,
                                   .kernels = {.threads = bench->threads, .may_spin = true},
                                   .block_tokens = BLOCK_TOKENS,
                                   .block_count = block_count(bench),
                                   .max_rows = CHUNK_TOKENS + bench->sequences,
                                   .max_sequences = bench->sequences,
                                   .context_limit = MAX_TOKENS};
    TRY(engine_open(&config, &run->engine, err));
    return engine_attach_pool(run->engine, NULL, err);
}

static enum status open_loop(struct run *run, struct error *err)
{
    struct step_loop_config config = {.engine = run->engine,
                                      .chunk_tokens = CHUNK_TOKENS,
                                      .max_sequences = run->bench->sequences,
                                      .block_count = block_count(run->bench),
                                      .policy = run->bench->policy,
                                      .starve_us = POLICY_STARVE_US,
                                      .overtake_us = POLICY_STARVE_US,
                                      .grow = true,
                                      .prefix_cache = true,
                                      .cpu = -1};
    return step_loop_start(&config, &run->loop, err);
}

/* One more request. */
static enum status add(struct run *run, struct error *err)
{
    struct sequence_spec spec = {.key = {run->next_request++, 1},
                                 .plan = PLAN_LOCAL,
                                 .token_count = 16 + (uint32_t)rng_below(&run->rng, 64),
                                 .sampling = sampling_default()};
    uint32_t vocab = engine_shape(run->engine)->vocab;
    spec.sampling.max_tokens = 64 + (uint32_t)rng_below(&run->rng, 128);
    spec.sampling.ignore_eos = true;
    spec.tokens = malloc(spec.token_count * sizeof *spec.tokens);
    if (!spec.tokens)
        return error_set(err, STATUS_LIMIT, "out of memory");
    for (uint32_t i = 0; i < spec.token_count; i++)
        spec.tokens[i] = (uint32_t)rng_below(&run->rng, vocab);
    if (step_loop_add(run->loop, &spec) != STATUS_OK)
        return error_set(err, STATUS_LIMIT, "too many requests wait for the step loop");
    return STATUS_OK;
}

/* Who ends is followed by another. */
static enum status hear(struct run *run, const struct step_event *event, struct error *err)
{
    if (event->kind == STEP_FAILED || event->kind == STEP_REFUSED)
        return error_set(err, event->status, "%s", event->err.text);
    for (uint32_t i = 0; i < event->token_count; i++)
        if (event->tokens[i].finish != FINISH_NONE)
            TRY(add(run, err));
    return STATUS_OK;
}

/* What has happened so far. */
struct totals {
    uint64_t steps, rows, time_ns[STEP_TIMES];
};

static struct totals read_totals(const struct run *run)
{
    const struct step_load *load = step_loop_load(run->loop);
    struct totals totals = {.steps = atomic_load(&load->steps),
                            .rows =
                                atomic_load(&load->prompt_rows) + atomic_load(&load->decode_rows)};
    for (int i = 0; i < STEP_TIMES; i++)
        totals.time_ns[i] = atomic_load(&load->time_ns[i]);
    return totals;
}

static enum status live(struct run *run, uint32_t steps, struct error *err)
{
    for (uint64_t end = read_totals(run).steps + steps; read_totals(run).steps < end;) {
        struct step_event *event = ring_wait(step_loop_events(run->loop), WAIT_US);
        if (!event)
            return error_set(err, STATUS_TIMEOUT, "a step took more than %u s", WAIT_US / 1000000);
        enum status status = hear(run, event, err);
        step_loop_recycle(run->loop, event);
        TRY(status);
    }
    return STATUS_OK;
}

static enum status measure(struct run *run, struct step_bench_result *result, struct error *err)
{
    const struct step_bench *bench = run->bench;
    double rows[STEP_BENCH_MAX_ROUNDS], step_us[STEP_BENCH_MAX_ROUNDS];
    double around_us[STEP_BENCH_MAX_ROUNDS], share[STEP_BENCH_MAX_ROUNDS];
    double ran[STEP_BENCH_MAX_ROUNDS];
    for (uint32_t i = 0; i < bench->sequences; i++)
        TRY(add(run, err));
    TRY(live(run, bench->steps, err));
    for (uint32_t i = 0; i < bench->rounds; i++) {
        struct totals before = read_totals(run);
        uint64_t ran_ns = clock_process_ran_ns();
        TRY(live(run, bench->steps, err));
        struct totals after = read_totals(run);
        ran_ns = clock_process_ran_ns() - ran_ns;
        double steps = (double)(after.steps - before.steps);
        double engine_ns = (double)(after.time_ns[STEP_IN_ENGINE] - before.time_ns[STEP_IN_ENGINE]);
        double around_ns = (double)(after.time_ns[STEP_AROUND_IT] - before.time_ns[STEP_AROUND_IT]);
        rows[i] = (double)(after.rows - before.rows) / steps;
        step_us[i] = 1e-3 * (engine_ns + around_ns) / steps;
        around_us[i] = 1e-3 * around_ns / steps;
        share[i] = around_ns / (engine_ns + around_ns);
        ran[i] = (double)ran_ns / (engine_ns * bench->threads + around_ns);
    }
    *result = (struct step_bench_result){.rows = median(rows, bench->rounds),
                                         .step_us = median(step_us, bench->rounds),
                                         .around_us = median(around_us, bench->rounds),
                                         .share = median(share, bench->rounds),
                                         .ran = median(ran, bench->rounds)};
    return STATUS_OK;
}

enum status step_bench_run(const struct step_bench *bench, struct step_bench_result *result,
                           struct error *err)
{
    struct run run = {.bench = bench, .rng = rng_seeded(1)};
    enum status status = open_engine(&run, err);
    if (status == STATUS_OK)
        status = open_loop(&run, err);
    if (status == STATUS_OK)
        status = measure(&run, result, err);
    step_loop_stop(run.loop);
    engine_close(run.engine);
    return status;
}
