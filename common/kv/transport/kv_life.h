/* Internal to this folder: how processes that share a pool learn of each other's death. The kernel
 * closes a dead process's sockets only when it has taken its memory apart, which takes a second for
 * a pool of 16 GiB. The first thing it does, before, is to walk the robust futexes of each thread:
 * it writes into every word that still holds the thread's id, and wakes one who waits for it. So
 * one thread of the owner leaves its id, the *sign*, in the words behind the pool, and lives as
 * long as the process does; one thread of the reader waits for its peers' words. Neither does
 * anything else.
 *
 * A sign is told in the address of the pool. Whatever else stands in the word is a death, or an
 * owner that is not to be believed; a process that is stopped keeps its sign. The words are only
 * read, by the kernel alone: one that can't be is a death too. Who wakes us for nothing costs a
 * look every PAUSE_MS. All this is the first of two ways: what it misses, the pairing's socket
 * tells. */
#ifndef BATON_KV_TRANSPORT_KV_LIFE_H
#define BATON_KV_TRANSPORT_KV_LIFE_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* Readers have a word each, by the number of their admission, so that one that is stopped holds up
 * nobody; if there are more of them, one that was woken wakes the others of its word. */
#define KV_LIFE_WORDS       256
#define KV_LIFE_BYTES       (KV_LIFE_WORDS * sizeof(struct kv_life_word))
#define KV_LIFE_MAX_WATCHED 127 /* what the kernel lets a thread wait for, but one */

struct kv_life_word {
    _Alignas(void *) _Atomic uint32_t sign;
};

struct kv_life;

/* Where the words are, from the start of a pool. */
static inline uint64_t kv_life_offset(uint64_t pool_bytes)
{
    return (pool_bytes + 63) & ~(uint64_t)63;
}

/* `words`: behind the own pool, zero, and there until kv_life_stop. Not to be had on Linux before
 * 5.16, or where futexes are filtered. */
enum status kv_life_start(struct kv_life_word words[KV_LIFE_WORDS], struct kv_life **life,
                          struct error *err) WARN_UNUSED;
/* To those who watch it is a death. NULL: nothing. */
void kv_life_stop(struct kv_life *life);
uint32_t kv_life_sign(const struct kv_life *life); /* never 0 */

/* Watches one of the words of `who`, for the reader that was admitted there as `admission`. False:
 * there is no room. */
bool kv_life_watch(struct kv_life *life, const struct kv_life_word *words, uint64_t admission,
                   uint32_t sign, void *who);
/* From its return on nobody looks at what was watched. Not watched: nothing. */
void kv_life_unwatch(struct kv_life *life, const void *who);
/* Who has died, each once; NULL: nobody more. The descriptor is readable while there may be one. */
void *kv_life_next_death(struct kv_life *life);
int kv_life_fd(const struct kv_life *life);

#endif
