#include "common/base/assert.h"
#include "common/base/failpoint.h"
#include "common/base/log.h"
#include "common/base/str.h"
#include "router/dispatch/dispatch_internal.h"

#include <stdio.h>
#include <string.h>

void worker_misbehaved(struct worker *worker, const char *what)
{
    log_error_limited("dispatch", "worker=%s what=%s msg=\"bad message: closing the session\"",
                      worker->info.name, what);
    worker_link_close(worker->link);
}

struct request *dispatch_find_request(struct dispatch *dispatch, uint64_t id)
{
    struct request *request = map_get(dispatch->requests, id);
    return request && !request->ended ? request : NULL;
}

void worker_take_opened(struct dispatch *dispatch, struct worker *worker, struct request *request,
                        const Baton__Worker__V1__Opened *opened)
{
    const Baton__Worker__V1__Handle *handle = opened->handle;
    struct handle_ref ref = {handle->incarnation, handle->id, handle->generation};
    struct life_actions actions;
    if (request_life_on_opened(&request->life, worker->key, opened->attempt, ref, &actions)) {
        if (!request_keep_handle(request, handle))
            request_life_on_fail(&request->life, TERMINAL_INTERNAL, "memory", &actions);
        str_copy(request->source_address, sizeof request->source_address, worker->info.address);
    }
    if (request->life.prefill == worker->key && !request->ended)
        request_trace_opened(&request->trace, opened->attempt, dispatch->now_us);
    request_execute(dispatch, request, &actions);
    request_observers_moved(&dispatch->config.views, request);
}

/* Logprobs of the prompt come before the answer. The prefill worker sends them before its first
 * token, but nothing orders them before the decode worker's: it is told of the handle when they
 * have come. Where the prefill worker ends it, nobody is told. */
static bool must_wait(const struct request *request, const struct worker *worker,
                      const Baton__Worker__V1__Opened *opened)
{
    const struct request_life *life = &request->life;
    return !life->ends_at_prefill && prompt_echo_waits(&request->prompt_echo) &&
           life->state == REQUEST_PREFILL && life->prefill == worker->key &&
           life->attempt == opened->attempt;
}

static void on_opened(struct dispatch *dispatch, struct worker *worker,
                      const Baton__Worker__V1__Opened *opened)
{
    const Baton__Worker__V1__Handle *handle = opened->handle;
    struct request *request = dispatch_find_request(dispatch, opened->request);
    if (!request)
        return;
    if (!handle || handle->incarnation != worker->info.incarnation) {
        worker_misbehaved(worker, "opened");
        return;
    }
    FAILPOINT("router.opened");
    if (must_wait(request, worker, opened) && request_keep_handle(request, handle))
        request->opened_attempt = opened->attempt;
    else
        worker_take_opened(dispatch, worker, request, opened);
}

static void on_lost(struct dispatch *dispatch, struct worker *worker,
                    const Baton__Worker__V1__Lost *lost)
{
    struct request *request = dispatch_find_request(dispatch, lost->request);
    if (!request)
        return;
    char quoted[100], sentence[300];
    bool step_failed = !strcmp(lost->reason, "step_failed");
    bool banned = !strcmp(lost->reason, reason_name(REASON_NO_TOKEN_ALLOWED));
    log_warn_lifecycle(
        "dispatch", "req=%s attempt=%u worker=%s prefill=%s why=%s sentence=%s msg=\"%s\"",
        request->name, lost->attempt, worker->info.name, request->timing.prefill_worker,
        log_quote(lost->reason, quoted, sizeof quoted),
        log_quote(lost->message, sentence, sizeof sentence),
        step_failed ? "a step failed"
        : banned    ? "no token may be drawn"
                    : "handoff is lost");
    if (banned)
        str_copy(request->refusal, sizeof request->refusal, lost->message);
    if (step_failed)
        snprintf(request->failure, sizeof request->failure,
                 "a %s worker could not compute a step: %s", worker_role_name(worker->info.role),
                 lost->message);
    struct life_actions actions;
    if (banned)
        request_life_on_banned(&request->life, worker->key, lost->attempt, &actions);
    else
        request_life_on_lost(&request->life, worker->key, lost->attempt, step_failed, &actions);
    if (actions.count)
        request_trace_why(&request->trace, lost->attempt, lost->reason);
    request_execute(dispatch, request, &actions);
}

