/* Plays faults: some strike at once, others wait for their chance. */
#include "tests/sim/sim.h"

#include <string.h>

#define TRIES 300 /* events that a fault without victim waits */

/* The most that a fault costs a request, in runs of prefill. REREAD: the first of all is free,
 * since every handoff may repeat one read. */
enum cost { COST_NONE, COST_RUN, COST_REREAD };

static enum cost cost_of(const struct sim *sim, const struct sim_fault *fault)
{
    switch (fault->kind) {
    case FAULT_CRASH: /* the cost of a lost decode worker is counted when the router learns of it */
        return sim->processes[fault->victim].is_prefill ? COST_RUN : COST_NONE;
    case FAULT_PAUSE:
    case FAULT_DROP_SESSION:
    /* a late Extend after Confirm is answered GONE: with the HELD lost, a run */
    case FAULT_DUPLICATE:
    case FAULT_DELAY:
    case FAULT_LEASE:
    case FAULT_PREFILL_STEP:
    case FAULT_DECODE_STEP:
    case FAULT_FORGERY:
    case FAULT_MISMATCH:
    case FAULT_HANG: /* it may end with a crash */
    case FAULT_DRAIN: return COST_RUN;
    case FAULT_PEER_LOST: /* its end closes the pairing that its Welcome admitted, with its reads */
    case FAULT_READ_HANGS:
    case FAULT_LANE_LOST:
    case FAULT_FLIP: return COST_REREAD;
    default: return COST_NONE;
    }
}

static void count(struct sim *sim, const struct sim_fault *fault)
{
    enum cost cost = cost_of(sim, fault);
    bool lasts = fault->kind == FAULT_PAUSE || fault->kind == FAULT_HANG;
    sim_disturbed(sim, sim->now_us + (lasts ? fault->length_us : 0));
    sim->struck[fault->victim] = sim->struck[fault->other] = true;
    sim->fault_count++;
    sim->totals->happened[fault->kind]++;
    sim->costs += cost == COST_RUN;
    sim->reread_faults += cost == COST_REREAD;
    if (cost == COST_REREAD && sim->reread_faults >= 2) /* they may meet in one handoff */
        sim->costs += sim->reread_faults == 2 ? 2 : 1;
}

static bool waits(enum sim_fault_kind kind)
{
    return kind == FAULT_DROP_SESSION || kind == FAULT_DROP_PEER || kind == FAULT_DUPLICATE ||
           kind == FAULT_DELAY || kind == FAULT_READ_HANGS || kind == FAULT_FLIP ||
           kind == FAULT_NO_ROOM || kind == FAULT_NO_PAIRING || kind == FAULT_FORGERY;
}

struct sim_fault *sim_fault_hits(struct sim *sim, enum sim_fault_kind kind, uint32_t process,
                                 uint32_t other)
{
    for (uint32_t i = 0; i < sim->plan->fault_count; i++) {
        struct sim_fault *fault = &sim->faults[i];
        if (!sim->armed[i] || fault->kind != kind)
            continue;
        if (fault->fixed && (fault->victim != process || fault->other != other))
            continue;
        if (!fault->fixed && fault->skip) {
            fault->skip--;
            continue;
        }
        sim->armed[i] = false;
        fault->happened = true;
        fault->at_us = sim->now_us;
        fault->victim = process;
        fault->other = other;
        sim_trace(sim, process, "FAULT %s (%s)", sim_fault_name(kind), sim_name(sim, other));
        count(sim, fault);
        return fault;
    }
    return NULL;
}

/* --- victims --- */

static bool is_victim(struct sim *sim, const struct sim_fault *fault, uint32_t process)
{
    const struct sim_process *p = &sim->processes[process];
    if (!p->up)
        return false;
    uint32_t session = process ? sim->sessions[process] : SIM_NONE;
    bool router_acts = sim->processes[0].up && sim->processes[0].paused_until_us <= sim->now_us;
    bool in_session = session != SIM_NONE && sim->streams[session].broken_us == UINT64_MAX;
    switch (fault->kind) {
    case FAULT_ROUTER_RESTART: return process == 0;
    case FAULT_PAUSE: return p->paused_until_us <= sim->now_us;
    case FAULT_GIVE_UP: return in_session && router_acts;
    case FAULT_SESSION_LOST: return in_session;
    case FAULT_LEASE: return process && p->is_prefill && source_table_pinned_blocks(p->sources) > 0;
    case FAULT_PREFILL_STEP:
        return process && p->is_prefill && p->computing != SIM_NONE && p->jobs[p->computing].serial;
    case FAULT_DECODE_STEP:
        for (uint32_t i = 0; process && !p->is_prefill && i < SIM_MAX_JOBS; i++)
            if (p->jobs[i].serial && p->jobs[i].running)
                return true;
        return false;
    case FAULT_DRAIN: return process && !p->draining && in_session;
    case FAULT_HANG: return process && p->reports && p->hung_until_us <= sim->now_us;
    case FAULT_BROKEN_DEVICE: return process && p->broken_until_us <= sim->now_us;
    default: return process != 0;
    }
}

