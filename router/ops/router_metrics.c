#include "router/ops/router_metrics.h"

#include "common/base/assert.h"
#include "common/net/crypto/certificates.h"

#include <stdio.h>
#include <string.h>

static const char *const lanes[ROUTER_LANES] = {"shm", "tcp"};

/* Reasons that only a worker's registration can end with. */
static bool of_requests(enum reason reason)
{
    return reason < REASON_WRONG_VERSION;
}

#define LABEL_BYTES 192
#define OF_MODEL    "model_name=\"%s\","

static void create_reasons(struct router_metrics *m, const char *model,
                           struct counter *by_reason[REASON_COUNT])
{
    char labels[LABEL_BYTES];
    for (int reason = 0; reason < REASON_COUNT; reason++) {
        if (!of_requests(reason))
            continue;
        const char *name = reason ? reason_name(reason) : "ok";
        if (model)
            snprintf(labels, sizeof labels, OF_MODEL "status=\"%s\"", model, name);
        else
            snprintf(labels, sizeof labels, "status=\"%s\"", name);
        by_reason[reason] =
            metrics_counter(m->metrics, "baton_router_requests_total",
                            "Requests that ended, by terminal status (ok or its reason)", labels);
    }
}

static void create_requests(struct router_metrics *m, const char *model, struct model_metrics *of)
{
    char labels[LABEL_BYTES];
    create_reasons(m, model, of->requests_by_reason);
    for (int state = 0; state < REQUEST_ENDED; state++) {
        snprintf(labels, sizeof labels, OF_MODEL "state=\"%s\"", model, request_state_name(state));
        of->requests_by_state[state] = metrics_gauge(m->metrics, "baton_router_requests",
                                                     "Requests that are alive, by state", labels);
    }
    snprintf(labels, sizeof labels, "model_name=\"%s\"", model);
    of->prompt_tokens = metrics_counter(m->metrics, "baton_prompt_tokens_total",
                                        "Prompt tokens that were computed, or were cached", labels);
    of->completion_tokens = metrics_counter(m->metrics, "baton_generation_tokens_total",
                                            "Tokens of answers, as they come", labels);
}

static void create_work(struct router_metrics *m, const char *model, struct model_metrics *of)
{
    char labels[LABEL_BYTES];
    snprintf(labels, sizeof labels, "model_name=\"%s\"", model);
    of->prefill_runs = metrics_counter(m->metrics, "baton_router_prefills_total",
                                       "Prompts sent to a prefill worker", labels);
    of->local_prefills =
        metrics_counter(m->metrics, "baton_router_local_prefills_total",
                        "Prompts sent to a decode worker to be computed there", labels);
    of->retries = metrics_counter(m->metrics, "baton_router_retries_total",
                                  "Prompts computed again after a loss or a refusal", labels);
    of->regives = metrics_counter(m->metrics, "baton_router_regives_total",
                                  "KV handles given to another decode worker", labels);
    for (int i = 0; i < 2; i++) {
        snprintf(labels, sizeof labels, OF_MODEL "role=\"%s\"", model, i ? "decode" : "prefill");
        of->workers_up[i] =
            metrics_gauge(m->metrics, "baton_router_workers_up", "Workers with a session", labels);
        of->workers_known[i] = metrics_gauge(m->metrics, "baton_router_workers_known",
                                             "Workers that registered", labels);
    }
}

static struct histogram *seconds(struct router_metrics *m, const char *model, const char *name,
                                 const char *help)
{
    char labels[LABEL_BYTES];
    snprintf(labels, sizeof labels, "model_name=\"%s\"", model);
    return metrics_histogram(m->metrics, name, help, labels, metrics_seconds_bounds,
                             metrics_seconds_bound_count);
}

static void create_times(struct router_metrics *m, const char *model, struct model_metrics *of)
{
    of->queue_seconds =
        seconds(m, model, "baton_request_queue_time_seconds", "Arrival to the first dispatch");
    of->ttft_seconds =
        seconds(m, model, "baton_time_to_first_token_seconds", "Arrival to the first token");
    of->tpot_seconds = seconds(m, model, "baton_request_time_per_output_token_seconds",
                               "Mean time per token after the first, of one request");
    of->token_1_to_2_seconds = seconds(m, model, "baton_router_token_1_to_2_seconds",
                                       "First token to the second: what the handoff may show in");
    of->request_seconds = seconds(m, model, "baton_e2e_request_latency_seconds",
                                  "Arrival to the last token of answered requests");
}

