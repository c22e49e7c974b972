#include "router/openai/openai_call_out.h"

#include "common/base/clock.h"
#include "router/openai/openai_logprobs.h"
#include "router/openai/openai_reply.h"
#include "router/openai/token_texts.h"

#include <stdlib.h>
#include <string.h>

/* One turn's news of a choice. */
struct news {
    const char *text;
    const struct openai_token *tokens;
    size_t token_count;
};

static struct openai_call_choice *choice_of(const struct request *request)
{
    const struct openai_call_prompt *prompt = request->client.handle;
    struct openai_call *call = prompt->call;
    return &call->choices[prompt->index * call->choices_each + request->sampling.choice];
}

static void add_chunk(struct openai_call_choice *choice, struct openai_piece piece)
{
    struct openai_call *call = choice->call;
    piece.usage = choice->usage;
    openai_chunk(&call->frames, &call->answer, &choice->whole.choice, &piece);
}

void openai_call_event(void *context, const struct tool_event *event)
{
    struct openai_call_choice *choice = context;
    struct openai_call *call = choice->call;
    if (call->one_tool_call && event->kind != TOOL_TEXT && event->index)
        return;
    if (!call->stream)
        openai_whole_event(&choice->whole, &call->answer, event);
    else if (event->kind == TOOL_TEXT)
        add_chunk(choice, (struct openai_piece){.text = event->text, .length = event->length});
    else
        add_chunk(choice, (struct openai_piece){.event = event});
}

static void give_text(struct openai_call_choice *choice, const char *text)
{
    struct tool_event event = {.kind = TOOL_TEXT, .text = text, .length = strlen(text)};
    if (choice->call->has_parser)
        tool_parser_push(&choice->parser, text, event.length);
    else if (event.length)
        openai_call_event(choice, &event);
}

/* Text and its tokens in one chunk; where text is held back for tool calls,
 * tokens have a chunk of their own. */
