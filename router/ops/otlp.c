#include "router/ops/otlp.h"

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/json/json_quote.h"
#include "common/base/log.h"
#include "common/base/ring.h"
#include "common/base/rng.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define MOD  "otlp"
#define PATH "/v1/traces"

struct otlp {
    char endpoint[HTTP_URL_BYTES];
    struct http_remote collector; /* its URL is `endpoint` */
    struct counter *dropped;
    struct ring *ring; /* struct request_trace; one without a name ends the thread */
    pthread_t thread;
};

static void post(struct otlp *otlp, const struct str *body, uint64_t count)
{
    struct error err;
    char quoted[700];
    if (http_post(&otlp->collector, PATH, "application/json", body, OTLP_TIMEOUT_US, &err) ==
        STATUS_OK)
        return;
    counter_add(otlp->dropped, count);
    log_warn_limited(MOD, "endpoint=%s requests=%llu why=%s msg=\"spans are dropped\"",
                     otlp->endpoint, (unsigned long long)count,
                     log_quote(err.text, quoted, sizeof quoted));
}

/* Sends `trace` and the waiting ones. False: one of them ends the thread. */
static bool send_batch(struct otlp *otlp, struct request_trace *trace)
{
    struct str body;
    uint64_t count = 0;
    bool more = true;
    str_init(&body, OTLP_MAX_POST_BYTES);
    otlp_json_begin(&body);
    int64_t offset_us = (int64_t)(clock_unix_us() - clock_now_us());
    while (trace && more) {
        more = *trace->name != 0;
        if (more)
            otlp_json_spans(trace, rng_entropy(), offset_us, &body);
        count += more;
        free(trace);
        trace = more && count < OTLP_MAX_BATCH ? ring_pop(otlp->ring) : NULL;
    }
    otlp_json_end(&body);
    ASSERT(!body.truncated); /* a request's spans are bounded, far below their share */
    if (count)
        post(otlp, &body, count);
    str_deinit(&body);
    return more;
}

static void *send_spans(void *argument)
{
    struct otlp *otlp = argument;
    pthread_setname_np(pthread_self(), "otlp");
    while (send_batch(otlp, ring_wait(otlp->ring, UINT64_MAX)))
        ;
    return NULL;
}

void otlp_ended(struct otlp *otlp, const struct request_trace *trace)
{
    struct request_trace *copy = NULL;
    if (*trace->name && ring_count(otlp->ring) < OTLP_MAX_WAITING)
        copy = malloc(sizeof *copy);
    if (copy)
        *copy = *trace;
    if (!copy || ring_push(otlp->ring, copy) != STATUS_OK) {
        free(copy);
        counter_add(otlp->dropped, 1);
    }
}

enum status otlp_start(const struct http_remote *collector, struct counter *dropped,
                       struct otlp **out, struct error *err)
{
    TRY(http_remote_check(collector, err));
    struct otlp *otlp = calloc(1, sizeof *otlp);
    if (!otlp)
        return error_set(err, STATUS_LIMIT, "out of memory for otlp-endpoint");
    otlp->dropped = dropped;
    otlp->collector = *collector;
    str_copy(otlp->endpoint, sizeof otlp->endpoint, collector->url);
    otlp->collector.url = otlp->endpoint;
    if (ring_create(OTLP_MAX_WAITING + 1, &otlp->ring) != STATUS_OK || /* and the end */
        pthread_create(&otlp->thread, NULL, send_spans, otlp)) {
        ring_destroy(otlp->ring);
        free(otlp);
        return error_set(err, STATUS_LIMIT, "cannot start the thread of otlp-endpoint");
    }
    *out = otlp;
    return STATUS_OK;
}

/* Drops the waiting traces, except those of one more batch. */
void otlp_stop(struct otlp *otlp)
{
    if (!otlp)
        return;
    for (struct request_trace *trace;
         ring_count(otlp->ring) > OTLP_MAX_BATCH - 1 && (trace = ring_pop(otlp->ring));) {
        free(trace);
        counter_add(otlp->dropped, 1);
    }
    struct request_trace *end = calloc(1, sizeof *end);
    enum status status = end ? ring_push(otlp->ring, end) : STATUS_LIMIT;
    ASSERT(status == STATUS_OK); /* there is a place for it */
    pthread_join(otlp->thread, NULL);
    ring_destroy(otlp->ring);
    free(otlp);
}

#define KIND_INTERNAL 1
#define KIND_SERVER   2
#define STATUS_UNSET  0
#define STATUS_ERROR  2

struct ids {
    uint64_t trace_high, trace_low, parent, root, next;
};

