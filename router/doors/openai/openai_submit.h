/* Makes calls of the dispatcher of a body for completions, or refuses it. Runs on the HTTP loop
 * that received the body, or on a reader of large ones (openai_body.h). */
#ifndef BATON_ROUTER_DOORS_OPENAI_OPENAI_SUBMIT_H
#define BATON_ROUTER_DOORS_OPENAI_OPENAI_SUBMIT_H

#include "router/doors/openai/openai_api.h"
#include "router/doors/openai/openai_error.h"
#include "router/request_id.h"

void openai_submit(struct openai_api *api, struct http_exchange *exchange, enum openai_kind kind,
                   uint64_t arrival_us);

/* Writes the client's x-request-id, or a new one. */
void openai_request_id(struct http_exchange *exchange, char name[REQUEST_ID_BYTES]);

/* False: the body is compressed, and refused. */
bool openai_body_plain(struct http_exchange *exchange, struct openai_refusal *refusal);

#endif
