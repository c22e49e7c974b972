/* Takes the first few of many in order, without sorting them all: a binary heap. O(count) to build,
 * O(log count) for each one taken. PURE; the memory is the caller's. */
#ifndef BATON_ENGINE_SCHED_RANKING_H
#define BATON_ENGINE_SCHED_RANKING_H

#include <stdint.h>

struct sequence;

/* Smaller rank first; of equal ranks the smaller order. */
struct ranked {
    uint64_t rank, order;
    struct sequence *sequence;
};

struct ranking {
    struct ranked *entries; /* [count]; a caller fills them in any order, then builds */
    uint32_t count;
};

void ranking_build(struct ranking *ranking);
/* The first one, NULL when none is left. */
struct sequence *ranking_take(struct ranking *ranking);

#endif
