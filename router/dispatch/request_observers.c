#include "router/dispatch/request_observers.h"

#include "common/base/str.h"

#include <stdlib.h>
#include <string.h>

void request_observers_close(struct request_observers *views)
{
    access_log_close(views->access);
    otlp_stop(views->otlp);
    recent_times_destroy(views->recent);
    trace_ring_destroy(views->traces);
    decision_ring_destroy(views->decisions);
    free(views->phases);
    *views = (struct request_observers){0};
}

static enum status keep_traces(const struct request_observers_config *config,
                               struct request_observers *views, struct error *err)
{
    const struct served_models *models = config->models;
    views->phases = calloc(models->count, sizeof *views->phases);
    for (size_t i = 0; views->phases && i < models->count; i++)
        phase_metrics_create(&views->phases[i], config->metrics->metrics, models->items[i].name);
    if (!views->phases || trace_ring_create(config->trace_requests, &views->traces) != STATUS_OK ||
        recent_times_create(&views->recent) != STATUS_OK)
        return error_set(err, STATUS_LIMIT,
                         "no memory for the traces of %u requests (trace-requests)",
                         config->trace_requests);
    if (decision_ring_create(config->decisions, config->decision_percent, &views->decisions) !=
        STATUS_OK)
        return error_set(err, STATUS_LIMIT, "no memory for %u decisions (decisions)",
                         config->decisions);
    return STATUS_OK;
}

enum status request_observers_open(const struct request_observers_config *config,
                                   struct request_observers *views, struct error *err)
{
    const struct router_metrics *metrics = config->metrics;
    *views = (struct request_observers){.slo = metrics->slo};
    enum status status = keep_traces(config, views, err);
    if (status == STATUS_OK && strcmp(config->access_log, "off"))
        status = access_log_open(config->access_log, metrics->access_lost, &views->access, err);
    if (status == STATUS_OK && *config->collector.url)
        status = otlp_start(&config->collector, metrics->spans_lost, &views->otlp, err);
    if (status != STATUS_OK)
        request_observers_close(views);
    return status;
}

static void show(const struct request_observers *views, struct request *request)
{
    if (views->traces)
        trace_ring_put(views->traces, &request->trace);
}

void request_observers_arrived(const struct request_observers *views, struct request *request)
{
    uint32_t slo_class = request->call->slo_class;
    if (views->slo && slo_class != SLO_NONE)
        str_copy(request->trace.slo_class, sizeof request->trace.slo_class,
                 slo_books_classes(views->slo)->items[slo_class].name);
    show(views, request);
}

void request_observers_moved(const struct request_observers *views, struct request *request)
{
    if (request->state == CHOICE_OPEN)
        show(views, request);
}

void request_observers_token(const struct request_observers *views, struct request *request,
                             uint64_t now_us)
{
    struct request_trace *trace = &request->trace;
    if (views->phases && trace->tokens)
        phase_metrics_token(&views->phases[request->call->model], now_us - trace->last_us);
    request_trace_token(trace, request->life.from_decode, now_us);
    if (trace->tokens == 1)
        show(views, request);
}

void request_observers_prefilled(const struct request_observers *views, struct request *request,
                                 const Baton__Worker__V1__Prefilled *said)
{
    struct trace_prefill prefill = {.queued_us = said->queued_us,
                                    .cached_tokens = said->cached_tokens,
                                    .chunk_count = said->chunk_count};
    size_t kept = said->n_chunk_end_us;
    if (kept > TRACE_MAX_CHUNKS || kept > said->chunk_count)
        return; /* no worker of this version sends that */
    for (size_t i = 0; i < kept; i++)
        prefill.chunk_end_us[i] = said->chunk_end_us[i];
    if (kept < prefill.chunk_count && kept < TRACE_MAX_CHUNKS)
        prefill.chunk_count = (uint32_t)kept;
    request_trace_prefilled(&request->trace, said->attempt, &prefill);
    show(views, request);
}

void request_observers_pulled(const struct request_observers *views, struct request *request,
                              const Baton__Worker__V1__Pulled *said, uint64_t now_us)
{
    struct trace_handoff handoff = {.queued_us = said->queued_us,
                                    .read_us = said->read_us,
                                    .done_us = said->done_us,
                                    .bytes = said->bytes,
                                    .early_bytes = said->bytes_before_complete};
    str_copy(handoff.lane, sizeof handoff.lane, said->lane);
    request_trace_pulled(&request->trace, said->attempt, &handoff, now_us);
    show(views, request);
}

static void note_times(struct recent_times *recent, const struct request_trace *trace)
{
    struct recent_sample sample = {.ended_us = trace->ended_us};
    sample.us[RECENT_QUEUE] = (double)(trace->dispatched_us - trace->arrival_us);
    sample.us[RECENT_TTFT] = (double)(trace->first_us - trace->arrival_us);
    sample.us[RECENT_TPOT] = trace->tokens > 1 ? request_trace_tpot_us(trace) : -1;
    sample.us[RECENT_REQUEST] = (double)(trace->last_us - trace->arrival_us);
    recent_times_note(recent, &sample);
}

static void note_class(struct slo_books *books, struct request *request, enum reason reason,
                       uint64_t now_us)
{
    struct request_trace *trace = &request->trace;
    const struct call *call = request->call;
    uint64_t age_us = now_us - trace->arrival_us;
    struct slo_ending ending = {
        .slo_class = call->slo_class,
        .objective = call->objective,
        .reason = reason,
        .outcome = {.ttft_us = trace->first_us ? trace->first_us - trace->arrival_us : age_us,
                    .e2e_us = trace->last_us ? trace->last_us - trace->arrival_us : age_us,
                    .longest_gap_us = trace->longest_gap_us,
                    .answer_tokens = trace->tokens},
        .predicted = request->predicted,
        .prompt_tokens = call->prompt_count};
    slo_books_ended(books, &ending, now_us);
    trace->slo = slo_judge(&ending);
    trace->predicted = request->predicted;
}

void request_observers_ended(const struct request_observers *views, struct request *request,
                             enum reason reason, uint64_t now_us)
{
    struct request_trace *trace = &request->trace;
    bool answered = !reason && trace->first_us;
    request_trace_end(trace, reason ? reason_name(reason) : "ok",
                      reason ? "" : finish_reason_name(request->finish), request->life.runs,
                      now_us);
    note_class(views->slo, request, reason, now_us);
    show(views, request);
    if (answered && views->recent)
        note_times(views->recent, trace);
    if (answered && views->phases)
        phase_metrics_answered(&views->phases[request->call->model], trace, request->finish);
    if (views->access)
        access_log_ended(views->access, trace);
    if (views->otlp)
        otlp_ended(views->otlp, trace);
}
