/* Checks the order in which sequences get blocks and rows. */
#include "common/base/domain/tenant_share.h"
#include "tests/schedule/schedule_sim.h"

/* The policy puts it first: it has starved, and had no more than mlfq's quantum since. `ran_us`:
 * when it last had rows. */
static bool starved(const struct life *life, const struct sequence *sequence, uint64_t ran_us)
{
    uint64_t since_us = life->config.policy == POLICY_SRPF ? sequence->arrived_us : ran_us;
    return life->config.policy != POLICY_FCFS &&
           (sequence->promoted || life->now_us - since_us >= life->config.starve_us);
}

/* --- blocks --- */

static bool has_reservation(const struct life *life, const struct sequence *sequence)
{
    return sequence->preempted || (!sequence->likely_late &&
                                   life->now_us - sequence->arrived_us >= life->config.overtake_us);
}

static uint32_t need_of(const struct life *life, const struct sequence *sequence)
{
    uint32_t rows = sequence->token_capacity - 1, per = life->config.block_tokens;
    if (life->config.grow && sequence->token_count + 1 < rows)
        rows = sequence->token_count + 1;
    return (rows + per - 1) / per;
}

/* Returns the blocks that the tenant holds, each once, without those of `except` (NULL: none).
 * *others: how many sequences of other tenants are here. */
static uint32_t blocks_of(const struct life *life, const struct tenant *tenant,
                          const struct sequence *except, uint32_t *others)
{
    uint32_t blocks = 0;
    bool met[LIFE_BLOCKS + 1] = {false};
    size_t cursor = 0;
    *others = 0;
    for (struct sequence *other; (other = scheduler_next(life->scheduler, &cursor));) {
        *others += other->tenant != tenant;
        if (other->tenant != tenant || other == except)
            continue;
        for (uint32_t i = 0; i < other->block_count; i++) {
            blocks += !met[other->blocks[i]];
            met[other->blocks[i]] = true;
        }
    }
    return blocks;
}

/* The tenant's share doesn't have the sequence's blocks, too. `got`: the last to get blocks; NULL:
 * none. */
static bool is_over_share(const struct life *life, const struct sequence *sequence,
                          const struct sequence *got)
{
    uint32_t others, held = blocks_of(life, sequence->tenant, got, &others);
    return held && others &&
           held + need_of(life, sequence) >
               life->config.block_count - life->config.block_count / TENANT_OTHERS_PART;
}

/* The turn of a waiting sequence's tenant, before `got` got its blocks. */
static uint64_t turn_before(const struct sequence *sequence, const struct sequence *got)
{
    return sequence->tenant == got->tenant ? got->ranked_turn : sequence->tenant->turn;
}

/* Returns true if its turn is by arrival. If overtake_us is 0, the policy orders the sequences
 * that haven't starved. */
static bool is_due(const struct life *life, const struct sequence *sequence)
{
    bool by_policy = life->config.overtake_us == 0 && life->config.policy != POLICY_FCFS;
    return by_policy ? starved(life, sequence, sequence->ran_us) : has_reservation(life, sequence);
}

/* Blocks that nothing need be evicted for, and one left for each that runs. */
static bool fits(const struct life *life, const struct sequence *sequence)
{
    uint32_t running = 0;
    size_t cursor = 0;
    for (struct sequence *other; (other = scheduler_next(life->scheduler, &cursor));)
        running += life->config.grow && life_runs(other, other->state);
    return need_of(life, sequence) + running <=
           scheduler_load(life->scheduler).blocks[KV_BLOCK_FREE];
}

/* One that waits for its tenant's share: it has that, or another one of the tenant, which comes
 * first, needs more than is left of it. */
static bool is_held_by_share(struct life *life, const struct sequence *sequence)
{
    size_t cursor = 0;
    uint32_t others;
    if (life->tenants < 2 || !blocks_of(life, sequence->tenant, NULL, &others))
        return false;
    for (struct sequence *other; (other = scheduler_next(life->scheduler, &cursor));) {
        bool first = other == sequence || has_reservation(life, other);
        if (first && other->tenant == sequence->tenant && life_waits(other) &&
            (is_over_share(life, other, NULL) || !others)) {
            life->happened[DID_HOLD_BACK]++;
            return true;
        }
    }
    return false;
}

