#include "common/cli/commands.h"

#include "common/base/config/config.h"
#include "common/base/log.h"
#include "common/cli/bench.h"
#include "common/cli/transfer_bench.h"

#include <stdio.h>
#include <string.h>

#define MAX_ROUNDS 100

enum lane_choice { CHOICE_SHM, CHOICE_TCP, CHOICE_BOTH_LANES };
enum crc_choice { CHOICE_OFF, CHOICE_ON, CHOICE_BOTH };

struct settings {
    enum lane_choice lane;
    enum crc_choice crc;
    uint64_t mib, rounds, deaths;
    bool pin, json;
};

static const char *const lane_choices[] = {"shm", "tcp", "both", NULL};
static const char *const crc_choices[] = {"off", "on", "both", NULL};

#define AT(field) CONFIG_AT(struct settings, field)
static const struct config_setting table[] = {
    {"lane", CONFIG_ENUM, AT(lane), "both", .choices = lane_choices,
     .help = "Which lane to measure"},
    {"crc", CONFIG_ENUM, AT(crc), "both", .choices = crc_choices,
     .help = "Without or with a CRC32C of every run on both sides"},
    {"mib", CONFIG_U64, AT(mib), "64", "4", "8192", "MiB",
     .help = "Size of the pools, moved once a round"},
    {"rounds", CONFIG_U64, AT(rounds), "5", "1", "100",
     .help = "Measured rounds, after one that also checks every byte"},
    {"deaths", CONFIG_U64, AT(deaths), "5", "0", "50",
     .help = "Owners of each lane that are killed (kill -9) while they are read from, to see how "
             "soon a read fails"},
    {"pin", CONFIG_BOOL, AT(pin), "false",
     .help = "Give each process a core of its own, as workers have them on a quiet machine"},
    {"json", CONFIG_BOOL, AT(json), "false", .help = "One JSON object instead of a table"},
};
static const struct config_program program = {
    .name = "baton bench transfer",
    .summary = "Moves KV between two processes of this machine, in runs of random order on both "
               "sides, and prints\n"
               "GB/s and CPU time of both processes. memcpy (in one process) and a raw TCP socket "
               "run in turn with\n"
               "the lanes, and ratios are medians of the ratios within a round. Then owners are "
               "killed, and the time\nuntil a read fails is measured.",
    .settings = table,
    .setting_count = sizeof table / sizeof *table,
};

static const struct {
    const char *name;
    enum lane_choice lane; /* CHOICE_BOTH_LANES: measured with any */
    bool crc;
} ways[WAYS] = {
    [WAY_MEMCPY] = {"memcpy", CHOICE_BOTH_LANES, false},
    [WAY_SHM] = {"shm", CHOICE_SHM, false},
    [WAY_SHM_CRC] = {"shm", CHOICE_SHM, true},
    [WAY_TCP] = {"tcp", CHOICE_TCP, false},
    [WAY_TCP_CRC] = {"tcp", CHOICE_TCP, true},
    [WAY_SOCKET] = {"socket", CHOICE_BOTH_LANES, false},
};

static const size_t run_sizes[] = {64u << 10, 256u << 10, 1u << 20, 4u << 20};
#define RUN_SIZES (sizeof run_sizes / sizeof *run_sizes)

struct figures {
    double gb_per_s, x_memcpy, x_socket, cpu_s_per_gb;
};

static bool is_wanted(const struct settings *settings, enum transfer_way way)
{
    if (ways[way].lane == CHOICE_BOTH_LANES)
        return true;
    bool lane = settings->lane == CHOICE_BOTH_LANES || settings->lane == ways[way].lane;
    bool crc = settings->crc == CHOICE_BOTH || (settings->crc == CHOICE_ON) == ways[way].crc;
    return lane && crc;
}

static struct figures summarize(struct transfer_cost costs[WAYS][MAX_ROUNDS], enum transfer_way way,
                                size_t rounds, double gb)
{
    double speed[MAX_ROUNDS], x_memcpy[MAX_ROUNDS], x_socket[MAX_ROUNDS], cpu[MAX_ROUNDS];
    for (size_t i = 0; i < rounds; i++) {
        double seconds = costs[way][i].seconds;
        speed[i] = gb / seconds;
        x_memcpy[i] = costs[WAY_MEMCPY][i].seconds / seconds;
        x_socket[i] = costs[WAY_SOCKET][i].seconds / seconds;
        cpu[i] = costs[way][i].cpu_seconds / gb;
    }
    return (struct figures){median(speed, rounds), median(x_memcpy, rounds),
                            median(x_socket, rounds), median(cpu, rounds)};
}

/* Measures each way once a round, so that a machine that gets slower slows all of them. */
static enum status measure(struct transfer_bench *bench, const struct settings *settings,
                           size_t run_bytes, struct figures figures[WAYS], struct error *err)
{
    static struct transfer_cost costs[WAYS][MAX_ROUNDS];
    for (size_t round = 0; round <= settings->rounds; round++) {
        for (int way = 0; way < WAYS; way++) {
            struct transfer_cost cost;
            if (!is_wanted(settings, way))
                continue;
            TRY(transfer_bench_run(bench, way, run_bytes, round == 0, &cost, err));
            if (round > 0)
                costs[way][round - 1] = cost;
        }
    }
    double gb = (double)((settings->mib << 20) / run_bytes * run_bytes) / 1e9;
    for (int way = 0; way < WAYS; way++)
        if (is_wanted(settings, way))
            figures[way] = summarize(costs, way, settings->rounds, gb);
    return STATUS_OK;
}

