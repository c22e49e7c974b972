/* Perplexity of a model on a row of tokens: e to the mean negative log-likelihood.
 *
 * The tokens are cut into windows without overlap; what is left behind the last whole one is not
 * used. Nothing is put in front of a window, and its first token is not scored. Log-softmax in fp64
 * of the fp32 logits. Windows run side by side, a row of each in a step: a row's logits are the
 * same bits however it is computed, and no step makes more logits than there are windows in it.
 *
 * Owner: one thread, which becomes the engine's step thread. */
#ifndef BATON_CLI_PERPLEXITY_H
#define BATON_CLI_PERPLEXITY_H

#include "common/engine/engine.h"

#define PERPLEXITY_MAX_SIDE 32 /* windows side by side */

struct perplexity {
    double nll_sum; /* nats */
    uint64_t scored;
};

/* e^(nll_sum / scored) */
double perplexity_value(const struct perplexity *perplexity);
/* -log softmax(logits)[token], nats. */
double perplexity_nll(const float *logits, uint32_t vocab, uint32_t token);

struct perplexity_run {
    /* Takes steps of min(windows, PERPLEXITY_MAX_SIDE) sequences; its pool holds so many
     * windows. */
    struct engine *engine;
    const uint32_t *tokens;
    uint64_t token_count;   /* >= window_tokens */
    uint32_t window_tokens; /* >= 2 */
    /* Called after each step, with what is scored so far; NULL: nobody is told. */
    void (*progress)(void *context, const struct perplexity *so_far, uint64_t to_score);
    void *context;
};

/* STATUS_INTERNAL and a sentence where logits aren't finite. */
enum status perplexity_measure(const struct perplexity_run *run, struct perplexity *result,
                               struct error *err) WARN_UNUSED;

#endif
