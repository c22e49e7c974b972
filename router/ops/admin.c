#include "router/ops/admin.h"

#include "common/base/clock.h"
#include "common/base/json/json_quote.h"
#include "common/base/rng.h"
#include "common/net/crypto/digest.h"
#include "common/net/membership/worker_message.h"
#include "router/request_parse.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NONCE            "@NONCE@" /* status_page.html has it in place of each nonce */
#define TRACE_PATH       "/trace/"
#define DECISIONS_PATH   "/decisions/"
#define CHOICE_PARAMETER "choice="
#define POLICY_BYTES     400

/* status_page.html, embedded at build time. */
extern const unsigned char status_page_html[];
extern const unsigned long status_page_html_size;

/* -------------------------------------------------------------------------------------- /status */

static void add_text(struct str *out, const char *key, const char *value)
{
    str_addf(out, "\"%s\": ", key);
    json_quote(out, value, strlen(value));
    str_add(out, ", ");
}

/* Appends the workers that this one is kept apart from, and the breaker of each such pair. */
static void add_pairs(struct str *out, const struct router_status *status, uint64_t key)
{
    const char *comma = "";
    str_add(out, "\"pairs\": [");
    for (size_t i = 0; i < status->pair_count; i++) {
        const struct pair_status *pair = &status->pairs[i];
        uint64_t other = pair->prefill == key ? pair->decode : pair->prefill;
        size_t at = 0;
        if (pair->prefill != key && pair->decode != key)
            continue;
        while (at < status->worker_count && status->workers[at].key != other)
            at++;
        if (at == status->worker_count)
            continue; /* it has left */
        str_addf(out, "%s{", comma);
        add_text(out, "worker", status->workers[at].info.name);
        str_addf(out, "\"breaker\": \"%s\"}", breaker_state_name(pair->breaker));
        comma = ", ";
    }
    str_add(out, "], ");
}

/* Appends "device": its numbers and the reasons of its low clock, or null. */
static void add_device(struct str *out, const struct worker_load *load)
{
    const char *comma = "";
    if (!load->has_device) {
        str_add(out, "\"device\": null, ");
        return;
    }
    str_add(out, "\"device\": {");
    for (int i = 0; i < DEVICE_NUMBERS; i++)
        str_addf(out, "\"%s\": %.0f, ", device_number_names[i], load->device.numbers[i]);
    str_add(out, "\"slowed_by\": [");
    for (int i = 0; i < DEVICE_SLOWDOWNS; i++) {
        if (!(load->device.slowdowns >> i & 1))
            continue;
        str_addf(out, "%s\"%s\"", comma, device_slowdown_names[i]);
        comma = ", ";
    }
    str_add(out, "]}, ");
}

