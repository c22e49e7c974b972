/* The router: the real request_life, sessions, and a placement that takes any worker that has one. */
#include "tests/sim/sim.h"
#include "tests/unit/handoff_text.h"

#include <string.h>

#define ROUTER 0

static void deliver(struct sim *sim, struct sim_request *request, const struct life_action *action)
{
    uint32_t id = (uint32_t)(request - sim->requests);
    static const char *const what = "the client of %u is given token %u (%u) after %u tokens";
    if (action->index != request->delivered + 1 || action->index > request->length ||
        action->id != sim_token_id(id, action->index) || request->finishes)
        sim_fail(sim, what, id, action->index, action->id, request->delivered);
    request->delivered++;
}

static void send_down(struct sim *sim, struct sim_request *request,
                      const struct life_action *action)
{
    struct sim_message message = {.request = (uint64_t)(request - sim->requests),
                                  .attempt = action->attempt,
                                  .emitted_count = action->emitted_count,
                                  .token_count = request->prompt_count + action->emitted_count};
    message.kind = action->kind == LIFE_SEND_PREFILL  ? MESSAGE_PREFILL
                   : action->kind == LIFE_SEND_DECODE ? MESSAGE_DECODE
                                                      : MESSAGE_RELEASE;
    if (action->kind == LIFE_SEND_DECODE && action->with_handle) {
        const struct sim_message *kept = &request->handle;
        message.has_handle = true;
        message.handle = kept->handle;
        memcpy(message.blocks, kept->blocks, sizeof message.blocks);
        message.serial = kept->serial;
        message.source = (uint32_t)request->life.prefill;
        if (message.token_count != kept->handle.token_count)
            sim_fail(sim, "Decode names %u tokens, its handle covers %u", message.token_count,
                     kept->handle.token_count);
    }
    sim_send(sim, sim->sessions[action->worker], ROUTER, &message);
}

static void execute(struct sim *sim, struct sim_request *request, const struct life_actions *out)
{
    uint32_t id = (uint32_t)(request - sim->requests);
    for (uint32_t i = 0; i < out->count; i++) {
        const struct life_action *action = &out->items[i];
        if (sim->trace) {
            struct str text;
            str_init(&text, 1024);
            text_life_action(&text, action);
            sim_trace(sim, "r: %u: %s", id, text.data);
            str_deinit(&text);
        }
        struct sim_event *event;
        switch (action->kind) {
        case LIFE_PLACE:
        case LIFE_PLACE_DECODE:
            sim->totals->regiven += action->kind == LIFE_PLACE_DECODE;
            sim->totals->rerun += action->kind == LIFE_PLACE && request->life.attempt > 1;
            event = sim_push(sim, EVENT_PLACE, ROUTER,
                             sim_chance(sim, 70) ? 0 : sim_between(sim, 1, 3000));
            event->index = id;
            event->value = (uint32_t)action->avoid_prefill;
            event->serial = (uint32_t)action->avoid_decode;
            break;
        case LIFE_SEND_PREFILL:
        case LIFE_SEND_DECODE:
        case LIFE_SEND_RELEASE: send_down(sim, request, action); break;
        case LIFE_DELIVER: deliver(sim, request, action); break;
        case LIFE_FINISH:
            request->finishes++;
            request->finish_us = sim->now_us;
            sim_push(sim, EVENT_STOPPED, ROUTER, SIM_STOP_US)->index = id;
            break;
        }
    }
    uint64_t next_us = request_life_next_us(&request->life);
    if (next_us < sim->now_us)
        next_us = sim->now_us; /* it is over already */
    if (next_us < request->tick_us) {
        request->tick_us = next_us;
        sim_push(sim, EVENT_LIFE_TICK, ROUTER, next_us - sim->now_us)->index = id;
    }
}

/* Any worker of the kind with a session, but not `avoid` if there is another one; 0: none. */
static uint32_t choose(struct sim *sim, bool prefill, uint32_t avoid)
{
    uint32_t found[SIM_MAX_WORKERS], count = 0, others = 0;
    for (uint32_t i = 1; i <= sim->worker_count; i++) {
        if (sim->processes[i].is_prefill != prefill || sim->sessions[i] == SIM_NONE)
            continue;
        found[count++] = i;
        others += i != avoid;
    }
    if (!count)
        return 0;
    uint32_t worker;
    do
        worker = found[rng_below(&sim->rng, count)];
    while (others && worker == avoid);
    return worker;
}

