#include "common/cli/commands.h"

#include "common/base/clock.h"
#include "common/base/config/config.h"
#include "common/base/log.h"
#include "common/base/rng.h"
#include "common/base/standard_output.h"
#include "common/cli/bench.h"
#include "common/engine/sched/policy.h"
#include "common/engine/sched/schedule_bench.h"
#include "common/language/model_config/model_config.h"
#include "common/worker/step_loop.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_ROUNDS   100
#define BLOCK_TOKENS 32
#define CHUNK_TOKENS 512
#define MAX_TOKENS   (80 + 192)
#define WAIT_US      600000000 /* a step that takes longer has gone wrong */

struct settings {
    enum policy_kind policy;
    uint32_t steps, rounds, pool_percent, threads;
    char model[4096];
    bool random_weights;
};

static const char *const policy_names[] = {"fcfs", "srpf", "mlfq", NULL}; /* enum policy_kind */

#define AT(field) CONFIG_AT(struct settings, field)
static const struct config_setting table[] = {
    {"batch-policy", CONFIG_ENUM, AT(policy), "fcfs", .choices = policy_names,
     .help = "Order of the requests"},
    {"steps", CONFIG_U64, AT(steps), "400", "1", "1000000", .help = "Timed steps of each round"},
    {"rounds", CONFIG_U64, AT(rounds), "5", "1", "100",
     .help = "Rounds, in each of which every row has its turn; medians are printed"},
    {"pool-percent", CONFIG_U64, AT(pool_percent), "100", "10", "1000",
     .help = "KV blocks, as a share of those that all sequences need at their ends; below 100 "
             "growing ones are preempted"},
    {"model", CONFIG_STRING, AT(model), "", .value = "DIR",
     .help = "Hugging Face folder: also measures a worker's steps with it, and their share outside "
             "the engine"},
    {"random-weights", CONFIG_BOOL, AT(random_weights), "false",
     .help = "The folder has a config.json alone: weights are drawn"},
    {"threads", CONFIG_U64, AT(threads), "1", "1", "64", .help = "Compute threads of the engine"},
};
static const struct config_program program = {
    .name = "baton bench schedule",
    .summary =
        "Measures the cost of planning a step. Without an engine: a full schedule of 16 to 1024 "
        "sequences runs\nfor some steps, in CPU time of its thread. Sequences have all their "
        "blocks from the beginning, or they grow\nblock by block, with a prefix cache. With "
        "--model also a worker's step loop over an engine, in wall time.",
    .settings = table,
    .setting_count = sizeof table / sizeof *table,
};

/* Returns the CPU time of this thread, without the time of other programs. */
static uint64_t ran_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* --- without an engine --- */

static const uint32_t sizes[] = {16, 64, 256, 1024};
enum { SIZES = sizeof sizes / sizeof *sizes, MODES = 2 };

/* One half of a row, in all rounds. */
struct figure {
    double parts, p50_us[MAX_ROUNDS], p99_us[MAX_ROUNDS], mean_us[MAX_ROUNDS];
    uint64_t preempted;
};

static enum status plan_once(const struct settings *settings, uint32_t sequences, bool grow,
                             uint32_t round, struct figure *figure)
{
    struct schedule_bench bench = {.sequences = sequences,
                                   .steps = settings->steps,
                                   .policy = settings->policy,
                                   .grow = grow,
                                   .prefix_cache = grow,
                                   .pool_percent = settings->pool_percent,
                                   .now_ns = ran_ns};
    struct schedule_bench_result result;
    TRY(schedule_bench_run(&bench, &result));
    figure->parts = result.mean_parts;
    figure->preempted = result.swapped_out + result.dropped;
    figure->p50_us[round] = 1e-3 * (double)result.p50_ns;
    figure->p99_us[round] = 1e-3 * (double)result.p99_ns;
    figure->mean_us[round] = 1e-3 * result.mean_ns;
    return STATUS_OK;
}