static void add_worker(struct str *out, const struct router_status *status,
                       const struct worker_status *worker)
{
    str_add(out, "{");
    add_text(out, "name", worker->info.name);
    add_text(out, "model", worker->info.model);
    add_text(out, "role", worker_role_name(worker->info.role));
    add_text(out, "address", worker->info.address);
    add_text(out, "metrics", worker->info.metrics_address);
    add_text(out, "state", worker_status_state(worker));
    add_text(out, "breaker", breaker_state_name(worker->breaker));
    add_pairs(out, status, worker->key);
    add_text(out, "lane", worker->lane);
    add_text(out, "lane_reason", worker->lane_reason);
    add_text(out, "numerics", worker->info.numerics_name);
    add_text(out, "isa", worker->info.isa);
    str_addf(out, "\"lane_bytes_per_second\": %" PRIu64 ", \"started_ms\": %" PRIu64 ", ",
             worker->lane_bytes_per_second, worker->info.started_ms);
    str_addf(out,
             "\"pid\": %u, \"queue\": %u, \"running\": %u, \"queued_tokens\": %" PRIu64
             ", \"blocks\": %u, \"blocks_free\": %u, \"blocks_cached\": %u, "
             "\"blocks_pinned\": %u, \"blocks_landing\": %u, \"prompt_tokens\": %" PRIu64
             ", \"tokens\": %" PRIu64 ", ",
             worker->info.process_id, worker->load.queued_requests, worker->load.running,
             worker->load.queued_tokens, worker->info.block_count, worker->load.blocks_free,
             worker->load.blocks_cached, worker->load.blocks_pinned, worker->load.blocks_landing,
             worker->prompt_tokens, worker->tokens);
    const struct step_cost *cost = &worker->steps.cost;
    struct protocol_range range = worker_message_protocol(&worker->info);
    str_addf(out,
             "\"protocol\": %u, \"busy_us\": %" PRIu64 ", \"steps\": %" PRIu64
             ", \"requests\": %u, \"reserved_tokens\": %" PRIu64
             ", \"unconfirmed_tokens\": %" PRIu64 ", \"step_cost\": {\"steps\": %" PRIu64
             ", \"clamped\": %" PRIu64
             ", \"step_us\": %.6g, \"prefill_row_us\": %.6g, \"prefill_position_us\": %.6g, "
             "\"decode_row_us\": %.6g, \"decode_context_us\": %.6g}, ",
             range.newest < WORKER_PROTOCOL_VERSION ? range.newest : WORKER_PROTOCOL_VERSION,
             worker->load.busy_us, worker->load.steps_done, worker->load.requests,
             worker->load.reserved_tokens, worker->load.unconfirmed_tokens, worker->steps.steps,
             worker->steps.clamped, cost->step_us, cost->prefill_row_us, cost->prefill_position_us,
             cost->decode_row_us, cost->decode_context_us);
    add_device(out, &worker->load);
    /* Tells lives apart. The number itself stays inside: a worker hears a hello that has it. */
    struct digest digest = digest_of(&worker->info.incarnation, sizeof worker->info.incarnation);
    uint64_t incarnation;
    memcpy(&incarnation, digest.bytes, sizeof incarnation);
    str_addf(out,
             "\"incarnation\": \"%016" PRIx64 "\", \"model_hash\": \"%016" PRIx64
             "\", \"layout_hash\": \"%016" PRIx64 "\", \"numerics_id\": \"%016" PRIx64 "\"}",
             incarnation, worker->info.model_hash, worker->info.layout_hash,
             worker->info.numerics_id);
}

/* Appends the sums over these models: "queue": 1, "running": 2, "prompt_tokens": 3, "tokens": 4,
 * "requests": {...}. */
static void add_requests(struct str *out, const struct model_metrics *metrics, size_t count)
{
    uint64_t states[REQUEST_ENDED] = {0}, prompt_tokens = 0, tokens = 0;
    for (size_t i = 0; i < count; i++) {
        for (int state = 0; state < REQUEST_ENDED; state++)
            states[state] += (uint64_t)gauge_value(metrics[i].requests_by_state[state]);
        prompt_tokens += counter_value(metrics[i].prompt_tokens);
        tokens += counter_value(metrics[i].completion_tokens);
    }
    str_addf(out,
             "\"queue\": %" PRIu64 ", \"running\": %" PRIu64 ", \"prompt_tokens\": %" PRIu64
             ", \"tokens\": %" PRIu64 ", \"requests\": {",
             states[REQUEST_QUEUED] + states[REQUEST_REGIVE],
             states[REQUEST_PREFILL] + states[REQUEST_DECODE], prompt_tokens, tokens);
    for (int state = 0; state < REQUEST_ENDED; state++)
        str_addf(out, "%s\"%s\": %" PRIu64, state ? ", " : "", request_state_name(state),
                 states[state]);
    str_add(out, "}");
}