/* They agree by what they told this router, and refused to pair: not tried again until the
 * membership changes. */
static void note_misfit(struct dispatch *dispatch, const struct request *request,
                        const struct worker *worker, const char *reason)
{
    const struct request_life *life = &request->life;
    if (worker->key != life->decode || !life->has_handle || !life->prefill ||
        (strcmp(reason, "layout_mismatch") && strcmp(reason, "numerics_mismatch")))
        return;
    log_error_limited(
        "dispatch",
        "prefill=%s decode=%s why=%s msg=\"these workers don't fit together: not paired "
        "again until the membership changes\"",
        request->timing.prefill_worker, worker->info.name, reason);
    route_misfits_note(&dispatch->misfits,
                       (struct route_misfit){.prefill = life->prefill, .decode = worker->key});
}

static void on_refused(struct dispatch *dispatch, struct worker *worker,
                       const Baton__Worker__V1__Refused *refused)
{
    struct request *request = dispatch_find_request(dispatch, refused->request);
    if (!request)
        return;
    char why[100], sentence[300];
    log_warn_lifecycle("dispatch",
                       "req=%s attempt=%u worker=%s retry=%d why=%s sentence=%s msg=\"refused\"",
                       request->name, refused->attempt, worker->info.name, refused->retry,
                       log_quote(refused->reason, why, sizeof why),
                       log_quote(refused->message, sentence, sizeof sentence));
    str_copy(request->refusal, sizeof request->refusal, refused->message);
    if (refused->attempt == request->life.attempt)
        note_misfit(dispatch, request, worker, refused->reason);
    if (!strcmp(refused->reason, "draining"))
        worker->load.draining =
            true; /* its report comes later: nothing more goes there until then */
    struct life_actions actions;
    request_life_on_refused(&request->life, worker->key, refused->attempt, refused->retry,
                            &actions);
    if (actions.count)
        request_trace_why(&request->trace, refused->attempt, refused->reason);
    request_execute(dispatch, request, &actions);
}

/* What the last handoff at this worker, at either end, says about its lane. */
static void note_lane(struct dispatch *dispatch, struct worker *worker,
                      const Baton__Worker__V1__Pulled *pulled)
{
    if (!worker || !*pulled->lane)
        return;
    str_copy(worker->lane, sizeof worker->lane, pulled->lane);
    worker->lane_bytes_per_second =
        pulled->lane_bytes_per_second < INT64_MAX ? pulled->lane_bytes_per_second : INT64_MAX;
    dispatch->board_changed = true;
}

static void on_pulled(struct dispatch *dispatch, struct worker *worker,
                      const Baton__Worker__V1__Pulled *pulled)
{
    router_metrics_pulled(dispatch->config.metrics, pulled->lane, pulled->bytes);
    note_lane(dispatch, worker, pulled);
    struct request *request = dispatch_find_request(dispatch, pulled->request);
    if (!request || pulled->attempt != request->life.attempt)
        return;
    note_lane(dispatch, workers_get(&dispatch->workers, request->life.prefill), pulled);
    struct request_timing *timing = &request->timing;
    str_copy(timing->lane, sizeof timing->lane, pulled->lane);
    timing->kv_bytes = pulled->bytes;
    timing->kv_bytes_before_complete = pulled->bytes_before_complete;
    request_observers_pulled(&dispatch->config.views, request, pulled, dispatch->now_us);
    request->confirmed = true;
    dispatch->place_needed = true;
}

/* Who computed a prompt tells when. */
static void on_prefilled(struct dispatch *dispatch, struct worker *worker,
                         const Baton__Worker__V1__Prefilled *prefilled)
{
    struct request *request = dispatch_find_request(dispatch, prefilled->request);
    if (!request || prefilled->attempt != request->life.attempt)
        return;
    worker->prompt_tokens += (uint64_t)request->prompt_count + request->life.handle_emitted;
    request_observers_prefilled(&dispatch->config.views, request, prefilled);
}

