/* Any bytes as config.json. An accepted file has every number in the range that the rest of the
 * program is sized for. */
#include "common/language/model_config/model_config.h"
#include "tests/fuzz/fuzz.h"

#include <math.h>

static void check_shape(const struct model_shape *shape, const struct end_ids *end_ids)
{
    FUZZ_CHECK(shape->layers && shape->hidden && shape->ffn && shape->vocab && shape->context);
    FUZZ_CHECK(shape->heads && shape->kv_heads && shape->heads % shape->kv_heads == 0);
    FUZZ_CHECK(shape->head_dim && shape->head_dim <= 1024);
    FUZZ_CHECK(shape->window <= 1u << 24 && !(shape->qkv_bias && shape->qk_norm));
    FUZZ_CHECK(isfinite(shape->rms_eps) && shape->rms_eps > 0);
    FUZZ_CHECK(isfinite(shape->rope_theta) && shape->rope_theta > 0);
    FUZZ_CHECK(isfinite(shape->rope_scaling.factor) && shape->rope_scaling.factor >= 1);
    FUZZ_CHECK(isfinite(shape->rope_scaling.attention) && shape->rope_scaling.attention >= 0);
    /* Products that size buffers must fit. */
    FUZZ_CHECK((uint64_t)shape->hidden * shape->vocab < 1ull << 48);
    FUZZ_CHECK((uint64_t)shape->hidden * shape->ffn < 1ull << 48);
    FUZZ_CHECK((uint64_t)shape->heads * shape->head_dim < 1ull << 31);
    FUZZ_CHECK(end_ids->count <= MODEL_MAX_END_IDS);
    for (uint32_t i = 0; i < end_ids->count; i++)
        FUZZ_CHECK(end_ids->ids[i] < shape->vocab);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_quiet();
    fuzz_write("config.json", (struct fuzz_bytes){data, size});
    struct error err;
    struct model_config config = {0};
    if (config_json_read(fuzz_folder(), &config, &err) == STATUS_OK)
        check_shape(&config.shape, &config.end_ids);
    else
        fuzz_check_sentence(err.text);
    return 0;
}
