#include "router/doors/openai/openai_call_out.h"

#include "common/base/clock.h"
#include "router/doors/openai/openai_call_choice.h"
#include "router/doors/openai/openai_reply.h"

static struct openai_call_choice *choice_of(const struct request *request)
{
    const struct openai_call_prompt *prompt = request->client.handle;
    struct openai_call *call = prompt->call;
    return &call->choices[prompt->index * call->choices_each + request->sampling.choice];
}

/* The head goes out with the first frame, so that what is refused before still
 * has a status of its own. */
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

static bool is_over(const struct openai_call *call)
{
    return call->over || atomic_load(&call->client_left);
}

/* --- what comes --- */

static enum status on_prompt_logprobs(struct request *request, uint32_t first,
                                      const struct token_logprobs *logprobs, uint32_t count)
{
    struct openai_call_choice *choice = choice_of(request);
    if (is_over(choice->call))
        return STATUS_CANCELLED;
    openai_call_choice_prompt_logprobs(choice, request, first, logprobs, count);
    return send_frames(choice->call);
}

static enum status on_delta(struct request *request)
{
    struct openai_call_choice *choice = choice_of(request);
    struct stream_delta taken;
    if (is_over(choice->call))
        return STATUS_CANCELLED;
    bool something = answer_deltas_take(&request->out, &taken);
    if (answer_deltas_overflowed(&request->out))
        return STATUS_LIMIT;
    if (!something)
        return STATUS_OK;
    openai_call_choice_delta(choice, request, &taken);
    return send_frames(choice->call);
}

static enum status on_choice(struct request *request, enum finish_reason finish)
{
    struct openai_call_choice *choice = choice_of(request);
    struct stream_delta taken;
    if (is_over(choice->call))
        return STATUS_CANCELLED;
    finish = answer_deltas_end(&request->out, finish);
    answer_deltas_take(&request->out, &taken);
    if (answer_deltas_overflowed(&request->out))
        return STATUS_LIMIT;
    request->first->completion_tokens += request->emitted_count;
    TRY(openai_call_choice_end(choice, request, &taken, finish));
    return choice->call->stream ? send_frames(choice->call) : STATUS_OK;
}

/* --- the end --- */

/* What of the request the reason is about, where that is found out on the way only. */
static const char *param_of(const struct openai_call *call, enum reason reason)
{
    if (reason == REASON_INVALID_CONSTRAINT)
        return call->constraint_param;
    if (reason == REASON_NO_TOKEN_ALLOWED)
        return call->has_bias ? "logit_bias" : call->constraint_param;
    return NULL;
}

/* What the client is about to be told is the end of all of them. */
static void settle_prompts(struct openai_call *call)
{
    call->over = true;
    for (uint32_t i = 0; i < call->prompt_count; i++)
        dispatch_settle(call->api->dispatch, call->prompts[i].gone.request);
}

/* Those that waited for it. */
static void release_held(struct openai_call *call)
{
    for (uint32_t i = 0; i < call->prompt_count; i++)
        if (call->prompts[i].held)
            openai_call_release(&call->prompts[i]);
}

static void fail(struct openai_call *call, enum reason reason, const char *sentence)
{
    if (is_over(call))
        return;
    call->why = reason;
    settle_prompts(call);
    if (reason == REASON_SLOW_READER || reason == REASON_CANCELLED) {
        http_exchange_abort(call->exchange);
    } else if (!call->started) {
        openai_reply_error(call->exchange, call->name, reason, param_of(call, reason), sentence);
    } else {
        str_clear(&call->frames);
        openai_chunk_error(&call->frames, reason, sentence);
        if (send_frames(call) == STATUS_OK)
            http_exchange_end(call->exchange);
        else
            http_exchange_abort(call->exchange);
    }
    release_held(call);
}

static void complete(struct openai_call *call)
{
    if (is_over(call))
        return; /* and who ended it releases what is held */
    settle_prompts(call);
    if (!call->stream)
        openai_reply_json(call->exchange, call->name, &call->body);
    else if (send_frames(call) == STATUS_OK)
        http_exchange_end(call->exchange);
    else
        http_exchange_abort(call->exchange);
    release_held(call);
}

/* What complete() sends: here it is known whether it can be sent, and so how the request ends. */
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

static enum status on_end(struct request *first)
{
    struct openai_call *call = choice_of(first)->call;
    call->usage.prompt_tokens += first->prompt_count;
    call->usage.completion_tokens += first->completion_tokens;
    /* The last has ended well only if what follows all of them can be sent. */
    enum status status = call->open_count > 1 || is_over(call) ? STATUS_OK : make_end(call);
    call->open_count -= status == STATUS_OK;
    return status;
}

static void on_status(struct request *first, enum reason reason, const char *sentence)
{
    struct openai_call_prompt *prompt = first->client.handle;
    struct openai_call *call = prompt->call;
    if (reason)
        fail(call, reason, sentence);
    else if (!call->open_count)
        complete(call);
    prompt->held = !reason && !call->stream && call->open_count;
    if (!prompt->held)
        openai_call_release(prompt);
}

/* A whole answer is told with the last of its prompts. */
static bool on_told_later(const struct request *first)
{
    const struct openai_call *call = choice_of(first)->call;
    return !call->stream && call->open_count;
}

static enum reason on_why(const struct request *first)
{
    return choice_of(first)->call->why;
}

/* A comment, which clients pass over, so that no proxy takes the connection for dead. It begins the
 * stream: what fails behind it is told in a frame. Due times are in whole steps, so that many calls
 * are looked at together. */
static uint64_t on_keep_alive(struct request *first, uint64_t now_us)
{
    struct openai_call *call = choice_of(first)->call;
    uint64_t every_us = call->api->keepalive_us, step_us = every_us / 16 + 1;
    if (!every_us || !call->stream || is_over(call))
        return UINT64_MAX;
    if (!call->heard_us)
        call->heard_us = now_us;
    if (now_us - call->heard_us >= every_us) {
        str_add(&call->frames, OPENAI_KEEP_ALIVE);
        (void)!send_frames(
            call); /* who doesn't read it is found by the next delta, or by the server */
        call->heard_us = now_us;
    }
    uint64_t due_us = call->heard_us + every_us;
    return due_us + step_us - due_us % step_us;
}

static void on_drop_queued(void *handle)
{
    (void)handle; /* what follows breaks the answer off */
}

static size_t on_queued_bytes(void *handle)
{
    return http_exchange_unsent(((struct openai_call_prompt *)handle)->call->exchange);
}

static void on_break_off(void *handle, enum reason reason, const char *sentence)
{
    (void)reason;
    (void)sentence;
    http_exchange_abort(((struct openai_call_prompt *)handle)->call->exchange);
}

static void on_ref(void *handle)
{
    openai_call_ref(((struct openai_call_prompt *)handle)->call);
}

static void on_unref(void *handle)
{
    openai_call_unref(((struct openai_call_prompt *)handle)->call);
}

struct request_client openai_call_client(struct openai_call *call, uint32_t prompt)
{
    static const struct request_client_ops ops = {
        .delta = on_delta,
        .prompt_logprobs = on_prompt_logprobs,
        .choice = on_choice,
        .end = on_end,
        .status = on_status,
        .why = on_why,
        .told_later = on_told_later,
        .keep_alive = on_keep_alive,
        .drop_queued = on_drop_queued,
        .queued_bytes = on_queued_bytes,
        .break_off = on_break_off,
        .ref = on_ref,
        .unref = on_unref,
    };
    return (struct request_client){&ops, &call->prompts[prompt]};
}
