#include "router/doors/grpc/reply.h"

#include "common/net/rpc/message.h"
#include "proto/baton.pb-c.h"
#include "proto/proto_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Logprobs as messages of the public interface, which point into them. */
struct reply_logprobs {
    size_t count;
    Baton__V1__Logprobs **pointers; /* [count]; NULL: none */
    Baton__V1__Logprobs *messages;
};

static void deinit_logprobs(struct reply_logprobs *reply)
{
    free(reply->pointers);
    free(reply->messages);
}

/* False: no memory, and nothing to deinit. */
static bool init_logprobs(struct reply_logprobs *reply, const struct token_logprobs *logprobs,
                          size_t count)
{
    *reply = (struct reply_logprobs){.count = count};
    if (!count)
        return true;
    reply->pointers = calloc(count, sizeof(Baton__V1__Logprobs *));
    reply->messages = calloc(count, sizeof *reply->messages);
    if (!reply->pointers || !reply->messages) {
        deinit_logprobs(reply);
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        Baton__V1__Logprobs *message = reply->pointers[i] = &reply->messages[i];
        baton__v1__logprobs__init(message);
        message->drawn = logprobs[i].logprob;
        message->n_top_ids = message->n_top = logprobs[i].top_count;
        message->top_ids = (uint32_t *)logprobs[i].top_ids; /* packing only reads */
        message->top = (float *)logprobs[i].top_logprobs;
    }
    return true;
}

static enum status send_event(const struct call *call, const Baton__V1__GenerateResponse *response)
{
    return rpc_call_send_message(call->client.handle, &response->base);
}

static void fill_prompt(const struct call *call, Baton__V1__Prompt *prompt)
{
    const struct str *text = &call->prompt_echo.text;
    prompt->text = proto_bytes((struct text){text->data, text->length});
    if (!call->choices[0].out.return_token_ids)
        return;
    prompt->n_token_ids = call->prompt_count;
    prompt->token_ids = call->prompt;
}

/* Sends the prompt before anything else, once. */
static enum status reply_prompt(struct call *call)
{
    if (!call->prompt_echo.echo)
        return STATUS_OK;
    call->prompt_echo.echo = false;
    Baton__V1__Prompt prompt = BATON__V1__PROMPT__INIT;
    fill_prompt(call, &prompt);
    Baton__V1__GenerateResponse response = BATON__V1__GENERATE_RESPONSE__INIT;
    response.event_case = BATON__V1__GENERATE_RESPONSE__EVENT_PROMPT;
    response.prompt = &prompt;
    return send_event(call, &response);
}

static enum status reply_prompt_logprobs(struct call *call, uint32_t first,
                                         const struct token_logprobs *logprobs, uint32_t count)
{
    TRY(reply_prompt(call));
    struct reply_logprobs messages;
    if (!init_logprobs(&messages, logprobs, count))
        return STATUS_LIMIT;
    Baton__V1__PromptLogprobs part = BATON__V1__PROMPT_LOGPROBS__INIT;
    part.first_index = first;
    part.n_logprobs = messages.count;
    part.logprobs = messages.pointers;
    Baton__V1__GenerateResponse response = BATON__V1__GENERATE_RESPONSE__INIT;
    response.event_case = BATON__V1__GENERATE_RESPONSE__EVENT_PROMPT_LOGPROBS;
    response.prompt_logprobs = &part;
    enum status status = send_event(call, &response);
    deinit_logprobs(&messages);
    return status;
}

static enum status reply_delta(struct request *request)
{
    struct stream_delta taken;
    bool something = answer_deltas_take(&request->out, &taken);
    if (answer_deltas_overflowed(&request->out))
        return STATUS_LIMIT;
    if (!something)
        return STATUS_OK;
    TRY(reply_prompt(request->call));
    Baton__V1__Delta delta = BATON__V1__DELTA__INIT;
    delta.choice = request->choice;
    delta.first_index = taken.first_index;
    delta.text = proto_bytes(taken.text);
    delta.n_token_ids = taken.id_count;
    delta.token_ids = (uint32_t *)taken.ids;
    delta.n_logits_hashes = taken.hash_count;
    delta.logits_hashes = (uint64_t *)taken.hashes;
    struct reply_logprobs logprobs;
    if (!init_logprobs(&logprobs, taken.logprobs, taken.logprobs_count))
        return STATUS_LIMIT;
    delta.n_logprobs = logprobs.count;
    delta.logprobs = logprobs.pointers;
    Baton__V1__GenerateResponse response = BATON__V1__GENERATE_RESPONSE__INIT;
    response.event_case = BATON__V1__GENERATE_RESPONSE__EVENT_DELTA;
    response.delta = &delta;
    enum status status = send_event(request->call, &response);
    deinit_logprobs(&logprobs);
    return status;
}

