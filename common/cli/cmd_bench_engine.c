#include "common/cli/commands.h"

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/config/config.h"
#include "common/base/json/json_quote.h"
#include "common/base/log.h"
#include "common/base/progress_line.h"
#include "common/base/standard_output.h"
#include "common/base/str.h"
#include "common/base/u32.h"
#include "common/cli/bench.h"
#include "common/cli/engine_bench.h"
#include "common/engine/engine_choices.h"
#include "common/engine/model/weight_cache.h"
#include "common/language/model_config/model_config.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define OUT_LIMIT_BYTES (16u << 20)
#define MAX_TOKENS      65536
#define MAX_BATCH       64
#define MAX_THREADS     64

/* --- lists of sizes --- */

typedef bool item_reader(const char *text, uint64_t min, uint64_t max, uint64_t *value);

static bool read_weights(const char *text, uint64_t min, uint64_t max, uint64_t *value)
{
    (void)min;
    (void)max;
    for (*value = 0; weight_choice_names[*value]; (*value)++)
        if (!strcmp(text, weight_choice_names[*value]))
            return true;
    return false;
}

enum list_kind { WEIGHTS, THREADS, PREFILL, BATCH, DEPTH, LISTS };

static const struct list {
    const char *name; /* the setting's */
    item_reader *read;
    uint64_t min, max;
    bool may_be_zero; /* "0" alone is an empty list */
} lists[LISTS] = {
    [WEIGHTS] = {"weights", read_weights, 0, 0, false}, /* items are of enum weight_choice */
    [THREADS] = {"threads", str_to_u64, 1, MAX_THREADS, false},
    [PREFILL] = {"prefill", str_to_u64, 1, MAX_TOKENS, true},
    [BATCH] = {"batch", str_to_u64, 1, MAX_BATCH, true},
    [DEPTH] = {"depth", str_to_u64, 0, MAX_TOKENS, false},
};

static enum status bad_list(const struct list *list, const char *text, struct error *err)
{
    if (list->read == read_weights)
        return error_set(err, STATUS_INVALID,
                         "'%.80s' is not auto, bf16, int8 or int4, or up to %d of them between "
                         "commas",
                         text, ENGINE_BENCH_MAX_SIZES);
    return error_set(err, STATUS_INVALID,
                     "'%.80s' is not up to %d numbers in %llu .. %llu between commas%s", text,
                     ENGINE_BENCH_MAX_SIZES, (unsigned long long)list->min,
                     (unsigned long long)list->max, list->may_be_zero ? ", or 0 alone" : "");
}

/* Reads up to ENGINE_BENCH_MAX_SIZES items, like "512,2048". STATUS_INVALID: a sentence without the
 * setting's name. */
static enum status read_list(enum list_kind kind, const char *whole, struct bench_sizes *sizes,
                             struct error *err)
{
    const struct list *list = &lists[kind];
    char item[32];
    sizes->count = 0;
    if (list->may_be_zero && !strcmp(whole, "0"))
        return STATUS_OK;
    for (const char *text = whole;; text++) {
        size_t length = strcspn(text, ",");
        uint64_t value = 0;
        bool fits = length < sizeof item && sizes->count < ENGINE_BENCH_MAX_SIZES;
        memcpy(item, text, fits ? length : 0);
        item[fits ? length : 0] = '\0';
        if (!fits || !list->read(item, list->min, list->max, &value))
            return bad_list(list, whole, err);
        sizes->values[sizes->count++] = (uint32_t)value;
        text += length;
        if (!*text)
            return STATUS_OK;
    }
}

static enum status check_list(enum list_kind kind, const char *text, struct error *err)
{
    struct bench_sizes sizes;
    return read_list(kind, text, &sizes, err);
}

static enum status check_weights(const char *text, struct error *err)
{
    return check_list(WEIGHTS, text, err);
}

static enum status check_threads(const char *text, struct error *err)
{
    return check_list(THREADS, text, err);
}

static enum status check_prefill(const char *text, struct error *err)
{
    return check_list(PREFILL, text, err);
}

static enum status check_batch(const char *text, struct error *err)
{
    return check_list(BATCH, text, err);
}

static enum status check_depth(const char *text, struct error *err)
{
    return check_list(DEPTH, text, err);
}

/* --- CPUs --- */

/* Appends a set of CPUs like "0-3,8". */
static void add_cpus(struct str *out, const cpu_set_t *set)
{
    for (int first = 0; first < CPU_SETSIZE; first++) {
        int last = first;
        if (!CPU_ISSET(first, set))
            continue;
        while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, set))
            last++;
        str_addf(out, last > first ? "%s%d-%d" : "%s%d", out->length ? "," : "", first, last);
        first = last;
    }
}

