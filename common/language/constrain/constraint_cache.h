/* Compiled constraints by their source, so that requests with the same schema share one, and its
 * sets of tokens.
 *
 * Bounded in entries and bytes. An entry that isn't held goes when room is needed: first the one
 * not taken for longest. No entry goes for a constraint that wouldn't fit even then. A source that
 * can't be compiled, or can never fit, is remembered with its error.
 *
 * An owner (a number; 0: none) may fill at most half of the bytes. Owner of the cache: one thread.
 * The trie must outlive it. */
#ifndef BATON_LANGUAGE_CONSTRAIN_CONSTRAINT_CACHE_H
#define BATON_LANGUAGE_CONSTRAIN_CONSTRAINT_CACHE_H

#include "common/language/constrain/constraint_masks.h"

#define CONSTRAINT_CACHE_MAX_ENTRIES 4096
#define CONSTRAINT_CACHE_MAX_REFUSED 32 /* refused sources that are remembered */

struct constraint_cache;

struct constraint_cache_limits {
    uint32_t max_entries; /* 1..CONSTRAINT_CACHE_MAX_ENTRIES */
    size_t max_bytes;     /* tables, texts and kept sets */
    uint32_t kept_sets;   /* kept by each entry: constraint_masks_create */
};

struct constraint_entry {
    const struct constraint *constraint;
    struct constraint_masks *masks;
};

struct constraint_cache *constraint_cache_create(const struct token_trie *trie,
                                                 struct constraint_cache_limits limits);
/* No entry may be held any more. */
void constraint_cache_destroy(struct constraint_cache *cache); /* NULL is fine */

/* Returns the entry, compiled now if it isn't there, and holds it until constraint_cache_give.
 * STATUS_INVALID: it can't be compiled, or can never fit. STATUS_LIMIT: entries that are held leave
 * no room now. */
enum status constraint_cache_take(struct constraint_cache *cache,
                                  const struct constraint_source *source, uint64_t owner,
                                  const struct constraint_entry **entry,
                                  struct error *err) WARN_UNUSED;
void constraint_cache_give(struct constraint_cache *cache, const struct constraint_entry *entry);

struct constraint_cache_counts {
    uint64_t found, compiled, dropped;
    uint64_t refused; /* sources found to be refused for good */
    uint32_t entries;
    size_t bytes;
};
struct constraint_cache_counts constraint_cache_counts(const struct constraint_cache *cache);

#endif
