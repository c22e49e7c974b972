#include "router/admin.h"

#include "common/json/json_quote.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void add_text(struct str *out, const char *key, const char *value)
{
    str_addf(out, "\"%s\": ", key);
    json_quote(out, value, strlen(value));
    str_add(out, ", ");
}

static const char *state_for_people(const struct worker_status *worker)
{
    if (worker->state != WORKER_UP)
        return "down";
    return worker->load.draining ? "draining" : "up";
}

static void add_worker(struct str *out, const struct worker_status *worker)
{
    str_add(out, "{");
    add_text(out, "name", worker->info.name);
    add_text(out, "role", worker_role_name(worker->info.role));
    add_text(out, "address", worker->info.address);
    add_text(out, "metrics", worker->info.metrics_address);
    add_text(out, "state", state_for_people(worker));
    add_text(out, "lane", worker->lane);
    add_text(out, "numerics", worker->info.numerics_name);
    str_addf(out, "\"lane_bytes_per_second\": %" PRIu64 ", \"started_ms\": %" PRIu64 ", ",
             worker->lane_bytes_per_second, worker->info.started_ms);
    str_addf(out,
             "\"pid\": %u, \"queue\": %u, \"running\": %u, \"queued_tokens\": %" PRIu64
             ", \"blocks\": %u, \"blocks_free\": %u, \"blocks_cached\": %u, "
             "\"blocks_pinned\": %u, \"blocks_landing\": %u, ",
             worker->info.process_id, worker->load.queued_requests, worker->load.running,
             worker->load.queued_tokens, worker->info.block_count, worker->load.blocks_free,
             worker->load.blocks_cached, worker->load.blocks_pinned, worker->load.blocks_landing);
    str_addf(out,
             "\"incarnation\": \"%016" PRIx64 "\", \"model_hash\": \"%016" PRIx64
             "\", \"layout_hash\": \"%016" PRIx64 "\", \"numerics_id\": \"%016" PRIx64 "\"}",
             worker->info.incarnation, worker->info.model_hash, worker->info.layout_hash,
             worker->info.numerics_id);
}

static uint64_t alive(const struct admin *admin, enum request_state state)
{
    return (uint64_t)gauge_value(admin->metrics->requests_by_state[state]);
}

static void add_status(struct str *out, const struct admin *admin,
                       const struct router_status *status)
{
    str_add(out, "{");
    add_text(out, "model", admin->model->name);
    add_text(out, "numerics", status->worker_count ? status->workers[0].info.numerics_name : "");
    str_addf(out,
             "\"draining\": %s, \"queue\": %" PRIu64 ", \"running\": %" PRIu64 ", \"requests\": {",
             status->draining ? "true" : "false",
             alive(admin, REQUEST_QUEUED) + alive(admin, REQUEST_REGIVE),
             alive(admin, REQUEST_PREFILL) + alive(admin, REQUEST_DECODE));
    for (int state = 0; state < REQUEST_ENDED; state++)
        str_addf(out, "%s\"%s\": %" PRIu64, state ? ", " : "", request_state_name(state),
                 alive(admin, state));
    str_add(out, "}, \"workers\": [");
    for (size_t i = 0; i < status->worker_count; i++) {
        str_add(out, i ? ", " : "");
        add_worker(out, &status->workers[i]);
    }
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
        add_status(&reply.body, admin, status);
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
    struct http_reply reply;
    http_reply_init(&reply, HTTP_MAX_REPLY_BYTES);
    reply.status = 200;
    reply.content_type = METRICS_CONTENT_TYPE;
    metrics_render(admin->metrics->metrics, &reply.body);
    (void)http_exchange_reply(exchange, &reply);
    http_reply_deinit(&reply);
}

const struct http_route admin_routes[ADMIN_ROUTES] = {
    {"/metrics", HTTP_GET, on_metrics},
    {"/healthz", HTTP_GET, on_health},
    {"/status", HTTP_GET, on_status},
};
