/* Constraints that wait to be compiled, each once. Every owner that asks for one has a place for it
 * in its own turn (common/base/fair_queue.h). The constraint is compiled in the turn that comes
 * first, so no owner waits longer because another has asked for the same. A constraint that no
 * request asks for any more is not compiled. The caller bounds how many there are; places of one
 * owner are bounded here. PURE. Not thread-safe. */
#ifndef BATON_ROUTER_DISPATCH_CONSTRAINT_QUEUE_H
#define BATON_ROUTER_DISPATCH_CONSTRAINT_QUEUE_H

#include "common/base/domain/constraint_source.h"
#include "common/base/fair_queue.h"
#include "common/base/status.h"

#include <stdbool.h>
#include <stdint.h>

#define CONSTRAINT_WAITING_EACH 64 /* constraints that wait for one owner */

struct queued_constraint;

struct constraint_queue {
    struct fair_queue turns; /* places, one for each owner and constraint */
    TAILQ_HEAD(queued_constraints, queued_constraint) constraints;
    uint32_t count; /* constraints */
};

void constraint_queue_init(struct constraint_queue *queue);
void constraint_queue_deinit(struct constraint_queue *queue); /* drops what waits */

/* Counts one more request of the owner that asks for the constraint. `hash`: of the source, by the
 * same function each time. STATUS_LIMIT: the owner has all its places, or the constraint isn't in
 * the queue and !may_add. */
enum status constraint_queue_ask(struct constraint_queue *queue,
                                 const struct constraint_source *source, uint64_t hash,
                                 uint64_t owner, bool may_add) WARN_UNUSED;
/* Takes back one ask. Does nothing where the constraint doesn't wait (any more). */
void constraint_queue_withdraw(struct constraint_queue *queue,
                               const struct constraint_source *source, uint64_t hash,
                               uint64_t owner);
/* Takes the constraint of the next turn, with its hash; the caller frees it. NULL: none waits. */
struct constraint_source *constraint_queue_pop(struct constraint_queue *queue, uint64_t *hash);

#endif
