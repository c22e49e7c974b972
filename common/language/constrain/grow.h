/* Arrays that grow while a constraint is compiled. Their counts are bounded by whoever adds to
 * them. */
#ifndef BATON_LANGUAGE_CONSTRAIN_GROW_H
#define BATON_LANGUAGE_CONSTRAIN_GROW_H

#include "common/base/assert.h"

#include <stddef.h>
#include <stdlib.h>

/* `array` with room for count + 1 elements of `size` bytes; what is new isn't set. */
static inline void *grow(void *array, size_t count, size_t *capacity, size_t size)
{
    if (count < *capacity)
        return array;
    *capacity = *capacity ? 2 * *capacity : 16;
    void *grown = realloc(array, *capacity * size);
    ASSERT(grown);
    return grown;
}

#endif
