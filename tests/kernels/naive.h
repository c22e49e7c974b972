/* The operations in double precision, straight from their formulas. Every backend is compared with
 * them. */
#ifndef BATON_TESTS_KERNELS_NAIVE_H
#define BATON_TESTS_KERNELS_NAIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

float naive_widen(uint16_t bf16);
uint16_t naive_round(float value); /* to nearest, ties to even */

/* out[t][i] += sum over j of in[t][j] * weights[i][j]. */
void naive_linear(const uint16_t *weights, const float *in, size_t rows, size_t n, size_t k,
                  double *out);

struct attention_case {
    uint32_t heads, kv_heads, head_dim, block_tokens, context;
    uint32_t window; /* positions that a row sees, itself included; 0: all */
    bool int8;       /* keys and values are quantized */
};

/* qkv: [context][(H + 2G) E]; out: [context][H E], causal. */
void naive_attention(const struct attention_case *shape, const float *qkv, double *out);

#endif
