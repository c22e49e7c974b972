/* The tournament of placement policies in virtual time. Prints Markdown.
 *
 *     tournament knee|compare|ablation|calibration|overload|figure-1 [SETTING=VALUE]...
 *
 * Settings: workload, shape, policy, without (a term), drift (none; slow: a device is 1.5 times
 * slower; longer: answers are 3 times longer; wiped: caches are) are names, empty: all. seeds,
 * count (requests of a run), profile, link (bytes a second), noise (sigma of the steps' times),
 * load (of the knee's rate), rate (requests a second and device that is taken as the knee), data
 * (the folder of the traces; BATON_DATA by default), classes (none: requests have no SLO class). */
#include "common/base/str.h"
#include "common/engine/mock/mock_engine.h"
#include "tests/bench/tournament/contest.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SEEDS     16
#define OVERLOAD_S    30 /* each load's, after a lead of so many requests at 0.7 of the knee */
#define OVERLOAD_LEAD 600

static const struct shape shapes[] = {
    {.name = "4P+4D", .prefills = 4, .decodes = 4},
    {.name = "8 colocated", .decodes = 8},
    {.name = "4P+4D mixed", .prefills = 4, .decodes = 4, .mixed = true},
    {.name = "8 mixed", .decodes = 8, .mixed = true},
    {.name = "4P+4D liar", .prefills = 4, .decodes = 4, .liar = true},
    {.name = "1P+1D", .prefills = 1, .decodes = 1},
};
#define SHAPES (sizeof shapes / sizeof *shapes)

/* Terms of goodput's score. */
static const struct {
    const char *name;
    uint32_t off;
} terms[] = {{"all terms", 0},
             {"own", GOODPUT_OFF_OWN},
             {"others", GOODPUT_OFF_OTHERS},
             {"tardiness", GOODPUT_OFF_TARDINESS},
             {"price", GOODPUT_OFF_PRICE},
             {"weights", GOODPUT_OFF_WEIGHTS},
             {"errors", GOODPUT_OFF_ERRORS},
             {"banked slack", GOODPUT_OFF_BANKED},
             {"floor", GOODPUT_OFF_FLOOR},
             {"memory", GOODPUT_OFF_MEMORY}};

struct settings {
    const char *workload, *shape, *policy, *without, *drift, *profile, *data;
    /* "goodput": the other policies take all requests; "none": all do; "": as goodput */
    const char *admission;
    const char *classes; /* "none": requests have no SLO class */
    uint64_t seeds, count;
    double link, noise, load, rate;
    struct step_profile device;
};

/* Ends the program: a benchmark has nothing to clean up. */
static void check(enum status status, const struct error *err)
{
    if (status == STATUS_OK)
        return;
    fprintf(stderr, "tournament: %s\n", err->text);
    exit(1);
}

static bool is_chosen(const char *wanted, const char *name)
{
    return !*wanted || !strcmp(wanted, name);
}

static struct contest contest_of(const struct settings *settings, const struct shape *shape,
                                 const struct workload *workload, enum placement_policy policy)
{
    return (struct contest){
        .data = settings->data,
        .profile = settings->device,
        .shape = shape,
        .workload = workload,
        .policy = policy,
        .takes_all = !strcmp(settings->admission, "none") ||
                     (policy != PLACEMENT_GOODPUT && !strcmp(settings->admission, "goodput")),
        .classless = !strcmp(settings->classes, "none"),
        .count = (uint32_t)settings->count,
        .seed = 1};
}

/* Mean and half the width of a 95 % interval over seeds (Student's t). */
struct spread {
    double mean, half;
};

static struct spread spread_of(const double *values, uint64_t count)
{
    static const double t95[] = {0,    12.7, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36,
                                 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13};
    double sum = 0, squares = 0;
    for (uint64_t i = 0; i < count; i++)
        sum += values[i];
    for (uint64_t i = 0; i < count; i++)
        squares += (values[i] - sum / (double)count) * (values[i] - sum / (double)count);
    double n = (double)count, error = count > 1 ? sqrt(squares / (n - 1) / n) : 0;
    return (struct spread){sum / n, t95[count - 1] * error};
}

