#include "kernels/cpu/inner/quantizer_body.h"

const struct quantizer quantizer_avx2 = QUANTIZER_TABLE("avx2");
