/* Where the answers under a constraint are, and which tokens each of them may have next. A state
 * follows from the answer's tokens alone and is brought up to them when a token is to be drawn:
 * whether they were drawn here, at another worker, or before a preemption.
 *
 * A set of tokens is worked out before the step that draws from it. Those that take little are, at
 * once, within a budget for all of them; the others are left to a thread beside the steps
 * (constraint_walker.h), and their answers sit out the steps until they are there. So what
 * constraints add to a step is bounded, whatever they are, and those that take long hold up nobody
 * else's.
 *
 * The order in which things rule tokens out: docs/structured-output.md. Step thread only. */
#ifndef BATON_WORKER_STEP_CONSTRAINTS_H
#define BATON_WORKER_STEP_CONSTRAINTS_H

#include "common/engine/sched/sequence.h"
#include "common/worker/constraint_host.h"
#include "common/worker/constraint_walker.h"

struct step_constraints;

/* What a step has for all its constraints. */
#define STEP_CONSTRAINTS_NODES  1024 /* of walks: about 15 us */
#define STEP_CONSTRAINTS_TOKENS 1024 /* of answers that came from elsewhere: about 0.3 ms */

struct step_budget {
    uint64_t nodes;
    uint32_t tokens;
};

/* For up to max_sequences answers. `host` and `walker` NULL: nobody may be added. */
enum status step_constraints_create(struct constraint_host *host, struct constraint_walker *walker,
                                    uint32_t max_sequences,
                                    struct step_constraints **constraints) WARN_UNUSED;
/* Gives back all leases that are left, before the walker is destroyed. NULL is fine. */
void step_constraints_destroy(struct step_constraints *constraints);

/* The number for sequence_spec.constraint, from 1: of an answer that has not begun. The lease was
 * settled well; it is given back with the number. 0: none is free, and the lease stays the
 * caller's. */
uint32_t step_constraints_add(struct step_constraints *constraints, struct constraint_lease *lease);
void step_constraints_remove(struct step_constraints *constraints, uint32_t number);

/* Before a step is planned, with all sequences that may have rows in it and have a constraint:
 * works out what they may have next, within the budget, and says of each whether it waits. True:
 * one waits for the next call, not for the walker. Turns go on where they ended the last time. */
bool step_constraints_prepare(struct step_constraints *constraints,
                              struct sequence *const *sequences, uint32_t count,
                              struct step_budget budget);

struct step_allowed {
    const uint32_t *bits; /* until its next token is taken; NULL: any */
    bool end_only;        /* nothing but an end may follow: min_tokens can't hold */
};
/* For the next token of the sequence; worked out now if that was not done before. No bits are set
 * where none fits: the vocabulary lacks a token for what must come, or the answer's tokens break
 * the constraint. */
struct step_allowed step_constraints_find(struct step_constraints *constraints,
                                          const struct sequence *sequence);
/* The answer's tokens, which came from elsewhere, break the constraint: no mask of it is worth
 * anything. */
bool step_constraints_broken(const struct step_constraints *constraints, uint32_t number);
/* `token` was drawn from those, and isn't told to the schedule yet. True: it belongs to the answer,
 * and nothing may follow it. */
bool step_constraints_take(struct step_constraints *constraints, const struct sequence *sequence,
                           uint32_t token);

#endif
