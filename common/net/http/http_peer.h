/* Where a server listens, and who a client is: numeric socket addresses. */
#ifndef BATON_NET_HTTP_HTTP_PEER_H
#define BATON_NET_HTTP_HTTP_PEER_H

#include "common/base/status.h"

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>

/* IPv4 or IPv6. */
struct http_peer {
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } address;
};

/* "127.0.0.1:80", "[::1]:80"; "localhost" is 127.0.0.1. STATUS_INVALID: `text` is no such host with
 * a port. */
enum status http_peer_parse(const char *text, struct http_peer *peer, socklen_t *length,
                            struct error *err) WARN_UNUSED;
void http_peer_name(const struct http_peer *peer, char *text, size_t size);
bool http_peer_is_loopback(const struct http_peer *peer);

#endif
