#include "router/ops/admin.h"

#include "common/base/clock.h"
#include "common/base/json/json_quote.h"
#include "router/ops/admin_views.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void add_text(struct str *out, const char *key, const char *value)
{
    str_addf(out, "\"%s\": ", key);
    json_quote(out, value, strlen(value));
    str_add(out, ", ");
}

static void add_worker(struct str *out, const struct worker_status *worker)
{
    str_add(out, "{");
    add_text(out, "name", worker->info.name);
    add_text(out, "model", worker->info.model);
    add_text(out, "role", worker_role_name(worker->info.role));
    add_text(out, "address", worker->info.address);
    add_text(out, "metrics", worker->info.metrics_address);
    add_text(out, "state", worker_status_state(worker));
    add_text(out, "lane", worker->lane);
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
    str_addf(out,
             "\"incarnation\": \"%016" PRIx64 "\", \"model_hash\": \"%016" PRIx64
             "\", \"layout_hash\": \"%016" PRIx64 "\", \"numerics_id\": \"%016" PRIx64 "\"}",
             worker->info.incarnation, worker->info.model_hash, worker->info.layout_hash,
             worker->info.numerics_id);
}

static uint64_t alive(const struct model_metrics *metrics, enum request_state state)
{
    return (uint64_t)gauge_value(metrics->requests_by_state[state]);
}

/* "queue": 1, "running": 2, "prompt_tokens": 3, "tokens": 4, "requests": {...}: of all these models
 * together. */
static void add_requests(struct str *out, const struct model_metrics *metrics, size_t count)
{
    uint64_t states[REQUEST_ENDED] = {0}, prompt_tokens = 0, tokens = 0;
    for (size_t i = 0; i < count; i++) {
        for (int state = 0; state < REQUEST_ENDED; state++)
            states[state] += alive(&metrics[i], state);
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

/* Of the first of its workers; "": it has none. */
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

static void add_status(struct str *out, const struct admin *admin,
                       const struct router_status *status, uint64_t now_us)
{
    size_t count = admin->models->count;
    str_add(out, "{");
    if (count == 1) { /* for who knows no others */
        add_text(out, "model", admin->models->items[0].name);
        add_numerics(out, status, 0);
    }
    str_addf(out, "\"draining\": %s, ", status->draining ? "true" : "false");
    add_requests(out, admin->metrics->models, count);
    str_add(out, ", ");
    admin_views_add_window(admin->recent, out);
    str_add(out, ", \"models\": [");
    for (size_t i = 0; i < count; i++) {
        str_add(out, i ? ", " : "");
        add_model(out, admin, status, i);
    }
    str_add(out, "], \"workers\": [");
    for (size_t i = 0; i < status->worker_count; i++) {
        str_add(out, i ? ", " : "");
        add_worker(out, &status->workers[i]);
    }
    str_add(out, "], \"refused\": [");
    add_refused(out, status, now_us);
    str_add(out, "]}\n");
}

static void on_status(void *context, struct http_exchange *exchange)
{
    struct admin *admin = context;
    struct http_reply reply;
    http_reply_init(&reply, HTTP_MAX_REPLY_BYTES);
    struct router_status *status = malloc(sizeof *status);
    reply.status = 500;
    if (status) {
        status_board_read(admin->board, status);
        reply.status = 200;
        reply.content_type = "application/json";
        add_status(&reply.body, admin, status, clock_now_us());
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

static void on_page(void *context, struct http_exchange *exchange)
{
    (void)context;
    admin_views_page(exchange);
}

static void on_traces(void *context, struct http_exchange *exchange)
{
    const struct admin *admin = context;
    admin_views_traces(admin->traces, exchange);
}

static void on_trace(void *context, struct http_exchange *exchange)
{
    const struct admin *admin = context;
    admin_views_trace(admin->traces, exchange);
}

const struct http_route admin_routes[ADMIN_ROUTES] = {
    {"/metrics", HTTP_GET, on_metrics}, {"/healthz", HTTP_GET, on_health},
    {"/status", HTTP_GET, on_status},   {"/", HTTP_GET, on_page},
    {"/traces", HTTP_GET, on_traces},   {"/trace", HTTP_GET, on_trace},
    {"/trace/*", HTTP_GET, on_trace},
};