static void create_events(struct router_metrics *m)
{
    char labels[64];
    create_reasons(m, NULL, m->without_model);
    m->dropped = metrics_counter(m->metrics, "baton_router_dropped_messages_total",
                                 "Messages of older attempts and tokens that came twice", NULL);
    m->sessions_lost = metrics_counter(m->metrics, "baton_router_sessions_lost_total",
                                       "Sessions to workers that were up and ended", NULL);
    m->late_messages = metrics_counter(m->metrics, "baton_router_late_messages_total",
                                       "Calls whose message did not come in time", NULL);
    m->access_lost =
        metrics_counter(m->metrics, "baton_access_log_lines_lost_total",
                        "Lines of the access log that could not be written, or queued", NULL);
    m->spans_lost =
        metrics_counter(m->metrics, "baton_otlp_dropped_requests_total",
                        "Requests whose spans the collector did not take in time", NULL);
    for (int i = 0; i < ROUTER_LANES; i++) {
        snprintf(labels, sizeof labels, "lane=\"%s\"", lanes[i]);
        m->kv_bytes[i] = metrics_counter(m->metrics, "baton_router_kv_bytes_total",
                                         "KV bytes that decode workers pulled", labels);
    }
    m->unsent_bytes = metrics_gauge(m->metrics, "baton_router_http_unsent_bytes",
                                    "Bytes of answers over HTTP that wait for their readers", NULL);
    static const char *const changes[CACHE_CHANGES] = {"cleared", "stored", "removed"};
    for (int i = 0; i < CACHE_CHANGES; i++) {
        snprintf(labels, sizeof labels, "change=\"%s\"", changes[i]);
        m->cache_changes[i] =
            metrics_counter(m->metrics, "baton_router_cache_events_total",
                            "What workers told of their prefix caches, listings included", labels);
    }
}

enum status router_metrics_create(struct router_metrics *m, const struct served_models *models)
{
    *m = (struct router_metrics){.metrics = metrics_create(), .model_count = models->count};
    if (!m->metrics)
        return STATUS_LIMIT;
    pthread_mutex_init(&m->door_lock, NULL);
    for (size_t i = 0; i < models->count; i++) {
        create_requests(m, models->items[i].name, &m->models[i]);
        create_work(m, models->items[i].name, &m->models[i]);
        create_times(m, models->items[i].name, &m->models[i]);
    }
    create_events(m);
    return STATUS_OK;
}

void router_metrics_destroy(struct router_metrics *m)
{
    pthread_mutex_destroy(&m->door_lock);
    metrics_destroy(m->metrics);
}

void router_metrics_watch(struct router_metrics *m, struct certificates *certificates,
                          const char *label)
{
    if (!certificates)
        return;
    size_t place = 0;
    while (place < ROUTER_CERTIFICATES && m->expiries[place].certificates)
        place++;
    ASSERT(place < ROUTER_CERTIFICATES);
    m->expiries[place].certificates = certificates;
    m->expiries[place].ends =
        metrics_gauge(m->metrics, "baton_tls_certificate_expiry_timestamp_seconds",
                      "When the certificate ends, in seconds since 1970", label);
}

static void look_at_certificates(struct router_metrics *m)
{
    for (size_t i = 0; i < ROUTER_CERTIFICATES && m->expiries[i].certificates; i++)
        gauge_set(m->expiries[i].ends,
                  (double)certificates_expiry_unix_s(m->expiries[i].certificates));
}

void router_metrics_watch_door(struct router_metrics *m, const struct http_server *door)
{
    pthread_mutex_lock(&m->door_lock);
    m->door = door;
    pthread_mutex_unlock(&m->door_lock);
}

/* Under the lock its server can't be stopped meanwhile. */
static void look_at_door(struct router_metrics *m)
{
    struct http_figures figures = {0};
    pthread_mutex_lock(&m->door_lock);
    if (m->door)
        http_server_figures(m->door, &figures);
    pthread_mutex_unlock(&m->door_lock);
    gauge_set(m->unsent_bytes, (double)figures.unsent_bytes);
}

void router_metrics_reply(struct router_metrics *m, struct http_exchange *exchange)
{
    struct http_reply reply;
    http_reply_init(&reply, HTTP_MAX_REPLY_BYTES);
    reply.status = 200;
    reply.content_type = METRICS_CONTENT_TYPE;
    look_at_certificates(m);
    look_at_door(m);
    metrics_render(m->metrics, &reply.body);
    (void)http_exchange_reply(exchange, &reply);
    http_reply_deinit(&reply);
}

void router_metrics_ended(struct router_metrics *m, size_t model, enum reason reason)
{
    ASSERT(of_requests(reason));
    ASSERT(model == ROUTER_NO_MODEL || model < m->model_count);
    counter_add(model == ROUTER_NO_MODEL ? m->without_model[reason]
                                         : m->models[model].requests_by_reason[reason],
                1);
}

static double seconds_between(uint64_t from_us, uint64_t to_us)
{
    return (double)(to_us - from_us) / 1e6;
}

void router_metrics_answered(struct router_metrics *m, size_t model, const struct request_timing *t,
                             uint32_t tokens)
{
    const struct model_metrics *of = &m->models[model];
    histogram_observe(of->queue_seconds, seconds_between(t->arrival_us, t->dispatched_us));
    histogram_observe(of->ttft_seconds, seconds_between(t->arrival_us, t->first_us));
    histogram_observe(of->request_seconds, seconds_between(t->arrival_us, t->last_us));
    if (tokens < 2)
        return;
    histogram_observe(of->tpot_seconds, seconds_between(t->first_us, t->last_us) / (tokens - 1));
    histogram_observe(of->token_1_to_2_seconds, seconds_between(t->first_us, t->second_us));
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