static void print_plans(const struct settings *settings, struct figure figures[SIZES][MODES])
{
    uint32_t rounds = settings->rounds;
    printf("%9s  %34s  %34s\n", "", "all blocks reserved", "growing, prefix cache");
    printf("%9s  %6s %8s %8s %9s  %6s %8s %8s %9s %9s\n", "sequences", "a step", "p50, us",
           "p99, us", "mean, us", "a step", "p50, us", "p99, us", "mean, us", "preempted");
    double first[MODES][2], last[MODES][2];
    for (int size = 0; size < SIZES; size++) {
        printf("%9u", sizes[size]);
        for (int mode = 0; mode < MODES; mode++) {
            struct figure *figure = &figures[size][mode];
            last[mode][0] = median(figure->p50_us, rounds);
            last[mode][1] = median(figure->mean_us, rounds);
            for (int i = 0; size == 0 && i < 2; i++)
                first[mode][i] = last[mode][i];
            printf("  %6.0f %8.1f %8.1f %9.1f", figure->parts, last[mode][0],
                   median(figure->p99_us, rounds), last[mode][1]);
            if (mode)
                printf(" %9llu", (unsigned long long)figure->preempted);
        }
        printf("\n");
    }
    printf("%9s", "growth");
    for (int mode = 0; mode < MODES; mode++)
        printf("  %6s %7.1fx %8s %8.1fx", "64.0x", last[mode][0] / first[mode][0], "",
               last[mode][1] / first[mode][1]);
    printf("\n");
}

static enum status bench_plans(const struct settings *settings, struct error *err)
{
    static struct figure figures[SIZES][MODES];
    for (uint32_t round = 0; round < settings->rounds; round++)
        for (int size = 0; size < SIZES; size++)
            for (int mode = 0; mode < MODES; mode++)
                if (plan_once(settings, sizes[size], mode, round, &figures[size][mode]) !=
                    STATUS_OK)
                    return error_set(err, STATUS_LIMIT, "out of memory for %u sequences",
                                     sizes[size]);
    print_plans(settings, figures);
    return standard_output_flush(err);
}

/* --- with an engine --- */

/* Values of a step, each the median of the rounds. */
struct step_figures {
    double rows;
    double step_us;
    double around_us; /* outside the engine: jobs, planning, the plan's results, events */
    double share;     /* around_us / step_us */
    /* CPU time of the process, over the time that the steps' threads could have: below 1 if they
     * waited for a CPU, above if they spun around the engine, or by the caller's own thread. */
    double ran;
};

/* A real step loop over a real engine, kept full of requests that come, are computed and end. */
struct run {
    const struct settings *settings;
    uint32_t sequences; /* at the same time, all the time */
    struct engine *engine;
    struct step_loop *loop;
    struct rng rng;
    uint64_t next_request;
};

static uint32_t block_count(const struct run *run)
{
    return run->sequences * ((MAX_TOKENS + BLOCK_TOKENS - 1) / BLOCK_TOKENS);
}

static enum status open_engine(struct run *run, struct error *err)
{
    struct engine_config config = {.model_dir = run->settings->model,
                                   .random_weights = run->settings->random_weights,
                                   .kernels = {.threads = run->settings->threads, .may_spin = true},
                                   .block_tokens = BLOCK_TOKENS,
                                   .block_count = block_count(run),
                                   .max_rows = CHUNK_TOKENS + run->sequences,
                                   .max_sequences = run->sequences,
                                   .context_limit = MAX_TOKENS};
    TRY(engine_open(&config, &run->engine, err));
    return engine_attach_pool(run->engine, NULL, err);
}

static enum status open_loop(struct run *run, struct error *err)
{
    struct step_loop_config config = {.engine = run->engine,
                                      .chunk_tokens = CHUNK_TOKENS,
                                      .max_sequences = run->sequences,
                                      .block_count = block_count(run),
                                      .policy = run->settings->policy,
                                      .starve_us = POLICY_STARVE_US,
                                      .overtake_us = POLICY_STARVE_US,
                                      .grow = true,
                                      .prefix_cache = true,
                                      .cpu = -1};
    return step_loop_start(&config, &run->loop, err);
}

static enum status add_request(struct run *run, struct error *err)
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

/* Runs so many steps. */
static enum status live(struct run *run, uint32_t steps, struct error *err)
{
    for (uint64_t end = read_totals(run).steps + steps; read_totals(run).steps < end;) {
        struct step_event *event = ring_wait(step_loop_events(run->loop), WAIT_US);
        if (!event)
            return error_set(err, STATUS_TIMEOUT, "a step took more than %u s", WAIT_US / 1000000);
        enum status status = STATUS_OK;
        if (event->kind == STEP_FAILED || event->kind == STEP_REFUSED)
            status = error_set(err, event->status, "%s", event->err.text);
        for (uint32_t i = 0; i < event->token_count && status == STATUS_OK; i++)
            if (event->tokens[i].finish != FINISH_NONE) /* another request follows */
                status = add_request(run, err);
        step_loop_recycle(run->loop, event);
        TRY(status);
    }
    return STATUS_OK;
}

