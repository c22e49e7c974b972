/* The URL that an HTTP client calls: "https://HOST[:PORT]", "http://HOST[:PORT]", or "HOST:PORT",
 * which leaves open whether TLS is used. Pure.
 *
 * Refuses a path or a query (callers have their own), a user or a password, and other schemes. An
 * IPv6 address stands in [brackets]. */
#ifndef BATON_NET_HTTP_HTTP_URL_H
#define BATON_NET_HTTP_HTTP_URL_H

#include "common/base/status.h"

#include <stdbool.h>

#define HTTP_URL_MAX_HOST_BYTES 253 /* as in DNS */
#define HTTP_URL_BYTES          300 /* room for the longest URL as text */

struct http_url {
    bool told; /* there is a scheme, and `tls` is what it means */
    bool tls;
    char host[HTTP_URL_MAX_HOST_BYTES + 1]; /* without brackets */
    char port[6];
    char authority[HTTP_URL_MAX_HOST_BYTES + 9]; /* host:port, with brackets */
};

/* STATUS_INVALID: the sentence gives the reason. */
enum status http_url_parse(const char *text, struct http_url *url, struct error *err) WARN_UNUSED;
/* Checks `url` against the client's settings. `certificates`: it has CAs or a certificate.
 * STATUS_INVALID: the URL is without TLS, and they would not be used. */
enum status http_url_check_tls(const struct http_url *url, const char *text, bool certificates,
                               struct error *err) WARN_UNUSED;
/* http_url_parse as a check in tables of settings. */
enum status http_check_url(const char *text, struct error *err) WARN_UNUSED;

#endif
