/* Whose pages a browser lets read the answers (CORS): an origin that is on the list, or any.
 * Credentials of the browser's own are never allowed: keys come in a header that the page sets.
 * Internal to this folder. */
#ifndef BATON_NET_HTTP_HTTP_CORS_H
#define BATON_NET_HTTP_HTTP_CORS_H

#include "common/net/http/http_exchange.h"

#define HTTP_CORS_MAX_ORIGIN 256 /* bytes */

/* What is answered to `origin`, as Access-Control-Allow-Origin: "*", or itself. NULL: nothing, for
 * it is NULL or not on the list. `origins`: divided by commas; "": none. */
const char *http_cors_allowed(const char *origins, const char *origin);
/* Whether pages of all origins may. */
bool http_cors_allows_all(const char *origins);
/* Whether some may and others not. */
bool http_cors_by_origin(const char *origins);
/* A browser asks whether it may ask. */
bool http_cors_is_preflight(const struct http_exchange *exchange);
/* A handler: answers that, whatever the path. */
void http_cors_answer(void *context, struct http_exchange *exchange);

#endif
