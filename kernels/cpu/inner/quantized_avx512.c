#include "kernels/cpu/inner/quantized_madd.h"

const struct quantized_inner quantized_avx512 = QUANTIZED_TABLE("avx512");
