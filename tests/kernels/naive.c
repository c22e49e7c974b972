#include "tests/kernels/naive.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

float naive_widen(uint16_t bf16)
{
    uint32_t bits = (uint32_t)bf16 << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

uint16_t naive_round(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

void naive_linear(const uint16_t *weights, const float *in, size_t rows, size_t n, size_t k,
                  double *out)
{
    for (size_t t = 0; t < rows; t++)
        for (size_t i = 0; i < n; i++)
            for (size_t j = 0; j < k; j++)
                out[t * n + i] += (double)in[t * k + j] * naive_widen(weights[i * k + j]);
}

static void attend(const struct attention_case *shape, const float *qkv, uint32_t row,
                   uint32_t head, double *scores, double *out)
{
    size_t dim = shape->head_dim, width = (shape->heads + 2 * (size_t)shape->kv_heads) * dim;
    uint32_t kv_head = head / (shape->heads / shape->kv_heads);
    const float *q = qkv + row * width + head * dim;
    double max = -INFINITY, sum = 0;
    uint32_t first = shape->window && row >= shape->window ? row - shape->window + 1 : 0;
    for (uint32_t t = first; t <= row; t++) {
        const float *key = qkv + t * width + (shape->heads + kv_head) * dim;
        scores[t] = 0;
        for (size_t d = 0; d < dim; d++)
            scores[t] += (double)q[d] * key[d] / sqrt((double)dim);
        max = fmax(max, scores[t]);
    }
    for (uint32_t t = first; t <= row; t++)
        sum += scores[t] = exp(scores[t] - max);
    memset(out, 0, dim * sizeof *out);
    for (uint32_t t = first; t <= row; t++) {
        const float *value = qkv + t * width + (shape->heads + shape->kv_heads + kv_head) * dim;
        for (size_t d = 0; d < dim; d++)
            out[d] += scores[t] / sum * value[d];
    }
}

void naive_attention(const struct attention_case *shape, const float *qkv, double *out)
{
    double *scores = malloc(shape->context * sizeof *scores);
    if (!scores)
        abort();
    for (uint32_t t = 0; t < shape->context; t++)
        for (uint32_t h = 0; h < shape->heads; h++)
            attend(shape, qkv, t, h, scores,
                   out + ((size_t)t * shape->heads + h) * shape->head_dim);
    free(scores);
}
