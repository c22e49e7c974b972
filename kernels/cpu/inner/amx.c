/* struct inner of CPUs with tiles: AVX-512 for all except linear layers (linear_amx.c,
 * quantized_amx.c). Prefetches of attention go to another level of cache. */
#define ATTENTION_NEXT_LEVEL 2
#include "kernels/cpu/inner/attention_scan_fma.h"
#include "kernels/cpu/inner/product_fma.h"

#include "kernels/cpu/inner/inner_body.h"

const struct inner inner_amx = INNER_TABLE("amx");
