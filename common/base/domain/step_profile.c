#include "common/base/domain/step_profile.h"

#include "common/base/rng.h"

#include <math.h>

#define TWO_PI 6.283185307179586

/* Streams of the generator: the two uniform numbers behind a normal one (Box and Muller, 1958). */
enum { STREAM_RADIUS, STREAM_ANGLE };

double step_profile_us(const struct step_profile *profile, const struct step_shape *shape,
                       uint64_t step)
{
    struct step_shape rounded = *shape;
    uint32_t tile = profile->prefill_tile;
    if (tile > 1)
        rounded.prefill_rows = (shape->prefill_rows + tile - 1) / tile * tile;
    for (uint32_t i = profile->bucket_count; shape->decode_rows && i-- > 0;)
        if (profile->decode_buckets[i] >= shape->decode_rows)
            rounded.decode_rows = profile->decode_buckets[i];
    const struct step_cost *decode =
        profile->large_from && shape->decode_rows >= profile->large_from ? &profile->decode_large
                                                                         : &profile->decode;
    struct step_cost cost = *decode;
    cost.prefill_row_us = profile->prefill.prefill_row_us;
    cost.prefill_position_us = profile->prefill.prefill_position_us;
    if (!shape->decode_rows || (shape->prefill_rows && profile->prefill.step_us > decode->step_us))
        cost.step_us = profile->prefill.step_us;
    double us = step_cost_predict(&cost, &rounded);
    if (profile->noise_sigma <= 0)
        return us;
    /* 1 - u is in (0, 1]: its logarithm is finite. */
    double radius = sqrt(-2 * log(1 - rng_unit_at(profile->noise_seed, STREAM_RADIUS, step)));
    double z = radius * cos(TWO_PI * rng_unit_at(profile->noise_seed, STREAM_ANGLE, step));
    return us * exp(profile->noise_sigma * z - profile->noise_sigma * profile->noise_sigma / 2);
}

double step_profile_swap_us(const struct step_profile *profile, uint64_t tokens)
{
    if (profile->swap_bytes_per_second <= 0)
        return 0;
    return 1e6 * (double)tokens * (double)profile->kv_bytes_per_token /
           profile->swap_bytes_per_second;
}