static void on_place(struct sim *sim, const struct sim_event *event)
{
    struct sim_request *request = &sim->requests[event->index];
    struct request_life *life = &request->life;
    struct life_actions out;
    if (life->state != REQUEST_QUEUED && life->state != REQUEST_REGIVE)
        return;
    bool local = life->state == REQUEST_QUEUED && sim_chance(sim, 10);
    bool needs_prefill = life->state == REQUEST_QUEUED && !local;
    uint32_t prefill = needs_prefill ? choose(sim, true, event->value) : 0;
    uint32_t decode = choose(sim, false, event->serial);
    if (!decode || (needs_prefill && !prefill) || sim_chance(sim, 5)) {
        bool exists = decode && (!needs_prefill || prefill); /* then all are full */
        request_life_on_no_place(life, sim->now_us, exists, &out);
        struct sim_event *again = sim_push(sim, EVENT_PLACE, ROUTER, 10000);
        again->index = event->index;
        again->value = event->value;
        again->serial = event->serial;
    } else {
        request_life_on_placed(life, sim->now_us, prefill, decode, &out);
    }
    execute(sim, request, &out);
}

static void on_message(struct sim *sim, const struct sim_event *event)
{
    const struct sim_message *m = &event->message;
    struct sim_request *request = &sim->requests[m->request];
    struct life_actions out = {0};
    uint64_t worker = sim->streams[event->stream].acceptor;
    switch (m->kind) {
    case MESSAGE_OPENED:
        if (request_life_on_opened(&request->life, worker, m->attempt, m->handle.ref, &out))
            request->handle = *m;
        break;
    case MESSAGE_TOKEN: request_life_on_token(&request->life, &m->token, &out); break;
    case MESSAGE_LOST: request_life_on_lost(&request->life, worker, m->attempt, &out); break;
    case MESSAGE_REFUSED:
        request_life_on_refused(&request->life, worker, m->attempt, m->retry, &out);
        break;
    default: sim_fail(sim, "a message of kind %d for the router", m->kind);
    }
    execute(sim, request, &out);
}

static void note_left(struct sim *sim, struct sim_request *request)
{
    if (request->life.from_decode || !request->life.has_handle) {
        request->costs++;
        return;
    }
    if (request->left_count == SIM_MAX_LEFT)
        sim_fail(sim, "more than %u decode workers left one request", SIM_MAX_LEFT);
    request->left[request->left_count].ref = request->life.ref;
    request->left[request->left_count++].attempt = request->life.attempt;
}

/* How often what went wrong may have cost this request a run. */
static uint32_t costs_of(struct sim *sim, const struct sim_request *request)
{
    uint32_t costs = sim->costs + request->costs;
    for (uint32_t i = 0; i < request->left_count; i++) {
        const struct sim_handle *handle =
            sim_find_handle(sim, (uint64_t)(request - sim->requests), request->left[i].ref);
        costs += handle->held_attempt == request->left[i].attempt;
    }
    return costs;
}

static void session_lost(struct sim *sim, uint32_t worker)
{
    sim_trace(sim, "r: session #%u to %s is lost", sim->sessions[worker], sim_name(worker));
    sim->sessions[worker] = SIM_NONE;
    for (uint32_t i = 0; i < sim->request_count; i++) {
        struct life_actions out;
        struct request_life *life = &sim->requests[i].life;
        if (!sim->requests[i].arrived)
            continue;
        if (life->state == REQUEST_DECODE && life->decode == worker)
            note_left(sim, &sim->requests[i]);
        request_life_on_session_lost(life, worker, &out);
        execute(sim, &sim->requests[i], &out);
    }
}

/* Either end forgets the old stream before it hears of the new one. */
static void on_dial(struct sim *sim, uint32_t worker)
{
    struct sim_process *p = &sim->processes[worker];
    if (sim->sessions[worker] != SIM_NONE) {
        struct sim_stream *old = &sim->streams[sim->sessions[worker]];
        if (old->broken_us == UINT64_MAX)
            return;
        old->known_lost[0] = true;
        session_lost(sim, worker);
    }
    if (!p->up || p->paused_until_us > sim->now_us) {
        sim_push(sim, EVENT_DIAL, ROUTER, 10000)->index = worker;
        return;
    }
    if (p->session != SIM_NONE) {
        sim->streams[p->session].known_lost[1] = true;
        if (p->is_prefill)
            sim_prefill_session_lost(sim, worker);
        else
            sim_decode_session_lost(sim, worker);
    }
    sim->sessions[worker] = p->session = sim_open_stream(sim, ROUTER, worker);
}

