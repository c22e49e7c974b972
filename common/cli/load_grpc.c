/* The half of the client that speaks baton.v1 over gRPC: one connection, a call for each
 * request. The rpc thread stamps messages and posts them to a ring. */
#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/ring.h"
#include "common/cli/load_run.h"
#include "proto/proto_text.h"
#include "proto/proto_unpack.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RING_EVENTS       (1u << 17)
#define MOST_UNSENT_BYTES (80u << 20) /* one call's */
#define METHOD            "/baton.v1.Baton/Generate"

struct load_grpc {
    const struct load_target *target;
    void (*ended)(void *context, uint32_t id);
    void *context;
    struct rpc_runtime *runtime;
    struct rpc_channel *channel;
    struct ring *ring;
    char bearer[GENERATE_MAX_KEY_BYTES + sizeof "Bearer "];
};

struct call {
    struct load_grpc *grpc;
    uint32_t id;
    struct load_answer *answer;
    struct rpc_call *rpc; /* NULL: it couldn't be started */
    bool overflow;        /* only the rpc thread's */
};

struct event {
    struct call *call;
    uint64_t now_ns;
    bool ended, overflow;
    enum rpc_code code;
    char reason[48], message[200];
    size_t size;
    unsigned char data[];
};

static struct event *event_create(struct call *call, size_t size)
{
    struct event *event = calloc(1, sizeof *event + size);
    ASSERT(event);
    event->call = call;
    event->now_ns = clock_now_ns();
    event->size = size;
    return event;
}

/* Leaves room for the ends of all calls. */
static void on_message(struct rpc_call *rpc, struct rpc_bytes bytes)
{
    struct call *call = rpc_call_context(rpc);
    if (call->overflow || ring_count(call->grpc->ring) > RING_EVENTS / 2) {
        call->overflow = true;
        rpc_call_cancel(rpc);
        return;
    }
    struct event *event = event_create(call, bytes.size);
    memcpy(event->data, bytes.data, bytes.size);
    enum status pushed = ring_push(call->grpc->ring, event);
    ASSERT(pushed == STATUS_OK);
}

static void on_closed(struct rpc_call *rpc, const struct rpc_end *end)
{
    struct call *call = rpc_call_context(rpc);
    struct event *event = event_create(call, 0);
    event->ended = true;
    event->overflow = call->overflow;
    event->code = end->code;
    str_copy(event->reason, sizeof event->reason,
             *end->reason ? end->reason : rpc_code_name(end->code));
    str_copy(event->message, sizeof event->message, end->message);
    enum status pushed = ring_push(call->grpc->ring, event);
    ASSERT(pushed == STATUS_OK);
}

enum status load_grpc_open(const struct load_target *target,
                           void (*ended)(void *context, uint32_t id), void *context,
                           struct load_grpc **out, struct error *err)
{
    struct load_grpc *grpc = calloc(1, sizeof *grpc);
    ASSERT(grpc);
    *grpc = (struct load_grpc){.target = target, .ended = ended, .context = context};
    const struct rpc_channel_config channel = {.target = target->grpc.server,
                                               .tls = target->grpc.tls,
                                               .max_queued_bytes = MOST_UNSENT_BYTES};
    snprintf(grpc->bearer, sizeof grpc->bearer, "Bearer %s",
             target->grpc.api_key ? target->grpc.api_key : "");
    enum status status = ring_create(RING_EVENTS, &grpc->ring);
    if (status != STATUS_OK)
        error_set(err, status, "no memory for answers");
    if (status == STATUS_OK)
        status = rpc_runtime_create(1, &grpc->runtime, err);
    if (status == STATUS_OK)
        status = rpc_channel_create(grpc->runtime, &channel, &grpc->channel, err);
    if (status != STATUS_OK) {
        load_grpc_close(grpc);
        return status;
    }
    *out = grpc;
    return STATUS_OK;
}

static void call_free(struct call *call)
{
    if (call->rpc)
        rpc_call_unref(call->rpc);
    free(call);
}

void load_grpc_close(struct load_grpc *grpc)
{
    if (grpc->channel)
        rpc_channel_destroy(grpc->channel); /* after the last `closed` */
    for (struct event *event; grpc->ring && (event = ring_pop(grpc->ring));) {
        if (event->ended)
            call_free(event->call);
        free(event);
    }
    if (grpc->runtime)
        rpc_runtime_destroy(grpc->runtime);
    if (grpc->ring)
        ring_destroy(grpc->ring);
    explicit_bzero(grpc->bearer, sizeof grpc->bearer);
    free(grpc);
}

