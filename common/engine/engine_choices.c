#include "common/engine/engine_choices.h"

enum status engine_check_weights(bool f32, enum weight_choice weights,
                                 enum model_quantization folder, struct error *err)
{
    struct weight_types types;
    return weight_types_choose(weights, folder, f32 ? WEIGHT_F32 : WEIGHT_BF16, &types, err);
}

enum status engine_check_kv(bool f32, enum kv_choice kv, struct error *err)
{
    enum kv_type type;
    return kv_choice_type(kv, f32 ? KV_F32 : KV_BF16, &type, err);
}
