#include "tests/sim/sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------- tools */

void sim_fail(struct sim *sim, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int used = snprintf(sim->failure, sizeof sim->failure,
                        "seed %llu at %llu us: ", (unsigned long long)sim->seed,
                        (unsigned long long)sim->now_us);
    vsnprintf(sim->failure + used, sizeof sim->failure - (size_t)used, format, args);
    va_end(args);
    longjmp(sim->bail, 1);
}

void sim_trace(struct sim *sim, const char *format, ...)
{
    if (!sim->trace)
        return;
    va_list args;
    va_start(args, format);
    printf("%9llu ", (unsigned long long)sim->now_us);
    vprintf(format, args);
    putchar('\n');
    va_end(args);
}

uint64_t sim_between(struct sim *sim, uint64_t low, uint64_t high)
{
    return low + rng_below(&sim->rng, high - low + 1);
}

bool sim_chance(struct sim *sim, uint32_t percent)
{
    return rng_below(&sim->rng, 100) < percent;
}

const char *sim_name(uint32_t process)
{
    static const char *const names[] = {"r", "w1", "w2", "w3", "w4", "w5", "w6"};
    return names[process];
}

uint32_t sim_token_id(uint64_t request, uint32_t index)
{
    return (uint32_t)(request * 1000 + index);
}

/* ------------------------------------------------------------------------------------------ events */

static bool before(const struct sim_event *a, const struct sim_event *b)
{
    return a->at_us != b->at_us ? a->at_us < b->at_us : a->order < b->order;
}

static void heap_put(struct sim *sim, struct sim_event *event)
{
    if (sim->heap_count == sim->heap_capacity) {
        sim->heap_capacity = sim->heap_capacity ? 2 * sim->heap_capacity : 256;
        sim->heap = realloc(sim->heap, sim->heap_capacity * sizeof *sim->heap);
    }
    uint32_t i = sim->heap_count++;
    for (; i && before(event, sim->heap[(i - 1) / 2]); i = (i - 1) / 2)
        sim->heap[i] = sim->heap[(i - 1) / 2];
    sim->heap[i] = event;
}

static struct sim_event *heap_take(struct sim *sim)
{
    struct sim_event *first = sim->heap[0], *last = sim->heap[--sim->heap_count];
    uint32_t i = 0;
    for (uint32_t child; (child = 2 * i + 1) < sim->heap_count; i = child) {
        if (child + 1 < sim->heap_count && before(sim->heap[child + 1], sim->heap[child]))
            child++;
        if (!before(sim->heap[child], last))
            break;
        sim->heap[i] = sim->heap[child];
    }
    sim->heap[i] = last;
    return first;
}

static struct sim_event *event_at(struct sim *sim, enum sim_event_kind kind, uint32_t process,
                                  uint64_t at_us)
{
    struct sim_event *event = malloc(sizeof *event);
    *event = (struct sim_event){.at_us = at_us,
                                .due_us = at_us,
                                .order = sim->order++,
                                .kind = kind,
                                .process = process,
                                .epoch = sim->processes[process].epoch};
    heap_put(sim, event);
    return event;
}

struct sim_event *sim_push(struct sim *sim, enum sim_event_kind kind, uint32_t process,
                           uint64_t delay_us)
{
    return event_at(sim, kind, process, sim->now_us + delay_us);
}

struct sim_event *sim_push_ring(struct sim *sim, enum sim_event_kind kind, uint32_t process)
{
    struct sim_process *p = &sim->processes[process];
    uint64_t *last_us = kind == EVENT_TO_STEP ? &p->to_step_us : &p->from_step_us;
    uint64_t at_us = sim->now_us + (sim_chance(sim, 20) ? sim_between(sim, 0, 3000) : 10);
    *last_us = at_us > *last_us ? at_us : *last_us;
    return event_at(sim, kind, process, *last_us);
}

void sim_schedule_tick(struct sim *sim, uint32_t process, uint64_t next_us)
{
    struct sim_process *p = &sim->processes[process];
    if (next_us == UINT64_MAX)
        return;
    uint64_t at_us = next_us > sim->now_us ? next_us : sim->now_us;
    if (at_us >= p->tick_us)
        return;
    p->tick_us = at_us;
    event_at(sim, EVENT_TICK, process, at_us);
}

/* ----------------------------------------------------------------------------------------- streams */

