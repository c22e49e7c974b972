/* The step in which each walk of a walker (constraint_walker.h) had ended. A first round records
 * it, and later rounds follow it. So a step has the same work in every round, however fast the
 * walker is. Used by one thread. */
#ifndef BATON_TESTS_BENCH_WALK_ORDER_H
#define BATON_TESTS_BENCH_WALK_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct walk_order {
    uint32_t *ends; /* by number of the walk: the step, from 1; 0: not yet */
    uint32_t count, capacity;
    uint32_t rounds, step, begun; /* rounds begun; steps and walks begun in this round */
};

void walk_order_init(struct walk_order *order);
void walk_order_deinit(struct walk_order *order);

void walk_order_round(struct walk_order *order);
void walk_order_step(struct walk_order *order);
/* Returns the number of a walk that is left to the walker. */
uint32_t walk_order_begin(struct walk_order *order);
/* Returns true in a later round if the walk had ended by the next step in the first. */
bool walk_order_due(const struct walk_order *order, uint32_t walk);
/* Reports the end of a walk. False: it hadn't ended by this step in the first round; hold it
 * back. */
bool walk_order_ends(struct walk_order *order, uint32_t walk);

#endif
