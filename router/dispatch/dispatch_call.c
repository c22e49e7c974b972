/* Calls and their choices in a turn: how they begin, what each choice does, and how a call ends.
 * call.h has the table of a call's states. */
#include "common/base/assert.h"
#include "common/base/failpoint.h"
#include "common/base/log.h"
#include "common/base/str.h"
#include "router/dispatch/dispatch_internal.h"

#include <inttypes.h>
#include <stdio.h>

#define SLOW_LINGER_US 1000000u /* for the status of a slow reader to reach it */

static const struct model_metrics *metrics_of(const struct dispatch *dispatch,
                                              const struct call *call)
{
    return &dispatch->config.metrics->models[call->model];
}

static bool is_over(const struct call *call)
{
    return call->state >= CALL_ENDED;
}

/* Brings the gauges up to date with its state. */
static void count_state(struct dispatch *dispatch, struct request *request)
{
    enum request_state before = request->counted_state, after = request->life.state;
    struct gauge *const *gauges = metrics_of(dispatch, request->call)->requests_by_state;
    if (before == after)
        return;
    gauge_add(gauges[before], -1);
    if (after != REQUEST_ENDED)
        gauge_add(gauges[after], 1);
    request->counted_state = after;
    dispatch->place_needed = true; /* a worker may have less work now */
}

/* Notes when something is due for it. A later time than the one that is noted is found when that
 * one comes: each token would move it. */
static void watch_time(struct dispatch *dispatch, struct request *request)
{
    uint64_t next_us = request_life_next_us(&request->life);
    uint64_t late_us = request_late_us(dispatch, request);
    if (request->call->keep_alive_us < next_us)
        next_us = request->call->keep_alive_us;
    if (late_us < next_us)
        next_us = late_us;
    if (next_us < request->due.at_us || request->due.at_us <= dispatch->now_us)
        due_heap_set(&dispatch->due_requests, &request->due, next_us);
}

/* The call is closed at both ends, or told. */
static void stop_closing(struct dispatch *dispatch, struct call *call)
{
    TAILQ_REMOVE(&dispatch->closing, call, link);
    due_heap_set(&dispatch->due_calls, &call->break_off, UINT64_MAX);
}

static void keep_alive(const struct dispatch *dispatch, struct call *call)
{
    const struct call_client *client = &call->client;
    call->keep_alive_us = client->ops->keep_alive
                              ? client->ops->keep_alive(client->handle, dispatch->now_us)
                              : UINT64_MAX;
}

void request_fail(struct dispatch *dispatch, struct request *request, enum terminal_status status,
                  const char *reason)
{
    struct life_actions actions;
    request_life_on_fail(&request->life, status, reason, &actions);
    request_execute(dispatch, request, &actions);
}

static void cancel(struct dispatch *dispatch, struct request *request)
{
    struct life_actions actions;
    request_life_on_cancel(&request->life, &actions);
    request_execute(dispatch, request, &actions);
}

/* --------------------------------------------------------------------------------- constraints */

static void refuse_constraint(struct dispatch *dispatch, struct request *request,
                              enum terminal_status status, enum reason reason, const char *sentence)
{
    str_copy(request->refusal, sizeof request->refusal, sentence);
    request_fail(dispatch, request, status, reason_name(reason));
}

/* Asks whether the constraint can be kept. Until that is known the call keeps its place in the
 * queue, and is passed over there. */
static void ask_constraint(struct dispatch *dispatch, struct call *call)
{
    struct error err;
    struct request *request = &call->choices[0];
    if (!call->constraint || !dispatch->config.checks)
        return;
    switch (constraint_checks_ask(dispatch->config.checks, call->constraint, call->tenant, &err)) {
    case CONSTRAINT_UNKNOWN:
    case CONSTRAINT_FINE: break;
    case CONSTRAINT_PENDING: call->constraint_waits = true; break;
    case CONSTRAINT_REFUSED:
        refuse_constraint(dispatch, request, TERMINAL_INVALID, REASON_INVALID_CONSTRAINT, err.text);
        break;
    case CONSTRAINT_CROWDED:
        refuse_constraint(dispatch, request, TERMINAL_OVERLOADED, REASON_OVERLOADED,
                          "too many constraints wait to be compiled");
        break;
    }
}

