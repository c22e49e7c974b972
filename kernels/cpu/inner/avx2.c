#include "kernels/cpu/inner/attention_scan_avx2.h"
#include "kernels/cpu/inner/product_fma_avx2.h"

#include "kernels/cpu/inner/inner_body.h"

const struct inner inner_avx2 = INNER_TABLE("avx2");
