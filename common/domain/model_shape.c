#include "common/domain/model_shape.h"

uint32_t kv_type_bytes(enum kv_type type)
{
    return type == KV_F32 ? 4 : 2;
}

const char *kv_type_name(enum kv_type type)
{
    return type == KV_F32 ? "f32" : "bf16";
}
