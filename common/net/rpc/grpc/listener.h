/* Accepts the connections of one server and hands each to it. gRPC core's own listener isn't used:
 * it ends for good at the first accept() that fails, so that a server that once ran out of file
 * descriptors would never be reached again.
 *
 * Limits: `max_connections` at once. A connection beyond that, or without a descriptor left for it,
 * is accepted and closed at once: its client doesn't wait, and nothing spins. Open connections are
 * not touched. Internal to this folder.
 */
#ifndef BATON_NET_RPC_GRPC_LISTENER_H
#define BATON_NET_RPC_GRPC_LISTENER_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* --- "host:port" --- */

struct address {
    char host[256]; /* without the brackets of an IPv6 address; "" is every interface */
    char port[6];   /* decimal */
    bool bracketed;
};

/* STATUS_INVALID: it isn't "host:port" with a port in 0..65535. */
enum status address_parse(const char *text, struct address *address, struct error *err) WARN_UNUSED;
/* Returns whether only this machine reaches it. Names count by their usual meaning, and aren't
 * resolved. */
bool address_is_loopback(const struct address *address);
/* Writes core's "ipv4:127.0.0.1:4321" and "ipv6:%5B::1%5D:4321" in the usual form, and others as
 * they are. Cut to `size` (> 0). */
void address_from_core(const char *core, char *text, size_t size);

/* --- a listener --- */

struct listener;

struct listener_config {
    size_t max_connections;
    /* On the listener's thread. `fd` belongs to the callee. */
    void (*accepted)(void *context, int fd);
    /* Called about every tick_us on the listener's thread, and not right after the process was
     * stopped for a second: then others read first. 0: never. */
    void (*tick)(void *context);
    uint64_t tick_us;
    void *context;
};

/* Binds every address that `address` means. Clients wait until listener_start. STATUS_IO with the
 * system's words. */
enum status listener_open(const struct address *address, const struct listener_config *config,
                          struct listener **listener, struct error *err) WARN_UNUSED;
uint16_t listener_port(const struct listener *listener);
enum status listener_start(struct listener *listener, struct error *err) WARN_UNUSED;
/* Stops listening. Connections that were handed on live. NULL is fine. */
void listener_close(struct listener *listener);

/* Writes "127.0.0.1:4321" or "[::1]:4321" for a connection's other end; "": unknown. */
void listener_peer(int fd, char *text, size_t size);

#endif
