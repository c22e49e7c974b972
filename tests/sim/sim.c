/* One life, from its plan to its rest. */
#include "tests/sim/sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint32_t sim_ignored;

static struct sim *running; /* for assertions and signals that end a life */

/* --- tools --- */

static _Noreturn void bail(struct sim *sim, enum sim_invariant invariant)
{
    sim->broken = invariant;
    siglongjmp(sim->bail, 1);
}

void sim_fail(struct sim *sim, enum sim_invariant invariant, const char *format, ...)
{
    if (sim_ignored >> invariant & 1)
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(sim->failure, sizeof sim->failure, format, args);
    va_end(args);
    bail(sim, invariant);
}

void sim_disturbed(struct sim *sim, uint64_t until_us)
{
    if (until_us > sim->calm_us)
        sim->calm_us = until_us;
}

void sim_give_up(const char *what)
{
    snprintf(running->failure, sizeof running->failure, "%s", what);
    bail(running, HOLDS_WAITS);
}

/* An assertion of the code under test. */
static void on_abort(int signal_number)
{
    (void)signal_number;
    snprintf(running->failure, sizeof running->failure, "an assertion failed: see above");
    bail(running, HOLDS_ASSERT);
}

void sim_trace(struct sim *sim, uint32_t process, const char *format, ...)
{
    if (!sim->trace)
        return;
    va_list args;
    va_start(args, format);
    printf("%9llu us  %-6s  ", (unsigned long long)sim->now_us, sim_name(sim, process));
    vprintf(format, args);
    putchar('\n');
    va_end(args);
}

static void trace_message(struct sim *sim, const struct sim_event *event, bool arrives)
{
    if (!sim->trace)
        return;
    const struct sim_stream *s = &sim->streams[event->stream];
    struct str text;
    str_init(&text, 1024);
    sim_say_message(&text, &event->message);
    sim_trace(sim, event->process, "%s %s: %s", arrives ? "hears from" : "never hears from",
              sim_name(sim, s->dialer == event->process ? s->acceptor : s->dialer), text.data);
    str_deinit(&text);
}

/* --- processes --- */

void sim_start(struct sim *sim, uint32_t process, uint32_t variant)
{
    struct sim_process *p = &sim->processes[process];
    p->up = true;
    p->variant = variant;
    p->draining = false;
    p->incarnation = rng_at(sim->plan->seed, 1000 + process, p->epoch);
    p->session = SIM_NONE;
    p->tick_us = UINT64_MAX;
    p->to_step_us = p->from_step_us = 0;
    p->hung_us = p->hung_until_us = p->broken_until_us = p->steps_done = 0;
    p->reports = false;
    breakers_forget(&sim->breakers, process); /* it has another life */
    memset(p->blocks, 0, sizeof p->blocks);
    memset(p->jobs, 0, sizeof p->jobs);
    memset(p->newest, 0, sizeof p->newest);
    if (sim->now_us || variant)
        sim_trace(sim, process, "starts again%s",
                  variant ? ", and serves something else than the others" : "");
    if (p->is_prefill)
        sim_prefill_start(sim, process);
    else
        sim_decode_start(sim, process);
    sim_push(sim, EVENT_DIAL, 0, sim_between(sim, DRAW_CONNECT, 100, 20000))->index = process;
}

void sim_stop(struct sim *sim, uint32_t process)
{
    if (sim->processes[process].is_prefill)
        sim_prefill_stop(sim, process);
    else
        sim_decode_stop(sim, process);
}

static void restart(struct sim *sim, const struct sim_event *event)
{
    struct sim_process *p = &sim->processes[event->process];
    sim_disturbed(sim, sim->now_us);
    if (event->process == 0) {
        p->up = true;
        sim_trace(sim, 0, "starts again");
        for (uint32_t i = 1; i <= sim->worker_count; i++)
            sim_push(sim, EVENT_DIAL, 0, sim_between(sim, DRAW_CONNECT, 100, 20000))->index = i;
        return;
    }
    if (p->up) { /* it has served another variant long enough: it dies once more */
        sim->fault_count++;
        sim->costs += p->is_prefill;
        sim_crash(sim, event->process, 0);
        return;
    }
    sim_start(sim, event->process, event->value);
    if (event->value)
        sim_push(sim, EVENT_RESTART, event->process, sim_between(sim, DRAW_CONNECT, 50000, 400000));
}

/* A worker with work reports its load, from its transfer thread. */
static void report_load(struct sim *sim, uint32_t process)
{
    struct sim_process *p = &sim->processes[process];
    bool works = false, needed = false;
    for (uint32_t i = 0; i < SIM_MAX_JOBS; i++)
        works |= p->jobs[i].serial != 0;
    for (uint32_t i = 0; i < sim->request_count; i++)
        needed |= !sim->plan->requests[i].left_out && !sim->requests[i].finishes;
    p->reports = works && needed;
    sim_router_load(sim, process);
    if (p->reports)
        sim_push(sim, EVENT_LOAD, process, SIM_LOAD_US);
}

/* --- the run --- */

