/* Constraints of answers, compiled on a thread of their own: no step and no stream waits for that.
 * Requests with the same one share it, and the sets of tokens worked out for it
 * (constraint_cache.h), within max_bytes; a request holds a lease of it.
 *
 * The thread also opens the tokenizer of the model's folder and lays out its vocabulary; until that
 * is done leases wait. A folder without a tokenizer, or with one whose tokens have no text of their
 * own, has leases refused with a sentence.
 *
 * Threads: take is the transfer thread's, the rest of a settled lease and constraint_host_text the
 * step thread's, give anyone's. */
#ifndef BATON_WORKER_CONSTRAINT_HOST_H
#define BATON_WORKER_CONSTRAINT_HOST_H

#include "common/base/domain/constraint_source.h"
#include "common/base/fair_queue.h"
#include "common/language/constrain/constraint_cache.h"

#include <stdatomic.h>

#define CONSTRAINT_HOST_MAX_LEASES 4096 /* a request each: far more than a worker holds */
#define CONSTRAINT_HOST_KEPT_SETS  64   /* of each constraint */
#define CONSTRAINT_HOST_ENTRIES    1024

struct constraint_host;

struct constraint_host_config {
    const char *model_dir;
    uint32_t vocab;          /* of the model: ids are below it */
    const uint32_t *end_ids; /* copied; those that aren't below vocab are none */
    uint32_t end_count;
    uint64_t max_bytes; /* of compiled constraints and their sets */
};

struct constraint_lease {
    struct fair_item item; /* first; the host's */
    uint64_t owner;
    struct constraint_source *source; /* the host's, until it is settled */
    void (*ready)(void *context);
    void *context;
    bool taken; /* the host's: its first message came */
    _Atomic bool settled;
    enum status status; /* INVALID, UNSUPPORTED: never; LIMIT: not now */
    struct error err;
    const struct constraint_entry *entry; /* STATUS_OK */
};

enum status constraint_host_create(const struct constraint_host_config *config,
                                   struct constraint_host **host, struct error *err) WARN_UNUSED;
/* Ends the thread: no lease becomes ready any more. They may still be given back. */
void constraint_host_stop(struct constraint_host *host);
/* After all leases were given back: it asserts that. NULL is fine. */
void constraint_host_destroy(struct constraint_host *host);

/* Takes over `source`. `ready` is called once, on the host's thread, when the lease is settled; not
 * if it is given back before. Turns go round the owners (0: nobody's). NULL: too many are out. */
struct constraint_lease *constraint_host_take(struct constraint_host *host,
                                              struct constraint_source *source, uint64_t owner,
                                              void (*ready)(void *context), void *context);
bool constraint_lease_settled(const struct constraint_lease *lease);
/* Settled or not. */
void constraint_host_give(struct constraint_host *host, struct constraint_lease *lease);
/* Leases that were taken and not given back. Any thread. */
uint32_t constraint_host_held(const struct constraint_host *host);

/* After a lease was settled well: what the token adds to an answer, or to its beginning; NULL:
 * nothing. */
const char *constraint_host_text(const struct constraint_host *host, uint32_t id, bool first,
                                 size_t *length);
/* Whether the model ends an answer with it. */
bool constraint_host_is_end(const struct constraint_host *host, uint32_t id);
const uint32_t *constraint_host_end_ids(const struct constraint_host *host, uint32_t *count);
uint32_t constraint_host_words(const struct constraint_host *host); /* of a set of tokens */

#endif