/* Rows that give logprobs of a prompt aren't taken from the cache. */
static uint32_t reusable(const struct sequence *sequence)
{
    return sequence_scores(sequence) ? sequence->score_next : sequence->token_count;
}

/* Blocks of the prompt that both have, whole, with the last row of `sequence` behind them. */
static uint32_t blocks_alike(const struct life *life, const struct sequence *sequence,
                             const struct sequence *other)
{
    uint32_t same = 0;
    while (same < other->prompt_count && same + 1 < reusable(sequence) &&
           sequence->tokens[same] == other->tokens[same])
        same++;
    return prefix_hash_equal(sequence->root, other->root) ? same / life->config.block_tokens : 0;
}

/* Whether the rows of `other` are computed no later than those of `sequence` would be, in this turn
 * of its tenant; if one of them is received, whether it may wait for that. */
static bool is_before(const struct life *life, const struct sequence *other,
                      const struct sequence *sequence, uint64_t turn)
{
    /* A step in flight may compute its last rows. */
    bool computes =
        other->state == SEQUENCE_PREFILL ||
        (other->in_flight && other->chain.length < other->prompt_count / life->config.block_tokens);
    if (other->order >= sequence->order || other->class_index > sequence->class_index ||
        (other->tenant != sequence->tenant && other->tenant->turn > turn))
        return false;
    if (other->state == SEQUENCE_RESERVED || sequence->plan == PLAN_RECEIVE)
        return (other->state == SEQUENCE_RESERVED || computes) &&
               (sequence->awaits_us == UINT64_MAX ||
                life->now_us - sequence->awaits_us < SCHEDULER_SIBLING_US);
    const struct policy *policy = policy_of(life->config.policy);
    return computes && policy_rank(policy, other) <= policy_rank(policy, sequence);
}

/* A sibling that came before it is about to have rows of it in the cache: many, or the rest of the
 * ones that it waits for already. */
static bool awaits_sibling(const struct life *life, const struct sequence *sequence, uint64_t turn)
{
    uint32_t per = life->config.block_tokens, most = 0;
    size_t cursor = 0;
    if (!life->config.prefix_cache || sequence->preempted || sequence->state == SEQUENCE_SWAPPED)
        return false;
    for (struct sequence *other; (other = scheduler_next(life->scheduler, &cursor));) {
        bool remembers = other->remembers && (!other->chain.length || other->chain.stamp);
        uint32_t alike = remembers && is_before(life, other, sequence, turn)
                             ? blocks_alike(life, sequence, other)
                             : 0;
        if (alike <= other->chain.length)
            continue;
        most = alike > most ? alike : most;
        if (other == sequence->awaits && other->order == sequence->awaits_order)
            return true;
    }
    uint32_t cached = prefix_cache_match(scheduler_prefix_cache(life->scheduler), sequence->root,
                                         sequence->tokens, reusable(sequence))
                          .blocks;
    return most > cached && 2 * (most - cached) * per >= sequence->token_count - cached * per;
}

/* `b`, which is new, gets no blocks while `a` waits. */
static bool stands_first(struct life *life, const struct sequence *a, const struct sequence *b)
{
    if (!has_reservation(life, a) || a->class_index > b->class_index || a->awaits)
        return false;
    if (a->tenant != b->tenant && is_held_by_share(life, a))
        return false;
    if (a->class_index < b->class_index || b->likely_late)
        return true;
    if (turn_before(a, b) != b->ranked_turn)
        return turn_before(a, b) < b->ranked_turn;
    if (a->preempted)
        return true;
    return is_due(life, a) && (!is_due(life, b) || a->order < b->order);
}

