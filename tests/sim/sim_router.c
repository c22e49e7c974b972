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
    if (request->delivered - request->failed_at < SIM_PROGRESS)
        return;
    sim->totals->begun_anew += request->tries != 0;
    request->tries = request->losses = 0;
    request->failed_at = request->delivered;
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
    if (action->kind == LIFE_SEND_DECODE && action->with_handle && !request->bound &&
        request->life.limits.bind_late && !sim->leaving[action->worker])
        sim_fail(sim, HOLDS_ORDER, "Decode of %llu.%u at the worker that was guessed",
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

static void look_for_place(struct sim *sim, uint32_t id, const struct life_action *action)
{
    struct sim_event *event =
        sim_push(sim, EVENT_PLACE, ROUTER,
                 sim_chance(sim, DRAW_PLACE, 30) ? sim_between(sim, DRAW_PLACE, 1, 3000) : 0);
    event->index = id;
    event->value = (uint32_t)action->avoid_prefill;
    event->serial = (uint32_t)action->avoid_decode;
    event->cookie = sim->requests[id].life.attempt;
}

/* Gives the requests that wait for the budget their places, as far as it reaches. */
static void on_budget(struct sim *sim)
{
    for (uint32_t i = 0; i < sim->request_count; i++) {
        struct sim_request *request = &sim->requests[i];
        if (!request->budget_waits)
            continue;
        if (request->life.state != REQUEST_QUEUED) {
            request->budget_waits = false;
            continue;
        }
        if (!retry_budget_take(&sim->budget, sim->now_us)) {
            sim_push(sim, EVENT_BUDGET, ROUTER, retry_budget_next_us(&sim->budget) - sim->now_us);
            return;
        }
        sim->paid++;
        request->budget_waits = false;
        look_for_place(sim, i, &request->budget_place);
    }
}

static void want_place(struct sim *sim, uint32_t id, const struct life_action *action)
{
    struct sim_request *request = &sim->requests[id];
    bool binds = action->kind == LIFE_PLACE_DECODE && request->life.binding;
    bool first = binds || (action->kind == LIFE_PLACE && action->again == AGAIN_NOT);
    sim->totals->bound_late += binds;
    sim->totals->regiven += action->kind == LIFE_PLACE_DECODE && !binds;
    sim->totals->rerun += action->kind == LIFE_PLACE && !first;
    if (!first && action->again != AGAIN_MOVED) {
        request->tries++;
        request->failed_at = request->delivered;
    }
    if (action->again != AGAIN_CHARGED) {
        look_for_place(sim, id, action);
        return;
    }
    request->budget_waits = true;
    request->budget_place = *action;
    on_budget(sim);
    sim->totals->unpaid += request->budget_waits;
}

static void left_silent(struct sim *sim, struct sim_request *request, uint32_t worker);

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
        switch (action->kind) {
        case LIFE_PLACE:
        case LIFE_PLACE_DECODE: want_place(sim, id, action); break;
        case LIFE_SILENT: left_silent(sim, request, (uint32_t)action->worker); break;
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

/* A worker that hangs counts as away. */
static bool is_offered(const struct sim *sim, uint32_t worker)
{
    return sim->sessions[worker] != SIM_NONE && !sim->leaving[worker] &&
           !sim->watches[worker].hangs;
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

/* The workers and the pairs that breakers keep out now. */
struct outs {
    bool workers[SIM_MAX_WORKERS + 1];
    bool pairs[SIM_MAX_WORKERS + 1][SIM_MAX_WORKERS + 1]; /* [prefill][decode] */
    bool crowded; /* more pairs are open than may be kept out */
};

static struct outs keep_out(struct sim *sim)
{
    enum { PREFILL, DECODE, PAIRS, POOLS };
    struct breaker_candidate candidates[SIM_MAX_WORKERS + BREAKER_MAX_PAIRS];
    size_t count = 0, sizes[POOLS] = {0}, open = 0;
    struct outs outs = {.crowded = false};
    for (uint32_t i = 1; i <= sim->worker_count; i++) {
        uint32_t pool = sim->processes[i].is_prefill ? PREFILL : DECODE;
        if (!is_offered(sim, i))
            continue;
        sizes[pool]++;
        candidates[count++] = (struct breaker_candidate){.pool = pool, .worker = i};
    }
    sizes[PAIRS] = sizes[PREFILL] * sizes[DECODE];
    for (size_t i = 0; i < sim->breakers.pair_count; i++) {
        const struct pair_breaker *pair = &sim->breakers.pairs[i];
        if (!is_offered(sim, (uint32_t)pair->prefill) || !is_offered(sim, (uint32_t)pair->decode))
            continue;
        open += pair->breaker.state != BREAKER_CLOSED;
        candidates[count++] = (struct breaker_candidate){
            .pool = PAIRS, .worker = pair->prefill, .reader = pair->decode};
    }
    outs.crowded = open > sizes[PAIRS] / 2;
    breakers_keep_out(&sim->breakers, candidates, count, sizes, sim->now_us);
    for (size_t i = 0; i < count; i++) {
        const struct breaker_candidate *one = &candidates[i];
        if (one->reader)
            outs.pairs[one->worker][one->reader] = one->until_us != 0;
        else
            outs.workers[one->worker] = one->until_us != 0;
    }
    return outs;
}

/* Returns whether a breaker's state says that no request passes, by its fields alone. */
static bool is_barred(const struct sim *sim, const struct breaker *breaker)
{
    if (!breaker || breaker->state == BREAKER_CLOSED)
        return false;
    uint64_t probe_us = breaker->state == BREAKER_HALF_OPEN ? sim->breakers.limits.probe_us : 0;
    return sim->now_us < breaker->probe_us + probe_us;
}

/* The pair counts while both are offered: a handle may be held by one that hangs or leaves. */
static bool bars(struct sim *sim, struct pair pair, const struct outs *outs, bool has_handle)
{
    struct breakers *all = &sim->breakers;
    return (pair.prefill && !has_handle && is_barred(sim, breakers_of(all, pair.prefill))) ||
           is_barred(sim, breakers_of(all, pair.decode)) ||
           (!outs->crowded && is_offered(sim, pair.prefill) &&
            is_barred(sim, breakers_of_pair(all, pair.prefill, pair.decode)));
}

/* Checks a choice among the pairs that fit: none is taken that is barred, where another isn't. */
static void check_choice(struct sim *sim, const struct pair *found, uint32_t count,
                         struct pair chosen, const struct outs *outs, bool has_handle)
{
    for (uint32_t i = 0; i < count; i++)
        if (bars(sim, chosen, outs, has_handle) && !bars(sim, found[i], outs, has_handle))
            sim_fail(sim, HOLDS_PROBE, "%s and %s are chosen, of which one is barred",
                     sim_name(sim, chosen.prefill), sim_name(sim, chosen.decode));
    for (uint32_t i = 1; i <= sim->worker_count; i++)
        if (breakers_of(&sim->breakers, i)->state != BREAKER_CLOSED && !sim->struck[i])
            sim_fail(sim, HOLDS_BLAME, "%s is kept out, and no fault has struck it",
                     sim_name(sim, i));
}

/* Chooses any fitting pair, if possible without workers and pairs that are kept out, and then
 * without workers that have just failed. */
static enum choice choose(struct sim *sim, const struct sim_request *request, bool with_prefill,
                          struct pair avoid, struct pair *chosen)
{
    struct pair found[4][SIM_MAX_WORKERS * SIM_MAX_WORKERS]; /* all; and better ones */
    uint32_t counts[4] = {0};
    const struct outs outs = keep_out(sim);
    bool regives = request->life.state == REQUEST_REGIVE;
    for (uint32_t d = 1; d <= sim->worker_count; d++)
        for (uint32_t p = 0; p <= sim->worker_count; p++) {
            struct pair pair = {p, d};
            if (sim->processes[d].is_prefill || !fits(sim, request, pair, with_prefill))
                continue;
            bool kept_out = (outs.workers[p] && !regives) || outs.workers[d] || outs.pairs[p][d];
            sim->totals->apart += outs.pairs[p][d];
            uint32_t rank = 2 * !kept_out + ((!p || p != avoid.prefill) && d != avoid.decode);
            sim->totals->kept_out += kept_out;
            found[0][counts[0]++] = pair;
            if (rank)
                found[rank][counts[rank]++] = pair;
        }
    if (!counts[0])
        return regives && has_no_reader(sim, request) ? CHOICE_NO_READER : CHOICE_NO_WORKER;
    uint32_t of = counts[3] ? 3 : counts[2] ? 2 : counts[1] ? 1 : 0;
    *chosen = found[of][sim_between(sim, DRAW_PLACE, 0, counts[of] - 1)];
    check_choice(sim, found[0], counts[0], *chosen, &outs, regives);
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

static bool is_open(struct sim *sim, uint32_t worker)
{
    return worker && breakers_of(&sim->breakers, worker)->state == BREAKER_OPEN;
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
        request->bound = life->state == REQUEST_REGIVE;
        request_life_on_placed(life, sim->now_us, chosen.prefill, alone ? 0 : chosen.decode, &out);
        sim->totals->probed +=
            is_open(sim, (uint32_t)life->prefill) || is_open(sim, (uint32_t)life->decode);
        breakers_placed(&sim->breakers, life, sim->now_us);
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
    const struct breaker_said said = {worker, m->attempt, m->reason, m->kind == MESSAGE_REFUSED};
    request_life_on_sign(&request->life, sim->now_us, worker, m->attempt);
    switch (m->kind) {
    case MESSAGE_OPENED:
        if (request->life.decode && sim->leaving[request->life.decode])
            request_life_keep_guess(&request->life);
        if (request_life_on_opened(&request->life, worker, m->attempt, m->handle.ref, &out))
            request->handle = *m;
        break;
    case MESSAGE_TOKEN:
        breakers_token(&sim->breakers, &request->life, &m->token, sim->now_us);
        request_life_on_token(&request->life, &m->token, &out);
        break;
    case MESSAGE_LOST:
        breakers_said(&sim->breakers, &request->life, &said, sim->now_us);
        request_life_on_lost(&request->life, worker, m->attempt, m->step_failed, &out);
        break;
    case MESSAGE_REFUSED:
        note_misfit(sim, &request->life, worker, m);
        breakers_said(&sim->breakers, &request->life, &said, sim->now_us);
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

/* A worker that was draining has left as planned. */
static void moved(struct sim *sim, uint32_t id, uint32_t worker, struct life_actions *out)
{
    struct request_life *life = &sim->requests[id].life;
    struct request_life before = *life;
    request_life_on_moved(life, worker, out);
    sim->totals->moved += out->count != 0;
    if (life->losses - life->forgiven.losses > before.losses - before.forgiven.losses ||
        life->runs - life->forgiven.runs > before.runs - before.forgiven.runs ||
        life->attempt - life->forgiven.attempts > before.attempt - before.forgiven.attempts)
        sim_fail(sim, HOLDS_LIMITS, "a planned move of request %u uses up its limits", id);
}

/* Only the first loss since progress is free. */
static void note_loss(struct sim *sim, struct sim_request *request, const struct life_actions *out)
{
    const struct request_life *life = &request->life;
    request->losses += out->count != 0;
    if (out->count && life->state == REQUEST_QUEUED && life->again == AGAIN_FREE &&
        request->losses > 1)
        sim_fail(sim, HOLDS_BUDGET, "loss %u of request %u without progress is free",
                 request->losses, (uint32_t)(request - sim->requests));
}

static void session_lost(struct sim *sim, uint32_t worker)
{
    sim_trace(sim, ROUTER, "has lost the Session to %s", sim_name(sim, worker));
    sim->sessions[worker] = SIM_NONE;
    sim->away_since_us[worker] = sim->now_us;
    sim->watches[worker] = (struct step_watch){0};
    if (!sim->leaving[worker])
        breakers_left(&sim->breakers, worker, sim->now_us);
    for (uint32_t i = 0; i < sim->request_count; i++) {
        struct life_actions out;
        struct request_life *life = &sim->requests[i].life;
        if (!sim->requests[i].arrived)
            continue;
        if (life->state == REQUEST_DECODE && life->decode == worker)
            note_left(&sim->requests[i]);
        bool unread = life->ends_at_prefill || life->binding; /* it may have opened */
        if (unread && life->prefill == worker)
            sim->requests[i].costs++;
        if (sim->leaving[worker])
            moved(sim, i, worker, &out);
        else
            request_life_on_session_lost(life, worker, &out);
        if (!sim->leaving[worker])
            note_loss(sim, &sim->requests[i], &out);
        execute(sim, &sim->requests[i], &out);
    }
}

/* --- silence --- */

/* Another worker could do its work. Decode workers do that of prefill workers which have been away
 * for long enough. */
static bool is_replaceable(const struct sim *sim, uint32_t worker)
{
    bool prefill = sim->processes[worker].is_prefill;
    bool local = prefill && sim->now_us - away_since_us(sim) >= request_limits_default().local_us;
    for (uint32_t i = 1; i <= sim->worker_count; i++)
        if (i != worker && is_offered(sim, i) && (sim->processes[i].is_prefill == prefill || local))
            return true;
    return false;
}

static bool has_queue(const struct sim *sim, uint32_t worker)
{
    const struct sim_process *p = &sim->processes[worker];
    for (uint32_t i = 0; i < SIM_MAX_JOBS; i++) {
        const struct sim_job *job = &p->jobs[i];
        bool computed = p->is_prefill ? job->computed_tokens == job->token_count : true;
        if (job->serial && (!job->block_count || !computed))
            return true;
    }
    return false;
}

static void leave(struct sim *sim, struct sim_request *request, uint32_t worker)
{
    struct life_actions out;
    request_life_on_silent(&request->life, worker, &out);
    request->costs += out.count != 0;
    sim->totals->silent += out.count != 0;
    note_loss(sim, request, &out);
    execute(sim, request, &out);
}

static void left_silent(struct sim *sim, struct sim_request *request, uint32_t worker)
{
    if (has_queue(sim, worker) || (sim->watches[worker].hangs && !is_replaceable(sim, worker)))
        return;
    uint64_t queued_us = sim->queued_us[worker];
    uint32_t attempt = request->life.attempt;
    bool left = request->left_queue_of == worker && request->left_queue_attempt == attempt;
    if (!left && queued_us && sim->now_us - queued_us < SIM_SIGN_LIMIT_US) {
        request->left_queue_of = worker;
        request->left_queue_attempt = attempt;
        request_life_on_sign(&request->life, queued_us, worker, attempt);
        return;
    }
    bool hung = sim->processes[request->life.prefill].hung_us ||
                sim->processes[request->life.decode].hung_us;
    if (!sim->message_lost && !hung) /* the protocol itself leaves no request behind */
        sim_fail(sim, HOLDS_WAITS, "request %u has heard nothing of %s for %u us",
                 (uint32_t)(request - sim->requests), sim_name(sim, worker), SIM_SIGN_LIMIT_US);
    breakers_left(&sim->breakers, worker, sim->now_us);
    leave(sim, request, worker);
}

static void watch_at(struct sim *sim, uint32_t worker, uint64_t at_us)
{
    if (at_us >= sim->watch_us[worker])
        return;
    sim->watch_us[worker] = at_us;
    sim_push(sim, EVENT_WATCH, ROUTER, at_us > sim->now_us ? at_us - sim->now_us : 0)->index =
        worker;
}

void sim_router_load(struct sim *sim, uint32_t worker)
{
    const struct sim_process *p = &sim->processes[worker];
    uint32_t session = sim->sessions[worker];
    if (!sim->processes[ROUTER].up || sim->processes[ROUTER].paused_until_us > sim->now_us ||
        session == SIM_NONE || session != p->session ||
        sim->streams[session].broken_us != UINT64_MAX)
        return;
    struct step_report_seen seen = {
        .steps_done = p->steps_done,
        .busy_us = p->hung_until_us > sim->now_us ? sim->now_us - p->hung_us : 0};
    for (uint32_t i = 0; i < SIM_MAX_JOBS; i++)
        seen.running += p->jobs[i].serial && p->jobs[i].block_count;
    if (has_queue(sim, worker))
        sim->queued_us[worker] = sim->now_us;
    if (step_watch_report(&sim->watches[worker], &seen, sim->now_us))
        sim_trace(sim, ROUTER, "sees that %s gets on", sim_name(sim, worker));
    watch_at(sim, worker, step_watch_next_us(&sim->watches[worker], SIM_STEP_LIMIT_US));
}

static void on_watch(struct sim *sim, const struct sim_event *event)
{
    uint32_t worker = event->index;
    struct step_watch *watch = &sim->watches[worker];
    sim->watch_us[worker] = UINT64_MAX;
    const struct sim_process *p = &sim->processes[worker];
    if (p->up && !p->reports && p->paused_until_us <= sim->now_us)
        sim_router_load(sim, worker);   /* an idle worker reports too */
    if (event->at_us > event->due_us) { /* it was stopped itself, and reads first what came */
        watch_at(sim, worker, sim->now_us + 100000);
        return;
    }
    if (step_watch_tick(watch, SIM_STEP_LIMIT_US, sim->now_us)) {
        sim_trace(sim, ROUTER, "sees that %s hangs", sim_name(sim, worker));
        sim->totals->hung++;
        sim->away_since_us[worker] = sim->now_us;
        breakers_left(&sim->breakers, worker, sim->now_us);
    }
    for (uint32_t i = 0; watch->hangs && i < sim->request_count; i++)
        if (sim->requests[i].arrived && is_replaceable(sim, worker))
            leave(sim, &sim->requests[i], worker);
    watch_at(sim, worker,
             watch->hangs ? sim->now_us + 100000 : step_watch_next_us(watch, SIM_STEP_LIMIT_US));
}

void sim_router_begin(struct sim *sim)
{
    struct breaker_limits limits = breaker_limits_default();
    const struct retry_budget_limits budget = {.percent = 10, .per_second = 4, .most = 2};
    limits.failures = 2;
    limits.backoff_us = 200000;
    limits.max_backoff_us = 800000;
    limits.probe_us = 1000000;
    if (breakers_init(&sim->breakers, &limits, SIM_MAX_WORKERS + 1) != STATUS_OK)
        sim_give_up("no memory for breakers");
    retry_budget_init(&sim->budget, &budget, 0);
    for (uint32_t i = 0; i <= SIM_MAX_WORKERS; i++)
        sim->watch_us[i] = UINT64_MAX;
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
        /* Its client sees a broken connection. The next router has never heard of it. */
        request->life = (struct request_life){.state = REQUEST_ENDED,
                                              .attempt = request->life.attempt,
                                              .delivered = request->delivered};
        request->router_died = true;
        request->finishes++;
        request->finish_us = sim->now_us;
    }
    p->up = false;
    p->epoch++;
    p->paused_until_us = 0;
    for (uint32_t i = 0; i <= sim->worker_count; i++) {
        sim->watches[i] = (struct step_watch){0};
        sim->watch_us[i] = UINT64_MAX;
        sim->queued_us[i] = 0;
    }
    sim_push(sim, EVENT_RESTART, ROUTER, sim_between(sim, DRAW_CONNECT, 1000, 50000));
}

void sim_router_event(struct sim *sim, struct sim_event *event)
{
    struct sim_request *request = &sim->requests[event->index];
    struct life_actions out;
    struct request_limits limits = request_limits_default();
    limits.progress_tokens = SIM_PROGRESS;
    limits.silence_us = SIM_SIGN_LIMIT_US;
    limits.bind_late = sim->plan->binds_late;
    switch (event->kind) {
    case EVENT_MESSAGE: on_message(sim, event); return;
    case EVENT_DIAL: on_dial(sim, event->index); return;
    case EVENT_PLACE: on_place(sim, event); return;
    case EVENT_STOPPED: sim_check_stopped(sim, event->index); return;
    case EVENT_WATCH: on_watch(sim, event); return;
    case EVENT_BUDGET: on_budget(sim); return;
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
        sim->arrivals++;
        retry_budget_arrived(&sim->budget);
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
