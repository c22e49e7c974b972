#include "common/base/domain/model_shape.h"

uint32_t kv_type_bytes(enum kv_type type)
{
    switch (type) {
    case KV_F32: return 4;
    case KV_BF16: return 2;
    case KV_INT8: return 1;
    }
    return 0;
}

uint32_t kv_type_scale_bytes(enum kv_type type)
{
    return type == KV_INT8 ? sizeof(float) : 0;
}

const char *kv_type_name(enum kv_type type)
{
    static const char *const names[] = {[KV_F32] = "f32", [KV_BF16] = "bf16", [KV_INT8] = "int8"};
    return names[type];
}

const char *rope_type_name(enum rope_type type)
{
    static const char *const names[] = {
        [ROPE_DEFAULT] = "default", [ROPE_LINEAR] = "linear", [ROPE_DYNAMIC] = "dynamic",
        [ROPE_LLAMA3] = "llama3",   [ROPE_YARN] = "yarn",     [ROPE_LONGROPE] = "longrope"};
    return names[type];
}
