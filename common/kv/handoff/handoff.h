/* The shared words of both ends of a KV handoff: the handle, the Peer messages, and numbers that
 * both tables use. PURE.
 *
 * `source` (on the prefill worker) owns the blocks of a prompt until a reader has confirmed them.
 * `sink` (on the decode worker) pulls them. Both are state machines: an event comes in with the
 * time, actions come out, and a thin layer executes them. docs/handoff.md has the protocol and the
 * mistakes that it excludes. These structs mirror proto/worker.proto; the layer translates.
 *
 * Rules for source.h and sink.h alike:
 * - A table belongs to one thread, the transfer thread. No clock, no I/O, no locks. After create no
 *   call allocates.
 * - Every call first empties the caller's action list, then appends. The list was sized for the
 *   table, so it can't overflow.
 * - The actions are executed in order. Their pointers lead into the table and are valid until the
 *   next call on it. So events that an action causes are queued, and not fed in while the list is
 *   being executed.
 * - Times are microseconds of one monotonic clock and never run backwards.
 * - A message of an older attempt is dropped and counted. A question about a handle is always
 *   answered.
 */
#ifndef BATON_KV_HANDOFF_HANDOFF_H
#define BATON_KV_HANDOFF_HANDOFF_H

#include "common/base/domain/sampling.h"
#include "common/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Names the KV bytes of one prompt in one prefill process. Another incarnation or generation means
 * other bytes. */
struct handle_ref {
    uint64_t incarnation; /* random at process start */
    uint32_t id;          /* slot in the source table */
    uint32_t generation;  /* counts the uses of that slot, from 1 */
};

bool handle_ref_equal(struct handle_ref a, struct handle_ref b);
/* Returns the number by which a reader claims blocks of the handle at the byte plane of its source
 * (source_may_read). Never 0. */
uint64_t handle_grant(struct handle_ref ref);

struct handle {
    struct handle_ref ref;
    uint64_t model_hash, layout_hash, numerics_id;
    uint32_t token_count; /* prompt + emitted */
    uint64_t prompt_hash; /* made of those tokens; only the roles know how */
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
    uint64_t logits_hash;           /* if the request asked for it, otherwise 0 */
    struct token_logprobs logprobs; /* the first token's */
    /* not NONE: the answer ends with the first token, and no bytes need to move */
    enum finish_reason finish;
    /* READY, COMPLETE: kv_block_sum of blocks from sum_first on; COMPLETE has those of all blocks.
     * Before protocol 7 it had only checksums: the CRC32C of each whole block. Neither: the path
     * has none. A source gives both. */
    uint32_t sum_first, sum_count, checksum_count;
    const uint64_t *sums;
    const uint32_t *checksums;
    uint64_t left_us; /* EXTENDED: time left of the lease */
};

/* A run of blocks that are neighbours on both sides. */
struct block_run {
    uint32_t remote_block, local_block, block_count;
};

/* Merges the pairs remote[i] -> local[i] into runs, in order; `runs` has room for block_count of
 * them. Returns the number of runs. */
uint32_t block_runs(const uint32_t *remote, const uint32_t *local, uint32_t block_count,
                    struct block_run *runs);

/* The latest attempts that have ended here. (request, attempt) names one piece of work for ever.
 * The threads of a worker may still report about an ended one, and such a report must not meet
 * another attempt of the same name. So an attempt in this list is not begun again. */
#define PAST_ATTEMPTS 1024
struct past_attempts {
    struct {
        uint64_t request;
        uint32_t attempt;
    } items[PAST_ATTEMPTS]; /* a ring */
    uint64_t added;
};

void past_attempts_add(struct past_attempts *past, uint64_t request, uint32_t attempt);
/* Returns true if this attempt, or a newer one of the request, is in the list. */
bool past_attempts_has(const struct past_attempts *past, uint64_t request, uint32_t attempt);

#endif
