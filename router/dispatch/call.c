#include "router/dispatch/call.h"

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/rng.h"
#include "common/base/str.h"
#include "common/language/text/detokenizer.h"
#include "router/dispatch/constraint_checks.h"
#include "router/request_id.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------------------------- the prompt */

static bool init_prompt_echo(struct call *call, const struct call_source *source)
{
    const struct request_params *params = source->params;
    struct prompt_echo *echo = &call->prompt_echo;
    bool logprobs = params->sampling.prompt_logprobs && source->prompt_count > 1;
    echo->echo = params->echo;
    echo->next = 1;
    echo->end = logprobs ? (uint32_t)source->prompt_count : 1;
    str_init(&echo->text, ANSWER_DELTAS_MAX_TEXT_BYTES);
    if (echo->echo && params->text.bytes) {
        str_append(&echo->text, params->text.bytes, params->text.length);
    } else if (echo->echo && source->tokenizer) {
        struct detokenizer detokenizer;
        detokenizer_init(&detokenizer, source->tokenizer, params->skip_special_tokens);
        for (size_t i = 0; i < source->prompt_count; i++)
            detokenizer_push(&detokenizer, source->prompt[i], &echo->text);
        detokenizer_flush(&detokenizer, &echo->text);
    }
    bool keep = logprobs && source->once;
    if (keep)
        echo->kept = calloc(source->prompt_count - 1, sizeof *echo->kept);
    return !echo->text.truncated && (!keep || echo->kept);
}

bool prompt_echo_waits(const struct prompt_echo *echo)
{
    return echo->next < echo->end;
}

bool prompt_echo_take(struct prompt_echo *echo, uint32_t first,
                      const struct token_logprobs *logprobs, uint32_t count)
{
    if (first != echo->next || count > echo->end - echo->next)
        return false;
    if (echo->kept)
        memcpy(echo->kept + echo->next - 1, logprobs, count * sizeof *logprobs);
    echo->next += count;
    return true;
}

/* ------------------------------------------------------------------------------------ the call */

struct call *call_open(struct call_client client)
{
    struct call *call = calloc(1, sizeof *call);
    if (!call)
        return NULL;
    call->submitted.kind = INBOX_CALL;
    call->closed.kind = INBOX_CALL_CLOSED;
    atomic_init(&call->references, 2);
    atomic_init(&call->closing, false);
    call->state = CALL_ADMITTED;
    call->client = client;
    client.ops->ref(client.handle);
    return call;
}

void call_unref(struct call *call)
{
    if (atomic_fetch_sub(&call->references, 1) == 1)
        free(call);
}

void call_make_group(struct call *const *calls, size_t count)
{
    struct call *first = calls[0];
    TAILQ_INIT(&first->group.calls);
    first->group.open_count = (uint32_t)count;
    for (size_t i = 0; i < count; i++) {
        calls[i]->first = first;
        calls[i]->index = (uint32_t)i;
        TAILQ_INSERT_TAIL(&first->group.calls, calls[i], group_link);
        if (i)
            atomic_fetch_add(&first->references, 1);
    }
}

static bool copy_prompt(struct call *call, const struct call_source *source)
{
    const struct sampling *sampling = &source->params->sampling;
    const struct constraint_source *constraint = call->prompt_only ? NULL : source->constraint;
    size_t bias_bytes = sampling->bias_count * sizeof *call->biases;
    call->prompt = malloc(source->prompt_count * sizeof *call->prompt);
    call->biases = bias_bytes ? malloc(bias_bytes) : NULL;
    call->constraint = constraint_source_copy(constraint);
    if (!call->prompt || (bias_bytes && !call->biases) || (constraint && !call->constraint))
        return false;
    memcpy(call->prompt, source->prompt, source->prompt_count * sizeof *call->prompt);
    call->prompt_count = (uint32_t)source->prompt_count;
    if (bias_bytes)
        memcpy(call->biases, sampling->biases, bias_bytes);
    call->sampling.biases = call->biases;
    return true;
}

static bool make_choice(struct call *call, const struct call_source *source)
{
    const struct request_params *params = source->params;
    struct request *request = &call->choices[call->choice_count];
    const struct answer_deltas_config out = {.tokenizer = source->tokenizer,
                                             .skip_special_tokens = params->skip_special_tokens,
                                             .return_token_ids = params->return_token_ids,
                                             .return_logits_hash = params->return_logits_hash,
                                             .return_logprobs = params->sampling.logprobs,
                                             .stops = params->stops,
                                             .stop_count = params->stop_count,
                                             .reasoning = source->reasoning};
    if (answer_deltas_init(&request->out, &out, NULL) != STATUS_OK)
        return false;
    const struct trace_arrival arrival = {.name = call->name,
                                          .model = source->model_name,
                                          .tenant = access_tenant(source->grant),
                                          .key = access_key_id(source->grant),
                                          .peer = source->peer,
                                          .traceparent = source->traceparent,
                                          .choice = call->choice_count,
                                          .prompt_tokens = call->prompt_count,
                                          .max_tokens =
                                              call->prompt_only ? 0 : call->sampling.max_tokens,
                                          .arrival_us = source->arrival_us};
    request_trace_begin(&request->trace, &arrival);
    request->call = call;
    request->choice = call->choice_count++;
    request->timing.arrival_us = source->arrival_us;
    baton__worker__v1__handle__init(&request->handle);
    return true;
}

