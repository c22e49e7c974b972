/* Compiles the constraints of answers on a thread of its own, so no step and no stream waits for
 * that. Requests with the same constraint share the compiled one, and the sets of tokens worked out
 * for it (constraint_cache.h), within max_bytes. Each request holds a lease.
 *
 * The thread also opens the tokenizer of the model's folder and lays out its vocabulary. Leases
 * wait until that is done. Leases are refused with a sentence if the folder
 * has no tokenizer, or if the tokenizer's tokens have no text of their own.
 *
 * Threads: constraint_host_take is for the transfer thread. A settled lease and
 * constraint_host_text are for the step thread. Any thread may give a lease back. */
#ifndef BATON_WORKER_CONSTRAINT_HOST_H
#define BATON_WORKER_CONSTRAINT_HOST_H

#include "common/base/domain/constraint_source.h"
#include "common/base/fair_queue.h"
#include "common/language/constrain/constraint_cache.h"

#include <stdatomic.h>

#define CONSTRAINT_HOST_MAX_LEASES 4096 /* one a request: far more than a worker holds */
#define CONSTRAINT_HOST_KEPT_SETS  64   /* for each constraint */
#define CONSTRAINT_HOST_ENTRIES    1024

struct constraint_host;

struct constraint_host_config {
    const char *model_dir;
    uint32_t vocab;          /* the model's: ids are below it */
    const uint32_t *end_ids; /* copied, except for ids that aren't below vocab */
    uint32_t end_count;
    uint64_t max_bytes; /* memory for compiled constraints and their sets */
    bool lazy;          /* no thread and no vocabulary before the first lease */
};

struct constraint_lease {
    struct fair_item item; /* first; the host's */
    uint64_t owner;
    struct constraint_source *source; /* the host's, until the lease is settled */
    void (*ready)(void *context);
    void *context;
    bool taken; /* the host's: its first message has arrived */
    _Atomic bool settled;
    enum status status; /* INVALID, UNSUPPORTED: never; LIMIT: not now */
    struct error err;
    const struct constraint_entry *entry; /* STATUS_OK */
};

enum status constraint_host_create(const struct constraint_host_config *config,
                                   struct constraint_host **host, struct error *err) WARN_UNUSED;
/* Ends the thread: no lease settles after that. Leases may still be given back. NULL is fine. */
void constraint_host_stop(struct constraint_host *host);
/* All leases must have been given back: it asserts that. NULL is fine. */
void constraint_host_destroy(struct constraint_host *host);

/* Takes over `source`. `ready` is called once, on the host's thread, when the lease is settled; it
 * isn't called for a lease that is given back before. The host serves the owners in turns (0: no
 * owner). Returns NULL if too many leases are out. */
struct constraint_lease *constraint_host_take(struct constraint_host *host,
                                              struct constraint_source *source, uint64_t owner,
                                              void (*ready)(void *context), void *context);
bool constraint_lease_settled(const struct constraint_lease *lease);
/* Gives a lease back, settled or not. */
void constraint_host_give(struct constraint_host *host, struct constraint_lease *lease);
/* Returns the number of leases that are out. Any thread. */
uint32_t constraint_host_held(const struct constraint_host *host);

/* Returns the text that the token adds to an answer (`first`: to its beginning), or NULL if it adds
 * nothing. A special token's text is TOKEN_SPECIAL and its spelling (token_trie.h). Call it after a
 * lease was settled with STATUS_OK. */
const char *constraint_host_text(const struct constraint_host *host, uint32_t id, bool first,
                                 size_t *length);
/* Returns true if the model ends an answer with this token. */
bool constraint_host_is_end(const struct constraint_host *host, uint32_t id);
const uint32_t *constraint_host_end_ids(const struct constraint_host *host, uint32_t *count);
/* Returns the 32-bit words of a set of tokens. */
uint32_t constraint_host_words(const struct constraint_host *host);

#endif
