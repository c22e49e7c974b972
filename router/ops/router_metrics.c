#include "router/ops/router_metrics.h"

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/net/crypto/certificates.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const lanes[ROUTER_LANES] = {"shm", "tcp", "cuda", "rdma"};

#define LABEL_BYTES 192 /* a model's name may be a label's value unchanged */
#define OF_MODEL    "model_name=\"%s\","

/* False: only a worker's registration ends with this reason. */
static bool of_requests(enum reason reason)
{
    return reason < REASON_WRONG_VERSION;
}

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
                                        "Prompt tokens, computed or cached", labels);
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
    of->moves =
        metrics_counter(m->metrics, "baton_router_moves_total",
                        "Prompts computed again because their worker left in order", labels);
    of->retries_held = metrics_counter(m->metrics, "baton_router_retries_held_total",
                                       "Retries that had to wait for the budget", labels);
    of->retry_budget = metrics_gauge(m->metrics, "baton_router_retry_budget",
                                     "Retries that the budget has left", labels);
    of->pairs_kept_out =
        metrics_gauge(m->metrics, "baton_router_pairs_kept_out",
                      "Pairs of workers that are kept apart because their reads fail", labels);
    of->tenants =
        metrics_gauge(m->metrics, "baton_router_tenants",
                      "Tenants with requests, or clients' addresses without keys", labels);
    of->tenants_waiting = metrics_gauge(m->metrics, "baton_router_tenants_waiting",
                                        "Tenants with requests that wait for workers", labels);
    of->tenant_share =
        metrics_gauge(m->metrics, "baton_router_tenant_largest_share",
                      "Share of the running requests that the tenant with most has", labels);
    for (int i = 0; i < 2; i++) {
        snprintf(labels, sizeof labels, OF_MODEL "role=\"%s\"", model, i ? "decode" : "prefill");
        of->workers_up[i] =
            metrics_gauge(m->metrics, "baton_router_workers_up", "Workers with a session", labels);
        of->workers_known[i] = metrics_gauge(m->metrics, "baton_router_workers_known",
                                             "Workers that registered", labels);
        of->workers_kept_out[i] =
            metrics_gauge(m->metrics, "baton_router_workers_kept_out",
                          "Workers that get no requests because they fail them", labels);
        of->workers_hung[i] = metrics_gauge(m->metrics, "baton_router_workers_hung",
                                            "Workers that hang in a step", labels);
    }
}

static const double ratio_bounds[] = {0.1,  0.25, 0.5, 0.67, 0.8, 0.9, 1,  1.1,
                                      1.25, 1.5,  2,   3,    4,   6,   10, 20};

static struct histogram *seconds(struct metrics *metrics, const char *labels, const char *name,
                                 const char *help)
{
    return metrics_histogram(metrics, name, help, labels, metrics_seconds_bounds,
                             metrics_seconds_bound_count);
}

static void create_times(struct metrics *metrics, const char *model, struct model_metrics *of)
{
    char labels[LABEL_BYTES];
    snprintf(labels, sizeof labels, "model_name=\"%s\"", model);
    of->queue_seconds = seconds(metrics, labels, "baton_request_queue_time_seconds",
                                "Arrival to the first dispatch");
    of->ttft_seconds =
        seconds(metrics, labels, "baton_time_to_first_token_seconds", "Arrival to the first token");
    of->tpot_seconds = seconds(metrics, labels, "baton_request_time_per_output_token_seconds",
                               "Mean time per token after the first, of one request");
    of->token_1_to_2_seconds = seconds(metrics, labels, "baton_router_token_1_to_2_seconds",
                                       "First token to the second, which a handoff may delay");
    of->request_seconds = seconds(metrics, labels, "baton_e2e_request_latency_seconds",
                                  "Arrival to the last token of answered requests");
    of->ttft_to_predicted = metrics_histogram(
        metrics, "baton_router_ttft_to_predicted_ratio",
        "Time to the first token, as a multiple of what was predicted when it was placed", labels,
        ratio_bounds, sizeof ratio_bounds / sizeof *ratio_bounds);
    of->tpot_to_predicted = metrics_histogram(
        metrics, "baton_router_tpot_to_predicted_ratio",
        "Time per token after the first, as a multiple of what was predicted when it was placed",
        labels, ratio_bounds, sizeof ratio_bounds / sizeof *ratio_bounds);
}

