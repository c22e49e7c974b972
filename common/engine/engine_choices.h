/* What the types that are asked for and the arithmetic get wrong together, whatever the model: for
 * settings, before anything is opened. The sentences are engine_open's. PURE. */
#ifndef BATON_ENGINE_ENGINE_CHOICES_H
#define BATON_ENGINE_ENGINE_CHOICES_H

#include "common/engine/kv_choice.h"
#include "common/engine/model/weight_types.h"

#include <stdbool.h>

/* f32: as of struct kernels_config; folder: how the model's is quantized, MODEL_FLOAT where that
 * isn't known yet. STATUS_INVALID: bf16 of fp32 arithmetic, or other weights than a quantized
 * folder's. */
enum status engine_check_weights(bool f32, enum weight_choice weights,
                                 enum model_quantization folder, struct error *err) WARN_UNUSED;
enum status engine_check_kv(bool f32, enum kv_choice kv, struct error *err) WARN_UNUSED;

#endif