/* A pair of a decode worker and a prefill worker with a stream, or a pairing. */
static bool is_pair(struct sim *sim, const struct sim_fault *fault, uint32_t decode,
                    uint32_t source)
{
    const struct sim_process *d = &sim->processes[decode];
    if (!d->up || d->is_prefill || !sim->processes[source].is_prefill)
        return false;
    if (fault->kind == FAULT_LANE_LOST)
        return d->pairs[source] == PAIR_IS_UP;
    return d->peers[source] != SIM_NONE && sim->streams[d->peers[source]].broken_us == UINT64_MAX;
}

static bool find_victim(struct sim *sim, struct sim_fault *fault)
{
    bool of_pair = fault->kind == FAULT_PEER_LOST || fault->kind == FAULT_LANE_LOST;
    uint32_t victims[(SIM_MAX_WORKERS + 1) * (SIM_MAX_WORKERS + 1)][2], found = 0;
    for (uint32_t i = 0; i <= sim->worker_count; i++)
        for (uint32_t j = 0; j <= (of_pair ? sim->worker_count : 0); j++) {
            if (fault->fixed && (i != fault->victim || j != fault->other))
                continue;
            if (of_pair ? !is_pair(sim, fault, i, j) : !is_victim(sim, fault, i))
                continue;
            victims[found][0] = i;
            victims[found++][1] = j;
        }
    if (!found)
        return false;
    fault->victim = victims[fault->pick % found][0];
    fault->other = victims[fault->pick % found][1];
    return true;
}

/* --- strikes --- */

void sim_crash(struct sim *sim, uint32_t process, uint32_t variant)
{
    struct sim_process *p = &sim->processes[process];
    for (uint32_t i = 0; i < sim->stream_count; i++)
        if (sim->streams[i].dialer == process || sim->streams[i].acceptor == process) {
            sim_break_stream(sim, i);
            sim->streams[i].known_lost[sim->streams[i].acceptor == process] = true;
        }
    sim_stop(sim, process);
    p->up = false;
    p->epoch++;
    p->paused_until_us = 0;
    p->tick_us = UINT64_MAX;
    /* Readers see a dead peer at once, or go on reading the memory that is there now. */
    for (uint32_t d = 1; p->is_prefill && d <= sim->worker_count; d++)
        if (!sim->processes[d].is_prefill && sim->processes[d].up &&
            !sim_chance(sim, DRAW_LOSS, 50))
            sim_decode_close_pair(sim, d, process, STATUS_UNAVAILABLE);
    sim_push(sim, EVENT_RESTART, process, sim_between(sim, DRAW_CONNECT, 0, 150000))->value =
        variant;
}

/* The router counts a worker as dead. */
static void give_up_worker(struct sim *sim, uint32_t worker)
{
    uint32_t session = sim->sessions[worker];
    if (sim->processes[0].paused_until_us > sim->now_us || session == SIM_NONE ||
        sim->streams[session].broken_us != UINT64_MAX)
        return;
    sim_break_stream(sim, session);
    sim->streams[session].known_lost[0] = true;
    sim_router_session_lost(sim, worker);
}

static void drain(struct sim *sim, uint32_t process)
{
    struct sim_process *p = &sim->processes[process];
    struct sim_message message = {.kind = MESSAGE_DRAINING};
    p->draining = true;
    p->drain_end_us = sim->now_us + SIM_DRAIN_US;
    sim_send(sim, p->session, process, &message);
    sim_push(sim, EVENT_DRAINED, process, 1000);
}

void sim_drained(struct sim *sim, uint32_t process)
{
    struct sim_process *p = &sim->processes[process];
    uint32_t left = p->is_prefill ? source_table_count(p->sources) : sink_table_count(p->sinks);
    if (left && sim->now_us < p->drain_end_us) {
        sim_push(sim, EVENT_DRAINED, process, 5000);
        return;
    }
    sim_trace(sim, process,
              left ? "has drained for long enough and leaves" : "is drained and leaves");
    sim_crash(sim, process, 0);
}

