#include "common/engine/model/rope.h"

#include "common/base/assert.h"
#include "common/engine/model/fixed_math.h"

#include <math.h>

/* Long wavelengths are stretched by `factor`, short ones kept, those between blended (Llama
 * 3.1). */
static float scale_frequency(const struct rope_scaling *scaling, float frequency)
{
    if (scaling->factor == 1.0)
        return frequency;
    float context = (float)scaling->original_context, factor = (float)scaling->factor;
    float low = (float)scaling->low_freq_factor, high = (float)scaling->high_freq_factor;
    float wavelength = (float)(2 * M_PI) / frequency;
    if (wavelength > context / low)
        return frequency / factor;
    if (wavelength < context / high)
        return frequency;
    float smooth = (context / wavelength - low) / (high - low);
    return (1 - smooth) * frequency / factor + smooth * frequency;
}

void rope_rows(const struct model_shape *shape, uint32_t first, uint32_t last, float *table)
{
    float frequencies[ROPE_MAX_HEAD_DIM / 2];
    uint32_t half = shape->head_dim / 2;
    ASSERT(shape->head_dim <= ROPE_MAX_HEAD_DIM);
    for (uint32_t i = 0; i < half; i++) {
        float exponent = (float)(2 * i) / (float)shape->head_dim;
        frequencies[i] = scale_frequency(&shape->rope_scaling,
                                         1.0f / (float)pow(shape->rope_theta, (double)exponent));
    }
    for (uint32_t position = first; position < last; position++) {
        float *row = table + (uint64_t)position * shape->head_dim;
        for (uint32_t i = 0; i < half; i++) {
            float angle = (float)position * frequencies[i];
            double sine, cosine;
            sine_cosine((double)angle, &sine, &cosine);
            row[i] = (float)cosine;
            row[half + i] = (float)sine;
        }
    }
}
