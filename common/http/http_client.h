/* One blocking GET or POST, for the command line and for threads that may wait: no keep-alive, no redirects, no TLS, numeric or resolvable host. */
#ifndef BATON_HTTP_HTTP_CLIENT_H
#define BATON_HTTP_HTTP_CLIENT_H

#include "common/base/status.h"
#include "common/base/str.h"

#include <stdint.h>

/* Fetches http://address/path within timeout_us; appends the body to `body` (whose limit bounds it: more is STATUS_LIMIT).
 * STATUS_UNAVAILABLE: nobody answers; STATUS_TIMEOUT; STATUS_NOT_FOUND: a 404;
 * STATUS_INVALID: the answer is no HTTP, or another status. */
enum status http_get(const char *address, const char *path, uint64_t timeout_us, struct str *body,
                     struct error *err) WARN_UNUSED;

/* Posts `body`; what is answered is read (64 KiB of it at most) and dropped. Fails as http_get does, but any 2xx is fine. */
enum status http_post(const char *address, const char *path, const char *content_type,
                      const struct str *body, uint64_t timeout_us, struct error *err) WARN_UNUSED;

#endif
