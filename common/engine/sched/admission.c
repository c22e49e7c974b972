#include "common/engine/sched/admission.h"

#include "common/base/assert.h"
#include "common/engine/sched/preemption.h"

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

bool admission_has_room(const struct scheduler *s, uint32_t need)
{
    uint64_t left_free = s->config.grow ? s->growers : 0;
    return need + left_free <= kv_blocks_count(s->blocks, KV_BLOCK_FREE);
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
    s->queue.count = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        struct sequence *sequence = s->by_arrival[i];
        if (!waits(sequence))
            continue;
        if (s->policy->age)
            s->policy->age(sequence, s->now_us, s->config.starve_us);
        s->queue.entries[s->queue.count++] =
            (struct ranked){rank_of(s, sequence), sequence->order, sequence};
    }
    ranking_build(&s->queue);
    s->growers = admission_count_growers(s);
    s->online_waits = false;
    s->blocked = NULL;
    s->queue_is_built = true;
}

static void take_blocks(struct scheduler *s, struct sequence *sequence, uint32_t need)
{
    static const enum kv_hold purpose[] = {[PLAN_HAND_OFF] = KV_HOLD_PINNED,
                                           [PLAN_RECEIVE] = KV_HOLD_LANDING,
                                           [PLAN_LOCAL] = KV_HOLD_USED};
    bool swapped = sequence->state == SEQUENCE_SWAPPED;
    sequence->hold = swapped ? KV_HOLD_USED : purpose[sequence->plan];
    if (swapped)
        preemption_swap_in(s, sequence, need);
    else
        preemption_take(s, sequence, need);
    if (swapped)
        sequence->state =
            sequence->computed < sequence->prompt_count ? SEQUENCE_PREFILL : SEQUENCE_DECODE;
    else
        sequence->state = sequence->plan == PLAN_RECEIVE ? SEQUENCE_RESERVED : SEQUENCE_PREFILL;
    s->growers += scheduler_runs(sequence);
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
        uint32_t need = admission_need(s, sequence);
        if (admission_has_room(s, need)) {
            bool is_known = sequence->preempted;
            take_blocks(s, sequence, need);
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
    }
    admission_end_round(s);
    return NULL;
}
