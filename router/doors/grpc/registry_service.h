/* baton.worker.v1.Registry on rpc: workers register here, and what they say of themselves goes into
 * the membership. Workers of another version, of a model that has no folder here, or with other
 * files of one that has, are refused with a sentence. */
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
    struct status_board *board; /* who was refused */
    uint64_t incarnation;       /* of this router */
};

/* `service` must outlive the server. */
struct rpc_method registry_service_method(struct registry_service *service);

#endif
