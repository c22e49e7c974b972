/* By which name a request goes: in the answer, in logs and in traces. One rule for all doors. Any thread. */
#ifndef BATON_ROUTER_REQUEST_NAME_H
#define BATON_ROUTER_REQUEST_NAME_H

#include "router/request_parse.h"

#define REQUEST_NAME_BYTES (REQUEST_MAX_ID_BYTES + 1)

/* The first of these that can be one (request_id_valid, and not empty), or a new one: what the message has, what the header x-request-id has. Either may be
 * NULL. So what is logged is bounded and printable, whatever was sent. */
void request_name_choose(const char *of_message, const char *of_header,
                         char name[REQUEST_NAME_BYTES]);

#endif
