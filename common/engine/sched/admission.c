/* Which sequences can ever fit, how many blocks one needs to begin, what it reuses of the prefix
 * cache, and (scheduler_reserve) which one gets blocks next. */
#include "common/base/assert.h"
#include "common/base/domain/tenant_share.h"
#include "common/engine/sched/scheduler_state.h"

#include <string.h>

#define MATCHES  16 /* cache lookups of one round: each hashes a prompt */
#define SIBLINGS 64 /* sequences that one is compared with */

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

/* ---------------------------------------------------------------- blocks */

uint32_t admission_need(const struct scheduler *s, const struct sequence *sequence)
{
    /* The last token's row isn't computed, but counts, as the router counts it. */
    uint32_t all = sequence->token_capacity - 1, now = sequence->token_count + 1;
    return scheduler_blocks_for(s, s->config.grow && now < all ? now : all);
}

uint32_t admission_available(const struct scheduler *s)
{
    uint32_t stuck = s->cache ? prefix_cache_stuck(s->cache) : 0;
    return kv_blocks_count(s->blocks, KV_BLOCK_FREE) + kv_blocks_count(s->blocks, KV_BLOCK_CACHED) -
           stuck;
}

bool admission_make_free(struct scheduler *s, uint32_t count)
{
    uint32_t free_count = kv_blocks_count(s->blocks, KV_BLOCK_FREE);
    if (free_count < count && s->cache)
        free_count += prefix_cache_evict(s->cache, count - free_count);
    return free_count >= count;
}

static bool has_room(const struct scheduler *s, uint32_t need)
{
    uint64_t left_free = s->config.grow ? s->growers : 0;
    return need + left_free <= admission_available(s);
}

bool admission_make_room(struct scheduler *s, uint32_t need)
{
    return has_room(s, need) && admission_make_free(s, need);
}

void admission_take(struct scheduler *s, struct sequence *sequence, uint32_t count)
{
    ASSERT(sequence->block_count + count <= s->blocks_per_sequence);
    enum status status =
        kv_blocks_take(s->blocks, count, sequence->hold, sequence->blocks + sequence->block_count);
    ASSERT(status == STATUS_OK);
    sequence->block_count += count;
}

/* ---------------------------------------------------------------- cached blocks */

/* Returns how many tokens to look up: all rows except the last may come from the cache. If logprobs
 * of the prompt are due, the rows that give them must be computed. */
static uint32_t reusable_tokens(const struct sequence *sequence)
{
    return sequence_scores(sequence) ? sequence->score_next : sequence->token_count;
}

struct prefix_match admission_match(const struct scheduler *s, const struct sequence *sequence)
{
    if (!s->cache || sequence->state == SEQUENCE_SWAPPED)
        return (struct prefix_match){0};
    return prefix_cache_match(s->cache, sequence->root, sequence->tokens,
                              reusable_tokens(sequence));
}

/* ---------------------------------------------------------------- siblings */

static struct alike *alike_of(const struct scheduler *s, const struct sequence *sequence)
{
    return &s->heads[(sequence->head >> 1) & (s->bucket_count - 1)];
}

void admission_unlist(struct scheduler *s, struct sequence *sequence)
{
    if (sequence->is_listed)
        TAILQ_REMOVE(alike_of(s, sequence), sequence, alike);
    sequence->is_listed = false;
}

/* True: whole blocks of its prompt are still to come into the cache. */
static bool is_under_way(const struct scheduler *s, const struct sequence *sequence)
{
    if (sequence->removed)
        return false;
    return (sequence->state == SEQUENCE_PREFILL && !sequence->waits) ||
           (sequence->in_flight &&
            sequence->chain.length < sequence->prompt_count / s->config.block_tokens);
}

/* True: the other sequence's next whole blocks will be in the cache no later than this one would
 * have computed them, or soon. A sequence that is received has no rows here. */
