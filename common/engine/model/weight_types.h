/* Chooses the type of the weights of each layer from the caller's wish, the model's folder and the
 * backend's floats. PURE.
 *
 * A quantized folder (quantization_config of config.json) holds its matrices under the names that
 * float matrices have:
 *     int8   dtype I8 [n, k], and "NAME.scale" F32 [n]
 *     int4   dtype U8 [n, ceil(k / 2)], packed as in kernels.h,
 *            and "NAME.scale" BF16 [n, ceil(k / 128)]
 * In an int4 folder the embedding and the LM head are int8. Everything else is as in a float
 * folder.
 *
 * A folder of fp8 holds matrices of layers as F8_E4M3 [n, k], beside "NAME.weight" in floats:
 *     NAME.weight_scale      [] or [1], of the tensor; or [n] or [n, 1], of rows
 *     NAME.weight_scale_inv  (or weight_scale) [ceil(n / 128), ceil(k / 128)], of blocks
 *     NAME.input_scale       [] or [1], of static inputs. Layers that are fused take the largest
 * A weight is number * scale, whatever the name. A matrix in floats, as the LM head often is, is
 * computed as floats; the embedding is always one. */
#ifndef BATON_ENGINE_MODEL_WEIGHT_TYPES_H
#define BATON_ENGINE_MODEL_WEIGHT_TYPES_H

#include "common/language/model_config/model_config.h"
#include "kernels/kernels.h"

/* AUTO: as in the folder; floats in the backend's own type. BF16: floats, not quantized; fp8 of a
 * folder is widened to them. INT8, INT4: quantized while they are loaded, or in the folder
 * already. */
enum weight_choice { WEIGHTS_AUTO, WEIGHTS_BF16, WEIGHTS_INT8, WEIGHTS_INT4 };
extern const char *const weight_choice_names[]; /* in the order of the enum, then NULL */

struct weight_types {
    enum weight_type layers;
    enum weight_type ends;          /* embedding and LM head */
    bool stored;                    /* the folder holds them quantized: */
    bool fp8, blocks, fixed_inputs; /* as e4m3, with scales of blocks, and of inputs */
    bool widened;                   /* from fp8 to floats */
};

/* Returns the types of a quantized folder, or of floats that are quantized like it. */
struct weight_types weight_types_of(enum model_quantization quantization, enum weight_type floats);

/* Computes layers of an fp8 folder as floats. */
void weight_types_widen(struct weight_types *types, enum weight_type floats);

/* STATUS_INVALID with a sentence: the choice contradicts the folder or the backend. */
enum status weight_types_choose(enum weight_choice choice, enum model_quantization folder,
                                enum weight_type floats, struct weight_types *types,
                                struct error *err) WARN_UNUSED;

#endif
