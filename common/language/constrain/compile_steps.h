/* What compiling one constraint may cost, whatever it is made of: one count of steps that all its
 * parts draw from, patterns, enums, alternatives and the automaton alike. A step is a place, edge,
 * member or comparison that is looked at: a few nanoseconds. So two machines refuse the same. Who
 * is over it stops soon (within one row of a table); the whole constraint is refused then. */
#ifndef BATON_LANGUAGE_CONSTRAIN_COMPILE_STEPS_H
#define BATON_LANGUAGE_CONSTRAIN_COMPILE_STEPS_H

#include <stdbool.h>
#include <stdint.h>

#define COMPILE_MAX_STEPS (32u << 20)

struct compile_steps {
    uint64_t taken;
};

static inline bool compile_steps_over(const struct compile_steps *steps)
{
    return steps->taken > COMPILE_MAX_STEPS;
}

/* False: it is over now. */
static inline bool compile_steps_take(struct compile_steps *steps, uint64_t count)
{
    steps->taken += count;
    return !compile_steps_over(steps);
}

#endif
