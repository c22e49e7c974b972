/* TLS as gRPC core speaks it: credentials made from what common/net/crypto has read, and the way
 * into core for connections that we accepted ourselves.
 *
 * Core's function for accepted descriptors takes connections in the clear only. Those that are to
 * be encrypted go through what core has for acceptors outside of it: a port named "external:...",
 * for which it leaves an object in the server's arguments whose one method takes descriptors. That
 * object is a C++ one; tls.c alone knows how it is called.
 */
#ifndef BATON_NET_RPC_GRPC_TLS_H
#define BATON_NET_RPC_GRPC_TLS_H

#include "common/net/crypto/certificates.h"
#include "common/net/rpc/grpc/channel_args.h"
#include "common/net/rpc/rpc.h"

#include <grpc/grpc_security.h>

#define TLS_MAX_HANDSHAKE_MS 10000 /* a client that takes longer is dropped */

/* What a server's connections go through. Zeroed by the owner; outlives the core server. */
struct tls_door {
    struct certificates *certificates;
    _Atomic uint64_t version; /* of the set that core was given last */
    void *handler;            /* core's object; of the core server */
};

/* Before the core server is made: adds what core fills. */
void tls_door_prepare(struct tls_door *door, struct channel_args *args);
/* Before it is started. STATUS_INVALID: core takes no certificate of these; STATUS_UNSUPPORTED: it
 * is not the core that we know. */
enum status tls_door_open(struct tls_door *door, grpc_server *core, struct error *err) WARN_UNUSED;
/* Once the server has started, until its shutdown begins: the descriptor is core's. */
void tls_door_enter(struct tls_door *door, int fd);

/* Of a set; NULL: core doesn't take it. */
grpc_channel_credentials *tls_channel_credentials(const struct certificate_set *set);

/* Whether the certificate of the call's other side holds the DNS name. */
bool tls_peer_has_name(grpc_call *core, const char *name);

#endif
