/* Which blocks of cached prompts each worker holds, as the workers' cache events say, and which
 * blocks it was promised: a request that will compute them was placed there. PURE.
 *
 * Events. The events of one session are numbered without gaps. A stream begins with `cleared`. A
 * gap, or a stream without that beginning, means that events were lost: the worker's blocks are
 * forgotten, prefix_index_take returns PREFIX_TAKE_GAP once, and the caller asks the worker for a
 * restart of its events. Until the next `cleared` the worker's events are ignored. A session that
 * ends takes all of the worker's blocks and promises with it (prefix_index_drop).
 *
 * Promises. A request's blocks count as held by the worker that computes them from its placement
 * on, so that a burst of siblings isn't scattered. An event that a block is stored settles the
 * promises of it that were made before. The other ways in which a promise ends: its request ends
 * without computing (prefix_index_take_back), or time passes: PREFIX_PROMISE_US after the
 * placement, PREFIX_COMPUTED_US after the prompt was computed, as events follow it. Workers that
 * have told no event of their session are promised nothing: they may have no cache.
 *
 * A block is credited to a worker if it holds the block, or has an open promise of it. The index is
 * exactly the credited pairs (block, worker), up to its limit. Beyond it each new pair takes the
 * place of a pair without promises: the least recently used of the same worker, if that has its
 * fair share of the limit, otherwise of one that has more than that. Used: stored, or promised
 * (second chance). The blocks of a prompt go from its end, and new ones aren't noted without the
 * one before, as a run without its beginning is none. So a full index knows less than there is, and
 * never more. If PREFIX_VICTIMS in a row aren't to be evicted, the new pair isn't noted.
 *
 * A name isn't proof (prefix_hash.h): a match is a hint for placement, the worker compares tokens.
 *
 * Cost: an event and a promised block O(1), below 1 us. A match of a run of n blocks, O(n) if few
 * workers hold them, O(n * workers / 64) if many do: 400 blocks of 4,096 workers some 40 us. The
 * end of a session O(blocks of this worker). Memory: at most about 75 bytes a pair, and for each
 * block that many workers hold, a bit a worker. Owner: one thread. */
#ifndef BATON_ROUTER_PLANNER_PREFIX_INDEX_H
#define BATON_ROUTER_PLANNER_PREFIX_INDEX_H

#include "common/base/domain/prefix_hash.h"
#include "common/base/domain/worker_info.h"
#include "common/engine/sched/prefix_cache.h"

#define PREFIX_PROMISE_US  60000000
#define PREFIX_COMPUTED_US 2000000
/* Promises that are open at once. Further requests are promised nothing. */
#define PREFIX_MAX_PROMISES 65536
/* Blocks of one prompt that have names. The rest of a longer prompt is never matched. */
#define PREFIX_MAX_NAMES 8192
/* Kinds of workers of one model for which a prompt has names. */
#define PREFIX_MAX_KINDS 4
#define PREFIX_VICTIMS   64
#define PREFIX_MAX_PAIRS (1u << 26)

struct prefix_index;

/* The names of a prompt's whole blocks, computed by workers of one kind (weights, numerics, block
 * size). */
struct prefix_names {
    uint64_t model_hash, numerics_id;
    uint32_t block_tokens;
    /* Blocks that a request for this prompt may find in a cache. A prompt that ends with a whole
     * block has one name more: its last row is always computed. */
    uint32_t match_count;
    uint32_t count;
    const struct prefix_hash *names; /* [count], in order */
};

/* A worker that is credited with the beginning of a prompt. */
struct prefix_holder {
    uint64_t worker; /* its key */
    uint32_t blocks; /* > 0: the longest run from the prompt's start */
    uint32_t tokens; /* in these blocks */
};

/* `limit`: pairs (block, worker), > 0. `seed`: random, so that no client can aim names at one place
 * of the hash table; no result depends on it. STATUS_LIMIT: no memory. */
enum status prefix_index_create(uint32_t limit, uint64_t seed,
                                struct prefix_index **index) WARN_UNUSED;
void prefix_index_destroy(struct prefix_index *index);

/* --- events --- */

enum prefix_take {
    PREFIX_TAKE_OK,
    PREFIX_TAKE_GAP, /* ask the worker for a restart of its events */
    /* No honest worker says this: a number that was there, or 0; more blocks removed than stored; a
     * block without tokens. The caller ends the session. */
    PREFIX_TAKE_BAD,
};
/* Takes the next events of a worker's session. The worker is known from then on. Workers beyond
 * CLUSTER_MAX_WORKERS are ignored. */
enum prefix_take prefix_index_take(struct prefix_index *index, uint64_t worker,
                                   const struct prefix_event *events, size_t count);
/* The worker's session ended: forgets it, its blocks and its promises. */
void prefix_index_drop(struct prefix_index *index, uint64_t worker);
/* The worker reported its free blocks: neither in use nor cached. */
void prefix_index_free_blocks(struct prefix_index *index, uint64_t worker, uint32_t free_blocks);

/* --- promises --- */

/* Credits the worker with the blocks. Returns the promise's id; 0: nothing was promised, as the
 * worker is unknown or there is no room. */
uint64_t prefix_index_promise(struct prefix_index *index, uint64_t worker,
                              const struct prefix_names *names, uint64_t now_us);
/* The worker has taken the blocks for this promise from its free ones. */
void prefix_index_reserved(struct prefix_index *index, uint64_t promise);
/* The prompt is computed: events about its blocks are on their way. */
void prefix_index_computed(struct prefix_index *index, uint64_t promise, uint64_t now_us);
/* Its request will not be computed there. These three ignore promises that have ended, and 0. */
void prefix_index_take_back(struct prefix_index *index, uint64_t promise);
/* Ends the promises that are too old. */
void prefix_index_expire(struct prefix_index *index, uint64_t now_us);

/* --- questions --- */

/* Finds each worker that is credited with a beginning of the prompt. `names` has one entry per kind
 * of workers. Writes at most `most` holders, those with the most blocks first, and returns how
 * many. Among many equal ones it begins elsewhere each time. prefix_index_tokens has the others'
 * matches, until the next call. */
size_t prefix_index_match(struct prefix_index *index, const struct prefix_names *names,
                          size_t kind_count, struct prefix_holder *out, size_t most);
/* Returns the tokens that the last match found at this worker. O(1). */
uint32_t prefix_index_tokens(const struct prefix_index *index, uint64_t worker);
/* Returns the blocks of the longest run at one worker, O(blocks). */
uint32_t prefix_index_blocks(const struct prefix_index *index, uint64_t worker,
                             const struct prefix_hash *names, uint32_t count);
/* Returns how many cached blocks the worker will have to evict for `new_blocks` more: those that
 * its free blocks, less the ones that promised prompts will take first, don't cover. */
uint32_t prefix_index_evicts(const struct prefix_index *index, uint64_t worker,
                             uint32_t new_blocks);

struct prefix_index_figures {
    uint32_t pairs, names;    /* credited pairs (block, worker); different blocks */
    uint32_t workers;         /* with events */
    uint32_t promises;        /* open */
    uint64_t gaps;            /* in events */
    uint64_t evicted;         /* pairs, as the index was full */
    uint64_t changes[3];      /* events taken, by prefix_event_kind */
    uint64_t promised, ended; /* promises; those that were taken back or grew too old */
};
struct prefix_index_figures prefix_index_figures(const struct prefix_index *index);
/* Returns the worker's credited blocks: those that it holds, and all. */
void prefix_index_count(const struct prefix_index *index, uint64_t worker, uint32_t *held,
                        uint32_t *credited);

#endif
