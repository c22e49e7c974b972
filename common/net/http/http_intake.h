/* Requests, taken out of a connection's bytes: head, route, body, and the handler's call. Belongs
 * to the loop's thread. Internal to this folder. */
#ifndef BATON_NET_HTTP_HTTP_INTAKE_H
#define BATON_NET_HTTP_HTTP_INTAKE_H

#include "common/net/http/http_connection.h"

/* What came while a request is under way is kept, and nothing more is read beyond so much. */
#define HTTP_MAX_BEHIND_BYTES 16384

void http_intake_take(struct http_connection *connection, const char *bytes, size_t count);
/* An answer has left: goes on with what came behind its request. */
void http_intake_resume(struct http_connection *connection);

#endif