void requests_constraint_checked(struct dispatch *dispatch, struct constraint_checked *checked)
{
    struct request *next;
    for (struct request *request = TAILQ_FIRST(&dispatch->all); request; request = next) {
        next = TAILQ_NEXT(request, all_link);
        struct call *call = request->call;
        if (!call->constraint_waits || !constraint_source_equal(call->constraint, checked->source))
            continue;
        call->constraint_waits = false;
        dispatch->place_needed = true;
        if (checked->verdict == CONSTRAINT_REFUSED)
            refuse_constraint(dispatch, request, TERMINAL_INVALID, REASON_INVALID_CONSTRAINT,
                              checked->err.text);
    }
    constraint_checks_taken(dispatch->config.checks);
    constraint_checked_free(checked);
}

/* ---------------------------------------------------------------------- how a call ends: ENDED */

static void log_end(const struct dispatch *dispatch, const struct request *request,
                    enum reason reason)
{
    const struct call *call = request->call;
    log_debug("dispatch",
              "req=%s id=%016" PRIx64
              " model=%s status=%s why=%s prompt_tokens=%u tokens=%u prefills=%u "
              "prefill=%s decode=%s lane=%s age_us=%" PRIu64 " msg=\"request ended\"",
              call->name, request->id, dispatch->config.models->items[call->model].name,
              reason ? reason_name(reason) : "ok", request->life.reason, call->prompt_count,
              request->emitted_count, request->life.runs, request->timing.prefill_worker,
              request->timing.decode_worker, request->timing.lane,
              dispatch->now_us - request->timing.arrival_us);
}

/* A choice has nothing left to do. */
static void close_choice(struct dispatch *dispatch, struct request *request, enum reason reason,
                         enum finish_reason finish)
{
    struct call *call = request->call;
    struct text stop;
    counter_add(dispatch->config.metrics->dropped, request->life.dropped);
    count_state(dispatch, request);
    log_end(dispatch, request, reason);
    request->finish = answer_deltas_stop(&request->out, &stop) ? FINISH_STOP_STRING : finish;
    request->state = CHOICE_CLOSED;
    const struct answer_ask asked = request_answer(request);
    bool cut = reason || request->finish == FINISH_MAX_TOKENS || request->finish == FINISH_CONTEXT;
    answer_lengths_learn(dispatch->placement.answer_lengths, &asked, &request->course,
                         request->emitted_count, !cut);
    request_teach(dispatch, request, reason);
    request_not_held(dispatch, request);
    due_heap_set(&dispatch->due_requests, &request->due, UINT64_MAX);
    request_track(dispatch, request);
    if (call->constraint_waits)
        constraint_checks_withdraw(dispatch->config.checks, call->constraint, call->tenant);
    call->constraint_waits = false;
    if (request->dirty)
        TAILQ_REMOVE(&dispatch->dirty, request, dirty_link);
    request->dirty = false;
    TAILQ_REMOVE(&dispatch->all, request, all_link);
    access_choice_ended(call->grant, dispatch->now_us);
    call->open_count--;
}

/* Enters the end of a choice in metrics, logs and traces, once. */
static void show_end(struct dispatch *dispatch, struct request *request, enum reason reason)
{
    if (request->state != CHOICE_CLOSED)
        return;
    request->state = CHOICE_SHOWN;
    if (!reason)
        router_metrics_answered(dispatch->config.metrics, request->call->model, &request->timing,
                                request->emitted_count, &request->predicted);
    request_observers_ended(&dispatch->config.views, request, reason, dispatch->now_us);
    request_outcome(dispatch, request, reason);
}

/* Decides how a call ends: its last choice ended well, or `failed` failed with `reason`. */
static void call_end(struct dispatch *dispatch, struct call *call, struct request *failed,
                     enum reason reason)
{
    if (reason == REASON_NO_WORKERS)
        dispatch_explain_no_worker(dispatch, failed);
    call->why = reason;
    call->failed = failed;
    call->state = CALL_ENDED;
    TAILQ_INSERT_TAIL(&dispatch->ended, call, link);
}

/* Sends the rest of a choice that ended well. Returns why it failed after all, or REASON_NONE. */
static enum reason answer_choice(struct request *request, enum finish_reason finish, bool last)
{
    struct call *call = request->call;
    request->finish = answer_deltas_end(&request->out, finish);
    call->completion_tokens += request->emitted_count;
    call->reasoning_tokens += request->out.reasoning_tokens;
    switch (call->client.ops->choice(request, last)) {
    case STATUS_OK: call->first->group.open_count -= last; return REASON_NONE;
    case STATUS_LIMIT: return call->once ? REASON_ANSWER_TOO_LARGE : REASON_SLOW_READER;
    default: return REASON_CANCELLED;
    }
}

