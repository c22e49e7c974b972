/* Blocks for sequences that grow, room for a higher class, and the victims that give blocks up:
 * which sequence it is, and whether its rows are swapped out or computed again.
 *
 * Victims: the newest of the lowest class first. In a class, tenants that hold more blocks than an
 * equal part for each tenant that is here give first, then all. Never the oldest of the highest
 * class that runs: so one sequence always gets to its end. Blocks that a handle pins, that land
 * from elsewhere, or that a plan is about to swap in, are never taken. No block is taken while a
 * step is in flight: it could belong to that step. */
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

void preemption_end_moves(struct scheduler *s, struct planned *planned)
{
    for (uint32_t i = 0; i < planned->swap_ins.count; i++)
        s->slots[s->slot_count++] = planned->swap_ins.list[i].from;
    planned->swap_ins.count = planned->swap_outs.count = 0;
}

void preemption_begin_plan(struct scheduler *s)
{
    struct moves none = s->made->swap_ins;
    s->made->swap_ins = s->swap_ins;
    s->swap_ins = none;
    s->victims_are_known = false; /* most plans need no victim */
    s->victims_of_all = s->tenants.present_count <= 1;
    s->victim_class = PRIORITY_CLASSES - 1;
    s->victim_at = s->count;
}

void preemption_end_plan(struct scheduler *s)
{
    struct planned *made = s->made;
    for (uint32_t i = 0; i < made->swap_ins.count; i++)
        made->swap_ins.list[i].sequence->arriving = false;
    made->plan.swap_outs = made->swap_outs.list;
    made->plan.swap_out_count = made->swap_outs.count;
    made->plan.swap_ins = made->swap_ins.list;
    made->plan.swap_in_count = made->swap_ins.count;
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

/* Finds the oldest of the highest class that ran when this plan began (NULL: none), and how many
 * blocks each tenant holds. */
static void know_victims(struct scheduler *s)
{
    if (s->victims_are_known)
        return;
    s->victims_are_known = true;
    s->protected = NULL;
    admission_count_blocks(s);
    for (uint32_t i = 0; i < s->count; i++) {
        const struct sequence *sequence = s->by_arrival[i];
        if (scheduler_runs(sequence) &&
            (!s->protected || sequence->class_index < s->protected->class_index))
            s->protected = sequence;
    }
}

/* Returns an equal part of all blocks for each tenant that is here. */
static uint32_t equal_part(const struct scheduler *s)
{
    return s->config.block_count / s->tenants.present_count;
}

/* Returns whether the sequence may give its blocks to one that waits (NULL: to one that grows).
 * Higher classes take from all tenants. In its own class one that waits takes from tenants that
 * were served more and hold more than their part: these don't take it back. */
static bool may_give(struct scheduler *s, const struct sequence *sequence,
                     const struct sequence *waiting)
{
    know_victims(s);
    if (!scheduler_runs(sequence) || sequence == s->protected || sequence->arriving)
        return false;
    const struct tenant *tenant = sequence->tenant;
    if (waiting)
        return sequence->class_index > waiting->class_index ||
               (tenant->blocks > equal_part(s) && tenant->turn > waiting->tenant->turn);
    return s->victims_of_all || tenant->blocks > equal_part(s);
}

/* Returns this plan's next victim in lowest_class or below it, for one that waits or (NULL) grows;
 * NULL: none. Finds each once. In a class tenants that hold little give last. */
static struct sequence *next_victim(struct scheduler *s, uint32_t lowest_class,
                                    const struct sequence *waiting)
{
    for (;;) {
        if (s->victim_class < lowest_class)
            return NULL;
        while (s->victim_at > 0) {
            struct sequence *sequence = s->by_arrival[--s->victim_at];
            if (sequence->class_index == s->victim_class && may_give(s, sequence, waiting))
                return sequence;
        }
        s->victim_at = s->count;
        if (!waiting && !s->victims_of_all) {
            s->victims_of_all = true;
            continue;
        }
        if (s->victim_class == 0)
            return NULL;
        s->victim_class--;
        s->victims_of_all = s->tenants.present_count <= 1;
    }
}

static void swap_out(struct scheduler *s, struct sequence *victim, uint32_t blocks)
{
    for (uint32_t i = 0; i < blocks; i++) {
        uint32_t slot = s->slots[--s->slot_count];
        add_move(&s->made->swap_outs, victim->blocks[i], slot, victim);
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
    victim->tenant->blocks -= victim->own_blocks;
    victim->own_blocks = 0;
    victim->block_count = 0;
    victim->preempted = true;
    s->made->plan.freed = true;
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
            part->sequence->tenant->blocks++;
            part->sequence->own_blocks++;
            continue;
        }
        struct sequence *victim = next_victim(s, 0, NULL);
        if (!victim)
            return false; /* all is pinned, landing or held: the next step may find some */
        if (s->flying) {
            s->made->plan.drain = true;
            return false;
        }
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
    for (uint32_t i = 0; i < s->made->plan.part_count; i++)
        if (!has_blocks(s, &s->made->parts[i]))
            s->lacking[lacking++] = &s->made->parts[i];
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
        sequence->stalled =
            mark && sequence->state == SEQUENCE_DECODE &&
            !has_blocks(s, &(struct planned_rows){.sequence = sequence, .row_count = 1});
    }
}

