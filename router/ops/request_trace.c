#include "router/ops/request_trace.h"

#include "common/base/json/json_quote.h"
#include "common/base/str.h"

#include <inttypes.h>
#include <string.h>

static void copy(char *target, size_t size, const char *text)
{
    str_copy(target, size, text ? text : ""); /* may be cut: it is only shown */
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

/* The last attempt, if it has this number and hasn't ended. */
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

/* ----------------------------------------------------------------------------------------- JSON */

static void add_text(struct str *out, const char *key, const char *value)
{
    str_addf(out, "\"%s\": ", key);
    json_quote(out, value, strlen(value));
    str_add(out, ", ");
}

/* Appends a time, if it is known. */
static void add_moment(struct str *out, const struct request_trace *trace, const char *key,
                       uint64_t at_us)
{
    if (at_us)
        str_addf(out, "\"%s\": %.3f, ", key,
                 at_us > trace->arrival_us ? (double)(at_us - trace->arrival_us) / 1e3 : 0);
}

static void add_prefill(struct str *out, const struct request_trace *trace,
                        const struct trace_attempt *attempt)
{
    const struct trace_prefill *prefill = &attempt->prefill;
    uint64_t sent_us = attempt->local ? attempt->decode_sent_us : attempt->placed_us;
    str_add(out, "\"prefill\": {");
    add_text(out, "worker", attempt->local ? attempt->decode_worker : attempt->prefill_worker);
    add_moment(out, trace, "sent_ms", sent_us);
    if (prefill->known) {
        uint32_t kept =
            prefill->chunk_count < TRACE_MAX_CHUNKS ? prefill->chunk_count : TRACE_MAX_CHUNKS;
        add_moment(out, trace, "begin_ms", sent_us + prefill->queued_us);
        if (kept)
            add_moment(out, trace, "end_ms", sent_us + prefill->chunk_end_us[kept - 1]);
        str_addf(out,
                 "\"cached_tokens\": %" PRIu32 ", \"chunks\": %" PRIu32 ", \"chunk_end_ms\": [",
                 prefill->cached_tokens, prefill->chunk_count);
        for (uint32_t i = 0; i < kept; i++)
            str_addf(out, "%s%.3f", i ? ", " : "",
                     (double)(sent_us + prefill->chunk_end_us[i] - trace->arrival_us) / 1e3);
        str_add(out, "], ");
    }
    str_addf(out, "\"local\": %s}, ", attempt->local ? "true" : "false");
}

static void add_handoff(struct str *out, const struct request_trace *trace,
                        const struct trace_attempt *attempt)
{
    const struct trace_handoff *handoff = &attempt->handoff;
    uint64_t sent_us = attempt->decode_sent_us;
    if (!handoff->known)
        return;
    str_add(out, "\"handoff\": {");
    add_moment(out, trace, "sent_ms", sent_us);
    add_moment(out, trace, "queued_until_ms", sent_us + handoff->queued_us);
    if (handoff->read_us)
        add_moment(out, trace, "begin_ms", sent_us + handoff->read_us);
    if (handoff->done_us)
        add_moment(out, trace, "end_ms", sent_us + handoff->done_us);
    add_moment(out, trace, "told_ms", attempt->pulled_us);
    add_text(out, "lane", handoff->lane);
    str_addf(out, "\"bytes\": %" PRIu64 ", \"bytes_before_complete\": %" PRIu64 "}, ",
             handoff->bytes, handoff->early_bytes);
}

static void add_attempt(struct str *out, const struct request_trace *trace,
                        const struct trace_attempt *attempt)
{
    str_addf(out, "{\"number\": %" PRIu32 ", \"regiven\": %s, ", attempt->number,
             attempt->regiven ? "true" : "false");
    add_text(out, "prefill_worker", attempt->prefill_worker);
    add_text(out, "decode_worker", attempt->decode_worker);
    add_moment(out, trace, "placed_ms", attempt->placed_us);
    add_moment(out, trace, "opened_ms", attempt->opened_us);
    add_moment(out, trace, "first_token_ms", attempt->first_us);
    add_moment(out, trace, "first_decode_token_ms", attempt->decode_first_us);
    if (!attempt->regiven)
        add_prefill(out, trace, attempt);
    add_handoff(out, trace, attempt);
    add_moment(out, trace, "ended_ms", attempt->ended_us);
    str_add(out, "\"why\": ");
    json_quote(out, attempt->why, strlen(attempt->why));
    str_add(out, "}");
}

/* Appends how it counts for its class, and the times that were predicted. */
static void add_slo(struct str *out, const struct request_trace *trace)
{
    if (*trace->slo_class) {
        add_text(out, "slo_class", trace->slo_class);
        if (trace->ended_us)
            add_text(out, "slo", slo_verdict_name(trace->slo));
        str_add(out, "\"missed_by\": \"");
        slo_add_missed(trace->slo.counts ? trace->slo.missed : 0, out);
        str_add(out, "\", ");
    }
    if (trace->predicted.ttft_us)
        str_addf(out, "\"predicted_ttft_ms\": %.3f, ", (double)trace->predicted.ttft_us / 1e3);
    if (trace->predicted.tpot_us)
        str_addf(out, "\"predicted_tpot_ms\": %.3f, ", (double)trace->predicted.tpot_us / 1e3);
}

static void add_tokens(struct str *out, const struct request_trace *trace)
{
    str_addf(out,
             "\"prompt_tokens\": %" PRIu32 ", \"max_tokens\": %" PRIu32 ", \"tokens\": %" PRIu32
             ", \"prefills\": %" PRIu32 ", ",
             trace->prompt_tokens, trace->max_tokens, trace->tokens, trace->prefills);
    add_moment(out, trace, "dispatched_ms", trace->dispatched_us);
    add_moment(out, trace, "first_token_ms", trace->first_us);
    add_moment(out, trace, "second_token_ms", trace->second_us);
    add_moment(out, trace, "last_token_ms", trace->last_us);
    add_moment(out, trace, "ended_ms", trace->ended_us);
    if (trace->tokens < 2 || !trace->ended_us)
        return;
    str_addf(out,
             "\"tpot_ms\": %.3f, \"longest_gap_ms\": %.3f, \"longest_gap_token\": %" PRIu32 ", ",
             request_trace_tpot_us(trace) / 1e3, (double)trace->longest_gap_us / 1e3,
             trace->longest_gap_token);
}

void trace_json(const struct request_trace *trace, uint64_t now_us, uint64_t unix_us,
                struct str *out)
{
    uint64_t age_us = now_us > trace->arrival_us ? now_us - trace->arrival_us : 0;
    str_add(out, "{");
    add_text(out, "id", trace->name);
    str_addf(out, "\"choice\": %" PRIu32 ", ", trace->choice);
    add_text(out, "model", trace->model);
    add_text(out, "tenant", trace->tenant);
    add_text(out, "key", trace->key);
    add_text(out, "peer", trace->peer);
    add_text(out, "status", *trace->reason ? trace->reason : "running");
    add_text(out, "finish", trace->finish);
    str_addf(out, "\"arrived_unix_ms\": %.3f, \"age_ms\": %.3f, ",
             (double)(unix_us - (unix_us > age_us ? age_us : unix_us)) / 1e3, (double)age_us / 1e3);
    add_tokens(out, trace);
    add_slo(out, trace);
    str_addf(out, "\"attempt_count\": %" PRIu32 ", \"attempts\": [", trace->attempt_count);
    for (uint32_t i = 0; i < request_trace_shown(trace); i++) {
        str_add(out, i ? ", " : "");
        add_attempt(out, trace, &trace->attempts[i]);
    }
    str_add(out, "]}");
}
