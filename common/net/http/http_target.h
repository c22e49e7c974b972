/* The target of a request line, as a path and a query. Pure. */
#ifndef BATON_NET_HTTP_HTTP_TARGET_H
#define BATON_NET_HTTP_HTTP_TARGET_H

#include "common/net/http/http_refusal.h"

#include <stdbool.h>

/* `target` (changed in place): "/path?query", "http://host/path?query", or "*" where `may_be_star`.
 * The path is decoded: its escapes are two hex digits each, of no control character, and what they
 * make is valid UTF-8. It isn't normalized: "/a/../b" is another path than "/b". STATUS_INVALID:
 * *why. */
enum status http_target_split(char *target, bool may_be_star, const char **path, const char **query,
                              struct http_refusal *why) WARN_UNUSED;

#endif
