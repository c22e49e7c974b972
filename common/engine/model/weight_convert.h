/* Converts weights from the types of files to those of backends: bf16, fp16 and fp32 to fp32
 * (exact) or bf16 (to nearest, ties to even; beyond the range infinity; NaN stays NaN). PURE. */
#ifndef BATON_ENGINE_MODEL_WEIGHT_CONVERT_H
#define BATON_ENGINE_MODEL_WEIGHT_CONVERT_H

#include "common/engine/model/safetensors.h"
#include "kernels/kernels.h"

uint32_t float_type_bytes(enum float_type type);
/* `source` may lie at any byte; `out` is aligned for its type. */
void weight_convert(enum float_type type, const void *source, size_t count,
                    enum weight_type out_type, void *out);
/* Returns true if a backend of that type can read the source in place. */
bool weight_is_ready(enum float_type type, const void *source, enum weight_type wanted);

#endif