bool call_fill(struct call *call, const struct call_source *source)
{
    const struct request_params *params = source->params;
    ASSERT(call->state == CALL_ADMITTED && !call->choices);
    request_id_choose(params->id, NULL, call->name);
    call->once = source->once;
    call->return_timing = params->return_timing;
    call->return_logits_hash = params->return_logits_hash;
    call->has_stops = params->stop_count > 0;
    call->prompt_only = params->prompt_only;
    call->priority = params->priority;
    call->slo_class = params->slo_class;
    call->objective = params->objective;
    call->arrival_us = source->arrival_us;
    call->deadline_us = source->deadline_us;
    call->cache_salt_bytes = access_salt(source->grant, call->cache_salt);
    if (!call->tenant)
        call->tenant =
            constraint_owner_of(access_tenant(source->grant), source->peer ? source->peer : "");
    call->sampling = params->sampling;
    if (!params->seed_given)
        call->sampling.seed = rng_entropy();
    call->open_max_tokens = params->max_tokens_given ? 0 : params->sampling.max_tokens;
    call->choices = calloc(params->choices, sizeof *call->choices);
    bool made = call->choices && copy_prompt(call, source) && init_prompt_echo(call, source);
    while (made && call->choice_count < params->choices)
        made = make_choice(call, source);
    if (!made) {
        call_empty(call);
        return false;
    }
    call->open_count = call->choice_count;
    call->grant = source->grant;
    return true;
}

void call_settle_grant(struct call *call)
{
    uint64_t used = 0;
    if (!call->grant)
        return;
    if (call->choices[0].timing.dispatched_us) {
        used = call->prompt_count;
        for (uint32_t i = 0; i < call->choice_count; i++)
            used += call->choices[i].emitted_count;
    }
    access_settle(call->grant, used, clock_now_us());
    call->grant = NULL;
}

void call_empty(struct call *call)
{
    call_settle_grant(call);
    for (uint32_t i = 0; i < call->choice_count; i++) {
        struct request *request = &call->choices[i];
        answer_deltas_deinit(&request->out);
        free(request->handle.blocks);
        free(request->emitted);
    }
    str_deinit(&call->prompt_echo.text);
    free(call->prompt_echo.kept);
    free(call->choices);
    free(call->prompt);
    prompt_names_deinit(&call->names);
    free(call->biases);
    free(call->constraint);
    call->prompt_echo = (struct prompt_echo){.echo = false};
    call->choices = call->failed = NULL;
    call->choice_count = 0;
    call->prompt = NULL;
    call->biases = NULL;
    call->constraint = NULL;
}

void call_release(struct call *call)
{
    struct call_client client = call->client;
    struct call *first = call->first;
    call_empty(call);
    if (first)
        TAILQ_REMOVE(&first->group.calls, call, group_link);
    if (first && first != call)
        call_unref(first);
    client.ops->unref(client.handle);
    call_unref(call);
}

/* --------------------------------------------------------------------------------- its choices */

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
    /* Fields of another version lie in the memory of the message: our base has none. */
    ProtobufCMessage base = request->handle.base;
    request->handle = *handle;
    request->handle.base = base;
    request->handle.blocks = blocks;
    return true;
}

/* The reason of a request that is itself at fault. */
static enum reason invalid_reason(const char *name)
{
    static const enum reason reasons[] = {REASON_CONTEXT_LENGTH_EXCEEDED, REASON_INVALID_CONSTRAINT,
                                          REASON_NO_TOKEN_ALLOWED};
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if (!strcmp(name, reason_name(reasons[i])))
            return reasons[i];
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
        if (!strcmp(life->reason, reason_name(REASON_SLO_UNATTAINABLE)))
            return REASON_SLO_UNATTAINABLE;
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
    bool refused = request->life.status == TERMINAL_INVALID || reason == REASON_SLO_UNATTAINABLE;
    bool late = reason == REASON_DEADLINE && !strcmp(request->life.reason, REQUEST_LATE);
    const char *why = reason == REASON_STEP_FAILED                     ? request->failure
                      : refused || late || reason == REASON_NO_WORKERS ? request->refusal
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
