#include "common/engine/model/weight_types.h"

const char *const weight_choice_names[] = {"auto", "bf16", "int8", "int4", NULL};

struct weight_types weight_types_of(enum model_quantization quantization, enum weight_type floats)
{
    switch (quantization) {
    case MODEL_FLOAT: break;
    case MODEL_INT8: return (struct weight_types){.layers = WEIGHT_INT8, .ends = WEIGHT_INT8};
    case MODEL_INT4: return (struct weight_types){.layers = WEIGHT_INT4, .ends = WEIGHT_INT8};
    case MODEL_FP8:
    case MODEL_FP8_STATIC:
    case MODEL_FP8_BLOCK:
        return (struct weight_types){.layers = quantization == MODEL_FP8_BLOCK ? WEIGHT_FP8_BLOCK
                                                                               : WEIGHT_FP8,
                                     .ends = floats,
                                     .fp8 = true,
                                     .blocks = quantization == MODEL_FP8_BLOCK,
                                     .fixed_inputs = quantization == MODEL_FP8_STATIC};
    }
    return (struct weight_types){.layers = floats, .ends = floats};
}

void weight_types_widen(struct weight_types *types, enum weight_type floats)
{
    types->layers = floats;
    types->widened = true;
}

enum status weight_types_choose(enum weight_choice choice, enum model_quantization folder,
                                enum weight_type floats, struct weight_types *types,
                                struct error *err)
{
    static const enum model_quantization wanted[] = {
        [WEIGHTS_BF16] = MODEL_FLOAT, [WEIGHTS_INT8] = MODEL_INT8, [WEIGHTS_INT4] = MODEL_INT4};
    static const char *const names[] = {
        [MODEL_INT8] = "int8",      [MODEL_INT4] = "int4",     [MODEL_FP8] = "fp8",
        [MODEL_FP8_STATIC] = "fp8", [MODEL_FP8_BLOCK] = "fp8",
    };
    struct weight_types of_folder = weight_types_of(folder, floats);
    bool widened = choice == WEIGHTS_BF16 && of_folder.fp8;
    enum model_quantization target = choice == WEIGHTS_AUTO || widened ? folder : wanted[choice];
    if (folder != MODEL_FLOAT && target != folder)
        return error_set(err, STATUS_INVALID,
                         "weights %s: the model folder is quantized to %s already; take auto, or "
                         "the folder that it was made from",
                         weight_choice_names[choice], names[folder]);
    if (choice == WEIGHTS_BF16 && floats != WEIGHT_BF16)
        return error_set(err, STATUS_INVALID,
                         "weights bf16: compute f32 holds float weights as f32; take auto, int8 or "
                         "int4");
    *types = weight_types_of(target, floats);
    types->stored = folder != MODEL_FLOAT;
    if (widened)
        weight_types_widen(types, floats);
    return STATUS_OK;
}
