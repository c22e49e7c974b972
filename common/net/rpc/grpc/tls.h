/* TLS by gRPC core: credentials from the certificates that common/net/crypto has read, and the way
 * into core for connections that our own listener accepted.
 *
 * Core's function for accepted descriptors takes connections without TLS only. Encrypted ones go
 * through core's interface for acceptors outside of it: a port named "external:...". Core leaves an
 * object for it in the server's arguments, with one method that takes descriptors. The object is a
 * C++ one, and only tls.c knows how to call it. Internal to this folder.
 */
#ifndef BATON_NET_RPC_GRPC_TLS_H
#define BATON_NET_RPC_GRPC_TLS_H

#include "common/net/crypto/certificates.h"
#include "common/net/rpc/grpc/runtime.h"

#include <grpc/grpc_security.h>

#define TLS_MAX_HANDSHAKE_MS 10000 /* a client that takes longer is dropped */

/* The way of a server's connections into core. The owner zeroes it. Outlives the core server. */
struct tls_door {
    struct certificates *certificates;
    _Atomic uint64_t version; /* the set that core got last */
    void *handler;            /* core's object, which belongs to the core server */
};

/* Adds the argument that core fills. Comes before the core server is made. */
void tls_door_prepare(struct tls_door *door, struct channel_args *args);
/* Comes before the core server is started. STATUS_INVALID: core doesn't take the certificate.
 * STATUS_UNSUPPORTED: another version of core. */
enum status tls_door_open(struct tls_door *door, grpc_server *core, struct error *err) WARN_UNUSED;
/* Gives the descriptor to core. Allowed from the server's start until its shutdown begins. */
void tls_door_enter(struct tls_door *door, int fd);

/* NULL: core doesn't take the set. */
grpc_channel_credentials *tls_channel_credentials(const struct certificate_set *set);

/* Returns whether the certificate of the call's other side holds the DNS name. */
bool tls_peer_has_name(grpc_call *core, const char *name);

#endif
