#include "router/doors/openai/openai_call.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "router/doors/openai/openai_chat.h"
#include "router/doors/openai/openai_reply.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Copies the names of the tools, for the parsers, into one piece of memory. */
static bool copy_names(const struct json_value *tools, const char ***out, size_t *count)
{
    size_t bytes = 0, at = 0;
    *count = json_count(tools);
    const char **names = malloc(*count * (sizeof *names + OPENAI_MAX_NAME + 1) + 1);
    if (!names)
        return false;
    char *texts = (char *)(names + *count);
    for (size_t i = 0; i < *count; i++, at++) {
        const char *name = "";
        enum status status =
            json_get_string(json_find(json_at(tools, i), "function"), "name", &name, NULL, NULL);
        names[at] = texts + bytes;
        str_copy(texts + bytes, OPENAI_MAX_NAME + 1, status == STATUS_OK ? name : "");
        bytes += OPENAI_MAX_NAME + 1;
    }
    *out = names;
    return true;
}

static void init_choice(struct openai_call *call, uint32_t index, size_t names)
{
    struct openai_call_choice *choice = &call->choices[index];
    choice->call = call;
    call->wholes[index] = &choice->whole;
    openai_whole_init(&choice->whole, index, call->api->max_answer_bytes);
    if (!call->has_parser)
        return;
    struct tool_parser_config config = {.format = call->answer.tools,
                                        .names = call->tool_names,
                                        .name_count = names,
                                        .event = openai_call_choice_event,
                                        .context = choice};
    tool_parser_init(&choice->parser, &config);
}

/* False: no memory, and nothing is allocated. */
static bool take_memory(struct openai_call *call, const struct openai_request *request,
                        size_t *names)
{
    size_t count = request->prompt_count * request->choices;
    call->has_parser = request->kind == OPENAI_CHAT && request->tools;
    call->choices = calloc(count, sizeof *call->choices);
    call->wholes = calloc(count, sizeof *call->wholes);
    if (call->choices && call->wholes &&
        (!call->has_parser || copy_names(request->tools, &call->tool_names, names)))
        return true;
    free(call->choices);
    free(call->wholes);
    return false;
}

struct openai_call *openai_call_create(struct openai_api *api, struct http_exchange *exchange,
                                       const struct openai_request *request, size_t model,
                                       const char *name)
{
    const struct served_model *served = &api->models->items[model];
    size_t names = 0;
    struct openai_call *call =
        calloc(1, sizeof *call + request->prompt_count * sizeof *call->calls);
    if (!call || !take_memory(call, request, &names)) {
        free(call);
        return NULL;
    }
    atomic_init(&call->references, 1);
    call->api = api;
    call->model = model;
    call->exchange = exchange;
    http_exchange_keep(exchange);
    str_copy(call->name, sizeof call->name, name);
    call->stream = request->stream;
    call->one_tool_call = request->one_call;
    call->constraint_param = request->constraint_param;
    call->has_bias = request->sampling.n_logit_bias > 0;
    bool model_reasons = served->chat && *chat_template_forms(served->chat)->reasoning_begin;
    call->answer = (struct openai_answer){
        .kind = request->kind,
        .request_id = call->name,
        .model = served->name,
        .created_s = (uint64_t)time(NULL),
        .include_usage = request->include_usage,
        .continuous_usage = request->continuous_usage,
        .logprobs = request->logprobs,
        .token_ids = request->return_token_ids,
        .tool_named = request->tool_choice == OPENAI_TOOLS_NAMED,
        .reasoning = request->separate_reasoning && request->include_reasoning && model_reasons,
        .tools = call->has_parser ? served->tools : TOOL_FORMAT_NONE};
    str_init(&call->frames, api->max_answer_bytes);
    str_init(&call->body, api->max_answer_bytes);
    call->choices_each = request->choices;
    call->prompt_count = (uint32_t)request->prompt_count;
    call->choice_count = call->prompt_count * call->choices_each;
    for (uint32_t i = 0; i < call->choice_count; i++)
        init_choice(call, i, names);
    return call;
}

static void ref(void *handle)
{
    struct openai_call *call = handle;
    atomic_fetch_add(&call->references, 1);
}

