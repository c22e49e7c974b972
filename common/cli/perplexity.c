#include "common/cli/perplexity.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

double perplexity_value(const struct perplexity *perplexity)
{
    return exp(perplexity->nll_sum / (double)perplexity->scored);
}

double perplexity_nll(const float *logits, uint32_t vocab, uint32_t token)
{
    double most = logits[0], sum = 0;
    for (uint32_t i = 1; i < vocab; i++)
        most = logits[i] > most ? logits[i] : most;
    for (uint32_t i = 0; i < vocab; i++)
        sum += exp(logits[i] - most);
    return log(sum) + most - logits[token];
}

/* Windows that run side by side. */
struct side {
    const struct perplexity_run *run;
    const uint32_t *tokens; /* of the first of them */
    uint32_t count, blocks_each;
    const uint32_t *blocks; /* 0, 1, 2 ... */
    const struct sampling *sampling;
};

static enum status run_position(const struct side *side, uint32_t position,
                                struct perplexity *result, struct error *err)
{
    const struct perplexity_run *run = side->run;
    struct engine_sequence sequences[PERPLEXITY_MAX_SIDE];
    for (uint32_t i = 0; i < side->count; i++)
        sequences[i] = (struct engine_sequence){
            .tokens = side->tokens + (size_t)i * run->window_tokens + position,
            .token_count = 1,
            .position = position,
            .blocks = side->blocks + (size_t)i * side->blocks_each,
            .block_count = side->blocks_each,
            .prompt_rows = 1,
            .sample = true,
            .sampling = side->sampling};
    TRY(engine_step(run->engine, sequences, side->count, err));
    for (uint32_t i = 0; i < side->count; i++) {
        uint64_t at = (uint64_t)(sequences[i].tokens - run->tokens) + 1;
        if (sequences[i].status != STATUS_OK)
            return error_set(err, STATUS_INTERNAL,
                             "the logits behind token %" PRIu64
                             " aren't finite: the weights, or their arithmetic, overflow",
                             at);
        result->nll_sum +=
            perplexity_nll(sequences[i].logits, engine_shape(run->engine)->vocab, run->tokens[at]);
        result->scored++;
    }
    return STATUS_OK;
}

/* Those that only are scored, the engine never sees. */
static enum status check_tokens(const struct perplexity_run *run, struct error *err)
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

enum status perplexity_measure(const struct perplexity_run *run, struct perplexity *result,
                               struct error *err)
{
    TRY(check_tokens(run, err));
    uint64_t windows = run->token_count / run->window_tokens;
    uint32_t most = windows < PERPLEXITY_MAX_SIDE ? (uint32_t)windows : PERPLEXITY_MAX_SIDE;
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
            if (run->progress)
                run->progress(run->context, result, windows * (run->window_tokens - 1));
        }
    }
    free(blocks);
    return status;
}
