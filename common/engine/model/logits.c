#include "common/engine/model/logits.h"

#include "common/base/assert.h"
#include "common/base/fixed_math.h"
#include "kernels/kernels.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define HASH_LANES 4  /* independent multiply chains: 32 bytes at a time instead of one byte */
#define SUM_LANES  16 /* lane j has ids j, j + SUM_LANES, ...; lanes are added in ascending order */
#define IN_PROMPT  (1u << 31) /* a bit of a count; answers are shorter */

/* ---------------------------------------------------------------- hash */

static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    return hash ^ (hash >> 29);
}

uint64_t logits_hash(const float *logits, size_t count)
{
    const unsigned char *bytes = (const unsigned char *)logits;
    size_t left = count * sizeof *logits;
    uint64_t lane[HASH_LANES] = {1, 2, 3, 4};
    for (; left >= sizeof lane; left -= sizeof lane, bytes += sizeof lane) {
        uint64_t words[HASH_LANES];
        memcpy(words, bytes, sizeof words);
        for (int i = 0; i < HASH_LANES; i++)
            lane[i] = mix(lane[i], words[i]);
    }
    uint64_t tail[HASH_LANES] = {0};
    memcpy(tail, bytes, left);
    uint64_t hash = count;
    for (int i = 0; i < HASH_LANES; i++)
        hash = mix(hash, mix(lane[i], tail[i]));
    return hash;
}

/* ---------------------------------------------------------------- edits */

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

/* `count`: how often the token is in the answer, and IN_PROMPT. */
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

/* ---------------------------------------------------------------- logprobs */

static double sum_exp(const float *logits, uint32_t vocab, float max)
{
    pair pairs[SUM_LANES / 2] = {{0}}, low, high;
    double lanes[SUM_LANES], total = 0;
    uint32_t whole = vocab / SUM_LANES * SUM_LANES;
    for (uint32_t i = 0; i < whole; i += SUM_LANES)
#pragma GCC unroll 1 /* -O3 unrolls this loop otherwise, which is 2 % slower */
        for (uint32_t j = 0; j < SUM_LANES; j += QUAD) {
            quad_widen(quad_exp_negative(quad_load(logits + i + j) - max), &low, &high);
            pairs[j / 2] += low;
            pairs[j / 2 + 1] += high;
        }
    memcpy(lanes, pairs, sizeof lanes);
    for (uint32_t i = whole; i < vocab; i++)
        lanes[i - whole] += (double)exp_negative(logits[i] - max);
    for (uint32_t j = 0; j < SUM_LANES; j++)
        total += lanes[j];
    return total;
}

/* Finds the `limit` greatest logits, in descending order. Ids come in ascending order: of equals
 * the lower id stays in front. */
static uint32_t find_top(const float *logits, uint32_t vocab, uint32_t limit, uint32_t *ids)
{
    uint32_t count = 0;
    for (uint32_t i = 0; limit && i < vocab; i++) {
        if (count == limit && !(logits[i] > logits[ids[count - 1]]))
            continue;
        uint32_t at = count < limit ? count++ : count - 1;
        for (; at > 0 && logits[i] > logits[ids[at - 1]]; at--)
            ids[at] = ids[at - 1];
        ids[at] = i;
    }
    return count;
}

static float logprob_of(float logit, double log_total)
{
    float logprob = (float)((double)logit - log_total);
    return logprob > LOGPROB_FLOOR ? logprob : LOGPROB_FLOOR;
}

enum status logprobs_of(const float *logits, uint32_t vocab, uint32_t token, uint32_t top_count,
                        struct token_logprobs *out)
{
    ASSERT(token < vocab && top_count <= LOGPROBS_MAX_TOP);
    bool sound = true;
    float max = logits[kernels_greatest(logits, vocab, &sound)];
    if (!sound || max == -INFINITY)
        return STATUS_INTERNAL;
    double log_total = (double)max + log_positive(sum_exp(logits, vocab, max));
    *out = (struct token_logprobs){.given = true, .logprob = logprob_of(logits[token], log_total)};
    out->top_count = find_top(logits, vocab, top_count, out->top_ids);
    for (uint32_t i = 0; i < out->top_count; i++)
        out->top_logprobs[i] = logprob_of(logits[out->top_ids[i]], log_total);
    return STATUS_OK;
}