void openai_call_unref(struct openai_call *call)
{
    if (atomic_fetch_sub(&call->references, 1) > 1)
        return;
    for (uint32_t i = 0; i < call->prompt_count; i++)
        if (call->calls[i])
            call_unref(call->calls[i]);
    for (uint32_t i = 0; i < call->choice_count; i++) {
        openai_whole_deinit(&call->choices[i].whole);
        if (call->has_parser)
            tool_parser_deinit(&call->choices[i].parser);
    }
    http_exchange_drop(call->exchange);
    str_deinit(&call->frames);
    str_deinit(&call->body);
    free(call->choices);
    free(call->wholes);
    free(call->tool_names);
    free(call);
}

void openai_call_give_back(struct openai_call *call)
{
    for (uint32_t i = 0; i < call->prompt_count; i++)
        if (call->calls[i])
            dispatch_give_back(call->api->dispatch, call->calls[i]);
}

void openai_call_leave(struct openai_call *call, enum rpc_code code)
{
    for (uint32_t i = 0; i < call->prompt_count; i++)
        if (call->calls[i])
            dispatch_close(call->api->dispatch, call->calls[i], code);
}

/* Runs on the loop's thread. The calls are submitted. */
static void on_over(void *context, struct http_exchange *exchange, enum http_outcome outcome)
{
    struct openai_call *call = context;
    (void)exchange;
    atomic_store(&call->client_left, true);
    if (outcome != HTTP_SENT)
        log_debug("openai", "req=%s outcome=%d msg=\"client left\"", call->name, (int)outcome);
    openai_call_leave(call, RPC_CANCELLED);
    openai_call_unref(call);
}

bool openai_call_watch(struct openai_call *call)
{
    ref(call);
    if (http_exchange_watch(call->exchange, on_over, call))
        return true;
    openai_call_unref(call);
    return false;
}

/* ---------------------------------------------------------------------- the client of the calls */

static struct openai_call_choice *choice_of(const struct call *call, uint32_t choice)
{
    struct openai_call *self = call->client.handle;
    return &self->choices[call->index * self->choices_each + choice];
}

/* The head goes out with the first frame: a call that is refused before has a status of its own. */
static enum status send_frames(struct openai_call *call)
{
    if (!call->frames.length)
        return STATUS_OK;
    if (call->frames.truncated)
        return STATUS_LIMIT;
    if (!call->started)
        TRY(openai_reply_stream(call->exchange, call->name));
    call->started = true;
    call->heard_us = clock_now_us();
    enum status status =
        http_exchange_write(call->exchange, call->frames.data, call->frames.length);
    str_clear(&call->frames);
    return status;
}

static enum status on_prompt_logprobs(struct call *dispatched, uint32_t first,
                                      const struct token_logprobs *logprobs, uint32_t count)
{
    struct openai_call *call = dispatched->client.handle;
    if (atomic_load(&call->client_left))
        return STATUS_CANCELLED;
    openai_call_choice_prompt_logprobs(choice_of(dispatched, 0), dispatched, first, logprobs,
                                       count);
    return send_frames(call);
}

static enum status on_delta(struct request *request)
{
    struct openai_call *call = request->call->client.handle;
    struct stream_delta taken;
    if (atomic_load(&call->client_left))
        return STATUS_CANCELLED;
    bool something = answer_deltas_take(&request->out, &taken);
    if (answer_deltas_overflowed(&request->out))
        return STATUS_LIMIT;
    if (!something)
        return STATUS_OK;
    openai_call_choice_delta(choice_of(request->call, request->choice), request, &taken);
    return send_frames(call);
}

/* Makes what follows all choices. The last of them has ended well only if it can be sent. */
static enum status make_end(struct openai_call *call)
{
    if (call->stream) {
        if (call->answer.include_usage)
            openai_chunk_usage(&call->frames, &call->answer, &call->usage);
        str_add(&call->frames, OPENAI_DONE);
        return call->frames.truncated ||
                       !http_exchange_has_room(call->exchange, call->frames.length)
                   ? STATUS_LIMIT
                   : STATUS_OK;
    }
    openai_object(&call->body, &call->answer, call->wholes, call->choice_count, &call->usage);
    return call->body.truncated ? STATUS_LIMIT : STATUS_OK;
}

