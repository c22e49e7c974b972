/* Scans of struct attention_scan by blocks of a constant number of rows. Included by
 * attention_scan_fma.h and avx512bf16.c, which define the blocks. */
#ifndef BATON_KERNELS_CPU_INNER_ATTENTION_SCAN_H
#define BATON_KERNELS_CPU_INNER_ATTENTION_SCAN_H

#include "kernels/cpu/inner/attention_tokens.h"

#define SCAN_CASE(COUNT)                                                                           \
    case COUNT:                                                                                    \
        if (scan->tokens->int8)                                                                    \
            SCAN_BLOCK(scan, at, r, COUNT, true);                                                  \
        else                                                                                       \
            SCAN_BLOCK(scan, at, r, COUNT, false);                                                 \
        break;
#if SUM_ROWS > 6
#define SCAN_CASES                                                                                 \
    SCAN_CASE(1)                                                                                   \
    SCAN_CASE(2)                                                                                   \
    SCAN_CASE(3)                                                                                   \
    SCAN_CASE(4)                                                                                   \
    SCAN_CASE(5)                                                                                   \
    SCAN_CASE(6) SCAN_CASE(7) SCAN_CASE(8) SCAN_CASE(9) SCAN_CASE(10) SCAN_CASE(11) SCAN_CASE(12)
#elif SUM_ROWS > 4
#define SCAN_CASES SCAN_CASE(1) SCAN_CASE(2) SCAN_CASE(3) SCAN_CASE(4) SCAN_CASE(5) SCAN_CASE(6)
#else
#define SCAN_CASES SCAN_CASE(1) SCAN_CASE(2) SCAN_CASE(3) SCAN_CASE(4)
#endif

static inline uint32_t rows_at_once(uint32_t left)
{
    return left < SUM_ROWS ? left : SUM_ROWS;
}

#define SCAN_BLOCK scan_keys_block
static void scan_keys(const struct attention_scan *scan)
{
    for (uint32_t r = 0; r < scan->count; r += SUM_ROWS)
        for (uint32_t at = 0; at < scan->token_count;
             at += KEY_VECTORS(rows_at_once(scan->count - r)) * VECTOR)
            switch (rows_at_once(scan->count - r)) {
                SCAN_CASES
            }
}
#undef SCAN_BLOCK

#define SCAN_BLOCK scan_values_block
static void scan_values(const struct attention_scan *scan)
{
    for (uint32_t r = 0; r < scan->count; r += SUM_ROWS)
        for (uint32_t at = 0; at < scan->tokens->head_dim; at += 2 * VECTOR)
            switch (rows_at_once(scan->count - r)) {
                SCAN_CASES
            }
}
#undef SCAN_BLOCK

#endif
