/* The addresses of a host, until a deadline: the system's own look-up of names knows none, and
 * takes half a minute where name servers are silent. It runs on a thread that nobody waits for: one
 * that is late is left to itself, and there may be HTTP_LOOKUPS_MAX of those. Internal to this
 * folder. */
#ifndef BATON_NET_HTTP_HTTP_LOOKUP_H
#define BATON_NET_HTTP_HTTP_LOOKUP_H

#include "common/net/http/http_url.h"

#include <netdb.h>
#include <stdint.h>

#define HTTP_LOOKUPS_MAX 16 /* at once, of the process */

/* *found: for freeaddrinfo. STATUS_UNAVAILABLE: there is no such name, or too many look-ups are
 * under way; STATUS_TIMEOUT. Any thread. */
enum status http_lookup(const struct http_url *url, uint64_t deadline_us, struct addrinfo **found,
                        struct error *err) WARN_UNUSED;

#endif
