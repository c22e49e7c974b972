/* Which type the KV pool gets: what the caller asks for, and the backend's floats. PURE. */
#ifndef BATON_ENGINE_KV_CHOICE_H
#define BATON_ENGINE_KV_CHOICE_H

#include "common/base/domain/model_shape.h"
#include "common/base/status.h"

/* AUTO: floats in the backend's own type. BF16: insists on it. INT8: a byte a number, and a scale
 * for each token of a head. */
enum kv_choice { KV_CHOICE_AUTO, KV_CHOICE_BF16, KV_CHOICE_INT8 };
extern const char *const kv_choice_names[]; /* in the order of the enum, NULL behind the last */

/* STATUS_INVALID with a sentence: bf16, and a backend of other floats. */
enum status kv_choice_type(enum kv_choice choice, enum kv_type floats, enum kv_type *type,
                           struct error *err) WARN_UNUSED;

#endif