/* ---------------------------------------------------------------------------------- traceparent */

/* Reads `digits` of lower-case hex, which the standard demands. */
static bool read_hex(const char **text, int digits, uint64_t *value)
{
    *value = 0;
    for (int i = 0; i < digits; i++, (*text)++) {
        char c = **text;
        bool digit = c >= '0' && c <= '9', letter = c >= 'a' && c <= 'f';
        if (!digit && !letter)
            return false;
        *value = *value << 4 | (uint64_t)(digit ? c - '0' : c - 'a' + 10);
    }
    return true;
}

static bool read_dash(const char **text)
{
    return *(*text)++ == '-';
}

bool trace_parent_parse(const char *header, struct trace_parent *parent)
{
    struct trace_parent read;
    uint64_t version, flags;
    const char *text = header ? header : "";
    if (!read_hex(&text, 2, &version) || version == 0xff || !read_dash(&text) ||
        !read_hex(&text, 16, &read.trace_high) || !read_hex(&text, 16, &read.trace_low) ||
        !read_dash(&text) || !read_hex(&text, 16, &read.span) || !read_dash(&text) ||
        !read_hex(&text, 2, &flags))
        return false;
    bool ends = !*text || (version > 0 && *text == '-');
    if (!ends || (!read.trace_high && !read.trace_low) || !read.span)
        return false;
    *parent = read;
    return true;
}

/* ---------------------------------------------------------------------------------------- spans */

static uint64_t mix(uint64_t x) /* splitmix64: turns neighbours into distant numbers */
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    x ^= x >> 31;
    return x ? x : 1; /* 0 is no id */
}

static void add_id(struct str *out, const char *key, uint64_t id)
{
    str_addf(out, "\"%s\": \"%016" PRIx64 "\", ", key, id);
}

static void begin_span(struct str *out, const struct ids *ids, const char *name, uint64_t id,
                       uint64_t parent)
{
    str_addf(out, "{\"traceId\": \"%016" PRIx64 "%016" PRIx64 "\", ", ids->trace_high,
             ids->trace_low);
    add_id(out, "spanId", id);
    if (parent)
        add_id(out, "parentSpanId", parent);
    str_addf(out, "\"name\": \"%s\", \"kind\": %d, ", name,
             id == ids->root ? KIND_SERVER : KIND_INTERNAL);
}

static void add_times(struct str *out, uint64_t begin_us, uint64_t end_us, int64_t offset_us)
{
    uint64_t begin = begin_us + (uint64_t)offset_us;
    uint64_t end = (end_us > begin_us ? end_us : begin_us) + (uint64_t)offset_us;
    str_addf(out,
             "\"startTimeUnixNano\": \"%" PRIu64 "000\", \"endTimeUnixNano\": \"%" PRIu64
             "000\", \"attributes\": [",
             begin, end);
}

static void add_text(struct str *out, const char *key, const char *value)
{
    str_addf(out, "{\"key\": \"%s\", \"value\": {\"stringValue\": ", key);
    json_quote(out, value, strlen(value));
    str_add(out, "}}, ");
}

static void add_count(struct str *out, const char *key, uint64_t value)
{
    str_addf(out, "{\"key\": \"%s\", \"value\": {\"intValue\": \"%" PRIu64 "\"}}, ", key, value);
}

/* Ends a span, and removes the comma after its last attribute. */
static void end_span(struct str *out, int status, const char *message)
{
    if (!out->truncated && out->length >= 2 && !strcmp(out->data + out->length - 2, ", "))
        out->data[out->length -= 2] = 0;
    str_addf(out, "], \"status\": {\"code\": %d", status);
    if (*message) {
        str_add(out, ", \"message\": ");
        json_quote(out, message, strlen(message));
    }
    str_add(out, "}},");
}

/* Begins the span of a part of the request. False: its begin or end isn't known, and there is no
 * span. */
static bool begin_part(struct str *out, struct ids *ids, const char *name, uint64_t begin_us,
                       uint64_t end_us, int64_t offset_us)
{
    if (!begin_us || !end_us)
        return false;
    begin_span(out, ids, name, mix(ids->next++), ids->root);
    add_times(out, begin_us, end_us, offset_us);
    return true;
}

