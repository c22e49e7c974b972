/* Finds the address at which others dial a server. It is the address that the server listens on,
 * unless that is every interface (0.0.0.0, [::], or no host). Then it is the setting `advertise`,
 * or this machine's address on the route to the router, which the router and its workers can most
 * likely reach, too.
 *
 * Any thread; advertise_find may wait for the resolver. Refuses: guessing among interfaces, asking
 * other machines for our address. */
#ifndef BATON_NET_MEMBERSHIP_ADVERTISE_H
#define BATON_NET_MEMBERSHIP_ADVERTISE_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stdint.h>

struct advertise {
    char host[128]; /* an address or a name, without brackets */
    uint16_t port;  /* 0: the bound one */
};

/* Parses "HOST", "HOST:PORT", "[IPV6]:PORT" or a bare IPv6 address. STATUS_INVALID: another form,
 * or an address that can't be dialled. */
enum status advertise_parse(const char *setting, struct advertise *advertise,
                            struct error *err) WARN_UNUSED;
/* Finds it for a server that will listen on `listen` ("host:port"): `setting` if it isn't empty,
 * the host of `listen` if others can dial it, or the own end of the route to `router`
 * ("host:port"). STATUS_NOT_FOUND: there is no such route. */
enum status advertise_find(const char *setting, const char *listen, const char *router,
                           struct advertise *advertise, struct error *err) WARN_UNUSED;
/* Writes the "host:port" of a server that is bound to `bound`. False: it doesn't fit. */
bool advertise_address(const struct advertise *advertise, const char *bound, char *address,
                       size_t size);
/* Returns whether `bound` ("host:port") is every interface, so that it can't be dialled as it
 * is. */
bool advertise_needed(const char *bound);

#endif