static void create_events(struct router_metrics *m)
{
    char labels[64];
    create_reasons(m, NULL, m->without_model);
    m->dropped = metrics_counter(m->metrics, "baton_router_dropped_messages_total",
                                 "Messages of older attempts and tokens that came twice", NULL);
    m->sessions_lost = metrics_counter(m->metrics, "baton_router_sessions_lost_total",
                                       "Sessions to workers that were up and ended", NULL);
    m->membership_changes = metrics_counter(
        m->metrics, "baton_router_membership_changes_total",
        "Changes of the set of workers: one joined, left or lapsed, or its session began or ended",
        NULL);
    m->hangs = metrics_counter(m->metrics, "baton_router_hangs_total",
                               "Times that a worker hung in a step", NULL);
    m->late_messages = metrics_counter(m->metrics, "baton_router_late_messages_total",
                                       "Calls that got no message in time", NULL);
    for (int end = FRAME_GATE_NONE + 1; end < FRAME_GATE_ENDS; end++) {
        snprintf(labels, sizeof labels, "reason=\"%s\"",
                 frame_gate_end_name((enum frame_gate_end)end));
        m->connections_ended[end] =
            metrics_counter(m->metrics, "baton_router_grpc_connections_ended_total",
                            "Connections of gRPC clients that the router ended", labels);
    }
    m->access_lost =
        metrics_counter(m->metrics, "baton_access_log_lines_lost_total",
                        "Lines of the access log that could not be written, or queued", NULL);
    m->spans_lost =
        metrics_counter(m->metrics, "baton_otlp_dropped_requests_total",
                        "Requests with spans that the collector did not take in time", NULL);
    for (int i = 0; i < ROUTER_LANES; i++) {
        snprintf(labels, sizeof labels, "lane=\"%s\"", lanes[i]);
        m->kv_bytes[i] = metrics_counter(m->metrics, "baton_router_kv_bytes_total",
                                         "KV bytes that decode workers pulled", labels);
    }
    for (int i = 0; i < 2; i++)
        m->step_seconds[i] =
            seconds(m->metrics, i ? "role=\"decode\"" : "role=\"prefill\"",
                    "baton_router_step_seconds", "Time of a step's rows, as workers report it");
    m->unsent_bytes = metrics_gauge(m->metrics, "baton_router_http_unsent_bytes",
                                    "Bytes of answers over HTTP that wait for their readers", NULL);
    static const char *const changes[] = {"cleared", "stored", "removed"};
    for (int i = 0; i <= PREFIX_REMOVED; i++) {
        snprintf(labels, sizeof labels, "change=\"%s\"", changes[i]);
        m->cache_changes[i] =
            metrics_counter(m->metrics, "baton_router_cache_events_total",
                            "Prefix cache events from workers, listings included", labels);
    }
}

