/* baton.worker.v1.Registry on rpc: workers register here, and join the membership. A worker of
 * another version, of a model that has no folder here, or with other files of its model, is refused
 * with a sentence. */
#ifndef BATON_ROUTER_DOORS_GRPC_REGISTRY_SERVICE_H
#define BATON_ROUTER_DOORS_GRPC_REGISTRY_SERVICE_H

#include "common/net/membership/membership.h"
#include "common/net/rpc/rpc.h"
#include "router/ops/status_board.h"
#include "router/served_models.h"

#define REGISTRY_SERVICE "baton.worker.v1.Registry"

struct registry_service {
    struct membership *membership;
    const struct served_models *models;
    struct status_board *board; /* shows registrations and refusals */
    uint64_t incarnation;       /* this router's */
};

/* `service` must outlive the server. */
struct rpc_method registry_service_method(struct registry_service *service);

#endif
