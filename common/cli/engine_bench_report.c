#include "common/cli/bench.h"
#include "common/cli/engine_bench.h"

#include <inttypes.h>
#include <stdio.h>

/* Values of one measurement. Shares are 0 .. 1, and 0 if the whole isn't known. */
enum value {
    TOKENS_PER_S,
    STEP_MS, /* a prefill's: the whole prompt, in all its chunks */
    GFLOPS,
    OF_PEAK,     /* GFLOPS / PEAK_GFLOPS */
    GBS,         /* weights, keys and values */
    OF_READ,     /* GBS / READ_GBS */
    LINEAR_TIME, /* share of the time: linear layers and the head */
    LINEAR_OF_PEAK,
    LINEAR_OF_READ,
    ATTENTION_TIME,
    ATTENTION_GFLOPS,
    ATTENTION_GBS,
    RAN, /* share of the time that threads had a CPU, or the device a step */
    PEAK_GFLOPS,
    READ_GBS,
    VALUES
};
static const char *const value_names[VALUES] = {
    "tokens_per_s",
    "step_ms",
    "gflops",
    "of_peak",
    "gbs",
    "of_read",
    "linear_time",
    "linear_of_peak",
    "linear_of_read",
    "attention_time",
    "attention_gflops",
    "attention_gbs",
    "ran",
    "peak_gflops",
    "read_gbs",
};

static double share(double part, double whole)
{
    return whole > 0 ? part / whole : 0;
}

static void compute_values(const struct bench_figure *figure, const struct bench_sample *sample,
                           double values[VALUES])
{
    double steps = figure->tokens ? 1 : figure->rows / figure->batch;
    values[TOKENS_PER_S] = figure->rows / sample->seconds;
    values[STEP_MS] = 1e3 * sample->seconds / steps;
    values[GFLOPS] = (figure->linear_gflop + figure->attention_gflop) / sample->seconds;
    values[OF_PEAK] = share(values[GFLOPS], sample->peak_gflops);
    values[GBS] = (figure->weight_gb + figure->kv_gb) / sample->seconds;
    values[OF_READ] = share(values[GBS], sample->read_gbs);
    values[LINEAR_TIME] = sample->linear_s / sample->seconds;
    double linear_gflops = share(figure->linear_gflop, sample->linear_s);
    double linear_gbs = share(figure->weight_gb, sample->linear_s);
    values[LINEAR_OF_PEAK] = share(linear_gflops, sample->peak_gflops);
    values[LINEAR_OF_READ] = share(linear_gbs, sample->read_gbs);
    values[ATTENTION_TIME] = sample->attention_s / sample->seconds;
    values[ATTENTION_GFLOPS] = share(figure->attention_gflop, sample->attention_s);
    values[ATTENTION_GBS] = share(figure->kv_gb, sample->attention_s);
    values[RAN] = sample->ran;
    values[PEAK_GFLOPS] = sample->peak_gflops;
    values[READ_GBS] = sample->read_gbs;
}

static void compute_medians(const struct bench_figure *figure, uint32_t rounds,
                            double medians[VALUES])
{
    double values[VALUES], series[ENGINE_BENCH_MAX_ROUNDS];
    for (int v = 0; v < VALUES; v++) {
        for (uint32_t i = 0; i < rounds; i++) {
            compute_values(figure, &figure->samples[i], values);
            series[i] = values[v];
        }
        medians[v] = median(series, rounds);
    }
}

/* --- for people --- */

static void add_head(const struct engine_bench *bench, uint32_t rounds, struct str *out)
{
    struct engine_bench_facts facts = engine_bench_facts(bench);
    uint32_t count;
    char cpu[CPU_FACTS_NAME_BYTES];
    double medians[VALUES];
    compute_medians(&engine_bench_figures(bench, &count)[0], rounds, medians);
    str_addf(out, "%s%s: %s on %s, %u thread%s, medians of %u round%s; loaded in %.1f s\n",
             facts.model_dir, facts.random_weights ? ", random weights" : "", facts.numerics,
             facts.isa, facts.threads, facts.threads == 1 ? "" : "s", rounds,
             rounds == 1 ? "" : "s", facts.load_s);
    if (facts.peak_bytes)
        str_addf(
            out, "memory at its peak: %.3f GB, %.2f times packed weights and KV pool (%.3f GB)\n",
            1e-9 * (double)facts.peak_bytes, (double)facts.peak_bytes / (double)facts.held_bytes,
            1e-9 * (double)facts.held_bytes);
    if (facts.device_bytes)
        str_addf(out, "memory of the device: %.3f GB\n", 1e-9 * (double)facts.device_bytes);
    if (facts.chunk)
        str_addf(out, "prompts in steps of at most %u rows\n", facts.chunk);
    cpu_facts_name(cpu, sizeof cpu);
    const char *read = facts.is_ahead ? "copied, beside" : "read of";
    str_addf(out, "%s%sat best: %.1f GFLOP/s (%s), %.2f GB/s %s the %.3f GB of weights\n", cpu,
             *cpu ? ", " : "", medians[PEAK_GFLOPS],
             *facts.instruction ? facts.instruction : "not known here", medians[READ_GBS], read,
             1e-9 * (double)facts.weight_bytes);
}

