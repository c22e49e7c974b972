#include "router/ops/trace_json.h"

#include "common/base/json/json_quote.h"

#include <inttypes.h>
#include <string.h>

static void add_text(struct str *out, const char *key, const char *value)
{
    str_addf(out, "\"%s\": ", key);
    json_quote(out, value, strlen(value));
    str_add(out, ", ");
}

/* A moment, if it was. */
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
    str_addf(out, "\"attempt_count\": %" PRIu32 ", \"attempts\": [", trace->attempt_count);
    for (uint32_t i = 0; i < request_trace_shown(trace); i++) {
        str_add(out, i ? ", " : "");
        add_attempt(out, trace, &trace->attempts[i]);
    }
    str_add(out, "]}");
}
