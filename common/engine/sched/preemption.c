#include "common/engine/sched/preemption.h"

#include "common/base/assert.h"
#include "common/engine/sched/reuse.h"

void preemption_take(struct scheduler *s, struct sequence *sequence, uint32_t count)
{
    ASSERT(sequence->block_count + count <= s->blocks_per_sequence);
    enum status status =
        kv_blocks_take(s->blocks, count, sequence->hold, sequence->blocks + sequence->block_count);
    ASSERT(status == STATUS_OK);
    sequence->block_count += count;
}

static void add_move(struct moves *moves, uint32_t from, uint32_t to, struct sequence *sequence)
{
    moves->list[moves->count++] = (struct block_move){from, to, sequence};
}

void preemption_swap_in(struct scheduler *s, struct sequence *sequence, uint32_t count)
{
    uint32_t first = s->swap_ins.count;
    for (uint32_t i = 0; i < sequence->slot_count; i++) /* block ids take the place of slots */
        add_move(&s->swap_ins, sequence->blocks[i], 0, sequence);
    preemption_take(s, sequence, count);
    for (uint32_t i = 0; i < sequence->slot_count; i++)
        s->swap_ins.list[first + i].to = sequence->blocks[i];
    sequence->slot_count = 0;
    sequence->arriving = true;
}

static void exchange(struct moves *a, struct moves *b)
{
    struct moves kept = *a;
    *a = *b;
    *b = kept;
}

/* Looked at in order of arrival: an equal class came later. */
static bool is_better(const struct sequence *a, const struct sequence *b)
{
    return !b || a->class_index < b->class_index;
}

void preemption_begin_plan(struct scheduler *s)
{
    for (uint32_t i = 0; i < s->plan_swap_ins.count; i++)
        s->slots[s->slot_count++] = s->plan_swap_ins.list[i].from;
    s->plan_copies.count = s->plan_swap_ins.count = s->plan_swap_outs.count = 0;
    exchange(&s->copies, &s->plan_copies);
    exchange(&s->swap_ins, &s->plan_swap_ins);
    /* Copies are carried out first: from here on their sources may go to others. */
    for (uint32_t i = 0; i < s->plan_copies.count; i++)
        kv_blocks_give(s->blocks, &s->plan_copies.list[i].from, 1, KV_HOLD_USED);
    s->protected_is_known = false; /* most plans need no victim */
    s->victim_class = PRIORITY_CLASSES - 1;
    s->victim_at = s->count;
}

void preemption_end_plan(struct scheduler *s)
{
    for (uint32_t i = 0; i < s->plan_swap_ins.count; i++)
        s->plan_swap_ins.list[i].sequence->arriving = false;
}

const struct sequence *preemption_protected(struct scheduler *s)
{
    if (s->protected_is_known)
        return s->protected;
    s->protected_is_known = true;
    s->protected = NULL;
    for (uint32_t i = 0; i < s->count; i++)
        if (scheduler_runs(s->by_arrival[i]) && is_better(s->by_arrival[i], s->protected))
            s->protected = s->by_arrival[i];
    return s->protected;
}

struct sequence *preemption_victim(struct scheduler *s, uint32_t lowest_class)
{
    for (;;) {
        if (s->victim_class < lowest_class)
            return NULL;
        while (s->victim_at > 0) {
            struct sequence *sequence = s->by_arrival[--s->victim_at];
            if (sequence->class_index == s->victim_class && scheduler_runs(sequence) &&
                sequence != preemption_protected(s) && !sequence->arriving)
                return sequence;
        }
        if (s->victim_class == 0)
            return NULL;
        s->victim_class--;
        s->victim_at = s->count;
    }
}

static void swap_out(struct scheduler *s, struct sequence *victim, uint32_t blocks)
{
    kv_blocks_give(s->blocks, victim->blocks, victim->block_count, victim->hold);
    for (uint32_t i = 0; i < blocks; i++) {
        uint32_t slot = s->slots[--s->slot_count];
        add_move(&s->plan_swap_outs, victim->blocks[i], slot, victim);
        victim->blocks[i] = slot;
    }
    victim->slot_count = blocks;
    victim->state = SEQUENCE_SWAPPED;
    reuse_stop(victim);
    s->totals.swapped_out++;
}

/* It comes back as a prompt of all its tokens: what was drawn counts as drawn before. */
static void drop(struct scheduler *s, struct sequence *victim)
{
    kv_blocks_give(s->blocks, victim->blocks, victim->block_count, victim->hold);
    s->totals.dropped++;
    s->totals.dropped_rows += victim->computed;
    victim->emitted_count += victim->token_count - victim->prompt_count;
    victim->prompt_count = victim->token_count;
    victim->computed = 0;
    victim->plan = PLAN_LOCAL; /* what another worker computed, this one does now */
    victim->state = SEQUENCE_WAITING;
}

void preemption_take_from(struct scheduler *s, struct sequence *victim)
{
    ASSERT(scheduler_runs(victim) &&
           !victim->arriving); /* never what is pinned, lands, or isn't here yet */
    uint32_t blocks = scheduler_blocks_for(s, victim->computed);
    if (blocks > 0 && blocks <= s->slot_count &&
        cost_model_prefers_swap(&s->cost, blocks, victim->computed))
        swap_out(s, victim, blocks);
    else
        drop(s, victim);
    victim->block_count = 0;
    victim->preempted = true;
    s->plan.freed = true;
}

static void forget_moves(struct scheduler *s, struct moves *moves, const struct sequence *sequence,
                         bool are_copies)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < moves->count; i++) {
        struct block_move move = moves->list[i];
        if (move.sequence != sequence)
            moves->list[kept++] = move;
        else if (are_copies)
            kv_blocks_give(s->blocks, &move.from, 1, KV_HOLD_USED);
        else
            s->slots[s->slot_count++] = move.from;
    }
    moves->count = kept;
}

void preemption_forget(struct scheduler *s, const struct sequence *sequence)
{
    for (uint32_t i = 0; i < sequence->slot_count; i++)
        s->slots[s->slot_count++] = sequence->blocks[i];
    forget_moves(s, &s->copies, sequence, true);
    forget_moves(s, &s->swap_ins, sequence, false);
}