/* Runs a contest with each seed. `mean`: its figures, averaged; of the last seed: its bins. */
static struct spread run_seeds(const struct settings *settings, struct contest contest,
                               struct contest_result *mean)
{
    double goodputs[MAX_SEEDS];
    *mean = (struct contest_result){.consistent = true};
    for (uint64_t s = 0; s < settings->seeds; s++) {
        struct contest_result result;
        struct error err;
        contest.seed = s + 1;
        check(contest_run(&contest, &result, &err), &err);
        if (!result.consistent)
            check(error_set(&err, STATUS_INTERNAL, "the books of a run are wrong"), &err);
        goodputs[s] = result.goodput;
        double share = 1.0 / (double)settings->seeds;
        mean->attainment += share * result.attainment;
        mean->goodput += share * result.goodput;
        mean->offered += share * result.offered;
        mean->cached += share * result.cached;
        mean->requests += result.requests;
        mean->refused += result.refused;
        mean->answered += result.answered;
        for (int d = 0; d < CONTEST_DECILES; d++)
            mean->deciles[d] += share * result.deciles[d];
        for (int q = 0; q < 3; q++) {
            mean->ttft_s[q] += share * result.ttft_s[q];
            mean->tpot_s[q] += share * result.tpot_s[q];
        }
        memcpy(mean->bins, result.bins, sizeof mean->bins);
    }
    return spread_of(goodputs, settings->seeds);
}

/* Calls `table` for each chosen shape and workload. */
static void each(const struct settings *settings,
                 void (*table)(const struct settings *, const struct shape *,
                               const struct workload *))
{
    for (size_t s = 0; s < SHAPES; s++)
        for (size_t w = 0; w < workload_count; w++)
            if (is_chosen(settings->shape, shapes[s].name) &&
                is_chosen(settings->workload, workloads[w].name) &&
                (settings->data || !workloads[w].needs_data))
                table(settings, &shapes[s], &workloads[w]);
}

/* -------------------------------------------------------------------------------------- tables */

static double knee_of(const struct settings *settings, const struct shape *shape,
                      const struct workload *workload, enum placement_policy policy)
{
    struct contest contest = contest_of(settings, shape, workload, policy);
    struct error err;
    double rate = settings->rate;
    if (rate <= 0)
        check(contest_knee(&contest, &rate, &err), &err);
    return rate;
}

static void table_knees(const struct settings *settings, const struct shape *shape,
                        const struct workload *workload)
{
    printf("| %s | %s |", shape->name, workload->name);
    for (enum placement_policy p = 0; p < PLACEMENT_POLICY_COUNT; p++)
        if (is_chosen(settings->policy, placement_policy_names[p]))
            printf(" %.2f |", knee_of(settings, shape, workload, p));
    printf("\n");
    fflush(stdout);
}

static void print_row(const char *name, struct spread goodput, const struct contest_result *mean)
{
    printf("| %s | %.3f ± %.3f | %.1f | %.2f / %.2f | %.0f / %.0f | %.0f |", name, goodput.mean,
           goodput.half, 100 * mean->attainment, mean->ttft_s[0], mean->ttft_s[1],
           1000 * mean->tpot_s[0], 1000 * mean->tpot_s[1], 100 * mean->cached);
    for (int d = 0; d < CONTEST_DECILES; d++)
        printf(" %.0f", 100 * mean->deciles[d]);
    printf(" |\n");
    fflush(stdout);
}

#define ROW_HEAD                                                                                   \
    "goodput | %% attained | TTFT P50 / P90, s | TPOT P50 / P90, ms | %% cached | %% attained by " \
    "decile |\n|---|---|---|---|---|---|---|\n"

static void table_compare(const struct settings *settings, const struct shape *shape,
                          const struct workload *workload)
{
    double knee = knee_of(settings, shape, workload, PLACEMENT_LEAST_TOKENS);
    printf("\n**%s, %s**, %.2f requests a second and device (%.2f times the knee of "
           "least-tokens)\n\n| policy | " ROW_HEAD,
           workload->name, shape->name, settings->load * knee, settings->load);
    for (enum placement_policy p = 0; p < PLACEMENT_POLICY_COUNT; p++) {
        if (!is_chosen(settings->policy, placement_policy_names[p]))
            continue;
        struct contest contest = contest_of(settings, shape, workload, p);
        struct contest_result mean;
        contest.rate = settings->load * knee * (shape->prefills + shape->decodes);
        struct spread goodput = run_seeds(settings, contest, &mean);
        print_row(placement_policy_names[p], goodput, &mean);
    }
}

