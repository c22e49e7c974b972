#include "router/ops/access_line.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Replaces unsafe bytes: clients choose request ids and names of models, and workers their
 * names. */
static void add_word(struct str *line, const char *key, const char *text)
{
    str_addf(line, " %s=", key);
    for (; *text; text++) {
        char c = *text > ' ' && *text <= '~' && *text != '"' ? *text : '?';
        str_append(line, &c, 1);
    }
}

static void add_count(struct str *line, const char *key, uint64_t count)
{
    str_addf(line, " %s=%" PRIu64, key, count);
}

/* The time between two moments, if both have come. */
static void add_ms(struct str *line, const char *key, uint64_t from_us, uint64_t to_us)
{
    if (from_us && to_us)
        str_addf(line, " %s=%.3f", key, to_us > from_us ? (double)(to_us - from_us) / 1e3 : 0);
}

/* The date and time in UTC. gmtime isn't pure. Source of the calendar from days: Howard Hinnant,
 * "chrono-compatible low-level date algorithms". */
static void add_stamp(struct str *line, uint64_t unix_us)
{
    uint64_t seconds = unix_us / 1000000, days = seconds / 86400 + 719468;
    uint64_t era = days / 146097, day_of_era = days % 146097;
    uint64_t year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
    uint64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    uint64_t shifted = (5 * day_of_year + 2) / 153; /* months from March on */
    uint64_t day = day_of_year - (153 * shifted + 2) / 5 + 1;
    uint64_t month = shifted < 10 ? shifted + 3 : shifted - 9;
    uint64_t year = era * 400 + year_of_era + (month <= 2);
    str_addf(line,
             "ts=%04" PRIu64 "-%02" PRIu64 "-%02" PRIu64 "T%02" PRIu64 ":%02" PRIu64 ":%02" PRIu64
             ".%03" PRIu64 "Z",
             year, month, day, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60,
             unix_us / 1000 % 1000);
}

static void end_line(struct str *line)
{
    if (line->length > ACCESS_LINE_MAX_BYTES - 1)
        line->data[line->length = ACCESS_LINE_MAX_BYTES - 1] = 0;
    str_add(line, "\n");
}

static void add_attempt(struct str *line, const struct trace_attempt *attempt)
{
    const struct trace_handoff *handoff = &attempt->handoff;
    if (attempt->prefill.known) {
        add_count(line, "cached_tokens", attempt->prefill.cached_tokens);
        add_count(line, "chunks", attempt->prefill.chunk_count);
    }
    if (handoff->known) {
        str_addf(line, " handoff_ms=%.3f",
                 handoff->read_us && handoff->done_us > handoff->read_us
                     ? (handoff->done_us - handoff->read_us) / 1e3
                     : 0);
        add_word(line, "lane", handoff->lane);
        add_count(line, "kv_bytes", handoff->bytes);
        add_count(line, "kv_bytes_early", handoff->early_bytes);
    }
    if (*attempt->prefill_worker)
        add_word(line, "prefill", attempt->prefill_worker);
    if (*attempt->decode_worker)
        add_word(line, "decode", attempt->decode_worker);
}

void access_line_ended(const struct request_trace *trace, uint64_t unix_us, struct str *line)
{
    const struct trace_attempt *last = request_trace_last(trace);
    add_stamp(line, unix_us);
    add_word(line, "req", trace->name);
    if (trace->choice)
        add_count(line, "choice", trace->choice);
    add_word(line, "model", trace->model);
    add_word(line, "tenant", trace->tenant);
    add_word(line, "key", trace->key);
    add_word(line, "peer", trace->peer);
    add_word(line, "status", trace->reason);
    if (*trace->finish)
        add_word(line, "finish", trace->finish);
    if (*trace->slo_class) {
        add_word(line, "slo_class", trace->slo_class);
        add_word(line, "slo", slo_verdict_name(trace->slo));
    }
    if (*trace->slo_class && trace->slo.counts && trace->slo.missed) {
        str_add(line, " missed_by=");
        slo_add_missed(trace->slo.missed, line);
    }
    add_count(line, "prompt_tokens", trace->prompt_tokens);
    add_count(line, "tokens", trace->tokens);
    add_ms(line, "queue_ms", trace->arrival_us, trace->dispatched_us);
    add_ms(line, "prefill_ms", trace->dispatched_us, trace->first_us);
    add_ms(line, "ttft_ms", trace->arrival_us, trace->first_us);
    if (trace->tokens > 1) {
        str_addf(line, " tpot_ms=%.3f", request_trace_tpot_us(trace) / 1e3);
        add_ms(line, "token_1_to_2_ms", trace->first_us, trace->second_us);
        str_addf(line, " longest_gap_ms=%.3f", (double)trace->longest_gap_us / 1e3);
        add_ms(line, "decode_ms", trace->first_us, trace->last_us);
    }
    add_ms(line, "total_ms", trace->arrival_us, trace->ended_us);
    add_count(line, "attempts", trace->attempt_count);
    add_count(line, "prefills", trace->prefills);
    if (last)
        add_attempt(line, last);
    end_line(line);
}

static void add_known(struct str *line, const char *key, const char *text)
{
    if (text && *text)
        add_word(line, key, text);
}

void access_line_brief(const struct access_line_brief *brief, uint64_t unix_us, struct str *line)
{
    add_stamp(line, unix_us);
    add_known(line, "req", brief->name);
    add_known(line, "method", brief->method);
    add_known(line, "model", brief->model);
    add_known(line, "tenant", brief->tenant);
    add_known(line, "key", brief->key);
    add_known(line, "peer", brief->peer);
    add_word(line, "status", brief->status);
    end_line(line);
}

void access_line_left_out(uint64_t count, uint64_t unix_us, struct str *line)
{
    add_stamp(line, unix_us);
    add_word(line, "status", "left_out");
    add_count(line, "lines", count);
    str_addf(line,
             " msg=\"%" PRIu64 " more lines left out, of callers without a known key that were "
             "refused\"",
             count);
    end_line(line);
}
