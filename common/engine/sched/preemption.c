/* Blocks for sequences that grow, room for a higher class, and the victims that give blocks up:
 * which sequence it is, and whether its rows are swapped out or computed again.
 *
 * Victims: the newest of the lowest class first. Never the oldest of the highest class that runs:
 * so one sequence always gets to its end. Blocks that a handle pins, that land from elsewhere, or
 * that a plan is about to swap in, are never taken. */
#include "common/base/assert.h"
#include "common/engine/sched/scheduler_state.h"

static void add_move(struct moves *moves, uint32_t from, uint32_t to, struct sequence *sequence)
{
    moves->list[moves->count++] = (struct block_move){from, to, sequence};
}

void preemption_swap_in(struct scheduler *s, struct sequence *sequence, uint32_t count)
{
    uint32_t first = s->swap_ins.count;
    for (uint32_t i = 0; i < sequence->slot_count; i++) /* block ids replace the slots below */
        add_move(&s->swap_ins, sequence->blocks[i], 0, sequence);
    admission_take(s, sequence, count);
    for (uint32_t i = 0; i < sequence->slot_count; i++)
        s->swap_ins.list[first + i].to = sequence->blocks[i];
    sequence->slot_count = 0;
    sequence->arriving = true;
}

void preemption_begin_plan(struct scheduler *s)
{
    for (uint32_t i = 0; i < s->plan_swap_ins.count; i++)
        s->slots[s->slot_count++] = s->plan_swap_ins.list[i].from;
    struct moves done = s->plan_swap_ins;
    s->plan_swap_ins = s->swap_ins;
    s->swap_ins = (struct moves){done.list, 0};
    s->plan_swap_outs.count = 0;
    s->protected_is_known = false; /* most plans need no victim */
    s->victim_class = PRIORITY_CLASSES - 1;
    s->victim_at = s->count;
}

void preemption_end_plan(struct scheduler *s)
{
    for (uint32_t i = 0; i < s->plan_swap_ins.count; i++)
        s->plan_swap_ins.list[i].sequence->arriving = false;
    s->plan.swap_outs = s->plan_swap_outs.list;
    s->plan.swap_out_count = s->plan_swap_outs.count;
    s->plan.swap_ins = s->plan_swap_ins.list;
    s->plan.swap_in_count = s->plan_swap_ins.count;
}

void preemption_forget(struct scheduler *s, const struct sequence *sequence)
{
    for (uint32_t i = 0; i < sequence->slot_count; i++)
        s->slots[s->slot_count++] = sequence->blocks[i];
    uint32_t kept = 0;
    for (uint32_t i = 0; i < s->swap_ins.count; i++) {
        struct block_move move = s->swap_ins.list[i];
        if (move.sequence == sequence)
            s->slots[s->slot_count++] = move.from;
        else
            s->swap_ins.list[kept++] = move;
    }
    s->swap_ins.count = kept;
}

/* ---------------------------------------------------------------- victims */

/* Returns the oldest of the highest class that ran when this plan began; NULL: none. */
static const struct sequence *protected_of(struct scheduler *s)
{
    if (s->protected_is_known)
        return s->protected;
    s->protected_is_known = true;
    s->protected = NULL;
    for (uint32_t i = 0; i < s->count; i++) {
        const struct sequence *sequence = s->by_arrival[i];
        if (scheduler_runs(sequence) &&
            (!s->protected || sequence->class_index < s->protected->class_index))
            s->protected = sequence;
    }
    return s->protected;
}

static bool can_give(struct scheduler *s, const struct sequence *sequence)
{
    return scheduler_runs(sequence) && sequence != protected_of(s) && !sequence->arriving;
}