static void dispatch(struct sim *sim, struct sim_event *event)
{
    struct sim_process *p = &sim->processes[event->process];
    switch (event->kind) {
    case EVENT_RESTART: restart(sim, event); return;
    case EVENT_DRAINED: sim_drained(sim, event->process); return;
    case EVENT_FAULT: sim_fault_at(sim, event->index); return;
    case EVENT_LOAD: report_load(sim, event->process); return;
    case EVENT_MESSAGE: {
        bool arrives = sim_arrives(sim, event);
        trace_message(sim, event, arrives);
        if (!arrives)
            return;
        break;
    }
    case EVENT_STREAM_LOST:
        if (!sim_learns_loss(sim, event))
            return;
        break;
    case EVENT_TICK:
        if (event->due_us == p->tick_us)
            p->tick_us = UINT64_MAX;
        break;
    default: break;
    }
    if (event->process == 0)
        sim_router_event(sim, event);
    else if (p->is_prefill)
        sim_prefill_event(sim, event);
    else
        sim_decode_event(sim, event);
}

/* Clients' events go to whichever router lives. */
static bool is_of_clients(const struct sim_event *event)
{
    return event->kind == EVENT_ARRIVE || event->kind == EVENT_CANCEL;
}

static void step(struct sim *sim)
{
    struct sim_event *event = sim_next_event(sim);
    const struct sim_process *p = &sim->processes[event->process];
    if (event->at_us > SIM_REST_LIMIT_US || sim->event_count > SIM_MAX_EVENTS)
        sim_fail(sim, HOLDS_WAITS, "not at rest: an event of kind %d for %s", event->kind,
                 sim_name(sim, event->process));
    sim->now_us = event->at_us;
    if (event->epoch != p->epoch && !is_of_clients(event) && event->kind != EVENT_FAULT) {
        free(event);
        return;
    }
    if (is_of_clients(event) && !p->up) {
        sim_put_off(sim, event, sim->now_us + 10000);
        return;
    }
    if (p->paused_until_us > sim->now_us && event->kind != EVENT_COPY &&
        event->kind != EVENT_FAULT) {
        sim_put_off(sim, event, p->paused_until_us);
        return;
    }
    bool of_step =
        event->kind == EVENT_TO_STEP || event->kind == EVENT_CHUNK || event->kind == EVENT_ROW;
    if (p->hung_until_us > sim->now_us && of_step) {
        sim_put_off(sim, event, p->hung_until_us);
        return;
    }
    sim->event_count++;
    sim->actor = event->process;
    struct sim_event copy = *event; /* so that a failure in it leaks nothing */
    free(event);
    dispatch(sim, &copy);
    sim_faults_due(sim);
    sim_check_process(sim, copy.process);
    sim_check_requests(sim);
}

static void set_up(struct sim *sim)
{
    const struct sim_plan *plan = sim->plan;
    sim->worker_count = plan->prefills + plan->decodes;
    sim->request_count = plan->request_count;
    sim->processes[0].up = true;
    sim->processes[0].tick_us = UINT64_MAX;
    sim_router_begin(sim);
    sim_faults_begin(sim);
    for (uint32_t i = 1; i <= sim->worker_count; i++) {
        sim->actor = i;
        sim->sessions[i] = SIM_NONE;
        sim->processes[i].is_prefill = i <= plan->prefills;
        sim->processes[i].pool_blocks = plan->pool_blocks[i];
        sim_start(sim, i, 0);
    }
    for (uint32_t i = 0; i < sim->request_count; i++) {
        struct sim_request *request = &sim->requests[i];
        request->length = plan->requests[i].length;
        request->prompt_count = plan->requests[i].prompt_count;
        request->tick_us = UINT64_MAX;
        if (plan->requests[i].left_out)
            continue;
        uint64_t arrival_us = plan->requests[i].arrival_us;
        sim_push(sim, EVENT_ARRIVE, 0, arrival_us)->index = i;
        if (plan->requests[i].cancel_us)
            sim_push(sim, EVENT_CANCEL, 0, arrival_us + plan->requests[i].cancel_us)->index = i;
    }
}

static void tear_down(struct sim *sim)
{
    for (uint32_t i = 1; i <= sim->worker_count; i++)
        if (sim->processes[i].up)
            sim_stop(sim, i);
    breakers_deinit(&sim->breakers);
    for (uint32_t i = 0; i < sim->heap_count; i++)
        free(sim->heap[i]);
    free(sim->heap);
}

void sim_run(const struct sim_plan *plan, bool trace, struct sim_totals *totals,
             struct sim_result *result)
{
    struct sim *sim = calloc(1, sizeof *sim);
    if (!sim)
        abort();
    sim->plan = plan;
    sim->trace = trace;
    sim->totals = totals;
    running = sim;
    struct sigaction old, ours = {.sa_handler = on_abort, .sa_flags = SA_NODEFER};
    sigaction(SIGABRT, &ours, &old);
    if (sigsetjmp(sim->bail, 0) == 0) {
        set_up(sim);
        while (sim->heap_count)
            step(sim);
        sim_check_rest(sim);
    }
    sigaction(SIGABRT, &old, NULL);
    totals->runs++;
    totals->events += sim->event_count;
    if (sim->broken && trace)
        sim_trace(sim, sim->actor, "BROKEN %s: %s", sim_invariant_name(sim->broken), sim->failure);
    *result = (struct sim_result){.broken = sim->broken, .event_count = sim->event_count};
    memcpy(result->failure, sim->failure, sizeof result->failure);
    memcpy(result->drawn, sim->drawn, sizeof result->drawn);
    memcpy(result->faults, sim->faults, sizeof result->faults);
    tear_down(sim);
    free(sim);
}