/* Appends the numerics of the model's first worker; "": it has none. */
static void add_numerics(struct str *out, const struct router_status *status, size_t model)
{
    const struct worker_info *first = NULL;
    for (size_t i = 0; i < status->worker_count && !first; i++)
        if (status->workers[i].model == model)
            first = &status->workers[i].info;
    add_text(out, "numerics", first ? first->numerics_name : "");
    add_text(out, "isa", first ? first->isa : "");
}

static void add_model(struct str *out, const struct admin *admin,
                      const struct router_status *status, size_t index)
{
    const struct served_model *model = &admin->models->items[index];
    str_add(out, "{");
    add_text(out, "name", model->name);
    add_numerics(out, status, index);
    str_addf(out,
             "\"context\": %u, \"vocab\": %u, \"tokenizer\": %s, \"prefill_workers\": %u, "
             "\"decode_workers\": %u, ",
             router_status_context(status, admin->models, index), model->limits.vocab,
             model->limits.has_tokenizer ? "true" : "false", status->models[index].prefill,
             status->models[index].decode);
    add_requests(out, &admin->metrics->models[index], 1);
    str_add(out, "}");
}

static void add_refused(struct str *out, const struct router_status *status, uint64_t now_us)
{
    bool first = true;
    for (size_t i = 0; i < STATUS_MAX_REFUSED; i++) {
        const struct refused_worker *refused = &status->refused[i];
        if (!refused->at_us || now_us - refused->at_us > STATUS_REFUSED_SHOWN_US)
            continue;
        str_add(out, first ? "{" : ", {");
        add_text(out, "name", refused->name);
        add_text(out, "role", worker_role_name(refused->role));
        add_text(out, "address", refused->address);
        add_text(out, "model", refused->model);
        add_text(out, "reason", reason_name(refused->reason));
        add_text(out, "sentence", refused->sentence);
        str_addf(out, "\"age_ms\": %" PRIu64 "}", (now_us - refused->at_us) / 1000);
        first = false;
    }
}

static void add_missing(struct str *out, const struct router_status *status, uint64_t now_us)
{
    bool first = true;
    for (size_t i = 0; i < status->missing_count; i++) {
        const struct missing_worker *missing = &status->missing[i];
        if (now_us - missing->heard_us > STATUS_MISSING_SHOWN_US)
            continue;
        str_add(out, first ? "{" : ", {");
        add_text(out, "name", missing->name);
        add_text(out, "role", worker_role_name(missing->role));
        add_text(out, "address", missing->address);
        add_text(out, "model", missing->model);
        str_addf(out, "\"silent_ms\": %" PRIu64 "}", (now_us - missing->heard_us) / 1000);
        first = false;
    }
}

/* Appends "window": {"seconds": 60, "ttft": {"count": 3, "p50_ms": 1.5, "p99_ms": 2.5}, ...}. */
static void add_window(struct recent_times *recent, struct str *out)
{
    struct recent_figure figures[RECENT_KINDS];
    bool known = recent_times_read(recent, clock_now_us(), figures);
    str_addf(out, "\"window\": {\"seconds\": %u", RECENT_TIMES_WINDOW_US / 1000000);
    for (int kind = 0; known && kind < RECENT_KINDS; kind++)
        str_addf(out, ", \"%s\": {\"count\": %zu, \"p50_ms\": %.3f, \"p99_ms\": %.3f}",
                 recent_kind_name((enum recent_kind)kind), figures[kind].count,
                 figures[kind].p50_us / 1e3, figures[kind].p99_us / 1e3);
    str_add(out, "}");
}

