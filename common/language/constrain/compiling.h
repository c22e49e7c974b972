/* Shared by all parts of compiling a constraint: the count of steps, and arrays that grow.
 *
 * A step is one place, edge, member or comparison that is looked at: a few nanoseconds. Patterns,
 * enums, alternatives and the automaton all draw from one count. The count, not the time, is the
 * limit, so two machines refuse the same constraints. Work beyond the limit stops soon, within one
 * row of a table, and the whole constraint is refused. */
#ifndef BATON_LANGUAGE_CONSTRAIN_COMPILING_H
#define BATON_LANGUAGE_CONSTRAIN_COMPILING_H

#include "common/base/assert.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#define COMPILE_MAX_STEPS (32u << 20)

struct compile_steps {
    uint64_t taken;
};

static inline bool compile_steps_over(const struct compile_steps *steps)
{
    return steps->taken > COMPILE_MAX_STEPS;
}

/* Returns false if the count is over the limit now. */
static inline bool compile_steps_take(struct compile_steps *steps, uint64_t count)
{
    steps->taken += count;
    return !compile_steps_over(steps);
}

/* Returns `array` with room for count + 1 elements of `size` bytes. New elements aren't set. The
 * caller bounds `count`. */
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
