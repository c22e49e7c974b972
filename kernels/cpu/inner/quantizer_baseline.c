#include "kernels/cpu/inner/quantizer_body.h"

const struct quantizer quantizer_baseline = QUANTIZER_TABLE("portable");
