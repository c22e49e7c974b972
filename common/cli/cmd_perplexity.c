#include "common/cli/commands.h"

#include "common/base/clock.h"
#include "common/base/config/config.h"
#include "common/base/log.h"
#include "common/base/progress_line.h"
#include "common/base/str.h"
#include "common/base/u32.h"
#include "common/engine/engine.h"
#include "common/engine/engine_choices.h"
#include "common/language/model_config/model_config.h"
#include "common/language/text/tokenizer.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_TOKENS    32
#define IDS_LIMIT_COUNT (32u << 20)
#define MAX_SIDE        32 /* windows side by side */

enum compute_choice { COMPUTE_FAST, COMPUTE_F32 };

struct settings {
    char model[4096];
    enum compute_choice compute;
    enum weight_choice weights;
    enum kv_choice kv;
    enum isa isa;
    char device[32];
    uint32_t window, threads;
    bool json;
};

static const char *const compute_choices[] = {"fast", "f32", NULL};

#define AT(field) CONFIG_AT(struct settings, field)
static const struct config_setting table[] = {
    {"model", CONFIG_STRING, AT(model), .required = true, .value = "DIR",
     .help = "Hugging Face folder, with its tokenizer.json"},
    {"weights", CONFIG_ENUM, AT(weights), "auto", .choices = weight_choice_names,
     .help = "Weights of matrices: as the folder holds them, or quantized at load"},
    {"kv", CONFIG_ENUM, AT(kv), "auto", .choices = kv_choice_names,
     .help = "Keys and values: floats, or int8 with a scale for each token of a head"},
    {"compute", CONFIG_ENUM, AT(compute), "fast", .choices = compute_choices,
     .help = "Arithmetic: bf16 with fp32 sums, or fp32 throughout"},
    {"isa", CONFIG_ENUM, AT(isa), "auto", .choices = isa_names,
     .help = "Instruction set of the fast path; auto takes the best that the CPU reports"},
    {"device", CONFIG_STRING, AT(device), "cpu", .value = DEVICE_FORMS,
     .help = "Device that computes, as a worker's", .check = engine_check_device},
    {"window", CONFIG_U64, AT(window), "512", "2", "65536", "tokens",
     .help = "The text is cut into windows of so many tokens, which don't see each other"},
    {"threads", CONFIG_U64, AT(threads), "1", "1", "64", .help = "Compute threads"},
    {"json", CONFIG_BOOL, AT(json), "false", .help = "One JSON object instead of a line"},
};
static void check(const void *settings, struct str *mistakes)
{
    const struct settings *s = settings;
    bool f32 = s->compute == COMPUTE_F32;
    struct error err;
    config_mistake(mistakes, engine_check_weights(f32, s->weights, MODEL_FLOAT, &err), &err);
    config_mistake(mistakes, engine_check_kv(f32, s->kv, &err), &err);
    config_mistake(mistakes, kernels_check_isa(f32, s->isa, &err), &err);
}

static const struct config_program program = {
    .name = "baton perplexity",
    .summary =
        "Prints the perplexity of a model on the text in FILE (-: standard input): e to the mean "
        "negative log-likelihood of its tokens.\n"
        "The text is tokenized as a whole, without special tokens, and cut into windows without "
        "overlap. The rest\n"
        "after the last whole window isn't used, and the first token of a window isn't scored.",
    .usage = "FILE",
    .settings = table,
    .setting_count = sizeof table / sizeof *table,
    .check = check,
    .min_positionals = 1,
    .max_positionals = 1,
};

/* --- the text --- */

static enum status read_text(const char *path, struct str *text, struct error *err)
{
    char buffer[65536];
    FILE *file = strcmp(path, "-") ? fopen(path, "rb") : stdin;
    if (!file)
        return error_set(err, STATUS_NOT_FOUND, "cannot open %s: %s", path, strerror(errno));
    errno = 0;
    for (size_t count; !text->truncated && (count = fread(buffer, 1, sizeof buffer, file)) > 0;)
        str_append(text, buffer, count);
    int failed = ferror(file) ? errno : 0;
    if (file != stdin)
        fclose(file);
    if (failed)
        return error_set(err, STATUS_IO, "cannot read %s: %s", path, strerror(failed));
    if (text->truncated)
        return error_set(err, STATUS_LIMIT, "%s is longer than %u bytes", path,
                         TOKENIZER_LIMIT_TEXT);
    return STATUS_OK;
}

static enum status encode(const struct settings *settings, const char *path, const struct str *text,
                          struct token_ids *ids, struct error *err)
{
    char tokenizer_path[4200];
    struct tokenizer *tokenizer;
    snprintf(tokenizer_path, sizeof tokenizer_path, "%s/tokenizer.json", settings->model);
    enum status status = tokenizer_open(tokenizer_path, &tokenizer, err);
    if (status == STATUS_NOT_FOUND) {
        const struct error why = *err;
        return error_set(err, status, "%s; perplexity needs a tokenizer", why.text);
    }
    TRY(status);
    status = tokenizer_encode(tokenizer, text->data, text->length, false, ids, err);
    tokenizer_close(tokenizer);
    return status == STATUS_OK ? status : error_prefix(err, status, "%s", path);
}

