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
#include "common/cli/cpu_facts.h"
#include "common/cli/engine_bench.h"
#include "common/cli/engine_bench_cpus.h"
#include "common/cli/engine_bench_lists.h"
#include "common/cli/engine_bench_report.h"
#include "common/cli/figures_file.h"
#include "common/engine/engine_choices.h"
#include "common/engine/model/weight_cache.h"
#include "common/language/model_config/model_config.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define OUT_LIMIT_BYTES (16u << 20)

enum compute_choice { COMPUTE_FAST, COMPUTE_F32 };

struct settings {
    char model[4096], weight_cache[4096], json[4096];
    char weights[64], threads[256], prefill[256], depth[256], batch[256];
    bool random_weights, pin;
    enum compute_choice compute;
    enum kv_choice kv;
    enum isa isa;
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
     .check = engine_bench_check_weights},
    {"weight-cache", CONFIG_STRING, AT(weight_cache), "off", .value = "off|beside|DIR",
     .help = "As of a worker: packed weights are kept and taken from there"},
    {"threads", CONFIG_STRING, AT(threads), "1", .value = "COUNTS",
     .help = "Compute threads, one count after the other: \"1,2\"; each 1 to 64",
     .check = engine_bench_check_threads},
    {"prefill", CONFIG_STRING, AT(prefill), "512", .value = "TOKENS",
     .help = "Prompts: \"512,2048\"; each 1 to 65536, or 0 alone: none",
     .check = engine_bench_check_prefill},
    {"chunk", CONFIG_U64, AT(chunk), "0", "0", "65536", .value = "ROWS",
     .help = "Prompts are computed in steps of at most so many rows, as a worker does with "
             "chunk-tokens; 0: "
             "each in one step"},
    {"batch", CONFIG_STRING, AT(batch), "1", .value = "COUNTS",
     .help = "Sequences that decode side by side: \"1,8,16\"; each 1 to 64, or 0 alone: no decode",
     .check = engine_bench_check_batch},
    {"depth", CONFIG_STRING, AT(depth), "0", .value = "TOKENS",
     .help =
         "Context in front of the decode steps, each with each batch: \"0,2048\"; each 0 to 65536",
     .check = engine_bench_check_depth},
    {"decode", CONFIG_U64, AT(decode), "32", "1", "4096",
     .help = "Steps of each decode measurement"},
    {"temperature", CONFIG_DOUBLE, AT(temperature), "0", "0", "100",
     .help = "Of the tokens that are drawn behind each step; 0: the greatest logit"},
    {"top-p", CONFIG_DOUBLE, AT(top_p), "1", "0.001", "1", .help = "Of the same; 1: off"},
    {"rounds", CONFIG_U64, AT(rounds), "5", "1", "100",
     .help = "Measured rounds, in each of which everything has its turn; medians are printed"},
    {"compute", CONFIG_ENUM, AT(compute), "fast", .choices = compute_choices,
     .help = "Arithmetic: bf16 with fp32 sums, or fp32 throughout"},
    {"kv", CONFIG_ENUM, AT(kv), "auto", .choices = kv_choice_names,
     .help = "Keys and values: floats, or int8 with a scale for each token of a head"},
    {"isa", CONFIG_ENUM, AT(isa), "auto", .choices = isa_names,
     .help = "Instruction set of the fast path; auto takes the best that the CPU reports"},
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

/* The settings, read. */
struct plan {
    const struct settings *settings;
    struct bench_sizes weights; /* of enum weight_choice */
    struct bench_sizes threads, prefill, depth, batch;
    struct str json;
    struct figures_file file;
    uint32_t engines; /* that are done */
    struct progress_line line;
};

static uint32_t most_threads(const struct plan *plan)
{
    uint32_t threads = 0;
    for (uint32_t i = 0; i < plan->threads.count; i++)
        threads = max_u32(threads, plan->threads.values[i]);
    return threads;
}

