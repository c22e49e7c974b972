#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/failpoint.h"
#include "common/base/log.h"
#include "router/dispatch_internal.h"
#include "router/reply.h"

#include <inttypes.h>
#include <stdio.h>

#define SLOW_LINGER_US 1000000u /* for the status of a reader that was cut off to reach it */

static void count_state(struct dispatch *dispatch, struct request *request)
{
    enum request_state before = request->counted_state, after = request->life.state;
    struct gauge *const *gauges = dispatch->config.metrics->requests_by_state;
    if (before == after)
        return;
    gauge_add(gauges[before], -1);
    if (after != REQUEST_ENDED)
        gauge_add(gauges[after], 1);
    request->counted_state = after;
    dispatch->place_needed = true; /* somebody's work became less */
}

static void watch_time(struct dispatch *dispatch, const struct request *request)
{
    uint64_t next_us = request_life_next_us(&request->life);
    if (next_us < dispatch->due_us)
        dispatch->due_us = next_us;
}

/* ------------------------------------------------------------------------------------- actions */

static void wait_for_place(struct dispatch *dispatch, struct request *request,
                           const struct life_action *action)
{
    ASSERT(!request->waiting);
    request->place = *action;
    request->waiting = true;
    dispatch->waiting_count++;
    dispatch->place_needed = true;
    if (action->kind == LIFE_PLACE_DECODE) {
        counter_add(dispatch->config.metrics->regives, 1);
        TAILQ_INSERT_TAIL(&dispatch->regiving, request, waiting_link);
    } else if (request->timing.dispatched_us) { /* it has waited once already */
        counter_add(dispatch->config.metrics->retries, 1);
        log_warn_lifecycle(
            "dispatch", "req=%s attempt=%u runs=%u emitted=%u msg=\"prompt is computed again\"",
            request->name, request->life.attempt, request->life.runs, request->emitted_count);
        TAILQ_INSERT_HEAD(&dispatch->waiting, request, waiting_link);
    } else {
        TAILQ_INSERT_TAIL(&dispatch->waiting, request, waiting_link);
    }
}

void request_stop_waiting(struct dispatch *dispatch, struct request *request)
{
    if (!request->waiting)
        return;
    if (request->place.kind == LIFE_PLACE_DECODE)
        TAILQ_REMOVE(&dispatch->regiving, request, waiting_link);
    else
        TAILQ_REMOVE(&dispatch->waiting, request, waiting_link);
    request->waiting = false;
    dispatch->waiting_count--;
}

static void mark_dirty(struct dispatch *dispatch, struct request *request)
{
    if (request->dirty || request->once)
        return;
    request->dirty = true;
    TAILQ_INSERT_TAIL(&dispatch->dirty, request, dirty_link);
}

static void deliver(struct dispatch *dispatch, struct request *request,
                    const struct life_action *action)
{
    struct request_timing *timing = &request->timing;
    ASSERT(action->index == request->emitted_count + 1);
    if (action->index == 1)
        FAILPOINT("router.first_token");
    FAILPOINT("router.token");
    timing->last_us = dispatch->now_us;
    if (action->index == 1)
        timing->first_us = dispatch->now_us;
    else if (action->index == 2)
        timing->second_us = dispatch->now_us;
    request_add_emitted(request, action->id);
    mark_dirty(dispatch, request);
    if (!stream_out_token(&request->out, action->id, action->logits_hash, action->finish))
        return;
    struct life_actions more;
    request_life_on_stop_string(&request->life, &more);
    request_execute(dispatch, request, &more);
}

static void log_end(const struct request *request, enum reason reason, uint64_t now_us)
{
    log_debug("dispatch",
              "req=%s id=%016" PRIx64 " status=%s why=%s prompt_tokens=%u tokens=%u prefills=%u "
              "prefill=%s decode=%s lane=%s age_us=%" PRIu64 " msg=\"request ended\"",
              request->name, request->id, reason ? reason_name(reason) : "ok", request->life.reason,
              request->prompt_count, request->emitted_count, request->life.runs,
              request->timing.prefill_worker, request->timing.decode_worker, request->timing.lane,
              now_us - request->timing.arrival_us);
}