static void create_prefixes(struct router_metrics *m)
{
    const struct {
        struct counter **counter;
        struct gauge **gauge;
        const char *name, *help;
    } rows[] = {
        {&m->cache_gaps, NULL, "baton_router_cache_gaps_total",
         "Times that events of a prefix cache were missing"},
        {&m->cache_restarts, NULL, "baton_router_cache_restarts_total",
         "Times that a worker was asked for all events again"},
        {&m->prefix_evicted, NULL, "baton_router_prefix_evicted_total",
         "Pairs of block and worker that made room for others in the prefix index"},
        {&m->prefix_promised, NULL, "baton_router_prefix_promised_total",
         "Promises of prompts to workers that were to compute or take them"},
        {NULL, &m->prefix_pairs, "baton_router_prefix_blocks",
         "Pairs of block and worker in the prefix index, held or promised"},
        {NULL, &m->prefix_names, "baton_router_prefix_names",
         "Different blocks in the prefix index"},
        {NULL, &m->prefix_promises, "baton_router_prefix_promises", "Open promises of prompts"},
        {NULL, &m->prefix_workers, "baton_router_prefix_workers",
         "Workers that tell what their prefix caches have"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].counter)
            *rows[i].counter = metrics_counter(m->metrics, rows[i].name, rows[i].help, NULL);
        else
            *rows[i].gauge = metrics_gauge(m->metrics, rows[i].name, rows[i].help, NULL);
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
        create_times(m->metrics, models->items[i].name, &m->models[i]);
    }
    create_events(m);
    create_prefixes(m);
    enum status status = slo_books_create(models->items[0].limits.slo, m->metrics, &m->slo);
    if (status != STATUS_OK)
        router_metrics_destroy(m);
    return status;
}

