#include "router/request.h"

#include "common/base/assert.h"
#include "common/base/rng.h"
#include "common/base/str.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct request *request_create(const struct request_source *source)
{
    const struct request_params *params = source->params;
    struct request *request = calloc(1, sizeof *request);
    if (!request)
        return NULL;
    request->message.kind = INBOX_REQUEST;
    request->prompt = malloc(source->prompt_count * sizeof *request->prompt);
    struct stream_out_config out = {.tokenizer = source->tokenizer,
                                    .skip_special_tokens = params->skip_special_tokens,
                                    .return_token_ids = params->return_token_ids,
                                    .return_logits_hash = params->return_logits_hash,
                                    .stops = params->stops,
                                    .stop_count = params->stop_count};
    if (!request->prompt || stream_out_init(&request->out, &out, NULL) != STATUS_OK) {
        free(request->prompt);
        free(request);
        return NULL;
    }
    memcpy(request->prompt, source->prompt, source->prompt_count * sizeof *request->prompt);
    request->prompt_count = (uint32_t)source->prompt_count;
    if (*params->id)
        str_copy(request->name, sizeof request->name, params->id);
    else
        snprintf(request->name, sizeof request->name, "%016" PRIx64 "%016" PRIx64, rng_entropy(),
                 rng_entropy());
    request->sampling = params->sampling;
    request->priority = params->priority;
    if (!params->seed_given)
        request->sampling.seed = rng_entropy();
    request->once = source->once;
    request->return_timing = params->return_timing;
    request->return_logits_hash = params->return_logits_hash;
    request->timing.arrival_us = source->arrival_us;
    request->deadline_us = source->deadline_us;
    baton__worker__v1__handle__init(&request->handle);
    request->call = source->call;
    rpc_call_ref(request->call);
    return request;
}

void request_release(struct request *request)
{
    if (request->released)
        return;
    request->released = true;
    stream_out_deinit(&request->out);
    free(request->handle.blocks);
    free(request->emitted);
    free(request->prompt);
}

void request_destroy(struct request *request)
{
    rpc_call_unref(request->call);
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

enum reason request_reason(const struct request *request)
{
    const struct request_life *life = &request->life;
    switch (life->status) {
    case TERMINAL_NONE:
    case TERMINAL_OK: return REASON_NONE;
    case TERMINAL_CANCELLED: return REASON_CANCELLED;
    case TERMINAL_DEADLINE: return REASON_DEADLINE;
    case TERMINAL_INVALID:
        return strcmp(life->reason, reason_name(REASON_CONTEXT_LENGTH_EXCEEDED))
                   ? REASON_REFUSED
                   : REASON_CONTEXT_LENGTH_EXCEEDED;
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
    bool refused = reason == REASON_REFUSED || reason == REASON_CONTEXT_LENGTH_EXCEEDED;
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
