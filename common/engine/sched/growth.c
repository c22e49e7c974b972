#include "common/engine/sched/growth.h"

#include "common/engine/sched/admission.h"
#include "common/engine/sched/preemption.h"
#include "common/engine/sched/reuse.h"

static bool has_blocks(const struct scheduler *s, const struct planned_rows *part)
{
    const struct sequence *sequence = part->sequence;
    return (uint64_t)sequence->block_count * s->config.block_tokens >=
           (uint64_t)sequence->computed + part->row_count;
}

/* True: it has blocks, and nobody had to give any up. */
static bool grow(struct scheduler *s, const struct planned_rows *part)
{
    bool given = false;
    while (!has_blocks(s, part)) {
        if (reuse_make_free(s, 1)) {
            preemption_take(s, part->sequence, 1);
            continue;
        }
        struct sequence *victim = preemption_victim(s, 0);
        if (!victim)
            return false; /* all is pinned, landing or held: the next step may find some */
        preemption_take_from(s, victim);
        given = true;
        if (victim == part->sequence)
            return false;
    }
    return !given;
}

bool growth_for_parts(struct scheduler *s)
{
    uint32_t lacking = 0;
    for (uint32_t i = 0; i < s->plan.part_count; i++)
        if (!has_blocks(s, &s->parts[i]))
            s->lacking[lacking++] = &s->parts[i];
    bool whole = true;
    /* Higher classes first: else what one takes from a victim, another could take from it. Of
     * equals the policy's order. */
    for (uint32_t class_index = 0; class_index < PRIORITY_CLASSES; class_index++)
        for (uint32_t i = 0; i < lacking; i++)
            if (s->lacking[i]->sequence->class_index == class_index &&
                scheduler_runs(s->lacking[i]->sequence))
                whole &= grow(s, s->lacking[i]);
    return whole;
}

void growth_mark_stalled(struct scheduler *s, bool mark)
{
    for (uint32_t i = 0; i < s->count; i++) {
        struct sequence *sequence = s->by_arrival[i];
        sequence->stalled = mark && sequence->state == SEQUENCE_DECODE &&
                            !has_blocks(s, &(struct planned_rows){sequence, 1, true});
    }
}

/* Parts of sequences that were preempted. */
static void leave_out(struct scheduler *s)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < s->plan.part_count; i++) {
        enum sequence_state state = s->parts[i].sequence->state;
        if (state == SEQUENCE_PREFILL || state == SEQUENCE_DECODE)
            s->parts[kept++] = s->parts[i];
    }
    s->plan.part_count = kept;
}

/* What classes below `class_index` could give up, and how many sequences hold it. Blocks that two
 * share count twice: then it may turn out not to be enough. */
static uint64_t reclaimable(struct scheduler *s, uint32_t class_index, uint32_t *victims)
{
    uint64_t blocks = 0;
    *victims = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        const struct sequence *sequence = s->by_arrival[i];
        if (sequence->class_index > class_index && scheduler_runs(sequence) &&
            sequence != preemption_protected(s) && !sequence->arriving) {
            blocks += sequence->block_count;
            ++*victims;
        }
    }
    return blocks;
}

void growth_for_class(struct scheduler *s)
{
    const struct sequence *waiting = s->blocked;
    if (!waiting)
        return;
    uint64_t need = admission_need(s, waiting);
    uint32_t victims;
    uint64_t lower = reclaimable(s, waiting->class_index, &victims);
    s->growers = admission_count_growers(s);
    if (victims == 0 || need + s->growers - victims > lower + reuse_available(s))
        return;
    while (!admission_make_room(s, (uint32_t)need)) {
        struct sequence *victim = preemption_victim(s, waiting->class_index + 1);
        if (!victim)
            break;
        preemption_take_from(s, victim);
        s->growers--;
    }
    leave_out(s);
}
