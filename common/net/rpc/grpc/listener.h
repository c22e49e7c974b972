/* Accepts the connections of one server and hands each to it. gRPC core's own listener is not used:
 * it ends for good at the first accept() that fails, so a server that once ran out of file
 * descriptors would never be reached again.
 *
 * Limits: `max_connections` at once. One more, and one for which there is no descriptor, is
 * accepted and closed at once, so that its client is told instead of left waiting, and so that
 * nothing spins; connections that are open are not touched.
 */
#ifndef BATON_NET_RPC_GRPC_LISTENER_H
#define BATON_NET_RPC_GRPC_LISTENER_H

#include "common/net/rpc/grpc/address.h"

#include <stddef.h>
#include <stdint.h>

struct listener;

struct listener_config {
    size_t max_connections;
    void (*accepted)(void *context,
                     int fd); /* on the listener's thread; the descriptor is its own */
    /* Called about every tick_us on the listener's thread; 0: never. */
    void (*tick)(void *context);
    uint64_t tick_us;
    void *context;
};

/* Binds every address that `address` means; clients wait until listener_start. STATUS_IO with the
 * system's words. */
enum status listener_open(const struct address *address, const struct listener_config *config,
                          struct listener **listener, struct error *err) WARN_UNUSED;
uint16_t listener_port(const struct listener *listener);
enum status listener_start(struct listener *listener, struct error *err) WARN_UNUSED;
/* Closes the door; connections that were handed on live. NULL is fine. */
void listener_close(struct listener *listener);

/* "127.0.0.1:4321" or "[::1]:4321" of a connection's other end; "" where it can't be told. */
void listener_peer(int fd, char *text, size_t size);

#endif
