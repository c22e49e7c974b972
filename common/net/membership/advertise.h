/* Where others dial a server: what it listens on, or, where that is every interface (0.0.0.0, [::],
 * nothing), what `advertise` says, or else the address of this machine on the way to the router,
 * which the router and its workers can most likely reach too.
 *
 * Any thread; advertise_find may wait for the resolver. Refuses: guessing among interfaces, asking
 * others how they see us. */
#ifndef BATON_NET_MEMBERSHIP_ADVERTISE_H
#define BATON_NET_MEMBERSHIP_ADVERTISE_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stdint.h>

struct advertise {
    char host[128]; /* an address or a name, without brackets */
    uint16_t port;  /* 0: the one that is bound */
};

/* "HOST", "HOST:PORT", "[IPV6]:PORT" or a bare IPv6 address. STATUS_INVALID: something else, or an
 * address that nobody can dial. */
enum status advertise_parse(const char *setting, struct advertise *advertise,
                            struct error *err) WARN_UNUSED;
/* Of a server that will listen on `listen` ("host:port"): `setting` if it isn't empty, the host of
 * `listen` if others can dial it, else the own end of the route to `router` ("host:port").
 * STATUS_NOT_FOUND: there is no such route. */
enum status advertise_find(const char *setting, const char *listen, const char *router,
                           struct advertise *advertise, struct error *err) WARN_UNUSED;
/* "host:port" of a server that is bound to `bound`. False: it doesn't fit. */
bool advertise_address(const struct advertise *advertise, const char *bound, char *address,
                       size_t size);
/* Whether `bound` ("host:port") is every interface, so that nobody can dial it as it stands. */
bool advertise_needed(const char *bound);

#endif