static void table_ablation(const struct settings *settings, const struct shape *shape,
                           const struct workload *workload)
{
    double knee = knee_of(settings, shape, workload, PLACEMENT_LEAST_TOKENS);
    printf("\n**%s, %s**, %.2f requests a second and device\n\n| without | " ROW_HEAD,
           workload->name, shape->name, settings->load * knee);
    for (size_t i = 0; i < sizeof terms / sizeof *terms; i++) {
        struct contest contest = contest_of(settings, shape, workload, PLACEMENT_GOODPUT);
        struct contest_result mean;
        if (!is_chosen(settings->without, terms[i].name))
            continue;
        contest.off = terms[i].off;
        contest.rate = settings->load * knee * (shape->prefills + shape->decodes);
        struct spread goodput = run_seeds(settings, contest, &mean);
        print_row(terms[i].name, goodput, &mean);
    }
}

static void table_overload(const struct settings *settings, const struct shape *shape,
                           const struct workload *workload)
{
    static const double loads[] = {0.7, 1, 1.3, 2, 4, 10};
    double knee = knee_of(settings, shape, workload, PLACEMENT_LEAST_TOKENS), peak = 0;
    printf("\n**%s, %s**, knee of least-tokens %.2f requests a second and device\n", workload->name,
           shape->name, knee);
    for (enum placement_policy p = 0; p < PLACEMENT_POLICY_COUNT; p++) {
        if (!is_chosen(settings->policy, placement_policy_names[p]))
            continue;
        printf("\n| %s, load | goodput | of peak | refused %% | longest decile / median | TTFT P50 "
               "/ P90, s | TPOT P50 / P90, ms |\n"
               "|---|---|---|---|---|---|---|\n",
               placement_policy_names[p]);
        peak = 0;
        for (size_t i = 0; i < sizeof loads / sizeof *loads; i++) {
            struct contest contest = contest_of(settings, shape, workload, p);
            struct contest_result mean;
            contest.rate = loads[i] * knee * (shape->prefills + shape->decodes);
            contest.lead = OVERLOAD_LEAD;
            contest.lead_rate = 0.7 * knee * (shape->prefills + shape->decodes);
            contest.count = (uint32_t)(OVERLOAD_S * contest.rate) + OVERLOAD_LEAD;
            struct spread goodput = run_seeds(settings, contest, &mean);
            double deciles[CONTEST_DECILES];
            memcpy(deciles, mean.deciles, sizeof deciles);
            peak = goodput.mean > peak ? goodput.mean : peak;
            double median = (deciles[4] + deciles[5]) / 2;
            printf("| %.1f | %.3f ± %.3f | %.2f | %.0f | %.2f | %.2f / %.2f | %.0f / %.0f |\n",
                   loads[i], goodput.mean, goodput.half, goodput.mean / peak,
                   100.0 * mean.refused / mean.requests, median > 0 ? deciles[9] / median : 0,
                   mean.ttft_s[0], mean.ttft_s[1], 1000 * mean.tpot_s[0], 1000 * mean.tpot_s[1]);
            fflush(stdout);
        }
    }
}

static void table_calibration(const struct settings *settings, const struct shape *shape,
                              const struct workload *workload)
{
    static const char *const drifts[] = {"none", "slow", "longer", "wiped"};
    double knee = knee_of(settings, shape, workload, PLACEMENT_LEAST_TOKENS);
    printf(
        "\n**%s, %s**, expected calibration error (predictions with an outcome) before the drift "
        "half-way, and from 2,000 requests after it\n\n"
        "| drift | at the turn | | at arrival | |\n|---|---|---|---|---|\n",
        workload->name, shape->name);
    for (enum drift d = DRIFT_NONE; d <= DRIFT_WIPED; d++) {
        struct contest contest = contest_of(settings, shape, workload, PLACEMENT_GOODPUT);
        struct contest_result mean;
        if (!is_chosen(settings->drift, drifts[d]))
            continue;
        contest.drift = d;
        contest.rate = settings->load * knee * (shape->prefills + shape->decodes);
        run_seeds(settings, contest, &mean);
        bool two = workload->other.ttft_us || workload->other.tpot_us;
        for (int class = 0; class <= two; class ++) {
            printf("| %s%s |", drifts[d], class ? ", other class" : "");
            for (int stage = ADMISSION_STAGES - 1; stage >= 0; stage--)
                for (int later = 0; later < 2; later++) {
                    uint32_t count;
                    double error = contest_error(&mean.bins[class][stage][later], &count);
                    printf(" %.3f (%u) |", error, count);
                }
            printf("\n");
        }
        fflush(stdout);
    }
}

