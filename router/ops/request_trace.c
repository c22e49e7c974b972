#include "router/ops/request_trace.h"

#include "common/base/str.h"

#include <string.h>

static void copy(char *target, size_t size, const char *text)
{
    str_copy(target, size, text ? text : ""); /* cut: only shown */
}

void request_trace_begin(struct request_trace *trace, const struct trace_arrival *arrival)
{
    *trace = (struct request_trace){.choice = arrival->choice,
                                    .prompt_tokens = arrival->prompt_tokens,
                                    .max_tokens = arrival->max_tokens,
                                    .arrival_us = arrival->arrival_us};
    copy(trace->name, sizeof trace->name, arrival->name);
    copy(trace->model, sizeof trace->model, arrival->model);
    copy(trace->tenant, sizeof trace->tenant, arrival->tenant);
    copy(trace->key, sizeof trace->key, arrival->key);
    copy(trace->peer, sizeof trace->peer, arrival->peer);
    copy(trace->traceparent, sizeof trace->traceparent, arrival->traceparent);
}

uint32_t request_trace_shown(const struct request_trace *trace)
{
    return trace->attempt_count < TRACE_MAX_ATTEMPTS ? trace->attempt_count : TRACE_MAX_ATTEMPTS;
}

const struct trace_attempt *request_trace_last(const struct request_trace *trace)
{
    uint32_t shown = request_trace_shown(trace);
    return shown ? &trace->attempts[shown - 1] : NULL;
}

static struct trace_attempt *last(struct request_trace *trace)
{
    uint32_t shown = request_trace_shown(trace);
    return shown ? &trace->attempts[shown - 1] : NULL;
}

/* The last attempt if it is that one, and under way. */
static struct trace_attempt *current(struct request_trace *trace, uint32_t number)
{
    struct trace_attempt *attempt = last(trace);
    return attempt && attempt->number == number && !attempt->ended_us ? attempt : NULL;
}

void request_trace_placed(struct request_trace *trace, uint32_t number, bool regiven,
                          uint64_t now_us)
{
    char source[TRACE_NAME_BYTES] = "";
    struct trace_attempt *before = last(trace);
    if (regiven && before)
        copy(source, sizeof source, before->prefill_worker);
    if (!trace->dispatched_us)
        trace->dispatched_us = now_us;
    trace->attempt_count++;
    struct trace_attempt *attempt = last(trace);
    *attempt = (struct trace_attempt){.number = number, .regiven = regiven, .placed_us = now_us};
    copy(attempt->prefill_worker, sizeof attempt->prefill_worker, source);
}

void request_trace_prefill_sent(struct request_trace *trace, const char *worker)
{
    struct trace_attempt *attempt = last(trace);
    if (attempt)
        copy(attempt->prefill_worker, sizeof attempt->prefill_worker, worker);
}

void request_trace_decode_sent(struct request_trace *trace, const char *worker, bool local,
                               uint64_t now_us)
{
    struct trace_attempt *attempt = last(trace);
    if (!attempt)
        return;
    copy(attempt->decode_worker, sizeof attempt->decode_worker, worker);
    attempt->decode_sent_us = now_us;
    attempt->local = local;
}

void request_trace_opened(struct request_trace *trace, uint32_t number, uint64_t now_us)
{
    struct trace_attempt *attempt = current(trace, number);
    if (attempt)
        attempt->opened_us = now_us;
}

void request_trace_prefilled(struct request_trace *trace, uint32_t number,
                             const struct trace_prefill *prefill)
{
    struct trace_attempt *attempt = current(trace, number);
    if (!attempt)
        return;
    attempt->prefill = *prefill;
    attempt->prefill.known = true;
}

void request_trace_pulled(struct request_trace *trace, uint32_t number,
                          const struct trace_handoff *handoff, uint64_t now_us)
{
    struct trace_attempt *attempt = current(trace, number);
    if (!attempt)
        return;
    attempt->handoff = *handoff;
    attempt->handoff.known = true;
    attempt->pulled_us = now_us;
}

void request_trace_token(struct request_trace *trace, bool by_decode, uint64_t now_us)
{
    uint32_t index = ++trace->tokens;
    if (index == 1)
        trace->first_us = now_us;
    else if (index == 2)
        trace->second_us = now_us;
    if (index > 1 && now_us - trace->last_us >= trace->longest_gap_us) {
        trace->longest_gap_us = now_us - trace->last_us;
        trace->longest_gap_token = index;
    }
    trace->last_us = now_us;
    struct trace_attempt *attempt = last(trace);
    if (!attempt)
        return;
    if (!attempt->first_us)
        attempt->first_us = now_us;
    if (by_decode && !attempt->decode_first_us)
        attempt->decode_first_us = now_us;
}

void request_trace_computed(struct request_trace *trace, uint64_t now_us)
{
    struct trace_attempt *attempt = last(trace);
    trace->first_us = trace->last_us = now_us;
    if (attempt)
        attempt->first_us = now_us;
}

void request_trace_why(struct request_trace *trace, uint32_t number, const char *why)
{
    struct trace_attempt *attempt = current(trace, number);
    if (attempt)
        copy(attempt->why, sizeof attempt->why, why);
}

static void end_attempt(struct request_trace *trace, const char *why, uint64_t now_us)
{
    struct trace_attempt *attempt = last(trace);
    if (!attempt || attempt->ended_us)
        return;
    attempt->ended_us = now_us;
    if (!*attempt->why)
        copy(attempt->why, sizeof attempt->why, why);
}

void request_trace_again(struct request_trace *trace, uint64_t now_us)
{
    end_attempt(trace, "again", now_us);
}

void request_trace_end(struct request_trace *trace, const char *reason, const char *finish,
                       uint32_t prefills, uint64_t now_us)
{
    copy(trace->reason, sizeof trace->reason, reason);
    copy(trace->finish, sizeof trace->finish, finish);
    trace->prefills = prefills;
    trace->ended_us = now_us;
    end_attempt(trace, reason, now_us);
}

double request_trace_tpot_us(const struct request_trace *trace)
{
    if (trace->tokens < 2)
        return 0;
    return (double)(trace->last_us - trace->first_us) / (trace->tokens - 1);
}
