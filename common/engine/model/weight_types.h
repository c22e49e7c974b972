/* Which type the weights of each layer get: what the caller asks for, what the folder holds, what
 * the backend computes with. PURE.
 *
 * The matrices of a quantized folder (quantization_config of config.json), under the names that
 * float ones have:
 *     int8   dtype I8 [n, k], and "NAME.scale" F32 [n]
 *     int4   dtype U8 [n, ceil(k / 2)], packed as kernels.h says, and "NAME.scale" BF16 [n, ceil(k / 128)]
 * In an int4 folder the embedding and the LM head are int8. Everything else is as in a float
 * folder. */
#ifndef BATON_ENGINE_MODEL_WEIGHT_TYPES_H
#define BATON_ENGINE_MODEL_WEIGHT_TYPES_H

#include "common/language/model_config/model_config.h"
#include "kernels/kernels.h"

/* AUTO: as the folder holds them, floats in the backend's own type. BF16: a folder of floats, not
 * quantized. INT8, INT4: quantized while they are loaded, or a folder that is so already. */
enum weight_choice { WEIGHTS_AUTO, WEIGHTS_BF16, WEIGHTS_INT8, WEIGHTS_INT4 };
extern const char *const weight_choice_names[]; /* in the order of the enum, NULL behind the last */

struct weight_types {
    enum weight_type layers;
    enum weight_type ends; /* embedding and LM head */
    bool stored;           /* quantized, and the folder holds them so */
};

/* Of a quantized folder, or of floats quantized to it. */
struct weight_types weight_types_of(enum model_quantization quantization, enum weight_type floats);

/* STATUS_INVALID with a sentence: the choice and the folder, or the backend, don't go together. */
enum status weight_types_choose(enum weight_choice choice, enum model_quantization folder,
                                enum weight_type floats, struct weight_types *types,
                                struct error *err) WARN_UNUSED;

#endif
