#include "router/dispatch/request.h"

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/rng.h"
#include "common/base/str.h"
#include "router/request_id.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool init_outs(struct request *request, const struct request_source *source)
{
    const struct request_params *params = source->params;
    bool first = request->first == request;
    struct prompt_echo_config prompt = {.echo = params->echo && first,
                                        .logprobs = params->sampling.prompt_logprobs && first,
                                        .keep = source->once,
                                        .text = params->text,
                                        .tokenizer = source->tokenizer,
                                        .skip_special_tokens = params->skip_special_tokens,
                                        .ids = source->prompt,
                                        .count = (uint32_t)source->prompt_count};
    struct answer_deltas_config out = {.tokenizer = source->tokenizer,
                                       .skip_special_tokens = params->skip_special_tokens,
                                       .return_token_ids = params->return_token_ids,
                                       .return_logits_hash = params->return_logits_hash,
                                       .return_logprobs = params->sampling.logprobs,
                                       .stops = params->stops,
                                       .stop_count = params->stop_count};
    if (prompt_echo_init(&request->prompt_echo, &prompt) != STATUS_OK)
        return false;
    if (answer_deltas_init(&request->out, &out, NULL) == STATUS_OK)
        return true;
    prompt_echo_deinit(&request->prompt_echo);
    return false;
}

/* Of one choice; prompt and biases are still to come. */
static struct request *create_choice(const struct request_source *source, struct request *first,
                                     uint32_t choice)
{
    const struct request_params *params = source->params;
    struct request *request = calloc(1, sizeof *request);
    if (!request)
        return NULL;
    request->first = first ? first : request;
    if (!init_outs(request, source)) {
        free(request);
        return NULL;
    }
    request->message.kind = INBOX_REQUEST;
    request->prompt_count = (uint32_t)source->prompt_count;
    request->model = (uint32_t)source->model;
    request->sampling = params->sampling;
    request->sampling.choice = choice;
    request->open_max_tokens = params->max_tokens_given ? 0 : params->sampling.max_tokens;
    request->prompt_only = params->prompt_only;
    request->priority = params->priority;
    request->once = source->once;
    request->return_timing = params->return_timing;
    request->return_logits_hash = params->return_logits_hash;
    request->timing.arrival_us = source->arrival_us;
    request->deadline_us = source->deadline_us;
    request->cache_salt_bytes = access_salt(source->grant, request->cache_salt);
    baton__worker__v1__handle__init(&request->handle);
    request->client = source->client;
    request->client.ops->ref(request->client.handle);
    return request;
}

static bool copy_shared(struct request *request, const struct request_source *source)
{
    const struct sampling *sampling = &source->params->sampling;
    size_t bias_bytes = sampling->bias_count * sizeof *request->biases;
    request->prompt = malloc(source->prompt_count * sizeof *request->prompt);
    request->biases = bias_bytes ? malloc(bias_bytes) : NULL;
    const struct constraint_source *constraint =
        source->params->prompt_only ? NULL : source->constraint;
    request->constraint = constraint_source_copy(constraint);
    if (!request->prompt || (bias_bytes && !request->biases) ||
        (constraint && !request->constraint))
        return false;
    memcpy(request->prompt, source->prompt, source->prompt_count * sizeof *request->prompt);
    if (bias_bytes)
        memcpy(request->biases, sampling->biases, bias_bytes);
    request->sampling.biases = request->biases;
    request_id_choose(source->params->id, NULL, request->name);
    if (!source->params->seed_given)
        request->sampling.seed = rng_entropy();
    return true;
}

static bool create_others(struct request *first, const struct request_source *source)
{
    for (uint32_t i = 1; i < source->params->choices; i++) {
        struct request *other = create_choice(source, first, i);
        if (!other)
            return false;
        first->others[first->other_count++] = other;
        other->prompt = first->prompt;
        other->biases = first->biases;
        other->constraint = first->constraint;
        other->sampling.biases = first->biases;
        other->sampling.seed = first->sampling.seed;
        str_copy(other->name, sizeof other->name, first->name);
    }
    first->open_count = 1 + first->other_count;
    return true;
}

static void begin_trace(struct request *request, const struct request_source *source)
{
    struct trace_arrival arrival = {.name = request->name,
                                    .model = source->model_name,
                                    .tenant = access_tenant(source->grant),
                                    .key = access_key_id(source->grant),
                                    .peer = source->peer,
                                    .traceparent = source->traceparent,
                                    .choice = request->sampling.choice,
                                    .prompt_tokens = request->prompt_count,
                                    .max_tokens =
                                        request->prompt_only ? 0 : request->sampling.max_tokens,
                                    .arrival_us = source->arrival_us};
    request_trace_begin(&request->trace, &arrival);
}

struct request *request_create(const struct request_source *source)
{
    struct request *request = create_choice(source, NULL, 0);
    if (request && copy_shared(request, source) && create_others(request, source)) {
        begin_trace(request, source);
        for (uint32_t i = 0; i < request->other_count; i++)
            begin_trace(request->others[i], source);
        request->grant = source->grant;
        request->call = source->call;
        return request;
    }
    if (request)
        request_destroy(request);
    return NULL;
}

