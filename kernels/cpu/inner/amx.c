/* What CPUs with tiles do by vectors: all but linear layers (linear_amx.c, quantized_amx.c).
 * AVX-512, and what attention reads next is brought in otherwise. */
#define ATTENTION_NEXT_LEVEL 2
#include "kernels/cpu/inner/attention_scan_fma.h"
#include "kernels/cpu/inner/product_fma.h"

#include "kernels/cpu/inner/inner_body.h"

const struct inner inner_amx = INNER_TABLE("amx");
