#include "kernels/cpu/inner/attention_scan_fma.h"
#include "kernels/cpu/inner/product_fma.h"

#include "kernels/cpu/inner/inner_body.h"

const struct inner inner_avx512 = INNER_TABLE("avx512");
