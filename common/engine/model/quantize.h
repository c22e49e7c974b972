/* Float rows to the quantized ones of kernels.h. PURE, and the same bytes on every machine.
 *
 * INT8: scale = max |x| / 127, numbers to nearest, ties to even. INT4: for each group the scale, among a few around the one
 * that maps the number of largest magnitude to -8, that gives the least squared error; then the least-squares scale for those
 * numbers, if it does better. Scales of int4 are numbers that bf16 holds. A row, or group, whose largest magnitude is below
 * 2^-100 becomes zeros with scale 0. */
#ifndef BATON_ENGINE_MODEL_QUANTIZE_H
#define BATON_ENGINE_MODEL_QUANTIZE_H

#include "kernels/kernels.h"

/* rows: f32 [row_count, k]; numbers: [row_count, weight_row_bytes]; scales: [row_count, weight_row_scales]. STATUS_INVALID: an
 * input isn't finite; `bad_row` is its row. */
enum status quantize_rows(enum weight_type type, const float *rows, uint32_t row_count, uint32_t k,
                          uint8_t *numbers, float *scales, uint32_t *bad_row) WARN_UNUSED;

#endif