void router_metrics_destroy(struct router_metrics *m)
{
    slo_books_destroy(m->slo);
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

void router_metrics_watch_door(struct router_metrics *m, const struct http_server *door)
{
    pthread_mutex_lock(&m->door_lock);
    m->door = door;
    pthread_mutex_unlock(&m->door_lock);
}

void router_metrics_reply(struct router_metrics *m, struct http_exchange *exchange)
{
    struct http_reply reply;
    struct http_figures figures = {0};
    for (size_t i = 0; i < ROUTER_CERTIFICATES && m->expiries[i].certificates; i++)
        gauge_set(m->expiries[i].ends,
                  (double)certificates_expiry_unix_s(m->expiries[i].certificates));
    pthread_mutex_lock(&m->door_lock); /* the server can't be stopped meanwhile */
    if (m->door)
        http_server_figures(m->door, &figures);
    pthread_mutex_unlock(&m->door_lock);
    gauge_set(m->unsent_bytes, (double)figures.unsent_bytes);
    slo_books_show(m->slo, clock_now_us());
    http_reply_init(&reply, HTTP_MAX_REPLY_BYTES);
    reply.status = 200;
    reply.content_type = METRICS_CONTENT_TYPE;
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
    return to_us > from_us ? (double)(to_us - from_us) / 1e6 : 0;
}

static void observe_ratio(struct histogram *histogram, double seconds, uint64_t predicted_us)
{
    if (predicted_us)
        histogram_observe(histogram, seconds * 1e6 / (double)predicted_us);
}

void router_metrics_answered(struct router_metrics *m, size_t model, const struct request_timing *t,
                             uint32_t tokens, const struct slo_prediction *predicted)
{
    const struct model_metrics *of = &m->models[model];
    histogram_observe(of->queue_seconds, seconds_between(t->arrival_us, t->dispatched_us));
    histogram_observe(of->ttft_seconds, seconds_between(t->arrival_us, t->first_us));
    histogram_observe(of->request_seconds, seconds_between(t->arrival_us, t->last_us));
    observe_ratio(of->ttft_to_predicted, seconds_between(t->arrival_us, t->first_us),
                  predicted->ttft_us);
    if (tokens < 2)
        return;
    double tpot_seconds = seconds_between(t->first_us, t->last_us) / (tokens - 1);
    histogram_observe(of->tpot_seconds, tpot_seconds);
    observe_ratio(of->tpot_to_predicted, tpot_seconds, predicted->tpot_us);
    histogram_observe(of->token_1_to_2_seconds, seconds_between(t->first_us, t->second_us));
}

void router_metrics_prefix(struct router_metrics *m, const struct prefix_index_figures *now)
{
    const struct prefix_index_figures *seen = &m->prefix_seen;
    for (int i = 0; i <= PREFIX_REMOVED; i++)
        counter_add(m->cache_changes[i], now->changes[i] - seen->changes[i]);
    counter_add(m->cache_gaps, now->gaps - seen->gaps);
    counter_add(m->prefix_evicted, now->evicted - seen->evicted);
    counter_add(m->prefix_promised, now->promised - seen->promised);
    gauge_set(m->prefix_pairs, now->pairs);
    gauge_set(m->prefix_names, now->names);
    gauge_set(m->prefix_promises, now->promises);
    gauge_set(m->prefix_workers, now->workers);
    m->prefix_seen = *now;
}

void router_metrics_pulled(struct router_metrics *m, const char *lane, uint64_t bytes)
{
    for (int i = 0; i < ROUTER_LANES; i++)
        if (!strcmp(lanes[i], lane)) /* a worker may report an unknown lane: ignored */
            counter_add(m->kv_bytes[i], bytes);
}

void router_metrics_step(struct router_metrics *m, enum worker_role role, uint64_t took_us)
{
    histogram_observe(m->step_seconds[role == ROLE_DECODE], (double)took_us * 1e-6);
}

/* --------------------------------------------------------------------------- phases of requests */

static const double token_bounds[] = {1,   2,    4,    8,    16,   32,    64,    128,   256,
                                      512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072};

static struct histogram *tokens(struct metrics *metrics, const char *labels, const char *name,
                                const char *help)
{
    return metrics_histogram(metrics, name, help, labels, token_bounds,
                             sizeof token_bounds / sizeof *token_bounds);
}

void phase_metrics_create(struct phase_metrics *phases, struct metrics *metrics, const char *model)
{
    char of_model[LABEL_BYTES], labels[LABEL_BYTES + 64];
    snprintf(of_model, sizeof of_model, "model_name=\"%s\"", model);
    *phases = (struct phase_metrics){
        .inter_token_seconds = seconds(metrics, of_model, "baton_inter_token_latency_seconds",
                                       "One token to the next of a request, for each token"),
        .prefill_seconds = seconds(metrics, of_model, "baton_request_prefill_time_seconds",
                                   "First dispatch to the first token of answered requests"),
        .decode_seconds = seconds(metrics, of_model, "baton_request_decode_time_seconds",
                                  "First token to the last of answered requests"),
        .handoff_seconds = seconds(metrics, of_model, "baton_request_handoff_time_seconds",
                                   "First read of KV bytes to the end of the pull"),
        .prompt_tokens = tokens(metrics, of_model, "baton_request_prompt_tokens",
                                "Prompt tokens of answered requests"),
        .generation_tokens = tokens(metrics, of_model, "baton_request_generation_tokens",
                                    "Generated tokens of answered requests"),
    };
    for (int finish = FINISH_NONE + 1; finish < PHASE_FINISHES; finish++) {
        snprintf(labels, sizeof labels, "%s,finished_reason=\"%s\"", of_model,
                 finish_reason_name((enum finish_reason)finish));
        phases->answered[finish] = metrics_counter(metrics, "baton_request_success_total",
                                                   "Answers, by how they ended", labels);
    }
}

void phase_metrics_token(struct phase_metrics *phases, uint64_t gap_us)
{
    histogram_observe(phases->inter_token_seconds, (double)gap_us / 1e6);
}

void phase_metrics_answered(struct phase_metrics *phases, const struct request_trace *trace,
                            enum finish_reason finish)
{
    const struct trace_attempt *attempt = request_trace_last(trace);
    histogram_observe(phases->prefill_seconds,
                      seconds_between(trace->dispatched_us, trace->first_us));
    histogram_observe(phases->decode_seconds, seconds_between(trace->first_us, trace->last_us));
    histogram_observe(phases->prompt_tokens, trace->prompt_tokens);
    histogram_observe(phases->generation_tokens, trace->tokens);
    if (attempt && attempt->handoff.known && attempt->handoff.read_us)
        histogram_observe(phases->handoff_seconds,
                          seconds_between(attempt->handoff.read_us, attempt->handoff.done_us));
    if (finish > FINISH_NONE && finish < PHASE_FINISHES)
        counter_add(phases->answered[finish], 1);
}

/* ------------------------------------------------------------------------------ the last minute */

struct recent_times {
    pthread_mutex_t mutex;
    uint64_t count; /* all samples ever; the newest is samples[(count - 1) % capacity] */
    struct recent_sample samples[RECENT_TIMES_CAPACITY];
};

const char *recent_kind_name(enum recent_kind kind)
{
    static const char *const names[RECENT_KINDS] = {"queue", "ttft", "tpot", "e2e"};
    return names[kind];
}

enum status recent_times_create(struct recent_times **out)
{
    struct recent_times *times = calloc(1, sizeof *times);
    if (!times)
        return STATUS_LIMIT;
    pthread_mutex_init(&times->mutex, NULL);
    *out = times;
    return STATUS_OK;
}

void recent_times_destroy(struct recent_times *times)
{
    if (!times)
        return;
    pthread_mutex_destroy(&times->mutex);
    free(times);
}

void recent_times_note(struct recent_times *times, const struct recent_sample *sample)
{
    pthread_mutex_lock(&times->mutex);
    times->samples[times->count++ % RECENT_TIMES_CAPACITY] = *sample;
    pthread_mutex_unlock(&times->mutex);
}

static int by_size(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return left < right ? -1 : left > right;
}

/* The nearest rank: the smallest value that `percent` of all values don't exceed. */
static double quantile(const double *sorted, size_t count, unsigned percent)
{
    size_t rank = (count * percent + 99) / 100;
    return sorted[rank ? rank - 1 : 0];
}

static struct recent_figure figure(const struct recent_sample *samples, size_t count,
                                   enum recent_kind kind, double *scratch)
{
    struct recent_figure figure = {0};
    for (size_t i = 0; i < count; i++)
        if (samples[i].us[kind] >= 0)
            scratch[figure.count++] = samples[i].us[kind];
    if (!figure.count)
        return figure;
    qsort(scratch, figure.count, sizeof *scratch, by_size);
    figure.p50_us = quantile(scratch, figure.count, 50);
    figure.p99_us = quantile(scratch, figure.count, 99);
    return figure;
}

/* Copies the samples of the window, the newest first. Samples are in the order of their ends. */
static size_t copy_window(struct recent_times *times, uint64_t now_us,
                          struct recent_sample *samples)
{
    uint64_t since_us = now_us > RECENT_TIMES_WINDOW_US ? now_us - RECENT_TIMES_WINDOW_US : 0;
    size_t taken = 0;
    pthread_mutex_lock(&times->mutex);
    for (uint64_t i = times->count; i > 0 && taken < RECENT_TIMES_CAPACITY; i--) {
        const struct recent_sample *sample = &times->samples[(i - 1) % RECENT_TIMES_CAPACITY];
        if (sample->ended_us < since_us)
            break;
        samples[taken++] = *sample;
    }
    pthread_mutex_unlock(&times->mutex);
    return taken;
}

bool recent_times_read(struct recent_times *times, uint64_t now_us,
                       struct recent_figure figures[RECENT_KINDS])
{
    struct recent_sample *samples = malloc(RECENT_TIMES_CAPACITY * sizeof *samples);
    double *scratch = malloc(RECENT_TIMES_CAPACITY * sizeof *scratch);
    bool possible = samples && scratch;
    if (possible) {
        size_t count = copy_window(times, now_us, samples);
        for (int kind = 0; kind < RECENT_KINDS; kind++)
            figures[kind] = figure(samples, count, (enum recent_kind)kind, scratch);
    }
    free(scratch);
    free(samples);
    return possible;
}