/* The one place where a request ends. It is counted before the client can know of it. */
static void finish(struct dispatch *dispatch, struct request *request,
                   const struct life_action *action)
{
    struct router_metrics *metrics = dispatch->config.metrics;
    enum reason reason = request_reason(request);
    struct error sentence = {""};
    ASSERT(!request->ended);
    FAILPOINT("router.ended");
    if (!reason && reply_finished(request, action->finish) == STATUS_LIMIT)
        reason = request->once ? REASON_ANSWER_TOO_LARGE : REASON_SLOW_READER;
    if (reason == REASON_NO_WORKERS)
        dispatch_explain_no_worker(dispatch, request);
    if (reason)
        request_sentence(request, reason, dispatch->now_us, &sentence);
    else
        router_metrics_answered(metrics, request);
    router_metrics_ended(metrics, reason);
    counter_add(metrics->dropped, request->life.dropped);
    count_state(dispatch, request);
    log_end(request, reason, dispatch->now_us);
    /* What a client doesn't read must not keep it from reading that. */
    if (reason == REASON_SLOW_READER)
        rpc_call_drop_queued(request->call);
    reply_status(request->call, reason, sentence.text);
    request->break_us =
        dispatch->now_us +
        (reason == REASON_SLOW_READER ? SLOW_LINGER_US : dispatch->config.linger_us);

    request_stop_waiting(dispatch, request);
    if (request->dirty)
        TAILQ_REMOVE(&dispatch->dirty, request, dirty_link);
    request->dirty = false;
    request->ended = true;
    TAILQ_REMOVE(&dispatch->all, request, all_link);
    TAILQ_INSERT_TAIL(&dispatch->ended, request, all_link);
}

static void execute_one(struct dispatch *dispatch, struct request *request,
                        const struct life_action *action)
{
    switch (action->kind) {
    case LIFE_PLACE:
    case LIFE_PLACE_DECODE: wait_for_place(dispatch, request, action); break;
    case LIFE_SEND_PREFILL:
    case LIFE_SEND_DECODE:
    case LIFE_SEND_RELEASE: worker_command(dispatch, request, action); break;
    case LIFE_DELIVER: deliver(dispatch, request, action); break;
    case LIFE_FINISH: finish(dispatch, request, action); break;
    }
}

void request_execute(struct dispatch *dispatch, struct request *request,
                     const struct life_actions *actions)
{
    for (uint32_t i = 0; i < actions->count && !request->ended; i++)
        execute_one(dispatch, request, &actions->items[i]);
    count_state(dispatch, request);
    if (!request->ended)
        watch_time(dispatch, request);
}

/* -------------------------------------------------------------------------------------- events */

static void refuse(struct dispatch *dispatch, struct request *request, enum reason reason)
{
    router_metrics_ended(dispatch->config.metrics, reason);
    reply_status(request->call, reason, reason_when(reason));
    request_destroy(request);
}

void request_begin(struct dispatch *dispatch, struct request *request)
{
    if (dispatch->draining) {
        refuse(dispatch, request, REASON_DRAINING);
        return;
    }
    if (dispatch->waiting_count >= dispatch->config.max_queue ||
        map_put(dispatch->requests, request->id, request) != STATUS_OK) {
        refuse(dispatch, request, REASON_OVERLOADED);
        return;
    }
    TAILQ_INSERT_TAIL(&dispatch->all, request, all_link);
    request->counted_state = REQUEST_QUEUED;
    gauge_add(dispatch->config.metrics->requests_by_state[REQUEST_QUEUED], 1);
    log_debug("dispatch", "req=%s id=%016" PRIx64 " prompt_tokens=%u max_tokens=%u msg=\"arrived\"",
              request->name, request->id, request->prompt_count, request->sampling.max_tokens);
    FAILPOINT("router.arrived");
    struct life_actions actions;
    request_life_init(&request->life, &dispatch->config.limits, request->deadline_us, &actions);
    request_execute(dispatch, request, &actions);
}

