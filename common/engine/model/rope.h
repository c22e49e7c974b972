/* Rotary position embedding (Su et al., RoFormer) as a table, with Llama 3's scaling of low
 * frequencies. PURE. Computed in fp32 step by step as transformers does: at position 3000 an exact
 * angle would differ from the reference's by more than the reference's rounding of anything else.
 * Sines and cosines are our own (fixed_math.h): equal bits everywhere. */
#ifndef BATON_ENGINE_MODEL_ROPE_H
#define BATON_ENGINE_MODEL_ROPE_H

#include "common/base/domain/model_shape.h"

#define ROPE_MAX_HEAD_DIM 256 /* of any config.json */

/* table: [positions, head_dim] = cos (head_dim / 2) then sin (head_dim / 2) of each position; rows
 * first .. last - 1 of it. */
void rope_rows(const struct model_shape *shape, uint32_t first, uint32_t last, float *table);

#endif
