#include "common/cli/engine_bench.h"

#include "common/base/clock.h"
#include "common/base/rng.h"
#include "common/base/u32.h"
#include "common/cli/bench.h"
#include "common/language/model_config/model_config.h"

#include <stdio.h>
#include <stdlib.h>

#define BLOCK_TOKENS 32
#define FILL_ROWS    512 /* in a step that makes context for decode steps */
#define WARM_ROWS    32
#define MAX_FIGURES  (ENGINE_BENCH_MAX_SIZES + ENGINE_BENCH_MAX_SIZES * ENGINE_BENCH_MAX_SIZES)

/* Rows [position, position + count) of the first `sequences` sequences, in one step. */
struct rows {
    uint32_t sequences, position, count;
    bool draws; /* a token after the last row: not inside a prompt */
};

/* A step, and the sample that its time is added to. */
struct timed {
    struct rows rows;
    struct bench_sample *sample;
};

struct engine_bench {
    struct engine_bench_config config;
    struct engine *engine;
    struct sampling sampling;
    double load_s;
    uint32_t longest, deepest; /* most tokens of the first sequence, and of the others */
    uint32_t max_batch;
    uint32_t filled, copied;           /* tokens that the first sequence, and the others, hold */
    uint32_t *tokens;                  /* [longest] random ids, the same for every sequence */
    uint32_t *blocks;                  /* 0, 1, 2 ... */
    struct engine_sequence *sequences; /* [ENGINE_TICKETS, max_batch] of steps in flight */
    uint32_t most_rows;                /* a step has at most so many */
    struct timed *steps; /* between two probes: the chunks of a prompt, or decode steps */
    struct kernels_profile profile;
    struct engine_limits limits; /* the last that were measured */
    struct bench_figure *figures;
    uint32_t figure_count;
};

static uint32_t largest(const struct bench_sizes *sizes)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < sizes->count; i++)
        most = max_u32(most, sizes->values[i]);
    return most;
}

static uint32_t blocks_for(uint32_t tokens)
{
    return divide_up(tokens, BLOCK_TOKENS);
}

/* Returns the blocks of a sequence. The first holds the longest prompt, the others only as much as
 * decode needs. */
static uint32_t *blocks_of(const struct engine_bench *bench, uint32_t sequence)
{
    uint32_t first = sequence ? blocks_for(bench->longest) : 0;
    return bench->blocks + first + (sequence ? sequence - 1 : 0) * blocks_for(bench->deepest);
}

static uint32_t pool_blocks(const struct engine_bench *bench)
{
    return blocks_for(bench->longest) + (bench->max_batch - 1) * blocks_for(bench->deepest);
}

/* --- steps --- */

/* `fed`: the tokens are those that the step in flight draws for as many sequences. */
static void lay_out(const struct engine_bench *bench, const struct rows *rows, bool fed,
                    struct engine_sequence *sequences)
{
    uint32_t end = rows->position + rows->count;
    for (uint32_t i = 0; i < rows->sequences; i++)
        sequences[i] = (struct engine_sequence){.tokens = bench->tokens + rows->position,
                                                .token_count = rows->count,
                                                .position = rows->position,
                                                .blocks = blocks_of(bench, i),
                                                .block_count = blocks_for(end),
                                                .sample_count = rows->draws,
                                                .fed = fed,
                                                .token_from = i,
                                                .sampling = &bench->sampling};
}

static enum status step(struct engine_bench *bench, const struct rows *rows, struct error *err)
{
    lay_out(bench, rows, false, bench->sequences);
    return engine_step(bench->engine, bench->sequences, rows->sequences, err);
}

/* Makes the context of decode steps: computes it for the first sequence, unless a prefill left it
 * there, and copies it to the others. */
static enum status fill(struct engine_bench *bench, uint32_t depth, struct error *err)
{
    while (bench->filled < depth) {
        uint32_t count = min_u32(depth - bench->filled, bench->most_rows);
        TRY(step(bench, &(struct rows){1, bench->filled, count, false}, err));
        bench->filled += count;
    }
    if (bench->copied >= depth)
        return STATUS_OK;
    bench->copied = depth;
    for (uint32_t i = 1; i < bench->max_batch; i++)
        for (uint32_t b = 0; b < blocks_for(depth); b++)
            TRY(engine_move_block(bench->engine, ENGINE_COPY, blocks_of(bench, 0)[b],
                                  blocks_of(bench, i)[b], err));
    return engine_moves_done(bench->engine, err);
}

