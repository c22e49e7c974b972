#include "common/net/http/http_peer.h"

#include "common/base/str.h"

#include <arpa/inet.h>
#include <event2/util.h>
#include <stdio.h>
#include <string.h>

enum status http_peer_parse(const char *text, struct http_peer *peer, socklen_t *length,
                            struct error *err)
{
    char host[INET6_ADDRSTRLEN + 2];
    const char *colon = strrchr(text, ':');
    uint64_t port;
    *peer = (struct http_peer){0};
    bool shaped = colon && (size_t)(colon - text) < sizeof host &&
                  str_to_u64(colon + 1, 0, UINT16_MAX, &port);
    if (shaped) {
        int size = sizeof peer->address;
        memcpy(host, text, (size_t)(colon - text));
        host[colon - text] = 0;
        const char *numeric = strcmp(host, "localhost") ? host : "127.0.0.1";
        shaped = evutil_parse_sockaddr_port(numeric, &peer->address.any, &size) == 0;
        *length = (socklen_t)size;
    }
    if (!shaped)
        return error_set(err, STATUS_INVALID,
                         "cannot listen on '%s' for HTTP: give a numeric host, or localhost, and a "
                         "port, like 127.0.0.1:9090, [::1]:9090, or 0.0.0.0:9090 for all addresses",
                         text);
    /* sin_port and sin6_port lie at the same place. */
    peer->address.v4.sin_port = htons((uint16_t)port);
    return STATUS_OK;
}

void http_peer_name(const struct http_peer *peer, char *text, size_t size)
{
    char host[INET6_ADDRSTRLEN] = "?";
    if (peer->address.any.sa_family == AF_INET) {
        inet_ntop(AF_INET, &peer->address.v4.sin_addr, host, sizeof host);
        snprintf(text, size, "%s:%d", host, ntohs(peer->address.v4.sin_port));
    } else {
        inet_ntop(AF_INET6, &peer->address.v6.sin6_addr, host, sizeof host);
        snprintf(text, size, "[%s]:%d", host, ntohs(peer->address.v6.sin6_port));
    }
}

bool http_peer_is_loopback(const struct http_peer *peer)
{
    if (peer->address.any.sa_family == AF_INET)
        return (ntohl(peer->address.v4.sin_addr.s_addr) >> 24) == 127;
    return IN6_IS_ADDR_LOOPBACK(&peer->address.v6.sin6_addr);
}
