#include "common/engine/kv_choice.h"

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
