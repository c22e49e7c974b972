#include "common/engine/model/random_weights.h"

#include "common/base/str.h"

#include <string.h>

#define STANDARD_DEVIATION 0.02f

struct random_weights random_weights_of(const char *tensor_name)
{
    return (struct random_weights){
        .rng = rng_seeded(hash_bytes(tensor_name, strlen(tensor_name), HASH_SEED))};
}

static uint16_t round_to_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

void random_weights_take(struct random_weights *random, uint16_t *bf16_values, size_t count)
{
    /* Four uniforms of 16 bits: mean 2 * 65535, standard deviation 65536 * sqrt(4 / 12). */
    const float scale = STANDARD_DEVIATION / (65536.0f * 0.57735027f);
    for (size_t i = 0; i < count; i++) {
        uint64_t bits = rng_next(&random->rng);
        int32_t sum = (int32_t)((bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) +
                                (bits >> 48));
        bf16_values[i] = round_to_bf16((float)(sum - 2 * 65535) * scale);
    }
}