/* Heads of tables: by device (operations have no times of their own there) and decode. */
static const char *const heads[2][2] = {
    {"\n                                            linear layers       attention\n"
     "  prefill     tokens/s    GFLOP/s  of peak   time  of peak   time  GFLOP/s   CPU\n",
     "\n                                                     linear layers       attention\n"
     "depth  batch  tokens/s    ms/step  of peak     GB/s  of read   time"
     "  of read   time     GB/s   CPU\n"},
    {"\n  prefill     tokens/s    GFLOP/s  of peak  busy\n",
     "\ndepth  batch  tokens/s    ms/step  of peak     GB/s  of copy  busy\n"},
};

static void add_prefill(const struct bench_figure *figure, const double *m, bool device,
                        struct str *out)
{
    str_addf(out, "  %7u  %11.2f  %9.1f  %6.0f%%", figure->tokens, m[TOKENS_PER_S], m[GFLOPS],
             100 * m[OF_PEAK]);
    if (!device)
        str_addf(out, "  %4.0f%%  %6.0f%%  %4.0f%%  %7.1f", 100 * m[LINEAR_TIME],
                 100 * m[LINEAR_OF_PEAK], 100 * m[ATTENTION_TIME], m[ATTENTION_GFLOPS]);
    str_addf(out, "  %3.0f%%\n", 100 * m[RAN]);
}

static void add_decode(const struct bench_figure *figure, const double *m, bool device,
                       struct str *out)
{
    str_addf(out, "%5u  %5u  %8.2f  %9.2f  %6.0f%%  %7.2f  %6.0f%%", figure->depth, figure->batch,
             m[TOKENS_PER_S], m[STEP_MS], 100 * m[OF_PEAK], m[GBS], 100 * m[OF_READ]);
    if (!device)
        str_addf(out, "  %4.0f%%  %6.0f%%  %4.0f%%  %7.2f", 100 * m[LINEAR_TIME],
                 100 * m[LINEAR_OF_READ], 100 * m[ATTENTION_TIME], m[ATTENTION_GBS]);
    str_addf(out, "  %3.0f%%\n", 100 * m[RAN]);
}

void engine_bench_table(const struct engine_bench *bench, uint32_t rounds, struct str *out)
{
    uint32_t count;
    const struct bench_figure *figures = engine_bench_figures(bench, &count);
    bool disturbed = false, device = engine_bench_facts(bench).is_ahead;
    add_head(bench, rounds, out);
    for (uint32_t i = 0; i < count; i++) {
        double medians[VALUES];
        bool decode = !figures[i].tokens;
        if (i == 0 || decode != !figures[i - 1].tokens)
            str_add(out, heads[device][decode]);
        compute_medians(&figures[i], rounds, medians);
        (decode ? add_decode : add_prefill)(&figures[i], medians, device, out);
        disturbed |= !device && medians[RAN] < BENCH_QUIET;
    }
    if (!device)
        engine_bench_add_cached(engine_bench_facts(bench).weight_bytes, cpu_facts_cache_bytes(),
                                out);
    if (disturbed)
        str_add(out, "CPU below 96%: " BENCH_DISTURBED
                     "; the figures are lower than a quiet machine's\n");
}

void engine_bench_add_cached(uint64_t weight_bytes, uint64_t cache_bytes, struct str *out)
{
    if (weight_bytes < cache_bytes)
        str_addf(
            out,
            "the CPU's third level of cache (%.0f MB) may hold the weights (%.0f MB): shares of "
            "read say little of larger models\n",
            1e-6 * (double)cache_bytes, 1e-6 * (double)weight_bytes);
}

/* --- for programs --- */

static void add_figure(const struct bench_figure *figure, uint32_t rounds, struct str *out)
{
    double medians[VALUES], values[VALUES];
    compute_medians(figure, rounds, medians);
    if (figure->tokens)
        str_addf(out, "{\"kind\": \"prefill\", \"tokens\": %u", figure->tokens);
    else
        str_addf(out, "{\"kind\": \"decode\", \"depth\": %u, \"batch\": %u", figure->depth,
                 figure->batch);
    for (int v = 0; v < VALUES; v++)
        str_addf(out, ", \"%s\": %.6g", value_names[v], medians[v]);
    str_add(out, ", \"rounds\": [");
    for (uint32_t i = 0; i < rounds; i++) {
        compute_values(figure, &figure->samples[i], values);
        for (int v = 0; v < VALUES; v++)
            str_addf(out, "%s\"%s\": %.6g", v ? ", " : i ? ", {" : "{", value_names[v], values[v]);
        str_add(out, "}");
    }
    str_add(out, "]}");
}

void engine_bench_json(const struct engine_bench *bench, uint32_t rounds, struct str *out)
{
    struct engine_bench_facts facts = engine_bench_facts(bench);
    uint32_t count;
    const struct bench_figure *figures = engine_bench_figures(bench, &count);
    str_addf(out,
             "{\"numerics\": \"%s\", \"isa\": \"%s\", \"instruction\": \"%s\", \"threads\": %u, "
             "\"weight_bytes\": %" PRIu64 ", \"load_s\": %.4f, \"held_bytes\": %" PRIu64
             ", \"peak_bytes\": %" PRIu64 ", \"device_bytes\": %" PRIu64 ", \"figures\": [",
             facts.numerics, facts.isa, facts.instruction, facts.threads, facts.weight_bytes,
             facts.load_s, facts.held_bytes, facts.peak_bytes, facts.device_bytes);
    for (uint32_t i = 0; i < count; i++) {
        str_add(out, i ? ",\n" : "\n");
        add_figure(&figures[i], rounds, out);
    }
    str_add(out, "]}");
}