static enum status measure(struct run *run, struct step_figures *result, struct error *err)
{
    const struct settings *settings = run->settings;
    double rows[MAX_ROUNDS], step_us[MAX_ROUNDS], around_us[MAX_ROUNDS], share[MAX_ROUNDS];
    double ran[MAX_ROUNDS];
    for (uint32_t i = 0; i < run->sequences; i++)
        TRY(add_request(run, err));
    TRY(live(run, settings->steps, err));
    for (uint32_t i = 0; i < settings->rounds; i++) {
        struct totals before = read_totals(run);
        uint64_t cpu_ns = clock_process_ran_ns();
        TRY(live(run, settings->steps, err));
        struct totals after = read_totals(run);
        cpu_ns = clock_process_ran_ns() - cpu_ns;
        double steps = (double)(after.steps - before.steps);
        double engine_ns = (double)(after.time_ns[STEP_IN_ENGINE] - before.time_ns[STEP_IN_ENGINE]);
        double around_ns = (double)(after.time_ns[STEP_AROUND_IT] - before.time_ns[STEP_AROUND_IT]);
        rows[i] = (double)(after.rows - before.rows) / steps;
        step_us[i] = 1e-3 * (engine_ns + around_ns) / steps;
        around_us[i] = 1e-3 * around_ns / steps;
        share[i] = around_ns / (engine_ns + around_ns);
        ran[i] = (double)cpu_ns / (engine_ns * settings->threads + around_ns);
    }
    *result = (struct step_figures){.rows = median(rows, settings->rounds),
                                    .step_us = median(step_us, settings->rounds),
                                    .around_us = median(around_us, settings->rounds),
                                    .share = median(share, settings->rounds),
                                    .ran = median(ran, settings->rounds)};
    return STATUS_OK;
}

/* Prompts have 16 to 79 tokens, answers 64 to 191. As many steps as in a round warm up. */
static enum status run_steps(struct run *run, struct step_figures *figures, struct error *err)
{
    run->rng = rng_seeded(1);
    enum status status = open_engine(run, err);
    if (status == STATUS_OK)
        status = open_loop(run, err);
    if (status == STATUS_OK)
        status = measure(run, figures, err);
    step_loop_stop(run->loop);
    engine_close(run->engine);
    return status;
}

static enum status bench_steps(const struct settings *settings, struct error *err)
{
    static const uint32_t batches[] = {16, 64, 256};
    bool disturbed = false;
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
        struct run run = {.settings = settings, .sequences = batches[i]};
        struct step_figures result;
        fprintf(stderr, "%u sequences in steps of a worker over %s: %u round%s of %u step%s\n",
                batches[i], settings->model, settings->rounds, settings->rounds == 1 ? "" : "s",
                settings->steps, settings->steps == 1 ? "" : "s");
        TRY(run_steps(&run, &result, err));
        if (i == 0)
            printf("\n%9s  %11s %9s %15s %7s\n", "sequences", "rows a step", "step, us",
                   "around it, us", "share");
        printf("%9u  %11.0f %9.0f %15.1f %6.2f%%\n", batches[i], result.rows, result.step_us,
               result.around_us, 1e2 * result.share);
        TRY(standard_output_flush(err));
        disturbed |= result.ran < BENCH_QUIET;
    }
    if (disturbed)
        printf(BENCH_DISTURBED ": steps took longer than on a quiet machine, and the time around "
                               "them has another share\n");
    return standard_output_flush(err);
}

/* Finds flags for an engine without --model. Variables may be meant for workers. */
static bool check_model(const struct settings *settings, const struct config_result *result)
{
    static const char *const names[] = {"random-weights", "threads"};
    bool fine = true;
    for (size_t i = 0; i < program.setting_count && !*settings->model; i++)
        for (size_t n = 0; n < sizeof names / sizeof *names; n++)
            if (strcmp(table[i].name, names[n]) == 0 && result->sources[i] == CONFIG_FROM_FLAG) {
                fprintf(stderr, "%s: --%s needs --model\n", program.name, names[n]);
                fine = false;
            }
    if (!fine)
        fprintf(stderr, "Try: %s --help\n", program.name);
    return fine;
}

int cmd_bench_schedule(int argc, char **argv)
{
    struct settings settings = {0};
    struct config_result result;
    struct error err;
    config_load_or_exit(&program, argc, argv, &settings, &result);
    if (!check_model(&settings, &result))
        return 2;
    log_init("bench", LOG_WARN);
    struct model_config model; /* read before minutes go by */
    enum status status =
        *settings.model ? model_config_read(settings.model, &model, &err) : STATUS_OK;
    if (status == STATUS_OK)
        status = bench_plans(&settings, &err);
    if (status == STATUS_OK && *settings.model)
        status = bench_steps(&settings, &err);
    if (status == STATUS_OK)
        return 0;
    fprintf(stderr, "%s: %s\n", program.name, err.text);
    return 1;
}