/* The workers of the last attempt have stopped, if the Release could reach them. */
static void check_stopped(struct sim *sim, uint32_t id)
{
    const struct sim_request *request = &sim->requests[id];
    const uint64_t workers[] = {request->life.prefill, request->life.decode};
    for (uint32_t i = 0; i < 2 && !sim->message_lost; i++) {
        uint32_t worker = (uint32_t)workers[i];
        const struct sim_process *p = &sim->processes[worker];
        if (!worker || sim->sessions[worker] == SIM_NONE)
            continue;
        const struct sim_stream *session = &sim->streams[sim->sessions[worker]];
        if (session->opened_us > request->finish_us || session->broken_us != UINT64_MAX ||
            p->paused_until_us > request->finish_us)
            continue;
        for (uint32_t j = 0; j < SIM_MAX_JOBS; j++)
            if (p->jobs[j].serial && p->jobs[j].request == id)
                sim_fail(sim, "%s still holds %u.%u, which has ended", sim_name(worker), id,
                         p->jobs[j].attempt);
    }
}

void sim_router_event(struct sim *sim, struct sim_event *event)
{
    struct sim_request *request = &sim->requests[event->index];
    struct life_actions out;
    struct request_limits limits = request_limits_default();
    switch (event->kind) {
    case EVENT_MESSAGE: on_message(sim, event); return;
    case EVENT_DIAL: on_dial(sim, event->index); return;
    case EVENT_PLACE: on_place(sim, event); return;
    case EVENT_STOPPED: check_stopped(sim, event->index); return;
    case EVENT_STREAM_LOST: {
        uint32_t worker = sim->streams[event->stream].acceptor;
        if (sim->sessions[worker] == event->stream)
            session_lost(sim, worker);
        sim_push(sim, EVENT_DIAL, ROUTER, sim_between(sim, 100, 20000))->index = worker;
        return;
    }
    case EVENT_ARRIVE:
        request->arrived = true;
        request_life_init(&request->life, &limits, sim->now_us + SIM_DEADLINE_US, &out);
        break;
    case EVENT_CANCEL:
        request->cancelled = true;
        request_life_on_cancel(&request->life, &out);
        break;
    case EVENT_LIFE_TICK:
        if (event->due_us == request->tick_us)
            request->tick_us = UINT64_MAX;
        request_life_on_tick(&request->life, sim->now_us, &out);
        break;
    default: sim_fail(sim, "an event of kind %d for the router", event->kind);
    }
    execute(sim, request, &out);
}

static void check_status(struct sim *sim, const struct sim_request *request, uint32_t id)
{
    const struct request_life *life = &request->life;
    struct sim_totals *t = sim->totals;
    bool allowed = true;
    switch (life->status) {
    case TERMINAL_OK:
        t->ok++;
        allowed = request->delivered == request->length;
        break;
    case TERMINAL_CANCELLED:
        t->cancelled++;
        allowed = request->cancelled;
        break;
    case TERMINAL_DEADLINE:
        t->deadline++;
        allowed = sim->message_lost;
        break;
    case TERMINAL_UNAVAILABLE:
        t->unavailable++;
        allowed = sim->tiny || costs_of(sim, request) >= life->limits.runs ||
                  (life->losses >= life->limits.losses && sim->faults >= life->limits.losses);
        break;
    case TERMINAL_OVERLOADED:
        t->overloaded++;
        allowed = sim->tiny;
        break;
    default: allowed = false; break;
    }
    if (!allowed)
        sim_fail(sim, "request %u ended %s (%s) with %u of %u tokens after %u faults", id,
                 terminal_status_name(life->status), life->reason, request->delivered,
                 request->length, sim->faults);
}

void sim_router_check_end(struct sim *sim)
{
    for (uint32_t i = 0; i < sim->request_count; i++) {
        const struct sim_request *request = &sim->requests[i];
        if (request->life.state != REQUEST_ENDED || request->finishes != 1)
            sim_fail(sim, "request %u is %s and was ended %u times", i,
                     request_state_name(request->life.state), request->finishes);
        if (request->delivered != request->life.delivered)
            sim_fail(sim, "request %u counts %u tokens, its client %u", i, request->life.delivered,
                     request->delivered);
        uint32_t costs = costs_of(sim, request);
        if (request->life.runs > 1 + costs && !sim->tiny)
            sim_fail(sim, "request %u ran %u times for %u faults", i, request->life.runs, costs);
        check_status(sim, request, i);
    }
}
