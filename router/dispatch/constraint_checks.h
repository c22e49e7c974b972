/* Finds out which constraints can be kept. Each is compiled on a thread of its own, one at a
 * time: no door and no other request waits for it, and its time is bounded
 * (common/language/constrain/compiling.h). The verdict is remembered, so that many requests
 * with one constraint cost one compilation: a fine one by its hash, a refused one with its text
 * and sentence.
 *
 * Owners take turns, and one owner may have only so many constraints waiting
 * (constraint_queue.h).
 *
 * Threads: ask, withdraw and taken are called in turns of the dispatcher, find on any thread.
 * `told` is called on the thread that compiles. */
#ifndef BATON_ROUTER_DISPATCH_CONSTRAINT_CHECKS_H
#define BATON_ROUTER_DISPATCH_CONSTRAINT_CHECKS_H

#include "common/base/domain/constraint_source.h"
#include "router/dispatch/inbox.h"

#include <stdbool.h>
#include <stdint.h>

#define CONSTRAINT_CHECKS_MAX  1024 /* fine ones; the one not asked for longest goes */
#define CONSTRAINT_REFUSED_MAX 256  /* refused ones; the one asked for longest ago goes */
#define CONSTRAINT_WAITING_MAX 256  /* waiting for their turn, or for their message to be taken */

enum constraint_verdict {
    CONSTRAINT_UNKNOWN, /* find: not remembered */
    CONSTRAINT_FINE,
    CONSTRAINT_REFUSED, /* err: the sentence */
    CONSTRAINT_PENDING, /* ask: `told` will bring the verdict */
    CONSTRAINT_CROWDED, /* ask: no room for one more now */
};

/* A verdict as a message to the dispatcher: FINE or REFUSED. */
struct constraint_checked {
    struct inbox_message message; /* first: INBOX_CONSTRAINT */
    struct constraint_source *source;
    enum constraint_verdict verdict;
    struct error err;
};
void constraint_checked_free(struct constraint_checked *checked);

/* Returns the owner that a constraint waits for a turn of. All keys of a tenant are one owner.
 * Without a tenant ("") an address is, whatever its ports; of IPv6 its network (64 bits), since one
 * client may have all its addresses. So a proxy is one owner: give the clients behind it keys.
 * `peer` is as calls name it: "127.0.0.1:4242", "[::1]:443". Any other text is its own owner. */
uint64_t constraint_owner_of(const char *tenant, const char *peer);

struct constraint_checks;

struct constraint_checks *constraint_checks_create(void); /* NULL: no memory */
/* `told` takes the message over. STATUS_IO: no thread. */
enum status constraint_checks_start(struct constraint_checks *checks,
                                    void (*told)(void *context, struct constraint_checked *checked),
                                    void *context) WARN_UNUSED;
/* Stops the thread, and drops what waits. `told` isn't called any more. NULL and not started are
 * fine. */
void constraint_checks_stop(struct constraint_checks *checks);
void constraint_checks_destroy(struct constraint_checks *checks); /* stopped; NULL is fine */

enum constraint_verdict constraint_checks_find(struct constraint_checks *checks,
                                               const struct constraint_source *source,
                                               struct error *err);
/* Finds the verdict. A constraint that isn't remembered waits for a turn of this owner, or of
 * another that asks for the same one. */
enum constraint_verdict constraint_checks_ask(struct constraint_checks *checks,
                                              const struct constraint_source *source,
                                              uint64_t owner, struct error *err);
/* Takes back one ask of the owner that was PENDING, before its message came. The constraint
 * isn't compiled unless another request asks for it. */
void constraint_checks_withdraw(struct constraint_checks *checks,
                                const struct constraint_source *source, uint64_t owner);
/* Reports that one message of `told` was taken. */
void constraint_checks_taken(struct constraint_checks *checks);

struct constraint_checks_counts {
    uint64_t found;    /* answered from memory */
    uint64_t compiled; /* with either verdict */
    uint64_t refused;  /* compiled ones */
};
struct constraint_checks_counts constraint_checks_counts(struct constraint_checks *checks);

#endif
