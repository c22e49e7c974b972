#include "common/base/assert.h"
#include "common/base/failpoint.h"
#include "common/base/log.h"
#include "router/dispatch/dispatch_internal.h"

#include <inttypes.h>
#include <stdio.h>

#define SLOW_LINGER_US 1000000u /* for the status of a reader that was cut off to reach it */

static void log_end(const struct request *request, const char *model, enum reason reason,
                    uint64_t now_us)
{
    log_debug("dispatch",
              "req=%s id=%016" PRIx64
              " model=%s status=%s why=%s prompt_tokens=%u tokens=%u prefills=%u "
              "prefill=%s decode=%s lane=%s age_us=%" PRIu64 " msg=\"request ended\"",
              request->name, request->id, model, reason ? reason_name(reason) : "ok",
              request->life.reason, request->prompt_count, request->emitted_count,
              request->life.runs, request->timing.prefill_worker, request->timing.decode_worker,
              request->timing.lane, now_us - request->timing.arrival_us);
}

/* Nothing of it is left to do. It stays where it is found until the call is put away. */
static void close_choice(struct dispatch *dispatch, struct request *request, enum reason reason,
                         enum finish_reason finish)
{
    counter_add(dispatch->config.metrics->dropped, request->life.dropped);
    request_count_state(dispatch, request);
    log_end(request, dispatch->config.models->items[request->model].name, reason, dispatch->now_us);
    if (answer_deltas_stop(&request->out, &(size_t){0}))
        finish = FINISH_STOP_STRING;
    request->unseen = true;
    request->unseen_finish = finish;
    request_stop_waiting(dispatch, request);
    request_drop_constraint(dispatch, request);
    if (request->dirty)
        TAILQ_REMOVE(&dispatch->dirty, request, dirty_link);
    request->dirty = false;
    request->ended = true;
    TAILQ_REMOVE(&dispatch->all, request, all_link);
    request->first->open_count--;
}

static void show_end(struct dispatch *dispatch, struct request *request, enum reason reason)
{
    if (!request->unseen)
        return;
    request->unseen = false;
    if (!reason)
        router_metrics_answered(dispatch->config.metrics, request->model, &request->timing,
                                request->emitted_count);
    request_observers_ended(&dispatch->config.views, request, reason, request->unseen_finish,
                            dispatch->now_us);
}

/* Those who count and show requests hear of its end, with what the client is told: once it is
 * known. */
static void show_ends(struct dispatch *dispatch, struct request *first)
{
    router_metrics_ended(dispatch->config.metrics, first->model, first->why);
    show_end(dispatch, first, first->why);
    for (uint32_t i = 0; i < first->other_count; i++)
        show_end(dispatch, first->others[i], first->why);
}

/* Its key may ask again, and there is room for that. */
static void free_room(struct dispatch *dispatch, struct request *first)
{
    request_settle(first);
    if (first->call)
        dispatch_give_back(dispatch, first->call);
    first->call = NULL;
}

/* Where a call gets its status: by the last of its choices, or by the first that fails. It is told
 * at the turn's end. */
static void end_call(struct dispatch *dispatch, struct request *request, enum reason reason)
{
    struct request *first = request->first;
    if (reason == REASON_NO_WORKERS)
        dispatch_explain_no_worker(dispatch, request);
    first->why = reason;
    first->failed = reason ? request : NULL;
    first->over = true;
    TAILQ_INSERT_TAIL(&dispatch->ended, first, end_link);
}

/* Of a choice that is cancelled: the client may not have left, but have been told something. */
static enum reason reason_of_cancel(const struct request *first)
{
    const struct request_client_ops *ops = first->client.ops;
    enum reason reason = first->over ? first->why : ops->why ? ops->why(first) : REASON_NONE;
    return reason ? reason : REASON_CANCELLED;
}

/* Hands out what is left of it. Why the choice ends so after all; REASON_NONE: well. */
static enum reason answer_choice(struct request *request, enum finish_reason finish, bool last)
{
    struct request *first = request->first;
    enum status status = request->client.ops->choice(request, finish);
    if (last && status == STATUS_OK)
        status = first->client.ops->end(first);
    if (status == STATUS_LIMIT)
        return request->once ? REASON_ANSWER_TOO_LARGE : REASON_SLOW_READER;
    return status == STATUS_OK ? REASON_NONE : REASON_CANCELLED;
}

/* The one place where a choice ends. There is room for another before the client can know of it. */
void request_finish(struct dispatch *dispatch, struct request *request,
                    const struct life_action *action)
{
    struct request *first = request->first;
    enum reason reason = request_reason(request);
    bool last = first->open_count == 1;
    ASSERT(!request->ended);
    FAILPOINT("router.ended");
    if (last && !request->once) /* its last frames may go out now */
        free_room(dispatch, first);
    if (!reason)
        reason = first->over ? first->why : answer_choice(request, action->finish, last);
    if (reason == REASON_CANCELLED)
        reason = reason_of_cancel(first);
    close_choice(dispatch, request, reason, action->finish);
    if (first->over || (!request->once && !reason))
        show_end(dispatch, request, reason);
    if (!first->over && (last || reason))
        end_call(dispatch, request, reason);
}

/* ------------------------------------------------------------------------------------- the
 * status */

/* The call is over: those of its choices that go on do so for nobody. */
static void end_choices(struct dispatch *dispatch, struct request *first)
{
    for (uint32_t i = 0; i <= first->other_count; i++) {
        struct request *choice = i ? first->others[i - 1] : first;
        struct life_actions actions;
        if (choice->ended || !choice->life.attempt) /* it has not begun */
            continue;
        request_life_on_cancel(&choice->life, &actions);
        request_execute(dispatch, choice, &actions);
    }
}