static void on_load(struct dispatch *dispatch, struct worker *worker,
                    const Baton__Worker__V1__Load *load)
{
    worker->load = (struct worker_load){.queued_requests = load->queued_requests,
                                        .queued_tokens = load->queued_tokens,
                                        .running = load->running,
                                        .blocks_free = load->blocks_free,
                                        .blocks_cached = load->blocks_cached,
                                        .blocks_pinned = load->blocks_pinned,
                                        .blocks_landing = load->blocks_landing,
                                        .draining = load->draining};
    dispatch->place_needed = dispatch->board_changed = true;
}

static void on_cache(struct dispatch *dispatch, struct worker *worker,
                     const Baton__Worker__V1__CacheEvents *events)
{
    uint64_t counts[CACHE_CHANGES] = {0};
    if (cache_event_count_take(&worker->cache, events, counts))
        router_metrics_cache(dispatch->config.metrics, counts);
    else
        worker_misbehaved(worker, "cache");
}

static void on_event(struct dispatch *dispatch, struct worker *worker,
                     const Baton__Worker__V1__SessionUp *up)
{
    switch (up->event_case) {
    case BATON__WORKER__V1__SESSION_UP__EVENT_OPENED:
        on_opened(dispatch, worker, up->opened);
        break;
    case BATON__WORKER__V1__SESSION_UP__EVENT_TOKENS:
        worker_tokens(dispatch, worker, up->tokens);
        break;
    case BATON__WORKER__V1__SESSION_UP__EVENT_PROMPT_LOGPROBS:
        worker_prompt_logprobs(dispatch, worker, up->prompt_logprobs);
        break;
    case BATON__WORKER__V1__SESSION_UP__EVENT_LOST: on_lost(dispatch, worker, up->lost); break;
    case BATON__WORKER__V1__SESSION_UP__EVENT_REFUSED:
        on_refused(dispatch, worker, up->refused);
        break;
    case BATON__WORKER__V1__SESSION_UP__EVENT_PULLED:
        on_pulled(dispatch, worker, up->pulled);
        break;
    case BATON__WORKER__V1__SESSION_UP__EVENT_LOAD: on_load(dispatch, worker, up->load); break;
    case BATON__WORKER__V1__SESSION_UP__EVENT_CACHE: on_cache(dispatch, worker, up->cache); break;
    case BATON__WORKER__V1__SESSION_UP__EVENT_PREFILLED:
        on_prefilled(dispatch, worker, up->prefilled);
        break;
    default: worker_misbehaved(worker, "event");
    }
}

void worker_said(struct dispatch *dispatch, struct link_message *message)
{
    struct worker *worker = workers_get(&dispatch->workers, message->link->worker);
    ASSERT(worker && worker->link == message->link);
    if (worker->state == WORKER_UP) {
        on_event(dispatch, worker, message->up);
    } else if (worker->state == WORKER_DIALLING && !message->link->refused) {
        workers_hello(&dispatch->workers, worker, message->up, dispatch->now_us);
        dispatch->place_needed = dispatch->board_changed = true;
    }
    link_message_free(message);
}

/* No request may go on waiting for a worker that can't answer any more. */
static void session_lost(struct dispatch *dispatch, uint64_t key)
{
    counter_add(dispatch->config.metrics->sessions_lost, 1);
    struct request *next;
    for (struct request *request = TAILQ_FIRST(&dispatch->all); request; request = next) {
        next = TAILQ_NEXT(request, all_link);
        struct life_actions actions;
        uint32_t attempt = request->life.attempt;
        request_life_on_session_lost(&request->life, key, &actions);
        if (actions.count)
            request_trace_why(&request->trace, attempt, "session_lost");
        request_execute(dispatch, request, &actions);
    }
}

static bool has_requests(const struct dispatch *dispatch, uint64_t key)
{
    const struct request *request;
    TAILQ_FOREACH(request, &dispatch->all, all_link)
    {
        const struct request_life *life = &request->life;
        bool placed = life->state == REQUEST_PREFILL || life->state == REQUEST_DECODE;
        if ((life->prefill == key && !request->confirmed) || (placed && life->decode == key))
            return true;
    }
    return false;
}

void worker_link_ended(struct dispatch *dispatch, struct worker_link *link)
{
    uint64_t key = link->worker;
    bool was_up = workers_link_closed(&dispatch->workers, link, has_requests(dispatch, key),
                                      dispatch->now_us);
    dispatch->place_needed = dispatch->board_changed = true;
    if (was_up)
        session_lost(dispatch, key);
}
