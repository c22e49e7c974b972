#include "common/cli/cmd_bench_engine.h"

#include "common/base/clock.h"
#include "common/base/rng.h"
#include "common/config/config.h"
#include "common/engine/engine.h"

#include <stdio.h>
#include <stdlib.h>

#define MAX_ROUNDS   100
#define MAX_THREADS  64
#define BLOCK_TOKENS 32

enum compute_choice { COMPUTE_FAST, COMPUTE_F32 };

struct settings {
    char model[4096];
    bool random_weights, json;
    enum compute_choice compute;
    enum weight_choice weights;
    enum isa isa;
    uint32_t threads, prefill, decode, depth, batch, rounds;
    bool pin;
    uint32_t first_cpu;
};

static const char *const compute_choices[] = {"fast", "f32", NULL};

#define AT(field) CONFIG_AT(struct settings, field)
static const struct config_setting table[] = {
    {"model", CONFIG_STRING, AT(model), .required = true, .value = "DIR",
     .help = "Hugging Face folder"},
    {"random-weights", CONFIG_BOOL, AT(random_weights), "false",
     .help = "The folder has a config.json alone: weights are drawn"},
    {"compute", CONFIG_ENUM, AT(compute), "fast", .choices = compute_choices,
     .help = "Arithmetic: bf16 with fp32 sums, or fp32 throughout"},
    {"weights", CONFIG_ENUM, AT(weights), "auto", .choices = weight_choice_names,
     .help = "Weights of matrices: as the folder holds them, or quantized at load"},
    {"isa", CONFIG_ENUM, AT(isa), "auto", .choices = isa_names,
     .help = "Instruction set of the fast path; auto takes the best that the CPU reports"},
    {"threads", CONFIG_U64, AT(threads), "1", "1", "64", .help = "Compute threads"},
    {"pin", CONFIG_BOOL, AT(pin), "true", .help = "Pin thread i to CPU first-cpu + i"},
    {"first-cpu", CONFIG_U64, AT(first_cpu), "0", "0", "1023", .help = "See --pin"},
    {"prefill", CONFIG_U64, AT(prefill), "512", "1", "16384", "tokens",
     .help = "Prompt of the prefill measurement, computed in one step"},
    {"decode", CONFIG_U64, AT(decode), "32", "1", "4096",
     .help = "Steps of the decode measurement"},
    {"depth", CONFIG_U64, AT(depth), "0", "0", "16384", "tokens",
     .help = "Context in front of the decode measurement"},
    {"batch", CONFIG_U64, AT(batch), "1", "1", "64", .help = "Sequences that decode side by side"},
    {"rounds", CONFIG_U64, AT(rounds), "5", "1", "100",
     .help = "Measured rounds, after one to warm up; medians are printed"},
    {"json", CONFIG_BOOL, AT(json), "false", .help = "One JSON object instead of lines"},
};
static const struct config_program program = {
    .name = "baton bench engine",
    .summary = "Measures the forward pass: prompt tokens per second, and tokens per second of a "
               "decode batch.\n"
               "Without a server, in this process; prefill and decode take turns in each round.",
    .settings = table,
    .setting_count = sizeof table / sizeof *table,
};

/* One engine and what its steps are made of. */
struct bench {
    const struct settings *settings;
    struct engine *engine;
    struct sampling sampling;
    uint32_t *tokens;                  /* [longest] random ids, the same for every sequence */
    uint32_t *blocks;                  /* [batch * blocks_each] 0, 1, 2 ... */
    uint32_t longest;                  /* tokens of one sequence at most */
    uint32_t blocks_each;              /* of one sequence */
    struct engine_sequence *sequences; /* [batch] */
    bool depth_filled;
};

static double seconds_since(uint64_t start_ns)
{
    return (double)(clock_now_ns() - start_ns) * 1e-9;
}

/* Rows [position, position + count) of the first `sequences` sequences, in one step. */
static enum status step(struct bench *bench, uint32_t sequences, uint32_t position, uint32_t count,
                        struct error *err)
{
    for (uint32_t i = 0; i < sequences; i++)
        bench->sequences[i] =
            (struct engine_sequence){.tokens = bench->tokens + position,
                                     .token_count = count,
                                     .position = position,
                                     .blocks = bench->blocks + i * bench->blocks_each,
                                     .block_count = bench->blocks_each,
                                     .sample = true,
                                     .sampling = &bench->sampling};
    return engine_step(bench->engine, bench->sequences, sequences, err);
}

static enum status run_prefill(struct bench *bench, double *tokens_per_s, struct error *err)
{
    uint64_t start_ns = clock_now_ns();
    TRY(step(bench, 1, 0, bench->settings->prefill, err));
    *tokens_per_s = bench->settings->prefill / seconds_since(start_ns);
    return STATUS_OK;
}

/* Sequence `number`'s context in front of the decode measurement. */
static enum status fill_depth(struct bench *bench, uint32_t number, struct error *err)
{
    struct engine_sequence context = {.tokens = bench->tokens,
                                      .token_count = bench->settings->depth,
                                      .blocks = bench->blocks + number * bench->blocks_each,
                                      .block_count = bench->blocks_each};
    return engine_step(bench->engine, &context, 1, err);
}

