/* The public service baton.v1.Baton on rpc. Reads what clients send, refuses what is wrong,
 * tokenizes on the rpc thread that received it (large ones beside it: body_readers.h), and submits
 * valid calls to the dispatcher.
 * Tokenize, Detokenize and ListModels are answered at once. */
#ifndef BATON_ROUTER_DOORS_GRPC_GRPC_API_H
#define BATON_ROUTER_DOORS_GRPC_GRPC_API_H

#include "router/dispatch/dispatch.h"
#include "router/ops/access.h"
#include "router/served_models.h"

#define GRPC_API_METHODS 5
#define GRPC_API_SERVICE "baton.v1.Baton"

struct grpc_api {
    struct dispatch *dispatch;
    struct access *access; /* NULL: no call needs a key */
    const struct served_models *models;
    struct constraint_checks *checks;
    struct body_readers *readers; /* NULL: large messages are read on rpc threads, too */
    struct status_board *board;
    struct router_metrics *metrics;
    uint64_t default_deadline_us;  /* for requests without one; 0: none */
    size_t client_buffer_bytes;    /* unsent bytes that a call may have */
    struct access_log *access_log; /* NULL: none */
};

/* Fills methods[0 .. GRPC_API_METHODS); `api` must outlive the server. */
void grpc_api_methods(struct grpc_api *api, struct rpc_method *methods);

#endif
