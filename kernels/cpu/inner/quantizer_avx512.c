#include "kernels/cpu/inner/quantizer_body.h"

const struct quantizer quantizer_avx512 = QUANTIZER_TABLE("avx512");
