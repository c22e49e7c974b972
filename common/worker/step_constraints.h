/* Where the answers under a constraint are, and which tokens each of them may have next. A state follows from the answer's tokens alone
 * and is brought up to them when a token is to be drawn: whether they were drawn here, at another worker, or before a preemption.
 *
 * The order in which things rule tokens out: docs/structured-output.md. Step thread only. */
#ifndef BATON_WORKER_STEP_CONSTRAINTS_H
#define BATON_WORKER_STEP_CONSTRAINTS_H

#include "common/engine/sched/sequence.h"
#include "common/worker/constraint_host.h"

struct step_constraints;

/* For up to max_sequences answers. `host` NULL: nobody may be added. */
enum status step_constraints_create(struct constraint_host *host, uint32_t max_sequences,
                                    struct step_constraints **constraints) WARN_UNUSED;
/* Gives back all leases that are left. NULL is fine. */
void step_constraints_destroy(struct step_constraints *constraints);

/* The number for sequence_spec.constraint, from 1: of an answer that has not begun. The lease was settled well; it is given back with
 * the number. 0: none is free, and the lease stays the caller's. */
uint32_t step_constraints_add(struct step_constraints *constraints, struct constraint_lease *lease);
void step_constraints_remove(struct step_constraints *constraints, uint32_t number);

struct step_allowed {
    const uint32_t *bits; /* until the next step_constraints_find of this part; NULL: any */
    bool end_only;        /* nothing but an end may follow: min_tokens can't hold */
};
/* For the next token of the sequence, which is part `part` (below max_sequences) of a step. No bits are set where none fits: the
 * vocabulary lacks a token for what must come, or the answer's tokens break the constraint. */
struct step_allowed step_constraints_find(struct step_constraints *constraints, uint32_t part,
                                          const struct sequence *sequence);
/* `token` was drawn from those, and isn't told to the schedule yet. True: it belongs to the answer, and nothing may follow it. */
bool step_constraints_take(struct step_constraints *constraints, const struct sequence *sequence,
                           uint32_t token);

#endif