static void add_status(struct str *out, const struct admin *admin,
                       const struct router_status *status, uint64_t now_us)
{
    size_t count = admin->models->count;
    str_add(out, "{");
    if (count == 1) { /* for readers that expect a single model */
        add_text(out, "model", admin->models->items[0].name);
        add_numerics(out, status, 0);
    }
    str_addf(out, "\"draining\": %s, ", status->draining ? "true" : "false");
    add_requests(out, admin->metrics->models, count);
    str_add(out, ", ");
    add_window(admin->recent, out);
    str_add(out, ", \"models\": [");
    for (size_t i = 0; i < count; i++) {
        str_add(out, i ? ", " : "");
        add_model(out, admin, status, i);
    }
    str_add(out, "], \"workers\": [");
    for (size_t i = 0; i < status->worker_count; i++) {
        str_add(out, i ? ", " : "");
        add_worker(out, status, &status->workers[i]);
    }
    uint32_t devices = 0;
    for (size_t i = 0; i < status->worker_count; i++)
        devices += status->workers[i].state == WORKER_UP;
    str_add(out, "], \"slo\": ");
    slo_books_json(admin->metrics->slo, devices, now_us, out);
    str_add(out, ", \"missing\": [");
    add_missing(out, status, now_us);
    str_add(out, "], \"refused\": [");
    add_refused(out, status, now_us);
    str_add(out, "]}\n");
}

static void on_status(void *context, struct http_exchange *exchange)
{
    struct admin *admin = context;
    struct http_reply reply;
    http_reply_init(&reply, 2 * HTTP_MAX_REPLY_BYTES); /* some 1.1 KiB a worker */
    struct router_status *status = malloc(sizeof *status);
    reply.status = 500;
    if (status) {
        status_board_read(admin->board, status);
        reply.status = 200;
        reply.content_type = "application/json";
        add_status(&reply.body, admin, status, clock_now_us());
        router_status_deinit(status);
    }
    free(status);
    (void)http_exchange_reply(exchange, &reply);
    http_reply_deinit(&reply);
}

static void on_health(void *context, struct http_exchange *exchange)
{
    struct admin *admin = context;
    bool draining = status_board_draining(admin->board);
    http_exchange_reply_text(exchange, draining ? 503 : 200, draining ? "draining\n" : "ok\n");
}

static void on_metrics(void *context, struct http_exchange *exchange)
{
    struct admin *admin = context;
    router_metrics_reply(admin->metrics, exchange);
}

/* ------------------------------------------------------------- the status page, /trace, /traces */

/* Sends a reply that has request ids and clients' addresses: caches must not keep it. */
static void send_reply(struct http_exchange *exchange, struct http_reply *reply)
{
    (void)!http_reply_add_header(reply, "Cache-Control", "no-store");
    (void)!http_reply_add_header(reply, "X-Content-Type-Options", "nosniff");
    (void)http_exchange_reply(exchange, reply);
    http_reply_deinit(reply);
}

/* The policy allows the page's own script and style, by a nonce that is new each time, and nothing
 * else: neither injected code nor anything from elsewhere. */
static void on_page(void *context, struct http_exchange *exchange)
{
    (void)context;
    char nonce[33], policy[POLICY_BYTES];
    struct http_reply reply;
    http_reply_init(&reply, HTTP_MAX_REPLY_BYTES);
    snprintf(nonce, sizeof nonce, "%016" PRIx64 "%016" PRIx64, rng_entropy(), rng_entropy());
    snprintf(policy, sizeof policy,
             "default-src 'none'; script-src 'nonce-%s'; style-src 'nonce-%s'; connect-src 'self'; "
             "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
             nonce, nonce);
    const char *text = (const char *)status_page_html, *end = text + status_page_html_size;
    for (const char *mark; (mark = memmem(text, (size_t)(end - text), NONCE, strlen(NONCE)));) {
        str_append(&reply.body, text, (size_t)(mark - text));
        str_add(&reply.body, nonce);
        text = mark + strlen(NONCE);
    }
    str_append(&reply.body, text, (size_t)(end - text));
    reply.status = 200;
    reply.content_type = "text/html; charset=utf-8";
    (void)!http_reply_add_header(&reply, "Content-Security-Policy", policy);
    (void)!http_reply_add_header(&reply, "Referrer-Policy", "no-referrer");
    send_reply(exchange, &reply);
}