/* --- measuring --- */

#define STEP_PROBES 8

/* The machine's limits while a figure is measured: probes among its steps, of which `finish` takes
 * the median. */
struct probes {
    double peak_gflops[STEP_PROBES + 2], read_gbs[STEP_PROBES + 2];
    uint32_t count;
};

static void probe(struct engine_bench *bench, struct probes *probes)
{
    bench->limits = engine_measure_limits(bench->engine);
    probes->peak_gflops[probes->count] = bench->limits.peak_gflops;
    probes->read_gbs[probes->count++] = bench->limits.read_gbs;
}

/* Returns the rows of a prompt in one step. */
static uint32_t chunk_of(const struct engine_bench *bench, uint32_t tokens)
{
    return bench->config.chunk ? min_u32(tokens, bench->config.chunk) : tokens;
}

/* Makes a step and adds it to the sample. `ran` is in seconds until `finish`. */
static enum status timed_step(struct engine_bench *bench, const struct timed *timed,
                              struct error *err)
{
    struct bench_sample *sample = timed->sample;
    bench->profile = (struct kernels_profile){0};
    uint64_t ran_ns = clock_process_ran_ns(), begun_ns = clock_now_ns();
    TRY(step(bench, &timed->rows, err));
    sample->seconds += (double)(clock_now_ns() - begun_ns) * 1e-9;
    sample->ran += (double)(clock_process_ran_ns() - ran_ns) * 1e-9;
    sample->linear_s += (double)bench->profile.linear * 1e-9;
    sample->attention_s += (double)bench->profile.attention * 1e-9;
    return STATUS_OK;
}

/* Makes steps on a device that runs ahead. Decode steps are fed the tokens of the step before. */
static enum status steps_ahead(struct engine_bench *bench, const struct timed *steps,
                               uint32_t count, struct error *err)
{
    engine_ticket tickets[ENGINE_TICKETS];
    uint64_t ended_ns = clock_now_ns();
    for (uint32_t i = 0; i <= count; i++) {
        struct engine_sequence *next = bench->sequences + i % ENGINE_TICKETS * bench->max_batch;
        if (i < count) {
            bool fed = i && steps[i - 1].rows.draws && steps[i].rows.count == 1 &&
                       engine_feeds(bench->engine, &bench->sampling);
            lay_out(bench, &steps[i].rows, fed, next);
            TRY(engine_submit(bench->engine, next, steps[i].rows.sequences,
                              &tickets[i % ENGINE_TICKETS], err));
        }
        if (!i)
            continue;
        uint32_t before = (i - 1) % ENGINE_TICKETS;
        TRY(engine_wait(bench->engine, tickets[before],
                        bench->sequences + before * bench->max_batch, steps[i - 1].rows.sequences,
                        err));
        uint64_t before_ns = ended_ns;
        ended_ns = clock_now_ns();
        steps[i - 1].sample->seconds += (double)engine_step_us(bench->engine) * 1e-6;
        steps[i - 1].sample->wall_s += (double)(ended_ns - before_ns) * 1e-9;
    }
    return STATUS_OK;
}

static enum status timed_steps(struct engine_bench *bench, const struct timed *steps,
                               uint32_t count, struct error *err)
{
    if (engine_runs_ahead(bench->engine))
        return steps_ahead(bench, steps, count, err);
    for (uint32_t i = 0; i < count; i++)
        TRY(timed_step(bench, &steps[i], err));
    return STATUS_OK;
}

static void finish(const struct engine_bench *bench, struct probes *probes,
                   struct bench_sample *sample)
{
    sample->peak_gflops = median(probes->peak_gflops, probes->count);
    sample->read_gbs = median(probes->read_gbs, probes->count);
    if (engine_runs_ahead(bench->engine))
        sample->ran = sample->seconds / sample->wall_s;
    else
        sample->ran /= sample->seconds * bench->config.kernels.threads;
}