static void give_chunk(struct openai_call_choice *choice, const struct news *news)
{
    size_t length = choice->call->has_parser ? 0 : strlen(news->text);
    if (choice->call->has_parser)
        give_text(choice, news->text);
    if (!length && !news->token_count)
        return;
    add_chunk(choice, (struct openai_piece){.text = length ? news->text : "",
                                            .length = length,
                                            .tokens = news->tokens,
                                            .token_count = news->token_count});
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

static void note_usage(struct openai_call_choice *choice, const struct request *request)
{
    choice->usage = (struct openai_usage){request->prompt_count, request->emitted_count};
}

/* -------------------------------------------------------------------------------------
 * streams */

/* The prompt's text, once, with its first token: the others come with their
 * logprobs. */
static void give_echo(struct openai_call_choice *choice, struct request *request)
{
    if (choice->echoed || !request->first->prompt_out.echo)
        return;
    choice->echoed = true;
    const char *text = request->first->prompt_out.text.data;
    bool told = choice->call->answer.logprobs && request == request->first;
    struct openai_token *first =
        told ? token_texts_make(request->out.tokenizer, request->prompt, NULL, 1) : NULL;
    struct news news = {text, first, first ? 1 : 0};
    give_chunk(choice, &news);
    free(first);
    if (!told) /* the prompt's tokens are told of the first choice alone */
        choice->whole.choice.characters += openai_characters(text, strlen(text));
}

static enum status on_prompt_logprobs(struct request *request, uint32_t first,
                                      const struct token_logprobs *logprobs, uint32_t count)
{
    struct openai_call_choice *choice = choice_of(request);
    if (is_over(choice->call))
        return STATUS_CANCELLED;
    note_usage(choice, request);
    give_echo(choice, request);
    struct openai_token *tokens =
        token_texts_make(request->out.tokenizer, request->prompt + first, logprobs, count);
    struct news news = {"", tokens, tokens ? count : 0};
    give_chunk(choice, &news);
    free(tokens);
    return send_frames(choice->call);
}

/* What ended the answer is no text, and so no token of it. */
static size_t shown_tokens(const struct stream_delta *taken, enum finish_reason finish)
{
    bool ends = finish == FINISH_EOS || finish == FINISH_STOP_TOKEN;
    return taken->id_count - (ends && taken->id_count);
}

static void give_taken(struct openai_call_choice *choice, struct request *request,
                       const struct stream_delta *taken, enum finish_reason finish)
{
    size_t count = choice->call->answer.logprobs ? shown_tokens(taken, finish) : 0;
    struct openai_token *tokens =
        token_texts_make(request->out.tokenizer, taken->ids, taken->logprobs, count);
    struct news news = {taken->text, tokens, tokens ? count : 0};
    give_echo(choice, request);
    give_chunk(choice, &news);
    free(tokens);
}

static enum status on_delta(struct request *request)
{
    struct openai_call_choice *choice = choice_of(request);
    struct stream_delta taken;
    if (is_over(choice->call))
        return STATUS_CANCELLED;
    bool something = stream_out_take(&request->out, &taken);
    if (stream_out_overflowed(&request->out))
        return STATUS_LIMIT;
    if (!something)
        return STATUS_OK;
    note_usage(choice, request);
    give_taken(choice, request, &taken, FINISH_NONE);
    return send_frames(choice->call);
}

static enum status end_stream(struct openai_call_choice *choice, struct request *request,
                              const struct stream_delta *rest, enum finish_reason finish)
{
    struct openai_call *call = choice->call;
    give_taken(choice, request, rest, finish);
    if (call->has_parser)
        tool_parser_end(&choice->parser, openai_finish_cut(finish));
    openai_chunk_end(&call->frames, &call->answer, &choice->whole.choice, finish, &choice->usage);
    return send_frames(call);
}

/* --------------------------------------------------------------------------------
 * whole objects */

/* Of an echo the prompt's tokens come first, of which the first has no logprob.
 */
static enum status keep_logprobs(struct openai_call_choice *choice, const struct request *request,
                                 const struct stream_delta *taken, enum finish_reason finish)
{
    const struct prompt_out *prompt = &request->first->prompt_out;
    size_t count = shown_tokens(taken, finish), before = prompt->kept ? request->prompt_count : 0;
    uint32_t *ids = malloc((before + count + 1) * sizeof *ids);
    struct token_logprobs *logprobs = calloc(before + count + 1, sizeof *logprobs);
    struct openai_token *tokens = NULL;
    if (ids && logprobs) {
        if (before) {
            memcpy(ids, request->prompt, before * sizeof *ids);
            memcpy(logprobs + 1, prompt->kept, (before - 1) * sizeof *logprobs);
        }
        if (count) {
            memcpy(ids + before, taken->ids, count * sizeof *ids);
            memcpy(logprobs + before, taken->logprobs, count * sizeof *logprobs);
        }
        tokens = token_texts_make(request->out.tokenizer, ids, logprobs, before + count);
    }
    bool fine = tokens || !(before + count);
    if (fine)
        openai_whole_tokens(&choice->whole, &choice->call->answer, tokens, before + count);
    free(tokens);
    free(logprobs);
    free(ids);
    return fine ? STATUS_OK : STATUS_LIMIT;
}

static enum status end_whole(struct openai_call_choice *choice, struct request *request,
                             const struct stream_delta *taken, enum finish_reason finish)
{
    if (request->first->prompt_out.echo)
        give_text(choice, request->first->prompt_out.text.data);
    give_text(choice, taken->text);
    if (choice->call->has_parser)
        tool_parser_end(&choice->parser, openai_finish_cut(finish));
    choice->whole.finish = finish;
    if (choice->call->answer.logprobs)
        TRY(keep_logprobs(choice, request, taken, finish));
    return openai_whole_truncated(&choice->whole) ? STATUS_LIMIT : STATUS_OK;
}

/* -------------------------------------------------------------------------------------
 * the end */

static enum status on_choice(struct request *request, enum finish_reason finish)
{
    struct openai_call_choice *choice = choice_of(request);
    struct stream_delta taken;
    if (is_over(choice->call))
        return STATUS_CANCELLED;
    finish = stream_out_end(&request->out, finish);
    stream_out_take(&request->out, &taken);
    if (stream_out_overflowed(&request->out))
        return STATUS_LIMIT;
    request->first->completion_tokens += request->emitted_count;
    note_usage(choice, request);
    return choice->call->stream ? end_stream(choice, request, &taken, finish)
                                : end_whole(choice, request, &taken, finish);
}

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
static void settle(struct openai_call *call)
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
    settle(call);
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
    settle(call);
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

/* A comment, which clients pass over, so that no proxy takes the connection for dead. It begins the stream: what fails behind it is told in
 * a frame. Due times are in whole steps, so that many calls are looked at together. */
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
