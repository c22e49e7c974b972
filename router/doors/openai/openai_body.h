/* Decides which thread reads the body of a request: the HTTP loop itself, or a reader of large
 * requests (body_readers.h), in the turn of its tenant. Runs on the HTTP loop. */
#ifndef BATON_ROUTER_DOORS_OPENAI_OPENAI_BODY_H
#define BATON_ROUTER_DOORS_OPENAI_OPENAI_BODY_H

#include "router/doors/openai/openai_api.h"

/* Reads the body, and answers or submits the request, which arrived at that time. On the HTTP loop
 * or on a reader's thread. */
typedef void openai_body_read(struct openai_api *api, struct http_exchange *exchange,
                              uint64_t arrival_us);

/* Calls `read`, now or later. `method` is for the access log's line if the client leaves before; ""
 * if the request is one for an answer. */
void openai_body_take(struct openai_api *api, struct http_exchange *exchange, const char *method,
                      openai_body_read *read);

#endif
