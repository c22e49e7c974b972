/* Measures the forward pass of one engine in rounds: prefills of some sizes, and decode steps at
 * some depths for some batches. Each measurement stands beside the machine's limits at that time
 * (engine_measure_limits), which other programs and the host's other guests change by the minute.
 * Depths of one batch are measured step by step in turns, so that they compare.
 *
 * On a device that runs ahead, each step is handed over before the one before it has ended, as a
 * worker does: decode steps are fed the tokens that the device draws. Seconds are the device's.
 *
 * Owner: one thread, which becomes the engine's step thread. */
#ifndef BATON_CLI_ENGINE_BENCH_H
#define BATON_CLI_ENGINE_BENCH_H

#include "common/base/str.h"
#include "common/engine/engine.h"

#define ENGINE_BENCH_MAX_SIZES  8
#define ENGINE_BENCH_MAX_ROUNDS 100

struct bench_sizes {
    uint32_t values[ENGINE_BENCH_MAX_SIZES], count;
};

/* A measurement that begins: one prompt, or one batch at all depths. */
struct bench_turn {
    uint32_t round, index, count;        /* index, count: in each round */
    uint32_t tokens;                     /* prefill: the prompt's; decode: 0 */
    uint32_t batch, shallowest, deepest; /* decode */
};

struct engine_bench_config {
    const char *model_dir;
    bool random_weights;
    enum weight_choice weights;
    enum kv_choice kv;
    const char *weight_cache; /* as in struct engine_config */
    struct kernels_config kernels;
    struct bench_sizes prefill;      /* prompts; none: no prefill */
    uint32_t chunk;                  /* most rows of a prompt in one step; 0: all */
    struct bench_sizes depth, batch; /* decode: every depth with every batch; none: no decode */
    uint32_t decode_steps;
    float temperature, top_p; /* for the token that is drawn after each step */
    uint32_t rounds;
    void (*progress)(void *context, const struct bench_turn *turn); /* may be NULL */
    void *context;
};

/* One measurement in one round. Rates are per wall time, or per time of the device; limits are per
 * time that the threads ran. */
struct bench_sample {
    double seconds;
    /* 0 .. 1: share of the time that the threads had a CPU, or in which the device had a step */
    double ran;
    double wall_s;                /* on a device: the steps' time with what was between them */
    double linear_s, attention_s; /* parts of the seconds */
    double peak_gflops, read_gbs; /* limits, measured meanwhile */
};

struct bench_figure {
    uint32_t tokens;       /* prefill: the prompt's; decode: 0 */
    uint32_t depth, batch; /* decode */
    /* Sums over all its steps: */
    double rows, linear_gflop, attention_gflop;
    double weight_gb; /* read once a step; counts the head also for chunks that don't read it */
    double kv_gb;     /* decode: keys and values, read once a row; rows of a prefill share them */
    struct bench_sample samples[ENGINE_BENCH_MAX_ROUNDS];
};

struct engine_bench;

/* Opens the engine. Failures: one sentence. */
enum status engine_bench_open(const struct engine_bench_config *config, struct engine_bench **bench,
                              struct error *err) WARN_UNUSED;
void engine_bench_close(struct engine_bench *bench); /* NULL is fine */

/* Makes all measurements once. The first call warms up before. `round` < config->rounds. */
enum status engine_bench_round(struct engine_bench *bench, uint32_t round,
                               struct error *err) WARN_UNUSED;

struct engine_bench_facts {
    const char *model_dir;
    bool random_weights;
    const char *numerics, *isa, *instruction; /* instruction: the peak's; "": there is none */
    uint32_t threads, chunk;                  /* chunk: as configured */
    uint64_t weight_bytes;                    /* read by a step */
    double load_s;
    uint64_t held_bytes;   /* packed weights and KV pool */
    uint64_t peak_bytes;   /* peak memory since the engine was opened; 0: not known */
    uint64_t device_bytes; /* taken of a device's own memory; 0: it has none, or is the host */
    bool is_ahead;         /* a device that runs ahead: see the top */
};
struct engine_bench_facts engine_bench_facts(const struct engine_bench *bench);
/* Returns prefills first, then decode by depth and batch. Valid until the bench is closed. */
const struct bench_figure *engine_bench_figures(const struct engine_bench *bench, uint32_t *count);

/* --- reports: engine_bench_report.c ---
 *
 * Medians over the rounds. Each value is computed within its round. */

/* Append a table; a JSON object. `rounds` were measured. */
void engine_bench_table(const struct engine_bench *bench, uint32_t rounds, struct str *out);
void engine_bench_json(const struct engine_bench *bench, uint32_t rounds, struct str *out);

/* Appends a line if a cache of so many bytes may hold the weights: passes over them are no reads of
 * memory then. 0: no cache is known. PURE. */
void engine_bench_add_cached(uint64_t weight_bytes, uint64_t cache_bytes, struct str *out);

#endif