/* The index in the query ?choice=1; 0 if it is absent or invalid. */
static uint32_t asked_choice(const struct http_exchange *exchange)
{
    uint64_t choice = 0;
    const char *query = http_exchange_query(exchange);
    if (strncmp(query, CHOICE_PARAMETER, strlen(CHOICE_PARAMETER)) ||
        !str_to_u64(query + strlen(CHOICE_PARAMETER), 0, REQUEST_MAX_CHOICES - 1, &choice))
        return 0;
    return (uint32_t)choice;
}

static void on_trace(void *context, struct http_exchange *exchange)
{
    struct trace_ring *traces = ((const struct admin *)context)->traces;
    struct http_reply reply;
    http_reply_init(&reply, HTTP_MAX_REPLY_BYTES);
    const char *path = http_exchange_path(exchange);
    const char *id =
        strncmp(path, TRACE_PATH, strlen(TRACE_PATH)) ? NULL : path + strlen(TRACE_PATH);
    struct request_trace *trace = malloc(sizeof *trace);
    bool known = trace && (id ? trace_ring_find(traces, id, asked_choice(exchange), trace)
                              : trace_ring_newest(traces, trace, 1) == 1);
    if (known) {
        reply.status = 200;
        reply.content_type = "application/json";
        trace_json(trace, clock_now_us(), clock_unix_us(), &reply.body);
        str_add(&reply.body, "\n");
    } else if (trace) {
        str_addf(&reply.body, "no trace of %s: the newest requests are kept (trace-requests)\n",
                 id ? "that request" : "a request");
    } else {
        reply.status = 500;
    }
    free(trace);
    send_reply(exchange, &reply);
}

static void on_traces(void *context, struct http_exchange *exchange)
{
    const struct admin *admin = context;
    struct http_reply reply;
    http_reply_init(&reply, HTTP_MAX_REPLY_BYTES);
    struct request_trace *newest = malloc(ADMIN_MAX_TRACES * sizeof *newest);
    reply.status = 500;
    if (newest) {
        size_t count = trace_ring_newest(admin->traces, newest, ADMIN_MAX_TRACES);
        uint64_t now_us = clock_now_us(), unix_us = clock_unix_us();
        reply.status = 200;
        reply.content_type = "application/json";
        str_addf(&reply.body, "{\"unix_ms\": %.3f, \"traces\": [", (double)unix_us / 1e3);
        for (size_t i = 0; i < count; i++) {
            str_add(&reply.body, i ? ",\n" : "\n");
            trace_json(&newest[i], now_us, unix_us, &reply.body);
        }
        str_add(&reply.body, "]}\n");
    }
    free(newest);
    send_reply(exchange, &reply);
}

static void on_decisions(void *context, struct http_exchange *exchange)
{
    struct decision_ring *decisions = ((const struct admin *)context)->decisions;
    struct http_reply reply;
    http_reply_init(&reply, HTTP_MAX_REPLY_BYTES);
    const char *path = http_exchange_path(exchange);
    const char *id = strncmp(path, DECISIONS_PATH, strlen(DECISIONS_PATH))
                         ? NULL
                         : path + strlen(DECISIONS_PATH);
    bool known = decision_ring_json(decisions, id, asked_choice(exchange), &reply.body);
    reply.status = known ? 200 : 500; /* no memory */
    reply.content_type = "application/json";
    send_reply(exchange, &reply);
}

const struct http_route admin_routes[ADMIN_ROUTES] = {
    {"/metrics", HTTP_GET, on_metrics},     {"/healthz", HTTP_GET, on_health},
    {"/status", HTTP_GET, on_status},       {"/", HTTP_GET, on_page},
    {"/traces", HTTP_GET, on_traces},       {"/trace", HTTP_GET, on_trace},
    {"/trace/*", HTTP_GET, on_trace},       {DECISIONS_PATH "*", HTTP_GET, on_decisions},
    {"/decisions", HTTP_GET, on_decisions},
};
