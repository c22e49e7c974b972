#include "common/base/assert.h"
#include "common/base/failpoint.h"
#include "common/base/log.h"
#include "router/dispatch/dispatch_internal.h"

#include <inttypes.h>

static const struct model_metrics *metrics_of(const struct dispatch *dispatch,
                                              const struct request *request)
{
    return &dispatch->config.metrics->models[request->model];
}

void request_count_state(struct dispatch *dispatch, struct request *request)
{
    enum request_state before = request->counted_state, after = request->life.state;
    struct gauge *const *gauges = metrics_of(dispatch, request)->requests_by_state;
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
    if (request->first->keep_alive_us < dispatch->due_us)
        dispatch->due_us = request->first->keep_alive_us;
}

static void keep_alive(const struct dispatch *dispatch, struct request *first)
{
    const struct request_client_ops *ops = first->client.ops;
    first->keep_alive_us = ops->keep_alive ? ops->keep_alive(first, dispatch->now_us) : UINT64_MAX;
}

/* ------------------------------------------------------------------------------------- actions */

static void wait_for_place(struct dispatch *dispatch, struct request *request,
                           const struct life_action *action)
{
    ASSERT(!request->waiting);
    request_trace_again(&request->trace, dispatch->now_us);
    request->place = *action;
    request->waiting = true;
    struct model_queue *queue = &dispatch->queues[request->model];
    queue->count++;
    dispatch->waiting_count++;
    dispatch->place_needed = true;
    if (action->kind == LIFE_PLACE_DECODE) {
        counter_add(metrics_of(dispatch, request)->regives, 1);
        TAILQ_INSERT_TAIL(&queue->regiving, request, waiting_link);
    } else if (request->timing.dispatched_us) { /* it has waited once already */
        counter_add(metrics_of(dispatch, request)->retries, 1);
        log_warn_lifecycle(
            "dispatch", "req=%s attempt=%u runs=%u emitted=%u msg=\"prompt is computed again\"",
            request->name, request->life.attempt, request->life.runs, request->emitted_count);
        TAILQ_INSERT_HEAD(&queue->waiting, request, waiting_link);
    } else {
        TAILQ_INSERT_TAIL(&queue->waiting, request, waiting_link);
    }
}

void request_stop_waiting(struct dispatch *dispatch, struct request *request)
{
    if (!request->waiting)
        return;
    struct model_queue *queue = &dispatch->queues[request->model];
    if (request->place.kind == LIFE_PLACE_DECODE)
        TAILQ_REMOVE(&queue->regiving, request, waiting_link);
    else
        TAILQ_REMOVE(&queue->waiting, request, waiting_link);
    request->waiting = false;
    queue->count--;
    dispatch->waiting_count--;
}

static void mark_dirty(struct dispatch *dispatch, struct request *request)
{
    if (request->dirty || request->once || request->first->over)
        return;
    request->dirty = true;
    TAILQ_INSERT_TAIL(&dispatch->dirty, request, dirty_link);
}

static void begin(struct dispatch *dispatch, struct request *request)
{
    TAILQ_INSERT_TAIL(&dispatch->all, request, all_link);
    request->counted_state = REQUEST_QUEUED;
    gauge_add(metrics_of(dispatch, request)->requests_by_state[REQUEST_QUEUED], 1);
    log_debug("dispatch",
              "req=%s id=%016" PRIx64 " choice=%u prompt_tokens=%u max_tokens=%u msg=\"arrived\"",
              request->name, request->id, request->sampling.choice, request->prompt_count,
              request->sampling.max_tokens);
    FAILPOINT("router.arrived");
    struct life_actions actions;
    request_life_init(&request->life, &dispatch->config.limits, request->deadline_us,
                      request->prompt_only, &actions);
    request_execute(dispatch, request, &actions);
}

/* The prompt is computed: they find it cached. */
static void begin_others(struct dispatch *dispatch, struct request *request)
{
    for (uint32_t i = 0; i < request->other_count; i++) {
        request_observers_arrived(&dispatch->config.views, request->others[i]);
        begin(dispatch, request->others[i]);
    }
}

/* These two of all requests, whatever becomes of them: rates are to be read from them. */
static void count_prompt(const struct dispatch *dispatch, const struct request *request)
{
    if (request->first == request)
        counter_add(metrics_of(dispatch, request)->prompt_tokens, request->prompt_count);
}

static void count_token(const struct dispatch *dispatch, const struct request *request)
{
    counter_add(metrics_of(dispatch, request)->completion_tokens, 1);
}