/* Both enums count alike from EOS on, but the wire's must not follow ours by accident. */
static Baton__V1__FinishReason finish_on_wire(enum finish_reason finish)
{
    switch (finish) {
    case FINISH_NONE: break;
    case FINISH_EOS: return BATON__V1__FINISH_REASON__FINISH_REASON_EOS;
    case FINISH_STOP_TOKEN: return BATON__V1__FINISH_REASON__FINISH_REASON_STOP_TOKEN;
    case FINISH_STOP_STRING: return BATON__V1__FINISH_REASON__FINISH_REASON_STOP_STRING;
    case FINISH_MAX_TOKENS: return BATON__V1__FINISH_REASON__FINISH_REASON_MAX_TOKENS;
    case FINISH_CONTEXT: return BATON__V1__FINISH_REASON__FINISH_REASON_CONTEXT;
    case FINISH_COMPLETE: return BATON__V1__FINISH_REASON__FINISH_REASON_COMPLETE;
    }
    return BATON__V1__FINISH_REASON__FINISH_REASON_UNSPECIFIED;
}

static void fill_finished(const struct request *request, Baton__V1__Finished *finished)
{
    struct text stop;
    baton__v1__finished__init(finished);
    finished->reason = finish_on_wire(request->finish);
    finished->choice = request->choice;
    if (request->finish == FINISH_STOP_STRING && answer_deltas_stop(&request->out, &stop)) {
        finished->matched_case = BATON__V1__FINISHED__MATCHED_STOP_STRING;
        finished->stop_string = proto_bytes(stop);
    } else if ((request->finish == FINISH_STOP_TOKEN || request->finish == FINISH_EOS) &&
               request->emitted_count) {
        finished->matched_case = BATON__V1__FINISHED__MATCHED_STOP_TOKEN;
        finished->stop_token = request->emitted[request->emitted_count - 1];
    }
}

/* Fills in the times of the first choice, and those of the last token of any. */
static void fill_timing(const struct call *call, Baton__V1__Timing *timing)
{
    const struct request *first = &call->choices[0];
    const struct request_timing *t = &first->timing;
    uint64_t last_us = t->last_us;
    for (uint32_t i = 1; i < call->choice_count; i++)
        if (call->choices[i].timing.last_us > last_us)
            last_us = call->choices[i].timing.last_us;
    timing->queue_us = t->dispatched_us - t->arrival_us;
    timing->ttft_us = t->first_us - t->arrival_us;
    timing->total_us = last_us - t->arrival_us;
    if (first->emitted_count > 1) {
        timing->tpot_us = (double)(t->last_us - t->first_us) / (first->emitted_count - 1);
        timing->token_1_to_2_us = t->second_us - t->first_us;
    }
    timing->prefill_worker = (char *)t->prefill_worker;
    timing->decode_worker = (char *)t->decode_worker;
    timing->lane = (char *)t->lane;
    timing->kv_bytes = t->kv_bytes;
    timing->kv_bytes_before_complete = t->kv_bytes_before_complete;
    timing->prefills = first->life.runs;
    timing->seed = call->sampling.seed;
}

/* Sends the two messages that follow the last Finished. */
static enum status send_end(const struct call *call, Baton__V1__Usage *usage,
                            Baton__V1__Timing *timing)
{
    Baton__V1__GenerateResponse response = BATON__V1__GENERATE_RESPONSE__INIT;
    response.event_case = BATON__V1__GENERATE_RESPONSE__EVENT_USAGE;
    response.usage = usage;
    TRY(send_event(call, &response));
    if (!call->return_timing)
        return STATUS_OK;
    response.event_case = BATON__V1__GENERATE_RESPONSE__EVENT_TIMING;
    response.timing = timing;
    return send_event(call, &response);
}

/* A choice of a whole answer. Nothing was taken before, so its one delta is all of it. */
struct choice_room {
    Baton__V1__Choice message;
    Baton__V1__Finished finished;
    struct reply_logprobs logprobs;
};

/* STATUS_LIMIT: text was lost, or no memory. Nothing is to be freed then. */
static enum status fill_choice(struct request *request, struct choice_room *room)
{
    struct stream_delta whole;
    answer_deltas_take(&request->out, &whole);
    if (answer_deltas_overflowed(&request->out) ||
        !init_logprobs(&room->logprobs, whole.logprobs, whole.logprobs_count))
        return STATUS_LIMIT;
    fill_finished(request, &room->finished);
    baton__v1__choice__init(&room->message);
    room->message.text = proto_bytes(whole.text);
    room->message.n_token_ids = whole.id_count;
    room->message.token_ids = (uint32_t *)whole.ids;
    room->message.n_logits_hashes = whole.hash_count;
    room->message.logits_hashes = (uint64_t *)whole.hashes;
    room->message.n_logprobs = room->logprobs.count;
    room->message.logprobs = room->logprobs.pointers;
    room->message.finished = &room->finished;
    return STATUS_OK;
}

static enum status send_with_prompt(const struct call *call, Baton__V1__GenerateResult *result)
{
    const struct prompt_echo *echo = &call->prompt_echo;
    struct reply_logprobs logprobs;
    if (!init_logprobs(&logprobs, echo->kept, echo->kept ? echo->next - 1 : 0))
        return STATUS_LIMIT;
    Baton__V1__Prompt prompt = BATON__V1__PROMPT__INIT;
    fill_prompt(call, &prompt);
    result->prompt = echo->echo ? &prompt : NULL;
    result->n_prompt_logprobs = logprobs.count;
    result->prompt_logprobs = logprobs.pointers;
    enum status status = rpc_call_send_message(call->client.handle, &result->base);
    deinit_logprobs(&logprobs);
    return status;
}

