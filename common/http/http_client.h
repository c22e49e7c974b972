/* One blocking GET, for the command line: no keep-alive, no redirects, no TLS, numeric or resolvable host. */
#ifndef BATON_HTTP_HTTP_CLIENT_H
#define BATON_HTTP_HTTP_CLIENT_H

#include "common/base/status.h"
#include "common/base/str.h"

#include <stdint.h>

/* Fetches http://address/path within timeout_us; appends the body to `body` (whose limit bounds it: more is STATUS_LIMIT).
 * STATUS_UNAVAILABLE: nobody answers; STATUS_TIMEOUT; STATUS_INVALID: the answer is no HTTP, or not a 200. */
enum status http_get(const char *address, const char *path, uint64_t timeout_us, struct str *body,
                     struct error *err) WARN_UNUSED;

#endif