/* A token that nobody asked for: that it came tells that the prompt is computed. */
static void note_computed(struct dispatch *dispatch, struct request *request)
{
    request->timing.first_us = request->timing.last_us = dispatch->now_us;
    request_trace_computed(&request->trace, dispatch->now_us);
    count_prompt(dispatch, request);
    begin_others(dispatch, request);
}

static void deliver(struct dispatch *dispatch, struct request *request,
                    const struct life_action *action)
{
    struct request_timing *timing = &request->timing;
    if (request->prompt_only) {
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
    if (action->index == 1)
        count_prompt(dispatch, request);
    count_token(dispatch, request);
    request_add_emitted(request, action->id);
    mark_dirty(dispatch, request);
    if (action->index == 1)
        begin_others(dispatch, request);
    struct stream_token token = {action->id, action->logits_hash, action->logprobs};
    if (!answer_deltas_token(&request->out, &token, action->finish))
        return;
    struct life_actions more;
    request_life_on_stop_string(&request->life, &more);
    request_execute(dispatch, request, &more);
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
    case LIFE_FINISH: request_finish(dispatch, request, action); break;
    }
}

void request_execute(struct dispatch *dispatch, struct request *request,
                     const struct life_actions *actions)
{
    for (uint32_t i = 0; i < actions->count && !request->ended; i++)
        execute_one(dispatch, request, &actions->items[i]);
    request_count_state(dispatch, request);
    if (!request->ended)
        watch_time(dispatch, request);
}

/* -------------------------------------------------------------------------------------- events */

/* Each has a place, since it was admitted. False: no memory, and none is known. */
static bool make_known(struct dispatch *dispatch, struct request *first)
{
    enum status status = map_put(dispatch->requests, first->id, first);
    uint32_t known = 0;
    while (status == STATUS_OK && known < first->other_count) {
        struct request *other = first->others[known];
        status = map_put(dispatch->requests, other->id, other);
        known += status == STATUS_OK;
    }
    if (status == STATUS_OK)
        return true;
    while (known > 0)
        map_take(dispatch->requests, first->others[--known]->id);
    map_take(dispatch->requests, first->id); /* nothing, if it is not there */
    return false;
}

static void begin_call(struct dispatch *dispatch, struct request *request)
{
    request_observers_arrived(&dispatch->config.views, request);
    if (dispatch->draining) {
        request_refuse(dispatch, request, REASON_DRAINING);
    } else if (dispatch->queues[request->model].count + request->other_count >=
                   dispatch->config.max_queue ||
               !make_known(dispatch, request)) {
        request_refuse(dispatch, request, REASON_OVERLOADED);
    } else {
        keep_alive(dispatch, request);
        begin(dispatch, request);
        request_ask_constraint(dispatch, request);
    }
}

void request_begin(struct dispatch *dispatch, struct request *request)
{
    for (struct request *next; request; request = next) {
        next = request->next_prompt;
        begin_call(dispatch, request);
    }
}

void request_flush(struct dispatch *dispatch)
{
    for (struct request *request; (request = TAILQ_FIRST(&dispatch->dirty));) {
        TAILQ_REMOVE(&dispatch->dirty, request, dirty_link);
        request->dirty = false;
        if (request->first->over || request->client.ops->delta(request) != STATUS_LIMIT)
            continue; /* a client that left is reported by its call's end */
        struct life_actions actions;
        request_life_on_fail(&request->life, TERMINAL_OVERLOADED, reason_name(REASON_SLOW_READER),
                             &actions);
        request_execute(dispatch, request, &actions);
    }
}

void request_tick(struct dispatch *dispatch)
{
    dispatch->due_us = UINT64_MAX;
    struct request *next;
    for (struct request *request = TAILQ_FIRST(&dispatch->all); request; request = next) {
        next = TAILQ_NEXT(request, all_link);
        if (request->first->keep_alive_us <= dispatch->now_us)
            keep_alive(dispatch, request->first);
        if (request_life_next_us(&request->life) > dispatch->now_us) {
            watch_time(dispatch, request);
            continue;
        }
        struct life_actions actions;
        request_life_on_tick(&request->life, dispatch->now_us, &actions);
        dispatch->place_needed |= request->life.local;
        request_execute(dispatch, request, &actions);
    }
    request_tick_closing(dispatch);
}

void request_fail_all(struct dispatch *dispatch, enum reason reason)
{
    for (struct request *request; (request = TAILQ_FIRST(&dispatch->all));) {
        struct life_actions actions;
        request_life_on_fail(&request->life, TERMINAL_UNAVAILABLE, reason_name(reason), &actions);
        request_execute(dispatch, request, &actions);
    }
}
