/* weight_quantize of kernels.h. It runs on the CPU: no backend's device takes part. PURE; any
 * thread. */
#ifndef BATON_KERNELS_CPU_QUANTIZE_H
#define BATON_KERNELS_CPU_QUANTIZE_H

#include "kernels/kernels.h"

struct quantizer;

/* Returns the fastest quantizer that this CPU runs. */
const struct quantizer *quantizer_best(void);

/* weight_quantize by the given quantizer; all give the same bytes. */
enum status quantize_rows(const struct quantizer *quantizer, enum weight_type type,
                          const float *rows, uint32_t row_count, uint32_t k, uint8_t *numbers,
                          float *scales, uint32_t *bad_row) WARN_UNUSED;

#endif