static enum status read_tokens(const struct settings *settings, const char *path,
                               struct token_ids *ids, struct error *err)
{
    struct model_config model;
    struct str text;
    TRY(model_config_read(settings->model, &model, err));
    if (settings->window > model.shape.context) /* comes first: no text is long enough then */
        return error_set(err, STATUS_INVALID,
                         "a window of %u tokens does not fit the model's context of %u",
                         settings->window, model.shape.context);
    str_init(&text, TOKENIZER_LIMIT_TEXT);
    enum status status = read_text(path, &text, err);
    if (status == STATUS_OK)
        status = encode(settings, path, &text, ids, err);
    str_deinit(&text);
    if (status == STATUS_OK && ids->count < settings->window)
        return error_set(
            err, STATUS_INVALID, "%s has %zu tokens, fewer than one window of %u: a longer text%s",
            path, ids->count, settings->window, ids->count < 2 ? "" : ", or a smaller --window");
    return status;
}

/* --- the run --- */

struct perplexity {
    double nll_sum; /* negative log-likelihood, in nats */
    uint64_t scored;
};

struct progress {
    struct progress_line line;
    uint64_t begun_us;
};

struct run {
    struct engine *engine; /* takes steps of MAX_SIDE sequences, or as many as there are windows */
    const uint32_t *tokens;
    uint64_t token_count;   /* >= window_tokens */
    uint32_t window_tokens; /* >= 2 */
    struct progress *progress;
};

static void tell(struct progress *progress, const struct perplexity *so_far, uint64_t to_score)
{
    uint64_t now_us = clock_now_us();
    if (so_far->scored == to_score || !progress_line_due(&progress->line, now_us))
        return;
    double seconds = (double)(now_us - progress->begun_us) * 1e-6;
    progress_line_tell(&progress->line,
                       "%" PRIu64 " of %" PRIu64 " tokens, so far %.4f, about %.0f s left",
                       so_far->scored, to_score, exp(so_far->nll_sum / (double)so_far->scored),
                       seconds * (double)(to_score - so_far->scored) / (double)so_far->scored);
}

/* Returns -log softmax(logits)[token] in nats, computed in fp64. */
static double nll_of(const float *logits, uint32_t vocab, uint32_t token)
{
    double most = logits[0], sum = 0;
    for (uint32_t i = 1; i < vocab; i++)
        most = logits[i] > most ? logits[i] : most;
    for (uint32_t i = 0; i < vocab; i++)
        sum += exp(logits[i] - most);
    return log(sum) + most - logits[token];
}

/* Windows that run side by side, a row of each in a step: a row's logits have the same bits however
 * it is computed, and a step has at most one row of logits for each window. */
struct side {
    const struct run *run;
    const uint32_t *tokens; /* the first window's */
    uint32_t count, blocks_each;
    const uint32_t *blocks; /* 0, 1, 2 ... */
    const struct sampling *sampling;
};

static enum status run_position(const struct side *side, uint32_t position,
                                struct perplexity *result, struct error *err)
{
    const struct run *run = side->run;
    struct engine_sequence sequences[MAX_SIDE];
    for (uint32_t i = 0; i < side->count; i++)
        sequences[i] = (struct engine_sequence){
            .tokens = side->tokens + (size_t)i * run->window_tokens + position,
            .token_count = 1,
            .position = position,
            .blocks = side->blocks + (size_t)i * side->blocks_each,
            .block_count = side->blocks_each,
            .prompt_rows = 1,
            .sample_count = 1,
            .sampling = side->sampling,
            .reads_logits = true};
    TRY(engine_step(run->engine, sequences, side->count, err));
    for (uint32_t i = 0; i < side->count; i++) {
        uint64_t at = (uint64_t)(sequences[i].tokens - run->tokens) + 1;
        if (sequences[i].drawn.status != STATUS_OK)
            return error_set(err, STATUS_INTERNAL,
                             "the logits behind token %" PRIu64
                             " aren't finite: the weights, or their arithmetic, overflow",
                             at);
        result->nll_sum +=
            nll_of(sequences[i].logits, engine_shape(run->engine)->vocab, run->tokens[at]);
        result->scored++;
    }
    return STATUS_OK;
}

/* Checks all ids: a window's last token is only scored, so the engine doesn't check it. */
static enum status check_tokens(const struct run *run, struct error *err)
{
    const uint32_t vocab = engine_shape(run->engine)->vocab;
    for (uint64_t i = 0; i < run->token_count; i++)
        if (run->tokens[i] >= vocab)
            return error_set(err, STATUS_INVALID,
                             "the text's token %" PRIu64
                             " has the id %u, but the model has %u: its "
                             "tokenizer.json is another model's",
                             i + 1, run->tokens[i], vocab);
    return STATUS_OK;
}