/* Returns this plan's next victim in lowest_class or below it; NULL: none. Finds each once. */
static struct sequence *next_victim(struct scheduler *s, uint32_t lowest_class)
{
    for (;;) {
        if (s->victim_class < lowest_class)
            return NULL;
        while (s->victim_at > 0) {
            struct sequence *sequence = s->by_arrival[--s->victim_at];
            if (sequence->class_index == s->victim_class && can_give(s, sequence))
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
    for (uint32_t i = 0; i < blocks; i++) {
        uint32_t slot = s->slots[--s->slot_count];
        add_move(&s->plan_swap_outs, victim->blocks[i], slot, victim);
        victim->blocks[i] = slot;
    }
    victim->slot_count = blocks;
    victim->state = SEQUENCE_SWAPPED;
    /* Blocks that it computes later continue nothing that is cached: cached blocks before them
     * could not be evicted while it runs. */
    victim->remembers = false;
    s->totals.swapped_out++;
}

/* The victim comes back as a prompt of all its tokens: its answer so far counts as drawn before. */
static void drop(struct scheduler *s, struct sequence *victim)
{
    s->totals.dropped++;
    s->totals.dropped_rows += victim->computed;
    victim->emitted_count += victim->token_count - victim->prompt_count;
    victim->prompt_count = victim->token_count;
    victim->computed = 0;
    victim->plan = PLAN_LOCAL; /* rows that another worker computed are now computed here */
    victim->state = SEQUENCE_WAITING;
}

/* Takes all blocks of the victim. Its rows are swapped out if there are slots and that is cheaper
 * than computing them again, otherwise dropped. It waits at the head of its class. */
static void take_from(struct scheduler *s, struct sequence *victim)
{
    ASSERT(scheduler_runs(victim) && !victim->arriving);
    uint32_t blocks = scheduler_blocks_for(s, victim->computed);
    kv_blocks_give(s->blocks, victim->blocks, victim->block_count, victim->hold);
    if (blocks > 0 && blocks <= s->slot_count &&
        cost_model_prefers_swap(&s->cost, blocks, victim->computed))
        swap_out(s, victim, blocks);
    else
        drop(s, victim);
    victim->block_count = 0;
    victim->preempted = true;
    s->plan.freed = true;
}

/* ---------------------------------------------------------------- growth */

static bool has_blocks(const struct scheduler *s, const struct planned_rows *part)
{
    const struct sequence *sequence = part->sequence;
    return (uint64_t)sequence->block_count * s->config.block_tokens >=
           (uint64_t)sequence->computed + part->row_count;
}

/* Returns true if the part has blocks now and no sequence had to give any up. */
static bool grow(struct scheduler *s, const struct planned_rows *part)
{
    bool given = false;
    while (!has_blocks(s, part)) {
        if (admission_make_free(s, 1)) {
            admission_take(s, part->sequence, 1);
            continue;
        }
        struct sequence *victim = next_victim(s, 0);
        if (!victim)
            return false; /* all is pinned, landing or held: the next step may find some */
        take_from(s, victim);
        given = true;
        if (victim == part->sequence)
            return false;
    }
    return !given;
}

bool preemption_find_blocks(struct scheduler *s)
{
    uint32_t lacking = 0;
    for (uint32_t i = 0; i < s->plan.part_count; i++)
        if (!has_blocks(s, &s->parts[i]))
            s->lacking[lacking++] = &s->parts[i];
    bool whole = true;
    /* Higher classes first, or one could lose the blocks that it just took from a victim. Inside a
     * class in the policy's order. */
    for (uint32_t class_index = 0; class_index < PRIORITY_CLASSES; class_index++)
        for (uint32_t i = 0; i < lacking; i++)
            if (s->lacking[i]->sequence->class_index == class_index &&
                scheduler_runs(s->lacking[i]->sequence))
                whole &= grow(s, s->lacking[i]);
    return whole;
}

void preemption_mark_stalled(struct scheduler *s, bool mark)
{
    for (uint32_t i = 0; i < s->count; i++) {
        struct sequence *sequence = s->by_arrival[i];
        sequence->stalled = mark && sequence->state == SEQUENCE_DECODE &&
                            !has_blocks(s, &(struct planned_rows){sequence, 1, true});
    }
}

/* ---------------------------------------------------------------- room for a higher class */

void preemption_for_waiting(struct scheduler *s)
{
    const struct sequence *waiting = s->blocked;
    if (!waiting)
        return;
    uint64_t need = admission_need(s, waiting);
    /* Blocks that two victims share count twice: then it may turn out not to be enough. */
    uint64_t lower_blocks = 0;
    uint32_t victims = 0, kept = 0;
    s->growers = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        const struct sequence *sequence = s->by_arrival[i];
        s->growers += scheduler_runs(sequence);
        if (sequence->class_index > waiting->class_index && can_give(s, sequence)) {
            lower_blocks += sequence->block_count;
            victims++;
        }
    }
    if (victims == 0 || need + s->growers - victims > lower_blocks + admission_available(s))
        return;
    while (!admission_make_room(s, (uint32_t)need)) {
        struct sequence *victim = next_victim(s, waiting->class_index + 1);
        if (!victim)
            break;
        take_from(s, victim);
        s->growers--;
    }
    for (uint32_t i = 0; i < s->plan.part_count; i++) /* without the victims' parts */
        if (sequence_computes(s->parts[i].sequence))
            s->parts[kept++] = s->parts[i];
    s->plan.part_count = kept;
}