static enum status measure_prefill(struct engine_bench *bench, const struct bench_figure *figure,
                                   struct bench_sample *sample, struct error *err)
{
    struct probes probes = {.count = 0};
    uint32_t steps = 0;
    *sample = (struct bench_sample){0};
    probe(bench, &probes);
    for (uint32_t first = 0, count; first < figure->tokens; first += count) {
        count = chunk_of(bench, figure->tokens - first);
        bool is_last = first + count == figure->tokens;
        bench->steps[steps++] = (struct timed){{1, first, count, is_last}, sample};
    }
    TRY(timed_steps(bench, bench->steps, steps, err));
    probe(bench, &probes);
    finish(bench, &probes, sample);
    bench->filled = max_u32(bench->filled, figure->tokens);
    return STATUS_OK;
}

/* Measures one batch at all depths, with a step at each in turn, and each first in turn: a
 * disturbance of the machine hits all of them. The context of a depth contains that of a lesser
 * one, since positions have the same tokens. */
static enum status measure_depths(struct engine_bench *bench, struct bench_figure *const *figures,
                                  uint32_t count, uint32_t round, struct error *err)
{
    struct probes probes = {.count = 0};
    uint32_t steps = bench->config.decode_steps;
    /* A device has nothing else to do between its steps: they are measured without a break. */
    uint32_t apart = engine_runs_ahead(bench->engine) ? steps : divide_up(steps, STEP_PROBES);
    for (uint32_t d = 0; d < count; d++) {
        TRY(fill(bench, figures[d]->depth, err));
        figures[d]->samples[round] = (struct bench_sample){0};
    }
    for (uint32_t first = 0; first < steps; first += apart) {
        uint32_t laid = 0;
        probe(bench, &probes);
        for (uint32_t i = first; i < min_u32(first + apart, steps); i++)
            for (uint32_t turn = 0; turn < count; turn++) {
                struct bench_figure *figure = figures[(i + turn) % count];
                bench->steps[laid++] = (struct timed){{figure->batch, figure->depth + i, 1, true},
                                                      &figure->samples[round]};
            }
        TRY(timed_steps(bench, bench->steps, laid, err));
    }
    probe(bench, &probes);
    for (uint32_t d = 0; d < count; d++)
        finish(bench, &probes, &figures[d]->samples[round]);
    return STATUS_OK;
}

static void tell(const struct engine_bench *bench, struct bench_turn turn)
{
    const struct engine_bench_config *config = &bench->config;
    if (!config->progress)
        return;
    turn.count = config->prefill.count + (config->depth.count ? config->batch.count : 0);
    config->progress(config->context, &turn);
}

enum status engine_bench_round(struct engine_bench *bench, uint32_t round, struct error *err)
{
    const struct engine_bench_config *config = &bench->config;
    struct bench_figure *figure = bench->figures;
    uint32_t shallowest = largest(&config->depth);
    if (round == 0) { /* warms up pages, threads and clocks */
        uint32_t count = min_u32(bench->longest, WARM_ROWS);
        TRY(step(bench, &(struct rows){1, 0, count, true}, err));
        TRY(step(bench, &(struct rows){bench->max_batch, 0, 1, true}, err));
    }
    for (uint32_t d = 0; d < config->depth.count; d++)
        shallowest = min_u32(shallowest, config->depth.values[d]);
    for (uint32_t i = 0; i < config->prefill.count; i++, figure++) {
        tell(bench, (struct bench_turn){round, i, .tokens = figure->tokens});
        TRY(measure_prefill(bench, figure, &figure->samples[round], err));
    }
    for (uint32_t b = 0; b < config->batch.count; b++) {
        struct bench_figure *depths[ENGINE_BENCH_MAX_SIZES];
        tell(bench,
             (struct bench_turn){round, config->prefill.count + b, .batch = config->batch.values[b],
                                 .shallowest = shallowest, .deepest = largest(&config->depth)});
        for (uint32_t d = 0; d < config->depth.count; d++)
            depths[d] = &figure[d * config->batch.count + b];
        TRY(measure_depths(bench, depths, config->depth.count, round, err));
    }
    return STATUS_OK;
}

/* --- figures --- */

