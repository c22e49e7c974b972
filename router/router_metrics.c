#include "router/router_metrics.h"

#include "common/base/assert.h"

#include <stdio.h>
#include <string.h>

static const char *const lanes[ROUTER_LANES] = {"shm", "tcp"};

/* Reasons that only a worker's registration can end with. */
static bool of_requests(enum reason reason)
{
    return reason < REASON_WRONG_VERSION;
}

static void create_requests(struct router_metrics *m)
{
    char labels[64];
    for (int reason = 0; reason < REASON_COUNT; reason++) {
        if (!of_requests(reason))
            continue;
        snprintf(labels, sizeof labels, "status=\"%s\"", reason ? reason_name(reason) : "ok");
        m->requests_by_reason[reason] =
            metrics_counter(m->metrics, "baton_router_requests_total",
                            "Requests that ended, by terminal status (ok or its reason)", labels);
    }
    for (int state = 0; state < REQUEST_ENDED; state++) {
        snprintf(labels, sizeof labels, "state=\"%s\"", request_state_name(state));
        m->requests_by_state[state] = metrics_gauge(m->metrics, "baton_router_requests",
                                                    "Requests that are alive, by state", labels);
    }
    m->prompt_tokens = metrics_counter(m->metrics, "baton_router_tokens_total",
                                       "Tokens of answered requests", "kind=\"prompt\"");
    m->completion_tokens = metrics_counter(m->metrics, "baton_router_tokens_total",
                                           "Tokens of answered requests", "kind=\"completion\"");
}

static void create_work(struct router_metrics *m)
{
    m->prefill_runs = metrics_counter(m->metrics, "baton_router_prefills_total",
                                      "Prompts sent to a prefill worker", NULL);
    m->local_prefills =
        metrics_counter(m->metrics, "baton_router_local_prefills_total",
                        "Prompts sent to a decode worker to be computed there", NULL);
    m->retries = metrics_counter(m->metrics, "baton_router_retries_total",
                                 "Prompts computed again after a loss or a refusal", NULL);
    m->regives = metrics_counter(m->metrics, "baton_router_regives_total",
                                 "KV handles given to another decode worker", NULL);
    m->dropped = metrics_counter(m->metrics, "baton_router_dropped_messages_total",
                                 "Messages of older attempts and tokens that came twice", NULL);
    m->sessions_lost = metrics_counter(m->metrics, "baton_router_sessions_lost_total",
                                       "Sessions to workers that were up and ended", NULL);
    m->late_messages = metrics_counter(m->metrics, "baton_router_late_messages_total",
                                       "Calls whose message did not come in time", NULL);
    for (int i = 0; i < 2; i++) {
        const char *labels = i ? "role=\"decode\"" : "role=\"prefill\"";
        m->workers_up[i] =
            metrics_gauge(m->metrics, "baton_router_workers_up", "Workers with a session", labels);
        m->workers_known[i] = metrics_gauge(m->metrics, "baton_router_workers_known",
                                            "Workers that registered", labels);
    }
    char labels[64];
    for (int i = 0; i < ROUTER_LANES; i++) {
        snprintf(labels, sizeof labels, "lane=\"%s\"", lanes[i]);
        m->kv_bytes[i] = metrics_counter(m->metrics, "baton_router_kv_bytes_total",
                                         "KV bytes that decode workers pulled", labels);
    }
    static const char *const changes[CACHE_CHANGES] = {"cleared", "stored", "removed"};
    for (int i = 0; i < CACHE_CHANGES; i++) {
        snprintf(labels, sizeof labels, "change=\"%s\"", changes[i]);
        m->cache_changes[i] =
            metrics_counter(m->metrics, "baton_router_cache_events_total",
                            "What workers told of their prefix caches, listings included", labels);
    }
}

static struct histogram *seconds(struct router_metrics *m, const char *name, const char *help)
{
    return metrics_histogram(m->metrics, name, help, NULL, metrics_seconds_bounds,
                             metrics_seconds_bound_count);
}

enum status router_metrics_create(struct router_metrics *m)
{
    *m = (struct router_metrics){.metrics = metrics_create()};
    if (!m->metrics)
        return STATUS_LIMIT;
    create_requests(m);
    create_work(m);
    m->queue_seconds = seconds(m, "baton_router_queue_seconds", "Arrival to the first dispatch");
    m->ttft_seconds = seconds(m, "baton_router_ttft_seconds", "Arrival to the first token");
    m->tpot_seconds = seconds(m, "baton_router_tpot_seconds",
                              "Mean time per token after the first, of one request");
    m->token_1_to_2_seconds = seconds(m, "baton_router_token_1_to_2_seconds",
                                      "First token to the second: what the handoff may show in");
    m->request_seconds = seconds(m, "baton_router_request_seconds",
                                 "Arrival to the last token of answered requests");
    return STATUS_OK;
}

void router_metrics_destroy(struct router_metrics *m)
{
    metrics_destroy(m->metrics);
}

void router_metrics_ended(struct router_metrics *m, enum reason reason)
{
    ASSERT(of_requests(reason));
    counter_add(m->requests_by_reason[reason], 1);
}

static double seconds_between(uint64_t from_us, uint64_t to_us)
{
    return (double)(to_us - from_us) / 1e6;
}

void router_metrics_answered(struct router_metrics *m, const struct request *request)
{
    const struct request_timing *t = &request->timing;
    if (request->first == request)
        counter_add(m->prompt_tokens, request->prompt_count);
    counter_add(m->completion_tokens, request->emitted_count);
    histogram_observe(m->queue_seconds, seconds_between(t->arrival_us, t->dispatched_us));
    histogram_observe(m->ttft_seconds, seconds_between(t->arrival_us, t->first_us));
    histogram_observe(m->request_seconds, seconds_between(t->arrival_us, t->last_us));
    if (request->emitted_count < 2)
        return;
    histogram_observe(m->tpot_seconds,
                      seconds_between(t->first_us, t->last_us) / (request->emitted_count - 1));
    histogram_observe(m->token_1_to_2_seconds, seconds_between(t->first_us, t->second_us));
}

void router_metrics_cache(struct router_metrics *m, const uint64_t counts[CACHE_CHANGES])
{
    for (int i = 0; i < CACHE_CHANGES; i++)
        counter_add(m->cache_changes[i], counts[i]);
}

void router_metrics_pulled(struct router_metrics *m, const char *lane, uint64_t bytes)
{
    for (int i = 0; i < ROUTER_LANES; i++)
        if (!strcmp(lanes[i], lane)) /* there is no other, whatever a worker says */
            counter_add(m->kv_bytes[i], bytes);
}
