#include "common/engine/sched/admission.h"

#include "common/base/assert.h"
#include "common/engine/sched/preemption.h"
#include "common/engine/sched/reuse.h"

#define MATCHES 16 /* of one round: a look costs a hash of the prompt */

uint32_t admission_hold_tokens(const struct sequence_spec *spec, uint32_t context)
{
    if (spec->plan == PLAN_HAND_OFF)
        return spec->token_count;
    uint64_t answer = spec->sampling.max_tokens - spec->emitted_count;
    uint64_t total = spec->token_count + answer;
    return total < context ? (uint32_t)total : context;
}

enum status admission_check(const struct scheduler *s, const struct sequence_spec *spec,
                            struct error *err)
{
    if (spec->token_count == 0 || spec->token_count >= s->config.context)
        return error_set(
            err, STATUS_INVALID,
            "%u tokens of prompt do not fit the context of %u tokens with room for an answer",
            spec->token_count, s->config.context);
    if (spec->emitted_count >= spec->token_count ||
        spec->emitted_count >= spec->sampling.max_tokens)
        return error_set(err, STATUS_INVALID,
                         "%u emitted tokens leave nothing to do: %u tokens in all, max_tokens %u",
                         spec->emitted_count, spec->token_count, spec->sampling.max_tokens);
    uint32_t need = scheduler_blocks_for(s, admission_hold_tokens(spec, s->config.context));
    if (need > s->config.block_count)
        return error_set(
            err, STATUS_INVALID,
            "the request needs %u KV blocks of %u tokens, the worker has %u: shorten the prompt or "
            "max_tokens, or start the worker with more --kv-tokens",
            need, s->config.block_tokens, s->config.block_count);
    return STATUS_OK;
}

uint32_t admission_need(const struct scheduler *s, const struct sequence *sequence)
{
    uint32_t all = scheduler_hold_tokens(sequence), now = sequence->token_count + 1;
    return scheduler_blocks_for(s, s->config.grow && now < all ? now : all);
}

uint32_t admission_count_growers(const struct scheduler *s)
{
    uint32_t growers = 0;
    for (uint32_t i = 0; i < s->count; i++)
        growers += scheduler_runs(s->by_arrival[i]);
    return growers;
}

/* `need` blocks, and one for each that runs and grows. */
static bool has_room(const struct scheduler *s, uint32_t need)
{
    uint64_t left_free = s->config.grow ? s->growers : 0;
    return need + left_free <= reuse_available(s);
}

bool admission_make_room(struct scheduler *s, uint32_t need)
{
    return has_room(s, need) && reuse_make_free(s, need);
}

void admission_end_round(struct scheduler *s)
{
    s->queue_is_built = false;
}

static bool waits(const struct sequence *sequence)
{
    return sequence->state == SEQUENCE_WAITING || sequence->state == SEQUENCE_SWAPPED;
}

/* Nobody of its class or below gets blocks before it does. */
static bool has_reservation(const struct scheduler *s, const struct sequence *sequence)
{
    uint64_t waited_us = s->now_us > sequence->arrived_us ? s->now_us - sequence->arrived_us : 0;
    return sequence->preempted || waited_us >= s->config.overtake_us;
}

static uint64_t rank_of(const struct scheduler *s, const struct sequence *sequence)
{
    uint64_t rank = (uint64_t)sequence->class_index << 2;
    if (sequence->preempted)
        return rank << POLICY_RANK_BITS;
    /* With no time in which it may be overtaken, the policy still orders who waits. */
    if (s->config.overtake_us && has_reservation(s, sequence))
        return (rank | 1) << POLICY_RANK_BITS;
    return (rank | 2) << POLICY_RANK_BITS | policy_rank(s->policy, sequence);
}

static void begin_round(struct scheduler *s)
{
    s->queue.count = s->growers = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        struct sequence *sequence = s->by_arrival[i];
        s->growers += scheduler_runs(sequence);
        if (!waits(sequence))
            continue;
        if (s->policy->age)
            s->policy->age(sequence, s->now_us, s->config.starve_us);
        s->queue.entries[s->queue.count++] =
            (struct ranked){rank_of(s, sequence), sequence->order, sequence};
    }
    ranking_build(&s->queue);
    s->matches_left = MATCHES;
    s->online_waits = false;
    s->blocked = NULL;
    s->queue_is_built = true;
}

/* Of `need` blocks, some may be cached. Looks are counted: who waits looks again and again. */
static bool has_room_with_cached(struct scheduler *s, const struct sequence *sequence,
                                 uint32_t need)
{
    if (has_room(s, need))
        return true;
    if (!s->cache || s->matches_left == 0)
        return false;
    s->matches_left--;
    struct prefix_match match = reuse_match(s, sequence);
    return has_room(s, need - match.blocks + match.idle);
}

/* Cached blocks first: making room for the others must not evict those. They count as asked for
 * only when all seems to fit. */
static bool take_with_cached(struct scheduler *s, struct sequence *sequence, uint32_t need)
{
    if (!has_room_with_cached(s, sequence, need))
        return false;
    reuse_take(s, sequence);
    uint32_t hits = sequence->block_count;
    if (admission_make_room(s, need - hits)) {
        preemption_take(s, sequence, need - hits);
        return true;
    }
    kv_blocks_give(s->blocks, sequence->blocks, hits, sequence->hold);
    sequence->block_count = sequence->computed = 0;
    return false;
}

/* All that it needs to begin or go on, or none. */
static bool take_blocks(struct scheduler *s, struct sequence *sequence)
{
    static const enum kv_hold purpose[] = {[PLAN_HAND_OFF] = KV_HOLD_PINNED,
                                           [PLAN_RECEIVE] = KV_HOLD_LANDING,
                                           [PLAN_LOCAL] = KV_HOLD_USED};
    uint32_t need = admission_need(s, sequence);
    if (sequence->state == SEQUENCE_SWAPPED) {
        if (!admission_make_room(s, need))
            return false;
        sequence->hold = KV_HOLD_USED;
        preemption_swap_in(s, sequence, need);
        sequence->state =
            sequence->computed < sequence->prompt_count ? SEQUENCE_PREFILL : SEQUENCE_DECODE;
    } else {
        sequence->hold = purpose[sequence->plan];
        if (!take_with_cached(s, sequence, need))
            return false;
        sequence->state = sequence->plan == PLAN_RECEIVE ? SEQUENCE_RESERVED : SEQUENCE_PREFILL;
    }
    s->growers += scheduler_runs(sequence);
    return true;
}

struct sequence *scheduler_reserve(struct scheduler *s, uint64_t now_us)
{
    scheduler_told(s, now_us);
    if (!s->queue_is_built)
        begin_round(s);
    uint32_t offline = priority_class(PRIORITY_OFFLINE);
    for (struct sequence *sequence; (sequence = ranking_take(&s->queue));) {
        if (sequence->class_index == offline && s->online_waits)
            break; /* so are all that follow */
        if (sequence->preempted && s->blocked && s->blocked->class_index < sequence->class_index)
            /* it may have been preempted for that one: to take it back would be for nothing */
            break;
        if (take_blocks(s, sequence)) {
            bool is_known = sequence->preempted;
            sequence->preempted = false;
            if (is_known)
                continue;
            return sequence;
        }
        if (!s->blocked)
            s->blocked = sequence;
        s->online_waits |= sequence->class_index != offline;
        if (has_reservation(s, sequence))
            break;
        if (reuse_available(s) == 0)
            break; /* nobody fits */
    }
    admission_end_round(s);
    return NULL;
}
