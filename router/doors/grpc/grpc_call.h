/* What all calls of the gRPC door have: who may make them, by which name they go, and their one
 * line of the access log, which says how they ended for the client. A call whose request the
 * dispatcher got has that one's lines instead. On rpc threads. */
#ifndef BATON_ROUTER_DOORS_GRPC_GRPC_CALL_H
#define BATON_ROUTER_DOORS_GRPC_GRPC_CALL_H

#include "common/net/rpc/rpc.h"
#include "proto/proto_unpack.h"
#include "router/doors/grpc/grpc_api.h"
#include "router/request_id.h"

#define GRPC_CALL_MODELS "models" /* the method that no key's quota counts */

struct grpc_call {
    struct grpc_api *api;
    const char *method; /* of the line; "": generating */
    bool refused;       /* when it opened: it has its status */
    bool handed_on;     /* to the dispatcher */
    const char *model;  /* NULL: not known */
    char name[REQUEST_ID_BYTES];
    char tenant[API_KEY_NAME_BYTES], key[API_KEY_NAME_BYTES]; /* "": nobody's */
};

/* Names the call, and lets it in: *grant, to be settled. Or ends it (REASON_NONE: it may go on),
 * and counts that of requests, before anything of it is read. */
enum reason grpc_call_open(struct grpc_call *self, struct grpc_api *api, const char *method,
                           struct rpc_call *call, struct access_grant **grant);
/* The message of a call; it lives in the arena. REASON_MALFORMED. */
enum reason grpc_call_read(const ProtobufCMessageDescriptor *type, struct rpc_bytes bytes,
                           struct arena *arena, ProtobufCMessage **message, struct error *err);
/* Once, before the first send or the end: the client is told the name, as response header
 * x-request-id. `of_message`: an id that the message has. */
void grpc_call_name(struct grpc_call *self, struct rpc_call *call, const char *of_message);
void grpc_call_closed(const struct grpc_call *self, const struct rpc_call *call,
                      const struct rpc_end *end);

#endif
