/* Weights for benchmarks of shapes that nobody trained: bell-shaped (the sum of four uniforms),
 * mean 0, standard deviation 0.02, bf16. The values are a function of the tensor's name alone, so a
 * tied lm_head gets the embedding's. PURE. */
#ifndef BATON_ENGINE_MODEL_RANDOM_WEIGHTS_H
#define BATON_ENGINE_MODEL_RANDOM_WEIGHTS_H

#include "common/base/rng.h"

#include <stddef.h>

struct random_weights {
    struct rng rng;
};

struct random_weights random_weights_of(const char *tensor_name);
/* The next `count` values, in the order of the rows. */
void random_weights_take(struct random_weights *random, uint16_t *bf16_values, size_t count);

#endif