/* Checks that threads can be pinned to CPUs `first_cpu` on, before anything is measured: a refused
 * pin would make a figure slower without a word. `given`: --threads as it was written; `threads`
 * are the most of them. */
static enum status check_cpus(const char *given, uint32_t threads, uint32_t first_cpu,
                              struct error *err)
{
    cpu_set_t allowed;
    uint32_t cpu = first_cpu, end = first_cpu + threads;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return STATUS_OK;
    while (cpu < end && CPU_ISSET(cpu, &allowed))
        cpu++;
    if (cpu == end)
        return STATUS_OK;
    struct str cpus;
    str_init(&cpus, 256);
    add_cpus(&cpus, &allowed);
    enum status status = error_set(err, STATUS_INVALID,
                                   "--threads %s from --first-cpu %u need CPU %u, but this process "
                                   "may run only on %s: give fewer "
                                   "threads, another --first-cpu, or --no-pin",
                                   given, first_cpu, cpu, cpus.data);
    str_deinit(&cpus);
    return status;
}

/* Warns on standard error of more unpinned threads than CPUs: that is slow, but can be measured. */
static void warn_of_threads(const char *program_name, uint32_t threads)
{
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return;
    uint32_t count = (uint32_t)CPU_COUNT(&allowed);
    if (threads > count)
        fprintf(stderr,
                "%s: %u threads, but this process may run on %u CPU%s: they take turns, and the "
                "limits are shown as if each had a CPU\n",
                program_name, threads, count, count == 1 ? "" : "s");
}

/* --- settings --- */

enum compute_choice { COMPUTE_FAST, COMPUTE_F32 };

struct settings {
    char model[4096], weight_cache[4096], json[4096];
    char weights[64], threads[256], prefill[256], depth[256], batch[256];
    bool random_weights, pin;
    enum compute_choice compute;
    enum kv_choice kv;
    enum isa isa;
    char device[32];
    uint32_t decode, rounds, first_cpu, chunk;
    float temperature, top_p;
};

static const char *const compute_choices[] = {"fast", "f32", NULL};

#define AT(field) CONFIG_AT(struct settings, field)
static const struct config_setting table[] = {
    {"model", CONFIG_STRING, AT(model), .required = true, .value = "DIR",
     .help = "Hugging Face folder"},
    {"random-weights", CONFIG_BOOL, AT(random_weights), "false",
     .help = "The folder has a config.json alone: weights are drawn"},
    {"weights", CONFIG_STRING, AT(weights), "auto", .value = "TYPES",
     .help = "Weights of matrices, one after the other: auto (as the folder holds them), bf16, "
             "int8, int4; \"bf16,int8,int4\"",
     .check = check_weights},
    {"weight-cache", CONFIG_STRING, AT(weight_cache), "off", .value = "off|beside|DIR",
     .help = "As for a worker: packed weights are kept and taken from there"},
    {"threads", CONFIG_STRING, AT(threads), "1", .value = "COUNTS",
     .help = "Compute threads, one count after the other: \"1,2\"; each 1 to 64",
     .check = check_threads},
    {"prefill", CONFIG_STRING, AT(prefill), "512", .value = "TOKENS",
     .help = "Prompts: \"512,2048\"; each 1 to 65536, or 0 alone: none", .check = check_prefill},
    {"chunk", CONFIG_U64, AT(chunk), "0", "0", "65536", .value = "ROWS",
     .help = "Prompts are computed in steps of at most so many rows, as a worker does with "
             "chunk-tokens; 0: each in one step"},
    {"batch", CONFIG_STRING, AT(batch), "1", .value = "COUNTS",
     .help = "Sequences that decode side by side: \"1,8,16\"; each 1 to 64, or 0 alone: no decode",
     .check = check_batch},
    {"depth", CONFIG_STRING, AT(depth), "0", .value = "TOKENS",
     .help =
         "Context in front of the decode steps, each with each batch: \"0,2048\"; each 0 to 65536",
     .check = check_depth},
    {"decode", CONFIG_U64, AT(decode), "32", "1", "4096",
     .help = "Steps of each decode measurement"},
    {"temperature", CONFIG_DOUBLE, AT(temperature), "0", "0", "100",
     .help = "For the tokens that are drawn after each step; 0: the greatest logit"},
    {"top-p", CONFIG_DOUBLE, AT(top_p), "1", "0.001", "1", .help = "For the same tokens; 1: off"},
    {"rounds", CONFIG_U64, AT(rounds), "5", "1", "100",
     .help = "Measured rounds, in each of which everything has its turn; medians are printed"},
    {"compute", CONFIG_ENUM, AT(compute), "fast", .choices = compute_choices,
     .help = "Arithmetic: bf16 with fp32 sums, or fp32 throughout"},
    {"kv", CONFIG_ENUM, AT(kv), "auto", .choices = kv_choice_names,
     .help = "Keys and values: floats, or int8 with a scale for each token of a head"},
    {"isa", CONFIG_ENUM, AT(isa), "auto", .choices = isa_names,
     .help = "Instruction set of the fast path; auto takes the best that the CPU reports"},
    {"device", CONFIG_STRING, AT(device), "cpu", .value = DEVICE_FORMS,
     .help = "Device that computes, as a worker's. Times of a GPU are those of its events, and its "
             "limits are a large layer and a copy inside it",
     .check = engine_check_device},
    {"pin", CONFIG_BOOL, AT(pin), "true", .help = "Pin thread i to CPU first-cpu + i"},
    {"first-cpu", CONFIG_U64, AT(first_cpu), "0", "0", "1023", .help = "See --pin"},
    {"json", CONFIG_STRING, AT(json), "", .value = "FILE", .flag_only = true,
     .help = "Also writes all figures of all rounds there, as one JSON object, anew behind each "
             "round; -: to standard output, at the end, instead of the tables"},
};
static void check(const void *settings, struct str *mistakes);
static const struct config_program program = {
    .name = "baton bench engine",
    .summary =
        "Measures the forward pass in this process, without a server: prompt tokens per second, "
        "and tokens per\nsecond of decode batches, beside what this machine can do at best: "
        "arithmetic from register to register,\nand reading the weights from memory, measured "
        "around and among its steps on the same threads.",
    .settings = table,
    .setting_count = sizeof table / sizeof *table,
    .check = check,
};