/* A worker serves another variant for a while. Any crash in between ends this. */
static void mismatch(struct sim *sim, uint32_t process, const struct sim_fault *fault)
{
    sim->mismatched = true;
    sim_crash(sim, process, 1 + (fault->pick >> 4) % 3);
}

static void strike(struct sim *sim, struct sim_fault *fault)
{
    uint32_t victim = fault->victim;
    struct sim_process *p = &sim->processes[victim];
    switch (fault->kind) {
    case FAULT_CRASH: sim_crash(sim, victim, 0); break;
    case FAULT_PAUSE:
        p->paused_until_us = sim->now_us + fault->length_us;
        sim_trace(sim, victim, "is paused until %llu", (unsigned long long)p->paused_until_us);
        if (victim && (fault->pick & 0x100))
            give_up_worker(sim, victim);
        break;
    case FAULT_GIVE_UP: give_up_worker(sim, victim); break;
    case FAULT_SESSION_LOST: sim_break_stream(sim, sim->sessions[victim]); break;
    case FAULT_PEER_LOST: sim_break_stream(sim, p->peers[fault->other]); break;
    case FAULT_LANE_LOST:
        /* Closed by the peer, or by the network between. */
        sim_decode_close_pair(sim, victim, fault->other,
                              fault->pick & 0x100 ? STATUS_UNAVAILABLE : STATUS_IO);
        break;
    case FAULT_LEASE: sim_prefill_expire_leases(sim, victim); break;
    case FAULT_PREFILL_STEP: sim_prefill_fail_step(sim, victim); break;
    case FAULT_DECODE_STEP: sim_decode_fail_step(sim, victim); break;
    case FAULT_MISMATCH: mismatch(sim, victim, fault); break;
    case FAULT_DRAIN: drain(sim, victim); break;
    case FAULT_ROUTER_RESTART: sim_router_restart(sim); break;
    case FAULT_HANG:
        p->hung_us = sim->now_us;
        sim->hung_us += fault->length_us;
        p->hung_until_us = sim->now_us + fault->length_us;
        sim_trace(sim, victim, "hangs in a step until %llu", (unsigned long long)p->hung_until_us);
        if (fault->pick & 0x100) /* it is killed for that in the end */
            sim_push(sim, EVENT_RESTART, victim, fault->length_us);
        break;
    case FAULT_BROKEN_DEVICE: p->broken_until_us = sim->now_us + fault->length_us; break;
    default: sim_give_up("a fault that nobody knows");
    }
}

/* False: it has no victim now. */
static bool begin(struct sim *sim, uint32_t index)
{
    struct sim_fault *fault = &sim->faults[index];
    if (waits(fault->kind)) {
        sim->armed[index] = true;
        return true;
    }
    if (!find_victim(sim, fault))
        return false;
    fault->happened = true;
    fault->at_us = sim->now_us;
    bool of_pair = fault->kind == FAULT_PEER_LOST || fault->kind == FAULT_LANE_LOST;
    sim_trace(sim, fault->victim, "FAULT %s%s%s%s", sim_fault_name(fault->kind),
              of_pair ? " (" : "", of_pair ? sim_name(sim, fault->other) : "", of_pair ? ")" : "");
    count(sim, fault);
    uint32_t actor = sim->actor; /* its draws are the victim's, whatever event it follows */
    sim->actor = fault->victim;
    strike(sim, fault);
    sim->actor = actor;
    return true;
}

/* --- times --- */

void sim_faults_begin(struct sim *sim)
{
    memcpy(sim->faults, sim->plan->faults, sizeof sim->faults);
    sim->next_fault_event = sim->faults[0].gap;
    for (uint32_t i = 0; i < sim->plan->fault_count; i++) {
        struct sim_fault *fault = &sim->faults[i];
        fault->happened = false;
        if (!fault->fixed)
            continue;
        uint64_t order = sim->order;
        if (!waits(fault->kind)) /* after all that happens at that moment, as it was */
            sim->order = UINT64_MAX / 2 + i;
        sim_push(sim, EVENT_FAULT, 0, fault->at_us)->index = i;
        sim->order = order;
    }
}

void sim_fault_at(struct sim *sim, uint32_t index)
{
    begin(sim, index);
}

void sim_faults_due(struct sim *sim)
{
    if (sim->next_fault == sim->plan->fault_count || sim->plan->faults[sim->next_fault].fixed ||
        sim->event_count < sim->next_fault_event)
        return;
    if (!begin(sim, sim->next_fault) && sim->event_count < sim->next_fault_event + TRIES)
        return;
    if (++sim->next_fault < sim->plan->fault_count)
        sim->next_fault_event = sim->event_count + sim->plan->faults[sim->next_fault].gap;
}
