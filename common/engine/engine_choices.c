#include "common/engine/engine_choices.h"

const char *const kv_choice_names[] = {"auto", "bf16", "int8", NULL};

enum status kv_choice_type(enum kv_choice choice, enum kv_type floats, enum kv_type *type,
                           struct error *err)
{
    if (choice == KV_CHOICE_BF16 && floats != KV_BF16)
        return error_set(err, STATUS_INVALID,
                         "kv bf16: compute f32 holds keys and values as f32; take auto or int8");
    *type = choice == KV_CHOICE_INT8 ? KV_INT8 : floats;
    return STATUS_OK;
}

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

enum status engine_check_device(const char *text, struct error *err)
{
    enum device device;
    uint32_t ordinal;
    return device_parse(text, &device, &ordinal, err);
}