struct plan {
    const struct settings *settings;
    struct bench_sizes weights; /* enum weight_choice */
    struct bench_sizes threads, prefill, depth, batch;
    struct str json;
    struct figures_file file;
    uint32_t engines; /* measured whole */
    struct progress_line line;
};

static uint32_t most_threads(const struct plan *plan)
{
    uint32_t threads = 0;
    for (uint32_t i = 0; i < plan->threads.count; i++)
        threads = max_u32(threads, plan->threads.values[i]);
    return threads;
}

/* Reads all lists. A list is checked when it is given, except an empty one, which is found here. */
static void read_lists(struct plan *plan, struct str *mistakes)
{
    const struct settings *s = plan->settings;
    const char *const texts[LISTS] = {s->weights, s->threads, s->prefill, s->batch, s->depth};
    struct bench_sizes *sizes[LISTS] = {&plan->weights, &plan->threads, &plan->prefill,
                                        &plan->batch, &plan->depth};
    for (int i = 0; i < LISTS; i++) {
        struct error err;
        enum status status = read_list((enum list_kind)i, texts[i], sizes[i], &err);
        if (status != STATUS_OK)
            error_prefix(&err, status, "--%s", lists[i].name);
        config_mistake(mistakes, status, &err);
    }
}

static void check(const void *settings, struct str *mistakes)
{
    struct plan plan = {.settings = settings};
    struct error err;
    read_lists(&plan, mistakes);
    if (mistakes->length)
        return;
    if (!plan.prefill.count && !plan.batch.count)
        config_mistake(
            mistakes,
            error_set(&err, STATUS_INVALID, "--prefill 0 and --batch 0: nothing to measure"), &err);
    if (plan.settings->random_weights && strcmp(plan.settings->weight_cache, WEIGHT_CACHE_OFF) != 0)
        config_mistake(mistakes,
                       error_set(&err, STATUS_INVALID,
                                 "--weight-cache with --random-weights: they aren't kept"),
                       &err);
    if (plan.settings->pin)
        config_mistake(
            mistakes,
            check_cpus(plan.settings->threads, most_threads(&plan), plan.settings->first_cpu, &err),
            &err);
    bool f32 = plan.settings->compute == COMPUTE_F32;
    enum status status = STATUS_OK;
    for (uint32_t i = 0; i < plan.weights.count && status == STATUS_OK; i++)
        status = engine_check_weights(f32, (enum weight_choice)plan.weights.values[i], MODEL_FLOAT,
                                      &err);
    config_mistake(mistakes, status, &err);
    config_mistake(mistakes, engine_check_kv(f32, plan.settings->kv, &err), &err);
    config_mistake(mistakes, kernels_check_isa(f32, plan.settings->isa, &err), &err);
}