/* Counts the arithmetic and bytes of rows [position, end) of so many sequences in `steps` steps. */
static void add_work(const struct engine_bench *bench, uint32_t sequences, uint32_t position,
                     uint32_t end, uint32_t steps, struct bench_figure *figure)
{
    const struct model_shape *s = engine_shape(bench->engine);
    double d = s->hidden, query = (double)s->heads * s->head_dim;
    double kv = (double)s->kv_heads * s->head_dim, rows = (double)sequences * (end - position);
    double layers = s->layers * (d * (query + 2 * kv) + d * query + 3 * d * s->ffn);
    double seen = 0; /* positions, sum over the rows of a sequence */
    for (uint32_t p = position; p < end; p++)
        seen += s->window && p >= s->window ? s->window : p + 1;
    double kv_bytes = (double)kv_layout_block_bytes(engine_layout(bench->engine)) / BLOCK_TOKENS;
    figure->rows = rows;
    figure->linear_gflop = 2e-9 * (rows * layers + (double)sequences * steps * s->vocab * d);
    figure->attention_gflop = 4e-9 * sequences * seen * query * s->layers;
    figure->weight_gb = 1e-9 * steps * (double)bench->limits.weight_bytes;
    figure->kv_gb = figure->tokens ? 0 : 1e-9 * sequences * seen * kv_bytes;
}

static void list_figures(struct engine_bench *bench)
{
    const struct engine_bench_config *config = &bench->config;
    struct bench_figure *figure = bench->figures;
    for (uint32_t i = 0; i < config->prefill.count; i++, figure++) {
        figure->tokens = config->prefill.values[i];
        add_work(bench, 1, 0, figure->tokens, 1, figure);
        figure->weight_gb *= divide_up(figure->tokens, chunk_of(bench, figure->tokens));
    }
    for (uint32_t d = 0; d < config->depth.count; d++)
        for (uint32_t b = 0; b < config->batch.count; b++, figure++) {
            figure->depth = config->depth.values[d];
            figure->batch = config->batch.values[b];
            add_work(bench, figure->batch, figure->depth, figure->depth + config->decode_steps,
                     config->decode_steps, figure);
        }
    bench->figure_count = (uint32_t)(figure - bench->figures);
}

/* --- opening --- */

static enum status open_engine(struct engine_bench *bench, struct error *err)
{
    const struct engine_bench_config *c = &bench->config;
    uint32_t prompt_rows = chunk_of(bench, largest(&c->prefill));
    uint32_t rows = max_u32(max_u32(prompt_rows, bench->max_batch), WARM_ROWS);
    if (bench->longest > largest(&c->prefill))
        rows = max_u32(rows, FILL_ROWS);
    bench->most_rows = rows;
    struct engine_config config = {.model_dir = c->model_dir,
                                   .random_weights = c->random_weights,
                                   .weights = c->weights,
                                   .kv = c->kv,
                                   .weight_cache = c->weight_cache,
                                   .kernels = c->kernels,
                                   .block_tokens = BLOCK_TOKENS,
                                   .block_count = pool_blocks(bench),
                                   .max_rows = rows,
                                   .max_sequences = bench->max_batch,
                                   .smaller = "a smaller --batch or --depth, shorter prompts"};
    peak_memory_begin();
    uint64_t begun_ns = clock_now_ns();
    TRY(engine_open(&config, &bench->engine, err));
    bench->load_s = (double)(clock_now_ns() - begun_ns) * 1e-9;
    TRY(engine_attach_pool(bench->engine, NULL, err));
    if (!engine_runs_ahead(bench->engine)) /* its calls only queue the work */
        engine_profile_to(bench->engine, &bench->profile);
    bench->limits = engine_measure_limits(bench->engine);
    return STATUS_OK;
}

/* Writes the sentence about decode steps that don't fit the model's context; "": they fit. */
static void name_depths(const struct engine_bench *bench, uint32_t context, char *text, size_t size)
{
    uint32_t steps = bench->config.decode_steps;
    *text = 0;
    if (bench->deepest <= context)
        return;
    if (steps > context)
        snprintf(text, size,
                 "--decode %u does not fit the model's context of %u tokens: at most --decode %u, "
                 "with --depth 0",
                 steps, context, context);
    else
        snprintf(text, size,
                 "--depth %u with --decode %u makes %u tokens, which do not fit the model's "
                 "context of %u: at most --depth %u",
                 largest(&bench->config.depth), steps, bench->deepest, context, context - steps);
}

