#include "router/dispatch/address_owner.h"

#include "common/base/domain/content_hash.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#define NETWORK_BYTES 8 /* of an IPv6 address */

uint64_t address_owner(const char *peer)
{
    char host[INET6_ADDRSTRLEN + 16]; /* with a zone: "fe80::1%eth0" */
    struct in6_addr address;
    const char *colon = strrchr(peer, ':');
    size_t length = colon ? (size_t)(colon - peer) : strlen(peer);
    if (*peer != '[' || length < 2 || length >= sizeof host)
        return content_hash(peer, length);
    snprintf(host, sizeof host, "%.*s", (int)length - 2, peer + 1);
    host[strcspn(host, "%")] = 0;
    if (inet_pton(AF_INET6, host, &address) != 1)
        return content_hash(peer, length);
    if (!IN6_IS_ADDR_V4MAPPED(&address))
        return content_hash(address.s6_addr, NETWORK_BYTES);
    inet_ntop(AF_INET, &address.s6_addr[12], host, sizeof host);
    return content_hash(host, strlen(host));
}
