#include "router/reply.h"

#include "common/rpc/message.h"
#include "proto/baton.pb-c.h"

#include <string.h>

static enum status send_event(struct request *request, const Baton__V1__GenerateResponse *response)
{
    return rpc_call_send_message(request->call, &response->base);
}

enum status reply_delta(struct request *request)
{
    struct stream_delta taken;
    bool something = stream_out_take(&request->out, &taken);
    if (stream_out_overflowed(&request->out))
        return STATUS_LIMIT;
    if (!something)
        return STATUS_OK;
    Baton__V1__Delta delta = BATON__V1__DELTA__INIT;
    delta.first_index = taken.first_index;
    delta.text = (char *)taken.text;
    delta.n_token_ids = taken.id_count;
    delta.token_ids = (uint32_t *)taken.ids;
    delta.n_logits_hashes = taken.hash_count;
    delta.logits_hashes = (uint64_t *)taken.hashes;
    Baton__V1__GenerateResponse response = BATON__V1__GENERATE_RESPONSE__INIT;
    response.event_case = BATON__V1__GENERATE_RESPONSE__EVENT_DELTA;
    response.delta = &delta;
    return send_event(request, &response);
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
    }
    return BATON__V1__FINISH_REASON__FINISH_REASON_UNSPECIFIED;
}

/* `stop_string` has room for the longest one. */
static void fill_finished(const struct request *request, enum finish_reason finish,
                          Baton__V1__Finished *finished, char *stop_string)
{
    finished->reason = finish_on_wire(finish);
    size_t length;
    const char *stop = stream_out_stop(&request->out, &length);
    if (finish == FINISH_STOP_STRING && stop) {
        memcpy(stop_string, stop, length);
        stop_string[length] = 0;
        finished->matched_case = BATON__V1__FINISHED__MATCHED_STOP_STRING;
        finished->stop_string = stop_string;
    } else if ((finish == FINISH_STOP_TOKEN || finish == FINISH_EOS) && request->emitted_count) {
        finished->matched_case = BATON__V1__FINISHED__MATCHED_STOP_TOKEN;
        finished->stop_token = request->emitted[request->emitted_count - 1];
    }
}

static void fill_timing(const struct request *request, Baton__V1__Timing *timing)
{
    const struct request_timing *t = &request->timing;
    timing->queue_us = t->dispatched_us - t->arrival_us;
    timing->ttft_us = t->first_us - t->arrival_us;
    timing->total_us = t->last_us - t->arrival_us;
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

/* The three messages that follow the last delta. */
static enum status send_end(struct request *request, Baton__V1__Finished *finished,
                            Baton__V1__Usage *usage, Baton__V1__Timing *timing)
{
    TRY(reply_delta(request));
    Baton__V1__GenerateResponse response = BATON__V1__GENERATE_RESPONSE__INIT;
    response.event_case = BATON__V1__GENERATE_RESPONSE__EVENT_FINISHED;
    response.finished = finished;
    TRY(send_event(request, &response));
    response.event_case = BATON__V1__GENERATE_RESPONSE__EVENT_USAGE;
    response.usage = usage;
    TRY(send_event(request, &response));
    if (!request->return_timing)
        return STATUS_OK;
    response.event_case = BATON__V1__GENERATE_RESPONSE__EVENT_TIMING;
    response.timing = timing;
    return send_event(request, &response);
}

/* Nothing was taken before, so the one delta is the whole answer. */
static enum status send_result(struct request *request, Baton__V1__Finished *finished,
                               Baton__V1__Usage *usage, Baton__V1__Timing *timing)
{
    struct stream_delta whole;
    stream_out_take(&request->out, &whole);
    if (stream_out_overflowed(&request->out))
        return STATUS_LIMIT;
    Baton__V1__GenerateResult result = BATON__V1__GENERATE_RESULT__INIT;
    result.request_id = request->name;
    result.text = (char *)whole.text;
    result.n_token_ids = whole.id_count;
    result.token_ids = (uint32_t *)whole.ids;
    result.n_logits_hashes = whole.hash_count;
    result.logits_hashes = (uint64_t *)whole.hashes;
    result.finished = finished;
    result.usage = usage;
    result.timing = request->return_timing ? timing : NULL;
    return rpc_call_send_message(request->call, &result.base);
}

enum status reply_finished(struct request *request, enum finish_reason finish)
{
    char stop_string[REQUEST_MAX_STOP_BYTES + 1];
    Baton__V1__Finished finished = BATON__V1__FINISHED__INIT;
    Baton__V1__Usage usage = BATON__V1__USAGE__INIT;
    Baton__V1__Timing timing = BATON__V1__TIMING__INIT;
    finish = stream_out_end(&request->out, finish);
    fill_finished(request, finish, &finished, stop_string);
    usage.prompt_tokens = request->prompt_count;
    usage.completion_tokens = request->emitted_count;
    fill_timing(request, &timing);
    return request->once ? send_result(request, &finished, &usage, &timing)
                         : send_end(request, &finished, &usage, &timing);
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
