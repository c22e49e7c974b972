/* Which constraints can be kept. Each is compiled on a thread of its own, one at a time: no loop of
 * a front door and no other request waits for it, and the time that it takes is bounded
 * (common/language/constrain/compile_steps.h). What came of it is remembered: those that are fine
 * by a hash, those that are refused with their text and sentence, so that many requests with one of
 * them cost one compilation.
 *
 * Turns go round the owners, and one owner may have only so many of them waiting
 * (constraint_queue.h).
 *
 * Threads: ask and withdraw are the dispatch thread's; find anyone's; `told` is called on the
 * thread of this. */
#ifndef BATON_ROUTER_DISPATCH_CONSTRAINT_CHECKS_H
#define BATON_ROUTER_DISPATCH_CONSTRAINT_CHECKS_H

#include "common/base/domain/constraint_source.h"
#include "router/dispatch/inbox.h"

#include <stdbool.h>
#include <stdint.h>

#define CONSTRAINT_CHECKS_MAX  1024 /* fine ones; the one not asked for longest goes */
#define CONSTRAINT_REFUSED_MAX 256  /* refused ones, likewise */
#define CONSTRAINT_WAITING_MAX 256  /* that wait for their turn, or whose message isn't taken yet */

enum constraint_verdict {
    CONSTRAINT_UNKNOWN, /* find: not remembered */
    CONSTRAINT_FINE,
    CONSTRAINT_REFUSED, /* err: the sentence */
    CONSTRAINT_PENDING, /* ask: `told` will say */
    CONSTRAINT_CROWDED, /* ask: no room for one more now */
};

/* What came of one, to the dispatch thread as a message: FINE or REFUSED. */
struct constraint_checked {
    struct inbox_message message; /* first: INBOX_CONSTRAINT */
    struct constraint_source *source;
    enum constraint_verdict verdict;
    struct error err;
};
void constraint_checked_free(struct constraint_checked *checked);

struct constraint_checks;

struct constraint_checks *constraint_checks_create(void); /* NULL: no memory */
/* `told` takes the message over. STATUS_IO: no thread. */
enum status constraint_checks_start(struct constraint_checks *checks,
                                    void (*told)(void *context, struct constraint_checked *checked),
                                    void *context) WARN_UNUSED;
/* Nobody is told any more; what waits is dropped. Not started is fine, and NULL. */
void constraint_checks_stop(struct constraint_checks *checks);
void constraint_checks_destroy(struct constraint_checks *checks); /* stopped; NULL is fine */

enum constraint_verdict constraint_checks_find(struct constraint_checks *checks,
                                               const struct constraint_source *source,
                                               struct error *err);
/* As find; and one that isn't remembered waits for the owner's turn, or for that of another who
 * asks for the same. */
enum constraint_verdict constraint_checks_ask(struct constraint_checks *checks,
                                              const struct constraint_source *source,
                                              uint64_t owner, struct error *err);
/* Of one that was PENDING, before its message came: that request of the owner's is no more. Where
 * nobody else asks for it, it isn't compiled. */
void constraint_checks_withdraw(struct constraint_checks *checks,
                                const struct constraint_source *source, uint64_t owner);
/* One message of `told` was taken. */
void constraint_checks_taken(struct constraint_checks *checks);

struct constraint_checks_counts {
    uint64_t found, compiled, refused; /* answered from memory; compiled; of those, refused */
};
struct constraint_checks_counts constraint_checks_counts(struct constraint_checks *checks);

#endif
