/* The state of each answer under a constraint, and the tokens that each may have next. A state
 * follows from the answer's tokens alone. It is brought up to them before a token is drawn, whether
 * they were drawn here, at another worker, or before a preemption.
 *
 * A set of tokens is worked out before the step that draws from it. Small sets are worked out at
 * once, within a budget for all of them. The others are left to a thread beside the steps
 * (constraint_walker.h), and their answers sit out the steps until the sets are there. So
 * constraints add a bounded time to a step, and slow ones delay only their own answers.
 *
 * docs/structured-output.md has the order in which things rule tokens out. Step thread only. */
#ifndef BATON_WORKER_STEP_CONSTRAINTS_H
#define BATON_WORKER_STEP_CONSTRAINTS_H

#include "common/engine/sched/sequence.h"
#include "common/worker/constraint_host.h"
#include "common/worker/constraint_walker.h"

struct step_constraints;

/* The budget of a step for all its constraints. */
#define STEP_CONSTRAINTS_NODES  1024 /* nodes of walks: about 15 us */
#define STEP_CONSTRAINTS_TOKENS 1024 /* tokens of answers from elsewhere: about 0.3 ms */

struct step_budget {
    uint64_t nodes;
    uint32_t tokens;
};

/* For up to max_sequences answers. `host` and `walker` may be NULL: then none may be added. */
enum status step_constraints_create(struct constraint_host *host, struct constraint_walker *walker,
                                    uint32_t max_sequences,
                                    struct step_constraints **constraints) WARN_UNUSED;
/* Gives back all leases that are left. Call it before the walker is destroyed. NULL is fine. */
void step_constraints_destroy(struct step_constraints *constraints);

/* Adds an answer that has not begun, and returns its number (from 1) for sequence_spec.constraint.
 * The lease must be settled with STATUS_OK; step_constraints_remove gives it back. Returns 0 if all
 * numbers are in use; then the lease stays the caller's. */
uint32_t step_constraints_add(struct step_constraints *constraints, struct constraint_lease *lease);
void step_constraints_remove(struct step_constraints *constraints, uint32_t number);

/* Works out, within the budget, which tokens may come next, and sets sequence->waits of each. Call
 * it before a step is planned, with all sequences that have a constraint and may have rows in the
 * step. Turns continue where the last call ended. Returns true if a sequence waits for the next
 * call, and not for the walker. */
bool step_constraints_prepare(struct step_constraints *constraints,
                              struct sequence *const *sequences, uint32_t count,
                              struct step_budget budget);

struct step_allowed {
    const uint32_t *bits; /* valid until the sequence's next token is taken; NULL: any token */
    bool end_only;        /* only an end may follow, so min_tokens can't hold */
};
/* Returns the tokens that may come next; works them out now if that was not done before. No bits
 * are set if none fits: the vocabulary has no token for the text that must come, or the answer's
 * tokens break the constraint. */
struct step_allowed step_constraints_find(struct step_constraints *constraints,
                                          const struct sequence *sequence);
/* Returns true if the answer's tokens, which came from elsewhere, break the constraint. */
bool step_constraints_broken(const struct step_constraints *constraints, uint32_t number);
/* Takes the `token` that was drawn and that the schedule doesn't know yet. Returns true if the
 * token belongs to the answer and nothing may follow it. */
bool step_constraints_take(struct step_constraints *constraints, const struct sequence *sequence,
                           uint32_t token);

#endif
