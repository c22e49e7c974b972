#include "router/ops/admin_views.h"

#include "common/base/clock.h"
#include "common/base/rng.h"
#include "router/ops/status_page.h"
#include "router/ops/trace_json.h"
#include "router/request_parse.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRACE_PATH       "/trace/"
#define CHOICE_PARAMETER "choice="
#define POLICY_BYTES     400

/* Request ids and clients' addresses: for who asked, not for caches, nor for pages of others. */
static void send_reply(struct http_exchange *exchange, struct http_reply *reply)
{
    (void)!http_reply_add_header(reply, "Cache-Control", "no-store");
    (void)!http_reply_add_header(reply, "X-Content-Type-Options", "nosniff");
    (void)http_exchange_reply(exchange, reply);
    http_reply_deinit(reply);
}

void admin_views_page(struct http_exchange *exchange)
{
    char nonce[33], policy[POLICY_BYTES];
    struct http_reply reply;
    http_reply_init(&reply, HTTP_MAX_REPLY_BYTES);
    snprintf(nonce, sizeof nonce, "%016" PRIx64 "%016" PRIx64, rng_entropy(), rng_entropy());
    status_page(nonce, &reply.body, policy, sizeof policy);
    reply.status = 200;
    reply.content_type = "text/html; charset=utf-8";
    (void)!http_reply_add_header(&reply, "Content-Security-Policy", policy);
    (void)!http_reply_add_header(&reply, "Referrer-Policy", "no-referrer");
    send_reply(exchange, &reply);
}

/* Which of the answers that a request asked for: ?choice=1; the first where nothing, or nonsense,
 * is said. */
static uint32_t asked_choice(const struct http_exchange *exchange)
{
    uint64_t choice = 0;
    const char *query = http_exchange_query(exchange);
    if (strncmp(query, CHOICE_PARAMETER, strlen(CHOICE_PARAMETER)) ||
        !str_to_u64(query + strlen(CHOICE_PARAMETER), 0, REQUEST_MAX_CHOICES - 1, &choice))
        return 0;
    return (uint32_t)choice;
}

void admin_views_trace(struct trace_ring *traces, struct http_exchange *exchange)
{
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

static void add_newest(struct str *out, const struct request_trace *newest, size_t count)
{
    uint64_t now_us = clock_now_us(), unix_us = clock_unix_us();
    str_addf(out, "{\"unix_ms\": %.3f, \"traces\": [", (double)unix_us / 1e3);
    for (size_t i = 0; i < count; i++) {
        str_add(out, i ? ",\n" : "\n");
        trace_json(&newest[i], now_us, unix_us, out);
    }
    str_add(out, "]}\n");
}

void admin_views_traces(struct trace_ring *traces, struct http_exchange *exchange)
{
    struct http_reply reply;
    http_reply_init(&reply, HTTP_MAX_REPLY_BYTES);
    struct request_trace *newest = malloc(ADMIN_MAX_TRACES * sizeof *newest);
    reply.status = 500;
    if (newest) {
        reply.status = 200;
        reply.content_type = "application/json";
        add_newest(&reply.body, newest, trace_ring_newest(traces, newest, ADMIN_MAX_TRACES));
    }
    free(newest);
    send_reply(exchange, &reply);
}

void admin_views_add_window(struct recent_times *recent, struct str *out)
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
