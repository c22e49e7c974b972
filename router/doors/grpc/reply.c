#include "router/doors/grpc/reply.h"

#include "common/net/rpc/message.h"
#include "proto/baton.pb-c.h"
#include "router/doors/grpc/reply_logprobs.h"

#include <stdio.h>
#include <string.h>

static enum status send_event(struct request *request, const Baton__V1__GenerateResponse *response)
{
    return rpc_call_send_message(request->client.handle, &response->base);
}

static void fill_prompt(const struct request *request, Baton__V1__Prompt *prompt)
{
    prompt->text = request->prompt_echo.text.data;
    if (!request->out.return_token_ids)
        return;
    prompt->n_token_ids = request->prompt_count;
    prompt->token_ids = request->prompt;
}

/* Before all else, once. */
static enum status reply_prompt(struct request *request)
{
    if (!request->prompt_echo.echo)
        return STATUS_OK;
    request->prompt_echo.echo = false;
    Baton__V1__Prompt prompt = BATON__V1__PROMPT__INIT;
    fill_prompt(request, &prompt);
    Baton__V1__GenerateResponse response = BATON__V1__GENERATE_RESPONSE__INIT;
    response.event_case = BATON__V1__GENERATE_RESPONSE__EVENT_PROMPT;
    response.prompt = &prompt;
    return send_event(request, &response);
}

static enum status reply_prompt_logprobs(struct request *request, uint32_t first,
                                         const struct token_logprobs *logprobs, uint32_t count)
{
    TRY(reply_prompt(request));
    struct reply_logprobs messages;
    if (!reply_logprobs_init(&messages, logprobs, count))
        return STATUS_LIMIT;
    Baton__V1__PromptLogprobs part = BATON__V1__PROMPT_LOGPROBS__INIT;
    part.first_index = first;
    part.n_logprobs = messages.count;
    part.logprobs = messages.pointers;
    Baton__V1__GenerateResponse response = BATON__V1__GENERATE_RESPONSE__INIT;
    response.event_case = BATON__V1__GENERATE_RESPONSE__EVENT_PROMPT_LOGPROBS;
    response.prompt_logprobs = &part;
    enum status status = send_event(request, &response);
    reply_logprobs_deinit(&messages);
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
    TRY(reply_prompt(request->first));
    Baton__V1__Delta delta = BATON__V1__DELTA__INIT;
    delta.choice = request->sampling.choice;
    delta.first_index = taken.first_index;
    delta.text = (char *)taken.text;
    delta.n_token_ids = taken.id_count;
    delta.token_ids = (uint32_t *)taken.ids;
    delta.n_logits_hashes = taken.hash_count;
    delta.logits_hashes = (uint64_t *)taken.hashes;
    struct reply_logprobs logprobs;
    if (!reply_logprobs_init(&logprobs, taken.logprobs, taken.logprobs_count))
        return STATUS_LIMIT;
    delta.n_logprobs = logprobs.count;
    delta.logprobs = logprobs.pointers;
    Baton__V1__GenerateResponse response = BATON__V1__GENERATE_RESPONSE__INIT;
    response.event_case = BATON__V1__GENERATE_RESPONSE__EVENT_DELTA;
    response.delta = &delta;
    enum status status = send_event(request, &response);
    reply_logprobs_deinit(&logprobs);
    return status;
}

/* Both enums count alike from EOS on; the wire's must not follow ours by accident. */
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

/* A Finished with room for the longest stop string. */
struct finished_room {
    Baton__V1__Finished message;
    char stop_string[REQUEST_MAX_STOP_BYTES + 1];
};

static void fill_finished(const struct request *request, struct finished_room *room)
{
    Baton__V1__Finished *finished = &room->message;
    baton__v1__finished__init(finished);
    finished->reason = finish_on_wire(request->finish);
    finished->choice = request->sampling.choice;
    size_t length;
    const char *stop = answer_deltas_stop(&request->out, &length);
    if (request->finish == FINISH_STOP_STRING && stop) {
        memcpy(room->stop_string, stop, length);
        room->stop_string[length] = 0;
        finished->matched_case = BATON__V1__FINISHED__MATCHED_STOP_STRING;
        finished->stop_string = room->stop_string;
    } else if ((request->finish == FINISH_STOP_TOKEN || request->finish == FINISH_EOS) &&
               request->emitted_count) {
        finished->matched_case = BATON__V1__FINISHED__MATCHED_STOP_TOKEN;
        finished->stop_token = request->emitted[request->emitted_count - 1];
    }
}

