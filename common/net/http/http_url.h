/* Where a client of HTTP calls: "https://HOST[:PORT]", "http://HOST[:PORT]", or "HOST:PORT", which
 * leaves open whether TLS is spoken. Pure.
 *
 * Refused: a path or a query (callers have their own), a user or a password, other schemes. An IPv6
 * address stands in [brackets]. */
#ifndef BATON_NET_HTTP_HTTP_URL_H
#define BATON_NET_HTTP_HTTP_URL_H

#include "common/base/status.h"

#include <stdbool.h>

#define HTTP_URL_MAX_HOST_BYTES 253 /* as DNS */
#define HTTP_URL_BYTES          300 /* room for the longest that is taken, as text */

struct http_url {
    bool told; /* the scheme was: `tls` is what it says */
    bool tls;
    char host[HTTP_URL_MAX_HOST_BYTES + 1]; /* without brackets */
    char port[6];
    char authority[HTTP_URL_MAX_HOST_BYTES + 9]; /* host:port, with brackets */
};

/* STATUS_INVALID: a sentence that says what it is not. */
enum status http_url_parse(const char *text, struct http_url *url, struct error *err) WARN_UNUSED;
/* Of a client that has CAs or a certificate, or none: STATUS_INVALID where they would not be
 * used. */
enum status http_url_check_tls(const struct http_url *url, const char *text, bool certificates,
                               struct error *err) WARN_UNUSED;
/* For tables of settings. */
enum status http_check_url(const char *text, struct error *err) WARN_UNUSED;

#endif