/* It got blocks that it had room for, with those that were cached for it. */
static void check_sibling(struct life *life, const struct sequence *got)
{
    uint32_t hits = got->computed / life->config.block_tokens, running = 0;
    struct scheduler_load load = scheduler_load(life->scheduler);
    uint32_t left = load.blocks[KV_BLOCK_FREE] + load.blocks[KV_BLOCK_CACHED];
    struct sequence before = *got;
    size_t cursor = 0;
    for (struct sequence *other; (other = scheduler_next(life->scheduler, &cursor));)
        running += life->config.grow && life_runs(other, other->state);
    before.state = SEQUENCE_WAITING;
    before.computed = 0;
    if (life->config.prefix_cache &&
        left >= hits + running + prefix_cache_stuck(scheduler_prefix_cache(life->scheduler)) &&
        awaits_sibling(life, &before, got->ranked_turn))
        life_fail(life, HOLDS_SIBLING, "%llu got blocks for rows that a sibling computes",
                  (unsigned long long)got->key.request);
}

void check_reserved(struct life *life, const struct sequence *got)
{
    check_sibling(life, got);
    size_t cursor = 0;
    uint32_t others, all = blocks_of(life, got->tenant, NULL, &others);
    if (blocks_of(life, got->tenant, got, &others) && others &&
        all > life->config.block_count - life->config.block_count / TENANT_OTHERS_PART)
        life_fail(life, HOLDS_SHARE, "%llu got blocks beyond the share of its tenant",
                  (unsigned long long)got->key.request);
    for (struct sequence *other; (other = scheduler_next(life->scheduler, &cursor));) {
        if (!life_waits(other))
            continue;
        if (life_is_offline(got) && !life_is_offline(other))
            life_fail(life, HOLDS_ORDER, "offline %llu got blocks while %llu waits",
                      (unsigned long long)got->key.request, (unsigned long long)other->key.request);
        if (other->class_index == got->class_index && other->order < got->order)
            life->happened[turn_before(other, got) > got->ranked_turn ? DID_TAKE_TURNS
                                                                      : DID_OVERTAKE]++;
        if (other->class_index == got->class_index && !other->likely_late &&
            turn_before(other, got) < got->ranked_turn && fits(life, other) &&
            !is_held_by_share(life, other) && !awaits_sibling(life, other, other->tenant->turn))
            life_fail(life, HOLDS_TURN, "%llu got blocks before %llu, whose tenant was served less",
                      (unsigned long long)got->key.request, (unsigned long long)other->key.request);
        if (stands_first(life, other, got))
            life_fail(life, HOLDS_ORDER, "%llu got blocks before %llu, which stands first",
                      (unsigned long long)got->key.request, (unsigned long long)other->key.request);
    }
}

/* One that waits on purpose: another one, not below its class, has a reservation; or it is offline,
 * and a higher class waits; or it was preempted, and a higher class, or a tenant that was served
 * less, waits. */
static bool is_held_back(const struct life *life, const struct sequence *sequence)
{
    size_t cursor = 0;
    for (struct sequence *other; (other = scheduler_next(life->scheduler, &cursor));) {
        if (other == sequence || !life_waits(other) || other->class_index > sequence->class_index)
            continue;
        bool is_higher = other->class_index < sequence->class_index;
        bool is_ahead = is_higher || other->tenant->turn < sequence->tenant->turn;
        if (has_reservation(life, other) || (is_higher && life_is_offline(sequence)) ||
            (is_ahead && sequence->preempted))
            return true;
    }
    return false;
}

static bool is_higher_waiting(struct life *life, uint32_t class_index)
{
    size_t cursor = 0;
    for (struct sequence *other; (other = scheduler_next(life->scheduler, &cursor));)
        if (life_waits(other) && other->class_index < class_index && !other->awaits &&
            !is_held_by_share(life, other))
            return true;
    return false;
}

/* A preempted sequence may have been preempted for the one that waits. */
static void check_came_back(struct life *life)
{
    for (uint32_t i = 0; i < life->before_count; i++) {
        const struct glimpse *glimpse = &life->before[i];
        const struct sequence *sequence = glimpse->sequence;
        if (glimpse->preempted && !sequence->preempted &&
            is_higher_waiting(life, sequence->class_index))
            life_fail(life, HOLDS_ORDER, "%llu came back while one of a higher class waits",
                      (unsigned long long)sequence->key.request);
    }
}

