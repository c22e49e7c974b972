#include "common/engine/model/logit_edits.h"

#include <float.h>
#include <math.h>

#define IN_PROMPT (1u << 31) /* of a count; answers are shorter */

void logit_edits_bias(float *logits, uint32_t vocab, const struct sampling *sampling)
{
    for (uint32_t i = 0; i < sampling->bias_count; i++) {
        const struct logit_bias *bias = &sampling->biases[i];
        if (bias->id < vocab)
            logits[bias->id] = bias->bias <= -100 ? -INFINITY : logits[bias->id] + bias->bias;
    }
}

bool logit_edits_penalizes(const struct sampling *sampling)
{
    return sampling->presence_penalty != 0 || sampling->frequency_penalty != 0 ||
           sampling->repetition_penalty != 1;
}

static float penalized(float logit, uint32_t count, const struct sampling *sampling)
{
    float repetition = sampling->repetition_penalty;
    uint32_t in_answer = count & ~IN_PROMPT;
    logit = logit > 0 ? logit / repetition : logit * repetition;
    logit -= sampling->frequency_penalty * (float)in_answer;
    if (in_answer)
        logit -= sampling->presence_penalty;
    return logit < FLT_MAX ? logit : FLT_MAX;
}

void logit_edits_penalize(float *logits, uint32_t vocab, uint32_t *counts,
                          const struct sampling *sampling, const struct logit_history *history)
{
    uint32_t prompt_count = history->count - history->answer_count;
    for (uint32_t i = 0; i < history->count; i++) {
        uint32_t id = history->tokens[i];
        if (id >= vocab)
            continue;
        if (i < prompt_count)
            counts[id] |= IN_PROMPT;
        else
            counts[id]++;
    }
    for (uint32_t i = 0; i < history->count; i++) {
        uint32_t id = history->tokens[i];
        if (id >= vocab || !counts[id])
            continue;
        logits[id] = penalized(logits[id], counts[id], sampling);
        counts[id] = 0;
    }
}
