#include "kernels/cpu/inner/quantized_madd.h"

const struct quantized_inner quantized_baseline = QUANTIZED_TABLE("portable");
