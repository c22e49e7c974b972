/* Chooses the handler of a request by its method and path. Decides whether a web page may be behind
 * the request, and whether the page's scripts may read the answer (CORS). Pure. */
#ifndef BATON_NET_HTTP_HTTP_ROUTE_H
#define BATON_NET_HTTP_HTTP_ROUTE_H

#include "common/net/http/http_request.h"

#define HTTP_ALLOW_BYTES 32

/* A POST of another content type, or of none, gets a 415. */
#define HTTP_TAKES_JSON 256

struct http_exchange;

struct http_route {
    /* "/v1/models". A path that ends in a slash and a star takes every longer path. */
    const char *path;
    unsigned methods; /* enum http_method and HTTP_TAKES_JSON, or-ed; HEAD goes with GET */
    /* Runs on the loop's thread of its connection: must not block (http_exchange.h). */
    void (*handle)(void *context, struct http_exchange *exchange);
};

/* Returns the first route that takes both. NULL: none; *allowed is then the methods that the path
 * takes, or 0 if there is no such path. */
const struct http_route *http_route_find(const struct http_route *routes, size_t count,
                                         enum http_method method, const char *path,
                                         unsigned *allowed);
/* Returns the path that was probably meant, or NULL. It differs from `path` in the prefix, which is
 * missing or doubled ("/models" and "/v1/v1/models" mean "/v1/models"), in slashes at the end, or
 * in an "s" too few or too many. */
const char *http_route_meant(const struct http_route *routes, size_t count, const char *path);
/* Writes "GET, HEAD". */
void http_route_allow(unsigned methods, char text[HTTP_ALLOW_BYTES]);

/* Returns whether a content type is JSON: "application/json" or "application/NAME+json", with
 * parameters or without. `type` may be NULL: no. Forms and scripts of any page may send the other
 * types without asking (the types of HTML's forms, and none). */
bool http_is_json(const char *type);

/* --- names of this machine --- */

/* A page that a browser shows can reach a server on loopback: its own host's name may come to mean
 * 127.0.0.1 (DNS rebinding). Such a request names the page's host. */

/* Checks the list `hosts`: "*", or names and addresses without a port, with commas between.
 * STATUS_INVALID: the sentence names the entry that is wrong. */
enum status http_check_hosts(const char *hosts, struct error *err) WARN_UNUSED;
/* Returns whether `host`, a header field Host with a port or without, is localhost, a name below
 * it, a loopback address, or on the list `hosts`. */
bool http_host_is_own(const char *host, const char *hosts);
/* Returns whether a page of `origin` is one of such a host, or on the list `origins` of pages. */
bool http_origin_is_own(const char *origin, const char *hosts, const char *origins);

/* --- pages of other origins --- */

/* Checks the list `origins`: "*", or origins like "https://app.example" with commas between.
 * STATUS_INVALID: the sentence names the entry that is wrong. */
enum status http_check_origins(const char *origins, struct error *err) WARN_UNUSED;
/* Returns the value of Access-Control-Allow-Origin for a page of `origin`: "*", or `origin` itself.
 * NULL: no such header, because `origin` is NULL or not on the list. The browser's own credentials
 * are never allowed: a page sets the API key in a header. */
const char *http_cors_allowed(const char *origins, const char *origin);
/* Returns whether the pages of all origins may read answers. `origins` may be NULL or "": none. */
bool http_cors_allows_all(const char *origins);

#endif