void load_grpc_prepare(const struct load_target *target, const char *request_id, struct text prompt,
                       uint32_t output_tokens, struct str *body)
{
    Baton__V1__GenerateRequest request = BATON__V1__GENERATE_REQUEST__INIT;
    Baton__V1__Sampling sampling = BATON__V1__SAMPLING__INIT;
    sampling.max_tokens_presence_case = BATON__V1__SAMPLING__MAX_TOKENS_PRESENCE_MAX_TOKENS;
    sampling.max_tokens = output_tokens;
    sampling.ignore_eos_presence_case = BATON__V1__SAMPLING__IGNORE_EOS_PRESENCE_IGNORE_EOS;
    sampling.ignore_eos = target->ignore_eos;
    if (!isnan(target->temperature)) {
        sampling.temperature_presence_case = BATON__V1__SAMPLING__TEMPERATURE_PRESENCE_TEMPERATURE;
        sampling.temperature = (float)target->temperature;
    }
    if (!isnan(target->top_p)) {
        sampling.top_p_presence_case = BATON__V1__SAMPLING__TOP_P_PRESENCE_TOP_P;
        sampling.top_p = (float)target->top_p;
    }
    if (target->top_k) {
        sampling.top_k_presence_case = BATON__V1__SAMPLING__TOP_K_PRESENCE_TOP_K;
        sampling.top_k = target->top_k;
    }
    request.request_id = (char *)request_id;
    request.slo_class = (char *)target->slo_class;
    request.model = (char *)target->model;
    request.input_case = BATON__V1__GENERATE_REQUEST__INPUT_TEXT;
    request.text = proto_bytes(prompt);
    request.sampling = &sampling;
    size_t size = baton__v1__generate_request__get_packed_size(&request);
    uint8_t *bytes = malloc(size + 1);
    ASSERT(bytes);
    baton__v1__generate_request__pack(&request, bytes);
    str_append(body, bytes, size);
    free(bytes);
}

void load_grpc_send(struct load_grpc *grpc, uint32_t id, const struct str *body,
                    struct load_answer *answer)
{
    struct call *call = calloc(1, sizeof *call);
    const struct rpc_metadata key = {"authorization", grpc->bearer};
    ASSERT(call);
    *call = (struct call){.grpc = grpc, .id = id, .answer = answer};
    const struct rpc_call_options options = {
        .path = METHOD,
        .handlers = {.message = on_message, .closed = on_closed},
        .context = call,
        .deadline_us = grpc->target->timeout_us,
        .metadata = &key,
        .metadata_count = grpc->target->grpc.api_key && *grpc->target->grpc.api_key ? 1 : 0,
    };
    enum status status = rpc_call_start_with(grpc->channel, &options, &call->rpc);
    if (status == STATUS_OK) {
        if (rpc_call_send(call->rpc, body->data, body->length) == STATUS_LIMIT)
            rpc_call_cancel(call->rpc); /* its end comes */
        rpc_call_half_close(call->rpc);
        return;
    }
    struct event *event = event_create(call, 0);
    event->ended = true;
    event->code = RPC_INVALID_ARGUMENT;
    str_copy(event->reason, sizeof event->reason, status_name(status));
    str_copy(event->message, sizeof event->message, "the call can't be started: see the API key");
    enum status pushed = ring_push(grpc->ring, event);
    ASSERT(pushed == STATUS_OK);
}

int load_grpc_fd(const struct load_grpc *grpc)
{
    return ring_fd(grpc->ring);
}

static void take_message(const struct event *event)
{
    struct load_answer *answer = event->call->answer;
    struct arena arena;
    ProtobufCMessage *message;
    struct error err;
    arena_init(&arena, proto_arena_bytes(event->size));
    if (proto_unpack(&baton__v1__generate_response__descriptor, event->data, event->size, &arena,
                     &message, &err) != STATUS_OK) {
        load_answer_fail(answer, "malformed message", err.text);
        arena_deinit(&arena);
        return;
    }
    const Baton__V1__GenerateResponse *response = (const Baton__V1__GenerateResponse *)message;
    if (response->event_case == BATON__V1__GENERATE_RESPONSE__EVENT_DELTA) {
        struct text text = proto_text(response->delta->text);
        load_answer_token(answer, text.bytes, text.length, event->now_ns);
    } else if (response->event_case == BATON__V1__GENERATE_RESPONSE__EVENT_FINISHED) {
        answer->finished = true;
    } else if (response->event_case == BATON__V1__GENERATE_RESPONSE__EVENT_USAGE) {
        answer->has_usage = true;
        answer->input_tokens = response->usage->prompt_tokens;
        answer->output_tokens = response->usage->completion_tokens;
    }
    arena_deinit(&arena);
}

static void take_end(const struct event *event)
{
    struct load_answer *answer = event->call->answer;
    answer->end_ns = event->now_ns;
    if (event->overflow)
        load_answer_fail(answer, "client too slow", "answers came faster than they were read");
    else if (event->code != RPC_OK)
        load_answer_fail(answer, event->reason, event->message);
    if (!answer->chunks)
        load_answer_fail(answer, "no token", "the answer ended without a token");
    if (!answer->finished)
        load_answer_fail(answer, "unfinished", "the stream ended before its last message");
}

void load_grpc_run(struct load_grpc *grpc)
{
    for (struct event *event; (event = ring_pop(grpc->ring));) {
        if (event->ended) {
            uint32_t id = event->call->id;
            take_end(event);
            call_free(event->call);
            grpc->ended(grpc->context, id);
        } else {
            take_message(event);
        }
        free(event);
    }
}
