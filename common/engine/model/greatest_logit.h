/* The greatest of a row, in one pass. PURE. */
#ifndef BATON_ENGINE_MODEL_GREATEST_LOGIT_H
#define BATON_ENGINE_MODEL_GREATEST_LOGIT_H

#include <stdbool.h>
#include <stdint.h>

/* The id of the first of the greatest; *sound becomes false if a value is NaN or +infinity. count >
 * 0. */
uint32_t greatest_logit(const float *values, uint32_t count, bool *sound);

#endif