/* --- running --- */

/* Shows the measurement that begins. If standard error is no terminal, the first round shows all of
 * them, so that the time of later rounds can be estimated. */
static void tell_turn(void *context, const struct bench_turn *turn)
{
    struct plan *plan = context;
    char what[80];
    if (turn->tokens)
        snprintf(what, sizeof what, "prefill, %u tokens", turn->tokens);
    else if (turn->shallowest == turn->deepest)
        snprintf(what, sizeof what, "decode, depth %u, batch %u", turn->deepest, turn->batch);
    else
        snprintf(what, sizeof what, "decode, depths %u to %u, batch %u", turn->shallowest,
                 turn->deepest, turn->batch);
    if (progress_line_due(&plan->line, clock_now_us()) || plan->line.terminal || turn->round == 0)
        progress_line_tell(&plan->line, "round %u of %u: %s (%u of %u)", turn->round + 1,
                           plan->settings->rounds, what, turn->index + 1, turn->count);
}

static void add_engine(const struct plan *plan, const struct engine_bench *bench, uint32_t rounds,
                       struct str *out)
{
    str_add(out, plan->engines ? ",\n" : "");
    engine_bench_json(bench, rounds, out);
}

/* Puts all figures so far as one object. `bench`: the one under way, with `rounds` whole rounds;
 * NULL: none. */
static enum status
put_figures(const struct plan *plan, const struct engine_bench *bench, uint32_t rounds,
            enum status (*put)(struct figures_file *, const struct str *, struct error *),
            struct figures_file *file, struct error *err)
{
    struct str text;
    str_init(&text, OUT_LIMIT_BYTES);
    str_append(&text, plan->json.data, plan->json.length);
    if (bench)
        add_engine(plan, bench, rounds, &text);
    str_add(&text, "]}\n");
    enum status status =
        text.truncated ? error_set(err, STATUS_LIMIT,
                                   "the figures are more than %u bytes: fewer --rounds, sizes "
                                   "or types at a time",
                                   OUT_LIMIT_BYTES)
                       : put(file, &text, err);
    str_deinit(&text);
    return status;
}

static enum status run_rounds(struct plan *plan, struct engine_bench *bench, struct error *err)
{
    struct engine_bench_facts facts = engine_bench_facts(bench);
    uint64_t begun_ns = clock_now_ns();
    enum status status = STATUS_OK;
    plan->line = progress_line_begin(progress_line_terminal(), clock_now_us());
    uint32_t rounds = plan->settings->rounds;
    for (uint32_t done = 1; done <= rounds && status == STATUS_OK; done++) {
        char left[40] = "";
        status = engine_bench_round(bench, done - 1, err);
        progress_line_end(&plan->line);
        if (status != STATUS_OK)
            break;
        double seconds = (double)(clock_now_ns() - begun_ns) * 1e-9;
        if (done < rounds)
            snprintf(left, sizeof left, ", about %.0f s left", seconds / done * (rounds - done));
        fprintf(stderr, "%s, threads %u: round %u of %u, %.0f s%s\n", facts.numerics, facts.threads,
                done, rounds, seconds, left);
        status = put_figures(plan, bench, done, figures_file_put_so_far, &plan->file, err);
    }
    return status;
}

/* Prints an engine's table. A failure ends the measuring. */
static enum status report(struct plan *plan, const struct engine_bench *bench, struct error *err)
{
    const struct settings *s = plan->settings;
    struct str text;
    add_engine(plan, bench, s->rounds, &plan->json);
    if (strcmp(s->json, "-") != 0) {
        str_init(&text, OUT_LIMIT_BYTES);
        engine_bench_table(bench, s->rounds, &text);
        printf("%s%s", plan->engines ? "\n\n" : "", text.data);
        str_deinit(&text);
        TRY(standard_output_flush(err));
    }
    plan->engines++;
    return STATUS_OK;
}

