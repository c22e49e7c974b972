/* The router's listeners: gRPC of clients, registrations (at an address of their own where one is
 * set), HTTP of clients, figures. Says to each what it gets of the router's parts and settings.
 * Calls from one thread. */
#ifndef BATON_ROUTER_ROUTER_SERVERS_H
#define BATON_ROUTER_ROUTER_SERVERS_H

#include "router/dispatch/request_observers.h"
#include "router/doors/grpc/grpc_api.h"
#include "router/doors/grpc/registry_service.h"
#include "router/doors/openai/openai_api.h"
#include "router/ops/admin.h"
#include "router/router_config.h"

/* What the servers work with: the router's, all of it outlives them. */
struct router_parts {
    const struct router_config *config;
    const struct served_models *models;
    struct router_metrics *metrics;
    struct status_board *board;
    const struct request_observers *views;
    struct constraint_checks *checks;
    struct access *access; /* NULL: no call needs a key */
    struct membership *membership;
    struct dispatch *dispatch;
    struct rpc_runtime *runtime;
    struct rpc_tls client_tls, internal_tls; /* of clients' connections, of workers' */
    struct certificates *metrics_tls;        /* NULL: that listener speaks no TLS */
    uint64_t incarnation;
};

struct router_servers {
    struct grpc_api api;
    struct registry_service registry;
    struct openai_api openai;
    struct admin admin;
    struct rpc_method methods[GRPC_API_METHODS + 1];
    struct rpc_bytes descriptors[2];
    struct rpc_server *clients;
    struct rpc_server *workers;       /* NULL: `clients` takes registrations */
    struct http_server *http_clients; /* NULL: none was asked for */
    struct http_server *figures;
};

/* `servers` is zeroed, and stays where it is. Where it fails, what did start is stopped as at the
 * end, by both calls below. */
enum status router_servers_start(struct router_servers *servers, const struct router_parts *parts,
                                 struct error *err) WARN_UNUSED;
/* Health SERVING; until then, and of what clients ask from router_servers_drain on, NOT_SERVING. */
void router_servers_serve(struct router_servers *servers);
void router_servers_drain(struct router_servers *servers);
/* Between dispatch_stop and dispatch_destroy: statuses get a moment to reach clients, and every
 * call tells the dispatcher that it is over. */
void router_servers_stop_calls(struct router_servers *servers);
/* Figures are there to the last. */
void router_servers_stop_figures(struct router_servers *servers);

const char *router_servers_registry_address(const struct router_servers *servers);
const char *router_servers_http_address(const struct router_servers *servers); /* "": none */

#endif