/* Of all its choices. */
static uint64_t used_tokens(const struct request *first)
{
    uint64_t used = first->prompt_count + first->emitted_count;
    for (uint32_t i = 0; i < first->other_count; i++)
        used += first->others[i]->emitted_count;
    return first->timing.dispatched_us ? used : 0;
}

void request_settle(struct request *first)
{
    if (!first->grant)
        return;
    access_settle(first->grant, used_tokens(first), clock_now_us());
    first->grant = NULL;
}

void request_release(struct request *request)
{
    if (request->released)
        return;
    request_settle(request);
    request->released = true;
    answer_deltas_deinit(&request->out);
    prompt_echo_deinit(&request->prompt_echo);
    free(request->handle.blocks);
    free(request->emitted);
    if (request->first != request)
        return;
    free(request->biases);
    free(request->constraint);
    free(request->prompt);
}

void request_destroy(struct request *request)
{
    request_settle(request);
    for (uint32_t i = 0; i < request->other_count; i++)
        request_destroy(request->others[i]);
    request->client.ops->unref(request->client.handle);
    request_release(request);
    free(request);
}

void request_add_emitted(struct request *request, uint32_t id)
{
    if (request->emitted_count == request->emitted_capacity) {
        request->emitted_capacity = request->emitted_capacity ? request->emitted_capacity * 2 : 64;
        request->emitted =
            realloc(request->emitted, request->emitted_capacity * sizeof *request->emitted);
        ASSERT(request->emitted);
    }
    request->emitted[request->emitted_count++] = id;
}

bool request_keep_handle(struct request *request, const Baton__Worker__V1__Handle *handle)
{
    uint32_t *blocks = malloc((handle->n_blocks + 1) * sizeof *blocks);
    if (!blocks)
        return false;
    if (handle->n_blocks)
        memcpy(blocks, handle->blocks, handle->n_blocks * sizeof *blocks);
    free(request->handle.blocks);
    ProtobufCMessage base = request->handle.base;
    request->handle = *handle;
    request->handle.base =
        base; /* without fields of another version, which lie in the message's memory */
    request->handle.blocks = blocks;
    return true;
}

/* Why a request is at fault. */
static const enum reason invalid_reasons[] = {REASON_CONTEXT_LENGTH_EXCEEDED,
                                              REASON_INVALID_CONSTRAINT, REASON_NO_TOKEN_ALLOWED};
#define INVALID_REASONS (sizeof invalid_reasons / sizeof *invalid_reasons)

static enum reason invalid_reason(const char *name)
{
    for (size_t i = 0; i < INVALID_REASONS; i++)
        if (!strcmp(name, reason_name(invalid_reasons[i])))
            return invalid_reasons[i];
    return REASON_REFUSED;
}

enum reason request_reason(const struct request *request)
{
    const struct request_life *life = &request->life;
    switch (life->status) {
    case TERMINAL_NONE:
    case TERMINAL_OK: return REASON_NONE;
    case TERMINAL_CANCELLED: return REASON_CANCELLED;
    case TERMINAL_DEADLINE: return REASON_DEADLINE;
    case TERMINAL_INVALID: return invalid_reason(life->reason);
    case TERMINAL_OVERLOADED:
        return strcmp(life->reason, reason_name(REASON_SLOW_READER)) ? REASON_OVERLOADED
                                                                     : REASON_SLOW_READER;
    case TERMINAL_UNAVAILABLE:
        if (!strcmp(life->reason, reason_name(REASON_DRAINING)))
            return REASON_DRAINING;
        return strcmp(life->reason, "no_worker") ? REASON_WORKERS_LOST : REASON_NO_WORKERS;
    case TERMINAL_INTERNAL:
        return strcmp(life->reason, reason_name(REASON_STEP_FAILED)) ? REASON_INTERNAL
                                                                     : REASON_STEP_FAILED;
    }
    return REASON_INTERNAL;
}

void request_sentence(const struct request *request, enum reason reason, uint64_t now_us,
                      struct error *sentence)
{
    uint64_t age_ms = (now_us - request->timing.arrival_us) / 1000;
    bool refused = request->life.status == TERMINAL_INVALID;
    const char *why = reason == REASON_STEP_FAILED             ? request->failure
                      : refused || reason == REASON_NO_WORKERS ? request->refusal
                                                               : "";
    if (refused && *why)
        error_set(sentence, STATUS_INVALID, "%s", why);
    else
        error_set(sentence, STATUS_INVALID,
                  "%s (after %" PRIu64 " ms, %u token%s and %u prefill%s)",
                  *why ? why : reason_when(reason), age_ms, request->emitted_count,
                  request->emitted_count == 1 ? "" : "s", request->life.runs,
                  request->life.runs == 1 ? "" : "s");
}
