#include "common/engine/sched/schedule_bench.h"

#include "common/base/rng.h"
#include "common/base/u32.h"
#include "common/engine/sched/scheduler.h"

#include <stdlib.h>

#define BLOCK_TOKENS 32
#define CONTEXT      1024
#define CHUNK_US     3600000000 /* so that times are computed, but never reached */
#define PROMPT_LEAST 64
#define PROMPT_MORE  512 /* a prompt has PROMPT_LEAST tokens and fewer than this more */

static const struct schedule_bench_answers SHORT_ANSWERS = {32, 287};

struct run {
    const struct schedule_bench *bench;
    struct schedule_bench_answers answers;
    struct scheduler *scheduler;
    struct rng rng;
    uint64_t next_request, now_us, parts;
    struct sequence_key *landing; /* [sequences]: they have blocks; the next step admits them */
    uint32_t landing_count;
};

static enum status create(struct run *run)
{
    const struct schedule_bench *bench = run->bench;
    uint64_t percent = bench->pool_percent ? bench->pool_percent : 100;
    uint32_t mean_tokens =
        PROMPT_LEAST + PROMPT_MORE / 2 + (run->answers.least + run->answers.most) / 2;
    uint64_t mean_blocks = divide_up(mean_tokens, BLOCK_TOKENS);
    uint64_t blocks = bench->sequences * mean_blocks * percent / 100;
    uint32_t least = CONTEXT / BLOCK_TOKENS;
    /* Each end makes room for a prompt, which is twice as long as an answer. With shorter chunks
     * prompts would queue, and few sequences would decode. */
    uint32_t chunk = 4 * bench->sequences > 512 ? 4 * bench->sequences : 512;
    struct scheduler_config config = {.block_tokens = BLOCK_TOKENS,
                                      .block_count = blocks > least ? (uint32_t)blocks : least,
                                      .max_sequences = bench->sequences,
                                      .chunk_tokens = chunk,
                                      .chunk_us = CHUNK_US,
                                      .context = CONTEXT,
                                      .policy = bench->policy,
                                      .starve_us = POLICY_STARVE_US,
                                      .overtake_us = POLICY_STARVE_US,
                                      .grow = bench->grow,
                                      .host_slots = bench->grow ? (uint32_t)(blocks / 4) : 0,
                                      .prefix_cache = bench->prefix_cache};
    return scheduler_create(&config, &run->scheduler);
}

/* Adds sequences until all slots are in use. */
static enum status fill(struct run *run)
{
    for (;;) {
        struct sequence_spec spec = {.key = {run->next_request, 1},
                                     .plan = run->bench->receives ? PLAN_RECEIVE : PLAN_LOCAL,
                                     .arrived_us = run->now_us,
                                     .token_count =
                                         PROMPT_LEAST + (uint32_t)rng_below(&run->rng, PROMPT_MORE),
                                     .sampling = sampling_default()};
        uint32_t more = (uint32_t)rng_below(&run->rng, run->answers.most - run->answers.least + 1);
        spec.sampling.max_tokens = run->answers.least + more;
        spec.tokens = malloc(spec.token_count * sizeof *spec.tokens);
        if (!spec.tokens)
            return STATUS_LIMIT;
        uint64_t common = rng_below(&run->rng, 2) ? 128 : 0; /* half of them begin alike */
        for (uint32_t i = 0; i < spec.token_count; i++)
            spec.tokens[i] = i < common ? i : (uint32_t)rng_below(&run->rng, 50000);
        if (scheduler_add(run->scheduler, &spec, NULL) != STATUS_OK) {
            free(spec.tokens);
            return STATUS_OK; /* all slots are in use */
        }
        run->next_request++;
    }
}

static void step(struct run *run)
{
    struct scheduler *s = run->scheduler;
    for (uint32_t i = 0; i < run->landing_count; i++)
        scheduler_admit(s, scheduler_find(s, run->landing[i]), 0);
    run->landing_count = 0;
    for (struct sequence *sequence; (sequence = scheduler_reserve(s, run->now_us));)
        if (sequence->state == SEQUENCE_RESERVED)
            run->landing[run->landing_count++] = sequence->key;
    const struct step_plan *plan = scheduler_plan(s, run->now_us);
    scheduler_step_done(s, plan, 20000, 1000);
    for (uint32_t i = 0; i < plan->part_count; i++)
        if (scheduler_rows_done(s, &plan->parts[i], i) != FINISH_NONE)
            scheduler_remove(s, plan->parts[i].sequence);
    run->parts += plan->part_count;
    run->now_us += 20000;
}

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

enum status schedule_bench_run(const struct schedule_bench *bench,
                               struct schedule_bench_result *result)
{
    struct run run = {.bench = bench,
                      .answers = bench->answers.most ? bench->answers : SHORT_ANSWERS,
                      .rng = rng_seeded(1)};
    struct scheduler_load before = {0};
    uint64_t *times = calloc(bench->steps, sizeof *times);
    run.landing = calloc(bench->sequences, sizeof *run.landing);
    enum status status = times && run.landing ? create(&run) : STATUS_LIMIT;
    uint32_t warm_up = 100; /* steps until prompts are done and sequences of all ages run */
    for (uint32_t i = 0; status == STATUS_OK && i < warm_up + bench->steps; i++) {
        status = fill(&run);
        if (i == warm_up) {
            run.parts = 0;
            before = scheduler_load(run.scheduler);
        }
        uint64_t begun_ns = bench->now_ns();
        step(&run);
        if (i >= warm_up)
            times[i - warm_up] = bench->now_ns() - begun_ns;
    }
    if (status == STATUS_OK) {
        uint64_t sum_ns = 0;
        for (uint32_t i = 0; i < bench->steps; i++)
            sum_ns += times[i];
        qsort(times, bench->steps, sizeof *times, by_size);
        struct scheduler_load load = scheduler_load(run.scheduler);
        *result =
            (struct schedule_bench_result){.p50_ns = times[bench->steps / 2],
                                           .p99_ns = times[bench->steps * 99ull / 100],
                                           .max_ns = times[bench->steps - 1],
                                           .mean_ns = (double)sum_ns / bench->steps,
                                           .mean_parts = (double)run.parts / bench->steps,
                                           .swapped_out = load.swapped_out - before.swapped_out,
                                           .dropped = load.dropped - before.dropped};
    }
    scheduler_destroy(run.scheduler);
    free(run.landing);
    free(times);
    return status;
}