static bool is_led_by(const struct scheduler *s, const struct sequence *sequence,
                      const struct sequence *other)
{
    if (other->order >= sequence->order || other->class_index > sequence->class_index ||
        other->tenant->turn > sequence->tenant->turn || !other->remembers ||
        (other->chain.length && !other->chain.stamp))
        return false;
    if (other->state == SEQUENCE_PREFILL && other->likely_late && !sequence->likely_late)
        return false;
    if (other->state != SEQUENCE_RESERVED && !is_under_way(s, other))
        return false;
    if (sequence->plan == PLAN_RECEIVE || other->state == SEQUENCE_RESERVED)
        return sequence->awaits_us == UINT64_MAX ||
               s->now_us < sequence->awaits_us + SCHEDULER_SIBLING_US;
    return policy_rank(s->policy, other) <= policy_rank(s->policy, sequence);
}

/* Returns how many whole blocks of its prompt the other one has, too. */
static uint32_t blocks_alike(const struct scheduler *s, const struct sequence *sequence,
                             const struct sequence *other)
{
    uint32_t per = s->config.block_tokens, rows = reusable_tokens(sequence);
    uint32_t most = min_u32(rows ? (rows - 1) / per : 0, other->prompt_count / per), same = 0;
    if (other->head != sequence->head || !prefix_hash_equal(other->root, sequence->root))
        return 0;
    while (same < most && !memcmp(sequence->tokens + (size_t)same * per,
                                  other->tokens + (size_t)same * per, per * sizeof(uint32_t)))
        same++;
    return same;
}

/* Chooses the sibling that saves it most rows, and at least half of those that no cache has. */
static void find_sibling(struct scheduler *s, struct sequence *sequence)
{
    uint32_t most = 0, looks = SIBLINGS;
    struct sequence *best = NULL, *next;
    sequence->awaits = NULL;
    for (struct sequence *other = TAILQ_FIRST(alike_of(s, sequence)); other && looks--;
         other = next) {
        next = TAILQ_NEXT(other, alike);
        bool has_ended = other->state == SEQUENCE_DECODE || other->state == SEQUENCE_HELD;
        if (has_ended && !is_under_way(s, other)) {
            admission_unlist(s, other);
            continue;
        }
        uint32_t alike = is_led_by(s, sequence, other) ? blocks_alike(s, sequence, other) : 0;
        if (alike > most && alike > other->chain.length) {
            most = alike;
            best = other;
        }
    }
    if (!best)
        return;
    uint32_t per = s->config.block_tokens, cached = admission_match(s, sequence).blocks;
    if (most <= cached || 2 * (most - cached) * per < sequence->token_count - cached * per)
        return;
    sequence->awaits = best;
    sequence->awaits_order = best->order;
    sequence->awaits_blocks = most;
    if (sequence->awaits_us == UINT64_MAX)
        sequence->awaits_us = s->now_us;
}

/* True: it is better to wait for the sibling that computes or receives its prefix. */
static bool awaits_sibling(struct scheduler *s, struct sequence *sequence)
{
    const struct sequence *other = sequence->awaits;
    if (!sequence->head || sequence->preempted)
        return false;
    bool goes_on = other && other->tokens && other->order == sequence->awaits_order &&
                   other->chain.length < sequence->awaits_blocks;
    if (!goes_on || !is_led_by(s, sequence, other))
        find_sibling(s, sequence);
    if (!sequence->awaits)
        return false;
    uint64_t until_us = sequence->awaits_us + SCHEDULER_SIBLING_US;
    bool received = sequence->plan == PLAN_RECEIVE || sequence->awaits->state == SEQUENCE_RESERVED;
    if (received && until_us < s->wake_us)
        s->wake_us = until_us;
    return true;
}

/* ---------------------------------------------------------------- blocks for one */

/* Some of the `need` blocks may be cached. Lookups are counted: a waiting sequence looks again in
 * each round. */
static bool has_room_with_cached(struct scheduler *s, const struct sequence *sequence,
                                 uint32_t need)
{
    if (has_room(s, need))
        return true;
    if (!s->cache || s->matches_left == 0)
        return false;
    s->matches_left--;
    struct prefix_match match = admission_match(s, sequence);
    return has_room(s, need - match.blocks + match.idle);
}

/* Takes cached blocks first: making room for the others must not evict them. They count as asked
 * for only if all seems to fit. */