static enum status send_result(struct call *call, Baton__V1__Usage *usage,
                               Baton__V1__Timing *timing)
{
    struct choice_room rooms[REQUEST_MAX_CHOICES];
    Baton__V1__Choice *others[REQUEST_MAX_CHOICES];
    Baton__V1__GenerateResult result = BATON__V1__GENERATE_RESULT__INIT;
    enum status status = STATUS_OK;
    uint32_t filled = 0;
    for (; filled < call->choice_count && status == STATUS_OK; filled += status == STATUS_OK) {
        status = fill_choice(&call->choices[filled], &rooms[filled]);
        if (filled)
            others[filled - 1] = &rooms[filled].message;
    }
    if (status == STATUS_OK) {
        const Baton__V1__Choice *first = &rooms[0].message;
        result.request_id = call->name;
        result.text = first->text;
        result.n_token_ids = first->n_token_ids;
        result.token_ids = first->token_ids;
        result.n_logits_hashes = first->n_logits_hashes;
        result.logits_hashes = first->logits_hashes;
        result.n_logprobs = first->n_logprobs;
        result.logprobs = first->logprobs;
        result.finished = first->finished;
        result.n_others = call->choice_count - 1;
        result.others = others;
        result.usage = usage;
        result.timing = call->return_timing ? timing : NULL;
        status = send_with_prompt(call, &result);
    }
    for (uint32_t i = 0; i < filled; i++)
        deinit_logprobs(&rooms[i].logprobs);
    return status;
}

static enum status reply_finished(struct request *request)
{
    TRY(reply_prompt(request->call));
    TRY(reply_delta(request));
    Baton__V1__Finished finished;
    fill_finished(request, &finished);
    Baton__V1__GenerateResponse response = BATON__V1__GENERATE_RESPONSE__INIT;
    response.event_case = BATON__V1__GENERATE_RESPONSE__EVENT_FINISHED;
    response.finished = &finished;
    return send_event(request->call, &response);
}

static enum status reply_choice(struct request *request, bool last)
{
    struct call *call = request->call;
    Baton__V1__Usage usage = BATON__V1__USAGE__INIT;
    Baton__V1__Timing timing = BATON__V1__TIMING__INIT;
    if (!call->once)
        TRY(reply_finished(request));
    if (!last)
        return STATUS_OK;
    usage.prompt_tokens = call->prompt_count;
    usage.completion_tokens = call->completion_tokens;
    fill_timing(call, &timing);
    return call->once ? send_result(call, &usage, &timing) : send_end(call, &usage, &timing);
}

static void end(void *handle, enum reason reason, const char *sentence)
{
    /* A status behind messages that the client doesn't read would not reach it. */
    if (reason == REASON_SLOW_READER)
        rpc_call_drop_queued(handle);
    reply_status(handle, reason, sentence);
}

static void add_retry_after(void *handle, uint32_t seconds)
{
    char text[16];
    snprintf(text, sizeof text, "%u", seconds);
    if (seconds)
        (void)!rpc_call_add_trailer(handle, "retry-after", text); /* fails for one that is over */
}

static size_t break_off(void *handle, enum reason reason, const char *sentence)
{
    size_t unsent_bytes = rpc_call_queued_bytes(handle);
    rpc_call_break(handle, reason_code(reason), sentence);
    return unsent_bytes;
}

static void ref(void *handle)
{
    rpc_call_ref(handle);
}

static void unref(void *handle)
{
    rpc_call_unref(handle);
}

struct call_client reply_client(struct rpc_call *call)
{
    static const struct call_client_ops ops = {
        .delta = reply_delta,
        .prompt_logprobs = reply_prompt_logprobs,
        .choice = reply_choice,
        .retry_after = add_retry_after,
        .status = end,
        .break_off = break_off,
        .ref = ref,
        .unref = unref,
    };
    return (struct call_client){&ops, call};
}

void reply_answer(struct rpc_call *call, const ProtobufCMessage *message, size_t limit_bytes)
{
    struct error why;
    if (rpc_call_send_message(call, message) != STATUS_LIMIT) {
        reply_status(call, REASON_NONE, NULL);
        return;
    }
    error_set(&why, STATUS_LIMIT,
              "the answer would have %zu bytes, and %zu may wait to be sent (client-buffer): ask "
              "for less at once",
              protobuf_c_message_get_packed_size(message), limit_bytes);
    reply_status(call, REASON_ANSWER_TOO_LARGE, why.text);
}

void reply_status(struct rpc_call *call, enum reason reason, const char *sentence)
{
    rpc_call_finish(call, reason_code(reason), reason_name(reason), reason ? sentence : NULL);
}

void reply_refusal(struct rpc_call *call, enum reason reason, const char *sentence,
                   uint32_t retry_after_s)
{
    add_retry_after(call, retry_after_s);
    reply_status(call, reason, sentence);
}
