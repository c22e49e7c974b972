/* The byte plane of a decode worker: reads that copy tags, each block at its own moment, and
 * pairings that close. */
#include "tests/sim/sim.h"

void sim_bytes_read(struct sim *sim, uint32_t process, const struct sink_action *action)
{
    struct sim_process *p = &sim->processes[process];
    const struct sim_job *job = sim_job_find(p, action->request, action->attempt);
    uint32_t slot = 0;
    while (slot < SIM_MAX_READS && p->reads[slot].used)
        slot++;
    if (!job || slot == SIM_MAX_READS || p->pairs[action->peer] == PAIR_IS_DOWN)
        sim_fail(sim, HOLDS_LANDING, "a read without blocks, without pairing, or one too many");
    if (!job || slot == SIM_MAX_READS)
        sim_give_up("a read that can't be played");
    if (p->confirmed[action->request] == action->attempt)
        sim_fail(sim, HOLDS_CONFIRM, "%llu.%u reads again after it has asked Confirm",
                 (unsigned long long)action->request, action->attempt);
    struct sim_read *read = &p->reads[slot];
    *read = (struct sim_read){.used = true,
                              .generation = read->generation + 1,
                              .source = (uint32_t)action->peer,
                              .cookie = action->cookie,
                              .grant = action->grant,
                              .request = action->request,
                              .owner = job->serial,
                              .count = action->block_count,
                              .closed = p->pairs[action->peer] != PAIR_IS_UP};
    uint64_t length_us = sim_chance(sim, DRAW_READ, 15) ? sim_between(sim, DRAW_READ, 1000, 60000)
                                                        : sim_between(sim, DRAW_READ, 100, 2000);
    bool hangs =
        !read->closed && sim_fault_hits(sim, FAULT_READ_HANGS, process, read->source) != NULL;
    for (uint32_t i = 0; i < read->count; i++) {
        for (uint32_t j = 0; j < job->held_blocks; j++)
            if (job->blocks[j] == action->local[i])
                sim_fail(sim, HOLDS_LANDING,
                         "%llu.%u reads into block %u, which it had, and others may read",
                         (unsigned long long)action->request, action->attempt, j);
        read->remote[i] = action->remote[i];
        read->local[i] = action->local[i];
        p->blocks[read->local[i]].landing++;
        struct sim_event *copy =
            sim_push(sim, EVENT_COPY, process, sim_between(sim, DRAW_READ, 1, length_us));
        copy->index = slot;
        copy->value = i;
        copy->serial = read->generation;
    }
    if (read->closed) /* the transport knows already that this pairing is lost */
        length_us = 0;
    struct sim_event *end =
        sim_push(sim, EVENT_READ_END, process, hangs ? SIM_READ_LIMIT_US : length_us);
    end->index = slot;
    end->serial = read->generation;
    end->status = read->closed ? STATUS_UNAVAILABLE : hangs ? STATUS_TIMEOUT : STATUS_OK;
}

/* Whatever block a reader claims: it gets full ones of the handle that it names, while they are the
 * handle's own, and while it is the handle's reader. */
static void check_grants(struct sim *sim, uint32_t process, const struct sim_read *read)
{
    const struct sim_process *source = &sim->processes[read->source];
    uint32_t stream = sim->processes[process].pair_streams[read->source];
    struct handle_ref ref = {source->incarnation, (uint32_t)read->grant,
                             (uint32_t)(read->grant >> 32)};
    const struct sim_handle *handle = sim_find_handle(sim, read->request, ref);
    for (uint32_t i = 0; i < source->pool_blocks; i++) {
        const struct sim_block *block = &source->blocks[i];
        if (!source_may_read(source->sources, stream, read->grant, i, 1))
            continue;
        if (!handle || handle->reads != process)
            sim_fail(sim, HOLDS_GRANT, "block %u is granted to a worker that isn't its reader", i);
        else if (block->owner != handle->serial || block->tag.serial != handle->serial ||
                 block->tag.fill == 0)
            sim_fail(sim, HOLDS_GRANT, "block %u is granted, and holds none of its bytes", i);
    }
}

/* One block lands: whatever is in the source's pool at this moment. */
void sim_bytes_land(struct sim *sim, uint32_t process, const struct sim_event *event)
{
    struct sim_process *p = &sim->processes[process];
    struct sim_read *read = &p->reads[event->index];
    if (!read->used || read->generation != event->serial || read->closed)
        return;
    const struct sim_process *source = &sim->processes[read->source];
    struct sim_block *block = &p->blocks[read->local[event->value]];
    if (block->owner != read->owner)
        sim_fail(sim, HOLDS_LANDING, "a read lands in block %u of %s, which was given away",
                 read->local[event->value], sim_name(sim, process));
    /* Over a pairing with a dead process: the rest of its memory, or its successor's bytes
     * there. */
    bool old = p->pair_incarnations[read->source] != source->incarnation;
    bool there = source->up && (!old || sim_chance(sim, DRAW_READ, 50));
    uint32_t remote = read->remote[event->value];
    if (sim->plan->guarded && source->up && !old) {
        check_grants(sim, process, read);
        there =
            source_may_read(source->sources, p->pair_streams[read->source], read->grant, remote, 1);
        read->refused |= !there;
        sim->totals->refused_blocks += !there;
    }
    block->tag = there ? source->blocks[remote].tag : (struct sim_tag){0};
    if (sim_fault_hits(sim, FAULT_FLIP, process, read->source))
        block->tag.flipped = true;
    sim_trace(sim, process, "block %u has landed", read->local[event->value]);
}

void sim_bytes_revoke(struct sim *sim, uint32_t source, uint32_t stream)
{
    uint32_t reader = sim->streams[stream].dialer;
    const struct sim_process *p = &sim->processes[reader];
    if (p->up && p->sinks && p->pairs[source] == PAIR_IS_UP && p->pair_streams[source] == stream)
        sim_decode_close_pair(sim, reader, source, STATUS_UNAVAILABLE);
}

void sim_decode_close_pair(struct sim *sim, uint32_t process, uint32_t source, enum status status)
{
    struct sim_process *p = &sim->processes[process];
    if (p->pairs[source] == PAIR_IS_DOWN || p->pairs[source] == PAIR_IS_CLOSING)
        return;
    p->pairs[source] = PAIR_IS_CLOSING;
    uint64_t last_us = 0;
    for (uint32_t i = 0; i < SIM_MAX_READS; i++) {
        struct sim_read *read = &p->reads[i];
        if (!read->used || read->closed || read->source != source)
            continue;
        read->closed = true;
        uint64_t delay_us = sim_between(sim, DRAW_READ, 0, 500);
        last_us = delay_us > last_us ? delay_us : last_us;
        struct sim_event *end = sim_push(sim, EVENT_READ_END, process, delay_us);
        end->index = i;
        end->serial = read->generation;
        end->status = status;
    }
    last_us += sim_chance(sim, DRAW_READ, 30) ? sim_between(sim, DRAW_READ, 1, 20000) : 1;
    struct sim_event *closed = sim_push(sim, EVENT_PAIR_CLOSED, process, last_us);
    closed->index = source;
    closed->serial = p->peer_uses[source];
    closed->status = status;
}
