/* One blocking GET or POST, for the command line and for threads that may wait: no keep-alive, no
 * redirects. With TLS as in http_client_tls.h. */
#ifndef BATON_NET_HTTP_HTTP_CLIENT_H
#define BATON_NET_HTTP_HTTP_CLIENT_H

#include "common/base/status.h"
#include "common/base/str.h"
#include "common/net/http/http_url.h"

#include <stdint.h>

struct certificates;

/* Whom to call, and who calls. What is NULL or "" is not there. */
struct http_remote {
    const char *url; /* http_url.h; without a scheme: TLS where there are certificates */
    /* The CAs that the server's certificate must be signed by, and what is shown to one that asks;
     * "https://" without them: the machine's own CAs. */
    struct certificates *certificates;
    const char *peer_name; /* that the server's certificate must hold; none: the host */
    const char *api_key;   /* sent as a bearer's token; printable ASCII without blanks */
};

/* Can it be called at all? STATUS_INVALID: the URL, the key, or certificates for a URL without
 * TLS. */
enum status http_remote_check(const struct http_remote *remote, struct error *err) WARN_UNUSED;

/* Fetches `path` within timeout_us; appends the body to `body` (whose limit bounds it: more is
 * STATUS_LIMIT). STATUS_UNAVAILABLE: nobody answers, or not to the end; STATUS_TIMEOUT;
 * STATUS_NOT_FOUND: a 404; STATUS_INVALID: the answer is no HTTP, or another status; TLS is
 * refused, by either end; what `remote` holds can't be used. */
enum status http_get(const struct http_remote *remote, const char *path, uint64_t timeout_us,
                     struct str *body, struct error *err) WARN_UNUSED;

/* Posts `body`; what is answered is read (64 KiB of it at most) and dropped. Fails as http_get
 * does, but any 2xx is fine. */
enum status http_post(const struct http_remote *remote, const char *path, const char *content_type,
                      const struct str *body, uint64_t timeout_us, struct error *err) WARN_UNUSED;

#endif