/* Of the last choice to end. */
static uint64_t last_us(const struct request *first)
{
    uint64_t last_us = first->timing.last_us;
    for (uint32_t i = 0; i < first->other_count; i++)
        if (first->others[i]->timing.last_us > last_us)
            last_us = first->others[i]->timing.last_us;
    return last_us;
}

static void fill_timing(const struct request *request, Baton__V1__Timing *timing)
{
    const struct request_timing *t = &request->timing;
    timing->queue_us = t->dispatched_us - t->arrival_us;
    timing->ttft_us = t->first_us - t->arrival_us;
    timing->total_us = last_us(request) - t->arrival_us;
    if (request->emitted_count > 1) {
        timing->tpot_us = (double)(t->last_us - t->first_us) / (request->emitted_count - 1);
        timing->token_1_to_2_us = t->second_us - t->first_us;
    }
    timing->prefill_worker = (char *)t->prefill_worker;
    timing->decode_worker = (char *)t->decode_worker;
    timing->lane = (char *)t->lane;
    timing->kv_bytes = t->kv_bytes;
    timing->kv_bytes_before_complete = t->kv_bytes_before_complete;
    timing->prefills = request->life.runs;
    timing->seed = request->sampling.seed;
}

/* The two messages that follow the last Finished. */
static enum status send_end(struct request *request, Baton__V1__Usage *usage,
                            Baton__V1__Timing *timing)
{
    Baton__V1__GenerateResponse response = BATON__V1__GENERATE_RESPONSE__INIT;
    response.event_case = BATON__V1__GENERATE_RESPONSE__EVENT_USAGE;
    response.usage = usage;
    TRY(send_event(request, &response));
    if (!request->return_timing)
        return STATUS_OK;
    response.event_case = BATON__V1__GENERATE_RESPONSE__EVENT_TIMING;
    response.timing = timing;
    return send_event(request, &response);
}

/* A whole answer of one message. Nothing was taken before, so the one delta is all of it. */
struct choice_room {
    Baton__V1__Choice message;
    struct finished_room finished;
    struct reply_logprobs logprobs;
};

/* STATUS_LIMIT: text was lost, or no memory; nothing is to be freed then. */
static enum status fill_choice(struct request *request, struct choice_room *room)
{
    struct stream_delta whole;
    answer_deltas_take(&request->out, &whole);
    if (answer_deltas_overflowed(&request->out) ||
        !reply_logprobs_init(&room->logprobs, whole.logprobs, whole.logprobs_count))
        return STATUS_LIMIT;
    fill_finished(request, &room->finished);
    baton__v1__choice__init(&room->message);
    room->message.text = (char *)whole.text;
    room->message.n_token_ids = whole.id_count;
    room->message.token_ids = (uint32_t *)whole.ids;
    room->message.n_logits_hashes = whole.hash_count;
    room->message.logits_hashes = (uint64_t *)whole.hashes;
    room->message.n_logprobs = room->logprobs.count;
    room->message.logprobs = room->logprobs.pointers;
    room->message.finished = &room->finished.message;
    return STATUS_OK;
}

static void fill_first(const struct request *request, const Baton__V1__Choice *choice,
                       Baton__V1__GenerateResult *result)
{
    result->request_id = (char *)request->name;
    result->text = choice->text;
    result->n_token_ids = choice->n_token_ids;
    result->token_ids = choice->token_ids;
    result->n_logits_hashes = choice->n_logits_hashes;
    result->logits_hashes = choice->logits_hashes;
    result->n_logprobs = choice->n_logprobs;
    result->logprobs = choice->logprobs;
    result->finished = choice->finished;
}

