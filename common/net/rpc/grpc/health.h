/* grpc.health.v1.Health of one server: Check and Watch. All services share one state. Any
 * thread. */
#ifndef BATON_NET_RPC_GRPC_HEALTH_H
#define BATON_NET_RPC_GRPC_HEALTH_H

#include "common/net/rpc/rpc.h"

struct health;

#define HEALTH_METHODS 2

struct health *health_create(const char *const *services, size_t service_count);
void health_destroy(struct health *health); /* all its calls have ended */
void health_methods(struct health *health, struct rpc_method methods[HEALTH_METHODS]);
void health_set_serving(struct health *health, bool serving);

#endif