uint32_t sim_open_stream(struct sim *sim, uint32_t dialer, uint32_t acceptor)
{
    if (sim->stream_count == SIM_MAX_STREAMS)
        sim_fail(sim, "more than %u streams: something reconnects for ever", SIM_MAX_STREAMS);
    uint32_t stream = sim->stream_count++;
    sim->streams[stream] = (struct sim_stream){
        .dialer = dialer,
        .acceptor = acceptor,
        .epochs = {sim->processes[dialer].epoch, sim->processes[acceptor].epoch},
        .opened_us = sim->now_us,
        .broken_us = UINT64_MAX};
    sim_trace(sim, "%s: stream #%u to %s", sim_name(dialer), stream, sim_name(acceptor));
    return stream;
}

void sim_break_stream(struct sim *sim, uint32_t stream)
{
    struct sim_stream *s = &sim->streams[stream];
    if (s->broken_us != UINT64_MAX)
        return;
    s->broken_us = sim->now_us;
    sim_trace(sim, "stream #%u breaks", stream);
    for (uint32_t end = 0; end < 2; end++) {
        uint32_t process = end ? s->acceptor : s->dialer;
        if (sim->processes[process].epoch != s->epochs[end])
            continue;
        uint64_t delay_us = sim_chance(sim, 50) ? 0 : sim_between(sim, 0, 40000);
        sim_push(sim, EVENT_STREAM_LOST, process, delay_us)->stream = stream;
    }
}

void sim_send(struct sim *sim, uint32_t stream, uint32_t from, const struct sim_message *message)
{
    if (stream == SIM_NONE)
        return;
    struct sim_stream *s = &sim->streams[stream];
    uint32_t end = s->dialer == from ? 0 : 1, to = end ? s->dialer : s->acceptor;
    if (s->broken_us != UINT64_MAX)
        return;
    if (sim->swallows_left && sim_chance(sim, 20)) {
        sim->swallows_left--;
        sim->message_lost = true;
        sim_trace(sim, "a message of kind %d from %s on #%u vanishes", message->kind,
                  sim_name(from), stream);
        return;
    }
    uint64_t at_us =
        sim->now_us + (sim_chance(sim, 25) ? sim_between(sim, 0, 8000) : sim_between(sim, 50, 300));
    s->last_us[end] = at_us > s->last_us[end] ? at_us : s->last_us[end];
    struct sim_event *event = event_at(sim, EVENT_MESSAGE, to, s->last_us[end]);
    event->epoch = s->epochs[!end];
    event->stream = stream;
    event->message = *message;
}

/* Whether its stream still brings it: what had arrived before the break is read even if the reader was paused. */
static bool arrives(struct sim *sim, const struct sim_event *event)
{
    const struct sim_stream *s = &sim->streams[event->stream];
    uint32_t end = s->dialer == event->process ? 0 : 1;
    return event->due_us <= s->broken_us && !s->known_lost[end];
}

/* Whether this end learns it for the first time. */
static bool learns_loss(struct sim *sim, const struct sim_event *event)
{
    struct sim_stream *s = &sim->streams[event->stream];
    uint32_t end = s->dialer == event->process ? 0 : 1;
    bool first = !s->known_lost[end];
    s->known_lost[end] = true;
    return first;
}

/* ------------------------------------------------------------------------------------------ faults */

static uint32_t any_worker(struct sim *sim)
{
    return (uint32_t)sim_between(sim, 1, sim->worker_count);
}

static void crash(struct sim *sim, uint32_t process)
{
    struct sim_process *p = &sim->processes[process];
    sim_trace(sim, "%s crashes", sim_name(process));
    for (uint32_t i = 0; i < sim->stream_count; i++)
        if (sim->streams[i].dialer == process || sim->streams[i].acceptor == process) {
            sim_break_stream(sim, i);
            sim->streams[i].known_lost[sim->streams[i].acceptor == process] = true;
        }
    if (p->is_prefill)
        sim_prefill_stop(sim, process);
    else
        sim_decode_stop(sim, process);
    p->up = false;
    p->epoch++;
    p->paused_until_us = 0;
    p->tick_us = UINT64_MAX;
    /* Readers see a dead peer at once, or go on in what is there now. */
    for (uint32_t d = 1; p->is_prefill && d <= sim->worker_count; d++)
        if (!sim->processes[d].is_prefill && sim->processes[d].up && sim_chance(sim, 50))
            sim_decode_close_pair(sim, d, process, STATUS_UNAVAILABLE);
    sim_push(sim, EVENT_RESTART, process, sim_between(sim, 0, 150000));
}

static void restart(struct sim *sim, uint32_t process)
{
    struct sim_process *p = &sim->processes[process];
    p->up = true;
    p->incarnation = rng_next(&sim->rng);
    p->session = SIM_NONE;
    p->tick_us = UINT64_MAX;
    p->to_step_us = p->from_step_us = 0;
    memset(p->blocks, 0, sizeof p->blocks);
    memset(p->jobs, 0, sizeof p->jobs);
    sim_trace(sim, "%s starts as a %s worker", sim_name(process),
              p->is_prefill ? "prefill" : "decode");
    if (p->is_prefill)
        sim_prefill_start(sim, process);
    else
        sim_decode_start(sim, process);
    sim_push(sim, EVENT_DIAL, 0, sim_between(sim, 100, 20000))->index = process;
}

