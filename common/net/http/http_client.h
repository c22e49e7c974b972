/* A blocking GET or POST over HTTP/1.1 by libcurl, for the command line and for threads that may
 * wait. Each call has a connection of its own. A look-up that hangs leaves a thread for up to half
 * a minute.
 *
 * Refuses: redirects, proxies (whatever the environment says), HTTP/0.9 and other protocols.
 * Over TLS (1.2 and 1.3) the server's certificate must be signed by a trusted CA and hold the
 * server's name. A CA file may hold the server's own certificate instead. Any thread may call. */
#ifndef BATON_NET_HTTP_HTTP_CLIENT_H
#define BATON_NET_HTTP_HTTP_CLIENT_H

#include "common/base/status.h"
#include "common/base/str.h"
#include "common/net/http/http_url.h"

#include <stdint.h>

struct certificates;

/* A server, and the caller's own credentials. The pointers belong to the caller and live as long as
 * the call. NULL and "" mean: not given. */
struct http_remote {
    const char *url; /* http_url.h; without a scheme: TLS if there are certificates */
    /* The trusted CAs, and the certificate to show to a server that asks for one. Each call uses
     * the current set. NULL, or a set without CAs: "https://" trusts the machine's own CAs, as
     * OpenSSL finds them (SSL_CERT_FILE and SSL_CERT_DIR name others). */
    struct certificates *certificates;
    const char *peer_name; /* a name that the server's certificate must hold; default: the host */
    const char *api_key;   /* sent as a bearer token; printable ASCII without blanks */
};

/* A header of a request. The name and the value have printable ASCII alone. */
struct http_header {
    const char *name, *value;
};

/* Checks `remote` without a connection. STATUS_INVALID: the URL or the key is malformed, or there
 * are certificates for a URL without TLS. */
enum status http_remote_check(const struct http_remote *remote, struct error *err) WARN_UNUSED;

/* Fetches `path` (percent-encoded, sent as it is) within timeout_us, and appends the body to `body`
 * if the answer is 200. The other outcomes leave the text of `body` as it was:
 * STATUS_LIMIT       the body is longer than the limit of `body`, all heads of the answer together
 *                    are longer than HTTP_MAX_HEAD_BYTES, path and key are too long, or there
 *                    is no memory
 * STATUS_NOT_FOUND   the answer is 404
 * STATUS_INVALID     the answer has another status, isn't HTTP or has broken chunks, either end
 *                    refuses TLS with the other, or `remote` can't be used
 * STATUS_UNAVAILABLE no connection, or it broke off before the end of the answer
 * STATUS_TIMEOUT     the time is over; a look-up of the name that hangs doesn't prolong it */
enum status http_get(const struct http_remote *remote, const char *path, uint64_t timeout_us,
                     struct str *body, struct error *err) WARN_UNUSED;

/* Posts `body`. Any 2xx is STATUS_OK, also if the connection ends before the answer does. The
 * answer's body (64 KiB at most) is dropped. Fails as http_get does, also on a 2xx with broken
 * chunks. */
enum status http_post(const struct http_remote *remote, const char *path, const char *content_type,
                      const struct str *body, uint64_t timeout_us, struct error *err) WARN_UNUSED;

#endif
