#include "router/doors/openai/openai_api.h"

#include "common/base/str.h"
#include "router/doors/openai/openai_admit.h"
#include "router/doors/openai/openai_answer.h"
#include "router/doors/openai/openai_body.h"
#include "router/doors/openai/openai_reply.h"
#include "router/doors/openai/openai_submit.h"
#include "router/doors/openai/openai_tokens.h"
#include "router/ops/router_metrics.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void read_completions(struct openai_api *api, struct http_exchange *exchange,
                             uint64_t arrival_us)
{
    openai_submit(api, exchange, OPENAI_COMPLETION, arrival_us);
}

static void handle_completions(void *context, struct http_exchange *exchange)
{
    openai_body_take(context, exchange, "", read_completions);
}

static void read_chat(struct openai_api *api, struct http_exchange *exchange, uint64_t arrival_us)
{
    openai_submit(api, exchange, OPENAI_CHAT, arrival_us);
}

static void handle_chat(void *context, struct http_exchange *exchange)
{
    openai_body_take(context, exchange, "", read_chat);
}

/* The model with the context that its workers have room for. */
static struct request_model shown_model(const struct openai_api *api, size_t index)
{
    struct request_model model = api->models->items[index].limits;
    model.context = status_board_context(api->board, api->models, index);
    return model;
}

static void handle_models(void *context, struct http_exchange *exchange)
{
    const struct openai_api *api = context;
    struct request_model shown[SERVED_MODELS_MAX];
    const struct request_model *models[SERVED_MODELS_MAX];
    for (size_t i = 0; i < api->models->count; i++) {
        shown[i] = shown_model(api, i);
        models[i] = &shown[i];
    }
    char name[REQUEST_ID_BYTES];
    struct str body;
    openai_request_id(exchange, name);
    str_init(&body, api->max_answer_bytes);
    openai_models_json(&body, models, api->models->count, api->created_s);
    openai_log_answer(api, exchange, "models", name, NULL, REASON_NONE);
    openai_reply_json(exchange, name, &body);
    str_deinit(&body);
}

/* The rest of the path is the name, which may have slashes. */
static void handle_model(void *context, struct http_exchange *exchange)
{
    const struct openai_api *api = context;
    char name[REQUEST_ID_BYTES];
    struct error why;
    const char *asked = http_exchange_path(exchange) + strlen("/v1/models/");
    openai_request_id(exchange, name);
    size_t index;
    enum reason reason = served_models_find(api->models, asked, &index, &why);
    openai_log_answer(api, exchange, "models", name, NULL, reason);
    if (reason) {
        openai_reply_error(exchange, name, reason, "model", why.text);
        return;
    }
    struct request_model shown = shown_model(api, index);
    struct str body;
    str_init(&body, api->max_answer_bytes);
    openai_model_json(&body, &shown, api->created_s);
    str_add(&body, "\n");
    openai_reply_json(exchange, name, &body);
    str_deinit(&body);
}

static void refuse_kind(void *context, struct http_exchange *exchange, const char *what)
{
    char name[REQUEST_ID_BYTES];
    openai_request_id(exchange, name);
    openai_log_answer(context, exchange, "", name, NULL, REASON_UNSUPPORTED_PARAMETER);
    openai_reply_error(exchange, name, REASON_UNSUPPORTED_PARAMETER, NULL, what);
}

static void handle_embeddings(void *context, struct http_exchange *exchange)
{
    refuse_kind(context, exchange, "embeddings are not offered: this server completes text");
}

static void handle_responses(void *context, struct http_exchange *exchange)
{
    refuse_kind(context, exchange, "responses are not offered: use /v1/chat/completions");
}

static void handle_media(void *context, struct http_exchange *exchange)
{
    refuse_kind(context, exchange, "images and audio are not offered: this server completes text");
}

static void handle_lora(void *context, struct http_exchange *exchange)
{
    refuse_kind(context, exchange, "LoRA adapters are not offered");
}

/* --------------------------------------------------------------------------- probes and figures */

/* Answers a browser that opens the address. If clients need keys, strangers get no address of
 * another listener. */