/* What a fault may cost a request, in runs; NOT_NOW: it finds no victim. */
enum cost { COST_NONE, COST_RUN, COST_REREAD, NOT_NOW };

static enum cost break_any_stream(struct sim *sim)
{
    uint32_t alive[64], count = 0;
    for (uint32_t i = 0; i < sim->stream_count && count < 64; i++)
        if (sim->streams[i].broken_us == UINT64_MAX)
            alive[count++] = i;
    if (!count)
        return NOT_NOW;
    sim_break_stream(sim, alive[rng_below(&sim->rng, count)]);
    return COST_NONE; /* what a Session costs is counted when the router learns it */
}

static enum cost pause_any(struct sim *sim, uint32_t process)
{
    struct sim_process *p = &sim->processes[process];
    if (p->paused_until_us > sim->now_us)
        return NOT_NOW;
    p->paused_until_us = sim->now_us + (sim_chance(sim, 50) ? sim_between(sim, 1000, 100000)
                                                            : sim_between(sim, 100000, 1500000));
    sim_trace(sim, "%s is paused until %llu", sim_name(process),
              (unsigned long long)p->paused_until_us);
    if (p->session != SIM_NONE && sim_chance(sim, 40)) { /* the router counts it as dead */
        sim_break_stream(sim, p->session);
        sim->faults++;
    }
    return COST_RUN;
}

static enum cost inject(struct sim *sim)
{
    uint32_t process = any_worker(sim);
    struct sim_process *p = &sim->processes[process];
    uint64_t kind = sim_between(sim, 0, 12);
    if (kind <= 3) {
        return break_any_stream(sim);
    } else if (kind == 4) {
        sim->flips_left++;
        return COST_REREAD;
    } else if (kind == 5) {
        sim->hangs_left++;
        return COST_REREAD;
    } else if (kind == 6) {
        sim->refusals_left++;
        return COST_NONE;
    } else if (kind == 7) {
        sim->swallows_left++;
        return COST_RUN;
    } else if (kind == 8) {
        sim->forgeries_left++;
        return COST_RUN;
    }
    if (!p->up)
        return NOT_NOW;
    if (kind == 9)
        return pause_any(sim, process);
    if (kind == 10 && p->is_prefill)
        sim_prefill_expire_leases(sim, process);
    else if (kind == 11 && p->is_prefill)
        return sim_prefill_fail_step(sim, process) ? COST_RUN : NOT_NOW;
    else
        crash(sim, process);
    return p->is_prefill ? COST_RUN : COST_NONE;
}

static void maybe_inject(struct sim *sim)
{
    if (!sim->faults_left || sim->event_count < sim->next_fault_event)
        return;
    sim->next_fault_event = sim->event_count + sim_between(sim, 1, 60);
    enum cost cost = inject(sim);
    if (cost == NOT_NOW)
        return;
    sim->faults_left--;
    sim->faults++;
    sim->costs += cost == COST_RUN;
    sim->reread_faults += cost == COST_REREAD;
    if (cost == COST_REREAD &&
        sim->reread_faults >= 2) /* from the second on they may meet in one handoff */
        sim->costs += sim->reread_faults == 2 ? 2 : 1;
}

/* ------------------------------------------------------------------------------------------ the run */

static void dispatch(struct sim *sim, struct sim_event *event)
{
    struct sim_process *p = &sim->processes[event->process];
    if (event->kind == EVENT_RESTART) {
        restart(sim, event->process);
        return;
    }
    if (event->kind == EVENT_MESSAGE && !arrives(sim, event))
        return;
    if (event->kind == EVENT_STREAM_LOST && !learns_loss(sim, event))
        return;
    if (event->kind == EVENT_TICK && event->due_us == p->tick_us)
        p->tick_us = UINT64_MAX;
    if (event->process == 0)
        sim_router_event(sim, event);
    else if (p->is_prefill)
        sim_prefill_event(sim, event);
    else
        sim_decode_event(sim, event);
}

