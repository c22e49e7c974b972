/* What a segment's tokens are asked for does not last in a first level of 32 KiB (Zen 4). */
#define ATTENTION_NEXT_LEVEL 2
#include "kernels/cpu/inner/attention_dot.h"
#include "kernels/cpu/inner/product_dot.h"

#include "kernels/cpu/inner/inner_body.h"

const struct inner inner_avx512bf16 = INNER_TABLE("avx512bf16");