static void handle_root(void *context, struct http_exchange *exchange)
{
    struct openai_api *api = context;
    char text[512];
    snprintf(text, sizeof text,
             "Baton %s: an OpenAI-compatible API.\n\n"
             "  GET  /v1/models            the models\n"
             "  POST /v1/chat/completions  a chat\n"
             "  POST /v1/completions       a completion\n"
             "  GET  /health               whether it takes requests\n\n"
             "Status page: %s\n",
             BATON_VERSION,
             api->access ? "at metrics-listen, for this server's operators" : api->status_page);
    http_exchange_reply_text(exchange, 200, text);
}

static void handle_live(void *context, struct http_exchange *exchange)
{
    (void)context;
    http_exchange_reply_text(exchange, 200, "ok\n");
}

/* Ready: a request to any model would be served, and the router isn't draining. */
static void handle_ready(void *context, struct http_exchange *exchange)
{
    struct openai_api *api = context;
    struct model_workers workers[SERVED_MODELS_MAX];
    bool ready = false;
    status_board_count_workers(api->board, workers);
    for (size_t i = 0; i < api->models->count; i++)
        ready |= workers[i].serves;
    ready = ready && !status_board_draining(api->board);
    http_exchange_reply_text(exchange, ready ? 200 : 503,
                             ready ? "ok\n" : "no workers that serve a request, or draining\n");
}

static void handle_metrics(void *context, struct http_exchange *exchange)
{
    struct openai_api *api = context;
    router_metrics_reply(api->metrics, exchange);
}

static void handle_version(void *context, struct http_exchange *exchange)
{
    (void)context;
    struct str body;
    str_init(&body, 128);
    str_add(&body, "{\"version\":\"" BATON_VERSION "\"}\n");
    openai_reply_json(exchange, NULL, &body);
    str_deinit(&body);
}

const struct http_route *openai_routes(bool keyed, size_t *count)
{
    static const struct http_route routes[] = {
        {"/", HTTP_GET, handle_root},
        {"/v1/chat/completions", HTTP_POST | HTTP_TAKES_JSON, handle_chat},
        {"/v1/completions", HTTP_POST | HTTP_TAKES_JSON, handle_completions},
        {"/v1/models", HTTP_GET, handle_models},
        {"/v1/models/*", HTTP_GET, handle_model},
        {"/tokenize", HTTP_POST | HTTP_TAKES_JSON, openai_handle_tokenize},
        {"/detokenize", HTTP_POST | HTTP_TAKES_JSON, openai_handle_detokenize},
        {"/health", HTTP_GET, handle_ready},
        {"/ready", HTTP_GET, handle_ready},
        {"/live", HTTP_GET, handle_live},
        {"/version", HTTP_GET, handle_version},
        {"/v1/embeddings", HTTP_POST, handle_embeddings},
        {"/v1/responses", HTTP_POST, handle_responses},
        {"/v1/images/*", HTTP_POST, handle_media},
        {"/v1/audio/*", HTTP_POST, handle_media},
        {"/v1/load_lora_adapter", HTTP_POST, handle_lora},
        {"/v1/unload_lora_adapter", HTTP_POST, handle_lora},
        /* Last, so that `count` can leave it out: it has figures of all models and clients. */
        {"/metrics", HTTP_GET, handle_metrics},
    };
    *count = sizeof routes / sizeof *routes - keyed;
    return routes;
}

void openai_refused(void *context, struct http_exchange *exchange, const char *peer,
                    const struct http_refusal *refusal, struct http_reply *reply)
{
    const struct openai_api *api = context;
    char name[REQUEST_ID_BYTES] = "";
    reply->content_type = "application/json";
    if (exchange) {
        openai_request_id(exchange, name);
        (void)!http_reply_add_header(reply, "x-request-id", name); /* there is room */
    }
    openai_log(api, exchange,
               &(struct access_line_brief){
                   .status = refusal->code, .name = name, .peer = peer, .stranger = true});
    const char *type = refusal->status == 404   ? "not_found_error"
                       : refusal->status == 403 ? "permission_error"
                       : refusal->status == 503 ? "overloaded_error"
                       : refusal->status >= 500 ? "server_error"
                                                : "invalid_request_error";
    openai_error_json_of(&reply->body, type, refusal->code, NULL, refusal->why.text);
    str_add(&reply->body, "\n");
}