static void step(struct sim *sim)
{
    struct sim_event *event = heap_take(sim);
    const struct sim_process *p = &sim->processes[event->process];
    if (event->at_us > SIM_REST_LIMIT_US)
        sim_fail(sim, "not at rest: an event of kind %d for %s", event->kind,
                 sim_name(event->process));
    sim->now_us = event->at_us;
    if (event->epoch != p->epoch) {
        free(event);
        return;
    }
    if (p->paused_until_us > sim->now_us && event->kind != EVENT_COPY) {
        event->at_us = p->paused_until_us;
        heap_put(sim, event);
        return;
    }
    sim->event_count++;
    struct sim_event copy = *event; /* so that a failure in it leaks nothing */
    free(event);
    dispatch(sim, &copy);
    maybe_inject(sim);
}

static void check_rest(struct sim *sim)
{
    sim_router_check_end(sim);
    for (uint32_t i = 1; i <= sim->worker_count; i++) {
        struct sim_process *p = &sim->processes[i];
        if (!p->up)
            sim_fail(sim, "%s did not start again", sim_name(i));
        uint32_t left = p->is_prefill ? source_table_count(p->sources) : sink_table_count(p->sinks);
        if (left)
            sim_fail(sim, "%s has %u sources or sinks at rest", sim_name(i), left);
        for (uint32_t j = 0; j < SIM_MAX_JOBS; j++)
            if (p->jobs[j].serial)
                sim_fail(sim, "%s still works on %llu.%u at rest", sim_name(i),
                         (unsigned long long)p->jobs[j].request, p->jobs[j].attempt);
        for (uint32_t j = 0; j < p->pool_blocks; j++)
            if (p->blocks[j].owner || p->blocks[j].landing)
                sim_fail(sim, "%s: block %u is not free at rest", sim_name(i), j);
        for (uint32_t j = 0; j < SIM_MAX_READS; j++)
            if (p->reads[j].used)
                sim_fail(sim, "%s: a read never ended", sim_name(i));
    }
}

static void set_up(struct sim *sim)
{
    uint32_t prefills = (uint32_t)sim_between(sim, 1, 2),
             decodes = (uint32_t)sim_between(sim, 1, 2);
    sim->worker_count = prefills + decodes;
    sim->request_count = (uint32_t)sim_between(sim, 1, SIM_MAX_REQUESTS);
    sim->tiny = sim_chance(sim, 8);
    sim->slow = sim_chance(sim, 15);
    sim->faults_left = sim_chance(sim, 20) ? 0 : (uint32_t)sim_between(sim, 1, 6);
    sim->next_fault_event = sim_between(sim, 1, 150);
    sim->processes[0].up = true;
    sim->processes[0].tick_us = UINT64_MAX;
    for (uint32_t i = 1; i <= sim->worker_count; i++) {
        sim->sessions[i] = SIM_NONE;
        sim->processes[i].is_prefill = i <= prefills;
        sim->processes[i].pool_blocks = (uint32_t)sim_between(
            sim, SIM_MAX_BLOCKS, sim->slow ? SIM_MAX_BLOCKS : SIM_POOL_BLOCKS);
        restart(sim, i);
    }
    uint32_t cancels = sim_chance(sim, 60) ? 0 : (uint32_t)sim_between(sim, 1, 3);
    for (uint32_t i = 0; i < sim->request_count; i++) {
        struct sim_request *request = &sim->requests[i];
        request->length = (uint32_t)(sim_chance(sim, 25) ? 1 : sim_between(sim, 1, 12));
        request->prompt_count = (uint32_t)sim_between(sim, 1, SIM_MAX_PROMPT - request->length);
        request->tick_us = UINT64_MAX;
        uint64_t arrival_us = sim_between(sim, 0, 100000);
        sim_push(sim, EVENT_ARRIVE, 0, arrival_us)->index = i;
        if (i < cancels)
            sim_push(sim, EVENT_CANCEL, 0, arrival_us + sim_between(sim, 1, 150000))->index = i;
    }
}

bool sim_run(uint64_t seed, bool trace, struct sim_totals *totals, char failure[512])
{
    struct sim *sim = calloc(1, sizeof *sim);
    sim->seed = seed;
    sim->trace = trace;
    sim->totals = totals;
    sim->rng = rng_seeded(seed);
    bool good = false;
    if (setjmp(sim->bail) == 0) {
        set_up(sim);
        while (sim->heap_count)
            step(sim);
        check_rest(sim);
        good = true;
    }
    totals->runs++;
    totals->events += sim->event_count;
    totals->faults += sim->faults;
    memcpy(failure, sim->failure, sizeof sim->failure);
    for (uint32_t i = 1; i <= sim->worker_count; i++)
        if (sim->processes[i].up) {
            if (sim->processes[i].is_prefill)
                sim_prefill_stop(sim, i);
            else
                sim_decode_stop(sim, i);
        }
    for (uint32_t i = 0; i < sim->heap_count; i++)
        free(sim->heap[i]);
    free(sim->heap);
    free(sim);
    return good;
}