/* All that others may see of its end, once, before its client can know of it. */
static void settle_call(struct dispatch *dispatch, struct request *first)
{
    first->settled = true;
    end_choices(dispatch, first);
    show_ends(dispatch, first);
    free_room(dispatch, first);
}

void request_refuse(struct dispatch *dispatch, struct request *request, enum reason reason)
{
    request->unseen = true;
    request->unseen_finish = FINISH_NONE;
    request->refused = true;
    request->why = reason;
    request->over = true;
    settle_call(dispatch, request);
    TAILQ_INSERT_TAIL(&dispatch->ended, request, end_link);
}

static void tell(struct dispatch *dispatch, struct request *first)
{
    const struct request_client *client = &first->client;
    struct error sentence = {""};
    if (first->gone && first->once && !first->settled && !first->why) /* it was told nothing yet */
        first->why = REASON_CANCELLED;
    first->told_later =
        !first->why && !first->gone && client->ops->told_later && client->ops->told_later(first);
    if (first->refused)
        error_set(&sentence, STATUS_LIMIT, "%s", reason_when(first->why));
    else if (first->why)
        request_sentence(first->failed ? first->failed : first, first->why, dispatch->now_us,
                         &sentence);
    if (!first->told_later && !first->settled)
        settle_call(dispatch, first);
    /* What a client doesn't read must not keep it from reading that. */
    if (first->why == REASON_SLOW_READER)
        client->ops->drop_queued(client->handle);
    client->ops->status(first, first->why, sentence.text);
    uint64_t linger_us =
        first->why == REASON_SLOW_READER ? SLOW_LINGER_US : dispatch->config.linger_us;
    first->break_us = first->told_later ? UINT64_MAX : dispatch->now_us + linger_us;
}

/* ---------------------------------------------------------------------------- after the status */

static void drop_others(struct dispatch *dispatch, struct request *first)
{
    for (uint32_t i = 0; i < first->other_count; i++) {
        map_take(dispatch->requests, first->others[i]->id);
        request_destroy(first->others[i]);
    }
    first->other_count = 0;
}

static void put_away(struct dispatch *dispatch, struct request *first)
{
    if (first->gone && !first->settled)
        settle_call(dispatch, first);
    if (first->settled)
        drop_others(dispatch, first);
    if (first->gone || first->refused) {
        map_take(dispatch->requests, first->id);
        request_destroy(first);
        return;
    }
    request_release(first);
    TAILQ_INSERT_TAIL(&dispatch->closing, first, end_link);
    if (first->break_us < dispatch->due_us)
        dispatch->due_us = first->break_us;
}

static struct request *open_choice(struct request *first)
{
    struct request *choice = first;
    for (uint32_t i = 0; choice->ended && i < first->other_count; i++)
        choice = first->others[i];
    return choice;
}

/* All went well with it. What the client was told is what became of the whole call; and where it
 * was told nothing it has left. */
static enum reason why_told_later(const struct request *first, enum rpc_code code)
{
    enum reason why = first->client.ops->why(first);
    return why || code == RPC_OK ? why : REASON_CANCELLED;
}

void request_client_gone(struct dispatch *dispatch, struct request *first, enum rpc_code code)
{
    struct life_actions actions;
    first->gone = true;
    first->call = NULL; /* which has no places any more */
    if (first->told_later && !first->settled)
        first->why = why_told_later(first, code);
    if (first->released) {
        TAILQ_REMOVE(&dispatch->closing, first, end_link);
        put_away(dispatch, first);
        return;
    }
    if (first->over)
        return;                                   /* in this batch, at whose end it is put away */
    struct request *request = open_choice(first); /* its end is that of all */
    if (code == RPC_DEADLINE_EXCEEDED)
        request_life_on_fail(&request->life, TERMINAL_DEADLINE, "deadline", &actions);
    else
        request_life_on_cancel(&request->life, &actions);
    request_execute(dispatch, request, &actions);
}

void request_put_away(struct dispatch *dispatch)
{
    for (struct request *first; (first = TAILQ_FIRST(&dispatch->ended));) {
        TAILQ_REMOVE(&dispatch->ended, first, end_link);
        tell(dispatch, first);
        put_away(dispatch, first);
    }
}

void dispatch_settle(struct dispatch *dispatch, uint64_t id)
{
    struct request *first = id ? map_get(dispatch->requests, id) : NULL;
    struct life_actions actions;
    if (!first || first->settled)
        return;
    if (!first->over) {
        struct request *request = open_choice(first);
        request_life_on_cancel(&request->life, &actions);
        request_execute(dispatch, request, &actions);
    } else if (!first->why) {
        first->why = first->client.ops->why(first);
    }
    settle_call(dispatch, first);
}

/* A client that has not read the end of its answer in time. */
static void break_off(struct dispatch *dispatch, struct request *request)
{
    char sentence[160];
    const struct request_client *client = &request->client;
    uint64_t waited_us = dispatch->now_us - request->timing.arrival_us;
    log_debug("dispatch", "req=%s queued_bytes=%zu age_us=%" PRIu64 " msg=\"not read: broken off\"",
              request->name, client->ops->queued_bytes(client->handle), waited_us);
    snprintf(sentence, sizeof sentence, "%s: %s", reason_name(REASON_SLOW_READER),
             reason_when(REASON_SLOW_READER));
    client->ops->break_off(client->handle, REASON_SLOW_READER, sentence);
    request->break_us = UINT64_MAX;
}

void request_tick_closing(struct dispatch *dispatch)
{
    struct request *request;
    TAILQ_FOREACH(request, &dispatch->closing, end_link)
    {
        if (request->break_us <= dispatch->now_us)
            break_off(dispatch, request);
        else if (request->break_us < dispatch->due_us)
            dispatch->due_us = request->break_us;
    }
}