void check_waiting(struct life *life)
{
    check_came_back(life);
    size_t cursor = 0;
    for (struct sequence *sequence; (sequence = scheduler_next(life->scheduler, &cursor));) {
        if (!life_waits(sequence) || !fits(life, sequence))
            continue;
        bool awaits = awaits_sibling(life, sequence, sequence->tenant->turn);
        life->happened[DID_AWAIT] += awaits;
        if (!awaits && !is_held_back(life, sequence) && !is_held_by_share(life, sequence))
            life_fail(life, HOLDS_ROOM, "%llu waits, and would fit",
                      (unsigned long long)sequence->key.request);
    }
}

/* --- rows --- */

/* It could have had a row in this plan, and has none. */
static bool is_poor(const struct life *life, const struct step_plan *plan,
                    const struct glimpse *glimpse)
{
    const struct sequence *sequence = glimpse->sequence;
    uint32_t room = sequence->block_count * life->config.block_tokens;
    return sequence->state == glimpse->state && !glimpse->barred && !life_part_of(plan, sequence) &&
           (sequence->state == SEQUENCE_PREFILL ||
            (sequence->state == SEQUENCE_DECODE && sequence->computed < room));
}

/* Both prefill or both decode; `rich` has rows. */
static void check_pair(struct life *life, const struct glimpse *poor, const struct glimpse *rich)
{
    unsigned long long without = poor->sequence->key.request, with = rich->sequence->key.request;
    uint32_t poor_class = poor->sequence->class_index, rich_class = rich->sequence->class_index;
    if (rich_class > poor_class)
        life_fail(life, HOLDS_ORDER, "%llu of class %u has no rows, %llu of class %u has", without,
                  poor_class, with, rich_class);
    bool prompts = poor->state == SEQUENCE_PREFILL;
    if (prompts && poor->sequence->likely_late)
        return;
    if (rich_class != poor_class || poor->sequence->tenant->turn > rich->sequence->tenant->turn)
        return;
    if (poor->sequence->tenant->turn < rich->sequence->tenant->turn)
        life_fail(life, HOLDS_TURN, "%llu has no rows, %llu of a tenant that was served more has",
                  without, with);
    bool poor_starved = starved(life, poor->sequence, poor->ran_us);
    bool rich_starved = starved(life, rich->sequence, rich->ran_us);
    bool came_first = poor->sequence->order < rich->sequence->order;
    if (poor_starved && (!rich_starved || came_first))
        life_fail(life, HOLDS_STARVE, "%llu starved%s and has no rows, %llu has", without,
                  rich_starved ? " and came first" : "", with);
    prompts &= life->config.policy == POLICY_FCFS;
    if (prompts && poor->computed > 0 && rich->computed == 0)
        life_fail(life, HOLDS_DECODES, "%llu was begun and has no rows, %llu is new and has",
                  without, with);
}

/* Returns true if no prompt could have had the rows of an offline decode: the step has no more room
 * for prompts. */
static bool is_full_of_prompts(struct life *life, const struct step_plan *plan)
{
    uint32_t rows = 0;
    for (uint32_t i = 0; i < plan->part_count; i++)
        if (plan->parts[i].sequence->state == SEQUENCE_PREFILL)
            rows += plan->parts[i].row_count;
    return rows == life->config.chunk_tokens || life_is_out_of_time(life, plan);
}

void check_order(struct life *life, const struct step_plan *plan)
{
    bool full = is_full_of_prompts(life, plan);
    for (uint32_t i = 0; i < life->before_count; i++) {
        const struct glimpse *poor = &life->before[i];
        life->happened[DID_PROMOTE] += poor->sequence->promoted && !poor->promoted;
        if (!is_poor(life, plan, poor))
            continue;
        for (uint32_t k = 0; k < life->before_count; k++) {
            const struct glimpse *rich = &life->before[k];
            if (!life_part_of(plan, rich->sequence))
                continue;
            if (rich->state == poor->state)
                check_pair(life, poor, rich);
            else if (!full && rich->state == SEQUENCE_DECODE && life_is_offline(rich->sequence) &&
                     !life_is_offline(poor->sequence))
                life_fail(life, HOLDS_ORDER, "offline %llu decodes, the prompt of %llu has no rows",
                          (unsigned long long)rich->sequence->key.request,
                          (unsigned long long)poor->sequence->key.request);
        }
    }
}
