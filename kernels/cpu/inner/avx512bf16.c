#include "kernels/cpu/inner/attention_dot.h"
#include "kernels/cpu/inner/product_dot.h"

#include "kernels/cpu/inner/inner_body.h"

const struct inner inner_avx512bf16 = INNER_TABLE("avx512bf16");
