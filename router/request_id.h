/* By which id a request goes: in the answer, in logs and in traces. One rule for all doors. Any
 * thread. */
#ifndef BATON_ROUTER_REQUEST_ID_H
#define BATON_ROUTER_REQUEST_ID_H

#include "router/request_parse.h"

#define REQUEST_ID_BYTES (REQUEST_MAX_ID_BYTES + 1)

/* The first of these that can be one (request_id_valid, and not empty), or a new one: what the
 * message has, what the header x-request-id has. Either may be NULL. So what is logged is bounded
 * and printable, whatever was sent. */
void request_id_choose(const char *of_message, const char *of_header, char id[REQUEST_ID_BYTES]);

#endif