/* The one place where a choice ends. */
static void finish_choice(struct dispatch *dispatch, struct request *request,
                          const struct life_action *action)
{
    struct call *call = request->call;
    enum reason reason = request_reason(request);
    bool last = call->open_count == 1;
    ASSERT(request->state == CHOICE_OPEN);
    FAILPOINT("router.ended");
    if (last && !call->once)
        dispatch_give_back(dispatch, call); /* its last frames may go out now */
    if (!reason)
        reason = is_over(call) ? call->why : answer_choice(request, action->finish, last);
    if (reason == REASON_CANCELLED) { /* perhaps because the client is told another reason */
        enum reason told = is_over(call) ? call->why : call->first->group.why;
        reason = told ? told : REASON_CANCELLED;
    }
    close_choice(dispatch, request, reason, action->finish);
    if (is_over(call) || (!call->once && !reason))
        show_end(dispatch, request, reason);
    if (!is_over(call) && (last || reason))
        call_end(dispatch, call, reason ? request : NULL, reason);
}

/* ------------------------------------------------------------------------------------ settling */

/* Enters the end of a call in all books, once, before its client can know. */
static void call_settle(struct dispatch *dispatch, struct call *call)
{
    call->state = CALL_SETTLED;
    for (uint32_t i = 0; i < call->choice_count; i++)
        if (call->choices[i].state == CHOICE_OPEN &&
            call->choices[i].life.attempt) /* it has begun */
            cancel(dispatch, &call->choices[i]);
    router_metrics_ended(dispatch->config.metrics, call->model, call->why);
    for (uint32_t i = 0; i < call->choice_count; i++)
        show_end(dispatch, &call->choices[i], call->why);
    dispatch_give_back(dispatch, call);
}

static struct request *open_choice(struct call *call)
{
    uint32_t i = 0;
    while (call->choices[i].state != CHOICE_OPEN && i + 1 < call->choice_count)
        i++;
    return &call->choices[i];
}

/* Settles a call when the client is about to be told the group's end. */
static void settle_with_group(struct dispatch *dispatch, struct call *call)
{
    if (call->state == CALL_RUNNING)
        cancel(dispatch, open_choice(call));
    else if (!call->why)
        call->why = call->first->group.why;
    if (call->state == CALL_HELD) {
        stop_closing(dispatch, call);
        TAILQ_INSERT_TAIL(&dispatch->ended, call, link);
    }
    call_settle(dispatch, call);
}

/* ------------------------------------------------------------------------------------- telling */

static void tell_group(struct dispatch *dispatch, struct call *call, const char *sentence)
{
    struct call_group *group = &call->first->group;
    struct call *other, *next;
    group->told = true;
    group->why = call->why;
    for (other = TAILQ_FIRST(&group->calls); other; other = next) {
        next = TAILQ_NEXT(other, group_link);
        if (other->state < CALL_SETTLED)
            settle_with_group(dispatch, other);
    }
    const struct call_client_ops *ops = call->client.ops;
    if (call->why == REASON_OVERLOADED && ops->retry_after)
        ops->retry_after(call->client.handle, dispatch_retry_after_s(dispatch, call->model));
    if (call->why == REASON_SLO_UNATTAINABLE && call->failed && ops->retry_after)
        ops->retry_after(call->client.handle, call->failed->retry_after_s);
    ops->status(call->client.handle, call->why, sentence);
}

/* Tells the client of a call that has ended: CALL_TOLD, or CALL_HELD. */
static void call_tell(struct dispatch *dispatch, struct call *call)
{
    struct call_group *group = &call->first->group;
    struct error sentence = {""};
    if (call->client_closed && call->once && call->state == CALL_ENDED && !call->why)
        call->why = REASON_CANCELLED; /* the client has heard nothing of the answer */
    if (!call->why && !call->client_closed && call->once && group->open_count) {
        call->state = CALL_HELD;
        return;
    }
    if (call->why && !call->choices[0].life.attempt)
        error_set(&sentence, STATUS_LIMIT, "%s", reason_when(call->why)); /* it has not begun */
    else if (call->why)
        request_sentence(call->failed ? call->failed : &call->choices[0], call->why,
                         dispatch->now_us, &sentence);
    if (call->state != CALL_SETTLED)
        call_settle(dispatch, call);
    if (!group->told && (call->why || !group->open_count))
        tell_group(dispatch, call, sentence.text);
    call->state = CALL_TOLD;
}

