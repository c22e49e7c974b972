/* "host:port" as it is listened on. */
#ifndef BATON_NET_RPC_GRPC_ADDRESS_H
#define BATON_NET_RPC_GRPC_ADDRESS_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stddef.h>

struct address {
    char host[256]; /* without the brackets of an IPv6 address; "" is every interface */
    char port[6];   /* decimal */
    bool bracketed;
};

/* STATUS_INVALID: not "host:port" with a port in 0..65535. */
enum status address_parse(const char *text, struct address *address, struct error *err) WARN_UNUSED;
/* Reached from this machine only? Names are taken by their meaning, not resolved. */
bool address_is_loopback(const struct address *address);
/* Core's "ipv4:127.0.0.1:4321" and "ipv6:%5B::1%5D:4321" as everybody else writes them; others as
 * they are. Cut to `size` (> 0). */
void address_from_core(const char *core, char *text, size_t size);

#endif
