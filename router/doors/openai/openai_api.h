/* The public HTTP door: routes of OpenAI's interface, and those around it
 * (/tokenize, /health, /metrics). Handlers run on the loops of the HTTP server:
 * they read, refuse, tokenize, and hand valid requests to the dispatcher, as
 * grpc_api does on rpc threads; what comes back goes out through openai_call.h.
 */
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
    struct router_metrics *metrics;
    struct status_board *board;
    struct access_log *access_log; /* NULL: none */
    uint64_t default_deadline_us;  /* of requests that come without
                                   x-request-timeout-ms; 0: none */
    uint64_t keepalive_us;         /* a stream's silence, before it gets a comment; 0: none */
    size_t max_body_bytes;
    size_t max_answer_bytes; /* of one object */
    uint64_t created_s;      /* when this router began to serve */
};

/* For http_server_config, whose context is the api. `keyed`: clients need keys, and there are no
 * figures of all of them. */
const struct http_route *openai_routes(bool keyed, size_t *count);
bool openai_admit(void *context, struct http_exchange *exchange, struct http_reply *reply);
void openai_refused(void *context, struct http_exchange *exchange,
                    const struct http_refusal *refusal, struct http_reply *reply);

#endif