/* Keeps a call that is told or held until its client's side closes. */
static void wait_for_close(struct dispatch *dispatch, struct call *call, uint64_t linger_us)
{
    TAILQ_INSERT_TAIL(&dispatch->closing, call, link);
    due_heap_set(&dispatch->due_calls, &call->break_off,
                 linger_us == UINT64_MAX ? UINT64_MAX : dispatch->now_us + linger_us);
}

/* Removes the choices of a call, so that no message finds them any more. */
static void forget_choices(struct dispatch *dispatch, struct call *call)
{
    for (uint32_t i = 0; i < call->choice_count; i++)
        map_take(dispatch->requests, call->choices[i].id);
    call_empty(call);
}

void calls_tell(struct dispatch *dispatch)
{
    for (struct call *call; (call = TAILQ_FIRST(&dispatch->ended));) {
        TAILQ_REMOVE(&dispatch->ended, call, link);
        call_tell(dispatch, call);
        if (call->state == CALL_HELD) {
            call_settle_grant(call);
            wait_for_close(dispatch, call, UINT64_MAX);
            continue;
        }
        bool begun = call->choices[0].life.attempt, lingers = call->client.ops->break_off;
        forget_choices(dispatch, call);
        if (!lingers && !atomic_exchange(&call->closing, true)) {
            call->client_closed = true;
            atomic_fetch_sub(&dispatch->admitted, 1);
        }
        if (call->client_closed)
            call_release(call);
        else
            wait_for_close(dispatch, call,
                           !begun || !lingers                ? UINT64_MAX
                           : call->why == REASON_SLOW_READER ? SLOW_LINGER_US
                                                             : dispatch->config.linger_us);
    }
}

/* --------------------------------------------------------------------------- the client's side */

void call_closed(struct dispatch *dispatch, struct call *call)
{
    call->client_closed = true;
    dispatch_give_back(dispatch, call);
    switch (call->state) {
    case CALL_SUBMITTED: ASSERT(false); /* its message came before this one */
    case CALL_ADMITTED: call_release(call); break;
    case CALL_RUNNING: /* the end of one open choice is that of all */
        if (call->code == RPC_DEADLINE_EXCEEDED)
            request_fail(dispatch, open_choice(call), TERMINAL_DEADLINE, "deadline");
        else
            cancel(dispatch, open_choice(call));
        break;
    case CALL_ENDED:
    case CALL_SETTLED: break; /* calls_tell releases it at the end of this turn */
    case CALL_HELD:
        call->why = call->code == RPC_OK ? REASON_NONE : REASON_CANCELLED;
        call_settle(dispatch, call);
        stop_closing(dispatch, call);
        forget_choices(dispatch, call);
        call_release(call);
        break;
    case CALL_TOLD:
        stop_closing(dispatch, call);
        call_release(call);
        break;
    }
    atomic_fetch_sub(&dispatch->admitted, 1);
}

/* Cuts off a client that has not read the end of its answer in time. */
static void break_off(struct dispatch *dispatch, struct call *call)
{
    char sentence[160];
    snprintf(sentence, sizeof sentence, "%s: %s", reason_name(REASON_SLOW_READER),
             reason_when(REASON_SLOW_READER));
    due_heap_set(&dispatch->due_calls, &call->break_off, UINT64_MAX);
    size_t unsent_bytes =
        call->client.ops->break_off(call->client.handle, REASON_SLOW_READER, sentence);
    log_debug("dispatch", "req=%s queued_bytes=%zu age_us=%" PRIu64 " msg=\"not read: broken off\"",
              call->name, unsent_bytes, dispatch->now_us - call->arrival_us);
}

/* ------------------------------------------------------------------------- actions of a choice */

void request_wait_for_place(struct dispatch *dispatch, struct request *request)
{
    const struct model_metrics *metrics = metrics_of(dispatch, request->call);
    enum placement_turn turn = PLACEMENT_NEW;
    dispatch->place_needed = true;
    if (request->place.kind == LIFE_PLACE_DECODE) {
        counter_add(metrics->regives, !request->life.binding);
        turn = PLACEMENT_REGIVE;
    } else if (request->place.again != AGAIN_NOT) {
        counter_add(request->place.again == AGAIN_MOVED ? metrics->moves : metrics->retries, 1);
        log_warn_lifecycle(
            "dispatch", "req=%s attempt=%u runs=%u emitted=%u msg=\"prompt is computed again\"",
            request->call->name, request->life.attempt, request->life.runs, request->emitted_count);
        turn = PLACEMENT_AGAIN;
    }
    placement_wait(&dispatch->placement, &request->placing, turn, dispatch->now_us);
}