/* DistServe's Figure 1: OPT-13B by vLLM's coefficients, 512 / 64 tokens, 0.4 s and 0.04 s, P90. */
static void figure_1(const struct settings *settings)
{
    static const struct shape cases[] = {
        {.name = "colocated, prompts first", .decodes = 1, .prompts_first = true},
        {.name = "colocated, chunked", .decodes = 1},
        {.name = "2P+1D", .prefills = 2, .decodes = 1}};
    struct settings vllm = *settings;
    struct error err;
    check(profile_read("a100-opt-13b-tp1-vllm", &vllm.device, &err), &err);
    vllm.device.link_bytes_per_second = settings->link;
    printf("| | requests a second and device |\n|---|---|\n");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (enum placement_policy p = 0; p < PLACEMENT_POLICY_COUNT; p++)
            if (p == PLACEMENT_LEAST_TOKENS || p == PLACEMENT_GOODPUT)
                printf("| %s, %s | %.2f |\n", cases[i].name, placement_policy_names[p],
                       knee_of(&vllm, &cases[i], workload_find("fixed"), p));
}

/* ------------------------------------------------------------------------------------ settings */

static bool read_setting(struct settings *settings, const char *text)
{
    const struct {
        const char *name, **value;
    } names[] = {{"workload=", &settings->workload}, {"shape=", &settings->shape},
                 {"policy=", &settings->policy},     {"without=", &settings->without},
                 {"drift=", &settings->drift},       {"profile=", &settings->profile},
                 {"data=", &settings->data},         {"admission=", &settings->admission},
                 {"classes=", &settings->classes}};
    const struct {
        const char *name;
        double *value;
    } numbers[] = {{"link=", &settings->link},
                   {"noise=", &settings->noise},
                   {"load=", &settings->load},
                   {"rate=", &settings->rate}};
    const struct {
        const char *name;
        uint64_t *value, most;
    } counts[] = {{"seeds=", &settings->seeds, MAX_SEEDS},
                  {"count=", &settings->count, LOAD_MAX_REQUESTS}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strncmp(text, names[i].name, strlen(names[i].name))) {
            *names[i].value = text + strlen(names[i].name);
            return true;
        }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!strncmp(text, numbers[i].name, strlen(numbers[i].name)))
            return str_to_double(text + strlen(numbers[i].name), 0, 1e15, numbers[i].value);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (!strncmp(text, counts[i].name, strlen(counts[i].name)))
            return str_to_u64(text + strlen(counts[i].name), 1, counts[i].most, counts[i].value);
    return false;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*table)(const struct settings *, const struct shape *, const struct workload *);
    } commands[] = {{"knee", table_knees},
                    {"compare", table_compare},
                    {"ablation", table_ablation},
                    {"overload", table_overload},
                    {"calibration", table_calibration}};
    struct settings settings = {.workload = "",
                                .shape = "",
                                .policy = "",
                                .without = "",
                                .drift = "",
                                .admission = "",
                                .classes = "",
                                .profile = "a100-opt-13b-tp1-distserve",
                                .data = getenv("BATON_DATA"),
                                .seeds = 3,
                                .count = 4000,
                                .link = 50e9,
                                .noise = 0.05,
                                .load = 1.1};
    struct error err;
    for (int i = 2; i < argc; i++)
        if (!read_setting(&settings, argv[i]))
            argc = 0;
    if (argc < 2) {
        fprintf(stderr,
                "tournament knee|compare|ablation|calibration|overload|figure-1 "
                "[workload|shape|policy|without|drift|profile|data|seeds|count|link|noise|load|"
                "rate=VALUE]...\n");
        return 2;
    }
    check(profile_read(settings.profile, &settings.device, &err), &err);
    settings.device.link_bytes_per_second = settings.link;
    settings.device.noise_sigma = settings.noise;
    if (!strcmp(argv[1], "figure-1"))
        figure_1(&settings);
    if (!strcmp(argv[1], "knee")) {
        printf("| cluster | workload |");
        for (enum placement_policy p = 0; p < PLACEMENT_POLICY_COUNT; p++)
            if (is_chosen(settings.policy, placement_policy_names[p]))
                printf(" %s |", placement_policy_names[p]);
        printf("\n|---|---|");
        for (enum placement_policy p = 0; p < PLACEMENT_POLICY_COUNT; p++)
            printf("%s", is_chosen(settings.policy, placement_policy_names[p]) ? "---|" : "");
        printf("\n");
    }
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (!strcmp(commands[i].name, argv[1]))
            each(&settings, commands[i].table);
    return 0;
}
