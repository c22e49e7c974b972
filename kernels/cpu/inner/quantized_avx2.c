#include "kernels/cpu/inner/quantized_madd.h"

const struct quantized_inner quantized_avx2 = QUANTIZED_TABLE("avx2");
