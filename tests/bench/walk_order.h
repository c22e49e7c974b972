/* In which step each walk of a walker (constraint_walker.h) was known to be at its end: told by a
 * first round, and followed by all later ones, so that the same step has the same to do in each of
 * them, however far the walker comes meanwhile. One thread's. */
#ifndef BATON_TESTS_BENCH_WALK_ORDER_H
#define BATON_TESTS_BENCH_WALK_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct walk_order {
    uint32_t *ends; /* by number of the walk: the step, from 1; 0: none did yet */
    uint32_t count, capacity;
    uint32_t rounds, step, begun; /* rounds that began; of this one: steps, and walks that began */
};

void walk_order_init(struct walk_order *order);
void walk_order_deinit(struct walk_order *order);

void walk_order_round(struct walk_order *order);
void walk_order_step(struct walk_order *order);
/* The number of a walk that is left to the walker. */
uint32_t walk_order_begin(struct walk_order *order);
/* A later round, and it was at its end by the next step in the first. */
bool walk_order_due(const struct walk_order *order, uint32_t walk);
/* It is at its end. False: it wasn't by this step in the first round, and is to be held back. */
bool walk_order_ends(struct walk_order *order, uint32_t walk);

#endif
