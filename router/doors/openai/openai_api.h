/* The public HTTP door: the routes of OpenAI's interface, and others beside them (/tokenize,
 * /health, /metrics). Handlers run on the loops of the HTTP server. They read, refuse, tokenize,
 * and hand valid requests to the dispatcher, as grpc_api does on rpc threads. openai_call.h sends
 * the answers. */
#ifndef BATON_ROUTER_DOORS_OPENAI_OPENAI_API_H
#define BATON_ROUTER_DOORS_OPENAI_OPENAI_API_H

#include "common/net/http/http_server.h"
#include "router/dispatch/dispatch.h"
#include "router/doors/openai/openai_request.h"
#include "router/ops/access.h"
#include "router/served_models.h"

struct openai_api {
    struct dispatch *dispatch;
    struct access *access; /* NULL: no request needs a key */
    const struct served_models *models;
    struct constraint_checks *checks;
    struct body_readers *readers; /* NULL: large bodies are read on the loops, too */
    struct router_metrics *metrics;
    struct status_board *board;
    struct access_log *access_log; /* NULL: none */
    uint64_t default_deadline_us;  /* without x-request-timeout-ms; 0: none */
    bool reasoning;                /* answers of chats have reasoning_content */
    uint64_t keepalive_us;   /* a stream that is silent for this long gets a comment; 0: never */
    size_t max_body_bytes;   /* per request */
    size_t max_answer_bytes; /* per JSON object */
    uint64_t created_s;      /* Unix time when this router began to serve */
    /* URL of the status page, for browsers that open this door. */
    char status_page[96];
};

/* Routes for http_server_config; its context is the api. `keyed` (clients need keys) leaves out
 * /metrics, which has figures of all clients. */
const struct http_route *openai_routes(bool keyed, size_t *count);
bool openai_admit(void *context, struct http_exchange *exchange, struct http_reply *reply);
/* Returns the owner of the request's body and of its turns: its key's tenant, or its client's
 * address. Behind openai_admit, before a handler has the request. */
uint64_t openai_owner(struct http_exchange *exchange);
void openai_refused(void *context, struct http_exchange *exchange, const char *peer,
                    const struct http_refusal *refusal, struct http_reply *reply);

#endif
