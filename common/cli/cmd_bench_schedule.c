#include "common/cli/cmd_bench_schedule.h"

#include "common/config/config.h"
#include "common/engine/sched/schedule_bench.h"

#include <stdio.h>
#include <time.h>

struct settings {
    enum policy_kind policy;
    uint32_t steps, pool_percent;
};

static const char *const policy_names[] = {"fcfs", "srpf", "mlfq", NULL}; /* enum policy_kind */

#define AT(field) CONFIG_AT(struct settings, field)
static const struct config_setting table[] = {
    {"batch-policy", CONFIG_ENUM, AT(policy), "fcfs", .choices = policy_names,
     .help = "Who goes first"},
    {"steps", CONFIG_U64, AT(steps), "400", "1", "1000000", .help = "Timed steps of each row"},
    {"pool-percent", CONFIG_U64, AT(pool_percent), "100", "10", "1000",
     .help = "KV blocks, of those that all sequences have at their ends; below 100 growing ones "
             "are preempted"},
};
static const struct config_program program = {
    .name = "baton bench schedule",
    .summary =
        "Measures what planning a step costs, without an engine: a full schedule of 16 to 1024 "
        "sequences is lived\nfor some steps, in CPU time of its thread. Sequences have all their "
        "blocks from the beginning, or they grow\nblock by block, with a prefix cache.",
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

static enum status print_row(const struct settings *settings, uint32_t sequences)
{
    printf("%9u", sequences);
    for (int grow = 0; grow < 2; grow++) {
        struct schedule_bench bench = {.sequences = sequences,
                                       .steps = settings->steps,
                                       .policy = settings->policy,
                                       .grow = grow,
                                       .prefix_cache = grow,
                                       .pool_percent = settings->pool_percent,
                                       .now_ns = ran_ns};
        struct schedule_bench_result result;
        TRY(schedule_bench_run(&bench, &result));
        printf("  %6.0f %8.1f %8.1f %9.1f", result.mean_parts, 1e-3 * (double)result.p50_ns,
               1e-3 * (double)result.p99_ns, 1e-3 * result.mean_ns);
        if (grow)
            printf(" %9llu", (unsigned long long)(result.swapped_out + result.dropped));
    }
    printf("\n");
    fflush(stdout);
    return STATUS_OK;
}

int cmd_bench_schedule(int argc, char **argv)
{
    struct settings settings = {0};
    struct config_result result;
    config_load_or_exit(&program, argc, argv, &settings, &result);
    printf("%9s  %34s  %34s\n", "", "all blocks reserved", "growing, prefix cache");
    printf("%9s  %6s %8s %8s %9s  %6s %8s %8s %9s %9s\n", "sequences", "a step", "p50, us",
           "p99, us", "mean, us", "a step", "p50, us", "p99, us", "mean, us", "preempted");
    for (uint32_t sequences = 16; sequences <= 1024; sequences *= 2)
        if (print_row(&settings, sequences) != STATUS_OK) {
            fprintf(stderr, "%s: out of memory\n", program.name);
            return 1;
        }
    return 0;
}