static enum status run_decode(struct bench *bench, double *tokens_per_s, struct error *err)
{
    const struct settings *settings = bench->settings;
    if (settings->depth &&
        !bench->depth_filled) { /* once: rounds decode the same positions again */
        for (uint32_t i = 0; i < settings->batch; i++)
            TRY(fill_depth(bench, i, err));
        bench->depth_filled = true;
    }
    uint64_t start_ns = clock_now_ns();
    for (uint32_t i = 0; i < settings->decode; i++)
        TRY(step(bench, settings->batch, settings->depth + i, 1, err));
    *tokens_per_s = (double)settings->decode * settings->batch / seconds_since(start_ns);
    return STATUS_OK;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, uint32_t count)
{
    qsort(values, count, sizeof *values, by_value);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

static void print_result(const struct bench *bench, double *prefill, double *decode)
{
    const struct settings *s = bench->settings;
    const char *format =
        s->json ? "{\"numerics\": \"%s\", \"threads\": %u, \"rounds\": %u, \"prefill_tokens\": %u, "
                  "\"prefill_tokens_per_s\": %.2f, \"decode_tokens\": %u, \"depth\": %u, "
                  "\"batch\": %u, \"decode_tokens_per_s\": %.2f}\n"
                : "%s, %u threads, medians of %u rounds\n"
                  "prefill %u tokens: %.2f tokens/s\n"
                  "decode %u tokens behind %u, %u sequences: %.2f tokens/s\n";
    printf(format, engine_numerics_name(bench->engine), s->threads, s->rounds, s->prefill,
           median(prefill, s->rounds), s->decode, s->depth, s->batch, median(decode, s->rounds));
}

static enum status measure(struct bench *bench, struct error *err)
{
    double prefill[MAX_ROUNDS], decode[MAX_ROUNDS];
    double ignored;
    TRY(run_prefill(bench, &ignored, err));
    TRY(run_decode(bench, &ignored, err));
    for (uint32_t i = 0; i < bench->settings->rounds; i++) {
        TRY(run_prefill(bench, &prefill[i], err));
        TRY(run_decode(bench, &decode[i], err));
    }
    print_result(bench, prefill, decode);
    return STATUS_OK;
}

static enum status open_engine(struct bench *bench, struct error *err)
{
    const struct settings *s = bench->settings;
    int cpus[MAX_THREADS];
    for (uint32_t i = 0; i < s->threads; i++)
        cpus[i] = (int)(s->first_cpu + i);
    struct engine_config config = {.model_dir = s->model,
                                   .random_weights = s->random_weights,
                                   .weights = s->weights,
                                   .kernels = {.f32 = s->compute == COMPUTE_F32,
                                               .isa = s->isa,
                                               .threads = s->threads,
                                               .cpus = s->pin ? cpus : NULL,
                                               .may_spin = true},
                                   .block_tokens = BLOCK_TOKENS,
                                   .block_count = s->batch * bench->blocks_each,
                                   .max_rows =
                                       bench->longest > s->batch ? bench->longest : s->batch,
                                   .max_sequences = s->batch};
    TRY(engine_open(&config, &bench->engine, err));
    TRY(engine_attach_pool(bench->engine, NULL, err));
    if (bench->longest > engine_context(bench->engine))
        return error_set(err, STATUS_INVALID, "%u tokens do not fit the model's context of %u",
                         bench->longest, engine_context(bench->engine));
    return STATUS_OK;
}

static enum status run(const struct settings *settings, struct error *err)
{
    struct bench bench = {.settings = settings, .sampling = sampling_default()};
    struct rng rng = rng_seeded(1);
    uint32_t decoded = settings->depth + settings->decode;
    bench.longest = decoded > settings->prefill ? decoded : settings->prefill;
    bench.blocks_each = (bench.longest + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
    bench.tokens = calloc(bench.longest, sizeof *bench.tokens);
    bench.blocks = calloc((size_t)settings->batch * bench.blocks_each, sizeof *bench.blocks);
    bench.sequences = calloc(settings->batch, sizeof *bench.sequences);
    bench.sampling.temperature = 0;
    enum status status = STATUS_LIMIT;
    if (!bench.tokens || !bench.blocks || !bench.sequences)
        error_set(err, status, "out of memory");
    else
        status = open_engine(&bench, err);
    if (status == STATUS_OK) {
        for (uint32_t i = 0; i < bench.longest; i++)
            bench.tokens[i] = (uint32_t)rng_below(&rng, engine_shape(bench.engine)->vocab);
        for (uint32_t i = 0; i < settings->batch * bench.blocks_each; i++)
            bench.blocks[i] = i;
        status = measure(&bench, err);
    }
    engine_close(bench.engine);
    free(bench.tokens);
    free(bench.blocks);
    free(bench.sequences);
    return status;
}

int cmd_bench_engine(int argc, char **argv)
{
    struct settings settings = {0};
    struct config_result result;
    struct error err;
    config_load_or_exit(&program, argc, argv, &settings, &result);
    if (run(&settings, &err) == STATUS_OK)
        return 0;
    fprintf(stderr, "%s: %s\n", program.name, err.text);
    return 1;
}