static bool take_with_cached(struct scheduler *s, struct sequence *sequence, uint32_t need)
{
    if (!has_room_with_cached(s, sequence, need))
        return false;
    sequence->chain = prefix_chain_start(sequence->root);
    sequence->remembers = s->cache != NULL;
    if (s->cache) {
        sequence->block_count =
            prefix_cache_lookup(s->cache, &sequence->chain, sequence->tokens,
                                reusable_tokens(sequence), sequence->hold, sequence->blocks);
        sequence->computed = sequence->block_count * s->config.block_tokens;
    }
    uint32_t hits = sequence->block_count;
    if (admission_make_room(s, need - hits)) {
        admission_take(s, sequence, need - hits);
        return true;
    }
    kv_blocks_give(s->blocks, sequence->blocks, hits, sequence->hold);
    sequence->block_count = sequence->computed = 0;
    return false;
}

/* Takes all blocks that the sequence needs to begin or go on, or none. */
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
        if (sequence->head && !sequence->is_listed) /* its siblings find it from now on */
            TAILQ_INSERT_TAIL(alike_of(s, sequence), sequence, alike);
        sequence->is_listed = sequence->head != 0;
    }
    s->growers += scheduler_runs(sequence);
    return true;
}

/* ---------------------------------------------------------------- rounds */

void admission_end_round(struct scheduler *s)
{
    s->queue_is_built = false;
}

/* Returns true if no sequence of its class or below may get blocks before it does. */
static bool has_reservation(const struct scheduler *s, const struct sequence *sequence)
{
    uint64_t waited_us = s->now_us > sequence->arrived_us ? s->now_us - sequence->arrived_us : 0;
    return sequence->preempted || (!sequence->likely_late && waited_us >= s->config.overtake_us);
}

/* Ranks by class, then likely late, then the tenant's turn, then preempted, then with a reservation
 * by arrival, then the policy's order. */
static uint64_t rank_of(const struct scheduler *s, const struct sequence *sequence)
{
    uint64_t rank = (uint64_t)sequence->class_index << 1 | sequence->likely_late;
    rank = (rank << TENANT_TURN_BITS | sequence->tenant->turn) << 2;
    if (sequence->preempted)
        return rank << POLICY_RANK_BITS;
    /* With overtake_us 0 all have a reservation, and the policy still orders them. */
    if (s->config.overtake_us && has_reservation(s, sequence))
        return (rank | 1) << POLICY_RANK_BITS;
    return (rank | 2) << POLICY_RANK_BITS | policy_rank(s->policy, sequence);
}

/* Counts the blocks of the tenant's sequences, the oldest first. */
static void count_blocks(struct scheduler *s, struct tenant *tenant)
{
    s->counts++;
    tenant->blocks = 0;
    for (struct sequence *sequence = tenant->oldest; sequence;
         sequence = sequence->next_of_tenant) {
        sequence->own_blocks = 0;
        for (uint32_t i = 0; i < sequence->block_count; i++) {
            uint64_t *counted = &s->counted[sequence->blocks[i]];
            sequence->own_blocks += *counted != s->counts;
            *counted = s->counts;
        }
        tenant->blocks += sequence->own_blocks;
    }
}

void admission_count_blocks(struct scheduler *s)
{
    if (!tenants_have_shares(&s->tenants, s->now_us))
        return;
    for (uint32_t i = 0; i < s->tenants.present_count; i++)
        s->tenants.present[i]->oldest = NULL;
    for (uint32_t i = s->count; i-- > 0;) {
        struct sequence *sequence = s->by_arrival[i];
        sequence->next_of_tenant = sequence->tenant->oldest;
        sequence->tenant->oldest = sequence;
    }
    for (uint32_t i = 0; i < s->tenants.present_count; i++)
        count_blocks(s, s->tenants.present[i]);
}