static void begin_choice(struct dispatch *dispatch, struct request *request)
{
    const struct call *call = request->call;
    struct life_actions actions;
    TAILQ_INSERT_TAIL(&dispatch->all, request, all_link);
    placement_arrived(&dispatch->placement, &request->placing, call->model, call->tenant);
    request_rank(dispatch, request);
    retry_budget_arrived(&dispatch->budgets[call->model]);
    request->counted_state = REQUEST_QUEUED;
    gauge_add(metrics_of(dispatch, call)->requests_by_state[REQUEST_QUEUED], 1);
    log_debug("dispatch",
              "req=%s id=%016" PRIx64 " choice=%u prompt_tokens=%u max_tokens=%u msg=\"arrived\"",
              call->name, request->id, request->choice, call->prompt_count,
              call->sampling.max_tokens);
    FAILPOINT("router.arrived");
    request_life_init(&request->life, &dispatch->config.limits, call->deadline_us,
                      call->prompt_only, &actions);
    request_execute(dispatch, request, &actions);
}

/* The first token of a choice says that the prompt is computed. With the first choice's the others
 * begin: they find the prompt cached. */
static void note_computed(struct dispatch *dispatch, const struct request *request)
{
    struct call *call = request->call;
    if (request->choice)
        return;
    for (uint32_t i = 1; i < call->choice_count; i++) {
        request_observers_arrived(&dispatch->config.views, &call->choices[i]);
        begin_choice(dispatch, &call->choices[i]);
    }
}

static void deliver(struct dispatch *dispatch, struct request *request,
                    const struct life_action *action)
{
    struct call *call = request->call;
    struct request_timing *timing = &request->timing;
    const struct model_metrics *metrics = metrics_of(dispatch, call);
    bool counts_prompt = !request->choice && (call->prompt_only || action->index == 1);
    if (call->prompt_only) { /* the client wants no token */
        timing->first_us = timing->last_us = dispatch->now_us;
        request_trace_computed(&request->trace, dispatch->now_us);
        if (counts_prompt)
            counter_add(metrics->prompt_tokens, call->prompt_count);
        note_computed(dispatch, request);
        return;
    }
    ASSERT(action->index == request->emitted_count + 1);
    if (action->index == 1)
        FAILPOINT("router.first_token");
    FAILPOINT("router.token");
    timing->last_us = dispatch->now_us;
    if (action->index == 1)
        timing->first_us = dispatch->now_us;
    else if (action->index == 2)
        timing->second_us = dispatch->now_us;
    request_observers_token(&dispatch->config.views, request, dispatch->now_us);
    /* Both are counted for all requests, however they end: rates are read from them. */
    if (counts_prompt)
        counter_add(metrics->prompt_tokens, call->prompt_count);
    counter_add(metrics->completion_tokens, 1);
    request_add_emitted(request, action->id);
    if (!request->dirty && !call->once && !is_over(call)) {
        request->dirty = true;
        TAILQ_INSERT_TAIL(&dispatch->dirty, request, dirty_link);
    }
    if (action->index == 1)
        note_computed(dispatch, request);
    struct stream_token token = {action->id, action->logits_hash, action->logprobs};
    if (!answer_deltas_token(&request->out, &token, action->finish))
        return;
    struct life_actions more;
    request_life_on_stop_string(&request->life, &more);
    request_execute(dispatch, request, &more);
}

void request_execute(struct dispatch *dispatch, struct request *request,
                     const struct life_actions *actions)
{
    for (uint32_t i = 0; i < actions->count && request->state == CHOICE_OPEN; i++) {
        const struct life_action *action = &actions->items[i];
        switch (action->kind) {
        case LIFE_PLACE:
        case LIFE_PLACE_DECODE:
            if (action->kind == LIFE_PLACE || !request->life.binding)
                request_trace_again(&request->trace, dispatch->now_us);
            placement_stop_waiting(&dispatch->placement, &request->placing); /* for a reader */
            request->place = *action;
            if (action->again != AGAIN_CHARGED || request_pays(dispatch, request))
                request_wait_for_place(dispatch, request);
            break;
        case LIFE_SEND_PREFILL:
        case LIFE_SEND_DECODE:
        case LIFE_SEND_RELEASE: worker_command(dispatch, request, action); break;
        case LIFE_DELIVER: deliver(dispatch, request, action); break;
        case LIFE_FINISH: finish_choice(dispatch, request, action); break;
        case LIFE_SILENT: request_is_silent(dispatch, request, action->worker); break;
        }
    }
    count_state(dispatch, request);
    if (request->state != CHOICE_OPEN)
        return;
    if (request->life.place_at_us != UINT64_MAX) /* a pause: it may have waited for a reader */
        placement_stop_waiting(&dispatch->placement, &request->placing);
    request_track(dispatch, request);
    watch_time(dispatch, request);
}

