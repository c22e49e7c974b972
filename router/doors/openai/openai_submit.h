/* A body for completions becomes requests of the dispatcher's, or a refusal. On
 * the HTTP loop that received it. */
#ifndef BATON_ROUTER_DOORS_OPENAI_OPENAI_SUBMIT_H
#define BATON_ROUTER_DOORS_OPENAI_OPENAI_SUBMIT_H

#include "router/doors/openai/openai_api.h"
#include "router/doors/openai/openai_error.h"
#include "router/request_id.h"

void openai_submit(struct openai_api *api, struct http_exchange *exchange, enum openai_kind kind);

/* The client's x-request-id, or a new one. */
void openai_request_id(struct http_exchange *exchange, char name[REQUEST_ID_BYTES]);

/* False: it is compressed, and refused. */
bool openai_body_plain(struct http_exchange *exchange, struct openai_refusal *refusal);

#endif
