/* grpc.reflection.v1 and v1alpha ServerReflection of one server. Any thread; nothing changes after
 * its creation. */
#ifndef BATON_NET_RPC_GRPC_REFLECTION_H
#define BATON_NET_RPC_GRPC_REFLECTION_H

#include "common/net/rpc/rpc.h"

struct reflection;

#define REFLECTION_METHODS 2

/* Takes services and descriptors from the config and adds those of the built-in services. */
struct reflection *reflection_create(const struct rpc_server_config *config);
void reflection_destroy(struct reflection *reflection); /* all its calls have ended */
void reflection_methods(struct reflection *reflection,
                        struct rpc_method methods[REFLECTION_METHODS]);

#endif
