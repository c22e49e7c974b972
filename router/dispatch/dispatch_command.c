#include "common/base/failpoint.h"
#include "common/base/log.h"
#include "common/base/str.h"
#include "router/dispatch/dispatch_internal.h"

/* A Sampling with room for its biases and its constraint. */
struct sampling_room {
    Baton__Worker__V1__Sampling message;
    uint32_t bias_ids[SAMPLING_MAX_BIASES];
    float biases[SAMPLING_MAX_BIASES];
    Baton__Worker__V1__Constraint constraint;
};

static Baton__Worker__V1__Sampling *sampling_message(const struct request *request,
                                                     struct sampling_room *room)
{
    const struct sampling *sampling = &request->sampling;
    Baton__Worker__V1__Sampling *message = &room->message;
    baton__worker__v1__sampling__init(message);
    message->temperature = sampling->temperature;
    message->top_k = sampling->top_k;
    message->top_p = sampling->top_p;
    message->min_p = sampling->min_p;
    message->presence_penalty = sampling->presence_penalty;
    message->frequency_penalty = sampling->frequency_penalty;
    message->repetition_penalty = sampling->repetition_penalty;
    message->seed = sampling->seed;
    message->choice = sampling->choice;
    message->max_tokens = sampling->max_tokens;
    message->min_tokens = sampling->min_tokens;
    message->ignore_eos = sampling->ignore_eos;
    message->logprobs = sampling->logprobs;
    message->top_logprobs = sampling->top_logprobs;
    message->prompt_logprobs = prompt_echo_waits(&request->prompt_echo);
    message->top_prompt_logprobs = sampling->top_prompt_logprobs;
    message->prompt_logprobs_from = request->prompt_echo.next;
    message->n_stop_ids = sampling->stop_id_count;
    message->stop_ids = (uint32_t *)sampling->stop_ids; /* packing only reads */
    message->logits_hash = request->return_logits_hash;
    message->n_bias_ids = message->n_biases = sampling->bias_count;
    message->bias_ids = room->bias_ids;
    message->biases = room->biases;
    for (uint32_t i = 0; i < sampling->bias_count; i++) {
        room->bias_ids[i] = sampling->biases[i].id;
        room->biases[i] = sampling->biases[i].bias;
    }
    if (request->constraint) {
        baton__worker__v1__constraint__init(&room->constraint);
        room->constraint.kind = (Baton__Worker__V1__ConstraintKind)request->constraint->kind;
        room->constraint.text = request->constraint->text;
        message->constraint = &room->constraint;
    }
    return message;
}

/* Packing only reads. */
static ProtobufCBinaryData salt_of(const struct request *request)
{
    return (ProtobufCBinaryData){request->cache_salt_bytes, (uint8_t *)request->cache_salt};
}

/* What can't be sent is not lost: the stream ends, and the loss of the session tells
 * request_life. */
static void send_command(struct worker *worker, const Baton__Worker__V1__SessionDown *command)
{
    if (worker_link_send(worker->link, command) != STATUS_LIMIT)
        return;
    log_error_limited("dispatch",
                      "worker=%s msg=\"doesn't read its commands: closing the session\"",
                      worker->info.name);
    worker_link_close(worker->link);
}

static void send_prefill(struct dispatch *dispatch, struct request *request, struct worker *worker,
                         const struct life_action *action)
{
    struct sampling_room room;
    Baton__Worker__V1__Prefill prefill = BATON__WORKER__V1__PREFILL__INIT;
    prefill.request = request->id;
    prefill.attempt = action->attempt;
    prefill.n_prompt = request->prompt_count;
    prefill.prompt = request->prompt;
    prefill.n_emitted = action->emitted_count;
    prefill.emitted = request->emitted;
    prefill.sampling = sampling_message(request, &room);
    prefill.request_name = request->name;
    prefill.cache_salt = salt_of(request);
    prefill.priority = (Baton__Worker__V1__Priority)request->priority;
    Baton__Worker__V1__SessionDown command = BATON__WORKER__V1__SESSION_DOWN__INIT;
    command.command_case = BATON__WORKER__V1__SESSION_DOWN__COMMAND_PREFILL;
    command.prefill = &prefill;

    request->prefilled = request->confirmed = false;
    str_copy(request->timing.prefill_worker, sizeof request->timing.prefill_worker,
             worker->info.name);
    request_trace_prefill_sent(&request->trace, worker->info.name);
    counter_add(dispatch->config.metrics->models[request->model].prefill_runs, 1);
    if (!FAILPOINT_FAILS("router.send_prefill"))
        send_command(worker, &command);
}

static void send_decode(struct dispatch *dispatch, struct request *request, struct worker *worker,
                        const struct life_action *action)
{
    struct sampling_room room;
    Baton__Worker__V1__Decode decode = BATON__WORKER__V1__DECODE__INIT;
    decode.request = request->id;
    decode.attempt = action->attempt;
    decode.n_prompt = request->prompt_count;
    decode.prompt = request->prompt;
    decode.n_emitted = action->emitted_count;
    decode.emitted = request->emitted;
    decode.sampling = sampling_message(request, &room);
    decode.request_name = request->name;
    decode.cache_salt = salt_of(request);
    decode.priority = (Baton__Worker__V1__Priority)request->priority;
    if (action->with_handle) {
        decode.handle = &request->handle;
        decode.source_address = request->source_address;
        decode.source_name = request->timing.prefill_worker;
    } else {
        *request->timing.prefill_worker = 0;
        counter_add(dispatch->config.metrics->models[request->model].local_prefills, 1);
    }
    Baton__Worker__V1__SessionDown command = BATON__WORKER__V1__SESSION_DOWN__INIT;
    command.command_case = BATON__WORKER__V1__SESSION_DOWN__COMMAND_DECODE;
    command.decode = &decode;

    request->confirmed = false;
    str_copy(request->timing.decode_worker, sizeof request->timing.decode_worker,
             worker->info.name);
    request_trace_decode_sent(&request->trace, worker->info.name, !action->with_handle,
                              dispatch->now_us);
    if (!FAILPOINT_FAILS("router.send_decode"))
        send_command(worker, &command);
}

static void send_release(struct request *request, struct worker *worker,
                         const struct life_action *action)
{
    Baton__Worker__V1__Release release = BATON__WORKER__V1__RELEASE__INIT;
    release.request = request->id;
    release.attempt = action->attempt;
    Baton__Worker__V1__SessionDown command = BATON__WORKER__V1__SESSION_DOWN__INIT;
    command.command_case = BATON__WORKER__V1__SESSION_DOWN__COMMAND_RELEASE;
    command.release = &release;
    if (!FAILPOINT_FAILS("router.send_release"))
        send_command(worker, &command);
}

void worker_command(struct dispatch *dispatch, struct request *request,
                    const struct life_action *action)
{
    struct worker *worker = workers_get(&dispatch->workers, action->worker);
    if (!worker || !worker->link || !worker->link->up)
        return; /* its session is down: that was said, or is about to be */
    switch (action->kind) {
    case LIFE_SEND_PREFILL: send_prefill(dispatch, request, worker, action); break;
    case LIFE_SEND_DECODE: send_decode(dispatch, request, worker, action); break;
    default: send_release(request, worker, action);
    }
}