/* ---------------------------------------------------------------- room for one that waits */

/* Blocks that victims would give up, and how many victims that takes. */
struct yield {
    uint64_t blocks;
    uint32_t victims;
};

/* Adds what the sequence would give up for `waiting`. Call it for the newest first. Each tenant is
 * counted down: no more than what it has above its part is taken from the class of `waiting`.
 * Blocks that two victims share count twice: then it may turn out not to be enough. */
static void add_yield(struct scheduler *s, const struct sequence *sequence,
                      const struct sequence *waiting, struct yield *yield)
{
    if (!may_give(s, sequence, waiting))
        return;
    yield->blocks += sequence->block_count;
    yield->victims++;
    sequence->tenant->blocks -= sequence->own_blocks;
}

void preemption_for_waiting(struct scheduler *s)
{
    const struct sequence *waiting = s->blocked;
    if (!waiting || waiting->likely_late)
        return;
    uint64_t need = admission_need(s, waiting);
    uint32_t lowest_class = waiting->class_index + 1, kept = 0;
    struct yield yield = {0, 0};
    s->growers = 0;
    for (uint32_t i = s->count; i-- > 0;) {
        const struct sequence *sequence = s->by_arrival[i];
        s->growers += scheduler_runs(sequence);
        if (sequence->class_index > waiting->class_index)
            add_yield(s, sequence, waiting, &yield);
    }
    if (s->tenants.present_count > 1) {
        know_victims(s);
        bool is_poor = waiting->tenant->blocks + need <= equal_part(s);
        lowest_class -= is_poor;
        for (uint32_t i = s->count; is_poor && i-- > 0;)
            if (s->by_arrival[i]->class_index == waiting->class_index)
                add_yield(s, s->by_arrival[i], waiting, &yield);
        s->victims_are_known = false;           /* the tenants were counted down */
        s->victim_class = PRIORITY_CLASSES - 1; /* the search passed tenants that hold little */
        s->victim_at = s->count;
    }
    if (yield.victims == 0 ||
        need + s->growers - yield.victims > yield.blocks + admission_available(s))
        return;
    if (s->flying) {
        s->made->plan.drain = true;
        return;
    }
    while (!admission_make_room(s, (uint32_t)need)) {
        struct sequence *victim = next_victim(s, lowest_class, waiting);
        if (!victim)
            break;
        take_from(s, victim);
        s->growers--;
    }
    struct planned *made = s->made;
    for (uint32_t i = 0; i < made->plan.part_count; i++) /* without the victims' parts */
        if (sequence_computes(made->parts[i].sequence))
            made->parts[kept++] = made->parts[i];
    made->plan.part_count = kept;
}