static enum status run_engine(struct plan *plan, enum weight_choice weights, uint32_t threads,
                              struct error *err)
{
    const struct settings *s = plan->settings;
    int cpus[MAX_THREADS];
    for (uint32_t i = 0; i < threads; i++)
        cpus[i] = (int)(s->first_cpu + i);
    struct engine_bench_config config = {.model_dir = s->model,
                                         .random_weights = s->random_weights,
                                         .weights = weights,
                                         .kv = s->kv,
                                         .weight_cache = s->weight_cache,
                                         .kernels = {.f32 = s->compute == COMPUTE_F32,
                                                     .isa = s->isa,
                                                     .threads = threads,
                                                     .cpus = s->pin ? cpus : NULL,
                                                     .may_spin = true},
                                         .prefill = plan->prefill,
                                         .depth = plan->depth,
                                         .batch = plan->batch,
                                         .chunk = s->chunk,
                                         .decode_steps = s->decode,
                                         .temperature = s->temperature,
                                         .top_p = s->top_p,
                                         .rounds = s->rounds,
                                         .progress = tell_turn,
                                         .context = plan};
    struct engine_bench *bench;
    TRY(device_parse(s->device, &config.kernels.device, &config.kernels.ordinal, err));
    enum status status = engine_bench_open(&config, &bench, err);
    if (status == STATUS_NOT_FOUND && !s->random_weights &&
        config.kernels.device == DEVICE_CPU) { /* elsewhere the device may be what isn't there */
        char file[sizeof s->model + sizeof "/config.json"];
        snprintf(file, sizeof file, "%s/config.json", s->model);
        const struct error why = *err;
        if (!access(file, R_OK)) /* it is enough for random weights */
            error_set(err, status, "%s; --random-weights draws some", why.text);
    }
    TRY(status);
    status = run_rounds(plan, bench, err);
    if (status == STATUS_OK)
        status = report(plan, bench, err);
    engine_bench_close(bench);
    return status;
}

static enum status run_engines(struct plan *plan, struct error *err)
{
    str_add(&plan->json, "{\"model\": ");
    json_quote(&plan->json, plan->settings->model, strlen(plan->settings->model));
    char cpu[CPU_FACTS_NAME_BYTES];
    cpu_facts_name(cpu, sizeof cpu);
    str_add(&plan->json, ", \"cpu\": ");
    json_quote(&plan->json, cpu, strlen(cpu));
    str_add(&plan->json, ", \"device\": ");
    json_quote(&plan->json, plan->settings->device, strlen(plan->settings->device));
    const struct settings *s = plan->settings;
    str_addf(&plan->json,
             ", \"random_weights\": %s, \"decode_steps\": %u, \"chunk\": %u, \"temperature\": %g, "
             "\"top_p\": %g",
             s->random_weights ? "true" : "false", s->decode, s->chunk, (double)s->temperature,
             (double)s->top_p);
    str_add(&plan->json, ", \"engines\": [\n");
    for (uint32_t w = 0; w < plan->weights.count; w++)
        for (uint32_t t = 0; t < plan->threads.count; t++)
            TRY(run_engine(plan, (enum weight_choice)plan->weights.values[w],
                           plan->threads.values[t], err));
    return STATUS_OK;
}

/* Measures everything. Figures from before a failure are put too. */
static enum status run(struct plan *plan, struct error *err)
{
    struct error later;
    struct model_config model;
    TRY(model_config_read(plan->settings->model, &model, err));
    for (uint32_t i = 0; i < plan->weights.count; i++) /* all, before minutes go into the first */
        TRY(engine_check_weights(plan->settings->compute == COMPUTE_F32,
                                 (enum weight_choice)plan->weights.values[i], model.quantization,
                                 err));
    TRY(figures_file_open(&plan->file, plan->settings->json, err));
    if (!plan->settings->pin)
        warn_of_threads(program.name, most_threads(plan));
    enum status status = run_engines(plan, err), put = STATUS_OK;
    if (plan->engines)
        put = put_figures(plan, NULL, 0, figures_file_put, &plan->file,
                          status == STATUS_OK ? err : &later);
    figures_file_close(&plan->file);
    return status == STATUS_OK ? put : status;
}

int cmd_bench_engine(int argc, char **argv)
{
    struct settings settings = {0};
    struct config_result result;
    struct error err;
    config_load_or_exit(&program, argc, argv, &settings, &result);
    log_init("bench", progress_line_terminal() ? LOG_WARN : LOG_INFO); /* shows a load's progress */
    struct plan plan = {.settings = &settings};
    struct str mistakes;
    str_init(&mistakes, sizeof err.text);
    read_lists(&plan, &mistakes);
    ASSERT(!mistakes.length); /* they were checked */
    str_deinit(&mistakes);
    str_init(&plan.json, OUT_LIMIT_BYTES);
    enum status status = run(&plan, &err);
    str_deinit(&plan.json);
    if (status == STATUS_OK)
        return 0;
    fprintf(stderr, "%s: %s\n", program.name, err.text);
    return 1;
}