/* Checks the sizes before minutes go into loading the model. */
static enum status check_context(const struct engine_bench *bench, struct error *err)
{
    struct model_config model;
    char prompts[200] = "", depths[200];
    TRY(model_config_read(bench->config.model_dir, &model, err));
    uint32_t prompt = largest(&bench->config.prefill), context = model.shape.context;
    if (prompt > context)
        snprintf(prompts, sizeof prompts,
                 "--prefill %u does not fit the model's context of %u tokens: at most --prefill %u",
                 prompt, context, context);
    name_depths(bench, context, depths, sizeof depths);
    if (!*prompts && !*depths)
        return STATUS_OK;
    return error_set(err, STATUS_INVALID, "%s%s%s", prompts, *prompts && *depths ? "; " : "",
                     depths);
}

static enum status make_memory(struct engine_bench *bench, struct error *err)
{
    bench->tokens = calloc(bench->longest, sizeof *bench->tokens);
    bench->blocks = calloc(pool_blocks(bench), sizeof *bench->blocks);
    bench->sequences = calloc((size_t)ENGINE_TICKETS * bench->max_batch, sizeof *bench->sequences);
    bench->figures = calloc(MAX_FIGURES, sizeof *bench->figures);
    uint32_t prompt = largest(&bench->config.prefill);
    uint32_t chunks = prompt ? divide_up(prompt, chunk_of(bench, prompt)) : 0;
    uint32_t decodes = bench->config.decode_steps * bench->config.depth.count;
    bench->steps = calloc(max_u32(max_u32(chunks, decodes), 1), sizeof *bench->steps);
    if (!bench->tokens || !bench->blocks || !bench->sequences || !bench->figures || !bench->steps)
        return error_set(err, STATUS_LIMIT, "out of memory");
    for (uint32_t i = 0; i < pool_blocks(bench); i++)
        bench->blocks[i] = i;
    return STATUS_OK;
}

enum status engine_bench_open(const struct engine_bench_config *config, struct engine_bench **out,
                              struct error *err)
{
    struct engine_bench *bench = calloc(1, sizeof *bench);
    if (!bench)
        return error_set(err, STATUS_LIMIT, "out of memory");
    bench->config = *config;
    bench->sampling = sampling_default();
    bench->sampling.temperature = config->temperature;
    bench->sampling.top_p = config->top_p;
    bool decodes = config->depth.count && config->batch.count;
    bench->deepest = decodes ? largest(&config->depth) + config->decode_steps : 1;
    bench->longest = max_u32(largest(&config->prefill), bench->deepest);
    bench->max_batch = decodes ? largest(&config->batch) : 1;
    enum status status = check_context(bench, err);
    if (status == STATUS_OK)
        status = make_memory(bench, err);
    if (status == STATUS_OK)
        status = open_engine(bench, err);
    if (status != STATUS_OK) {
        engine_bench_close(bench);
        return status;
    }
    struct rng rng = rng_seeded(1);
    for (uint32_t i = 0; i < bench->longest; i++)
        bench->tokens[i] = (uint32_t)rng_below(&rng, engine_shape(bench->engine)->vocab);
    list_figures(bench);
    *out = bench;
    return STATUS_OK;
}

void engine_bench_close(struct engine_bench *bench)
{
    if (!bench)
        return;
    engine_close(bench->engine);
    free(bench->tokens);
    free(bench->blocks);
    free(bench->sequences);
    free(bench->figures);
    free(bench->steps);
    free(bench);
}

/* --- facts --- */

struct engine_bench_facts engine_bench_facts(const struct engine_bench *bench)
{
    return (struct engine_bench_facts){.model_dir = bench->config.model_dir,
                                       .random_weights = bench->config.random_weights,
                                       .numerics = engine_numerics_name(bench->engine),
                                       .isa = bench->limits.isa,
                                       .instruction = bench->limits.instruction,
                                       .threads = bench->config.kernels.threads,
                                       .chunk = bench->config.chunk,
                                       .weight_bytes = bench->limits.weight_bytes,
                                       .load_s = bench->load_s,
                                       .held_bytes = engine_weight_bytes(bench->engine) +
                                                     engine_pool_bytes(bench->engine),
                                       .peak_bytes = peak_memory_bytes(),
                                       .device_bytes = bench->limits.device_bytes,
                                       .is_ahead = engine_runs_ahead(bench->engine)};
}

const struct bench_figure *engine_bench_figures(const struct engine_bench *bench, uint32_t *count)
{
    *count = bench->figure_count;
    return bench->figures;
}
