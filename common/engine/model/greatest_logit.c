#include "common/engine/model/greatest_logit.h"

#include "common/base/u32.h"
#include "common/engine/model/quads.h"

#define CHAINS 4                    /* independent: one would wait for the one before */
#define PART   (64 * CHAINS * QUAD) /* where the greatest is looked for again: in a level 1 cache */

/* The greatest of values[0 .. count); *sound becomes false if one is NaN or +infinity. */
static float greatest_of_part(const float *values, uint32_t count, bool *sound)
{
    quad most[CHAINS];
    quad_mask sounds = {-1, -1, -1, -1};
    uint32_t i = 0;
    for (int c = 0; c < CHAINS; c++)
        most[c] = quad_of(-INFINITY);
    for (; i + CHAINS * QUAD <= count; i += CHAINS * QUAD)
        for (int c = 0; c < CHAINS; c++) {
            quad next = quad_load(values + i + c * QUAD);
            most[c] = quad_choose(next > most[c], next, most[c]);
            sounds &= next < quad_of(INFINITY); /* nor is NaN */
        }
    float best = -INFINITY;
    for (int lane = 0; lane < CHAINS * QUAD; lane++) {
        float one = most[lane / QUAD][lane % QUAD];
        best = one > best ? one : best;
        *sound &= sounds[lane % QUAD] != 0;
    }
    for (; i < count; i++) {
        best = values[i] > best ? values[i] : best;
        *sound &= values[i] < INFINITY;
    }
    return best;
}

uint32_t greatest_logit(const float *values, uint32_t count, bool *sound)
{
    float best = -INFINITY;
    uint32_t at = 0;
    for (uint32_t first = 0; first < count; first += PART) {
        float most = greatest_of_part(values + first, min_u32(PART, count - first), sound);
        if (most > best) {
            best = most;
            at = first;
        }
    }
    while (at + 1 < count && values[at] != best)
        at++;
    return at;
}
