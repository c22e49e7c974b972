/* The types of weights and KV that a caller may choose, and the check that they fit the
 * arithmetic. Needs no model: settings are checked before anything is opened, with the sentences
 * of engine_open. PURE. */
#ifndef BATON_ENGINE_ENGINE_CHOICES_H
#define BATON_ENGINE_ENGINE_CHOICES_H

#include "common/base/domain/model_shape.h"
#include "common/base/status.h"
#include "common/engine/model/weight_types.h"

#include <stdbool.h>

/* The type of the KV pool. AUTO: floats in the backend's own type. BF16: AUTO, but bf16 is
 * required. INT8: one byte a number, and a scale for each token of a head. */
enum kv_choice { KV_CHOICE_AUTO, KV_CHOICE_BF16, KV_CHOICE_INT8 };
extern const char *const kv_choice_names[]; /* in the order of the enum, then NULL */

/* `floats`: the backend's type. STATUS_INVALID with a sentence: bf16 was chosen, and the backend
 * has other floats. */
enum status kv_choice_type(enum kv_choice choice, enum kv_type floats, enum kv_type *type,
                           struct error *err) WARN_UNUSED;

/* f32: as in struct kernels_config. folder: the quantization of the model's folder, MODEL_FLOAT
 * if it is not known yet. STATUS_INVALID: bf16 of fp32 arithmetic, or other weights than a
 * quantized folder's. */
enum status engine_check_weights(bool f32, enum weight_choice weights,
                                 enum model_quantization folder, struct error *err) WARN_UNUSED;
enum status engine_check_kv(bool f32, enum kv_choice kv, struct error *err) WARN_UNUSED;
/* The text of a setting. STATUS_INVALID: none of DEVICE_FORMS. */
enum status engine_check_device(const char *text, struct error *err) WARN_UNUSED;

#endif
