/* Internal to this folder: reports the deaths of processes that share a pool.
 *
 * The kernel closes a dead process's sockets only after it has taken its memory apart, which takes
 * a second for a pool of 16 GiB. Before that it walks the robust futexes of each thread: it writes
 * into every word that still holds the thread's id, and wakes one waiter of it. So one thread of
 * the owner leaves its id, the *sign*, in the words behind the pool, and lives as long as the
 * process. One thread of the reader waits for its peers' words. Neither thread does anything else.
 *
 * The address of the pool has the sign. Any other value in the word is a death, or an owner that is
 * not to be believed. A process that is stopped keeps its sign. Only the kernel reads the words; a
 * word that can't be read is a death too. A wake-up for nothing costs a look every PAUSE_MS. The
 * pairing's socket reports the deaths that this misses. */
#ifndef BATON_KV_TRANSPORT_KV_LIFE_H
#define BATON_KV_TRANSPORT_KV_LIFE_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* Readers have a word each, by the number of their admission, so that a stopped reader holds up no
 * other. If there are more readers than words, a woken one wakes the others of its word. */
#define KV_LIFE_WORDS       256
#define KV_LIFE_BYTES       (KV_LIFE_WORDS * sizeof(struct kv_life_word))
#define KV_LIFE_MAX_WATCHED 127 /* one less than the kernel lets a thread wait for */

struct kv_life_word {
    _Alignas(void *) _Atomic uint32_t sign;
};

struct kv_life;

/* Returns the words' offset from the start of a pool. */
static inline uint64_t kv_life_offset(uint64_t pool_bytes)
{
    return (pool_bytes + 63) & ~(uint64_t)63;
}

/* Leaves the sign in `words`, which are behind the own pool, zero, and valid until kv_life_stop.
 * STATUS_UNSUPPORTED: Linux before 5.16, or futexes are filtered. */
enum status kv_life_start(struct kv_life_word words[KV_LIFE_WORDS], struct kv_life **life,
                          struct error *err) WARN_UNUSED;
/* The watchers of this process take it for a death. NULL is fine. */
void kv_life_stop(struct kv_life *life);
uint32_t kv_life_sign(const struct kv_life *life); /* never 0 */

/* Watches one of the peer's words, for the reader with this admission. `peer` is the caller's name
 * for it. Returns false if there is no room. */
bool kv_life_watch(struct kv_life *life, const struct kv_life_word *words, uint64_t admission,
                   uint32_t sign, void *peer);
/* Once it returns, no thread looks at the peer's words. Does nothing for an unwatched peer. */
void kv_life_unwatch(struct kv_life *life, const void *peer);
/* Returns a peer that has died, each once, or NULL. The descriptor is readable while there may be
 * one. */
void *kv_life_next_death(struct kv_life *life);
int kv_life_fd(const struct kv_life *life);

#endif