/* -------------------------------------------------------------------------------------- events */

/* Makes all choices known to messages of workers. False: no memory, and none is known. */
static bool make_known(struct dispatch *dispatch, struct call *call)
{
    uint32_t known = 0;
    while (known < call->choice_count &&
           map_put(dispatch->requests, call->choices[known].id, &call->choices[known]) == STATUS_OK)
        known++;
    if (known == call->choice_count)
        return true;
    while (known > 0)
        map_take(dispatch->requests, call->choices[--known].id);
    return false;
}

static void refuse(struct dispatch *dispatch, struct call *call, enum reason reason)
{
    call->choices[0].state = CHOICE_CLOSED;
    call_end(dispatch, call, NULL, reason);
    call_settle(dispatch, call);
}

void call_begin(struct dispatch *dispatch, struct call *first)
{
    struct call *call;
    TAILQ_FOREACH(call, &first->group.calls, group_link)
    {
        request_observers_arrived(&dispatch->config.views, &call->choices[0]);
        if (dispatch->draining) {
            refuse(dispatch, call, REASON_DRAINING);
        } else if (dispatch->placement.queues[call->model].count + call->choice_count >
                       dispatch->config.max_queue ||
                   !make_known(dispatch, call)) {
            refuse(dispatch, call, REASON_OVERLOADED);
        } else {
            call->state = CALL_RUNNING;
            keep_alive(dispatch, call);
            begin_choice(dispatch, &call->choices[0]);
            ask_constraint(dispatch, call);
            request_judge_arrival(dispatch, &call->choices[0]);
        }
    }
}

void requests_flush(struct dispatch *dispatch)
{
    for (struct request *request; (request = TAILQ_FIRST(&dispatch->dirty));) {
        TAILQ_REMOVE(&dispatch->dirty, request, dirty_link);
        request->dirty = false;
        /* A client that has left is reported when its side closes. */
        if (!is_over(request->call) && request->call->client.ops->delta(request) == STATUS_LIMIT)
            request_fail(dispatch, request, TERMINAL_OVERLOADED, reason_name(REASON_SLOW_READER));
    }
}

void requests_tick(struct dispatch *dispatch)
{
    struct due *due;
    for (size_t left = dispatch->due_requests.count;
         left && (due = due_heap_first(&dispatch->due_requests)) && due->at_us <= dispatch->now_us;
         left--) {
        struct request *request = (struct request *)((char *)due - offsetof(struct request, due));
        if (request->call->keep_alive_us <= dispatch->now_us)
            keep_alive(dispatch, request->call);
        request_note_late(dispatch, request);
        if (request_life_next_us(&request->life) > dispatch->now_us) {
            watch_time(dispatch, request);
            continue;
        }
        struct life_actions actions;
        request_life_on_tick(&request->life, dispatch->now_us, &actions);
        dispatch->place_needed |= request->life.local;
        request_execute(dispatch, request, &actions);
    }
    while ((due = due_heap_first(&dispatch->due_calls)) && due->at_us <= dispatch->now_us)
        break_off(dispatch, (struct call *)((char *)due - offsetof(struct call, break_off)));
}

uint64_t requests_next_us(const struct dispatch *dispatch)
{
    const struct due *request = due_heap_first(&dispatch->due_requests),
                     *call = due_heap_first(&dispatch->due_calls);
    uint64_t next_us = request ? request->at_us : UINT64_MAX;
    return call && call->at_us < next_us ? call->at_us : next_us;
}

void requests_fail_all(struct dispatch *dispatch, enum reason reason)
{
    for (struct request *request; (request = TAILQ_FIRST(&dispatch->all));)
        request_fail(dispatch, request, TERMINAL_UNAVAILABLE, reason_name(reason));
}