static void add_attempt(struct str *out, struct ids *ids, const struct request_trace *trace,
                        const struct trace_attempt *attempt, int64_t offset_us)
{
    const struct trace_prefill *prefill = &attempt->prefill;
    const struct trace_handoff *handoff = &attempt->handoff;
    uint64_t sent_us = attempt->local ? attempt->decode_sent_us : attempt->placed_us;
    uint32_t kept =
        prefill->chunk_count < TRACE_MAX_CHUNKS ? prefill->chunk_count : TRACE_MAX_CHUNKS;
    uint64_t computed_us = kept ? sent_us + prefill->chunk_end_us[kept - 1] : attempt->first_us;
    if (!attempt->regiven &&
        begin_part(out, ids, "prefill", sent_us + prefill->queued_us, computed_us, offset_us)) {
        add_text(out, "baton.worker",
                 attempt->local ? attempt->decode_worker : attempt->prefill_worker);
        add_count(out, "baton.attempt", attempt->number);
        add_count(out, "baton.cached_tokens", prefill->cached_tokens);
        add_count(out, "baton.chunks", prefill->chunk_count);
        end_span(out, STATUS_UNSET, "");
    }
    uint64_t read_us = handoff->read_us ? attempt->decode_sent_us + handoff->read_us : 0;
    if (handoff->known && begin_part(out, ids, "handoff", read_us,
                                     attempt->decode_sent_us + handoff->done_us, offset_us)) {
        add_text(out, "baton.worker", attempt->decode_worker);
        add_text(out, "baton.lane", handoff->lane);
        add_count(out, "baton.kv_bytes", handoff->bytes);
        end_span(out, STATUS_UNSET, "");
    }
    uint64_t until_us = attempt->ended_us < trace->last_us ? attempt->ended_us : trace->last_us;
    if (attempt->decode_first_us &&
        begin_part(out, ids, "decode", attempt->first_us, until_us, offset_us)) {
        add_text(out, "baton.worker", attempt->decode_worker);
        add_count(out, "baton.attempt", attempt->number);
        add_text(out, "baton.end", attempt->why);
        end_span(out, STATUS_UNSET, "");
    }
}

static void add_root(struct str *out, const struct ids *ids, const struct request_trace *trace,
                     int64_t offset_us)
{
    begin_span(out, ids, "request", ids->root, ids->parent);
    add_times(out, trace->arrival_us, trace->ended_us, offset_us);
    add_text(out, "gen_ai.request.model", trace->model);
    add_text(out, "baton.request_id", trace->name);
    add_count(out, "baton.choice", trace->choice);
    if (*trace->key) {
        add_text(out, "baton.tenant", trace->tenant);
        add_text(out, "baton.key", trace->key);
    }
    add_text(out, "baton.status", trace->reason);
    add_text(out, "gen_ai.response.finish_reason", trace->finish);
    add_count(out, "gen_ai.usage.input_tokens", trace->prompt_tokens);
    add_count(out, "gen_ai.usage.output_tokens", trace->tokens);
    add_count(out, "gen_ai.request.max_tokens", trace->max_tokens);
    add_count(out, "baton.attempts", trace->attempt_count);
    if (trace->first_us)
        add_count(out, "baton.ttft_us", trace->first_us - trace->arrival_us);
    bool failed = strcmp(trace->reason, "ok") != 0;
    end_span(out, failed ? STATUS_ERROR : STATUS_UNSET, failed ? trace->reason : "");
}

void otlp_json_spans(const struct request_trace *trace, uint64_t seed, int64_t offset_us,
                     struct str *out)
{
    struct trace_parent parent;
    struct ids ids = {.next = seed};
    if (trace_parent_parse(trace->traceparent, &parent)) {
        ids.trace_high = parent.trace_high;
        ids.trace_low = parent.trace_low;
        ids.parent = parent.span;
    } else {
        ids.trace_high = mix(ids.next++);
        ids.trace_low = mix(ids.next++);
    }
    ids.root = mix(ids.next++);
    add_root(out, &ids, trace, offset_us);
    if (begin_part(out, &ids, "queue", trace->arrival_us,
                   trace->dispatched_us ? trace->dispatched_us : trace->ended_us, offset_us))
        end_span(out, STATUS_UNSET, "");
    for (uint32_t i = 0; i < request_trace_shown(trace); i++)
        add_attempt(out, &ids, trace, &trace->attempts[i], offset_us);
}

void otlp_json_begin(struct str *out)
{
    str_add(out, "{\"resourceSpans\": [{\"resource\": {\"attributes\": [{\"key\": "
                 "\"service.name\", \"value\": {\"stringValue\": \"baton-router\"}}]}, "
                 "\"scopeSpans\": [{\"scope\": {\"name\": \"baton\", \"version\": "
                 "\"" BATON_VERSION "\"}, \"spans\": [");
}

void otlp_json_end(struct str *out)
{
    if (out->length && out->data[out->length - 1] == ',')
        out->data[--out->length] = 0;
    str_add(out, "]}]}]}");
}