static enum status on_choice(struct request *request, bool last)
{
    const struct call *dispatched = request->call;
    struct openai_call *call = dispatched->client.handle;
    struct stream_delta taken;
    if (atomic_load(&call->client_left))
        return STATUS_CANCELLED;
    answer_deltas_take(&request->out, &taken);
    if (answer_deltas_overflowed(&request->out))
        return STATUS_LIMIT;
    TRY(openai_call_choice_end(choice_of(dispatched, request->choice), request, &taken));
    if (call->stream)
        TRY(send_frames(call));
    if (!last)
        return STATUS_OK;
    call->usage.prompt_tokens += dispatched->prompt_count;
    call->usage.completion_tokens += dispatched->completion_tokens;
    call->usage.cached_tokens += dispatched->cached_tokens;
    call->usage.reasoning_tokens += dispatched->reasoning_tokens;
    if (dispatched->first->group.open_count > 1 || atomic_load(&call->client_left))
        return STATUS_OK;
    return make_end(call);
}

static void complete(struct openai_call *call)
{
    if (!call->stream)
        openai_reply_json(call->exchange, call->name, &call->body);
    else if (send_frames(call) == STATUS_OK)
        http_exchange_end(call->exchange);
    else
        http_exchange_abort(call->exchange);
}

static void fail(struct openai_call *call, enum reason reason, const char *sentence)
{
    const char *param = NULL; /* the parameter that the reason is about */
    if (reason == REASON_NO_TOKEN_ALLOWED && call->has_bias)
        param = "logit_bias";
    else if (reason == REASON_NO_TOKEN_ALLOWED || reason == REASON_INVALID_CONSTRAINT)
        param = call->constraint_param;
    if (reason == REASON_SLOW_READER || reason == REASON_CANCELLED) {
        http_exchange_abort(call->exchange);
    } else if (!call->started) {
        openai_reply_refusal(call->exchange, call->name,
                             &(struct openai_why){.reason = reason,
                                                  .param = param,
                                                  .sentence = sentence,
                                                  .retry_after_s = call->retry_after_s});
    } else {
        str_clear(&call->frames);
        openai_chunk_error(&call->frames, reason, sentence);
        if (send_frames(call) == STATUS_OK)
            http_exchange_end(call->exchange);
        else
            http_exchange_abort(call->exchange);
    }
}

static void on_retry_after(void *handle, uint32_t seconds)
{
    ((struct openai_call *)handle)->retry_after_s = seconds;
}

static void on_status(void *handle, enum reason reason, const char *sentence)
{
    struct openai_call *call = handle;
    if (atomic_load(&call->client_left))
        return;
    if (reason)
        fail(call, reason, sentence);
    else
        complete(call);
}

/* Sends a comment, which clients pass over, so that no proxy takes the connection for dead. It
 * begins the stream: what fails after it is told in a frame. Due times are in whole steps, so that
 * many calls are looked at together. */
static uint64_t on_keep_alive(void *handle, uint64_t now_us)
{
    struct openai_call *call = handle;
    uint64_t every_us = call->api->keepalive_us, step_us = every_us / 16 + 1;
    if (!every_us || !call->stream || atomic_load(&call->client_left))
        return UINT64_MAX;
    if (!call->heard_us)
        call->heard_us = now_us;
    if (now_us - call->heard_us >= every_us) {
        str_add(&call->frames, OPENAI_KEEP_ALIVE);
        /* A client that doesn't read it is found by the next delta, or by the server. */
        (void)!send_frames(call);
        call->heard_us = now_us;
    }
    uint64_t due_us = call->heard_us + every_us;
    return due_us + step_us - due_us % step_us;
}

static void unref(void *handle)
{
    openai_call_unref(handle);
}

enum reason openai_call_admit(struct openai_call *call, struct error *err)
{
    static const struct call_client_ops ops = {
        .delta = on_delta,
        .prompt_logprobs = on_prompt_logprobs,
        .choice = on_choice,
        .retry_after = on_retry_after,
        .status = on_status,
        .keep_alive = on_keep_alive,
        .ref = ref,
        .unref = unref,
    };
    struct dispatch *dispatch = call->api->dispatch;
    /* More choices than a request may have are refused when it is parsed. */
    uint32_t choices =
        call->choices_each < REQUEST_MAX_CHOICES ? call->choices_each : REQUEST_MAX_CHOICES;
    for (uint32_t i = 0; i < call->prompt_count; i++) {
        enum reason reason =
            dispatch_admit(dispatch, (struct call_client){&ops, call}, &call->calls[i]);
        if (reason) {
            error_set(err, STATUS_LIMIT, "%s", reason_when(reason));
            return reason;
        }
        call->calls[i]->tenant = call->tenant;
        reason = dispatch_reserve(dispatch, call->calls[i], call->model, choices);
        if (reason) {
            served_models_say_full(call->api->models, call->model, err);
            return reason;
        }
    }
    return REASON_NONE;
}