static enum status send_with_prompt(struct request *request, Baton__V1__GenerateResult *result)
{
    const struct prompt_echo *out = &request->prompt_echo;
    struct reply_logprobs logprobs;
    if (!reply_logprobs_init(&logprobs, out->kept, out->kept ? out->next - 1 : 0))
        return STATUS_LIMIT;
    Baton__V1__Prompt prompt = BATON__V1__PROMPT__INIT;
    fill_prompt(request, &prompt);
    result->prompt = out->echo ? &prompt : NULL;
    result->n_prompt_logprobs = logprobs.count;
    result->prompt_logprobs = logprobs.pointers;
    enum status status = rpc_call_send_message(request->client.handle, &result->base);
    reply_logprobs_deinit(&logprobs);
    return status;
}

static enum status send_result(struct request *first, Baton__V1__Usage *usage,
                               Baton__V1__Timing *timing)
{
    struct choice_room rooms[REQUEST_MAX_CHOICES];
    Baton__V1__Choice *others[REQUEST_MAX_CHOICES];
    Baton__V1__GenerateResult result = BATON__V1__GENERATE_RESULT__INIT;
    enum status status = STATUS_OK;
    uint32_t filled = 0;
    for (; filled <= first->other_count && status == STATUS_OK; filled += status == STATUS_OK) {
        status = fill_choice(filled ? first->others[filled - 1] : first, &rooms[filled]);
        if (filled)
            others[filled - 1] = &rooms[filled].message;
    }
    if (status == STATUS_OK) {
        fill_first(first, &rooms[0].message, &result);
        result.n_others = first->other_count;
        result.others = others;
        result.usage = usage;
        result.timing = first->return_timing ? timing : NULL;
        status = send_with_prompt(first, &result);
    }
    for (uint32_t i = 0; i < filled; i++)
        reply_logprobs_deinit(&rooms[i].logprobs);
    return status;
}

static enum status reply_choice(struct request *request, enum finish_reason finish)
{
    request->finish = answer_deltas_end(&request->out, finish);
    request->first->completion_tokens += request->emitted_count;
    if (request->once)
        return STATUS_OK;
    TRY(reply_prompt(request->first));
    TRY(reply_delta(request));
    struct finished_room finished;
    fill_finished(request, &finished);
    Baton__V1__GenerateResponse response = BATON__V1__GENERATE_RESPONSE__INIT;
    response.event_case = BATON__V1__GENERATE_RESPONSE__EVENT_FINISHED;
    response.finished = &finished.message;
    return send_event(request, &response);
}

static enum status reply_end(struct request *first)
{
    Baton__V1__Usage usage = BATON__V1__USAGE__INIT;
    Baton__V1__Timing timing = BATON__V1__TIMING__INIT;
    usage.prompt_tokens = first->prompt_count;
    usage.completion_tokens = first->completion_tokens;
    fill_timing(first, &timing);
    return first->once ? send_result(first, &usage, &timing) : send_end(first, &usage, &timing);
}

static void end(struct request *request, enum reason reason, const char *sentence)
{
    reply_status(request->client.handle, reason, sentence);
}

static void drop_queued(void *handle)
{
    rpc_call_drop_queued(handle);
}

static size_t queued_bytes(void *handle)
{
    return rpc_call_queued_bytes(handle);
}

static void break_off(void *handle, enum reason reason, const char *sentence)
{
    rpc_call_break(handle, reason_code(reason), sentence);
}

static void ref(void *handle)
{
    rpc_call_ref(handle);
}

static void unref(void *handle)
{
    rpc_call_unref(handle);
}

struct request_client reply_client(struct rpc_call *call)
{
    static const struct request_client_ops ops = {
        .delta = reply_delta,
        .prompt_logprobs = reply_prompt_logprobs,
        .choice = reply_choice,
        .end = reply_end,
        .status = end,
        .drop_queued = drop_queued,
        .queued_bytes = queued_bytes,
        .break_off = break_off,
        .ref = ref,
        .unref = unref,
    };
    return (struct request_client){&ops, call};
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
    char seconds[16];
    snprintf(seconds, sizeof seconds, "%u", retry_after_s);
    if (retry_after_s)
        (void)!rpc_call_add_trailer(call, "retry-after", seconds); /* fails for one that is over */
    reply_status(call, reason, sentence);
}