/* Ended requests that were put away lie in `closing`; those whose call is over as well go. */
static void put_away(struct dispatch *dispatch, struct request *request, struct request_list *from)
{
    TAILQ_REMOVE(from, request, all_link);
    if (request->gone) {
        map_take(dispatch->requests, request->id);
        request_destroy(request);
        return;
    }
    request_release(request);
    TAILQ_INSERT_TAIL(&dispatch->closing, request, all_link);
    if (request->break_us < dispatch->due_us)
        dispatch->due_us = request->break_us;
}

void request_client_gone(struct dispatch *dispatch, struct request *request, enum rpc_code code)
{
    struct life_actions actions;
    request->gone = true;
    if (request->released) {
        put_away(dispatch, request, &dispatch->closing);
        return;
    }
    if (request->ended)
        return; /* in this batch, at whose end it is put away */
    if (code == RPC_DEADLINE_EXCEEDED)
        request_life_on_fail(&request->life, TERMINAL_DEADLINE, "deadline", &actions);
    else
        request_life_on_cancel(&request->life, &actions);
    request_execute(dispatch, request, &actions);
}

void request_flush(struct dispatch *dispatch)
{
    for (struct request *request; (request = TAILQ_FIRST(&dispatch->dirty));) {
        TAILQ_REMOVE(&dispatch->dirty, request, dirty_link);
        request->dirty = false;
        if (reply_delta(request) != STATUS_LIMIT)
            continue; /* a client that left is reported by its call's end */
        struct life_actions actions;
        request_life_on_fail(&request->life, TERMINAL_OVERLOADED, reason_name(REASON_SLOW_READER),
                             &actions);
        request_execute(dispatch, request, &actions);
    }
}

void request_put_away(struct dispatch *dispatch)
{
    for (struct request *request; (request = TAILQ_FIRST(&dispatch->ended));)
        put_away(dispatch, request, &dispatch->ended);
}

/* A client that has not read the end of its answer in time. */
static void break_off(struct dispatch *dispatch, struct request *request)
{
    char sentence[160];
    uint64_t waited_us = dispatch->now_us - request->timing.arrival_us;
    log_debug("dispatch", "req=%s queued_bytes=%zu age_us=%" PRIu64 " msg=\"not read: broken off\"",
              request->name, rpc_call_queued_bytes(request->call), waited_us);
    snprintf(sentence, sizeof sentence, "%s: %s", reason_name(REASON_SLOW_READER),
             reason_when(REASON_SLOW_READER));
    rpc_call_break(request->call, reason_code(REASON_SLOW_READER), sentence);
    request->break_us = UINT64_MAX;
}

static void tick_closing(struct dispatch *dispatch)
{
    struct request *request;
    TAILQ_FOREACH(request, &dispatch->closing, all_link)
    {
        if (request->break_us <= dispatch->now_us)
            break_off(dispatch, request);
        else if (request->break_us < dispatch->due_us)
            dispatch->due_us = request->break_us;
    }
}

void request_tick(struct dispatch *dispatch)
{
    dispatch->due_us = UINT64_MAX;
    struct request *next;
    for (struct request *request = TAILQ_FIRST(&dispatch->all); request; request = next) {
        next = TAILQ_NEXT(request, all_link);
        if (request_life_next_us(&request->life) > dispatch->now_us) {
            watch_time(dispatch, request);
            continue;
        }
        struct life_actions actions;
        request_life_on_tick(&request->life, dispatch->now_us, &actions);
        dispatch->place_needed |= request->life.local;
        request_execute(dispatch, request, &actions);
    }
    tick_closing(dispatch);
}

void request_fail_all(struct dispatch *dispatch, enum reason reason)
{
    for (struct request *request; (request = TAILQ_FIRST(&dispatch->all));) {
        struct life_actions actions;
        request_life_on_fail(&request->life, TERMINAL_UNAVAILABLE, reason_name(reason), &actions);
        request_execute(dispatch, request, &actions);
    }
}
