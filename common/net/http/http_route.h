/* Which handler takes a request, by its method and path. Pure. */
#ifndef BATON_NET_HTTP_HTTP_ROUTE_H
#define BATON_NET_HTTP_HTTP_ROUTE_H

#include "common/net/http/http_head.h"

#define HTTP_ALLOW_BYTES 32

struct http_exchange;

struct http_route {
    const char *
        /* "/v1/models"; one that ends in a slash and a star takes what has more behind that
         * slash */
        path;
    unsigned methods; /* enum http_method, or-ed; HEAD goes with GET */
    /* On the loop's thread of its connection: must not block (http_exchange.h). */
    void (*handle)(void *context, struct http_exchange *exchange);
};

/* The first route that takes both. NULL: none; then *allowed is what the path would take, or 0
 * where there is no such path. */
const struct http_route *http_route_find(const struct http_route *routes, size_t count,
                                         enum http_method method, const char *path,
                                         unsigned *allowed);
/* The path that was probably meant: one that lacks, or has twice, what stands before it ("/models"
 * and "/v1/v1/models" are "/v1/models"), ends in slashes, or has an "s" too few or too many. NULL:
 * none. */
const char *http_route_meant(const struct http_route *routes, size_t count, const char *path);
/* "GET, HEAD". */
void http_route_allow(unsigned methods, char text[HTTP_ALLOW_BYTES]);

#endif
