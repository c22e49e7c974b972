/* The names of a prompt's blocks (prefix_hash.h), one list for each kind of workers of its model,
 * as the workers name them. PURE. A prompt's names are computed once, when it is first placed, and
 * again only for kinds that have come since.
 *
 * Bounded: the first PREFIX_MAX_NAMES blocks of a prompt, for PREFIX_MAX_KINDS kinds. Names of
 * 131,072 tokens in blocks of 32 take some 0.2 ms. Owner: one thread. */
#ifndef BATON_ROUTER_PLANNER_PROMPT_NAMES_H
#define BATON_ROUTER_PLANNER_PROMPT_NAMES_H

#include "router/planner/candidates.h"
#include "router/planner/prefix_index.h"

struct prompt_names { /* zero at its start */
    struct prefix_names kinds[PREFIX_MAX_KINDS];
    size_t count;
};

struct prompt_text {
    const uint32_t *tokens; /* [count] */
    uint32_t count;
    const void *salt; /* [salt_bytes] the tenant's; 0 bytes: the default tenant */
    size_t salt_bytes;
};

/* Adds the names for the kinds of workers that are there now. Without memory some are missing. */
void prompt_names_update(struct prompt_names *names, const struct prompt_text *prompt,
                         const struct candidate_pool *pool);
void prompt_names_deinit(struct prompt_names *names);

/* Returns the names as the worker has them; NULL: none. */
const struct prefix_names *prefix_names_for(const struct prefix_names *kinds, size_t kind_count,
                                            const struct route_worker *worker);

#endif
