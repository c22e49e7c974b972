/* What both ends of a KV handoff share: the handle, the Peer messages, and the tables' common
 * numbers. PURE.
 *
 * `source` (on prefill) owns the blocks of a prompt until a reader has confirmed them; `sink` (on
 * decode) pulls them. Both are state machines: an event comes in with the time, actions come out,
 * and a thin layer executes them (docs/handoff.md has the protocol and what it excludes). These
 * structs mirror proto/worker.proto; the layer translates.
 *
 * For source.h and sink.h alike:
 * - A table belongs to one thread (the transfer thread). No clock, no I/O, no locks; after create
 *   no call allocates.
 * - Every call first empties the caller's action list, then appends; the list was sized for the
 *   table, so it can't overflow.
 *    The actions are executed in order. Pointers in them lead into the table and are good until the next call on it, so
 *    events that an action causes are queued, not fed in while the list is being walked.
 * - Times are microseconds of one monotonic clock and never run backwards.
 * - A message of an older attempt is dropped and counted; a question about a handle is always
 *   answered.
 */
#ifndef BATON_KV_HANDOFF_HANDOFF_H
#define BATON_KV_HANDOFF_HANDOFF_H

#include "common/base/domain/sampling.h"
#include "common/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Names the bytes of one prompt on one prefill process: another incarnation or generation is other
 * bytes. */
struct handle_ref {
    uint64_t incarnation; /* random at process start */
    uint32_t id;          /* slot in the source table */
    uint32_t generation;  /* counts the uses of that slot, from 1 */
};

bool handle_ref_equal(struct handle_ref a, struct handle_ref b);

struct handle {
    struct handle_ref ref;
    uint64_t model_hash, layout_hash, numerics_id;
    uint32_t token_count; /* prompt + emitted */
    uint64_t prompt_hash; /* of those tokens; what it is made of is the roles' business */
    uint32_t block_count;
    const uint32_t *blocks; /* [block_count] in the source's pool, in order */
};

/* decode -> prefill */
enum peer_down_kind { PEER_SUBSCRIBE, PEER_EXTEND, PEER_CONFIRM, PEER_RELEASE };
const char *peer_down_kind_name(enum peer_down_kind kind);

struct peer_down {
    enum peer_down_kind kind;
    uint64_t request;
    uint32_t attempt;
    struct handle_ref ref;
};

/* prefill -> decode */
enum peer_up_kind { PEER_READY, PEER_COMPLETE, PEER_HELD, PEER_GONE, PEER_EXTENDED };
const char *peer_up_kind_name(enum peer_up_kind kind);

struct peer_up {
    enum peer_up_kind kind;
    uint64_t request;
    uint32_t attempt;
    uint32_t ready_tokens; /* READY: whole blocks up to here are readable */
    /* COMPLETE: everything is readable, and: */
    uint32_t first_token;
    uint64_t logits_hash;           /* if asked for, else 0 */
    struct token_logprobs logprobs; /* of the first token */
    enum finish_reason
        finish; /* not NONE: the answer ends with the first token and no bytes need to move */
    uint32_t checksum_count;   /* one a block, or 0 where the path has none */
    const uint32_t *checksums; /* CRC32C of each whole block */
    uint64_t left_us;          /* EXTENDED: of the lease */
};

/* Neighbours on both sides, as one run. */
struct block_run {
    uint32_t remote_block, local_block, block_count;
};

/* Merges the pairs remote[i] -> local[i] into runs, in order; `runs` has room for block_count of
 * them. Returns how many. */
uint32_t block_runs(const uint32_t *remote, const uint32_t *local, uint32_t block_count,
                    struct block_run *runs);

/* The latest attempts that have ended here. (request, attempt) names one piece of work for ever:
 * what the two threads of a worker still have to say about an ended one must not meet another of
 * the same name, so none of them is begun again. */
#define PAST_ATTEMPTS 1024
struct past_attempts {
    struct {
        uint64_t request;
        uint32_t attempt;
    } items[PAST_ATTEMPTS]; /* a ring */
    uint64_t added;
};

void past_attempts_add(struct past_attempts *past, uint64_t request, uint32_t attempt);
/* Whether this attempt, or a newer one of the request, is among them. */
bool past_attempts_has(const struct past_attempts *past, uint64_t request, uint32_t attempt);

#endif