static void print_head(const struct settings *settings)
{
    if (settings->json) {
        printf("{\"mib\": %llu, \"rounds\": %llu, \"results\": [",
               (unsigned long long)settings->mib, (unsigned long long)settings->rounds);
        return;
    }
    printf("%llu MiB between two processes, medians of %llu rounds\n\n"
           "run       way             GB/s  x memcpy  x socket  CPU s/GB\n",
           (unsigned long long)settings->mib, (unsigned long long)settings->rounds);
}

static void print_figures(const struct settings *settings, size_t run_bytes, bool first,
                          const struct figures figures[WAYS])
{
    for (int way = 0; way < WAYS; way++) {
        const struct figures *f = &figures[way];
        if (!is_wanted(settings, way))
            continue;
        if (settings->json) {
            printf("%s\n{\"run_bytes\": %zu, \"way\": \"%s\", \"crc\": %s, \"gb_per_s\": %.3f, "
                   "\"x_memcpy\": %.3f, \"x_socket\": %.3f, \"cpu_s_per_gb\": %.4f}",
                   first ? "" : ",", run_bytes, ways[way].name, ways[way].crc ? "true" : "false",
                   f->gb_per_s, f->x_memcpy, f->x_socket, f->cpu_s_per_gb);
        } else {
            printf("%4zu KiB  %-6s %-7s %6.2f  %8.2f  %8.2f  %8.3f\n", run_bytes >> 10,
                   ways[way].name, ways[way].crc ? "CRC32C" : "", f->gb_per_s, f->x_memcpy,
                   f->x_socket, f->cpu_s_per_gb);
        }
        first = false;
    }
    if (!settings->json)
        printf("\n");
    fflush(stdout);
}

static enum status measure_speed(const struct settings *settings, const struct transfer_plan *plan,
                                 struct error *err)
{
    struct transfer_bench *bench;
    TRY(transfer_bench_open(plan, &bench, err));
    print_head(settings);
    enum status status = STATUS_OK;
    for (size_t i = 0; i < RUN_SIZES && status == STATUS_OK; i++) {
        struct figures figures[WAYS] = {0};
        status = measure(bench, settings, run_sizes[i], figures, err);
        if (status == STATUS_OK)
            print_figures(settings, run_sizes[i], i == 0, figures);
    }
    if (settings->json)
        printf("\n]");
    transfer_bench_close(bench);
    return status;
}

static enum status measure_deaths(const struct settings *settings, struct transfer_deaths *deaths,
                                  struct error *err)
{
    static const char *const lanes[] = {[TRANSFER_SHM] = "shm", [TRANSFER_TCP] = "tcp"};
    const char *before =
        settings->json ? ", \"deaths\": [" : "lane  kill -9 to the failed read, ms\n";
    for (int lane = 0; lane < TRANSFER_LANES; lane++) {
        double seconds[TRANSFER_MAX_DEATHS];
        if (settings->lane == (lane == TRANSFER_SHM ? CHOICE_TCP : CHOICE_SHM))
            continue;
        TRY(transfer_deaths_measure(deaths, lane, seconds, err));
        double middle = 1e3 * median(seconds, settings->deaths); /* sorts */
        double most = 1e3 * seconds[settings->deaths - 1];
        if (settings->json)
            printf("%s\n{\"lane\": \"%s\", \"median_ms\": %.3f, \"max_ms\": %.3f}", before,
                   lanes[lane], middle, most);
        else
            printf("%s%-4s  median %.2f, at most %.2f\n", before, lanes[lane], middle, most);
        before = settings->json ? "," : "";
    }
    if (settings->json)
        printf("\n]");
    return STATUS_OK;
}

static enum status bench_all(const struct settings *settings, struct error *err)
{
    struct transfer_plan plan = {
        .lanes = {[TRANSFER_SHM] = settings->lane != CHOICE_TCP,
                  [TRANSFER_TCP] = settings->lane != CHOICE_SHM},
        .pool_bytes = settings->mib << 20,
        .pin = settings->pin,
    };
    struct transfer_deaths *deaths;
    TRY(transfer_deaths_prepare(&plan, settings->deaths, &deaths, err)); /* first: it forks */
    enum status status = measure_speed(settings, &plan, err);
    if (status == STATUS_OK && settings->deaths > 0)
        status = measure_deaths(settings, deaths, err);
    if (settings->json)
        printf("}\n");
    transfer_deaths_close(deaths);
    return status;
}

int cmd_bench_transfer(int argc, char **argv)
{
    struct settings settings = {0};
    struct config_result result;
    struct error err;
    config_load_or_exit(&program, argc, argv, &settings, &result);
    log_init("bench", LOG_WARN);
    if (bench_all(&settings, &err) == STATUS_OK)
        return 0;
    fprintf(stderr, "%s: %s\n", program.name, err.text);
    return 1;
}
