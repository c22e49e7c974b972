/* The router: the real request_life, sessions, and a placement that takes any worker that has
 * one. */
#include "tests/sim/sim.h"

#include <string.h>

#define ROUTER 0

static void deliver(struct sim *sim, struct sim_request *request, const struct life_action *action)
{
    uint32_t id = (uint32_t)(request - sim->requests);
    static const char *const what = "the client of %u is given token %u (%u) after %u tokens";
    if (action->index != request->delivered + 1 || action->index > request->length ||
        action->id != sim_token_id(id, action->index) || request->finishes)
        sim_fail(sim, HOLDS_INDICES, what, id, action->index, action->id, request->delivered);
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
    message.source = (uint32_t)request->life.prefill;
    if (action->kind == LIFE_SEND_DECODE && !action->with_handle && message.source)
        sim_fail(sim, HOLDS_ORDER, "Decode of %llu.%u before its handle is open",
                 (unsigned long long)message.request, message.attempt);
    if (action->kind == LIFE_SEND_DECODE && action->with_handle) {
        const struct sim_message *kept = &request->handle;
        message.has_handle = true;
        message.handle = kept->handle;
        memcpy(message.blocks, kept->blocks, sizeof message.blocks);
        message.serial = kept->serial;
        if (message.token_count != kept->handle.token_count)
            sim_fail(sim, HOLDS_INDICES, "Decode names %u tokens, its handle covers %u",
                     message.token_count, kept->handle.token_count);
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
            if (sim_say_life(&text, action))
                sim_trace(sim, ROUTER, "request %u: %s", id, text.data);
            str_deinit(&text);
        }
        struct sim_event *event;
        switch (action->kind) {
        case LIFE_PLACE:
        case LIFE_PLACE_DECODE:
            sim->totals->regiven += action->kind == LIFE_PLACE_DECODE;
            sim->totals->rerun += action->kind == LIFE_PLACE && request->life.attempt > 1;
            event = sim_push(sim, EVENT_PLACE, ROUTER,
                             sim_chance(sim, DRAW_PLACE, 30) ? sim_between(sim, DRAW_PLACE, 1, 3000)
                                                             : 0);
            event->index = id;
            event->value = (uint32_t)action->avoid_prefill;
            event->serial = (uint32_t)action->avoid_decode;
            event->cookie = request->life.attempt;
            break;
        case LIFE_SEND_PREFILL:
        case LIFE_SEND_DECODE:
        case LIFE_SEND_RELEASE: send_down(sim, request, action); break;
        case LIFE_DELIVER: deliver(sim, request, action); break;
        case LIFE_FINISH:
            request->finishes++;
            request->finish_us = sim->now_us;
            sim_disturbed(sim, sim->now_us);
            if (sim->trace && request->finishes > 1)
                sim_trace(sim, ROUTER, "request %u ends again", id);
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

struct pair {
    uint32_t prefill, decode;
};

enum choice { CHOICE_PLACED, CHOICE_NO_WORKER, CHOICE_NO_READER };

static bool is_offered(const struct sim *sim, uint32_t worker)
{
    return sim->sessions[worker] != SIM_NONE && !sim->leaving[worker];
}

/* A decode worker that fits the prefill worker, one that computes the prompt itself, or one for a
 * handle. */
static bool fits(const struct sim *sim, const struct sim_request *request, struct pair pair,
                 bool with_prefill)
{
    if (!is_offered(sim, pair.decode))
        return false;
    if (request->life.state == REQUEST_REGIVE)
        return pair.prefill == request->life.prefill &&
               request->handle.variant == sim->variants[pair.decode] &&
               !sim->misfits[pair.prefill][pair.decode];
    if (!with_prefill)
        return pair.prefill == 0;
    return sim->processes[pair.prefill].is_prefill && is_offered(sim, pair.prefill) &&
           sim->variants[pair.prefill] == sim->variants[pair.decode] &&
           !sim->misfits[pair.prefill][pair.decode];
}

/* Returns true if waiting for a reader of its handle is useless: all present readers refused it, or
 * serve another variant. */
static bool has_no_reader(const struct sim *sim, const struct sim_request *request)
{
    bool misfit = false, stranger = false, candidate = false;
    for (uint32_t d = 1; d <= sim->worker_count; d++) {
        if (sim->processes[d].is_prefill)
            continue;
        bool same = request->handle.variant == sim->variants[d];
        bool refused = sim->misfits[request->life.prefill][d];
        misfit |= same && refused && is_offered(sim, d);
        candidate |= same && !refused;
        stranger |= !same && is_offered(sim, d);
    }
    return misfit || (stranger && !candidate);
}

/* Chooses any fitting pair; a pair that has just failed only if there is no other. */
static enum choice choose(struct sim *sim, const struct sim_request *request, bool with_prefill,
                          struct pair avoid, struct pair *chosen)
{
    struct pair found[2][SIM_MAX_WORKERS * SIM_MAX_WORKERS]; /* all; all except the failed pair */
    uint32_t counts[2] = {0, 0};
    for (uint32_t d = 1; d <= sim->worker_count; d++)
        for (uint32_t p = 0; p <= sim->worker_count; p++) {
            struct pair pair = {p, d};
            if (sim->processes[d].is_prefill || !fits(sim, request, pair, with_prefill))
                continue;
            found[0][counts[0]++] = pair;
            if ((!p || p != avoid.prefill) && d != avoid.decode)
                found[1][counts[1]++] = pair;
        }
    if (!counts[0])
        return request->life.state == REQUEST_REGIVE && has_no_reader(sim, request)
                   ? CHOICE_NO_READER
                   : CHOICE_NO_WORKER;
    uint32_t of = counts[1] ? 1 : 0;
    *chosen = found[of][sim_between(sim, DRAW_PLACE, 0, counts[of] - 1)];
    return CHOICE_PLACED;
}

/* Since when no prefill worker has been there; fits or not, which is the planner's business. */
static uint64_t away_since_us(const struct sim *sim)
{
    uint64_t since_us = 0;
    for (uint32_t i = 1; i <= sim->worker_count; i++)
        if (sim->processes[i].is_prefill && sim->away_since_us[i] > since_us)
            since_us = sim->away_since_us[i];
    return since_us;
}

/* Returns whether the prefill worker's token is the last, and the router knows it: for half of such
 * requests, like those that max_tokens ends. */
static bool ends_at_prefill(const struct sim *sim, const struct sim_request *request)
{
    uint64_t index = (uint64_t)(request - sim->requests);
    return request->life.state == REQUEST_QUEUED &&
           request->life.delivered + 1 >= request->length && (sim->plan->seed + index) % 2 == 0;
}

static void on_place(struct sim *sim, const struct sim_event *event)
{
    struct sim_request *request = &sim->requests[event->index];
    struct request_life *life = &request->life;
    struct life_actions out;
    struct pair avoid = {event->value, event->serial}, chosen = {0};
    bool waits = life->state == REQUEST_QUEUED || life->state == REQUEST_REGIVE;
    if (!waits || life->attempt != event->cookie)
        return;
    bool with_prefill = !sim_chance(sim, DRAW_PLACE, 10) && !life->local;
    enum choice choice = choose(sim, request, with_prefill, avoid, &chosen);
    bool full = choice == CHOICE_PLACED && sim_chance(sim, DRAW_PLACE, 5);
    if (choice == CHOICE_NO_READER) {
        request->costs++; /* each pair that does not fit is found out once */
        request_life_on_no_reader(life, &out);
    } else if (choice == CHOICE_NO_WORKER || full) {
        request_life_on_no_place(life, sim->now_us, full, away_since_us(sim), &out);
        struct sim_event *again = sim_push(sim, EVENT_PLACE, ROUTER, 10000);
        again->index = event->index;
        again->value = event->value;
        again->serial = event->serial;
        again->cookie = event->cookie;
    } else {
        bool alone = chosen.prefill && ends_at_prefill(sim, request);
        request_life_on_placed(life, sim->now_us, chosen.prefill, alone ? 0 : chosen.decode, &out);
    }
    execute(sim, request, &out);
}

/* Workers that refused each other are not paired again until the membership changes. */
static void note_misfit(struct sim *sim, const struct request_life *life, uint32_t worker,
                        const struct sim_message *m)
{
    if (m->misfit && m->attempt == life->attempt && worker == life->decode && life->has_handle)
        sim->misfits[life->prefill][worker] = true;
}

static void on_message(struct sim *sim, const struct sim_event *event)
{
    const struct sim_message *m = &event->message;
    struct sim_request *request = &sim->requests[m->request];
    struct life_actions out = {0};
    uint32_t worker = sim->streams[event->stream].acceptor;
    uint32_t attempt = request->life.attempt;
    if (m->kind == MESSAGE_DRAINING) {
        sim->leaving[worker] = true;
        sim->away_since_us[worker] = sim->now_us;
        return;
    }
    switch (m->kind) {
    case MESSAGE_OPENED:
        if (request_life_on_opened(&request->life, worker, m->attempt, m->handle.ref, &out))
            request->handle = *m;
        break;
    case MESSAGE_TOKEN: request_life_on_token(&request->life, &m->token, &out); break;
    case MESSAGE_LOST:
        request_life_on_lost(&request->life, worker, m->attempt, m->step_failed, &out);
        break;
    case MESSAGE_REFUSED:
        note_misfit(sim, &request->life, worker, m);
        request_life_on_refused(&request->life, worker, m->attempt, m->retry, &out);
        break;
    default: sim_give_up("a message that is not for the router");
    }
    if (m->attempt < attempt && out.count)
        sim_fail(sim, HOLDS_OLD, "a message about %llu.%u changes something for attempt %u",
                 (unsigned long long)m->request, m->attempt, attempt);
    execute(sim, request, &out);
}

static void note_left(struct sim_request *request)
{
    if (request->life.from_decode || !request->life.has_handle) {
        request->costs++;
        return;
    }
    if (request->left_count == SIM_MAX_LEFT)
        sim_give_up("more decode workers left one request than there is room for");
    request->left[request->left_count].ref = request->life.ref;
    request->left[request->left_count++].attempt = request->life.attempt;
}

static void session_lost(struct sim *sim, uint32_t worker)
{
    sim_trace(sim, ROUTER, "has lost the Session to %s", sim_name(sim, worker));
    sim->sessions[worker] = SIM_NONE;
    sim->away_since_us[worker] = sim->now_us;
    for (uint32_t i = 0; i < sim->request_count; i++) {
        struct life_actions out;
        struct request_life *life = &sim->requests[i].life;
        if (!sim->requests[i].arrived)
            continue;
        if (life->state == REQUEST_DECODE && life->decode == worker)
            note_left(&sim->requests[i]);
        if (life->ends_at_prefill && life->prefill == worker) /* it may have opened */
            sim->requests[i].costs++;
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
    sim->leaving[worker] = p->draining;
    memset(sim->misfits, 0, sizeof sim->misfits);
    if (sim_chance(sim, DRAW_CONNECT, 50)) /* the registration of its new variant comes late */
        sim_push(sim, EVENT_REGISTERED, ROUTER, sim_between(sim, DRAW_CONNECT, 100, 100000))
            ->index = worker;
    else
        sim->variants[worker] = p->variant;
}

void sim_router_session_lost(struct sim *sim, uint32_t worker)
{
    session_lost(sim, worker);
    sim_push(sim, EVENT_DIAL, ROUTER, sim_between(sim, DRAW_CONNECT, 100, 20000))->index = worker;
}

void sim_router_restart(struct sim *sim)
{
    struct sim_process *p = &sim->processes[ROUTER];
    for (uint32_t i = 1; i <= sim->worker_count; i++) {
        if (sim->sessions[i] == SIM_NONE)
            continue;
        sim_break_stream(sim, sim->sessions[i]);
        sim->streams[sim->sessions[i]].known_lost[0] = true;
        sim->sessions[i] = SIM_NONE;
    }
    for (uint32_t i = 0; i < sim->request_count; i++) {
        struct sim_request *request = &sim->requests[i];
        if (!request->arrived || request->life.state == REQUEST_ENDED)
            continue;
        request->life.state = REQUEST_ENDED; /* its client sees a broken connection */
        request->router_died = true;
        request->finishes++;
        request->finish_us = sim->now_us;
    }
    p->up = false;
    p->epoch++;
    p->paused_until_us = 0;
    sim_push(sim, EVENT_RESTART, ROUTER, sim_between(sim, DRAW_CONNECT, 1000, 50000));
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
    case EVENT_STOPPED: sim_check_stopped(sim, event->index); return;
    case EVENT_REGISTERED:
        sim->variants[event->index] = sim->processes[event->index].variant;
        memset(sim->misfits, 0, sizeof sim->misfits);
        return;
    case EVENT_STREAM_LOST: {
        uint32_t worker = sim->streams[event->stream].acceptor;
        if (sim->sessions[worker] == event->stream)
            session_lost(sim, worker);
        sim_push(sim, EVENT_DIAL, ROUTER, sim_between(sim, DRAW_CONNECT, 100, 20000))->index =
            worker;
        return;
    }
    case EVENT_ARRIVE:
        request->arrived = true;
        request->deadline_us = sim->now_us + (sim->plan->requests[event->index].deadline_us
                                                  ? sim->plan->requests[event->index].deadline_us
                                                  : SIM_DEADLINE_US);
        request_life_init(&request->life, &limits, request->deadline_us, false, &out);
        break;
    case EVENT_CANCEL:
        if (!request->arrived)
            return; /* before it could reach a router */
        request->cancelled = true;
        request_life_on_cancel(&request->life, &out);
        break;
    case EVENT_LIFE_TICK:
        if (event->due_us == request->tick_us)
            request->tick_us = UINT64_MAX;
        request_life_on_tick(&request->life, sim->now_us, &out);
        break;
    default: sim_give_up("an event that is not for the router");
    }
    execute(sim, request, &out);
}
