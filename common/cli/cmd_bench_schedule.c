#include "common/cli/commands.h"

#include "common/base/config/config.h"
#include "common/base/log.h"
#include "common/base/standard_output.h"
#include "common/cli/bench_quiet.h"
#include "common/cli/median.h"
#include "common/cli/step_bench.h"
#include "common/engine/sched/schedule_bench.h"
#include "common/language/model_config/model_config.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define MAX_ROUNDS STEP_BENCH_MAX_ROUNDS

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
     .help = "Who goes first"},
    {"steps", CONFIG_U64, AT(steps), "400", "1", "1000000", .help = "Timed steps of each round"},
    {"rounds", CONFIG_U64, AT(rounds), "5", "1", "100",
     .help = "Rounds, in each of which every row has its turn; medians are printed"},
    {"pool-percent", CONFIG_U64, AT(pool_percent), "100", "10", "1000",
     .help = "KV blocks, of those that all sequences have at their ends; below 100 growing ones "
             "are preempted"},
    {"model", CONFIG_STRING, AT(model), "", .value = "DIR",
     .help = "Hugging Face folder: measures a worker's steps with it, too, and how much of them "
             "is not the engine's"},
    {"random-weights", CONFIG_BOOL, AT(random_weights), "false",
     .help = "The folder has a config.json alone: weights are drawn"},
    {"threads", CONFIG_U64, AT(threads), "1", "1", "64", .help = "Compute threads of the engine"},
};
static const struct config_program program = {
    .name = "baton bench schedule",
    .summary =
        "Measures what planning a step costs. Without an engine: a full schedule of 16 to 1024 "
        "sequences is lived\nfor some steps, in CPU time of its thread. Sequences have all their "
        "blocks from the beginning, or they grow\nblock by block, with a prefix cache. With "
        "--model also a worker's step loop over an engine, in wall time.",
    .settings = table,
    .setting_count = sizeof table / sizeof *table,
};

/* Of this thread: what other programs take meanwhile doesn't count. */
static uint64_t ran_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* --- without an engine --- */

static const uint32_t sizes[] = {16, 64, 256, 1024};
enum { SIZES = sizeof sizes / sizeof *sizes, MODES = 2 };

/* One row's half, in all rounds. */
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

/* --- with one --- */

static enum status bench_steps(const struct settings *settings, struct error *err)
{
    static const uint32_t batches[] = {16, 64, 256};
    bool disturbed = false;
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
        struct step_bench bench = {.model_dir = settings->model,
                                   .random_weights = settings->random_weights,
                                   .threads = settings->threads,
                                   .sequences = batches[i],
                                   .steps = settings->steps,
                                   .rounds = settings->rounds,
                                   .policy = settings->policy};
        struct step_bench_result result;
        fprintf(stderr, "%u sequences in steps of a worker over %s: %u round%s of %u step%s\n",
                batches[i], settings->model, settings->rounds, settings->rounds == 1 ? "" : "s",
                settings->steps, settings->steps == 1 ? "" : "s");
        TRY(step_bench_run(&bench, &result, err));
        if (i == 0)
            printf("\n%9s  %11s %9s %15s %7s\n", "sequences", "rows a step", "step, us",
                   "around it, us", "share");
        printf("%9u  %11.0f %9.0f %15.1f %6.2f%%\n", batches[i], result.rows, result.step_us,
               result.around_us, 1e2 * result.share);
        TRY(standard_output_flush(err));
        disturbed |= result.ran < BENCH_QUIET;
    }
    if (disturbed)
        printf(BENCH_DISTURBED ": steps took longer than on a quiet machine, and what is around "
                               "them another share\n");
    return standard_output_flush(err);
}

/* Settings of an engine, and there is none. Those of the environment are for workers, too. */
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
    struct model_config model; /* looked for before minutes go by without it */
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
