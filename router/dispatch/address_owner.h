/* Whose turn it is where no API key names a tenant: all that come from one address are one,
 * whatever its ports. Of IPv6 the network (64 bits) counts, since one client may have all addresses
 * of it. So a proxy is one client: give those behind it keys. */
#ifndef BATON_ROUTER_DISPATCH_ADDRESS_OWNER_H
#define BATON_ROUTER_DISPATCH_ADDRESS_OWNER_H

#include <stdint.h>

/* `peer`: as calls name it: "127.0.0.1:4242", "[::1]:443"; whatever else is its own owner. */
uint64_t address_owner(const char *peer);

#endif
