#include "common/engine/sched/growth.h"

#include "common/engine/sched/admission.h"
#include "common/engine/sched/preemption.h"

static bool has_blocks(const struct scheduler *s, const struct planned_rows *part)
{
    const struct sequence *sequence = part->sequence;
    return (uint64_t)sequence->block_count * s->config.block_tokens >=
           (uint64_t)sequence->computed + part->row_count;
}

static void grow(struct scheduler *s, const struct planned_rows *part)
{
    while (!has_blocks(s, part)) {
        if (kv_blocks_count(s->blocks, KV_BLOCK_FREE) > 0) {
            preemption_take(s, part->sequence, 1);
            continue;
        }
        struct sequence *victim = preemption_victim(s, 0);
        if (!victim)
            return; /* all is pinned, landing or held: the next step may find some */
        preemption_take_from(s, victim);
        if (victim == part->sequence)
            return;
    }
}

/* Higher classes first: else what one takes from a victim, another could take from it. Of equals the policy's order. */
static void grow_in_order(struct scheduler *s)
{
    for (uint32_t class_index = 0; class_index < PRIORITY_CLASSES; class_index++)
        for (uint32_t i = 0; i < s->plan.part_count; i++)
            if (s->parts[i].sequence->class_index == class_index &&
                scheduler_runs(s->parts[i].sequence))
                grow(s, &s->parts[i]);
}

static void leave_out(struct scheduler *s)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < s->plan.part_count; i++) {
        const struct sequence *sequence = s->parts[i].sequence;
        bool runs = sequence->state == SEQUENCE_PREFILL || sequence->state == SEQUENCE_DECODE;
        if (runs && has_blocks(s, &s->parts[i]))
            s->parts[kept++] = s->parts[i];
    }
    s->plan.part_count = kept;
}

void growth_for_parts(struct scheduler *s)
{
    grow_in_order(s);
    leave_out(s);
}

/* What classes below `class_index` could give up. Blocks that two share count twice: then it may turn out not to be enough. */
static uint64_t reclaimable(const struct scheduler *s, uint32_t class_index)
{
    uint64_t blocks = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        const struct sequence *sequence = s->by_arrival[i];
        if (sequence->class_index > class_index && scheduler_runs(sequence) &&
            sequence != s->protected && !sequence->arriving)
            blocks += sequence->block_count;
    }
    return blocks;
}

void growth_for_class(struct scheduler *s)
{
    const struct sequence *waiting = s->blocked;
    if (!waiting)
        return;
    uint64_t need = admission_need(s, waiting);
    s->growers = admission_count_growers(s);
    uint64_t lower = reclaimable(s, waiting->class_index);
    if (lower == 0 || need > lower + kv_blocks_count(s->blocks, KV_BLOCK_FREE))
        return;
    while (!admission_has_room(s, (uint32_t)need)) {
        struct sequence *victim = preemption_victim(s, waiting->class_index + 1);
        if (!victim)
            break;
        preemption_take_from(s, victim);
        s->growers--;
    }
    leave_out(s);
}