static enum status run_windows(const struct run *run, struct perplexity *result, struct error *err)
{
    TRY(check_tokens(run, err));
    uint64_t windows = run->token_count / run->window_tokens;
    uint32_t most = windows < MAX_SIDE ? (uint32_t)windows : MAX_SIDE;
    struct sampling sampling = sampling_default();
    sampling.temperature = 0;
    uint32_t each = kv_layout_blocks_for(engine_layout(run->engine), run->window_tokens);
    uint32_t *blocks = calloc((size_t)most * each, sizeof *blocks);
    if (!blocks)
        return error_set(err, STATUS_LIMIT, "out of memory");
    for (uint32_t i = 0; i < most * each; i++)
        blocks[i] = i;
    *result = (struct perplexity){0};
    enum status status = STATUS_OK;
    for (uint64_t first = 0; first < windows && status == STATUS_OK; first += most) {
        uint64_t left = windows - first;
        struct side side = {.run = run,
                            .tokens = run->tokens + first * run->window_tokens,
                            .count = left < most ? (uint32_t)left : most,
                            .blocks_each = each,
                            .blocks = blocks,
                            .sampling = &sampling};
        for (uint32_t p = 0; p + 1 < run->window_tokens && status == STATUS_OK; p++) {
            status = run_position(&side, p, result, err);
            tell(run->progress, result, windows * (run->window_tokens - 1));
        }
    }
    free(blocks);
    return status;
}

static enum status open_engine(const struct settings *s, uint64_t windows, struct engine **engine,
                               struct error *err)
{
    uint32_t side = windows < MAX_SIDE ? (uint32_t)windows : MAX_SIDE;
    struct engine_config config = {
        .model_dir = s->model,
        .weights = s->weights,
        .kv = s->kv,
        .kernels = {.f32 = s->compute == COMPUTE_F32, .isa = s->isa, .threads = s->threads},
        .block_tokens = BLOCK_TOKENS,
        .block_count = side * divide_up(s->window, BLOCK_TOKENS),
        .max_rows = side,
        .max_sequences = side,
        .smaller = "a smaller --window"};
    TRY(device_parse(s->device, &config.kernels.device, &config.kernels.ordinal, err));
    TRY(engine_open(&config, engine, err));
    return engine_attach_pool(*engine, NULL, err);
}

static void print_result(const struct settings *settings, const struct engine *engine,
                         const struct token_ids *ids, const struct perplexity *result)
{
    double nll = result->nll_sum / (double)result->scored;
    static const char line[] =
        "%s on %s: %zu tokens, windows of %u, %" PRIu64 " scored: %.6f nats, perplexity %.4f\n";
    static const char json[] =
        "{\"numerics\": \"%s\", \"isa\": \"%s\", \"tokens\": %zu, \"window\": %u, \"scored\": "
        "%" PRIu64 ", \"nll\": %.9f, \"perplexity\": %.6f}\n";
    const char *format = settings->json ? json : line;
    printf(format, engine_numerics_name(engine), engine_isa(engine), ids->count, settings->window,
           result->scored, nll, exp(nll));
}

static enum status measure(const struct settings *settings, const struct token_ids *ids,
                           struct error *err)
{
    struct engine *engine = NULL;
    struct perplexity result = {0};
    enum status status = open_engine(settings, ids->count / settings->window, &engine, err);
    if (status == STATUS_OK) {
        uint64_t now_us = clock_now_us();
        struct progress progress = {progress_line_begin(progress_line_terminal(), now_us), now_us};
        const struct run windows = {.engine = engine,
                                    .tokens = ids->data,
                                    .token_count = ids->count,
                                    .window_tokens = settings->window,
                                    .progress = &progress};
        status = run_windows(&windows, &result, err);
        progress_line_end(&progress.line);
    }
    if (status == STATUS_OK)
        print_result(settings, engine, ids, &result);
    engine_close(engine);
    return status;
}

int cmd_perplexity(int argc, char **argv)
{
    struct settings settings = {0};
    struct config_result result;
    struct error err;
    struct token_ids ids;
    config_load_or_exit(&program, argc, argv, &settings, &result);
    log_init("perplexity",
             progress_line_terminal() ? LOG_WARN : LOG_INFO); /* shows a load's progress */
    token_ids_init(&ids, IDS_LIMIT_COUNT);
    enum status status = read_tokens(&settings, result.positionals[0], &ids, &err);
    if (status == STATUS_OK)
        status = measure(&settings, &ids, &err);
    token_ids_deinit(&ids);
    if (status == STATUS_OK)
        return 0;
    fprintf(stderr, "%s: %s\n", program.name, err.text);
    return 1;
}
