/* The id of a request in its answer, in logs and in traces. One rule for both doors. Any thread. */
#ifndef BATON_ROUTER_REQUEST_ID_H
#define BATON_ROUTER_REQUEST_ID_H

#include "router/request_parse.h"

#define REQUEST_ID_BYTES (REQUEST_MAX_ID_BYTES + 1)

/* Writes the first valid id (request_id_valid, not empty): the message's, the one in the header
 * x-request-id, or a new one. Either may be NULL. So a logged id is bounded and printable. */
void request_id_choose(const char *of_message, const char *of_header, char id[REQUEST_ID_BYTES]);

/* Returns the request's id within the id of an OpenAI answer, "cmpl-ID" or "chatcmpl-ID". NULL: it
 * is no such id. */
const char *request_id_of_answer(const char *answer_id);

#endif