static void begin_round(struct scheduler *s)
{
    s->queue.count = s->growers = 0;
    tenants_set_turns(&s->tenants);
    admission_count_blocks(s);
    for (uint32_t i = 0; i < s->tenants.present_count; i++)
        s->tenants.present[i]->held_back = false;
    for (uint32_t i = 0; i < s->count; i++) {
        struct sequence *sequence = s->by_arrival[i];
        s->growers += scheduler_runs(sequence);
        if (!scheduler_waits(sequence))
            continue;
        sequence->likely_late =
            sequence->deadline_us != UINT64_MAX && deadline_is_likely_missed(s, sequence);
        if (s->policy->age)
            s->policy->age(sequence, s->now_us, s->config.starve_us);
        sequence->ranked_turn = sequence->tenant->turn;
        s->queue.entries[s->queue.count++] =
            (struct ranked){rank_of(s, sequence), sequence->order, sequence};
    }
    ranking_build(&s->queue);
    s->matches_left = MATCHES;
    s->online_waits = false;
    s->blocked = NULL;
    s->wake_us = UINT64_MAX;
    s->had_turns = false;
    s->queue_is_built = true;
}

/* Takes the first one. Its tenant may have had a turn since it was ranked: then it is ranked
 * again. */
static struct sequence *take_first(struct scheduler *s)
{
    for (struct sequence *sequence; (sequence = ranking_take(&s->queue));) {
        if (sequence->tenant->turn == sequence->ranked_turn)
            return sequence;
        sequence->ranked_turn = sequence->tenant->turn;
        ranking_put(&s->queue, (struct ranked){rank_of(s, sequence), sequence->order, sequence});
    }
    return NULL;
}

/* Returns false if the sequence's tenant must leave the blocks to others. Once the sequence has a
 * reservation, later ones of the tenant must not overtake it, or it would wait for ever. */
static bool is_within_share(struct scheduler *s, const struct sequence *sequence)
{
    struct tenant *tenant = sequence->tenant;
    if (!tenants_have_shares(&s->tenants, s->now_us) || !tenant->blocks)
        return true;
    uint64_t blocks = (uint64_t)tenant->blocks + admission_need(s, sequence);
    bool fits = !tenant->held_back && blocks <= tenant_share(s->config.block_count, 1);
    tenant->held_back |= !fits && has_reservation(s, sequence);
    return fits;
}

/* Returns the next sequence of this round that gets blocks. */
static struct sequence *reserve_next(struct scheduler *s)
{
    uint32_t offline = priority_class(PRIORITY_OFFLINE);
    for (struct sequence *sequence; (sequence = take_first(s));) {
        if (sequence->class_index == offline && s->online_waits)
            break; /* all that follow are offline, too */
        if (sequence->preempted && s->blocked &&
            (s->blocked->class_index < sequence->class_index ||
             s->blocked->tenant->turn < sequence->tenant->turn))
            break; /* it may have been preempted for `blocked`: it must not take the room back */
        if (!is_within_share(s, sequence)) {
            s->online_waits |= sequence->class_index != offline;
            continue;
        }
        bool looks = sequence->awaits || has_room(s, admission_need(s, sequence));
        if (looks && awaits_sibling(s, sequence)) {
            s->online_waits |= sequence->class_index != offline;
            continue;
        }
        if (take_blocks(s, sequence)) {
            bool is_known = sequence->preempted;
            sequence->preempted = false;
            if (tenants_have_shares(&s->tenants, s->now_us))
                count_blocks(s, sequence->tenant);
            if (is_known)
                continue;
            tenants_serve(&s->tenants, sequence->tenant,
                          (uint64_t)TENANT_PROMPT_WEIGHT *
                              (sequence->prompt_count - sequence->computed));
            tenants_set_turn(&s->tenants, sequence->tenant);
            return sequence;
        }
        if (!s->blocked)
            s->blocked = sequence;
        s->online_waits |= sequence->class_index != offline;
        if (has_reservation(s, sequence))
            break;
        if (admission_available(s) == 0)
            break;
    }
    return NULL;
}

struct sequence *scheduler_reserve(struct scheduler *s, uint64_t now_us)
{
    scheduler_set_now(s, now_us);
    for (bool again = true; again;) {
        if (!s->queue_is_built)
            begin_round(s);
        struct sequence *sequence = reserve_next(s);
        if (sequence) {
            s->had_turns = s->tenants.present_count > 1;
            return sequence;
        }
        again = s->had_turns; /* after turns the order is another one */
        admission_end_round(s);
    }
    return NULL;
}
