/* Constraints that wait to be compiled: each once, whoever asks for it. Every owner who does has a
 * place of his own for it, in his own turn (common/base/fair_queue.h): it is compiled in the turn
 * that comes first, so nobody waits longer because somebody else has asked for the same. What
 * nobody asks for any more is not compiled. Whoever asks bounds how many there are; places of one
 * owner are bounded here. Not thread-safe. */
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
    struct fair_queue turns; /* places: one an owner and constraint */
    TAILQ_HEAD(queued_constraints, queued_constraint) constraints;
    uint32_t count; /* constraints */
};

void constraint_queue_init(struct constraint_queue *queue);
void constraint_queue_deinit(struct constraint_queue *queue); /* drops what waits */

/* One more request of the owner's asks for it. `hash`: of the source, by the same function each
 * time. STATUS_LIMIT: the owner has his places, or it isn't there and !may_add. */
enum status constraint_queue_ask(struct constraint_queue *queue,
                                 const struct constraint_source *source, uint64_t hash,
                                 uint64_t owner, bool may_add) WARN_UNUSED;
/* One request that has asked asks no more. Nothing, where it doesn't wait (any more). */
void constraint_queue_withdraw(struct constraint_queue *queue,
                               const struct constraint_source *source, uint64_t hash,
                               uint64_t owner);
/* Whose turn it is: the caller's, with its hash. NULL: none waits. */
struct constraint_source *constraint_queue_pop(struct constraint_queue *queue, uint64_t *hash);

#endif