/* An empty list is found here, the others where they are given. */
static void read_lists(struct plan *plan, struct str *mistakes)
{
    const struct settings *s = plan->settings;
    const char *const texts[ENGINE_BENCH_LISTS] = {s->weights, s->threads, s->prefill, s->batch,
                                                   s->depth};
    struct bench_sizes *sizes[ENGINE_BENCH_LISTS] = {&plan->weights, &plan->threads, &plan->prefill,
                                                     &plan->batch, &plan->depth};
    for (int i = 0; i < ENGINE_BENCH_LISTS; i++) {
        struct error err;
        enum status status =
            engine_bench_read_list((enum engine_bench_list)i, texts[i], sizes[i], &err);
        if (status != STATUS_OK)
            error_prefix(&err, status, "--%s", engine_bench_list_names[i]);
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
        config_mistake(mistakes,
                       engine_bench_check_cpus(plan.settings->threads, most_threads(&plan),
                                               plan.settings->first_cpu, &err),
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

/* What is measured. Elsewhere than on a terminal the first round names everything, however fast:
 * what the later ones take from then on can be told from it. */
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

static void tell_round(const struct plan *plan, const struct engine_bench_facts *facts,
                       uint32_t done, double seconds)
{
    char left[40] = "";
    uint32_t rounds = plan->settings->rounds;
    if (done < rounds)
        snprintf(left, sizeof left, ", about %.0f s left", seconds / done * (rounds - done));
    fprintf(stderr, "%s, threads %u: round %u of %u, %.0f s%s\n", facts->numerics, facts->threads,
            done, rounds, seconds, left);
}

static void add_engine(const struct plan *plan, const struct engine_bench *bench, uint32_t rounds,
                       struct str *out)
{
    str_add(out, plan->engines ? ",\n" : "");
    engine_bench_json(bench, rounds, out);
}

/* What was measured so far, as one object. bench: the one under way, of which `rounds` are whole;
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
    for (uint32_t i = 0; i < plan->settings->rounds && status == STATUS_OK; i++) {
        status = engine_bench_round(bench, i, err);
        progress_line_end(&plan->line);
        if (status != STATUS_OK)
            break;
        tell_round(plan, &facts, i + 1, (double)(clock_now_ns() - begun_ns) * 1e-9);
        status = put_figures(plan, bench, i + 1, figures_file_put_so_far, &plan->file, err);
    }
    return status;
}

/* A table that can't be printed ends the measuring. */
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

/* A config.json that stands alone is all that random weights need. */
static enum status no_engine(const struct settings *settings, enum status status, struct error *err)
{
    char config[sizeof settings->model + sizeof "/config.json"];
    snprintf(config, sizeof config, "%s/config.json", settings->model);
    if (status != STATUS_NOT_FOUND || settings->random_weights || access(config, R_OK))
        return status;
    const struct error why = *err;
    return error_set(err, status, "%s; --random-weights draws some", why.text);
}

static enum status run_engine(struct plan *plan, enum weight_choice weights, uint32_t threads,
                              struct error *err)
{
    const struct settings *s = plan->settings;
    int cpus[ENGINE_BENCH_MAX_THREADS];
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
    enum status status = engine_bench_open(&config, &bench, err);
    if (status != STATUS_OK)
        return no_engine(s, status, err);
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

/* All types, before minutes go into the first of them. */
static enum status check_folder(const struct plan *plan, struct error *err)
{
    struct model_config model;
    TRY(model_config_read(plan->settings->model, &model, err));
    for (uint32_t i = 0; i < plan->weights.count; i++)
        TRY(engine_check_weights(plan->settings->compute == COMPUTE_F32,
                                 (enum weight_choice)plan->weights.values[i], model.quantization,
                                 err));
    return STATUS_OK;
}

/* What was measured before a failure is told, too. */
static enum status run(struct plan *plan, struct error *err)
{
    struct error later;
    TRY(check_folder(plan, err));
    TRY(figures_file_open(&plan->file, plan->settings->json, err));
    if (!plan->settings->pin)
        engine_bench_warn_of_threads(program.name, most_threads(plan));
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
    log_init("bench", progress_line_terminal() ? LOG_WARN : LOG_INFO); /* how far a load is */
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
